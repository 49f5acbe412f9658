//! Asks the Sentinels of a URL which server is the master. A separate task asks each of them again and again, so that a
//! slow or lost Sentinel does not hold up the others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join;
use leasehold_core::{Clock, Endpoint, EngineError, Fault, Instant};
use redis::{FromRedisValue, RedisError, RedisResult, Value, aio::MultiplexedConnection, from_redis_value};
use tokio::sync::{Notify, watch};

use super::master_decision::{
    MasterDecision, NamedMaster, SentinelAnswer, SentinelReport, contradicts, decide_master,
};
use crate::{
    error::{classify, classify_connecting, tls_hint_if_closed, tls_hint_if_silent},
    identity::{self, Identity, ServerKind},
    lock_mutex,
    open::{self, Dialed},
    push_listener::PushHandler,
    reply::unreadable,
    runtime::{self, BackgroundTask},
    server::{Address, Server},
};

/// The poll interval of a Sentinel. An announcement of the Sentinel leads to a poll at once, but may be lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A Sentinel that does not answer for this long gets a new connection.
const MAX_SILENCE: Duration = Duration::from_secs(1);
/// The pause between a failed or broken connection and the next attempt.
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);
/// For this long, the master is disputed if one Sentinel names another master than the majority, with a later epoch:
/// Sentinels inform each other of a fail-over within 2 s. After this time the majority decides in spite of that
/// Sentinel, because its epoch may be left from earlier: epochs restart when a group is removed and added again.
const MAX_DISPUTE: Duration = Duration::from_secs(5);
/// The channel on which Sentinels announce a new master; Sentinels define its name.
const CHANNEL: &str = "+switch-master";

/// All Sentinels of the URL, and the last report of each.
pub(crate) struct SentinelPoller {
    /// The Sentinels' name for the group.
    group: String,
    clock: Arc<dyn Clock>,
    /// The Sentinels, each with its last report.
    sentinels: Vec<Arc<PolledSentinel>>,
    /// Notifies the receivers of each new report.
    changed: watch::Sender<()>,
    /// Since when a Sentinel contradicts the majority; `None` if none does.
    disputed_since: Mutex<Option<Instant>>,
    /// The tasks that ask the Sentinels, one for each Sentinel. Dropping a task ends it.
    _tasks: Vec<BackgroundTask>,
}

/// One Sentinel, which a task asks again and again.
struct PolledSentinel {
    endpoint: Endpoint,
    server: Server,
    /// The Sentinels' name for the group.
    group: String,
    clock: Arc<dyn Clock>,
    last_report: Mutex<LastReport>,
    changed: watch::Sender<()>,
    /// Notified when the Sentinel is to be asked without delay.
    poll_now: Notify,
}

/// The last report of a Sentinel, and when the Sentinel was asked for it.
struct LastReport {
    report: SentinelReport,
    asked_at: Instant,
}

impl LastReport {
    /// The report, if the Sentinel was asked for it at the instant `since` or later; otherwise "not asked".
    fn since(&self, since: Instant) -> &SentinelReport {
        if self.asked_at < since { &SentinelReport::NotAsked } else { &self.report }
    }
}

impl SentinelPoller {
    /// Starts the tasks. Must be called within a runtime.
    pub(crate) fn new(servers: Vec<(Endpoint, Server)>, group: &str, clock: &Arc<dyn Clock>) -> Arc<Self> {
        let changed = watch::Sender::new(());
        let sentinel = |(endpoint, server)| {
            Arc::new(PolledSentinel {
                endpoint,
                server,
                group: group.to_owned(),
                last_report: Mutex::new(LastReport {
                    report: SentinelReport::NotAsked,
                    asked_at: Instant::from_nanos(0),
                }),
                clock: Arc::clone(clock),
                changed: changed.clone(),
                poll_now: Notify::new(),
            })
        };
        let sentinels: Vec<_> = servers.into_iter().map(sentinel).collect();
        let poll = |sentinel: &Arc<PolledSentinel>| runtime::run(Arc::clone(sentinel).poll());
        let tasks = sentinels.iter().map(poll).collect();
        let (group, clock, disputed_since) = (group.to_owned(), Arc::clone(clock), Mutex::default());
        Arc::new(Self { group, clock, sentinels, changed, disputed_since, _tasks: tasks })
    }

    /// The master by the last reports of the Sentinels.
    pub(crate) fn decide_master(&self) -> MasterDecision {
        self.decide_master_since(Instant::from_nanos(0))
    }

