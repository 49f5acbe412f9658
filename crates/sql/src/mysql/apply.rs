//! A transaction on one name, under the lock of its row: one round trip to read, one to write.

use leasehold_core::{Fault, Name};

use super::{
    conn::{Conn, Set},
    error::{Commits, Stopped},
    rows::{Columns, put},
    statements::{CLAIMS_DROP, CLAIMS_PUT, LOCK_NEW, LOCK_PUT, READ},
    text::{bytes, list, words},
};
use crate::{
    database::{Failed, Timed},
    row::{ClaimRow, LockRow},
    step::{Changes, Snapshot, Verb},
};

/// Reads the rows of the name, applies the verb, writes the changes.
pub(super) async fn apply(conn: &mut Conn, name: &Name, verb: &Verb) -> Result<Timed<Changes>, Stopped> {
    let literal = bytes(name.as_str().as_bytes());
    let named = [("name", literal.as_str())];
    let read = READ.with(&named);
    let text = format!("{}; {read}", conn.begin());
    let sets = conn.execute(&text).await.map_err(|broke| Stopped::of(&broke, Commits::Never))?;
    let snapshot = match snapshot(conn, sets.get(conn.begins()..).unwrap_or_default())? {
        Some(snapshot) => snapshot,
        None => {
            let text = format!("{}; {read}", LOCK_NEW.with(&named));
            let sets = conn.execute(&text).await.map_err(|broke| Stopped::of(&broke, Commits::Never))?;
            let made = snapshot(conn, sets.get(2..).unwrap_or_default())?;
            made.ok_or_else(|| Failed::new(Fault::Internal, "a row that was just created is missing"))?
        }
    };
    let done = snapshot.apply(verb)?;
    write(conn, &literal, name.as_str(), &done).await?;
    Ok(Timed { now: snapshot.now, value: done })
}

/// Decodes the rows of a name; `None` where it has no row.
fn snapshot(conn: &Conn, sets: &[Set]) -> Result<Option<Snapshot>, Failed> {
    let [lock, claims, time] = sets else {
        return Err(Failed::new(Fault::Internal, "the number of results is not that of the statements"));
    };
    let Some(lock) = lock.rows.first() else { return Ok(None) };
    let lock = Columns::of(lock).lock()?;
    let claims: Result<Vec<_>, _> = claims.rows.iter().map(|row| Columns::of(row).claim()).collect();
    let claims = claims?.into_iter().flatten().collect();
    let time = time
        .rows
        .first()
        .ok_or_else(|| Failed::new(Fault::Internal, "the database did not return its time"))?;
    let now = Columns::of(time).next()?;
    Ok(Some(Snapshot { now, floor: now, lineage: conn.lineage(), lock, claims }))
}

async fn write(conn: &mut Conn, literal: &str, name: &str, done: &Changes) -> Result<(), Stopped> {
    let mut statements = Vec::new();
    statements.extend(done.lock.as_ref().map(|lock| put_lock(literal, lock)));
    if !done.put.is_empty() {
        statements.push(CLAIMS_PUT.with(&[("rows", &list(done.put.iter().map(|row| put(name, row))))]));
    }
    if !done.drop.is_empty() {
        let ids = list(done.drop.iter().map(|id| bytes(&id.0)));
        statements.push(CLAIMS_DROP.with(&[("name", literal), ("ids", &ids)]));
    }
    let commits = if done.changes() { Commits::At(statements.len()) } else { Commits::Never };
    statements.push(conn.commit().to_owned());
    conn.execute(&statements.join("; ")).await.map(drop).map_err(|broke| Stopped::of(&broke, commits))
}

fn put_lock(name: &str, lock: &LockRow) -> String {
    let held = lock.holder.as_ref();
    let long = |of: fn(&ClaimRow) -> i64| held.map_or(0, of).to_string();
    LOCK_PUT.with(&[
        ("name", name),
        ("token", &lock.token.to_string()),
        ("holder", &held.map_or_else(|| "NULL".to_owned(), |row| bytes(&row.id.0))),
        ("tokens", &long(|row| row.tokens.into())),
        ("previous", &long(|row| row.previous.into())),
        ("owner", &words(held.map_or("", |row| &row.owner))),
        ("since", &long(|row| row.since)),
        ("expires", &long(|row| row.expires)),
        ("client", &long(|row| row.client.0.cast_signed())),
        ("claims", &lock.claims.to_string()),
        ("ended", &lock.ended.to_string()),
        ("upto", &lock.ended_upto.to_string()),
        ("until", &lock.ended_until.to_string()),
    ])
}
