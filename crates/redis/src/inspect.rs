//! The operators' requests: ping, guarantee, list, show and break.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;

use crate::{
    RedisEngine,
    config::{Config, StaleDeadline},
    engine::unknown_layout,
    error::Refused,
    guarantee::{self, Topology},
    reach::Route,
    reply::Reply,
    scripts::{Item, Script},
    token_counter::LINEAGE,
};
use leasehold_core::{
    BoxFuture, Broken, Diagnostic, EngineError, Fault, Guarantee, HolderView, Inspect, Mode, Name,
    NoticeSender, View, WaiterView, Watched, lock_state::MIN_HOLD_OWNER,
};

/// How many keys one `SCAN` looks at: the server needs well under a millisecond for so many keys, unless the keys are
/// long.
const SCAN_COUNT: u64 = 1000;
/// How many names of a list are looked at at the same time: one round trip for so many names. Requests of other clients
/// wait for that many scripts.
pub(crate) const LOOKS_AT_ONCE: usize = 32;

impl RedisEngine {
    /// Checks that all servers answer, by asking for their time: a user without the right to `TIME` cannot lock, and an
    /// answer to `PING` would not prove that the user has this right.
    async fn ping_now(&self) -> Result<(), EngineError> {
        for route in self.reach.routes_to_all().await? {
            route.conn.ask(&redis::cmd("TIME")).await?;
        }
        Ok(())
    }

    /// The holders and waiters of a name.
    async fn show_now(&self, name: &Name) -> Result<View, Refused> {
        let keys = self.keys(name).map_err(Refused::Failed)?;
        let item = |_: &Route| Ok([Item::new(&keys)].into());
        let mut reply = Reply::new(self.reach.run(keys.slot, Script::Look, item).await?);
        let config = &self.client.config;
        read_view(name, keys.lock(), &mut reply, config).map_err(Refused::Failed)
    }

    /// The names that begin with a prefix and have holders or waiters.
    async fn list_now(&self, prefix: &str) -> Result<Vec<View>, EngineError> {
        let lock_prefix = &self.client.config.prefix;
        let start = format!("{lock_prefix}{prefix}");
        let escaped = escape(&start);
        let mut locks = BTreeSet::new();
        self.scan(&format!("{escaped}*"), |key| {
            locks.insert(key.to_owned());
        })
        .await?;
        // Names that have waiters, perhaps without a holder: the locks in the names of the keys of queues.
        let queue_key = format!("}}{}q", self.client.config.layout.layout_letter());
        self.scan(&format!("leasehold:{{*{queue_key}{escaped}*"), |key| {
            if let Some((_, lock)) = key.split_once(&queue_key) {
                locks.insert(lock.to_owned());
            }
        })
        .await?;
        let named = locks.iter().filter_map(|lock| Name::new(lock.strip_prefix(lock_prefix)?).ok());
        // Without other keys that begin with the same text: our side keys, and Redisson's own keys.
        let names: Vec<_> = named.filter(|name| self.keys(name).is_ok()).collect();
        let mut views = Vec::new();
        for names in names.chunks(LOOKS_AT_ONCE) {
            // The requests are queued together, so that the connection sends them without waiting for an answer.
            let answers = join_all(names.iter().map(|name| self.show_now(name))).await;
            for (name, answer) in names.iter().zip(answers) {
                views.extend(self.listed(name, answer)?);
            }
        }
        views.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(views)
    }

    /// The entry of a name in a list; `None` if nobody holds it or waits for it any more.
    fn listed(&self, name: &Name, answer: Result<View, Refused>) -> Result<Option<View>, EngineError> {
        let unreadable = |error: &EngineError| {
            let lock = format!("{}{}", self.client.config.prefix, name.as_str());
            Ok(Some(View::unreadable(name.clone(), lock, error)))
        };
        match answer {
            Ok(view) if view.holders.is_empty() && view.waiters.is_empty() => Ok(None),
            Ok(view) => Ok(Some(view)),
            // The keys of the name are migrating to another server.
            Err(Refused::Split(error)) => unreadable(&error),
            // A key of another type, or an unreadable record: it blocks claims of this name, but must not block the
            // list of the other names.
            Err(Refused::Failed(error))
                if matches!(error.fault, Fault::Misconfigured | Fault::Internal | Fault::Denied) =>
            {
                unreadable(&error)
            }
            Err(refused) => Err(refused.into()),
        }
    }

