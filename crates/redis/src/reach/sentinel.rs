//! The master of a group that Sentinels watch. A connection to the master lasts as long as the Sentinels name that
//! server: for some seconds a demoted master does not know that it was demoted, and still answers as the master.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    BoxFuture, Clock, Contact, Dial, Endpoint, EngineError, Fault, Link, Notification, dial_limit,
};
use tokio::sync::Notify;

use super::{
    Client,
    master_decision::{MasterDecision, NamedMaster, SentinelAnswer, SentinelReport},
    one::{Dialer, hang_up},
    sentinel_poller::{SentinelPoller, tcp_address},
};
use crate::{
    conn::Conn,
    lock_mutex,
    push_listener::PushListener,
    runtime,
    server::{Address, Server},
    servers::Sentinels,
};

/// The interval at which the master is decided from the reports of the Sentinels, even without a new report.
const DECISION_INTERVAL: Duration = Duration::from_millis(250);
/// For how long a request waits for a connection before it fails with the last known error.
const CONN_WAIT: Duration = Duration::from_millis(300);
/// For how long a diagnosis waits for the reports of the Sentinels: longer than the Sentinels are waited for otherwise,
/// so that a Sentinel that does not answer is reported as such.
const REPORT_WAIT: Duration = Duration::from_secs(2);
/// The lower bound of the trust period: for how long the client trusts a master that no majority of the Sentinels names
/// any more. An answer of the master that took longer than the trust period proves nothing. The trust period is half of
/// the time after which Sentinels regard a silent master as down, but at least this constant and at most
/// [`MAX_TRUST_PERIOD`]. A promotion of another server takes longer than the trust period.
const MIN_TRUST_PERIOD: Duration = Duration::from_secs(2);
/// The upper bound of the trust period.
const MAX_TRUST_PERIOD: Duration = Duration::from_secs(5);

/// The group of the URL: a master and its replicas, which Sentinels watch.
pub(crate) struct SentinelGroup(Link<MasterDialer>);

/// Connects to the present master.
struct MasterDialer {
    client: Arc<Client>,
    /// The listener for the master, whichever server it is.
    listener: Arc<PushListener>,
    /// The Sentinels of the URL.
    sentinels: Sentinels,
    /// Created at the first attempt to connect, because it needs a runtime.
    poller: OnceLock<Arc<SentinelPoller>>,
    /// Why there is no connection, while there is none.
    last_error: Mutex<Option<EngineError>>,
    /// How many Sentinels exist, by the report of a Sentinel.
    existing_sentinels: AtomicU32,
}

impl SentinelGroup {
    pub(crate) fn new(client: &Arc<Client>, sentinels: &Sentinels, contact: Contact) -> Self {
        let dialer = MasterDialer {
            client: Arc::clone(client),
            listener: client.listener(),
            sentinels: sentinels.clone(),
            poller: OnceLock::new(),
            last_error: Mutex::default(),
            existing_sentinels: AtomicU32::new(0),
        };
        Self(Link::new(dialer, Arc::clone(&client.clock), contact))
    }

    /// The connection to the master. While there is none and the reason is known, a caller waits only for
    /// [`CONN_WAIT`], and then gets the reason as an error. Attempts to connect continue in the background.
    pub(crate) async fn conn(&self) -> Result<Arc<Conn>, EngineError> {
        loop {
            if let Some(conn) = runtime::within(CONN_WAIT, self.0.conn()).await {
                return conn;
            }
            if let Some(last_error) = &*lock_mutex(&self.0.dialer().last_error) {
                return Err(last_error.without_source());
            }
        }
    }

    /// The connection to the master, if there is one.
    pub(crate) fn live_conn(&self) -> Option<Arc<Conn>> {
        self.0.live()
    }

    /// The handler of the pushes of the master.
    pub(crate) fn listener(&self) -> &PushListener {
        &self.0.dialer().listener
    }

    /// Makes a broken connection again, in the background. Never returns.
    pub(crate) async fn mend(&self) {
        self.0.mend().await;
    }

    /// Ends a connection to a server that reports that it is not a master, and asks the Sentinels for the master at
    /// once.
    pub(crate) fn handle_demotion(&self, connection: u64) {
        hang_up(&self.0, connection, Some(self.listener()));
        if let Some(poller) = self.0.dialer().poller.get() {
            poller.poll_now();
        }
    }

