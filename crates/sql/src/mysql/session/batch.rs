//! One batch of requests as statements, and the answers to them.

use leasehold_core::Fault;

use super::super::{conn::ResultSet, rows::ColumnReader, text::text_literal};
use crate::{
    database::{Failed, bad_value},
    session::{
        lock_key::Key,
        server::{Batch, BatchReply, Share, Tried, Watch},
    },
};

/// The bits of `UUID_SHORT()` that grow on one server: the seconds of its start, and a counter. The other eight bits
/// are the number of the server, which is in the lineage of the tokens.
const TOKEN_BITS: u64 = (1 << 56) - 1;

/// The statements of a batch. The last one reads the connection, the number of the tokens and whether the server is
/// read-only, after all locks of the batch were taken.
pub(super) fn statements(batch: &Batch) -> String {
    let unlocks = locked(batch).map(|key| format!("SELECT RELEASE_LOCK({})", literal(key)));
    // A session can take its own lock again. The table of the process never asks for a key that the session has, but
    // the server ignores the case of keys on MySQL, and the table does not.
    let locks = wanted(batch).map(|key| {
        let key = literal(key);
        format!("SELECT IF(IS_USED_LOCK({key}) = CONNECTION_ID(), 0, GET_LOCK({key}, 0))")
    });
    let last = format!("SELECT CONNECTION_ID(), UUID_SHORT() & {TOKEN_BITS}, @@global.read_only");
    unlocks.chain(locks).chain([last]).collect::<Vec<_>>().join("; ")
}

/// The statements after an error in a batch: its locks and its unlocks are all unlocked, whichever statements were
/// executed.
pub(super) fn undo_statements(batch: &Batch) -> String {
    let undo = locked(batch).chain(wanted(batch)).map(|key| {
        let key = literal(key);
        format!("SELECT IF(IS_USED_LOCK({key}) = CONNECTION_ID(), RELEASE_LOCK({key}), 1)")
    });
    undo.chain(["SELECT CONNECTION_ID()".to_owned()]).collect::<Vec<_>>().join("; ")
}

/// The keys that a batch unlocks, in order. The keys of waiters exist in the table of the process only: these servers
/// have no locks that sessions share, and nothing to notify them with.
fn locked(batch: &Batch) -> impl Iterator<Item = &Key> {
    batch.unlocks.iter().filter(|unlock| unlock.share == Share::Alone).map(|unlock| &unlock.key)
}

/// The keys that a batch locks, in order: those of pollers, then those of names.
fn wanted(batch: &Batch) -> impl Iterator<Item = &Key> {
    let pollers = batch.watches.iter().filter_map(wanted_poller);
    pollers.chain(batch.tries.iter().filter_map(|attempt| attempt.lock.as_ref()).map(|(key, _)| key))
}

/// The key of the poller, if the session does not have it.
fn wanted_poller(watch: &Watch) -> Option<&Key> {
    watch.keys.poller.as_ref().filter(|_| !watch.polls)
}

/// What the server answered to the statements of a batch.
pub(super) struct Answers {
    pub(super) connection: u64,
    /// The value of `read_only`.
    pub(super) read_only: i64,
    pub(super) reply: BatchReply,
}

/// Reads the answers to the statements of a batch.
///
/// # Errors
/// If an answer is not one of this session: the session did not have a lock that it unlocked.
pub(super) fn read(batch: &Batch, sets: &[ResultSet]) -> Result<Answers, Failed> {
    let mut sets = sets.iter();
    for key in locked(batch) {
        if flag(sets.next())? != Some(true) {
            return Err(Failed::new(
                Fault::Retry,
                format!("the session did not have the lock {key} that it released"),
            ));
        }
    }
    let mut reply = BatchReply::default();
    reply.woke.resize(batch.unlocks.len(), false);
    for watch in &batch.watches {
        let polls = wanted_poller(watch).is_none() || flag(sets.next())? == Some(true);
        reply.watched.push((true, polls));
    }
    for attempt in &batch.tries {
        let granted = attempt.lock.is_none() || flag(sets.next())? == Some(true);
        reply.tried.push(if granted { Tried::Granted(Vec::new()) } else { Tried::Taken });
    }
    let row = sets.next().and_then(|set| set.rows.first()).ok_or_else(|| missing("CONNECTION_ID()"))?;
    let mut columns = ColumnReader::new(row);
    let connection = columns.next()?;
    reply.token = columns.next()?;
    Ok(Answers { connection, read_only: columns.next()?, reply })
}

/// The connection that answered the last statement.
pub(super) fn connection(sets: &[ResultSet]) -> Result<u64, Failed> {
    let row = sets.last().and_then(|set| set.rows.first()).ok_or_else(|| missing("CONNECTION_ID()"))?;
    ColumnReader::new(row).next()
}

/// The answer of a lock function: yes, no, or neither.
fn flag(set: Option<&ResultSet>) -> Result<Option<bool>, Failed> {
    let row = set.and_then(|set| set.rows.first()).ok_or_else(|| missing("a lock function"))?;
    let answer: Option<i64> = ColumnReader::new(row).next()?;
    Ok(answer.map(|answer| answer == 1))
}

fn missing(what: &str) -> Failed {
    bad_value(what, "the server answered nothing")
}

/// The key as a literal. The table of the process holds keys of MySQL only.
pub(super) fn literal(key: &Key) -> String {
    match key {
        Key::Name(name) => text_literal(name),
        #[cfg(feature = "postgres")]
        Key::Bigint(_) | Key::Ints(..) => text_literal(&key.to_string()),
    }
}
