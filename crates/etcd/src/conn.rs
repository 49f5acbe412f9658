//! One connection to one member: requests, and the two streams of every client: watches and keep-alives.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Clock, Endpoint, EngineError, Fault, Instant};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status};

use crate::{
    config::Config,
    error::{classify_connecting, wants_user},
    guarantee,
    health::{HealthCheck, MemberInfo},
    lock_mutex,
    push_handler::PushHandler,
    runtime,
    stream::{self, Opened},
    watches::Watches,
    wire::{Authenticate, Grpc, Http, KeepAlive, UnaryRequest, Watch},
};

/// The interval of health checks while the client needs the server.
const HEALTH_INTERVAL: Duration = Duration::from_millis(500);
/// A member that does not answer a health check within this time counts as dead.
const HEALTH_TIMEOUT: Duration = Duration::from_millis(1500);
/// A connection ends when its member reports no leader in this many checks in a row. One check is not enough, because
/// an election takes longer than one interval.
const MAX_LEADERLESS: u32 = 4;
/// A member that passes its health checks but answers no request for this long is replaced by another member: a leader
/// with a hanging disk behaves so.
const STUCK_AFTER: Duration = Duration::from_secs(3);
/// The time limit of a login: a login takes the server a tenth of a second of work, one client after another.
const LOGIN_LIMIT: Duration = Duration::from_secs(10);
/// A watch that is refused on a connection older than this may have been refused because the login expired.
const LOGIN_MAY_EXPIRE_AFTER: Duration = Duration::from_secs(60);

/// One connection. Dropping it closes it.
pub(crate) struct Conn {
    /// The id of the cluster: tokens of two clusters are not comparable.
    pub(crate) cluster: u64,
    pub(crate) member: Endpoint,
    pub(crate) watches: Arc<Watches>,
    /// The calls and streams over this connection.
    grpc: Grpc,
    /// Keep-alives to send.
    keep_alive: mpsc::UnboundedSender<KeepAlive>,
    state: Arc<ConnState>,
    /// Dropped with this connection, which ends the task of the connection.
    _task_guard: oneshot::Sender<()>,
}

/// The state of a connection: whether it can be used, and what is in flight.
struct ConnState {
    clock: Arc<dyn Clock>,
    /// The connection has ended. This state is final.
    dead: AtomicBool,
    /// Notified to end the connection.
    end: Notify,
    /// Wakes requests when the connection has ended.
    ended: Notify,
    load: Mutex<Load>,
}

/// What is in flight on a connection.
#[derive(Default)]
struct Load {
    /// The number of requests in flight.
    requests: usize,
    /// The later of two times: when the last request was answered, and when a request was sent while none was in
    /// flight.
    last_progress: Option<Instant>,
    /// The keep-alives in flight: the lease of each, and when it was sent. The server answers in this order.
    keep_alives: VecDeque<(i64, Instant)>,
}

/// Counts a request as in flight until it is dropped.
struct InFlightRequest<'a>(&'a ConnState);

