//! A transaction on one name, under the lock of its row: one round trip to read, one to write.

use leasehold_core::{Fault, Name};

use super::{
    conn::{Conn, ResultSet},
    error::{Commits, RequestError},
    rows::{ColumnReader, claim_tuple},
    statements::{CLAIMS_DROP, CLAIMS_PUT, LOCK_NEW, LOCK_PUT, READ},
    text::{bytes_literal, comma_list, text_literal},
};
use crate::{
    database::{Failed, Timed},
    row::{ClaimRow, LockRow},
    step::{Changes, Snapshot, Verb},
};

/// The number of statements in `lock_new.sql`. Their results come before the results of `read.sql`.
pub(super) const LOCK_NEW_STATEMENTS: usize = 2;
/// The number of statements in `read.sql`.
pub(super) const READ_STATEMENTS: usize = 3;

/// Runs one transaction: reads the rows of the name, applies the verb, writes the changes.
pub(super) async fn apply(conn: &mut Conn, name: &Name, verb: &Verb) -> Result<Timed<Changes>, RequestError> {
    let name_literal = bytes_literal(name.as_str().as_bytes());
    let name_parameter = [("name", name_literal.as_str())];
    let read = READ.with_values(&name_parameter);
    let text = format!("{}; {read}", conn.begin_statements());
    let sets = conn
        .execute(&text)
        .await
        .map_err(|execute_error| RequestError::of(&execute_error, Commits::Never))?;
    let snapshot = match snapshot(conn, sets.get(conn.begin_count()..).unwrap_or_default())? {
        Some(snapshot) => snapshot,
        None => {
            let text = format!("{}; {read}", LOCK_NEW.with_values(&name_parameter));
            let sets = conn
                .execute(&text)
                .await
                .map_err(|execute_error| RequestError::of(&execute_error, Commits::Never))?;
            let created = snapshot(conn, sets.get(LOCK_NEW_STATEMENTS..).unwrap_or_default())?;
            created.ok_or_else(|| Failed::new(Fault::Internal, "a row that was just created is missing"))?
        }
    };
    let changes = snapshot.apply(verb)?;
    write(conn, &name_literal, name.as_str(), &changes).await?;
    Ok(Timed { now: snapshot.now, value: changes })
}

/// Decodes the rows of a name; `None` if the name has no row.
pub(super) fn snapshot(conn: &Conn, sets: &[ResultSet]) -> Result<Option<Snapshot>, Failed> {
    let [lock_set, claim_set, time_set] = sets else {
        return Err(Failed::new(Fault::Internal, "the number of results is not that of the statements"));
    };
    let Some(lock) = lock_set.rows.first() else { return Ok(None) };
    let lock = ColumnReader::new(lock).lock()?;
    let claims: Result<Vec<_>, _> = claim_set.rows.iter().map(|row| ColumnReader::new(row).claim()).collect();
    let claims = claims?.into_iter().flatten().collect();
    let time = time_set
        .rows
        .first()
        .ok_or_else(|| Failed::new(Fault::Internal, "the database did not return its time"))?;
    let now = ColumnReader::new(time).next()?;
    Ok(Some(Snapshot { now, floor: now, lineage: conn.lineage(), lock, claims }))
}

/// Writes the changes and commits, in one round trip.
async fn write(
    conn: &mut Conn,
    name_literal: &str,
    name: &str,
    changes: &Changes,
) -> Result<(), RequestError> {
    let mut statements = change_statements(name_literal, name, changes);
    let commits = if changes.has_row_changes() { Commits::At(statements.len()) } else { Commits::Never };
    statements.push(conn.commit_statements().to_owned());
    conn.execute(&statements.join("; "))
        .await
        .map(drop)
        .map_err(|execute_error| RequestError::of(&execute_error, commits))
}

/// The statements that write the changes.
pub(super) fn change_statements(name_literal: &str, name: &str, changes: &Changes) -> Vec<String> {
    let mut statements = Vec::new();
    statements.extend(changes.lock.as_ref().map(|lock| update_lock(name_literal, lock)));
    if !changes.changed_claims.is_empty() {
        statements.push(CLAIMS_PUT.with_values(&[(
            "rows",
            &comma_list(changes.changed_claims.iter().map(|row| claim_tuple(name, row))),
        )]));
    }
    if !changes.deleted_claims.is_empty() {
        let ids = comma_list(changes.deleted_claims.iter().map(|id| bytes_literal(&id.0)));
        statements.push(CLAIMS_DROP.with_values(&[("name", name_literal), ("ids", &ids)]));
    }
    statements
}

/// The statement that writes the row of a name.
fn update_lock(name: &str, lock: &LockRow) -> String {
    let holder_row = lock.holder.as_ref();
    let number_or_zero = |field: fn(&ClaimRow) -> i64| holder_row.map_or(0, field).to_string();
    LOCK_PUT.with_values(&[
        ("name", name),
        ("token", &lock.token.to_string()),
        ("holder", &holder_row.map_or_else(|| "NULL".to_owned(), |row| bytes_literal(&row.id.0))),
        ("tokens", &number_or_zero(|row| row.tokens.into())),
        ("previous", &number_or_zero(|row| row.previous.into())),
        ("owner", &text_literal(holder_row.map_or("", |row| &row.owner))),
        ("since", &number_or_zero(|row| row.since)),
        ("expires", &number_or_zero(|row| row.expires)),
        ("client", &number_or_zero(|row| row.client.0.cast_signed())),
        ("claims", &lock.claims.to_string()),
        ("ended", &lock.ended.to_string()),
        ("upto", &lock.ended_upto.to_string()),
        ("until", &lock.ended_until.to_string()),
    ])
}
