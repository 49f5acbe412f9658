//! The Sentinels of a URL. A separate task asks each of them again and again, so that a slow or lost Sentinel does not
//! hold up the others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::join;
use leasehold_core::{Clock, Endpoint, EngineError, Fault, Instant};
use redis::{FromRedisValue, RedisError, RedisResult, Value, aio::MultiplexedConnection, from_redis_value};
use tokio::sync::{Notify, watch};

use super::verdict::{NamedMaster, SentinelAnswer, SentinelReport, Verdict, contradicts, judge};
use crate::{
    error::{is_tls_there, sort, sort_connecting, wants_tls},
    identity::{self, Identity, Wanted},
    open::{self, Dialed},
    push_listener::PushHandler,
    reply::unreadable,
    runtime::{self, Running},
    server::{Address, Server},
};

/// The poll interval of a Sentinel. Its announcements in between lead to a question at once, and may be lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// After this time without an answer, a new connection to the Sentinel is made.
const MAX_SILENCE: Duration = Duration::from_secs(1);
/// The pause after a failed or broken connection.
const PAUSE: Duration = Duration::from_millis(250);
/// For this long a Sentinel that names another master by a later fail-over counts against the majority: Sentinels
/// inform each other within 2 s. After that it is ignored: epochs restart where a group is removed and added again.
const VETO: Duration = Duration::from_secs(5);
/// The channel on which Sentinels announce a new master.
const CHANNEL: &str = "+switch-master";

/// All Sentinels of the URL.
pub(crate) struct Panel {
    master: String,
    clock: Arc<dyn Clock>,
    states: Vec<Arc<SentinelState>>,
    changed: watch::Sender<()>,
    /// Since when a Sentinel contradicts the majority.
    disputed: Mutex<Option<Instant>>,
    _running: Vec<Running>,
}

/// One Sentinel.
struct SentinelState {
    endpoint: Endpoint,
    server: Server,
    master: String,
    clock: Arc<dyn Clock>,
    report: Mutex<LastReport>,
    changed: watch::Sender<()>,
    /// Notified when it is to be asked at once.
    kick: Notify,
}

/// The last report of a Sentinel, and when the Sentinel was asked for it.
struct LastReport {
    report: SentinelReport,
    asked: Instant,
}

impl LastReport {
    fn since(&self, since: Instant) -> &SentinelReport {
        if self.asked < since { &SentinelReport::Nothing } else { &self.report }
    }
}

impl Panel {
    /// Starts the tasks. Must be called within a runtime.
    pub(crate) fn new(servers: Vec<(Endpoint, Server)>, master: &str, clock: &Arc<dyn Clock>) -> Arc<Self> {
        let changed = watch::Sender::new(());
        let state = |(endpoint, server)| {
            Arc::new(SentinelState {
                endpoint,
                server,
                master: master.to_owned(),
                report: Mutex::new(LastReport {
                    report: SentinelReport::Nothing,
                    asked: Instant::from_nanos(0),
                }),
                clock: Arc::clone(clock),
                changed: changed.clone(),
                kick: Notify::new(),
            })
        };
        let states: Vec<_> = servers.into_iter().map(state).collect();
        let poll = |state: &Arc<SentinelState>| runtime::run(Arc::clone(state).poll());
        let running = states.iter().map(poll).collect();
        let (master, clock, disputed) = (master.to_owned(), Arc::clone(clock), Mutex::default());
        Arc::new(Self { master, clock, states, changed, disputed, _running: running })
    }

