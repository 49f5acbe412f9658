//! One batch in one round trip: unlocks, watches and tries, in this order.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{BoxFuture, Fault, Guarantee, Lineage};
use tokio_postgres::{
    Error, Row,
    error::{DbError, Severity, SqlState},
};

use super::{
    guarantee::guarantee,
    look::{how_to_end, look, shown},
    pinned::{PinnedSession, no_row, query, query_one},
    statements::{PERMITS, TRY, UNDO, WATCH},
};
use crate::{
    database::Failed,
    postgres::{
        error::{Stage, classify},
        rows::column,
    },
    runtime,
    session::{
        lock_key::Key,
        options::LONGEST_TTL,
        server::{
            Batch, BatchFailed, BatchReply, KeyView, PermitKeys, Session, Share, Tried, Try, Unlock, Watch,
        },
    },
};

/// How often claims of permits are repeated while other sessions take permits of the same names: such a session needs
/// one statement for it. All repeated statements of a batch are one round trip.
const MAX_GATE_TRIES: u32 = 100;
/// The pause between two of these attempts.
const GATE_PAUSE: Duration = Duration::from_millis(1);

/// Why a part of a batch failed.
enum PartFailed {
    /// An error of a statement.
    Statement(Error),
    /// A reply that the session cannot give.
    Reply(Failed),
}

impl From<Error> for PartFailed {
    fn from(error: Error) -> Self {
        Self::Statement(error)
    }
}

impl From<Failed> for PartFailed {
    fn from(failed: Failed) -> Self {
        Self::Reply(failed)
    }
}

/// Keys as parameters of a statement: numbers, and how each is locked.
#[derive(Default)]
struct KeyParameters {
    numbers: Vec<i64>,
    hows: Vec<i16>,
}

impl KeyParameters {
    fn push(&mut self, key: &Key, share: Share) {
        let is_shared = i16::from(share == Share::Beside);
        let how = match key {
            Key::Bigint(_) => 0,
            Key::Ints(..) => 2,
            #[cfg(feature = "mysql")]
            Key::Name(_) => return,
        };
        self.numbers.push(number(key));
        self.hows.push(how + is_shared);
    }

    /// The parameters of the only key; `None` if there are more.
    fn one(&self) -> Option<(i64, i16)> {
        match (&self.numbers[..], &self.hows[..]) {
            (&[number], &[how]) => Some((number, how)),
            _ => None,
        }
    }
}

/// A key as one number: two ints are its halves.
pub(super) fn number(key: &Key) -> i64 {
    match *key {
        Key::Bigint(number) => number,
        Key::Ints(first, second) => i64::from(first) << 32 | i64::from(second.cast_unsigned()),
        #[cfg(feature = "mysql")]
        Key::Name(_) => 0,
    }
}

/// The channel on which the process with this key of waiters is notified.
fn channel(waiters: &Key) -> String {
    format!("leasehold_{:016x}", number(waiters))
}

impl PinnedSession {
    /// Sends all parts of a batch together.
    async fn send(&self, batch: &Batch) -> Result<BatchReply, PartFailed> {
        let listens = batch.watches.iter().filter(|watch| !watch.announced);
        let listens =
            listens.filter_map(|watch| Some(format!("LISTEN {};", channel(watch.keys.waiters.as_ref()?))));
        let unlistens = batch.unwatched.iter().map(|waiters| format!("UNLISTEN {};", channel(waiters)));
        let (listens, unlistens) = (listens.collect::<String>(), unlistens.collect::<String>());
        let (woke, listened, watched, tried, unlistened) = tokio::join!(
            biased;
            self.unlock(&batch.unlocks),
            self.run(&listens),
            self.watch(&batch.watches),
            self.try_keys(&batch.tries),
            self.run(&unlistens),
        );
        let (woke, watched) = (woke?, watched?);
        let (locked, mut token) = tried?;
        listened?;
        unlistened?;
        let is_granted = |is_locked| if is_locked { Tried::Granted(Vec::new()) } else { Tried::Taken };
        let mut tried: Vec<Tried> = locked.into_iter().map(is_granted).collect();
        if batch.tries.iter().any(|attempt| attempt.permits.is_some()) {
            self.take_permits(&batch.tries, &mut tried).await?;
            if tried.iter().any(|tried| matches!(tried, Tried::Granted(_))) {
                // The permits were taken after the number was read.
                token = self.token().await?;
            }
        }
        Ok(BatchReply { woke, watched, tried, token })
    }