    /// Asks all Sentinels anew, and calls `evaluate` with their reports. A Sentinel that does not answer within
    /// [`REPORT_WAIT`] counts as not asked.
    pub(crate) async fn with_new_reports<T>(&self, evaluate: impl FnOnce(&[SentinelAnswer<'_>]) -> T) -> T {
        let (dialer, poller) = (self.0.dialer(), self.0.dialer().poller());
        let asked_at = dialer.client.clock.now();
        let mut reports = poller.subscribe();
        poller.poll_now();
        let is_asked = |(_, report): &SentinelAnswer<'_>| !matches!(report, SentinelReport::NotAsked);
        let all_asked = async {
            while !poller.with_answers(asked_at, |answers| answers.iter().all(is_asked)) {
                drop(reports.changed().await);
            }
        };
        let _ = runtime::within(REPORT_WAIT, all_asked).await;
        poller.with_answers(asked_at, evaluate)
    }

    /// How many Sentinels the URL names, and how many exist by their own reports.
    pub(crate) fn sentinel_counts(&self) -> (usize, u32) {
        let dialer = self.0.dialer();
        (dialer.sentinels.endpoints.len(), dialer.existing_sentinels.load(Ordering::Relaxed))
    }
}

impl MasterDialer {
    /// The tasks that ask the Sentinels, which are started at the first call.
    fn poller(&self) -> &Arc<SentinelPoller> {
        self.poller.get_or_init(|| {
            let Sentinels { endpoints, group, login, .. } = &self.sentinels;
            let server = |endpoint: &Endpoint| {
                let timeout = self.client.config.connect_timeout;
                let server =
                    Server::new(tcp_address(endpoint), login.clone(), timeout, endpoints.len().max(2));
                #[cfg(feature = "tls")]
                let server = Server { tls: self.sentinels.tls.clone(), ..server };
                (endpoint.clone(), server)
            };
            SentinelPoller::new(endpoints.iter().map(server).collect(), group, &self.client.clock)
        })
    }

    /// Connects to the named server. The server itself must report that it is the master, and then a majority of the
    /// Sentinels must name it again: a server that was replaced while its process was paused does not know that it was
    /// replaced.
    async fn open(&self, named: &NamedMaster, broken: Arc<Notify>) -> Result<Conn, EngineError> {
        let config = &self.client.config;
        // A Sentinel names the address that the server announces; this client may reach it at another one.
        let reachable = config.map.reachable(named.endpoint.clone());
        let server = config.server(Address::Tcp(reachable), 1);
        let trust_period = trust_period_for(named.down_after);
        self.existing_sentinels.store(named.sentinels, Ordering::Relaxed);
        let dialer = Dialer {
            evidence_limit: Some(trust_period),
            ..Dialer::with_listener(&self.client, server, Arc::clone(&self.listener))
        };
        let number = self.client.next_connection.fetch_add(1, Ordering::Relaxed);
        let while_trusted = || {
            watch_trust(
                Arc::clone(self.poller()),
                named.endpoint.clone(),
                trust_period,
                Arc::clone(&self.client.clock),
            )
        };
        let replaced_error = |other: &str| {
            EngineError::new(Fault::Retry, format!("the Sentinels named {}, and now {other}", named.endpoint))
        };
        let conn = tokio::select! {
            conn = Conn::open(&dialer, number, broken, Box::pin(while_trusted())) => conn.map_err(|mut error| {
                if error.fault == Fault::Retry && error.message.starts_with("cannot connect") {
                    error.message += ": the Sentinels name this server until they name another";
                }
                error
            })?,
            // The attempt ends as soon as the Sentinels name another server, or none.
            () = while_trusted() => return Err(replaced_error("another, or none")),
        };
        // The connection is made: from here on, only reports that the Sentinels are asked for now or later count.
        let (poller, connected_at) = (self.poller(), self.client.clock.now());
        let mut reports = poller.subscribe();
        poller.poll_now();
        loop {
            match poller.decide_master_since(connected_at) {
                MasterDecision::Master(master) if master.endpoint == named.endpoint => return Ok(conn),
                MasterDecision::Undecided => drop(reports.changed().await),
                MasterDecision::NoMaster(error) => return Err(error),
                MasterDecision::Master(NamedMaster { endpoint: other, .. })
                | MasterDecision::Disputed(_, other) => {
                    return Err(replaced_error(&other.to_string()));
                }
            }
        }
    }

    /// Tries to connect until there is a connection to a master. Stores the error of each failed attempt.
    async fn find_master(&self, broken: Arc<Notify>) -> Result<Conn, EngineError> {
        let poller = self.poller();
        let mut reports = poller.subscribe();
        poller.poll_now();
        loop {
            let error = match poller.decide_master() {
                MasterDecision::Master(named) => match self.open(&named, Arc::clone(&broken)).await {
                    Ok(conn) => return Ok(conn),
                    Err(error) => Some(error),
                },
                MasterDecision::Disputed(named, other) => {
                    let message = format!(
                        "most Sentinels name {}, and one {other} by a later fail-over",
                        named.endpoint
                    );
                    Some(EngineError::new(Fault::Retry, message))
                }
                MasterDecision::Undecided => None,
                MasterDecision::NoMaster(error) => Some(error),
            };
            match error {
                Some(error) if !matches!(error.fault, Fault::Retry | Fault::Unknown | Fault::Full) => {
                    return Err(error);
                }
                Some(error) => *lock_mutex(&self.last_error) = Some(error),
                None => {}
            }
            // The Sentinels name a failed master until it has been down for long enough, so there is a pause before the
            // next attempt to connect to it.
            let _ = runtime::within(DECISION_INTERVAL, reports.changed()).await;
            let _ = runtime::within(DECISION_INTERVAL / 2, std::future::pending::<()>()).await;
        }
    }

    /// The error if no master is found in time: the last error, if there is one.
    fn timeout_error(&self, limit: Duration) -> EngineError {
        let no_majority = || {
            EngineError::new(Fault::Retry, format!("no majority of the Sentinels answered within {limit:?}"))
        };
        lock_mutex(&self.last_error).as_ref().map_or_else(no_majority, EngineError::without_source)
    }
}

impl Dial for MasterDialer {
    type Conn = Conn;

    /// `broken` is notified when the connection breaks.
    fn dial(&self, broken: Arc<Notify>) -> BoxFuture<'_, Result<Conn, EngineError>> {
        Box::pin(async move {
            let limit = dial_limit(self.client.config.connect_timeout, 1);
            let conn = runtime::within(limit, self.find_master(broken)).await;
            let conn = conn.unwrap_or_else(|| Err(self.timeout_error(limit)));
            *lock_mutex(&self.last_error) = conn.as_ref().err().map(EngineError::without_source);
            conn
        })
    }

    fn is_dead(conn: &Conn) -> bool {
        conn.is_dead()
    }

    fn address(conn: &Conn) -> String {
        conn.address.clone()
    }

    fn connected(&self, _: &Arc<Conn>, again: bool) {
        if again {
            // Notifications may be lost: all waiting claims ask again.
            self.listener.mailbox.push(Notification::AskAll);
        }
    }
}

/// The trust period, if Sentinels regard a master as down after `down_after` without an answer.
fn trust_period_for(down_after: Duration) -> Duration {
    (down_after / 2).clamp(MIN_TRUST_PERIOD, MAX_TRUST_PERIOD)
}

/// Waits until the server `followed` is no longer trusted as the master.
async fn watch_trust(
    poller: Arc<SentinelPoller>,
    followed: Endpoint,
    trust_period: Duration,
    clock: Arc<dyn Clock>,
) {
    let (mut reports, mut named_at) = (poller.subscribe(), clock.now());
    loop {
        match poller.decide_master() {
            MasterDecision::Master(master) if master.endpoint == followed => named_at = clock.now(),
            MasterDecision::Master(other) => {
                tracing::info!(mine = %followed, other = %other.endpoint, "the Sentinels name another master");
                return;
            }
            _ if poller.contradicts(&followed) => {
                tracing::info!(mine = %followed, "a Sentinel knows of a fail-over to another master");
                return;
            }
            _ if clock.now().since(named_at) > trust_period => {
                tracing::warn!(mine = %followed, trust = ?trust_period, "no majority of the Sentinels names the master any more");
                return;
            }
            _ => {}
        }
        let _ = runtime::within(DECISION_INTERVAL, reports.changed()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_is_trusted_for_less_than_a_promotion_takes() {
        for (down_after, expected) in [(30_000, 5000), (6000, 3000), (1000, 2000)] {
            assert_eq!(trust_period_for(Duration::from_millis(down_after)), Duration::from_millis(expected));
        }
    }
}