    /// The master by the last reports of the Sentinels.
    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict_since(Instant::from_nanos(0))
    }

    /// The same by the reports of the Sentinels that were asked at this instant or later.
    pub(crate) fn verdict_since(&self, since: Instant) -> Verdict {
        let verdict = self.with_answers(since, |answers| judge(answers, &self.master));
        let mut disputed = lock_of(&self.disputed);
        match verdict {
            Verdict::Disputed(named, other) => {
                let now = self.clock.now();
                if now.since(*disputed.get_or_insert(now)) < VETO {
                    return Verdict::Disputed(named, other);
                }
                Verdict::Master(named)
            }
            verdict => {
                *disputed = None;
                verdict
            }
        }
    }

    /// Whether any Sentinel knows of a later fail-over to another server than `mine`.
    pub(crate) fn contradicts(&self, mine: &Endpoint) -> bool {
        let vetoed = !matches!(self.verdict(), Verdict::Master(named) if named.endpoint == *mine);
        vetoed && self.with_answers(Instant::from_nanos(0), |answers| contradicts(answers, mine))
    }

    /// Changes with each report.
    pub(crate) fn listen(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Asks all Sentinels at once.
    pub(crate) fn kick(&self) {
        self.states.iter().for_each(|state| state.kick.notify_one());
    }

    fn with_answers<T>(&self, since: Instant, judge: impl FnOnce(&[SentinelAnswer<'_>]) -> T) -> T {
        let reports: Vec<_> =
            self.states.iter().map(|state| (&state.endpoint, lock_of(&state.report))).collect();
        let answers = reports.iter().map(|(endpoint, report)| (*endpoint, report.since(since)));
        let answers: Vec<SentinelAnswer<'_>> = answers.collect();
        judge(&answers)
    }
}

impl SentinelState {
    async fn poll(self: Arc<Self>) {
        loop {
            let (limit, asked) = (self.server.limit, self.clock.now());
            let address = &self.server.address;
            let error = match runtime::within(limit, self.connect()).await {
                Some(Ok(dialed)) => self.ask_on(dialed).await,
                Some(Err(error)) => error,
                None => {
                    let hint = is_tls_there(&self.server);
                    let message = format!(
                        "cannot connect to the Sentinel at {address}: no answer within {limit:?}{hint}"
                    );
                    EngineError::new(Fault::Retry, message)
                }
            };
            self.set_report(asked, SentinelReport::Silent(error));
            runtime::within(PAUSE, std::future::pending::<()>()).await;
        }
    }

    fn set_report(&self, asked: Instant, report: SentinelReport) {
        *lock_of(&self.report) = LastReport { report, asked };
        let _ = self.changed.send(());
    }

    async fn connect(self: &Arc<Self>) -> Result<Dialed, EngineError> {
        let mut dialed =
            open::open(&self.server, CHANNEL, self).await.map_err(|error| self.of_sentinel(error))?;
        let old = dialed.notification.is_some();
        let mut driver = std::mem::replace(&mut dialed.driver, Box::pin(std::future::pending()));
        let asked = async {
            let failed = |error: RedisError| self.of_sentinel(sort_connecting(error, &self.server));
            Identity::ask(&dialed.mux, old).await.map_err(failed)?.judge(Wanted::Sentinel, &self.server)?;
            if !old {
                dialed.mux.clone().subscribe(CHANNEL).await.map_err(failed)?;
            }
            Ok::<_, EngineError>(())
        };
        tokio::select! {
            asked = asked => asked?,
            () = &mut driver => {
                let hint = wants_tls(&self.server);
                let message = format!("the Sentinel at {} closed the connection{hint}", self.server.address);
                return Err(EngineError::new(Fault::Retry, message));
            }
        }
        Ok(Dialed { driver, ..dialed })
    }

    /// Asks until the connection breaks, and returns the reason.
    async fn ask_on(&self, dialed: Dialed) -> EngineError {
        let address = &self.server.address;
        let hung_up =
            || EngineError::new(Fault::Retry, format!("the Sentinel at {address} closed the connection"));
        let Dialed { mux, driver, notification: _notifications } = dialed;
        let asking = async {
            loop {
                let asked = self.clock.now();
                match runtime::within(MAX_SILENCE, self.ask(&mux)).await {
                    Some(Ok(report)) => self.set_report(asked, report),
                    Some(Err(error)) => return self.of_sentinel(error),
                    None => {
                        let message = format!("the Sentinel at {address} did not answer for {MAX_SILENCE:?}");
                        return EngineError::new(Fault::Retry, message);
                    }
                }
                let _ = runtime::within(POLL_INTERVAL, self.kick.notified()).await;
            }
        };
        tokio::select! {
            error = asking => error,
            () = driver => hung_up(),
        }
    }

    async fn ask(&self, mux: &MultiplexedConnection) -> Result<SentinelReport, EngineError> {
        let ask = async |what: &str| -> RedisResult<Value> {
            redis::cmd("SENTINEL").arg(what).arg(&self.master).query_async(&mut mux.clone()).await
        };
        let (address, master) = join(ask("GET-MASTER-ADDR-BY-NAME"), ask("MASTER")).await;
        let address: Option<(String, u16)> = read(address.map_err(sort)?)?;
        let Some((host, port)) = address else {
            return Ok(SentinelReport::NotKnown(identity::masters(mux).await));
        };
        let mut facts: HashMap<String, String> = read(master.map_err(sort)?)?;
        let mut number =
            |key: &str| facts.remove(key).and_then(|text| text.parse::<u64>().ok()).ok_or_else(unreadable);
        let (epoch, others) = (number("config-epoch")?, number("num-other-sentinels")?);
        let down_after = Duration::from_millis(number("down-after-milliseconds")?);
        let sentinels = u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1);
        Ok(SentinelReport::Named(NamedMaster {
            endpoint: Endpoint { host, port },
            epoch,
            sentinels,
            down_after,
        }))
    }

    /// Marks the error as one of a Sentinel. For a refused login the message names the login.
    fn of_sentinel(&self, error: EngineError) -> EngineError {
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

impl PushHandler for SentinelState {
    /// Reads `<name> <old host> <old port> <new host> <new port>`, also of other groups.
    fn receive(&self, message: &[u8]) {
        if message.split(|&byte| byte == b' ').next() == Some(self.master.as_bytes()) {
            self.kick.notify_one();
        }
    }

    fn invalidated(&self, _: Option<&str>) {}
}

fn read<T: FromRedisValue>(value: Value) -> Result<T, EngineError> {
    from_redis_value(value).map_err(|_| unreadable())
}

/// Where a Sentinel listens.
pub(crate) fn at(endpoint: &Endpoint) -> Address {
    Address::Tcp(endpoint.clone())
}

fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let state = SentinelState {
            server: Server::new(at(&endpoint), Login::default(), Duration::ZERO, 3),
            endpoint,
            master: "mymaster".to_owned(),
            clock: Env::system().clock,
            report: Mutex::new(LastReport { report: SentinelReport::Nothing, asked: Instant::from_nanos(0) }),
            changed: watch::Sender::new(()),
            kick: Notify::new(),
        };
        for (message, is_asked) in [
            ("mymaster 127.0.0.1 1 127.0.0.1 2", true),
            ("other 127.0.0.1 1 127.0.0.1 2", false),
            ("mymaster2 127.0.0.1 1 127.0.0.1 2", false),
            ("other mymaster 1 127.0.0.1 2", false),
            ("", false),
        ] {
            state.receive(message.as_bytes());
            assert_eq!(state.kick.notified().now_or_never().is_some(), is_asked, "{message}");
        }
    }
}
