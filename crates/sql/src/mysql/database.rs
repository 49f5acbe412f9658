//! The `Database` trait for MySQL and MariaDB.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    BoxFuture, Claim, ClaimId, Clock, Diagnostic, Fault, Grant, Guarantee, Hold, Lineage, MemoWrite, Name,
    Release, Token, lock_state::EntryKind,
};
use mysql_async::Params;

use super::{
    apply::apply,
    apply_all::apply_all,
    config::Config,
    conn::ResultSet,
    diagnose,
    error::{Commits, RequestError},
    fast_path,
    guarantee::guarantee,
    memos,
    pool::{Borrowed, Pool},
    rows::{ColumnReader, connection_slots, names},
    server::{Server, replica_error},
    statements::{
        AHEAD, EXPIRIES, FORGET, LOOK, MEMO_ENDED, MEMO_READ, NAMES_LIKE, POLL_GRANTS, REFRESH, REPLICAS,
        SERVER, SLOTS, STATES, SWEEP,
    },
    text::{bytes_literal, claims_condition, comma_list},
};
use crate::{
    connection_slots::ConnectionSlots,
    database::{
        Database, DbFuture, Failed, FastGrant, LookResult, MissingTables, QueueEntry, Refreshed, Timed,
        replica_guarantee,
    },
    memo::{MemoWritten, StoredMemo},
    row::{ClientId, duration_micros, kind_of, previous_of},
    step::{Changes, ClientMessage, ClientNotification, Snapshot, Verb},
    step_all::AllChanges,
};

/// How many times a request is tried before its caller gets an error.
const TRIES: usize = 3;
/// The maximum number of claim rows that one statement looks up: the server compares each row with all of them.
const MAX_CLAIMS: usize = 256;
/// The number of statements in `slots.sql`.
pub(super) const SLOTS_STATEMENTS: usize = 2;
/// Of the statements in `forget.sql`, the third (the DELETE) is the first whose effect matters.
const FORGET_COMMITS: Commits = Commits::At(2);
/// 2^64 divided by the golden ratio: its multiples are far apart (Knuth's multiplicative hashing).
const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

/// A MySQL or MariaDB database, as one client uses it.
pub(super) struct Mysql {
    pub(super) pool: Pool,
    id: ClientId,
    /// How many stamps were given out.
    stamps: AtomicU64,
}

impl Mysql {
    pub(super) fn new(config: Config, id: ClientId, clock: Arc<dyn Clock>) -> Self {
        Self { pool: Pool::new(config, clock), id, stamps: AtomicU64::new(0) }
    }

    /// A number that no other statement has written to any row.
    pub(super) fn stamp(&self) -> String {
        // The numbers of one client are far apart, and start at a point that is as random as the client's id.
        let count = self.stamps.fetch_add(1, Ordering::Relaxed);
        let stamp = self.id.0.wrapping_add(count.wrapping_mul(GOLDEN_RATIO));
        stamp.cast_signed().to_string()
    }

    /// Executes statements about many names; `None` if another transaction kept a row locked: then nothing was done.
    pub(super) async fn execute_unless_locked(
        &self,
        text: &str,
        commits: Commits,
    ) -> Result<Option<Vec<ResultSet>>, Failed> {
        match execute_once(self.pool.borrow().await?, text, commits).await {
            Ok(sets) => Ok(Some(sets)),
            Err(RequestError::Busy | RequestError::Deadlock) => Ok(None),
            Err(request_error) => Err(request_error.failed()),
        }
    }

    /// Executes one prepared statement that commits by itself; `None` if another transaction kept a row locked: then
    /// nothing was done. `Some(None)` if the server does not prepare it.
    pub(super) async fn execute_prepared_unless_locked(
        &self,
        text: &str,
        values: Params,
    ) -> Result<Option<Option<ResultSet>>, Failed> {
        let mut borrowed = self.pool.borrow().await?;
        match borrowed.conn.execute_prepared(text, values).await {
            Ok(set) => {
                borrowed.give_back()?;
                Ok(Some(set))
            }
            Err(execute_error) => match RequestError::of(&execute_error, Commits::At(0)) {
                RequestError::Busy | RequestError::Deadlock => Ok(None),
                request_error => Err(request_error.failed()),
            },
        }
    }

