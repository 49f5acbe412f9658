//! Tells views of changes, by a connection of its own to each server, on which the server reports keys that change
//! (`CLIENT TRACKING` with `BCAST`, from Redis 6 on). No setting of the server is needed, and nothing is written.
//!
//! A server can change far more keys a second than a view has a use for. So the reports are turned off with the first
//! one, for [`PAUSE`], and a view costs the server a few messages a second at most.

use std::{sync::Arc, time::Duration};

use futures_util::future::select_all;
use leasehold_core::{EngineError, Fault, NoticeSender, Watched};
use redis::{RedisError, aio::MultiplexedConnection};
use tokio::sync::Notify;

use crate::{
    RedisEngine,
    error::classify,
    keys::{Keys, RESERVED_PREFIX},
    open::{self, Dialed},
    push_listener::PushHandler,
    runtime::{pause, within},
    server::Server,
};

/// How long after a report the server is asked for the next one.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a connection without reports is checked, and how long an answer may take.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The letters of the side keys that change with holders and waiters: see `lua/name.lua`.
const SHOWN_SIDE_KEYS: &str = "cqezh";

/// Which keys belong to the names of a view.
struct ShownKeys {
    /// The lock key, or the beginning of the lock keys.
    lock: String,
    is_exact: bool,
    layout_letter: &'static str,
    /// The beginnings of the keys that the server is to report. None is the beginning of another.
    prefixes: Vec<String>,
}

/// Notified of the reports of one connection.
struct Reports {
    keys: Arc<ShownKeys>,
    reported: Notify,
}

impl RedisEngine {
    /// The verb `tell_changes`.
    pub(crate) async fn tell_changes_now(
        &self,
        watched: &Watched,
        notices: &NoticeSender,
    ) -> Result<(), EngineError> {
        let keys = Arc::new(self.shown_keys(watched)?);
        let mut views = Vec::new();
        for route in self.reach.routes_to_all().await? {
            match View::open(&route.conn.server, &self.client.channel, &keys).await? {
                Some(view) => views.push(view),
                // Reports of a part of the names would be a false promise.
                None => return Ok(()),
            }
        }
        if views.is_empty() {
            return Err(EngineError::new(Fault::Retry, "no server is known"));
        }
        notices.begin();
        let (ended, ..) = select_all(views.into_iter().map(|view| Box::pin(view.run(notices)))).await;
        ended
    }

    fn shown_keys(&self, watched: &Watched) -> Result<ShownKeys, EngineError> {
        let config = &self.client.config;
        let layout_letter = config.layout.layout_letter();
        let (lock, side, is_exact) = match watched {
            Watched::Name(name) => {
                let keys = self.keys(name)?;
                (keys.lock(), side_key_start(&keys), true)
            }
            Watched::Prefix(start) => {
                (format!("{}{start}", config.prefix), RESERVED_PREFIX.to_owned(), false)
            }
        };
        // The server refuses a prefix that overlaps with another.
        let prefixes = if side.starts_with(&lock) {
            vec![lock.clone()]
        } else if lock.starts_with(&side) {
            vec![side]
        } else {
            vec![lock.clone(), side]
        };
        Ok(ShownKeys { lock, is_exact, layout_letter, prefixes })
    }
}

/// The beginning of the side keys of a name: as they begin in [`Keys::memo`].
fn side_key_start(keys: &Keys<'_>) -> String {
    format!("{RESERVED_PREFIX}{}}}", keys.tag)
}

impl ShownKeys {
    /// Whether a change of this key may change what the view shows.
    fn include(&self, key: &str) -> bool {
        match key.strip_prefix(RESERVED_PREFIX) {
            None => self.is_lock(key),
            Some(side) => side.split_once('}').is_some_and(|(_, kind)| {
                let mut rest = kind.strip_prefix(self.layout_letter).unwrap_or_default().chars();
                rest.next().is_some_and(|letter| SHOWN_SIDE_KEYS.contains(letter))
                    && self.is_lock(rest.as_str())
            }),
        }
    }

    fn is_lock(&self, key: &str) -> bool {
        if self.is_exact { key == self.lock } else { key.starts_with(&self.lock) }
    }
}

impl PushHandler for Reports {
    fn receive(&self, _: &[u8]) {}

    fn invalidated(&self, key: Option<&str>) {
        if key.is_none_or(|key| self.keys.include(key)) {
            self.reported.notify_one();
        }
    }
}

/// The connection of a view to one server.
struct View {
    dialed: Dialed,
    reports: Arc<Reports>,
}

