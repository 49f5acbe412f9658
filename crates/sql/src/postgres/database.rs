//! The `Database` trait for PostgreSQL.

use std::{collections::HashMap, sync::Arc};

use leasehold_core::{
    BoxFuture, Claim, ClaimId, Contact, Diagnostic, Fault, Guarantee, Hold, Lineage, MemoWrite, Name, Release,
};
use tokio_postgres::{Row, types::ToSql};

use super::{
    apply::apply,
    apply_all::apply_all,
    config::Config,
    diagnose,
    error::{Stage, classify, is_locked_out},
    guarantee::{SETTINGS, guarantee},
    listener::Listener,
    memos,
    pool::{Borrowed, Pool},
    rows::{LOCK_COLUMNS, claim_row, client_number, column, connection_slots, id, lock_row},
    statements::{
        CLAIM_MANY, CLAIM_ONE, FORGET, LOOK, MEMO_SWEEP, NAMES_LIKE, REFRESH, REFRESH_AND_SLOTS,
        RELEASE_MANY, RELEASE_ONE, RENEW_CLAIMS, RENEW_LOCKS, SWEEP, Sql,
    },
    tables::replica_error,
};
use crate::{
    connection_slots::ConnectionSlots,
    database::{
        Database, DbFuture, Failed, FastGrant, LookResult, MissingTables, QueueEntry, Refreshed, Timed,
        replica_guarantee,
    },
    memo::{MemoWritten, StoredMemo},
    row::{ClientId, duration_micros, first_token, previous_code},
    step::{Changes, ClientNotification, Snapshot, Verb},
    step_all::AllChanges,
};

/// How many times inspection waits for tables that others keep locked, each time for the lock timeout of a statement.
const MAX_LOOKS: usize = 5;
/// The number of columns that `refresh.sql` reads; those of `slots.sql` follow.
const REFRESH_COLUMNS: usize = 5;
/// The first column of the row of the name in `look.sql`, behind the name and the time.
const FIRST_LOCK_COLUMN: usize = 2;
/// The first column of the row of the claim in `look.sql`.
const FIRST_CLAIM_COLUMN: usize = FIRST_LOCK_COLUMN + LOCK_COLUMNS;

/// A PostgreSQL database, as one client uses it.
pub(crate) struct Postgres {
    pool: Arc<Pool>,
    pub(crate) listener: Arc<Listener>,
}

impl Postgres {
    pub(crate) fn new(config: Config, id: ClientId) -> Self {
        let listener = Listener::new(id, config);
        Self { pool: Arc::clone(&listener.pool), listener }
    }

    pub(super) fn contact(&self) -> Contact {
        self.pool.contact.clone()
    }

    /// Claims one name by the fast path.
    async fn fast_claim_one(
        &self,
        claim: &Claim,
        client: ClientId,
    ) -> Result<Option<Timed<FastGrant>>, Failed> {
        let (name, id, owner) = (claim.name.as_str(), claim.id.0.as_slice(), claim.owner.as_ref());
        let (tokens, ttl, client) = (token_count(claim), duration_micros(claim.ttl), client_number(client));
        let rows =
            self.query_unless_locked(&CLAIM_ONE, &[&name, &id, &tokens, &ttl, &owner, &client]).await?;
        rows.unwrap_or_default().first().map(|row| fast_grant(row, 0, tokens)).transpose()
    }

    /// Releases one hold by the fast path.
    async fn fast_release_one(&self, release: &Release) -> Result<Option<Timed<()>>, Failed> {
        let (name, id) = (release.name.as_str(), release.id.0.as_slice());
        let parameters: [&(dyn ToSql + Sync); 4] =
            [&name, &id, &released_token(release), &previous_code(release.ended)];
        let rows = self.query_unless_locked(&RELEASE_ONE, &parameters).await?;
        let released = |row| Ok(Timed { now: column(row, 0).map_err(Failed::in_doubt)?, value: () });
        rows.unwrap_or_default().first().map(released).transpose()
    }

