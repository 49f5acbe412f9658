//! One connection to one member: requests, and the two streams that every client has, of watches and of leases kept alive.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use hyper_util::rt::TokioIo;
use leasehold_core::{Clock, EngineError, Fault, Instant};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{
    Code, Status,
    transport::{Endpoint, Uri},
};

use crate::{
    config::{Config, Member},
    door,
    error::sort_connecting,
    guarantee,
    hears::Hears,
    lock_of, stream,
    watches::Watches,
    wire::{Authenticate, Grpc, KeepAlive, Spoken, Status as AskStatus, Watch},
};

/// While a client needs the server, the member is asked so often how it is.
const PULSE: Duration = Duration::from_millis(500);
/// A member that answers nothing for so long is taken for gone.
const SILENCE: Duration = Duration::from_millis(1500);
/// A member may know of no leader so many times in a row: an election takes longer than one pulse.
const LEADERLESS: u32 = 4;

/// One connection. Dropping it closes it.
pub(crate) struct Conn {
    /// What cluster it is: tokens of two clusters are not comparable.
    pub(crate) cluster: u64,
    pub(crate) member: Member,
    pub(crate) watches: Arc<Watches>,
    grpc: Grpc,
    keep_alive: mpsc::UnboundedSender<KeepAlive>,
    /// The leases that were asked to be kept alive, and when: they are answered in this order.
    asked: Arc<Mutex<VecDeque<(i64, Instant)>>>,
    clock: Arc<dyn Clock>,
    life: Arc<Life>,
    _alive: oneshot::Sender<()>,
}

/// Whether a connection can be used, and whether it is.
#[derive(Default)]
struct Life {
    dead: AtomicBool,
    in_flight: AtomicUsize,
    /// Ends it.
    end: Notify,
}

/// A request is under way as long as it lives.
struct UnderWay<'a>(&'a Life);

impl Conn {
    /// Connects to a member, says who we are, and asks whether it can serve. `broken` rings when the connection is gone.
    pub(crate) async fn open(
        config: &Config,
        member: &Member,
        clock: Arc<dyn Clock>,
        hears: Weak<dyn Hears>,
        broken: Arc<Notify>,
    ) -> Result<Self, EngineError> {
        let failed = |status: Status| sort_connecting(&status, &member.to_string());
        let grpc = Self::dial(config, member).await?;
        if let Some((user, password)) = &config.login {
            let login = Authenticate { name: user.clone(), password: password.clone() };
            let known = grpc.call(login).await.map_err(failed)?;
            grpc.be(&known.token).map_err(failed)?;
        }
        let status = grpc.call(AskStatus {}).await.map_err(failed)?;
        let unfit =
            |fault, why: &str| Err(EngineError::new(fault, format!("cannot connect to {member}: {why}")));
        if !guarantee::is_served(&status.version) {
            return unfit(
                Fault::Misconfigured,
                &format!("it is etcd {}: 3.4 or newer is needed", status.version),
            );
        }
        if status.is_learner {
            return unfit(Fault::Retry, "it is a learner, which serves no clients yet");
        }
        if status.leader == 0 {
            return unfit(Fault::Retry, "the member has no leader: is a quorum up?");
        }
        let (orders, watch_orders) = mpsc::unbounded_channel::<Watch>();
        let (keep_alive, leases) = mpsc::unbounded_channel::<KeepAlive>();
        let (alive, gone) = oneshot::channel();
        let conn = Self {
            cluster: status.header.map_or(0, |header| header.cluster_id),
            member: member.clone(),
            watches: Arc::new(Watches::new(orders)),
            grpc: grpc.clone(),
            keep_alive,
            asked: Arc::default(),
            clock,
            life: Arc::default(),
            _alive: alive,
        };
        let watched = watch(grpc.clone(), watch_orders, Arc::clone(&conn.watches), Weak::clone(&hears));
        let kept = keep(grpc.clone(), leases, Arc::clone(&conn.asked), Weak::clone(&hears));
        let pulse = pulse(grpc, Arc::clone(&conn.life), hears);
        let last_words = LastWords { life: Arc::clone(&conn.life), broken };
        door::spawn(async move {
            tokio::select! {
                () = watched => {}
                () = kept => {}
                () = pulse => {}
                () = last_words.life.end.notified() => {}
                _ = gone => {}
            }
            drop(last_words);
        });
        Ok(conn)
    }

