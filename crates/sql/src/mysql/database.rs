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
    BoxFuture, Claim, ClaimId, Clock, Fault, Grant, Guarantee, Hold, Lineage, Name, Release, Token,
    lock_state::EntryKind,
};

use super::{
    apply::apply,
    config::Config,
    conn::Set,
    error::{Commits, Stopped},
    fast_path,
    guarantee::guarantee,
    pool::{Lent, Pool},
    rows::{Columns, names, slots},
    server::{Server, replica},
    statements::{
        AHEAD, EXPIRIES, FORGET, LOOK, NAMES_LIKE, POLL_GRANTS, REFRESH, REPLICAS, SERVER, SLOTS, STATES,
        SWEEP,
    },
    text::{bytes, claims, list},
};
use crate::{
    database::{
        Absent, Answered, Database, Failed, Looked, QueueEntry, Refreshed, Taken, Timed, promised_by_replica,
    },
    row::{ClientId, kind_of, micros_in, previous_of},
    slots::Slots,
    step::{Changes, Message, PeerNotification, Snapshot, Verb},
};

/// How often a request is tried before its caller gets an error.
const TRIES: usize = 3;
/// How many claim rows one statement looks up: the server compares each row with all of them.
const AT_ONCE: usize = 256;
/// How many statements read the number of connections.
pub(super) const SLOTS_ASKED: usize = 2;

pub(super) struct Mysql {
    pub(super) pool: Pool,
    id: ClientId,
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
        let stamp = self.id.0.wrapping_add(count.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        stamp.cast_signed().to_string()
    }

    /// Executes statements about many names; `None` where they met a row that another transaction keeps locked: then
    /// nothing was done.
    pub(super) async fn many(&self, text: &str, commits: Commits) -> Result<Option<Vec<Set>>, Failed> {
        match once(self.pool.conn().await?, text, commits).await {
            Ok(sets) => Ok(Some(sets)),
            Err(Stopped::Busy | Stopped::Deadlock) => Ok(None),
            Err(stopped) => Err(stopped.failed()),
        }
    }

    /// Executes statements that grant nothing, and repeats them until they are done.
    async fn repeat_until_done(&self, text: &str) -> Result<Vec<Set>, Failed> {
        self.until_done(text, Absent::Create).await.map(|(sets, _)| sets)
    }

    /// The rows of a look, and whether a replica returned them. Empty where the tables do not exist.
    async fn looked(&self, text: &str) -> Result<(Vec<Set>, bool), Failed> {
        self.until_done(text, Absent::Leave).await
    }

    async fn until_done(&self, text: &str, absent: Absent) -> Result<(Vec<Set>, bool), Failed> {
        let mut tries = 1..TRIES;
        loop {
            let lent = self.pool.lent(absent).await?;
            if !lent.conn.has_tables() {
                return Ok((Vec::new(), false));
            }
            let by_replica = lent.conn.is_replica();
            match once(lent, text, Commits::Never).await {
                Ok(sets) => return Ok((sets, by_replica)),
                Err(stopped) => self.again(stopped, tries.next())?,
            }
        }
    }

    /// Fails, unless nothing was done for a reason that may have passed at the next try, and there is a next try.
    fn again(&self, stopped: Stopped, next: Option<usize>) -> Result<(), Failed> {
        match (&stopped, next) {
            (Stopped::Deadlock, Some(_)) => Ok(()),
            (Stopped::Gone(_), Some(_)) => {
                self.pool.broke();
                Ok(())
            }
            _ => Err(stopped.failed()),
        }
    }
}

async fn once(mut lent: Lent<'_>, text: &str, commits: Commits) -> Result<Vec<Set>, Stopped> {
    let sets = lent.conn.execute(text).await.map_err(|broke| Stopped::of(&broke, commits));
    if sets.is_ok() {
        // Otherwise its connection is closed, which rolls back its transaction.
        lent.back()?;
    }
    sets
}

impl Database for Mysql {
    fn take<'a>(&'a self, claims: &'a [Claim], client: ClientId) -> Answered<'a, Vec<Option<Timed<Taken>>>> {
        Box::pin(fast_path::take(self, claims, client))
    }