    /// Runs statements without results.
    async fn run(&self, text: &str) -> Result<(), PartFailed> {
        if text.is_empty() {
            return Ok(());
        }
        Ok(self.client.batch_execute(text).await?)
    }

    /// Unlocks keys; returns for each whether waiters were notified.
    async fn unlock(&self, unlocks: &[Unlock]) -> Result<Vec<bool>, PartFailed> {
        if unlocks.is_empty() {
            return Ok(Vec::new());
        }
        let mut keys = KeyParameters::default();
        unlocks.iter().for_each(|unlock| keys.push(&unlock.key, unlock.share));
        let waiters: Vec<Option<i64>> =
            unlocks.iter().map(|unlock| unlock.wake.as_ref().map(number)).collect();
        let channels: Vec<Option<String>> =
            unlocks.iter().map(|unlock| unlock.wake.as_ref().map(channel)).collect();
        let (unlocked, woke): (Vec<bool>, Vec<bool>) = if let Some((number, how)) = keys.one() {
            let (waiters, channel) = (&waiters[0], &channels[0]);
            let row =
                self.client.query_one(&self.prepared.unlock_one, &[&number, &how, waiters, channel]).await?;
            (vec![column(&row, 0)?], vec![column(&row, 1)?])
        } else {
            let row = self
                .client
                .query_one(&self.prepared.unlock, &[&keys.numbers, &keys.hows, &waiters, &channels])
                .await?;
            (column(&row, 0)?, column(&row, 1)?)
        };
        if unlocked.contains(&false) || unlocked.len() != unlocks.len() {
            let message = "the session does not have a lock that it took: its server or its pooler changed";
            return Err(Failed::new(Fault::Unknown, message).into());
        }
        Ok(woke)
    }

    /// Takes the missing keys of watches.
    async fn watch(&self, watches: &[Watch]) -> Result<Vec<(bool, bool)>, PartFailed> {
        if watches.is_empty() {
            return Ok(Vec::new());
        }
        let keys = |key: fn(&Watch) -> &Option<Key>| -> Vec<Option<i64>> {
            watches.iter().map(|watch| key(watch).as_ref().map(number)).collect()
        };
        let (waiters, pollers) = (keys(|watch| &watch.keys.waiters), keys(|watch| &watch.keys.poller));
        let announced: Vec<bool> = watches.iter().map(|watch| watch.announced).collect();
        let polls: Vec<bool> = watches.iter().map(|watch| watch.polls).collect();
        let rows = query(&self.client, &WATCH, &[&waiters, &announced, &pollers, &polls]).await?;
        let row = rows.first().ok_or_else(no_row)?;
        let (announced, polls): (Vec<bool>, Vec<bool>) = (column(row, 0)?, column(row, 1)?);
        Ok(announced.into_iter().zip(polls).collect())
    }

