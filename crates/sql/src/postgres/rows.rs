//! Rows as the server gives and takes them.

use leasehold_core::ClaimId;
use tokio_postgres::Row;

use crate::row::{ClaimRow, ClientId, LockRow};

/// The row of a name, from the column at `at` on.
pub(crate) fn lock_row(row: &Row, at: usize) -> LockRow {
    let token: i64 = row.get(at);
    let tokens: i32 = row.get(at + 2);
    let holder: Option<&[u8]> = row.get(at + 1);
    let holder = holder.and_then(id).map(|id| ClaimRow {
        id,
        stand: 0,
        place: 0,
        mode: 0,
        count: 0,
        most: 0,
        token: token - i64::from(tokens) + 1,
        tokens,
        previous: row.get(at + 3),
        owner: row.get(at + 4),
        since: row.get(at + 5),
        expires: row.get(at + 6),
        claim_time: 0,
        place_since: 0,
        place_expires: 0,
        client: client(row.get(at + 7)),
    });
    LockRow {
        token,
        holder,
        claims: row.get(at + 8),
        ended: row.get(at + 9),
        ended_upto: row.get(at + 10),
        ended_until: row.get(at + 11),
    }
}

/// The row of a claim, from the column at `at` on; `None` where there is none.
pub(crate) fn claim_row(row: &Row, at: usize) -> Option<ClaimRow> {
    let known: Option<&[u8]> = row.get(at);
    Some(ClaimRow {
        id: id(known?)?,
        stand: row.get(at + 1),
        place: row.get(at + 2),
        mode: row.get(at + 3),
        count: row.get(at + 4),
        most: row.get(at + 5),
        token: row.get(at + 6),
        tokens: row.get(at + 7),
        previous: row.get(at + 8),
        owner: row.get(at + 9),
        since: row.get(at + 10),
        expires: row.get(at + 11),
        claim_time: row.get(at + 12),
        place_since: row.get(at + 13),
        place_expires: row.get(at + 14),
        client: client(row.get(at + 15)),
    })
}

pub(crate) fn id(bytes: &[u8]) -> Option<ClaimId> {
    bytes.try_into().ok().map(ClaimId)
}

pub(crate) fn client(number: i64) -> ClientId {
    ClientId(number.cast_unsigned())
}

pub(crate) fn client_number(client: ClientId) -> i64 {
    client.0.cast_signed()
}