    async fn dial(config: &Config, member: &Member) -> Result<Grpc, EngineError> {
        // The channel would connect again by itself; a connection that broke is to be seen to be broken.
        let mut bytes = Some(TokioIo::new(stream::open(config, member).await?));
        let once = tower::service_fn(move |_: Uri| {
            let bytes = bytes.take();
            async move { bytes.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::ConnectionAborted)) }
        });
        let endpoint = Endpoint::from_static("http://etcd").tcp_nodelay(true);
        let channel = endpoint.connect_with_connector(once).await.map_err(|error| {
            EngineError::new(Fault::Retry, format!("cannot connect to {member}: {}", root(&error)))
        })?;
        Ok(Grpc::new(channel))
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.life.dead.load(Ordering::Acquire)
    }

    /// Nothing more is to be sent on it.
    pub(crate) fn end(&self) {
        self.life.dead.store(true, Ordering::Release);
        self.life.end.notify_one();
    }

    /// One request and its answer.
    pub(crate) async fn call<R: Spoken>(&self, request: R) -> Result<R::Answer, Status> {
        let _under_way = UnderWay::new(&self.life);
        let answer = self.grpc.call(request).await;
        if let Err(status) = &answer
            && is_of_connection(status)
        {
            self.end();
        }
        answer
    }

    /// Asks the server to keep a lease alive; [`Hears::kept`] hears the answer.
    pub(crate) fn keep_alive(&self, lease: i64) {
        let mut asked = lock_of(&self.asked);
        asked.push_back((lease, self.clock.now()));
        let _ = self.keep_alive.send(KeepAlive { id: lease });
    }
}

/// The innermost cause.
fn root(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The connection or its member is of no use any more, whatever became of this request.
fn is_of_connection(status: &Status) -> bool {
    let by_server = status.message().starts_with("etcdserver: ");
    match status.code() {
        Code::Unavailable if by_server => {
            let said = status.message();
            said.contains("no leader") || said.contains("stopped") || said.contains("unhealthy")
        }
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled => !by_server,
        _ => crate::error::wants_login(status),
    }
}

/// Reads what is watched. Ends when the stream does.
async fn watch(
    grpc: Grpc,
    orders: mpsc::UnboundedReceiver<Watch>,
    watches: Arc<Watches>,
    hears: Weak<dyn Hears>,
) {
    // The server answers with the first watch, so this waits for one.
    let Ok(mut stream) = grpc.watch(UnboundedReceiverStream::new(orders)).await else { return };
    while let Ok(Some(watched)) = stream.message().await {
        let Some(hears) = hears.upgrade() else { return };
        watches.hear(watched, &*hears);
    }
}

/// Reads which leases were kept alive. Ends when the stream does.
async fn keep(
    grpc: Grpc,
    leases: mpsc::UnboundedReceiver<KeepAlive>,
    asked: Arc<Mutex<VecDeque<(i64, Instant)>>>,
    hears: Weak<dyn Hears>,
) {
    let Ok(mut stream) = grpc.keep_alive(UnboundedReceiverStream::new(leases)).await else { return };
    while let Ok(Some(kept)) = stream.message().await {
        let Some(hears) = hears.upgrade() else { return };
        // An answer without a question would shift all others: the server does not give any.
        let Some((lease, sent)) = lock_of(&asked).pop_front() else { return };
        if lease != kept.id {
            return;
        }
        hears.kept(lease, sent, u64::try_from(kept.ttl).unwrap_or(0));
    }
}

/// Asks how the member is, as long as it is needed; ends when it says nothing, or has had no leader for too long.
async fn pulse(grpc: Grpc, life: Arc<Life>, hears: Weak<dyn Hears>) {
    let mut leaderless = 0;
    loop {
        door::sleep(PULSE).await;
        let Some(hears) = hears.upgrade() else { return };
        if !hears.needs_server() && life.in_flight.load(Ordering::Relaxed) == 0 {
            continue;
        }
        drop(hears);
        match door::within(SILENCE, grpc.call(AskStatus {})).await {
            None => return,
            Some(Ok(status)) if status.leader == 0 => leaderless += 1,
            // An error of the server is a sign of life; a connection that broke ends its streams.
            Some(_) => leaderless = 0,
        }
        if leaderless >= LEADERLESS {
            return;
        }
    }
}

impl<'a> UnderWay<'a> {
    fn new(life: &'a Life) -> Self {
        life.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(life)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tells, in whatever way the task of a connection ends, that it is gone.
struct LastWords {
    life: Arc<Life>,
    broken: Arc<Notify>,
}

impl Drop for LastWords {
    fn drop(&mut self) {
        self.life.dead.store(true, Ordering::Release);
        self.broken.notify_one();
    }
}