    /// Executes statements that grant nothing, and repeats them until they are done.
    async fn repeat_until_done(&self, text: &str) -> Result<Vec<ResultSet>, Failed> {
        self.execute_until_done(text, MissingTables::Create).await.map(|(sets, _)| sets)
    }

    /// The rows of a look, and whether a replica returned them. Empty where the tables do not exist.
    async fn look_rows(&self, text: &str) -> Result<(Vec<ResultSet>, bool), Failed> {
        self.execute_until_done(text, MissingTables::Leave).await
    }

    /// Executes statements that commit nothing; after a deadlock or a broken connection tries again, [`TRIES`] times in
    /// all. Also returns whether a replica executed them. Returns no results if the tables do not exist.
    async fn execute_until_done(
        &self,
        text: &str,
        missing_tables: MissingTables,
    ) -> Result<(Vec<ResultSet>, bool), Failed> {
        let mut tries = 1..TRIES;
        loop {
            let borrowed = self.pool.borrow_with(missing_tables).await?;
            if !borrowed.conn.has_tables() {
                return Ok((Vec::new(), false));
            }
            let by_replica = borrowed.conn.is_replica();
            match execute_once(borrowed, text, Commits::Never).await {
                Ok(sets) => return Ok((sets, by_replica)),
                Err(request_error) => self.allow_retry(request_error, tries.next())?,
            }
        }
    }

    /// Returns `Ok` if the request can be tried again: there is a `next_try`, and the request failed without effect by
    /// a deadlock or a broken connection. Otherwise returns the error of the request.
    fn allow_retry(&self, request_error: RequestError, next_try: Option<usize>) -> Result<(), Failed> {
        match (&request_error, next_try) {
            (RequestError::Deadlock, Some(_)) => Ok(()),
            (RequestError::ConnectionBroke(_), Some(_)) => {
                self.pool.note_broken();
                Ok(())
            }
            _ => Err(request_error.failed()),
        }
    }
}

/// Executes statements on a borrowed connection, and returns the connection to the pool.
async fn execute_once(
    mut borrowed: Borrowed<'_>,
    text: &str,
    commits: Commits,
) -> Result<Vec<ResultSet>, RequestError> {
    let sets =
        borrowed.conn.execute(text).await.map_err(|execute_error| RequestError::of(&execute_error, commits));
    if sets.is_ok() {
        // After an error the connection is closed, which rolls back its transaction.
        borrowed.give_back()?;
    }
    sets
}