impl View {
    /// Connects, and has the server report changes. `None` if the server cannot: it is too old, or the user lacks the
    /// right.
    async fn open(
        server: &Server,
        channel: &str,
        keys: &Arc<ShownKeys>,
    ) -> Result<Option<Self>, EngineError> {
        let reports = Arc::new(Reports { keys: Arc::clone(keys), reported: Notify::new() });
        let address = &server.address;
        let no_answer = || EngineError::new(Fault::Retry, format!("{address} does not answer a view"));
        let opening = async {
            let mut dialed = open::open(server, channel, &reports).await?;
            if dialed.notification.is_some() {
                return Ok(None);
            }
            let mux = dialed.mux.clone();
            let began = tokio::select! {
                began = report(&mux, keys) => began,
                () = &mut dialed.driver => return Err(no_answer()),
            };
            match began {
                Ok(()) => Ok(Some(dialed)),
                // An answer of the server, and no broken connection.
                Err(error) if error.code().is_some() => {
                    tracing::debug!(%error, "the server reports no changes to views");
                    Ok(None)
                }
                Err(error) => Err(classify(error)),
            }
        };
        let dialed = within(server.limit, opening).await.ok_or_else(no_answer)??;
        Ok(dialed.map(|dialed| Self { dialed, reports }))
    }

    /// Tells the view of each report until the connection ends.
    async fn run(self, notices: &NoticeSender) -> Result<(), EngineError> {
        let Self { dialed: Dialed { mux, driver, .. }, reports } = self;
        tokio::select! {
            () = driver => Err(EngineError::new(Fault::Retry, "the connection of a view ended")),
            ended = relay(mux, &reports, notices) => ended,
        }
    }
}

/// Tells the view of each report until the server does not answer.
async fn relay(
    mux: MultiplexedConnection,
    reports: &Reports,
    notices: &NoticeSender,
) -> Result<(), EngineError> {
    let silent = || EngineError::new(Fault::Retry, "a server does not answer a view");
    loop {
        if within(CHECK_INTERVAL, reports.reported.notified()).await.is_none() {
            let ping = async { redis::cmd("PING").exec_async(&mut mux.clone()).await };
            within(CHECK_INTERVAL, ping).await.ok_or_else(silent)?.map_err(classify)?;
            continue;
        }
        let off = async { redis::cmd("CLIENT").arg(&["TRACKING", "OFF"]).exec_async(&mut mux.clone()).await };
        within(CHECK_INTERVAL, off).await.ok_or_else(silent)?.map_err(classify)?;
        notices.changed();
        pause(PAUSE).await;
        within(CHECK_INTERVAL, report(&mux, &reports.keys)).await.ok_or_else(silent)?.map_err(classify)?;
        // What changed in between was not reported.
        notices.changed();
    }
}

/// Has the server report changes of these keys on this connection.
async fn report(mux: &MultiplexedConnection, keys: &ShownKeys) -> Result<(), RedisError> {
    let mut command = redis::cmd("CLIENT");
    command.arg(&["TRACKING", "ON", "BCAST"]);
    for prefix in keys.prefixes.iter().filter(|prefix| !prefix.is_empty()) {
        command.arg("PREFIX").arg(prefix);
    }
    command.exec_async(&mut mux.clone()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(lock: &str, is_exact: bool, layout_letter: &'static str) -> ShownKeys {
        ShownKeys { lock: lock.to_owned(), is_exact, layout_letter, prefixes: Vec::new() }
    }

    #[test]
    fn a_view_shows_the_keys_of_its_names() {
        let exact = keys("app:job", true, "");
        for (key, is_shown) in [
            ("app:job", true),
            ("app:job/2", false),
            ("leasehold:{abcd}capp:job", true),
            ("leasehold:{abcd}qapp:job", true),
            ("leasehold:{abcd}eapp:job", true),
            ("leasehold:{abcd}zapp:job", true),
            ("leasehold:{abcd}happ:job", true),
            ("leasehold:{abcd}qapp:job/2", false),
            ("leasehold:{abcd}dapp:job", false),
            ("leasehold:{}tapp:job", false),
            ("leasehold:{abcd}", false),
            ("leasehold:{abcd", false),
        ] {
            assert_eq!(exact.include(key), is_shown, "{key}");
        }
        let prefix = keys("app:j", false, "r");
        for (key, is_shown) in [
            ("app:job/2", true),
            ("app:k", false),
            ("leasehold:{abcd}rqapp:job", true),
            ("leasehold:{abcd}qapp:job", false),
        ] {
            assert_eq!(prefix.include(key), is_shown, "{key}");
        }
    }
}