    /// Executes one statement; `None` if another transaction kept a row locked: then nothing was done.
    async fn query_unless_locked(
        &self,
        sql: &Sql,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Vec<Row>>, Failed> {
        query_borrowed(self.pool.borrow().await?, sql, parameters).await
    }

    /// Extends the queue entries of the waiting claims and reads their states. The same statement reads how many
    /// connection slots are free, unless the user had no right to read this when the connection was opened. Returns no
    /// states if another transaction keeps a row locked.
    async fn extend_and_read(&self, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Failed> {
        let borrowed = self.pool.borrow().await?;
        let reads_slots = borrowed.conn.connection_slots().is_some();
        let statement = if reads_slots { &REFRESH_AND_SLOTS } else { &REFRESH };
        let rows = query_borrowed(borrowed, statement, parameters).await?.unwrap_or_default();
        let slots = |row: &Row| connection_slots(row, REFRESH_COLUMNS).ok();
        if let Some(slots) = rows.first().filter(|_| reads_slots).and_then(slots) {
            self.pool.note_connection_slots(Some(slots));
        }
        Ok(rows)
    }

    /// The rows of a look, and whether a replica returned them. Returns no rows if the tables do not exist, and an
    /// error if other sessions keep the tables locked at every attempt.
    async fn look_rows(
        &self,
        sql: &Sql,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<(Vec<Row>, bool), Failed> {
        for _ in 0..MAX_LOOKS {
            let borrowed = self.pool.borrow_with(MissingTables::Leave).await?;
            if !borrowed.conn.has_tables() {
                return Ok((Vec::new(), false));
            }
            let by_replica = borrowed.conn.is_replica();
            if let Some(rows) = query_borrowed(borrowed, sql, parameters).await? {
                return Ok((rows, by_replica));
            }
        }
        Err(Failed::new(Fault::Retry, "other sessions keep its tables locked"))
    }
}

/// Executes a statement, and returns the connection to the pool; after an error that is not a row lock, closes the
/// connection. `None` if another transaction kept a row locked: nothing was done, and the caller can try again.
async fn query_borrowed(
    borrowed: Borrowed<'_>,
    sql: &Sql,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Option<Vec<Row>>, Failed> {
    match borrowed.conn.query_standalone(sql, parameters).await {
        Ok(rows) => {
            borrowed.give_back()?;
            Ok(Some(rows))
        }
        Err(error) if is_locked_out(&error) => {
            borrowed.give_back()?;
            Ok(None)
        }
        Err(error) => Err(classify(&error, Stage::Commit)),
    }
}

/// The names as a statement parameter.
fn names<'a>(items: impl Iterator<Item = &'a Name>) -> Vec<&'a str> {
    items.map(Name::as_str).collect()
}

/// The ids as a statement parameter.
fn ids<'a>(items: impl Iterator<Item = &'a ClaimId>) -> Vec<&'a [u8]> {
    items.map(|id| id.0.as_slice()).collect()
}

/// The number of tokens that the claim wants: at least one.
fn token_count(claim: &Claim) -> i32 {
    i32::try_from(claim.tokens.max(1)).unwrap_or(1)
}

/// A hold, from the columns that begin at `start`: newest token, how the previous hold ended, the time.
fn fast_grant(row: &Row, start: usize, tokens: i32) -> Result<Timed<FastGrant>, Failed> {
    let decode = || {
        let newest: i64 = column(row, start)?;
        let token = first_token(newest, tokens);
        Ok(Timed {
            now: column(row, start + 2)?,
            value: FastGrant { token, previous: column(row, start + 1)? },
        })
    };
    decode().map_err(Failed::in_doubt)
}

/// The rows, by the name in the first column.
fn rows_by_name(rows: &[Row]) -> Result<HashMap<&str, &Row>, Failed> {
    rows.iter().map(|row| Ok((column(row, 0).map_err(Failed::in_doubt)?, row))).collect()
}

/// The first token of the released hold, as a statement parameter.
fn released_token(release: &Release) -> i64 {
    token_parameter(release.token.map_or(0, |token| token.number))
}

