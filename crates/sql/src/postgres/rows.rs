//! Converts rows of the server to and from our types.

use leasehold_core::ClaimId;
use tokio_postgres::{Row, types::FromSql};

use crate::{
    database::{Failed, bad_value},
    row::{ClaimRow, ClientId, LockRow, first},
    slots::Slots,
};

/// The value of a column. A value of a wrong type is an error, not skipped: it may say that the name is held.
pub(crate) fn column<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Failed> {
    row.try_get(at).map_err(|error| {
        let name = row.columns().get(at).map_or("?", |column| column.name());
        bad_value(
            name,
            &std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string),
        )
    })
}

/// The number of columns that [`lock_row`] reads.
pub(crate) const LOCK_COLUMNS: usize = 12;
/// The number of columns that [`claim_row`] reads.
pub(crate) const CLAIM_COLUMNS: usize = 16;

/// The row of a name, from the columns that begin at `at`.
pub(crate) fn lock_row(row: &Row, at: usize) -> Result<LockRow, Failed> {
    let token: i64 = column(row, at)?;
    let tokens: i32 = column(row, at + 2)?;
    let holder = match id(row, at + 1)? {
        None => None,
        Some(id) => Some(ClaimRow {
            id,
            stand: 0,
            place: 0,
            mode: 0,
            count: 0,
            most: 0,
            token: first(token, tokens),
            tokens,
            previous: column(row, at + 3)?,
            owner: column(row, at + 4)?,
            since: column(row, at + 5)?,
            expires: column(row, at + 6)?,
            claim_time: 0,
            place_since: 0,
            place_expires: 0,
            client: client(column(row, at + 7)?),
        }),
    };
    Ok(LockRow {
        token,
        holder,
        claims: column(row, at + 8)?,
        ended: column(row, at + 9)?,
        ended_upto: column(row, at + 10)?,
        ended_until: column(row, at + 11)?,
    })
}

/// The row of a claim, from the columns that begin at `at`; `None` if they are NULL.
pub(crate) fn claim_row(row: &Row, at: usize) -> Result<Option<ClaimRow>, Failed> {
    let Some(id) = id(row, at)? else { return Ok(None) };
    Ok(Some(ClaimRow {
        id,
        stand: column(row, at + 1)?,
        place: column(row, at + 2)?,
        mode: column(row, at + 3)?,
        count: column(row, at + 4)?,
        most: column(row, at + 5)?,
        token: column(row, at + 6)?,
        tokens: column(row, at + 7)?,
        previous: column(row, at + 8)?,
        owner: column(row, at + 9)?,
        since: column(row, at + 10)?,
        expires: column(row, at + 11)?,
        claim_time: column(row, at + 12)?,
        place_since: column(row, at + 13)?,
        place_expires: column(row, at + 14)?,
        client: client(column(row, at + 15)?),
    }))
}

/// The id in a column, if there is one.
pub(crate) fn id(row: &Row, at: usize) -> Result<Option<ClaimId>, Failed> {
    let Some(bytes) = column::<Option<&[u8]>>(row, at)? else { return Ok(None) };
    let id = bytes.try_into().map_err(|_| bad_value("id", "it is not 16 bytes long"))?;
    Ok(Some(ClaimId(id)))
}

/// The connections in use and the limit, for each of the three limits that `slots.sql` reads.
pub(crate) fn slots(row: &Row) -> Result<Slots, Failed> {
    let use_and_limit = |at| Ok::<_, Failed>((column(row, at)?, column(row, at + 1)?));
    Ok(Slots::new([use_and_limit(0)?, use_and_limit(2)?, use_and_limit(4)?]))
}

/// The client id from its number in a row.
pub(crate) fn client(number: i64) -> ClientId {
    ClientId(number.cast_unsigned())
}

/// The client id as a number in a row.
pub(crate) fn client_number(client: ClientId) -> i64 {
    client.0.cast_signed()
}
