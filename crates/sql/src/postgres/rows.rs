//! Converts rows of the server to and from our types.

use leasehold_core::ClaimId;
use tokio_postgres::{Row, types::FromSql};

use crate::{
    connection_slots::ConnectionSlots,
    database::{Failed, bad_value},
    row::{ClaimRow, ClientId, LockRow, first_token},
};

/// The value of a column. A value of a wrong type is an error, not skipped: it may say that the name is held.
pub(crate) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T, Failed> {
    row.try_get(index).map_err(|error| {
        let name = row.columns().get(index).map_or("?", |column| column.name());
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

/// The row of a name, from the columns that begin at `start`.
pub(crate) fn lock_row(row: &Row, start: usize) -> Result<LockRow, Failed> {
    let token: i64 = column(row, start)?;
    let tokens: i32 = column(row, start + 2)?;
    let holder = match id(row, start + 1)? {
        None => None,
        Some(id) => Some(ClaimRow {
            id,
            stand: 0,
            place: 0,
            mode: 0,
            count: 0,
            most: 0,
            token: first_token(token, tokens),
            tokens,
            previous: column(row, start + 3)?,
            owner: column(row, start + 4)?,
            since: column(row, start + 5)?,
            expires: column(row, start + 6)?,
            claim_time: 0,
            place_since: 0,
            place_expires: 0,
            client: client(column(row, start + 7)?),
        }),
    };
    Ok(LockRow {
        token,
        holder,
        claims: column(row, start + 8)?,
        ended: column(row, start + 9)?,
        ended_upto: column(row, start + 10)?,
        ended_until: column(row, start + 11)?,
    })
}

/// The row of a claim, from the columns that begin at `start`; `None` if they are NULL.
pub(crate) fn claim_row(row: &Row, start: usize) -> Result<Option<ClaimRow>, Failed> {
    let Some(id) = id(row, start)? else { return Ok(None) };
    Ok(Some(ClaimRow {
        id,
        stand: column(row, start + 1)?,
        place: column(row, start + 2)?,
        mode: column(row, start + 3)?,
        count: column(row, start + 4)?,
        most: column(row, start + 5)?,
        token: column(row, start + 6)?,
        tokens: column(row, start + 7)?,
        previous: column(row, start + 8)?,
        owner: column(row, start + 9)?,
        since: column(row, start + 10)?,
        expires: column(row, start + 11)?,
        claim_time: column(row, start + 12)?,
        place_since: column(row, start + 13)?,
        place_expires: column(row, start + 14)?,
        client: client(column(row, start + 15)?),
    }))
}

/// The id in a column, if there is one.
pub(crate) fn id(row: &Row, index: usize) -> Result<Option<ClaimId>, Failed> {
    let Some(bytes) = column::<Option<&[u8]>>(row, index)? else { return Ok(None) };
    let id = bytes.try_into().map_err(|_| bad_value("id", "it is not 16 bytes long"))?;
    Ok(Some(ClaimId(id)))
}

/// The connections in use and the limit, for each of the three limits that `slots.sql` reads, from the columns that
/// begin at `start`.
pub(crate) fn connection_slots(row: &Row, start: usize) -> Result<ConnectionSlots, Failed> {
    let use_and_limit = |index| Ok::<_, Failed>((column(row, index)?, column(row, index + 1)?));
    Ok(ConnectionSlots::new([use_and_limit(start)?, use_and_limit(start + 2)?, use_and_limit(start + 4)?]))
}

/// The client id from its number in a row.
pub(crate) fn client(number: i64) -> ClientId {
    ClientId(number.cast_unsigned())
}

/// The client id as a number in a row.
pub(crate) fn client_number(client: ClientId) -> i64 {
    client.0.cast_signed()
}