    /// The master by those reports for which the Sentinels were asked at the instant `since` or later.
    pub(crate) fn decide_master_since(&self, since: Instant) -> MasterDecision {
        let decision = self.with_answers(since, |answers| decide_master(answers, &self.group));
        let mut disputed_since = lock_mutex(&self.disputed_since);
        match decision {
            MasterDecision::Disputed(named, other) => {
                let now = self.clock.now();
                if now.since(*disputed_since.get_or_insert(now)) < MAX_DISPUTE {
                    return MasterDecision::Disputed(named, other);
                }
                MasterDecision::Master(named)
            }
            decision => {
                *disputed_since = None;
                decision
            }
        }
    }

    /// Whether any Sentinel names another server than `master` with a later epoch, and the majority does not name
    /// `master`.
    pub(crate) fn contradicts(&self, master: &Endpoint) -> bool {
        let is_unconfirmed =
            !matches!(self.decide_master(), MasterDecision::Master(named) if named.endpoint == *master);
        is_unconfirmed && self.with_answers(Instant::from_nanos(0), |answers| contradicts(answers, master))
    }

    /// A receiver that is notified of each report.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Makes the tasks ask all Sentinels without delay.
    pub(crate) fn poll_now(&self) {
        self.sentinels.iter().for_each(|sentinel| sentinel.poll_now.notify_one());
    }

    /// Calls `evaluate` with the reports for which the Sentinels were asked at the instant `since` or later; a Sentinel
    /// without such a report counts as not asked.
    pub(crate) fn with_answers<T>(
        &self,
        since: Instant,
        evaluate: impl FnOnce(&[SentinelAnswer<'_>]) -> T,
    ) -> T {
        let reports: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| (&sentinel.endpoint, lock_mutex(&sentinel.last_report)))
            .collect();
        let answers: Vec<SentinelAnswer<'_>> =
            reports.iter().map(|(endpoint, report)| (*endpoint, report.since(since))).collect();
        evaluate(&answers)
    }
}

impl PolledSentinel {
    /// The task of one Sentinel: connects and asks, again and again.
    async fn poll(self: Arc<Self>) {
        loop {
            let (limit, asked_at) = (self.server.limit, self.clock.now());
            let address = &self.server.address;
            let error = match runtime::within(limit, self.connect()).await {
                Some(Ok(dialed)) => self.poll_connection(dialed).await,
                Some(Err(error)) => error,
                None => {
                    let hint = tls_hint_if_silent(&self.server);
                    let message = format!(
                        "cannot connect to the Sentinel at {address}: no answer within {limit:?}{hint}"
                    );
                    EngineError::new(Fault::Retry, message)
                }
            };
            self.set_report(asked_at, SentinelReport::Failed(error));
            runtime::within(RECONNECT_PAUSE, std::future::pending::<()>()).await;
        }
    }

    /// Stores a report, and notifies the receivers.
    fn set_report(&self, asked_at: Instant, report: SentinelReport) {
        *lock_mutex(&self.last_report) = LastReport { report, asked_at };
        let _ = self.changed.send(());
    }

    /// Connects to the Sentinel, checks that it is one, and subscribes to its announcements.
    async fn connect(self: &Arc<Self>) -> Result<Dialed, EngineError> {
        let mut dialed =
            open::open(&self.server, CHANNEL, self).await.map_err(|error| self.as_sentinel_error(error))?;
        // With the old protocol (RESP2) notifications come on a separate connection.
        let is_resp2 = dialed.notification.is_some();
        let mut driver = std::mem::replace(&mut dialed.driver, Box::pin(std::future::pending()));
        let checks = async {
            let to_sentinel_error =
                |error: RedisError| self.as_sentinel_error(classify_connecting(error, &self.server));
            Identity::ask(&dialed.mux, is_resp2)
                .await
                .map_err(to_sentinel_error)?
                .check_kind(ServerKind::Sentinel, &self.server)?;
            if !is_resp2 {
                dialed.mux.clone().subscribe(CHANNEL).await.map_err(to_sentinel_error)?;
            }
            Ok::<_, EngineError>(())
        };
        tokio::select! {
            checked = checks => checked?,
            () = &mut driver => {
                let hint = tls_hint_if_closed(&self.server);
                let message = format!("the Sentinel at {} closed the connection{hint}", self.server.address);
                return Err(EngineError::new(Fault::Retry, message));
            }
        }
        Ok(Dialed { driver, ..dialed })
    }

