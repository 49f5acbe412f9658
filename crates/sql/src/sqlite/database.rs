//! The `Database` trait for SQLite.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use leasehold_core::{
    Answer, BoxFuture, Claim, Clock, Diagnostic, EngineError, Fault, Guarantee, Hold, How, Lineage, Loss,
    MemoWrite, Name, NoticeSender, Release, Token, Upgraded,
};

use super::{
    changes, diagnose,
    error::before_commit,
    file_watch::FileWatch,
    guarantee::guarantee,
    location::check_location,
    look, memos,
    resources::FileResources,
    rows::{read, write},
    transaction::Scope,
    worker::{Access, Worker},
};
use crate::{
    client::lock_mutex,
    database::{Database, DbFuture, Failed, FastGrant, LookResult, QueueEntry, Refreshed, Timed},
    memo::{MemoStep, MemoWritten, StoredMemo},
    row::{ClientId, previous_code},
    step::{Changes, ClientNotification, Reply, Snapshot, Verb},
    step_all::{AllChanges, claim_all},
};

/// An SQLite database, as one client uses it.
pub(super) struct Sqlite {
    path: PathBuf,
    id: ClientId,
    clock: Arc<dyn Clock>,
    /// The database thread, started by the first request.
    worker: OnceLock<Worker>,
    /// The lineage of the tables in the current file, set by the database thread.
    lineage: Arc<Mutex<Lineage>>,
    file_watch: FileWatch,
}

impl Sqlite {
    pub(super) fn new(path: PathBuf, id: ClientId, clock: Arc<dyn Clock>) -> Self {
        let lineage = Arc::new(Mutex::new(Lineage::new(0)));
        let file_watch = FileWatch::new(path.clone(), Arc::clone(&clock));
        Self { path, id, clock, worker: OnceLock::new(), lineage, file_watch }
    }

    /// The database thread; starts it if there is none.
    fn worker(&self) -> Result<&Worker, Failed> {
        if let Some(worker) = self.worker.get() {
            return Ok(worker);
        }
        let file = FileResources {
            path: self.path.clone(),
            clock: Arc::clone(&self.clock),
            lineage: Arc::clone(&self.lineage),
        };
        let worker = Worker::start(file).map_err(|error| {
            Failed::new(Fault::Retry, format!("no thread for {}: {error}", self.path.display()))
        })?;
        // If another thread was started at the same moment, this one ends at once, without opening anything.
        Ok(self.worker.get_or_init(|| worker))
    }

    /// Runs `work` on the database thread.
    async fn run<T: Send + 'static>(
        &self,
        access: Access,
        work: impl FnOnce(&Scope<'_>) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, Failed> {
        self.worker()?.run(access, work).await
    }

    /// Applies a verb for each request, and returns the time of each. `None` in place of the time if the verb did not
    /// succeed, or if a waiter of this client would have to be notified: then nothing is done for this request.
    async fn apply_each<Q: Send + 'static>(
        &self,
        requests: Vec<Q>,
        to_verb: impl Fn(&Q) -> (Name, Verb) + Send + 'static,
    ) -> Result<Vec<Option<Timed<()>>>, Failed> {
        let id = self.id;
        let apply_one = move |scope: &Scope<'_>, request: &Q| {
            let (name, verb) = to_verb(request);
            let changes = step(scope, &name, &verb)?;
            let is_applied = matches!(changes.reply, Reply::Released(true) | Reply::Renewed(Ok(())));
            // The answer has no room for a notification to this client.
            if !is_applied || changes.notifications.iter().any(|notification| notification.client == id) {
                return Ok(None);
            }
            write_changes(scope, &name, &changes, id)?;
            Ok(Some(Timed { now: scope.now, value: () }))
        };
        self.run(Access::Write, move |scope| {
            requests.iter().map(|request| apply_one(scope, request)).collect()
        })
        .await
    }
}

/// The rows of a name.
fn snapshot(scope: &Scope<'_>, name: &Name) -> Result<Snapshot, Failed> {
    read(scope, name).map_err(before_commit)
}

/// Applies a verb to a snapshot. Writes nothing yet.
fn step(scope: &Scope<'_>, name: &Name, verb: &Verb) -> Result<Changes, Failed> {
    let replaced = |token: &Token| token.lineage != scope.file.lineage;
    match verb {
        Verb::Renew { token, .. } | Verb::Downgrade { token, .. } if replaced(token) => {
            return Ok(Changes { reply: Reply::Renewed(Err(Loss::Replaced)), ..Changes::none() });
        }
        Verb::Upgrade { token, .. } if replaced(token) => {
            return Ok(Changes { reply: Reply::Upgraded(Upgraded::Lost(Loss::Replaced)), ..Changes::none() });
        }
        _ => {}
    }
    snapshot(scope, name)?.apply(verb)
}