impl Conn {
    /// Connects to a member, checks within `limit` whether it can serve, and logs in. `broken` is notified when the
    /// connection ends.
    pub(crate) async fn open(
        config: &Config,
        member: &Endpoint,
        limit: Duration,
        clock: Arc<dyn Clock>,
        handler: Weak<dyn PushHandler>,
        broken: Arc<Notify>,
    ) -> Result<Self, EngineError> {
        let failed = |status: Status| classify_connecting(&status, member, config);
        let timed_out = |limit: Duration| {
            EngineError::new(Fault::Retry, format!("cannot connect to {member}: no answer within {limit:?}"))
        };
        let dialing = async {
            let (grpc, _) = Self::dial(config, member).await?;
            let member_info = match MemberInfo::ask(&grpc, config).await {
                // If authentication is enabled, newer releases refuse the status until the client has logged in.
                Err(status) if config.login.is_some() && wants_user(&status) => None,
                member_info => Some(member_info.map_err(failed)?),
            };
            Ok((grpc, member_info))
        };
        let (grpc, member_info) = runtime::within(limit, dialing).await.ok_or_else(|| timed_out(limit))??;
        let login = runtime::within(LOGIN_LIMIT, Self::log_in(&grpc, config, member)).await;
        login.ok_or_else(|| timed_out(LOGIN_LIMIT))??;
        let member_info = match member_info {
            Some(member_info) => member_info,
            None => {
                let member_info = runtime::within(limit, MemberInfo::ask(&grpc, config)).await;
                member_info.ok_or_else(|| timed_out(limit))?.map_err(failed)?
            }
        };
        let unfit_error =
            |fault, why: &str| Err(EngineError::new(fault, format!("cannot connect to {member}: {why}")));
        if !guarantee::is_supported(&member_info.version) {
            return unfit_error(
                Fault::Misconfigured,
                &format!("it is etcd {}: 3.4 or newer is needed", member_info.version),
            );
        }
        if member_info.is_learner {
            return unfit_error(Fault::Retry, "it is a learner, which serves no clients yet");
        }
        if !member_info.has_leader {
            return unfit_error(Fault::Retry, "the member has no leader: is a quorum up?");
        }
        let (requests, watch_requests) = mpsc::unbounded_channel::<Watch>();
        let (keep_alive, keep_alives) = mpsc::unbounded_channel::<KeepAlive>();
        let (task_guard, conn_dropped) = oneshot::channel();
        let conn = Self {
            cluster: member_info.cluster,
            member: member.clone(),
            watches: Arc::new(Watches::new(requests)),
            grpc: grpc.clone(),
            keep_alive,
            state: Arc::new(ConnState {
                clock,
                dead: AtomicBool::new(false),
                end: Notify::new(),
                ended: Notify::new(),
                load: Mutex::default(),
            }),
            _task_guard: task_guard,
        };
        let state = || Arc::clone(&conn.state);
        let watch_stream = read_watches(
            grpc.clone(),
            watch_requests,
            Arc::clone(&conn.watches),
            state(),
            Weak::clone(&handler),
        );
        let keep_alive_stream = read_keep_alives(grpc.clone(), keep_alives, state(), Weak::clone(&handler));
        let health_checks = check_health(grpc, member_info.health, state(), handler);
        let end_notice = EndNotice { state: state(), broken };
        runtime::spawn(async move {
            tokio::select! {
                () = watch_stream => {}
                () = keep_alive_stream => {}
                () = health_checks => {}
                () = end_notice.state.end.notified() => {}
                _ = conn_dropped => {}
            }
            drop(end_notice);
        });
        Ok(conn)
    }

    /// Opens the connection, without a login. Also returns when the certificate of the member expires, if that is
    /// known.
    pub(crate) async fn dial(
        config: &Config,
        member: &Endpoint,
    ) -> Result<(Grpc, Option<Duration>), EngineError> {
        let Opened { bytes, certificate_end } = stream::open(config, member, stream::HTTP_2).await?;
        let http = Http::connect(bytes).await;
        let grpc = http.map(Grpc::new).map_err(|status| classify_connecting(&status, member, config))?;
        Ok((grpc, certificate_end))
    }

    /// Logs in, if the configuration has a login.
    pub(crate) async fn log_in(grpc: &Grpc, config: &Config, member: &Endpoint) -> Result<(), EngineError> {
        let Some((user, password)) = &config.login else { return Ok(()) };
        let failed = |status: Status| classify_connecting(&status, member, config);
        let password = password.read().await?.as_str().to_owned();
        let login = Authenticate { name: user.clone(), password };
        let reply = grpc.call(login).await.map_err(failed)?;
        grpc.set_token(&reply.token).map_err(failed)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state.dead.load(Ordering::Acquire)
    }

    /// Ends the connection: nothing more is sent on it.
    pub(crate) fn end(&self) {
        self.state.dead.store(true, Ordering::Release);
        self.state.end.notify_one();
    }

    /// Sends a request and waits for its reply, or for the end of the connection.
    pub(crate) async fn call<R: UnaryRequest>(&self, request: R) -> Result<R::Answer, Status> {
        let mut ended = std::pin::pin!(self.state.ended.notified());
        ended.as_mut().enable();
        if self.is_dead() {
            return Err(Status::unavailable("the connection has ended"));
        }
        let in_flight = InFlightRequest::new(&self.state);
        let answer = tokio::select! {
            biased;
            answer = self.grpc.call(request) => answer,
            () = ended => Err(Status::unavailable("the connection ended")),
        };
        in_flight.answered();
        if let Err(status) = &answer
            && ends_connection(status)
        {
            self.end();
        }
        answer
    }

    /// Sends a keep-alive of a lease; [`PushHandler::on_kept_alive`] receives the answer.
    pub(crate) fn keep_alive(&self, lease: i64) {
        let mut load = lock_mutex(&self.state.load);
        load.keep_alives.push_back((lease, self.state.clock.now()));
        // Sent under the lock, so that the stream has the same order as the list.
        let _ = self.keep_alive.send(KeepAlive { id: lease });
    }
}

/// Whether the connection has to end after this error: the connection broke, or its member serves no more requests.
fn ends_connection(status: &Status) -> bool {
    let by_server = status.message().starts_with("etcdserver: ");
    match status.code() {
        // This is how a server reports an election during the request.
        Code::Unknown if status.message().starts_with("raft proposal dropped") => false,
        Code::Unavailable if by_server => {
            let message = status.message();
            message.contains("no leader") || message.contains("stopped") || message.contains("unhealthy")
        }
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled => !by_server,
        _ => crate::error::wants_login(status),
    }
}