    /// Asks the Sentinel again and again until the connection breaks, and returns the reason.
    async fn poll_connection(&self, dialed: Dialed) -> EngineError {
        let address = &self.server.address;
        let closed_error =
            || EngineError::new(Fault::Retry, format!("the Sentinel at {address} closed the connection"));
        let Dialed { mux, driver, notification: _notifications, certificate_end: _ } = dialed;
        let asking = async {
            loop {
                let asked_at = self.clock.now();
                match runtime::within(MAX_SILENCE, self.ask(&mux)).await {
                    Some(Ok(report)) => self.set_report(asked_at, report),
                    Some(Err(error)) => return self.as_sentinel_error(error),
                    None => {
                        let message = format!("the Sentinel at {address} did not answer for {MAX_SILENCE:?}");
                        return EngineError::new(Fault::Retry, message);
                    }
                }
                let _ = runtime::within(POLL_INTERVAL, self.poll_now.notified()).await;
            }
        };
        tokio::select! {
            error = asking => error,
            () = driver => closed_error(),
        }
    }

    /// Asks the Sentinel once.
    async fn ask(&self, mux: &MultiplexedConnection) -> Result<SentinelReport, EngineError> {
        let query = async |subcommand: &str| -> RedisResult<Value> {
            redis::cmd("SENTINEL").arg(subcommand).arg(&self.group).query_async(&mut mux.clone()).await
        };
        let (address, master) = join(query("GET-MASTER-ADDR-BY-NAME"), query("MASTER")).await;
        let address: Option<(String, u16)> = read(address.map_err(classify)?)?;
        let Some((host, port)) = address else {
            return Ok(SentinelReport::UnknownGroup(identity::watched_groups(mux).await));
        };
        let mut fields: HashMap<String, String> = read(master.map_err(classify)?)?;
        let mut number =
            |key: &str| fields.remove(key).and_then(|text| text.parse::<u64>().ok()).ok_or_else(unreadable);
        let (epoch, other_sentinels) = (number("config-epoch")?, number("num-other-sentinels")?);
        let down_after = Duration::from_millis(number("down-after-milliseconds")?);
        let sentinels = u32::try_from(other_sentinels).unwrap_or(u32::MAX).saturating_add(1);
        Ok(SentinelReport::Named(NamedMaster {
            endpoint: Endpoint { host, port },
            epoch,
            sentinels,
            down_after,
        }))
    }

    /// Changes the message, so that it says that the error is of a Sentinel. For a refused login the message names the
    /// login.
    fn as_sentinel_error(&self, error: EngineError) -> EngineError {
        let address = &self.server.address;
        let message = match error.fault {
            Fault::Denied => format!(
                "the Sentinel at {address} refuses the login: it needs the user and password of the URL options sentinel_user and sentinel_password_file, which are its own ({})",
                error.message
            ),
            _ => format!("the Sentinel at {address}: {}", error.message),
        };
        EngineError::new(error.fault, message)
    }
}

impl PushHandler for PolledSentinel {
    /// Polls at once after an announcement `<name> <old host> <old port> <new host> <new port>` of this group;
    /// announcements of other groups arrive too.
    fn receive(&self, message: &[u8]) {
        if message.split(|&byte| byte == b' ').next() == Some(self.group.as_bytes()) {
            self.poll_now.notify_one();
        }
    }

    /// Sentinels track no locks.
    fn invalidated(&self, _: Option<&str>) {}
}

/// Reads a value that the Sentinel returned.
fn read<T: FromRedisValue>(value: Value) -> Result<T, EngineError> {
    from_redis_value(value).map_err(|_| unreadable())
}

/// The address of a Sentinel.
pub(crate) fn tcp_address(endpoint: &Endpoint) -> Address {
    Address::Tcp(endpoint.clone())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use leasehold_core::Env;

    use super::*;
    use crate::server::Login;

    /// Sentinels announce changes of all groups that they watch.
    #[test]
    fn only_announcements_of_the_own_group_trigger_a_poll() {
        let endpoint = Endpoint { host: "h".to_owned(), port: 1 };
        let sentinel = PolledSentinel {
            server: Server::new(tcp_address(&endpoint), Login::default(), Duration::ZERO, 3),
            endpoint,
            group: "mymaster".to_owned(),
            clock: Env::system().clock,
            last_report: Mutex::new(LastReport {
                report: SentinelReport::NotAsked,
                asked_at: Instant::from_nanos(0),
            }),
            changed: watch::Sender::new(()),
            poll_now: Notify::new(),
        };
        for (message, is_polled) in [
            ("mymaster 127.0.0.1 1 127.0.0.1 2", true),
            ("other 127.0.0.1 1 127.0.0.1 2", false),
            ("mymaster2 127.0.0.1 1 127.0.0.1 2", false),
            ("other mymaster 1 127.0.0.1 2", false),
            ("", false),
        ] {
            sentinel.receive(message.as_bytes());
            assert_eq!(sentinel.poll_now.notified().now_or_never().is_some(), is_polled, "{message}");
        }
    }
}