/// Writes changes; records that other processes have to be woken if their claims were granted.
fn write_changes(scope: &Scope<'_>, name: &Name, changes: &Changes, own_id: ClientId) -> Result<(), Failed> {
    if changes.has_row_changes() {
        write(scope, name, changes).map_err(before_commit)?;
    }
    if changes.notifications.iter().any(|notification| notification.client != own_id) {
        scope.wake_others();
    }
    Ok(())
}

/// Takes a name that has neither holder nor waiter; `None` for another name.
fn fast_claim(
    scope: &Scope<'_>,
    claim: &Claim,
    client: ClientId,
) -> Result<Option<Timed<FastGrant>>, Failed> {
    let snapshot = snapshot(scope, &claim.name)?;
    if snapshot.lock.holder.is_some() || snapshot.lock.claims > 0 {
        return Ok(None);
    }
    let changes = snapshot.apply(&Verb::Claim {
        claim: claim.clone(),
        how: How::Create,
        client,
        entry_life: Duration::ZERO,
    })?;
    let Reply::Claim(Ok(Answer::Held(grant))) = &changes.reply else { return Ok(None) };
    let token = i64::try_from(grant.token.number).unwrap_or(i64::MAX);
    let value = FastGrant { token, previous: previous_code(grant.previous) };
    write_changes(scope, &claim.name, &changes, client)?;
    Ok(Some(Timed { now: scope.now, value }))
}

/// Extends the queue entries of claims that wait (`stand` 4) or missed their grant (5).
fn extend_entries(scope: &Scope<'_>, entries: &[QueueEntry]) -> Result<(), Failed> {
    let update_all = || {
        let mut update = scope.file.connection.prepare_cached(
            "UPDATE leasehold_claim SET expires = max(expires, ?3 + ?4) \
             WHERE name = ?1 AND id = ?2 AND expires > ?3 AND stand IN (4, 5)",
        )?;
        for entry in entries {
            let parameters =
                rusqlite::params![entry.name.as_str(), entry.id.0.as_slice(), scope.now, entry.life_micros];
            update.execute(parameters)?;
        }
        Ok(())
    };
    update_all().map_err(before_commit)
}

