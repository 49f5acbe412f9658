//! A transaction on several names, under the locks of their rows: one round trip to read, one to write.

use leasehold_core::{Claim, Fault};

use super::{
    apply::{LOCK_NEW_STATEMENTS, READ_STATEMENTS, change_statements, snapshot},
    conn::{Conn, ResultSet},
    error::{Commits, RequestError},
    statements::{LOCK_NEW, READ},
    text::bytes_literal,
};
use crate::{
    database::Failed,
    row::ClientId,
    step::{Changes, Snapshot},
    step_all::{AllChanges, claim_all},
};

/// Runs one transaction: reads the rows of all names, claims the names, writes the changes.
pub(super) async fn apply_all(
    conn: &mut Conn,
    claims: &[Claim],
    client: ClientId,
) -> Result<AllChanges, RequestError> {
    let literals: Vec<String> =
        claims.iter().map(|claim| bytes_literal(claim.name.as_str().as_bytes())).collect();
    let snapshots = read(conn, &literals).await?;
    let all = claim_all(&snapshots, claims, client);
    write(conn, claims, &literals, &all.changes).await?;
    Ok(all)
}

/// Locks the rows of all names in the order of the names, creates missing ones, and reads everything about the names.
/// A row is created when its turn comes. Created later, it would be locked against the order, after the rows of later
/// names, and a transaction that keeps the order could wait for this one while this one waits for it.
async fn read(conn: &mut Conn, names: &[String]) -> Result<Vec<Result<Snapshot, Failed>>, RequestError> {
    let mut statements = vec![conn.begin_statements().to_owned()];
    for name in names {
        let name = [("name", name.as_str())];
        statements.extend([LOCK_NEW.with_values(&name), READ.with_values(&name)]);
    }
    let sets = conn
        .execute(&statements.join("; "))
        .await
        .map_err(|execute_error| RequestError::of(&execute_error, Commits::Never))?;
    let sets = sets.get(conn.begin_count()..).unwrap_or_default();
    let decode = |sets: &[ResultSet]| {
        let missing = || Failed::new(Fault::Internal, "a row that was just created is missing");
        snapshot(conn, sets.get(LOCK_NEW_STATEMENTS..).unwrap_or_default())?.ok_or_else(missing)
    };
    Ok(sets.chunks(LOCK_NEW_STATEMENTS + READ_STATEMENTS).map(decode).collect())
}

/// Writes the changes and commits, in one round trip.
async fn write(
    conn: &mut Conn,
    claims: &[Claim],
    literals: &[String],
    changes: &[Changes],
) -> Result<(), RequestError> {
    let of_name = |((claim, literal), changes): ((&Claim, &String), &Changes)| {
        change_statements(literal, claim.name.as_str(), changes)
    };
    let mut statements: Vec<String> = claims.iter().zip(literals).zip(changes).flat_map(of_name).collect();
    let commits = if statements.is_empty() { Commits::Never } else { Commits::At(statements.len()) };
    statements.push(conn.commit_statements().to_owned());
    conn.execute(&statements.join("; "))
        .await
        .map(drop)
        .map_err(|execute_error| RequestError::of(&execute_error, commits))
}
