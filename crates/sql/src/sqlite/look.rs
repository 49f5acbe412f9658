//! Queries that only read: grants, names, expired rows; and the sweep of unused rows.

use leasehold_core::{Grant, Name, Token, lock_state::EntryKind};
use rusqlite::{Error, params};

use super::{
    error::before_commit,
    rows::{CLAIM_COLUMNS, claim_row},
    transaction::Scope,
};
use crate::{
    database::{Failed, QueueEntry},
    row::{ClientId, kind_of, previous_of},
    runtime::wall_micros,
    step::{ClientMessage, ClientNotification},
};

/// How much older than now, in microseconds, the newest token of an unused name must be before its row is deleted.
const UNUSED_MICROS: i64 = 3_600_000_000;

/// Reads the unconfirmed grants to waiting claims of a client. Also reads when a name in its minimum hold time becomes
/// free, if a claim of the client is the head of the queue of the name.
pub(super) fn poll_grants(scope: &Scope<'_>, client: ClientId) -> Result<Vec<ClientNotification>, Failed> {
    let query = || {
        // `stand` 1: an unconfirmed grant; 3: the minimum hold time of a name.
        let text = format!(
            "SELECT {CLAIM_COLUMNS} FROM leasehold_claim WHERE client = ?1 AND (stand = 1 AND expires > ?2 OR stand = 3)"
        );
        let mut statement = scope.file.connection.prepare_cached(&text)?;
        let rows = statement.query_map(params![client.0.cast_signed(), scope.now], claim_row)?;
        rows.collect::<Result<Vec<_>, Error>>()
    };
    let rows = query().map_err(before_commit)?;
    let notifications = rows.into_iter().filter_map(|row| {
        if kind_of(row.stand) == Some(EntryKind::MinHold) {
            let remaining_micros = row.expires.saturating_sub(scope.now);
            return Some(ClientNotification {
                client,
                id: row.id,
                message: ClientMessage::HoldEnds { remaining_micros },
            });
        }
        let grant = Grant {
            token: Token { lineage: scope.file.lineage, number: u64::try_from(row.token).ok()? },
            tokens: u32::try_from(row.tokens).ok()?,
            ttl: row.entry().map(|entry| entry.claim_time),
            previous: previous_of(row.previous),
        };
        Some(ClientNotification {
            client,
            id: row.id,
            message: ClientMessage::Granted { grant, since: row.since },
        })
    });
    Ok(notifications.collect())
}

/// The state of a waiting claim.
#[derive(Clone, Copy)]
pub(super) struct EntryState {
    /// The code in the column `stand`, see [`kind_of`].
    pub(super) stand: i16,
    /// Whether its queue entry has to be extended now.
    pub(super) extension_due: bool,
}

/// The current state of each of these claims; `None` if it does not exist.
pub(super) fn states(scope: &Scope<'_>, entries: &[QueueEntry]) -> Result<Vec<Option<EntryState>>, Failed> {
    let query = || {
        let mut statement = scope.file.connection.prepare_cached(
            "SELECT stand, expires FROM leasehold_claim WHERE name = ?1 AND id = ?2 AND expires > ?3",
        )?;
        let state = |entry: &QueueEntry| {
            let mut rows = statement.query(params![entry.name.as_str(), entry.id.0.as_slice(), scope.now])?;
            let Some(row) = rows.next()? else { return Ok(None) };
            let (stand, expires): (i16, i64) = (row.get(0)?, row.get(1)?);
            // An entry is extended if less than three quarters of its life remain. So it is written at most four times
            // in the length of its life, and after each refresh at least three quarters of its life remain.
            let extension_due = expires < scope.now.saturating_add(entry.life_micros / 4 * 3);
            Ok(Some(EntryState { stand, extension_due }))
        };
        entries.iter().map(state).collect::<Result<Vec<_>, Error>>()
    };
    query().map_err(before_commit)
}

