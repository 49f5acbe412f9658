//! Converts rows of the server to and from our types.

use leasehold_core::{ClaimId, Name};
use mysql_async::{Row, prelude::FromValue};

use super::{
    conn::ResultSet,
    text::{bytes_literal, text_literal},
};
use crate::{
    connection_slots::ConnectionSlots,
    database::{Failed, bad_value},
    row::{ClaimRow, ClientId, LockRow, first_token},
};

/// Reads a row, column by column.
pub(super) struct ColumnReader<'a> {
    row: &'a Row,
    /// The index of the next column.
    index: usize,
}

impl<'a> ColumnReader<'a> {
    pub(super) fn new(row: &'a Row) -> Self {
        Self { row, index: 0 }
    }

    /// The next column. A value of a wrong type is an error, not skipped: it may say that the name is held.
    pub(super) fn next<T: FromValue>(&mut self) -> Result<T, Failed> {
        let index = self.index;
        self.index += 1;
        self.row.get_opt(index).and_then(Result::ok).ok_or_else(|| {
            let columns = self.row.columns_ref();
            let name = columns.get(index).map_or_else(|| "?".into(), |column| column.name_str());
            bad_value(&name, "its type is wrong, or it is NULL")
        })
    }

    /// The text in the next column.
    pub(super) fn text(&mut self) -> Result<String, Failed> {
        self.next()
    }

    /// The id in the next column, if there is one.
    pub(super) fn id(&mut self) -> Result<Option<ClaimId>, Failed> {
        let id: Option<Vec<u8>> = self.next()?;
        let decode = |id: Vec<u8>| {
            let id = id.try_into().map(ClaimId);
            id.map_err(|_| bad_value("id", "it is not 16 bytes long"))
        };
        id.map(decode).transpose()
    }

    /// The next columns as the row of a name.
    pub(super) fn lock(&mut self) -> Result<LockRow, Failed> {
        let (token, holder) = (self.next()?, self.id()?);
        let holder_row = ClaimRow {
            id: holder.unwrap_or(ClaimId([0; 16])),
            stand: 0,
            place: 0,
            mode: 0,
            count: 0,
            most: 0,
            token,
            tokens: self.next()?,
            previous: self.next()?,
            owner: self.next()?,
            since: self.next()?,
            expires: self.next()?,
            claim_time: 0,
            place_since: 0,
            place_expires: 0,
            client: self.client()?,
        };
        let holder_row = ClaimRow { token: first_token(token, holder_row.tokens), ..holder_row };
        Ok(LockRow {
            token,
            holder: holder.map(|_| holder_row),
            claims: self.next()?,
            ended: self.next()?,
            ended_upto: self.next()?,
            ended_until: self.next()?,
        })
    }

    /// The next columns as the row of a claim; `None` if they are NULL.
    pub(super) fn claim(&mut self) -> Result<Option<ClaimRow>, Failed> {
        let Some(id) = self.id()? else { return Ok(None) };
        Ok(Some(ClaimRow {
            id,
            stand: self.next()?,
            place: self.next()?,
            mode: self.next()?,
            count: self.next()?,
            most: self.next()?,
            token: self.next()?,
            tokens: self.next()?,
            previous: self.next()?,
            owner: self.next()?,
            since: self.next()?,
            expires: self.next()?,
            claim_time: self.next()?,
            place_since: self.next()?,
            place_expires: self.next()?,
            client: self.client()?,
        }))
    }

    /// The client id in the next column.
    fn client(&mut self) -> Result<ClientId, Failed> {
        let number: i64 = self.next()?;
        Ok(ClientId(number.cast_unsigned()))
    }
}

/// A limit that does not exist, for [`ConnectionSlots::new`].
const NO_LIMIT: i64 = -1;

/// The connections in use and the limits, from the results of `slots.sql`; `None` if the server does not report them.
pub(super) fn connection_slots(sets: &[ResultSet]) -> Option<ConnectionSlots> {
    let [limits, used] = sets else { return None };
    let (mut limits, mut used) =
        (ColumnReader::new(limits.rows.first()?), ColumnReader::new(used.rows.first()?));
    let (server_limit, user_limit, user_count): (i64, i64, i64) =
        (limits.next().ok()?, limits.next().ok()?, limits.next().ok()?);
    let (_, all_count): (String, String) = (used.next().ok()?, used.next().ok()?);
    // The server reports "no limit" as zero; `ConnectionSlots` expects a negative number.
    let user_limit = if user_limit > 0 { user_limit } else { NO_LIMIT };
    Some(ConnectionSlots::new([
        (all_count.parse().ok()?, server_limit),
        (user_count, user_limit),
        (0, NO_LIMIT),
    ]))
}

/// The names in the first column of each row; skips text that is no valid name.
pub(super) fn names(rows: &[Row]) -> Result<Vec<Name>, Failed> {
    let mut names = Vec::with_capacity(rows.len());
    for row in rows {
        names.extend(Name::new(&ColumnReader::new(row).text()?).ok());
    }
    Ok(names)
}

/// The row of a claim, as a SQL tuple.
pub(super) fn claim_tuple(name: &str, row: &ClaimRow) -> String {
    let ClaimRow { id, stand, place, mode, count, most, token, tokens, previous, since, expires, .. } = row;
    let ClaimRow { claim_time, place_since, place_expires, client, .. } = row;
    format!(
        "({}, {}, {stand}, {place}, {mode}, {count}, {most}, {token}, {tokens}, {previous}, {}, {since}, {expires}, {claim_time}, \
         {place_since}, {place_expires}, {})",
        bytes_literal(name.as_bytes()),
        bytes_literal(&id.0),
        text_literal(&row.owner),
        client.0.cast_signed(),
    )
}