/// Reads the watch stream. Ends when the stream does.
async fn read_watches(
    grpc: Grpc,
    requests: mpsc::UnboundedReceiver<Watch>,
    watches: Arc<Watches>,
    state: Arc<ConnState>,
    handler: Weak<dyn PushHandler>,
) {
    let opened = state.clock.now();
    // The server sends its first reply only after the first watch request, so this call waits until a watch is
    // requested.
    let Ok(mut stream) = grpc.watch(UnboundedReceiverStream::new(requests)).await else { return };
    while let Ok(Some(response)) = stream.message().await {
        let Some(handler) = handler.upgrade() else { return };
        if !watches.receive(response, &*handler) {
            tracing::warn!("the server refused a watch: waiting claims ask every two seconds");
            if state.clock.now().since(opened) > LOGIN_MAY_EXPIRE_AFTER {
                return;
            }
        }
    }
}

/// Reads the answers to keep-alives. Ends when the stream does.
async fn read_keep_alives(
    grpc: Grpc,
    keep_alives: mpsc::UnboundedReceiver<KeepAlive>,
    state: Arc<ConnState>,
    handler: Weak<dyn PushHandler>,
) {
    let Ok(mut stream) = grpc.keep_alive(UnboundedReceiverStream::new(keep_alives)).await else { return };
    while let Ok(Some(answer)) = stream.message().await {
        let Some(handler) = handler.upgrade() else { return };
        // Answers belong to keep-alives by their order, so an answer that belongs to no keep-alive would be taken for
        // the answer to another one. The server sends no such answer; the connection ends if one arrives.
        let Some((lease, sent)) = lock_mutex(&state.load).keep_alives.pop_front() else { return };
        if lease != answer.id {
            return;
        }
        handler.on_kept_alive(lease, sent, u64::try_from(answer.ttl).unwrap_or(0));
    }
}

/// Checks the health of the member while the client needs a server or has requests in flight. Returns when the member
/// does not answer, has had no leader for too long, or leaves other requests unanswered for too long.
async fn check_health(
    grpc: Grpc,
    health: HealthCheck,
    state: Arc<ConnState>,
    handler: Weak<dyn PushHandler>,
) {
    let mut leaderless = 0;
    loop {
        runtime::sleep(HEALTH_INTERVAL).await;
        let Some(handler) = handler.upgrade() else { return };
        let needed = handler.needs_server();
        drop(handler);
        if state.is_stuck() {
            return;
        }
        if !needed && lock_mutex(&state.load).requests == 0 {
            continue;
        }
        match runtime::within(HEALTH_TIMEOUT, health.send(&grpc)).await {
            None => return,
            Some(Err(status)) if status.message().contains("no leader") => leaderless += 1,
            // Another error is an answer too: this task need not notice a broken connection, because such a connection
            // ends its streams.
            Some(_) => leaderless = 0,
        }
        if leaderless >= MAX_LEADERLESS {
            return;
        }
    }
}

impl ConnState {
    /// Whether the member leaves requests or keep-alives unanswered for too long.
    fn is_stuck(&self) -> bool {
        let now = self.clock.now();
        let load = lock_mutex(&self.load);
        // A follower forwards keep-alives to its leader, one lease at a time, and waits for seconds if the leader does
        // not answer one. Then all later keep-alives wait as well.
        let keep_alive_overdue =
            load.keep_alives.front().is_some_and(|&(_, sent)| now.since(sent) > HEALTH_TIMEOUT);
        keep_alive_overdue
            || (load.requests > 0
                && load.last_progress.is_some_and(|last_progress| now.since(last_progress) > STUCK_AFTER))
    }
}

impl<'a> InFlightRequest<'a> {
    fn new(state: &'a ConnState) -> Self {
        let mut load = lock_mutex(&state.load);
        if load.requests == 0 {
            load.last_progress = Some(state.clock.now());
        }
        load.requests += 1;
        Self(state)
    }

    /// Records that a request was answered.
    fn answered(&self) {
        lock_mutex(&self.0.load).last_progress = Some(self.0.clock.now());
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        lock_mutex(&self.0.load).requests -= 1;
    }
}

/// Reports the end of the connection, however its task ends.
struct EndNotice {
    state: Arc<ConnState>,
    /// Notified when the connection ends.
    broken: Arc<Notify>,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        self.state.dead.store(true, Ordering::Release);
        self.state.ended.notify_waiters();
        self.broken.notify_one();
    }
}