/// A token number as a statement parameter.
fn token_parameter(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Decodes rows of name, claim id and time: the times, by name and id.
fn times_by_claim(rows: &[Row]) -> Result<HashMap<(String, ClaimId), i64>, Failed> {
    let mut times_by_claim = HashMap::new();
    for row in rows {
        if let Some(id) = id(row, 1)? {
            times_by_claim.insert((column(row, 0)?, id), column(row, 2)?);
        }
    }
    Ok(times_by_claim)
}

/// The name in the first column; `None` for text that is no valid name.
fn name(row: &Row) -> Result<Option<Name>, Failed> {
    Ok(Name::new(column::<&str>(row, 0)?).ok())
}

impl Database for Postgres {
    fn fast_claim<'a>(
        &'a self,
        claims: &'a [Claim],
        client: ClientId,
    ) -> DbFuture<'a, Vec<Option<Timed<FastGrant>>>> {
        Box::pin(async move {
            if let [claim] = claims {
                return Ok(vec![self.fast_claim_one(claim, client).await?]);
            }
            let tokens: Vec<i32> = claims.iter().map(token_count).collect();
            let ttls: Vec<i64> = claims.iter().map(|claim| duration_micros(claim.ttl)).collect();
            let owners: Vec<&str> = claims.iter().map(|claim| claim.owner.as_ref()).collect();
            let (names, ids) =
                (names(claims.iter().map(|claim| &claim.name)), ids(claims.iter().map(|claim| &claim.id)));
            let rows = self
                .query_unless_locked(
                    &CLAIM_MANY,
                    &[&names, &ids, &tokens, &ttls, &owners, &client_number(client)],
                )
                .await?;
            let rows = rows.unwrap_or_default();
            let granted_rows = rows_by_name(&rows)?;
            let taken_of = |(name, tokens): (&&str, &i32)| {
                granted_rows.get(*name).map(|row| fast_grant(row, 1, *tokens)).transpose()
            };
            names.iter().zip(&tokens).map(taken_of).collect()
        })
    }

    fn fast_release<'a>(&'a self, releases: &'a [Release]) -> DbFuture<'a, Vec<Option<Timed<()>>>> {
        Box::pin(async move {
            if let [release] = releases {
                return Ok(vec![self.fast_release_one(release).await?]);
            }
            let tokens: Vec<i64> = releases.iter().map(released_token).collect();
            let ended: Vec<i16> = releases.iter().map(|release| previous_code(release.ended)).collect();
            let (names, ids) = (
                names(releases.iter().map(|release| &release.name)),
                ids(releases.iter().map(|release| &release.id)),
            );
            let rows = self
                .query_unless_locked(&RELEASE_MANY, &[&names, &ids, &tokens, &ended])
                .await?
                .unwrap_or_default();
            let released_rows = rows_by_name(&rows)?;
            let time = |row: &&Row| Ok(Timed { now: column(row, 1).map_err(Failed::in_doubt)?, value: () });
            names.iter().map(|name| released_rows.get(name).map(time).transpose()).collect()
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> DbFuture<'a, Vec<Option<Timed<()>>>> {
        Box::pin(async move {
            let tokens: Vec<i64> = holds.iter().map(|hold| token_parameter(hold.token.number)).collect();
            let ttls: Vec<i64> = holds.iter().map(|hold| duration_micros(hold.ttl)).collect();
            let (names, ids) =
                (names(holds.iter().map(|hold| &hold.name)), ids(holds.iter().map(|hold| &hold.id)));
            let parameters: &[&(dyn ToSql + Sync)] = &[&names, &ids, &tokens, &ttls];
            let mut extended = times_by_claim(
                &self.query_unless_locked(&RENEW_LOCKS, parameters).await?.unwrap_or_default(),
            )?;
            if extended.len() < holds.len() {
                extended.extend(times_by_claim(
                    &self.query_unless_locked(&RENEW_CLAIMS, parameters).await?.unwrap_or_default(),
                )?);
            }
            let time_of = |hold: &Hold| extended.get(&(hold.name.as_str().to_owned(), hold.id));
            Ok(holds.iter().map(|hold| Some(Timed { now: *time_of(hold)?, value: () })).collect())
        })
    }

    fn refresh<'a>(&'a self, entries: &'a [QueueEntry]) -> DbFuture<'a, Refreshed> {
        Box::pin(async move {
            // Opens the LISTEN connection again if it broke.
            self.listener.ensure_listening().await?;
            let lives: Vec<i64> = entries.iter().map(|entry| entry.life_micros).collect();
            let (names, ids) =
                (names(entries.iter().map(|entry| &entry.name)), ids(entries.iter().map(|entry| &entry.id)));
            let claim_times: Vec<i64> =
                entries.iter().map(|entry| duration_micros(entry.claim_time)).collect();
            let rows = self.extend_and_read(&[&names, &ids, &lives, &claim_times]).await?;
            // By claim: the state, the time of the database, and in how many microseconds a hold ahead ends.
            let mut states: HashMap<ClaimId, (i16, i64, Option<i64>)> = HashMap::new();
            let mut position: Option<i64> = None;
            for row in &rows {
                if let Some(id) = id(row, 0)? {
                    states.insert(id, (column(row, 1)?, column(row, 2)?, column(row, 3)?));
                }
                let ahead_of_claim: i64 = column(row, 4)?;
                position = Some(position.map_or(ahead_of_claim, |ahead| ahead.min(ahead_of_claim)));
            }
            let position = u32::try_from(position.unwrap_or(0)).unwrap_or(u32::MAX);
            let mut refreshed = Refreshed { position, ..Refreshed::default() };
            for entry in entries {
                let state = states.get(&entry.id);
                refreshed.states.push(state.map(|&(value, now, _)| Timed { now, value }));
                let hold_ends_in = state.and_then(|(_, _, hold_ends_in)| *hold_ends_in);
                refreshed.expiries.extend(hold_ends_in.map(|remaining| (entry.name.clone(), remaining)));
            }
            refreshed.expiries.dedup();
            Ok(refreshed)
        })
    }

    fn expiries<'a>(&'a self, _: &'a [Name]) -> DbFuture<'a, Vec<(Name, i64)>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn notifies(&self) -> bool {
        true
    }

    fn is_listening(&self) -> bool {
        self.listener.is_listening()
    }

    fn connection_slots(&self) -> Option<ConnectionSlots> {
        self.pool.connection_slots()
    }

    fn set_asleep(&self, asleep: bool) {
        self.listener.set_asleep(asleep);
    }

    fn close_idle_connections(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.listener.close_idle_connections())
    }

    fn release_unneeded(&self, claims_wait: bool) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.pool.close_unused();
            if !claims_wait {
                self.listener.release_unneeded().await;
            }
        })
    }

    fn poll_grants(&self, _: ClientId) -> DbFuture<'_, Vec<ClientNotification>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn apply<'a>(&'a self, name: &'a Name, verb: &'a Verb) -> DbFuture<'a, Timed<Changes>> {
        Box::pin(async move {
            if matches!(verb, Verb::Claim { claim, .. } if claim.may_queue) {
                // Listens before the queue entry exists, so that no notification to it is missed.
                self.listener.ensure_listening().await?;
            }
            let borrowed = self.listener.borrow_for_transaction().await?;
            let changes = apply(&borrowed.conn, name, verb).await?;
            borrowed.give_back()?;
            Ok(changes)
        })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim], client: ClientId) -> DbFuture<'a, AllChanges> {
        Box::pin(async move {
            let borrowed = self.listener.borrow_for_transaction().await?;
            let all = apply_all(&borrowed.conn, claims, client).await?;
            borrowed.give_back()?;
            Ok(all)
        })
    }

    fn look<'a>(&'a self, names: &'a [Name]) -> DbFuture<'a, LookResult> {
        Box::pin(async move {
            let name_list: Vec<&str> = names.iter().map(Name::as_str).collect();
            let (rows, by_replica) = self.look_rows(&LOOK, &[&name_list]).await?;
            let mut snapshots: Vec<(Name, Snapshot)> = Vec::new();
            for row in &rows {
                let Some(name) = name(row)? else { continue };
                if snapshots.last().is_none_or(|(last, _)| *last != name) {
                    let (now, lock, claims) =
                        (column(row, 1)?, lock_row(row, FIRST_LOCK_COLUMN)?, Vec::new());
                    snapshots
                        .push((name, Snapshot { now, floor: now, lineage: self.lineage(), lock, claims }));
                }
                if let Some((_, snapshot)) = snapshots.last_mut() {
                    snapshot.claims.extend(claim_row(row, FIRST_CLAIM_COLUMN)?);
                }
            }
            Ok(LookResult { snapshots, by_replica })
        })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> DbFuture<'a, Vec<Name>> {
        Box::pin(async move {
            let (rows, _) = self.look_rows(&NAMES_LIKE, &[&prefix]).await?;
            rows.iter().filter_map(|row| name(row).transpose()).collect()
        })
    }

    fn sweep<'a>(&'a self, after: &'a str, count: i64) -> DbFuture<'a, (Vec<Name>, Option<String>)> {
        Box::pin(async move {
            let rows = self.query_unless_locked(&SWEEP, &[&after, &count]).await?.unwrap_or_default();
            let (mut unused, mut expired, mut last): (Vec<&str>, _, _) = (Vec::new(), Vec::new(), None);
            for row in &rows {
                let (name, is_unused, has_expired): (&str, bool, bool) =
                    (column(row, 0)?, column(row, 1)?, column(row, 2)?);
                if is_unused {
                    unused.push(name);
                }
                if has_expired {
                    expired.extend(Name::new(name).ok());
                }
                last = Some(name.to_owned());
            }
            if !unused.is_empty() {
                self.query_unless_locked(&FORGET, &[&unused]).await?;
            }
            let is_full_part = i64::try_from(rows.len()).is_ok_and(|found| found == count);
            Ok((expired, last.filter(|_| is_full_part)))
        })
    }

    fn read_memo<'a>(&'a self, name: &'a Name) -> DbFuture<'a, Option<Timed<StoredMemo>>> {
        Box::pin(async move {
            let borrowed = self.pool.borrow_with(MissingTables::Leave).await?;
            if borrowed.conn.is_replica() {
                return Err(replica_error());
            }
            if !borrowed.conn.find_memos(MissingTables::Leave).await? {
                borrowed.give_back()?;
                return Ok(None);
            }
            let row = memos::read(&borrowed.conn, name).await?;
            borrowed.give_back()?;
            Ok(row)
        })
    }

    fn write_memo<'a>(&'a self, write: &'a MemoWrite) -> DbFuture<'a, Timed<MemoWritten>> {
        Box::pin(async move {
            let borrowed = self.listener.borrow_for_transaction().await?;
            borrowed.conn.find_memos(MissingTables::Create).await?;
            let written = memos::write(&borrowed.conn, write).await?;
            borrowed.give_back()?;
            Ok(written)
        })
    }

    fn sweep_memos(&self) -> DbFuture<'_, usize> {
        Box::pin(async move {
            let borrowed = self.pool.borrow().await?;
            if borrowed.conn.find_memos(MissingTables::Leave).await? {
                let rows = query_borrowed(borrowed, &MEMO_SWEEP, &[]).await?;
                return Ok(rows.map_or(0, |rows| rows.len()));
            }
            borrowed.give_back().map(|()| 0)
        })
    }

    fn lineage(&self) -> Lineage {
        self.pool.lineage()
    }

    fn ping(&self) -> DbFuture<'_, ()> {
        Box::pin(async move {
            let borrowed = self.pool.borrow_with(MissingTables::Leave).await?;
            if borrowed.conn.is_replica() {
                return Err(replica_error());
            }
            borrowed.conn.run("SELECT 1").await.map_err(|error| classify(&error, Stage::BeforeCommit))?;
            borrowed.give_back()
        })
    }

    fn diagnose(&self) -> DbFuture<'_, Vec<Diagnostic>> {
        Box::pin(diagnose::of_tables(&self.pool))
    }

    fn guarantee(&self) -> DbFuture<'_, Guarantee> {
        Box::pin(async move {
            let borrowed = self.pool.borrow_with(MissingTables::Leave).await?;
            if borrowed.conn.is_replica() {
                return Ok(replica_guarantee("pg_is_in_recovery()", "true", "false"));
            }
            let row = borrowed
                .conn
                .settings(SETTINGS)
                .await
                .map_err(|error| classify(&error, Stage::BeforeCommit))?;
            borrowed.give_back()?;
            guarantee(&row)
        })
    }
}
