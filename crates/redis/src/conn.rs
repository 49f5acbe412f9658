//! One connection: sends requests, and checks that the server is still alive.
#![expect(
    clippy::disallowed_methods,
    reason = "part of the runtime of this crate: it runs the connection, bounds it in time, and reads the wall clock"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::future::join;
use leasehold_core::{BoxFuture, Clock, EngineError, Fault, Notification};
use redis::{
    Cmd, Value,
    aio::{MultiplexedConnection, PubSubSink},
};
use tokio::sync::{Notify, oneshot};

use crate::{
    access::Access,
    error::{Refused, classify, tls_hint_if_closed, tls_hint_if_silent},
    identity::{Identity, ServerKind},
    open,
    outbox::{Destination, Items, Outbox, Sender, Values},
    push_listener::PushListener,
    reach::Dialer,
    replicas::ReplicaWaits,
    scripts::Script,
    server::Server,
    shared_task::SharedTask,
};

/// The interval at which the server is asked for its time while a claim or request waits for the server. The interval
/// is well below 2 s, the usual claim time: until a later answer comes, the client counts a pushed grant from the last
/// answer before the grant.
const PULSE_INTERVAL: Duration = Duration::from_millis(500);
/// A server that answers nothing for this long counts as gone, and a new connection is made.
const MAX_SILENCE: Duration = Duration::from_secs(3);

/// One connection.
pub(crate) struct Conn {
    /// The serial number of the connection. The server executes the requests of one connection in the order of their
    /// sending.
    pub(crate) number: u64,
    pub(crate) address: String,
    /// What the connection leads to.
    pub(crate) server: Server,
    /// How the connection reaches its server, for operators.
    pub(crate) access: Access,
    /// Sends commands other than calls of scripts.
    mux: MultiplexedConnection,
    /// Sends the calls of scripts.
    outbox: Outbox,
    /// The task that runs the connection; a thread that makes a request can poll the task too.
    shared: SharedTask,
    /// Waits until replicas have stored a grant, before the grant counts; `None` if the URL does not ask for that
    /// (`wait=`).
    replicas: Option<ReplicaWaits>,
    /// Whether the connection is gone. Then no request can use it.
    dead: Arc<AtomicBool>,
    /// Handles the pushes of the server.
    pub(crate) listener: Arc<PushListener>,
    /// Dropping this ends the task of the connection.
    _alive: oneshot::Sender<()>,
}