    fn free<'a>(&'a self, releases: &'a [Release]) -> Answered<'a, Vec<Option<Timed<()>>>> {
        Box::pin(fast_path::free(self, releases))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Answered<'a, Vec<Option<Timed<()>>>> {
        Box::pin(fast_path::renew(self, holds))
    }

    fn refresh<'a>(&'a self, entries: &'a [QueueEntry]) -> Answered<'a, Refreshed> {
        Box::pin(async move {
            let mut lives: HashMap<(i64, i64), Vec<&QueueEntry>> = HashMap::new();
            for entry in entries {
                lives.entry((entry.life, micros_in(entry.claim_time))).or_default().push(entry);
            }
            let mut statements = Vec::new();
            for ((life, claim_time), entries) in lives {
                let (life, claim_time) = (life.to_string(), claim_time.to_string());
                statements.extend(entries.chunks(AT_ONCE).map(|entries| {
                    let claims = claims(entries.iter().map(|entry| (entry.name.as_str(), entry.id, None)));
                    REFRESH.with(&[("claims", &claims), ("life", &life), ("claimtime", &claim_time)])
                }));
            }
            let client = self.id.0.cast_signed().to_string();
            statements.extend([&STATES, &AHEAD].map(|sql| sql.with(&[("client", &client)])));
            statements.push(SLOTS.bare().to_owned());
            let mut sets = self.repeat_until_done(&statements.join("; ")).await?;
            self.pool.learn(slots(&sets.split_off(sets.len().saturating_sub(SLOTS_ASKED))));
            let ahead = sets.pop().and_then(|set| set.rows.into_iter().next());
            let ahead: Option<u32> = ahead.map(|row| Columns::of(&row).next()).transpose()?.flatten();
            let mut states: HashMap<ClaimId, Timed<i16>> = HashMap::new();
            for row in sets.iter().flat_map(|set| &set.rows) {
                let mut columns = Columns::of(row);
                let (id, value, now) = (columns.id()?, columns.next()?, columns.next()?);
                states.extend(id.map(|id| (id, Timed { now, value })));
            }
            let states = entries.iter().map(|entry| states.remove(&entry.id)).collect();
            Ok(Refreshed { states, ahead: ahead.unwrap_or(0), ..Refreshed::default() })
        })
    }

    fn expiries<'a>(&'a self, asked: &'a [Name]) -> Answered<'a, Vec<(Name, i64)>> {
        Box::pin(async move {
            let asked = list(asked.iter().map(|name| bytes(name.as_str().as_bytes())));
            let sets = self.repeat_until_done(&EXPIRIES.with(&[("names", &asked)])).await?;
            let mut expiries = Vec::new();
            for row in sets.iter().flat_map(|set| &set.rows) {
                let mut columns = Columns::of(row);
                let (name, left) = (columns.name()?, columns.next()?);
                expiries.extend(Name::new(&name).map(|name| (name, left)));
            }
            Ok(expiries)
        })
    }

    fn slots(&self) -> Option<Slots> {
        self.pool.slots()
    }