impl Database for Mysql {
    fn fast_claim<'a>(
        &'a self,
        claims: &'a [Claim],
        client: ClientId,
    ) -> DbFuture<'a, Vec<Option<Timed<FastGrant>>>> {
        Box::pin(fast_path::claim(self, claims, client))
    }

    fn fast_release<'a>(&'a self, releases: &'a [Release]) -> DbFuture<'a, Vec<Option<Timed<()>>>> {
        Box::pin(fast_path::release(self, releases))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> DbFuture<'a, Vec<Option<Timed<()>>>> {
        Box::pin(fast_path::renew(self, holds))
    }

    fn refresh<'a>(&'a self, entries: &'a [QueueEntry]) -> DbFuture<'a, Refreshed> {
        Box::pin(async move {
            let mut entries_by_times: HashMap<(i64, i64), Vec<&QueueEntry>> = HashMap::new();
            for entry in entries {
                entries_by_times
                    .entry((entry.life_micros, duration_micros(entry.claim_time)))
                    .or_default()
                    .push(entry);
            }
            let mut statements = Vec::new();
            for ((life, claim_time), entries) in entries_by_times {
                let (life, claim_time) = (life.to_string(), claim_time.to_string());
                statements.extend(entries.chunks(MAX_CLAIMS).map(|entries| {
                    let claims =
                        claims_condition(entries.iter().map(|entry| (entry.name.as_str(), entry.id, None)));
                    REFRESH.with_values(&[("claims", &claims), ("life", &life), ("claimtime", &claim_time)])
                }));
            }
            let client = self.id.0.cast_signed().to_string();
            statements.extend([&STATES, &AHEAD].map(|sql| sql.with_values(&[("client", &client)])));
            statements.push(SLOTS.statements().to_owned());
            let mut sets = self.repeat_until_done(&statements.join("; ")).await?;
            self.pool.note_connection_slots(connection_slots(
                &sets.split_off(sets.len().saturating_sub(SLOTS_STATEMENTS)),
            ));
            let ahead = sets.pop().and_then(|set| set.rows.into_iter().next());
            let ahead: Option<u32> = ahead.map(|row| ColumnReader::new(&row).next()).transpose()?.flatten();
            let mut states: HashMap<ClaimId, Timed<i16>> = HashMap::new();
            for row in sets.iter().flat_map(|set| &set.rows) {
                let mut columns = ColumnReader::new(row);
                let (id, value, now) = (columns.id()?, columns.next()?, columns.next()?);
                states.extend(id.map(|id| (id, Timed { now, value })));
            }
            let states = entries.iter().map(|entry| states.remove(&entry.id)).collect();
            Ok(Refreshed { states, position: ahead.unwrap_or(0), ..Refreshed::default() })
        })
    }

    fn expiries<'a>(&'a self, requested_names: &'a [Name]) -> DbFuture<'a, Vec<(Name, i64)>> {
        Box::pin(async move {
            let names_list =
                comma_list(requested_names.iter().map(|name| bytes_literal(name.as_str().as_bytes())));
            let sets = self.repeat_until_done(&EXPIRIES.with_values(&[("names", &names_list)])).await?;
            let mut expiries = Vec::new();
            for row in sets.iter().flat_map(|set| &set.rows) {
                let mut columns = ColumnReader::new(row);
                let (name, remaining) = (columns.text()?, columns.next()?);
                expiries.extend(Name::new(&name).map(|name| (name, remaining)));
            }
            Ok(expiries)
        })
    }

    fn connection_slots(&self) -> Option<ConnectionSlots> {
        self.pool.connection_slots()
    }

    fn close_idle_connections(&self) -> BoxFuture<'_, ()> {
        self.pool.close_idle_connections();
        Box::pin(std::future::ready(()))
    }

    fn poll_grants(&self, client: ClientId) -> DbFuture<'_, Vec<ClientNotification>> {
        Box::pin(async move {
            if self.pool.broke_since_last_call() {
                // A connection broke during another request. The error makes core ask for the state of all claims,
                // because grants may have been missed.
                return Err(Failed::new(Fault::Retry, "the connections to the server broke"));
            }
            let text = POLL_GRANTS.with_values(&[("client", &client.0.cast_signed().to_string())]);
            let mut borrowed = self.pool.borrow().await?;
            let sets = borrowed
                .conn
                .execute(&text)
                .await
                .map_err(|execute_error| execute_error.classify(Commits::Never))?;
            let lineage = borrowed.conn.lineage();
            borrowed.give_back()?;
            let mut notifications = Vec::new();
            for row in sets.iter().flat_map(|set| &set.rows) {
                let mut columns = ColumnReader::new(row);
                let (id, state): (_, i16) = (columns.id()?, columns.next()?);
                let (token, tokens): (i64, i32) = (columns.next()?, columns.next()?);
                let (previous, claim_time): (i16, i64) = (columns.next()?, columns.next()?);
                let grant = Grant {
                    token: Token { lineage, number: token.unsigned_abs() },
                    tokens: tokens.unsigned_abs(),
                    ttl: Some(Duration::from_micros(claim_time.unsigned_abs())),
                    previous: previous_of(previous),
                };
                let (since, remaining_micros) = (columns.next()?, columns.next()?);
                let message = match kind_of(state) {
                    Some(EntryKind::MinHold) => ClientMessage::HoldEnds { remaining_micros },
                    _ => ClientMessage::Granted { grant, since },
                };
                notifications.extend(id.map(|id| ClientNotification { client, id, message }));
            }
            Ok(notifications)
        })
    }

    fn apply<'a>(&'a self, name: &'a Name, verb: &'a Verb) -> DbFuture<'a, Timed<Changes>> {
        Box::pin(async move {
            let mut tries = 1..TRIES;
            loop {
                let mut borrowed = self.pool.borrow().await?;
                match apply(&mut borrowed.conn, name, verb).await {
                    Ok(changes) => {
                        borrowed.give_back()?;
                        return Ok(changes);
                    }
                    Err(request_error) => {
                        // Closes this connection before the next one is opened, to keep the number of connections
                        // small.
                        drop(borrowed);
                        self.allow_retry(request_error, tries.next())?;
                    }
                }
            }
        })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim], client: ClientId) -> DbFuture<'a, AllChanges> {
        Box::pin(async move {
            let mut tries = 1..TRIES;
            loop {
                let mut borrowed = self.pool.borrow().await?;
                match apply_all(&mut borrowed.conn, claims, client).await {
                    Ok(all) => {
                        borrowed.give_back()?;
                        return Ok(all);
                    }
                    Err(request_error) => {
                        drop(borrowed);
                        self.allow_retry(request_error, tries.next())?;
                    }
                }
            }
        })
    }

    fn look<'a>(&'a self, requested_names: &'a [Name]) -> DbFuture<'a, LookResult> {
        Box::pin(async move {
            let names_list =
                comma_list(requested_names.iter().map(|name| bytes_literal(name.as_str().as_bytes())));
            let (sets, by_replica) = self.look_rows(&LOOK.with_values(&[("names", &names_list)])).await?;
            let mut snapshots: Vec<(Name, Snapshot)> = Vec::new();
            for row in sets.iter().flat_map(|set| &set.rows) {
                let mut columns = ColumnReader::new(row);
                let (name, now) = (columns.text()?, columns.next()?);
                let Ok(name) = Name::new(&name) else { continue };
                let (lock, claim) = (columns.lock()?, columns.claim()?);
                if snapshots.last().is_none_or(|(last, _)| *last != name) {
                    let claims = Vec::new();
                    snapshots
                        .push((name, Snapshot { now, floor: now, lineage: self.lineage(), lock, claims }));
                }
                if let Some((_, snapshot)) = snapshots.last_mut() {
                    snapshot.claims.extend(claim);
                }
            }
            Ok(LookResult { snapshots, by_replica })
        })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> DbFuture<'a, Vec<Name>> {
        Box::pin(async move {
            let (length, prefix) = (prefix.len().to_string(), bytes_literal(prefix.as_bytes()));
            let text = NAMES_LIKE.with_values(&[("prefix", &prefix), ("bytes", &length)]);
            let (sets, _) = self.look_rows(&text).await?;
            names(sets.first().map_or(&[], |set| &set.rows))
        })
    }

    fn sweep<'a>(&'a self, after: &'a str, count: i64) -> DbFuture<'a, (Vec<Name>, Option<String>)> {
        Box::pin(async move {
            let text = SWEEP
                .with_values(&[("after", &bytes_literal(after.as_bytes())), ("count", &count.to_string())]);
            let sets = self.repeat_until_done(&text).await?;
            let (mut unused, mut expired, mut last, mut row_count) = (Vec::new(), Vec::new(), None, 0);
            for row in sets.iter().flat_map(|set| &set.rows) {
                let mut columns = ColumnReader::new(row);
                let (name, is_unused, has_expired) =
                    (columns.text()?, columns.next::<bool>()?, columns.next::<bool>()?);
                if is_unused {
                    unused.push(bytes_literal(name.as_bytes()));
                }
                if has_expired {
                    expired.extend(Name::new(&name).ok());
                }
                (last, row_count) = (Some(name), row_count + 1);
            }
            if !unused.is_empty() {
                let text = FORGET.with_values(&[("names", &comma_list(unused.into_iter()))]);
                self.execute_unless_locked(&text, FORGET_COMMITS).await?;
            }
            Ok((expired, last.filter(|_| row_count == count)))
        })
    }

    fn read_memo<'a>(&'a self, name: &'a Name) -> DbFuture<'a, Option<Timed<StoredMemo>>> {
        let name_literal = bytes_literal(name.as_str().as_bytes());
        let text = MEMO_READ.with_values(&[("name", &name_literal)]);
        Box::pin(async move {
            let mut tries = 1..TRIES;
            loop {
                let mut borrowed = self.pool.borrow_with(MissingTables::Leave).await?;
                if borrowed.conn.is_replica() {
                    return Err(replica_error());
                }
                if !borrowed.conn.find_memos(MissingTables::Leave).await? {
                    borrowed.give_back()?;
                    return Ok(None);
                }
                let lineage = borrowed.conn.lineage();
                match execute_once(borrowed, &text, Commits::Never).await {
                    Ok(sets) => return memos::stored(&sets, lineage),
                    Err(request_error) => self.allow_retry(request_error, tries.next())?,
                }
            }
        })
    }

    fn write_memo<'a>(&'a self, write: &'a MemoWrite) -> DbFuture<'a, Timed<MemoWritten>> {
        Box::pin(async move {
            let mut tries = 1..TRIES;
            loop {
                let mut borrowed = self.pool.borrow().await?;
                borrowed.conn.find_memos(MissingTables::Create).await?;
                match memos::write(&mut borrowed.conn, write).await {
                    Ok(written) => {
                        borrowed.give_back()?;
                        return Ok(written);
                    }
                    Err(request_error) => {
                        drop(borrowed);
                        self.allow_retry(request_error, tries.next())?;
                    }
                }
            }
        })
    }

    fn sweep_memos(&self) -> DbFuture<'_, usize> {
        Box::pin(async move {
            let mut borrowed = self.pool.borrow().await?;
            if !borrowed.conn.find_memos(MissingTables::Leave).await? {
                return borrowed.give_back().map(|()| 0);
            }
            borrowed.give_back()?;
            // Two statements: the rows of names that a DELETE reads would be locked by it, against the order in which
            // the write of a memo locks them.
            let ended = self.execute_unless_locked(MEMO_ENDED.statements(), Commits::Never).await?;
            let Some((text, count)) = memos::deletion(&ended.unwrap_or_default())? else { return Ok(0) };
            let deleted = self.execute_unless_locked(&text, Commits::At(0)).await?;
            Ok(if deleted.is_some() { count } else { 0 })
        })
    }

    fn lineage(&self) -> Lineage {
        self.pool.lineage()
    }

    fn ping(&self) -> DbFuture<'_, ()> {
        Box::pin(async move {
            let mut tries = 1..TRIES;
            loop {
                let borrowed = self.pool.borrow_with(MissingTables::Leave).await?;
                if borrowed.conn.is_replica() {
                    return Err(replica_error());
                }
                match execute_once(borrowed, "DO 0", Commits::Never).await {
                    Ok(_) => return Ok(()),
                    Err(request_error) => self.allow_retry(request_error, tries.next())?,
                }
            }
        })
    }

    fn diagnose(&self) -> DbFuture<'_, Vec<Diagnostic>> {
        Box::pin(diagnose::of_tables(&self.pool))
    }

    fn guarantee(&self) -> DbFuture<'_, Guarantee> {
        Box::pin(async move {
            let borrowed = self.pool.borrow_with(MissingTables::Leave).await?;
            if borrowed.conn.is_replica() {
                return Ok(replica_guarantee("read_only or innodb_read_only", "ON", "OFF"));
            }
            let queries = [&SERVER, &REPLICAS].map(|sql| sql.statements()).join("; ");
            let sets =
                execute_once(borrowed, &queries, Commits::Never).await.map_err(RequestError::failed)?;
            Ok(guarantee(&Server::read(sets)))
        })
    }
}