impl Database for Sqlite {
    fn fast_claim<'a>(
        &'a self,
        claims: &'a [Claim],
        client: ClientId,
    ) -> DbFuture<'a, Vec<Option<Timed<FastGrant>>>> {
        let claims = claims.to_vec();
        Box::pin(self.run(Access::Write, move |scope| {
            claims.iter().map(|claim| fast_claim(scope, claim, client)).collect()
        }))
    }

    fn fast_release<'a>(&'a self, releases: &'a [Release]) -> DbFuture<'a, Vec<Option<Timed<()>>>> {
        let to_verb = |release: &Release| {
            (release.name.clone(), Verb::Release { release: release.clone(), late_request_possible: false })
        };
        Box::pin(self.apply_each(releases.to_vec(), to_verb))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> DbFuture<'a, Vec<Option<Timed<()>>>> {
        let to_verb =
            |hold: &Hold| (hold.name.clone(), Verb::Renew { id: hold.id, token: hold.token, ttl: hold.ttl });
        Box::pin(self.apply_each(holds.to_vec(), to_verb))
    }

    fn refresh<'a>(&'a self, entries: &'a [QueueEntry]) -> DbFuture<'a, Refreshed> {
        Box::pin(async move {
            let checked_entries = entries.to_vec();
            let (now, states) = self
                .run(Access::Read, move |scope| Ok((scope.now, look::states(scope, &checked_entries)?)))
                .await?;
            let entries_to_extend: Vec<QueueEntry> = entries
                .iter()
                .zip(&states)
                .filter(|(_, state)| state.is_some_and(|state| state.extension_due))
                .map(|(entry, _)| entry.clone())
                .collect();
            if !entries_to_extend.is_empty() {
                self.run(Access::Write, move |scope| extend_entries(scope, &entries_to_extend)).await?;
            }
            let states = states.into_iter().map(|state| state.map(|state| Timed { now, value: state.stand }));
            Ok(Refreshed { states: states.collect(), ..Refreshed::default() })
        })
    }

    fn expiries<'a>(&'a self, names: &'a [Name]) -> DbFuture<'a, Vec<(Name, i64)>> {
        let names = names.to_vec();
        Box::pin(self.run(Access::Read, move |scope| look::expiries(scope, &names)))
    }

    fn poll_grants(&self, client: ClientId) -> DbFuture<'_, Vec<ClientNotification>> {
        Box::pin(async move {
            let notifications = self.run(Access::Read, move |scope| look::poll_grants(scope, client)).await?;
            self.file_watch.note_check(notifications.iter().any(ClientNotification::is_grant));
            Ok(notifications)
        })
    }

    fn tell_changes<'a>(&'a self, notices: &'a NoticeSender) -> BoxFuture<'a, Result<(), EngineError>> {
        Box::pin(changes::tell_changes(&self.path, notices))
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.file_watch.woken())
    }

    fn release_unneeded(&self, claims_wait: bool) -> BoxFuture<'_, ()> {
        if !claims_wait {
            self.file_watch.close_unused();
        }
        Box::pin(std::future::ready(()))
    }

    fn apply<'a>(&'a self, name: &'a Name, verb: &'a Verb) -> DbFuture<'a, Timed<Changes>> {
        let (name, verb, own_id) = (name.clone(), verb.clone(), self.id);
        Box::pin(self.run(Access::Write, move |scope| {
            let changes = step(scope, &name, &verb)?;
            write_changes(scope, &name, &changes, own_id)?;
            Ok(Timed { now: scope.now, value: changes })
        }))
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim], client: ClientId) -> DbFuture<'a, AllChanges> {
        let (claims, own_id) = (claims.to_vec(), self.id);
        Box::pin(self.run(Access::Write, move |scope| {
            let snapshots: Vec<_> = claims.iter().map(|claim| snapshot(scope, &claim.name)).collect();
            let all = claim_all(&snapshots, &claims, client);
            for (claim, changes) in claims.iter().zip(&all.changes) {
                write_changes(scope, &claim.name, changes, own_id)?;
            }
            Ok(all)
        }))
    }

    fn look<'a>(&'a self, names: &'a [Name]) -> DbFuture<'a, LookResult> {
        let names = names.to_vec();
        Box::pin(self.run(Access::Read, move |scope| {
            let snapshots =
                names.into_iter().map(|name| snapshot(scope, &name).map(|snapshot| (name, snapshot)));
            Ok(LookResult { snapshots: snapshots.collect::<Result<_, _>>()?, by_replica: false })
        }))
    }

    fn names<'a>(&'a self, prefix: &'a str) -> DbFuture<'a, Vec<Name>> {
        let prefix = prefix.to_owned();
        Box::pin(self.run(Access::Read, move |scope| look::names(scope, &prefix)))
    }

    fn sweep<'a>(&'a self, after: &'a str, count: i64) -> DbFuture<'a, (Vec<Name>, Option<String>)> {
        let after = after.to_owned();
        Box::pin(async move {
            let leftovers =
                self.run(Access::Read, move |scope| look::leftovers(scope, &after, count)).await?;
            if !leftovers.unused.is_empty() {
                self.run(Access::Write, move |scope| look::forget(scope, &leftovers.unused)).await?;
            }
            Ok((leftovers.expired, leftovers.last))
        })
    }

    fn read_memo<'a>(&'a self, name: &'a Name) -> DbFuture<'a, Option<Timed<StoredMemo>>> {
        let name = name.clone();
        Box::pin(self.run(Access::Read, move |scope| {
            let Some(row) = memos::read(scope, &name)? else { return Ok(None) };
            // In the same transaction, so at the same moment.
            let is_held = match row.claim() {
                Some(id) => snapshot(scope, &name)?.is_held_by(id, None),
                None => false,
            };
            Ok(Some(Timed { now: scope.now, value: StoredMemo { row, is_held } }))
        }))
    }

    fn write_memo<'a>(&'a self, write: &'a MemoWrite) -> DbFuture<'a, Timed<MemoWritten>> {
        let (write, own_id) = (write.clone(), self.id);
        Box::pin(self.run(Access::Write, move |scope| {
            let stored = memos::read_head(scope, &write.name)?;
            let MemoStep { written, row, changes } =
                snapshot(scope, &write.name)?.write_memo(&write, stored.as_ref())?;
            if let Some(row) = row {
                memos::put(scope, &write, &row)?;
            }
            if let Some(changes) = &changes {
                write_changes(scope, &write.name, changes, own_id)?;
            }
            Ok(Timed { now: scope.now, value: MemoWritten { written, changes } })
        }))
    }

    fn sweep_memos(&self) -> DbFuture<'_, usize> {
        Box::pin(async move {
            if !self.run(Access::Read, memos::any_ended).await? {
                return Ok(0);
            }
            self.run(Access::Write, memos::delete_ended).await
        })
    }

    fn lineage(&self) -> Lineage {
        *lock_mutex(&self.lineage)
    }

    fn ping(&self) -> DbFuture<'_, ()> {
        Box::pin(async move {
            // Checks that the file can be used, or created.
            check_location(&self.path)?;
            self.run(Access::Read, |_| Ok(())).await
        })
    }

    fn guarantee(&self) -> DbFuture<'_, Guarantee> {
        Box::pin(async move {
            // Checks that the file can be used, or created.
            check_location(&self.path)?;
            self.run(Access::Read, |_| Ok(())).await?;
            Ok(guarantee(&self.path))
        })
    }

    fn diagnose(&self) -> DbFuture<'_, Vec<Diagnostic>> {
        Box::pin(async move {
            let mut all = diagnose::of_file(&self.path);
            let tables = self.run(Access::Read, |scope| Ok(diagnose::Tables::of(scope.file))).await;
            all.extend(diagnose::of_tables(&self.path, tables));
            Ok(all)
        })
    }
}