    fn close_idle(&self) -> BoxFuture<'_, ()> {
        self.pool.close_idle();
        Box::pin(std::future::ready(()))
    }

    fn poll_grants(&self, client: ClientId) -> Answered<'_, Vec<PeerNotification>> {
        Box::pin(async move {
            if self.pool.was_cut() {
                // Another request found that out, so this client was not notified: return an error here, so that core
                // asks for the state of its claims.
                return Err(Failed::new(Fault::Retry, "the connections to the server broke"));
            }
            let text = POLL_GRANTS.with(&[("client", &client.0.cast_signed().to_string())]);
            let mut lent = self.pool.conn().await?;
            let sets = lent.conn.execute(&text).await.map_err(|broke| broke.sort(Commits::Never))?;
            let lineage = lent.conn.lineage();
            lent.back()?;
            let mut notifications = Vec::new();
            for row in sets.iter().flat_map(|set| &set.rows) {
                let mut columns = Columns::of(row);
                let (id, state): (_, i16) = (columns.id()?, columns.next()?);
                let (token, tokens): (i64, i32) = (columns.next()?, columns.next()?);
                let (previous, micros): (i16, i64) = (columns.next()?, columns.next()?);
                let grant = Grant {
                    token: Token { lineage, number: token.unsigned_abs() },
                    tokens: tokens.unsigned_abs(),
                    ttl: Some(Duration::from_micros(micros.unsigned_abs())),
                    previous: previous_of(previous),
                };
                let (since, left) = (columns.next()?, columns.next()?);
                let what = match kind_of(state) {
                    Some(EntryKind::MinHold) => Message::HoldEnds { left },
                    _ => Message::Granted { grant, since },
                };
                notifications.extend(id.map(|id| PeerNotification { client, id, what }));
            }
            Ok(notifications)
        })
    }

    fn apply<'a>(&'a self, name: &'a Name, verb: &'a Verb) -> Answered<'a, Timed<Changes>> {
        Box::pin(async move {
            let mut tries = 1..TRIES;
            loop {
                let mut lent = self.pool.conn().await?;
                match apply(&mut lent.conn, name, verb).await {
                    Ok(done) => {
                        lent.back()?;
                        return Ok(done);
                    }
                    Err(stopped) => {
                        // Closed before the next one is opened, to keep the number of connections small.
                        drop(lent);
                        self.again(stopped, tries.next())?;
                    }
                }
            }
        })
    }

    fn look<'a>(&'a self, asked: &'a [Name]) -> Answered<'a, Looked> {
        Box::pin(async move {
            let asked = list(asked.iter().map(|name| bytes(name.as_str().as_bytes())));
            let (sets, by_replica) = self.looked(&LOOK.with(&[("names", &asked)])).await?;
            let mut snapshots: Vec<(Name, Snapshot)> = Vec::new();
            for row in sets.iter().flat_map(|set| &set.rows) {
                let mut columns = Columns::of(row);
                let (name, now) = (columns.name()?, columns.next()?);
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
            Ok(Looked { snapshots, by_replica })
        })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> Answered<'a, Vec<Name>> {
        Box::pin(async move {
            let (length, prefix) = (prefix.len().to_string(), bytes(prefix.as_bytes()));
            let text = NAMES_LIKE.with(&[("prefix", &prefix), ("bytes", &length)]);
            let (sets, _) = self.looked(&text).await?;
            names(sets.first().map_or(&[], |set| &set.rows))
        })
    }

    fn sweep<'a>(&'a self, after: &'a str, count: i64) -> Answered<'a, (Vec<Name>, Option<String>)> {
        Box::pin(async move {
            let text = SWEEP.with(&[("after", &bytes(after.as_bytes())), ("count", &count.to_string())]);
            let sets = self.repeat_until_done(&text).await?;
            let (mut idle, mut stale, mut last, mut seen) = (Vec::new(), Vec::new(), None, 0);
            for row in sets.iter().flat_map(|set| &set.rows) {
                let mut columns = Columns::of(row);
                let (name, says_nothing, is_over) =
                    (columns.name()?, columns.next::<bool>()?, columns.next::<bool>()?);
                if says_nothing {
                    idle.push(bytes(name.as_bytes()));
                }
                if is_over {
                    stale.extend(Name::new(&name).ok());
                }
                (last, seen) = (Some(name), seen + 1);
            }
            if !idle.is_empty() {
                let text = FORGET.with(&[("names", &list(idle.into_iter()))]);
                self.many(&text, Commits::At(2)).await?;
            }
            Ok((stale, last.filter(|_| seen == count)))
        })
    }

    fn lineage(&self) -> Lineage {
        self.pool.lineage()
    }

    fn ping(&self) -> Answered<'_, ()> {
        Box::pin(async move {
            let mut tries = 1..TRIES;
            loop {
                let lent = self.pool.lent(Absent::Leave).await?;
                if lent.conn.is_replica() {
                    return Err(replica());
                }
                match once(lent, "DO 0", Commits::Never).await {
                    Ok(_) => return Ok(()),
                    Err(stopped) => self.again(stopped, tries.next())?,
                }
            }
        })
    }

    fn guarantee(&self) -> Answered<'_, Guarantee> {
        Box::pin(async move {
            let lent = self.pool.lent(Absent::Leave).await?;
            if lent.conn.is_replica() {
                return Ok(promised_by_replica("read_only or innodb_read_only", "ON", "OFF"));
            }
            let asked = [&SERVER, &REPLICAS].map(|sql| sql.bare()).join("; ");
            let sets = once(lent, &asked, Commits::Never).await.map_err(Stopped::failed)?;
            Ok(guarantee(&Server::read(sets)))
        })
    }
}