    /// Tries the locks of names; returns for each try whether its lock was taken or not needed, and the number of the
    /// tokens, if there is one.
    async fn try_keys(&self, tries: &[Try]) -> Result<(Vec<bool>, u64), PartFailed> {
        if tries.is_empty() {
            return Ok((Vec::new(), 0));
        }
        let mut keys = KeyParameters::default();
        for (key, share) in tries.iter().filter_map(|attempt| attempt.lock.as_ref()) {
            keys.push(key, *share);
        }
        let needs_token = keys.numbers.len() < tries.len();
        if let Some((number, how)) = keys.one().filter(|_| !needs_token) {
            let row = self.client.query_one(&self.prepared.try_one, &[&number, &how]).await?;
            self.check_pin(&row, 1)?;
            let token: Option<i64> = column(&row, 0)?;
            return Ok((vec![token.is_some()], token.unwrap_or(0).unsigned_abs()));
        }
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&keys.numbers, &keys.hows, &needs_token];
        let row = self.client.query_one(&self.prepared.try_keys, &parameters).await?;
        self.check_pin(&row, 2)?;
        let mut results = column::<Vec<bool>>(&row, 0)?.into_iter();
        let token: Option<i64> = column(&row, 1)?;
        let locked = tries.iter().map(|attempt| attempt.lock.is_none() || results.next() == Some(true));
        Ok((locked.collect(), token.unwrap_or(0).unsigned_abs()))
    }

    /// Reads the number from which the tokens of grants are made. It is larger than that of any grant before this call.
    async fn token(&self) -> Result<u64, PartFailed> {
        let no_keys: (Vec<i64>, Vec<i16>) = Default::default();
        let rows = query(&self.client, &TRY, &[&no_keys.0, &no_keys.1, &true]).await?;
        let row = rows.first().ok_or_else(no_row)?;
        self.check_pin(row, 2)?;
        Ok(column::<i64>(row, 1)?.unsigned_abs())
    }

    /// Takes the permits of those tries whose locks were taken; unlocks the locks of those tries that do not get their
    /// permits. The statements of all tries are one round trip. Those that found their gate closed are repeated.
    async fn take_permits(&self, tries: &[Try], tried: &mut [Tried]) -> Result<(), PartFailed> {
        let wanted = |index: usize| tries[index].permits.as_ref();
        let is_open = |(index, tried): (usize, &Tried)| {
            (wanted(index).is_some() && matches!(tried, Tried::Granted(_))).then_some(index)
        };
        let mut open: Vec<usize> = tried.iter().enumerate().filter_map(is_open).collect();
        let begun = open.clone();
        for round in 0..MAX_GATE_TRIES {
            if open.is_empty() {
                break;
            }
            if round > 0 {
                runtime::sleep(GATE_PAUSE).await;
            }
            let asked = open.iter().filter_map(|&index| Some(self.permits(wanted(index)?)));
            let answers = join_all(asked.collect::<Vec<_>>()).await;
            let mut closed = Vec::new();
            for (index, answer) in open.into_iter().zip(answers) {
                match answer? {
                    Some(answer) => tried[index] = answer,
                    None => closed.push(index),
                }
            }
            open = closed;
        }
        for index in open {
            let message = "other processes take permits of this name all the time";
            tried[index] = Tried::Failed(Failed::new(Fault::Retry, message));
        }
        let mut unneeded = KeyParameters::default();
        for index in begun.into_iter().filter(|&index| !matches!(tried[index], Tried::Granted(_))) {
            tries[index].lock.iter().for_each(|(key, share)| unneeded.push(key, *share));
        }
        if !unneeded.numbers.is_empty() {
            query(&self.client, &UNDO, &[&unneeded.numbers, &unneeded.hows]).await?;
        }
        Ok(())
    }

    /// Takes as many permits as the claim wants, or none; `None` if the gate is closed.
    async fn permits(&self, permits: &PermitKeys) -> Result<Option<Tried>, PartFailed> {
        let candidates: Vec<i64> = permits.candidates.iter().map(number).collect();
        let count = i64::try_from(permits.count).unwrap_or(i64::MAX);
        let rows = query(&self.client, &PERMITS, &[&candidates, &count, &number(&permits.gate)]).await?;
        let row = rows.first().ok_or_else(no_row)?;
        if !column::<bool>(row, 0)? {
            return Ok(None);
        }
        let (keys, is_given_back): (Vec<i64>, bool) = (column(row, 1)?, column(row, 2)?);
        let is_granted = keys.len() == permits.count && !is_given_back;
        let keys = || keys.into_iter().map(Key::Bigint).collect();
        Ok(Some(if is_granted { Tried::Granted(keys()) } else { Tried::Taken }))
    }

    /// After a failed batch: makes the session as if only the unlocks of the batch had been done.
    async fn undo(&self, batch: &Batch) -> Result<(), Failed> {
        let mut keys = KeyParameters::default();
        for unlock in &batch.unlocks {
            keys.push(&unlock.key, unlock.share);
        }
        for watch in &batch.watches {
            let missing = [
                (&watch.keys.waiters, Share::Beside, watch.announced),
                (&watch.keys.poller, Share::Alone, watch.polls),
            ];
            for (key, share, _) in missing.into_iter().filter(|(.., was_there)| !was_there) {
                key.iter().for_each(|key| keys.push(key, share));
            }
        }
        for attempt in &batch.tries {
            attempt.lock.iter().for_each(|(key, share)| keys.push(key, *share));
            let candidates = attempt.permits.iter().flat_map(|permits| &permits.candidates);
            candidates.for_each(|key| keys.push(key, Share::Alone));
        }
        query_one(&self.client, &UNDO, &[&keys.numbers, &keys.hows]).await.map(drop)
    }

    /// Finds out what a failed batch left, and undoes it.
    async fn recover(&self, batch: &Batch, failed: PartFailed) -> BatchFailed {
        let failed = match failed {
            PartFailed::Statement(error) if is_survived(&error) => explain(&error),
            PartFailed::Statement(error) => return BatchFailed::Ended(classify(&error, Stage::Commit)),
            PartFailed::Reply(failed) if failed.fault == Fault::Retry => failed,
            PartFailed::Reply(failed) => return BatchFailed::Ended(failed),
        };
        match self.undo(batch).await {
            Ok(()) => BatchFailed::Undone(failed),
            Err(undo_failed) => BatchFailed::Ended(undo_failed),
        }
    }
}