/// For each of these names that is held: how many microseconds remain until the earliest end of its holds, if no hold
/// is extended.
pub(super) fn expiries(scope: &Scope<'_>, names: &[Name]) -> Result<Vec<(Name, i64)>, Failed> {
    let query = || {
        // `stand` below 4: the claim holds the name.
        let mut statement = scope.file.connection.prepare_cached(
            "SELECT min(expires) FROM (SELECT expires FROM leasehold_lock WHERE name = ?1 AND holder IS NOT NULL \
             UNION ALL SELECT expires FROM leasehold_claim WHERE name = ?1 AND stand < 4)",
        )?;
        let mut first_end = |name: &Name| {
            let earliest_end: Option<i64> = statement.query_row([name.as_str()], |row| row.get(0))?;
            Ok(earliest_end.map(|earliest_end| (name.clone(), earliest_end.saturating_sub(scope.now))))
        };
        names.iter().filter_map(|name| first_end(name).transpose()).collect::<Result<Vec<_>, Error>>()
    };
    query().map_err(before_commit)
}

/// The names with this prefix that are held or wanted.
pub(super) fn names(scope: &Scope<'_>, prefix: &str) -> Result<Vec<Name>, Failed> {
    let query = || {
        let mut statement = scope.file.connection.prepare_cached(
            "SELECT name FROM leasehold_lock WHERE name >= ?1 AND length(name) <= 512 AND substr(name, 1, length(?1)) = ?1 \
             AND (claims > 0 OR holder IS NOT NULL) ORDER BY name",
        )?;
        statement.query_map([prefix], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, Error>>()
    };
    let names = query().map_err(before_commit)?;
    Ok(names.iter().filter_map(|name| Name::new(name).ok()).collect())
}

/// The names to sweep in one part of the table.
#[derive(Default)]
pub(super) struct Leftovers {
    /// Names whose rows carry no information any more.
    pub(super) unused: Vec<String>,
    /// Names with an expired claim or hold.
    pub(super) expired: Vec<Name>,
    /// The last examined name, if there are more.
    pub(super) last: Option<String>,
}

/// The condition for a row without information: `?1` is now, `?2` the largest token of a name that is old enough.
const IS_UNUSED: &str = "holder IS NULL AND claims = 0 AND ended_until < ?1 AND token < ?2";

/// Examines `count` names after the name `after`.
pub(super) fn leftovers(scope: &Scope<'_>, after: &str, count: i64) -> Result<Leftovers, Failed> {
    let query = || {
        let text = format!(
            "SELECT name, {IS_UNUSED}, (holder IS NOT NULL AND expires <= ?1) OR (claims > 0 AND EXISTS \
             (SELECT 1 FROM leasehold_claim AS c WHERE c.name = l.name AND c.expires <= ?1)) \
             FROM leasehold_lock AS l WHERE name > ?3 ORDER BY name LIMIT ?4"
        );
        let mut statement = scope.file.connection.prepare_cached(&text)?;
        let mut rows = statement.query(params![scope.now, wall_micros() - UNUSED_MICROS, after, count])?;
        let (mut leftovers, mut row_count) = (Leftovers::default(), 0);
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            if row.get(1)? {
                leftovers.unused.push(name.clone());
            } else if row.get(2)? {
                leftovers.expired.extend(Name::new(&name));
            }
            row_count += 1;
            leftovers.last = Some(name);
        }
        if row_count < count {
            leftovers.last = None;
        }
        Ok(leftovers)
    };
    query().map_err(before_commit)
}

/// Deletes the rows of unused names, and stores the largest token of these rows, so that the names later get larger
/// tokens. Rows that are in use again stay.
pub(super) fn forget(scope: &Scope<'_>, names: &[String]) -> Result<(), Failed> {
    let raise_floor = format!(
        "UPDATE leasehold_meta SET floor = max(floor, coalesce((SELECT token FROM leasehold_lock WHERE name = ?3 AND {IS_UNUSED}), 0))"
    );
    let delete = format!("DELETE FROM leasehold_lock WHERE name = ?3 AND {IS_UNUSED}");
    let query = |name: &String| {
        for text in [&raise_floor, &delete] {
            let parameters = params![scope.now, wall_micros() - UNUSED_MICROS, name];
            scope.file.connection.prepare_cached(text)?.execute(parameters)?;
        }
        Ok(())
    };
    names.iter().try_for_each(query).map_err(before_commit)
}