    /// Calls `on_key` for every key that matches the pattern; for some keys perhaps twice.
    async fn scan(&self, pattern: &str, mut on_key: impl FnMut(&str)) -> Result<(), EngineError> {
        for route in self.reach.routes_to_all().await? {
            self.scan_one(route, pattern, &mut on_key).await?;
        }
        Ok(())
    }

    /// Scans one server. A `SCAN` without an answer, for example over keys of many MiB on a busy machine, is repeated
    /// for fewer keys.
    async fn scan_one(
        &self,
        mut route: Route,
        pattern: &str,
        on_key: &mut impl FnMut(&str),
    ) -> Result<(), EngineError> {
        let (mut cursor, mut count) = (0, SCAN_COUNT);
        loop {
            let item = Item::of_key("").number(cursor).text(pattern.as_bytes()).number(count);
            let mut reply = match route.run(Script::Names, [item].into()).await.map_err(EngineError::from) {
                Ok(reply) => Reply::new(reply),
                Err(error) if count > 1 && matches!(error.fault, Fault::Retry | Fault::Unknown) => {
                    count /= 10;
                    route = self.reach.reconnect(&route).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            cursor = reply.count()?;
            for key in reply.texts()? {
                on_key(&key);
            }
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Ends the hold with this token; with `force` at once, otherwise at the end of its lease.
    async fn break_now(&self, name: &Name, token: u64, force: bool) -> Result<Broken, EngineError> {
        let keys = self.keys(name)?;
        let wake = self.client.config.wake_words();
        let item = |_: &Route| {
            Ok([Item::new(&keys).number(token).number(force.into()).text(wake.as_bytes())].into())
        };
        let reply = self.reach.run(keys.slot, Script::Break, item).await?;
        match Reply::new(reply).text()?.as_str() {
            "done" => {
                self.notify_followers(name).await;
                Ok(Broken::Done)
            }
            "absent" => Ok(Broken::NotHeld),
            _ => Err(unknown_layout()),
        }
    }

    /// The guarantee of all servers together.
    async fn guarantee_now(&self) -> Result<Guarantee, EngineError> {
        let (mut guarantees, servers) = (Vec::new(), self.reach.routes_to_all().await?);
        let topology = Topology { sentinels: self.reach.sentinel_counts(), wait: self.client.config.wait };
        for route in servers {
            guarantees.push(guarantee::read_guarantee(&route.conn, topology).await?);
        }
        let last = guarantees.pop();
        let Some(mut merged) = last else { return Err(EngineError::new(Fault::Retry, "no server is known")) };
        if self.reach.shares_slots() {
            guarantee::merge_masters(&mut merged, guarantees);
        }
        self.client.config.layout.add_limitations(&mut merged);
        Ok(merged)
    }
}

impl Inspect for RedisEngine {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(self.ping_now())
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        Box::pin(self.guarantee_now())
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, EngineError>> {
        Box::pin(self.diagnose_now())
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(self.list_now(prefix))
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(async { self.show_now(name).await.map_err(EngineError::from) })
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(self.break_now(name, token, force))
    }

    fn tell_changes<'a>(
        &'a self,
        watched: &'a Watched,
        notices: &'a NoticeSender,
    ) -> BoxFuture<'a, Result<(), EngineError>> {
        Box::pin(self.tell_changes_now(watched, notices))
    }
}

/// Reads the answer of `lua/look.lua`.
fn read_view(name: &Name, key: String, reply: &mut Reply, config: &Config) -> Result<View, EngineError> {
    if reply.text()? == "layout" {
        return Err(unknown_layout());
    }
    let server_micros: u64 = reply.count()?;
    let mut view = View::free(name.clone(), key);
    view.lineage = Some(LINEAGE);
    for holder in reply.list()? {
        let (mode, holder, value) = holder_view(holder, server_micros)?;
        view.add_holder(mode, holder);
        match value {
            ForeignValue::Lock => {}
            ForeignValue::Stale(overdue) => {
                view.note.get_or_insert_with(|| stale_note(overdue, config.stale_deadline));
            }
            ForeignValue::NoLock => {
                let obstacle = config.layout.obstacle_not_a_lock();
                (view.problem, view.note) = (Some(obstacle.to_owned()), Some(obstacle.to_owned()));
            }
        }
    }
    for mut waiter in reply.list()? {
        let (id, owner) = (waiter.text()?, waiter.text()?);
        let since_micros = waiter.count()?;
        let waiting = (since_micros > 0).then(|| elapsed(server_micros, since_micros));
        let seen = WaiterView::new(id, owner, waiting);
        let mode = read_mode(&waiter.text()?, waiter.count()?, waiter.count()?);
        view.waiters.push(mode.into_iter().fold(seen, WaiterView::of_mode));
    }
    Ok(view)
}

/// What a lock key without expiry means whose value is a time that has been over for `overdue`.
fn stale_note(overdue: Duration, stale_deadline: StaleDeadline) -> String {
    let seconds = overdue.as_secs();
    match stale_deadline {
        StaleDeadline::Reclaim => format!(
            "the key has no expiry, and its value is a time that passed {seconds} s ago: the next claim takes the name over, because of stale_deadline=reclaim"
        ),
        StaleDeadline::Taken => format!(
            "the key has no expiry, and its value is a time that passed {seconds} s ago: its program may have died. If it is dead, delete the key, or put stale_deadline=reclaim into the URL"
        ),
    }
}

/// What the value of a foreign key is.
enum ForeignValue {
    /// A lock, as far as it is known. Also if the key is not foreign.
    Lock,
    /// A time that has been over for so long.
    Stale(Duration),
    /// Probably no lock: claims of the name are refused.
    NoLock,
}

/// Reads one holder of the answer of `lua/look.lua`.
fn holder_view(mut row: Reply, server_micros: u64) -> Result<(Mode, HolderView, ForeignValue), EngineError> {
    let (id, mode, count, limit) = (row.text()?, row.text()?, row.count()?, row.count()?);
    let (token, since_micros) = (row.count()?, row.count()?);
    let remaining = row.millis()?;
    let (owner, state) = (row.text()?, row.text()?);
    let overdue =
        state.strip_prefix("stale ").and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
    let value = match overdue {
        Some(overdue) => ForeignValue::Stale(overdue),
        None if state == "no lock" => ForeignValue::NoLock,
        None => ForeignValue::Lock,
    };
    let foreign = state == "foreign" || !matches!(value, ForeignValue::Lock);
    let token = Some(token).filter(|&token: &u64| !foreign && token > 0);
    // Without the record of the name, only the value of the lock tells of the hold.
    let held = (since_micros > 0).then(|| elapsed(server_micros, since_micros));
    let mode = read_mode(&mode, count, limit).unwrap_or(Mode::Exclusive);
    let owner = if state == "kept" { MIN_HOLD_OWNER.to_owned() } else { owner };
    let holder = HolderView::new(id, owner).token(token).times(held, remaining);
    Ok((mode, holder.foreign(foreign).broken(state == "!"), value))
}

/// The mode with this word; `None` if another program waits, which does not tell.
fn read_mode(word: &str, count: u32, limit: u32) -> Option<Mode> {
    match word {
        "" => None,
        "x" => Some(Mode::Exclusive),
        "s" => Some(Mode::Shared),
        _ => Some(Mode::Permits { count, limit }),
    }
}

/// How much time has passed from `since_micros` to `server_micros`, which are both by the server's clock.
fn elapsed(server_micros: u64, since_micros: u64) -> Duration {
    Duration::from_micros(server_micros.saturating_sub(since_micros))
}

/// A pattern that matches only this text.
pub(crate) fn escape(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
