//! Reads and writes the rows of one name.

use leasehold_core::{ClaimId, Name, Room};
use rusqlite::{Connection, Error, OptionalExtension, Row, params};

use crate::{
    row::{ClaimRow, ClientId, LockRow, first_token},
    runtime::wall_micros,
    step::{Changes, Snapshot},
};

use super::transaction::Scope;

/// Reads the row of a name.
const SELECT_LOCK: &str = "SELECT token, holder, tokens, previous, substr(owner, 1, 512) AS owner, since, expires, client, \
    claims, ended, ended_upto, ended_until \
    FROM leasehold_lock WHERE name = ?1";
/// The columns that [`claim_row`] reads.
pub(super) const CLAIM_COLUMNS: &str = "id, stand, place, mode, count, most, token, tokens, previous, substr(owner, 1, 512) AS owner, since, \
    expires, claim_time, place_since, place_expires, client";
/// Reads the claim rows of a name.
const SELECT_CLAIMS: &str = "SELECT id, stand, place, mode, count, most, token, tokens, previous, substr(owner, 1, 512) AS owner, \
    since, expires, claim_time, place_since, place_expires, client FROM leasehold_claim WHERE name = ?1 ORDER BY place";
/// Reads the largest token of all forgotten names.
const SELECT_FLOOR: &str = "SELECT floor FROM leasehold_meta";
/// Writes the row of a name.
const PUT_LOCK: &str = "INSERT INTO leasehold_lock VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
    ON CONFLICT (name) DO UPDATE SET token = excluded.token, holder = excluded.holder, tokens = excluded.tokens, \
    previous = excluded.previous, owner = excluded.owner, since = excluded.since, expires = excluded.expires, \
    client = excluded.client, claims = excluded.claims, ended = excluded.ended, ended_upto = excluded.ended_upto, \
    ended_until = excluded.ended_until";
/// Writes a claim row.
const PUT_CLAIM: &str = "INSERT OR REPLACE INTO leasehold_claim VALUES \
    (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
/// Deletes a claim row.
const DROP_CLAIM: &str = "DELETE FROM leasehold_claim WHERE name = ?1 AND id = ?2";

/// Reads the snapshot of a name.
pub(super) fn read(scope: &Scope<'_>, name: &Name) -> Result<Snapshot, Error> {
    let Scope { file, now, .. } = scope;
    let connection = &file.connection;
    let lock = connection.prepare_cached(SELECT_LOCK)?.query_row([name.as_str()], lock_row).optional()?;
    let mut floor = wall_micros();
    let claims = match &lock {
        Some(lock) if lock.claims > 0 => claims(connection, name)?,
        Some(_) => Vec::new(),
        None => {
            // The row of the name may have been swept, together with its newest token.
            let swept_token: i64 =
                connection.prepare_cached(SELECT_FLOOR)?.query_row([], |row| row.get(0))?;
            floor = floor.max(swept_token.saturating_add(1));
            Vec::new()
        }
    };
    Ok(Snapshot { now: *now, floor, lineage: file.lineage, lock: lock.unwrap_or_default(), claims })
}

/// The claim rows of a name, within the size limit of an answer.
fn claims(connection: &Connection, name: &Name) -> Result<Vec<ClaimRow>, Error> {
    let (mut claims, mut room) = (Vec::new(), Room::whole());
    for claim in connection.prepare_cached(SELECT_CLAIMS)?.query_map([name.as_str()], claim_row)? {
        let claim = claim?;
        let row_size = (size_of::<ClaimRow>() + claim.owner.len()) as u64;
        room.take(row_size).map_err(|error| {
            let too_big = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_TOOBIG);
            Error::SqliteFailure(too_big, Some(error.to_string()))
        })?;
        claims.push(claim);
    }
    Ok(claims)
}

/// Writes the changes of a name.
pub(super) fn write(scope: &Scope<'_>, name: &Name, changes: &Changes) -> Result<(), Error> {
    let (connection, name) = (&scope.file.connection, name.as_str());
    if let Some(lock) = &changes.lock {
        let holder_row = lock.holder.as_ref();
        let number_or_zero = |field: fn(&ClaimRow) -> i64| holder_row.map_or(0, field);
        connection.prepare_cached(PUT_LOCK)?.execute(params![
            name,
            lock.token,
            holder_row.map(|row| row.id.0.as_slice()),
            holder_row.map_or(0, |row| row.tokens),
            holder_row.map_or(0, |row| row.previous),
            holder_row.map_or("", |row| row.owner.as_str()),
            number_or_zero(|row| row.since),
            number_or_zero(|row| row.expires),
            number_or_zero(|row| row.client.0.cast_signed()),
            lock.claims,
            lock.ended,
            lock.ended_upto,
            lock.ended_until,
        ])?;
    }
    for row in &changes.changed_claims {
        connection.prepare_cached(PUT_CLAIM)?.execute(params![
            name,
            row.id.0.as_slice(),
            row.stand,
            row.place,
            row.mode,
            row.count,
            row.most,
            row.token,
            row.tokens,
            row.previous,
            row.owner,
            row.since,
            row.expires,
            row.claim_time,
            row.place_since,
            row.place_expires,
            row.client.0.cast_signed(),
        ])?;
    }
    for id in &changes.deleted_claims {
        connection.prepare_cached(DROP_CLAIM)?.execute(params![name, id.0.as_slice()])?;
    }
    Ok(())
}

/// The row of a name, from the columns of [`SELECT_LOCK`].
pub(crate) fn lock_row(row: &Row<'_>) -> Result<LockRow, Error> {
    let (token, tokens): (i64, i32) = (row.get(0)?, row.get(2)?);
    let holder = match row.get::<_, Option<[u8; 16]>>(1)? {
        Some(id) => Some(ClaimRow {
            id: ClaimId(id),
            stand: 0,
            place: 0,
            mode: 0,
            count: 0,
            most: 0,
            token: first_token(token, tokens),
            tokens,
            previous: row.get(3)?,
            owner: row.get(4)?,
            since: row.get(5)?,
            expires: row.get(6)?,
            claim_time: 0,
            place_since: 0,
            place_expires: 0,
            client: ClientId(row.get::<_, i64>(7)?.cast_unsigned()),
        }),
        None => None,
    };
    Ok(LockRow {
        token,
        holder,
        claims: row.get(8)?,
        ended: row.get(9)?,
        ended_upto: row.get(10)?,
        ended_until: row.get(11)?,
    })
}

/// The row of a claim, from [`CLAIM_COLUMNS`].
pub(crate) fn claim_row(row: &Row<'_>) -> Result<ClaimRow, Error> {
    Ok(ClaimRow {
        id: ClaimId(row.get(0)?),
        stand: row.get(1)?,
        place: row.get(2)?,
        mode: row.get(3)?,
        count: row.get(4)?,
        most: row.get(5)?,
        token: row.get(6)?,
        tokens: row.get(7)?,
        previous: row.get(8)?,
        owner: row.get(9)?,
        since: row.get(10)?,
        expires: row.get(11)?,
        claim_time: row.get(12)?,
        place_since: row.get(13)?,
        place_expires: row.get(14)?,
        client: ClientId(row.get::<_, i64>(15)?.cast_unsigned()),
    })
}