/// Whether the session goes on after this error.
fn is_survived(error: &Error) -> bool {
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    severity.is_some_and(|severity| severity == Severity::Error)
}

/// The error of a statement that the server refused.
fn explain(error: &Error) -> Failed {
    if error.code() == Some(&SqlState::OUT_OF_MEMORY) {
        let message = "the lock table of the server is full: hold fewer names at a time, or raise max_locks_per_transaction of the server";
        return Failed::new(Fault::Refused, message);
    }
    classify(error, Stage::BeforeCommit)
}

impl Session for PinnedSession {
    fn exchange<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<BatchReply, BatchFailed>> {
        Box::pin(async move {
            match self.send(batch).await {
                Ok(reply) => Ok(reply),
                Err(failed) => Err(self.recover(batch, failed).await),
            }
        })
    }

    fn heartbeat(&self) -> BoxFuture<'_, Result<(), BatchFailed>> {
        Box::pin(async move {
            let row: Result<Row, Error> = self.client.query_one(&self.prepared.heartbeat, &[]).await;
            match row {
                Ok(row) => self.check_pin(&row, 0).map_err(BatchFailed::Ended),
                Err(error) if is_survived(&error) => {
                    Err(BatchFailed::Undone(classify(&error, Stage::Commit)))
                }
                Err(error) => Err(BatchFailed::Ended(classify(&error, Stage::Commit))),
            }
        })
    }

    fn has_ended(&self) -> bool {
        self.life.has_ended() || self.client.is_closed()
    }

    fn close(&self) {
        self.life.close();
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn id(&self) -> String {
        format!("pid {}", self.identity.pid)
    }

    fn lineage(&self) -> Lineage {
        self.identity.lineage
    }

    fn longest_ttl(&self) -> Duration {
        LONGEST_TTL
    }

    fn max_keys(&self) -> usize {
        self.max_keys
    }

    fn lock_delay(&self) -> Duration {
        self.delay_left
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, Failed>> {
        Box::pin(guarantee(self))
    }

    fn look<'a>(&'a self, keys: Option<&'a [Key]>) -> BoxFuture<'a, Result<Vec<KeyView>, Failed>> {
        Box::pin(look(&self.client, keys))
    }

    fn shown(&self, key: &Key) -> String {
        shown(key)
    }

    fn how_to_end(&self, session: &str) -> String {
        how_to_end(session)
    }
}