impl Conn {
    /// Connects, sends the first requests, and returns after their answers. `broken` is notified when the connection is
    /// gone. When the future `watch` completes, the server is no longer trusted: the connection is closed, and all
    /// holds are in doubt until a renewal confirms them.
    pub(crate) async fn open(
        dialer: &Dialer,
        number: u64,
        broken: Arc<Notify>,
        watch: BoxFuture<'static, ()>,
    ) -> Result<Self, EngineError> {
        let Dialer { client, server, listener, wanted, evidence_limit } = dialer;
        let (channel, clock) = (&client.channel, &client.clock);
        let (address, limit) = (&server.address, server.limit);
        let timed_out = |_| {
            // A Redis without TLS reads the first bytes of a TLS client as a command, and waits for the end of that
            // command.
            let hint = tls_hint_if_silent(server);
            let message = format!("cannot connect to {address}: no answer within {limit:?}{hint}");
            EngineError::new(Fault::Retry, message)
        };
        let started_at = clock.now();
        let connecting = async {
            let mut dialed = open::open(server, channel, listener).await?;
            let mut driver = std::mem::replace(&mut dialed.driver, Box::pin(std::future::pending()));
            let (identity, time) = tokio::select! {
                prepared = dialed.prepare(channel, server, *wanted, listener.process.asks_for_run()) => prepared?,
                () = &mut driver => {
                    let hint = tls_hint_if_closed(server);
                    let message = format!("cannot connect to {address}: it closed the connection{hint}");
                    return Err(EngineError::new(Fault::Retry, message));
                }
            };
            let mux = dialed.mux;
            still_master(&identity, *wanted, listener, server)?;
            let (replicas, confirming) = ReplicaWaits::open(client, server, &identity).await?;
            listener.identified(&identity);
            listener.process.set_uptime(identity.uptime, time);
            listener.connected(started_at, clock.now(), time);
            let (alive, gone) = oneshot::channel();
            let dead = Arc::new(AtomicBool::new(false));
            let (outbox, sender) =
                Sender::new(mux.clone(), Arc::clone(client), Arc::clone(listener), *evidence_limit);
            let pulse = pulse(mux.clone(), dialed.notification, Arc::clone(listener), Arc::clone(clock));
            let end_notice = EndNotice { dead: Arc::clone(&dead), broken };
            let (is_dead, mailbox) = (Arc::clone(&dead), Arc::clone(&listener.mailbox));
            let (shared, task) = SharedTask::new(Box::pin(async move {
                let _end_notice = end_notice;
                tokio::select! {
                    // The sender is polled before the driver, so that the driver writes new requests at once.
                    biased;
                    () = sender.run() => {}
                    () = driver => {}
                    () = pulse => {}
                    () = confirming => {}
                    () = watch => {
                        // `is_dead` is set first: the doubt causes renewals, and these must not use this connection.
                        is_dead.store(true, Ordering::Release);
                        mailbox.push(Notification::Doubt);
                    }
                    _ = gone => {}
                }
            }));
            tokio::spawn(task);
            let access = Access::of(server, dialed.certificate_end);
            let (address, listener) = (address.to_string(), Arc::clone(listener));
            let server = server.clone();
            Ok(Self {
                number,
                address,
                server,
                access,
                mux,
                outbox,
                shared,
                replicas,
                dead,
                listener,
                _alive: alive,
            })
        };
        tokio::time::timeout(limit, connecting).await.map_err(timed_out)?
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// From now on, an answer that takes longer than `evidence_limit` does not prove the state of the locks.
    pub(crate) fn set_evidence_limit(&self, evidence_limit: Duration) {
        self.outbox.evidence.set_evidence_limit(evidence_limit);
    }

    /// Runs a script for these items, and returns its reply. For a renewal, returns only when the replicas have stored
    /// it too, if the URL asks for that (`wait=`).
    pub(crate) async fn run(&self, to: Destination, script: Script, items: Items) -> Result<Values, Refused> {
        let _in_flight = self.listener.demand.start_request();
        let reply = self.outbox.call(&self.shared, to, script, items).await?;
        if script.renews() && self.needs_replicas() {
            Box::pin(self.wait_for_replicas(to)).await.map_err(Refused::Failed)?;
        }
        Ok(reply)
    }

    /// Whether a grant counts only when replicas have it (`wait=` in the URL).
    pub(crate) const fn needs_replicas(&self) -> bool {
        self.replicas.is_some()
    }

    /// Waits until the configured number of replicas has stored all writes so far of this connection. Returns at once
    /// if the URL does not ask for that (`wait=`).
    pub(crate) async fn wait_for_replicas(&self, to: Destination) -> Result<(), EngineError> {
        match &self.replicas {
            Some(replicas) => replicas.wait_for_all(to).await,
            None => Ok(()),
        }
    }

    /// Asks the server to report changes of the key of a lock that another program holds. Returns true if the key is
    /// gone already.
    pub(crate) async fn track(&self, lock: &str) -> Result<bool, EngineError> {
        let _in_flight = self.listener.demand.start_request();
        let mut request = redis::pipe();
        // EXISTS works for a key of any type and size.
        request.cmd("CLIENT").arg(&["CACHING", "YES"]).ignore().cmd("EXISTS").arg(lock);
        let exists: (u64,) = request.query_async(&mut self.mux.clone()).await.map_err(classify)?;
        Ok(exists.0 == 0)
    }

    /// Sends a command that is not a call of a script, and returns the answer.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value, EngineError> {
        let _in_flight = self.listener.demand.start_request();
        command.query_async(&mut self.mux.clone()).await.map_err(classify)
    }
}

/// Refuses a single server that was a master at an earlier connection and is a replica now. The caller can retry: the
/// host name will soon lead to the new master.
fn still_master(
    identity: &Identity,
    wanted: ServerKind,
    listener: &PushListener,
    server: &Server,
) -> Result<(), EngineError> {
    if wanted == ServerKind::Single && identity.role == "replica" && listener.process.was_master() {
        let message = format!("{} is a replica now: a fail-over may be under way", server.address);
        return Err(EngineError::new(Fault::Retry, message));
    }
    Ok(())
}

/// While a claim or request waits, asks the server for its time again and again, and pings the separate connection for
/// notifications, if there is one. Returns when one of the two connections is silent for [`MAX_SILENCE`].
async fn pulse(
    mut mux: MultiplexedConnection,
    mut notification: Option<PubSubSink>,
    listener: Arc<PushListener>,
    clock: Arc<dyn Clock>,
) {
    loop {
        if !listener.is_wanted() {
            listener.demand.begun().await;
        }
        // An error shows as well as an answer that the server is alive. If the connection is broken, its driver ends.
        let time = async {
            let sent = clock.now();
            if let Ok(time) = redis::cmd("TIME").query_async(&mut mux).await {
                listener.learn(sent, clock.now(), open::micros(time));
            }
        };
        let ping = async {
            if let Some(notification) = &mut notification {
                let _ = notification.ping::<Value>().await;
            }
        };
        if tokio::time::timeout(MAX_SILENCE, join(time, ping)).await.is_err() {
            return;
        }
        tokio::time::sleep(PULSE_INTERVAL).await;
    }
}

/// This machine's time of day, since 1970. Only for display beside the server's time: no decision uses it.
pub(crate) fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Owned by the task of a connection: when dropped, reports that the connection is gone.
struct EndNotice {
    dead: Arc<AtomicBool>,
    broken: Arc<Notify>,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        self.dead.store(true, Ordering::Release);
        self.broken.notify_one();
    }
}
