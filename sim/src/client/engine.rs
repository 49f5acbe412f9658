//! The engine of a client: the five verbs as requests over the modelled network.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Breaking, Broken, Claim, Engine, EngineError, Fault, Guarantee, Hold, How,
    Inspect, Level, Name, Notification, Profile, Release, Released, Renewed, View, cannot_claim_all,
};
use tokio::sync::oneshot;

use super::{Host, interface::NetworkInterface};
use crate::{
    bug::Bug,
    network::Network,
    plan::{Plan, Protocol},
    server::{REQUEST_LIFE, Reply, Request},
};

/// The time after which the outcome of a request counts as unknown.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The lease of a pushed grant until its claim confirms it, unless the lease that the claim asks for is shorter.
pub(crate) const CLAIM_TIME: Duration = Duration::from_secs(2);

/// The longest interval between two requests of a claim that waits for a notification.
pub(crate) const SLOWEST_POLL: Duration = Duration::from_secs(2);

/// The number of tokens that a grant has if the protocol has blocks of tokens.
const TOKEN_BLOCK: u32 = 65;

/// The engine of one client of the modelled server.
pub(crate) struct SimEngine {
    interface: Arc<NetworkInterface>,
    profile: Profile,
    level: Level,
    /// The number of the first of two groups of names, for plans that have groups. `None`: names have no groups.
    first_group: Option<u16>,
    /// How many requests were sent. If requests may overtake each other, each request counts as sent on a connection of
    /// its own, and this is the number of that connection.
    requests: AtomicU64,
    /// Ends the engine's tasks when it is dropped.
    _alive: [oneshot::Sender<()>; 2],
}

impl SimEngine {
    /// The engine of a client that runs on `host`.
    #[must_use]
    pub(crate) fn new(plan: &Plan, host: &Host, network: &Arc<Network>) -> Self {
        let inbox = network.plug_in(host.group);
        let interface =
            Arc::new(NetworkInterface::new(host.clone(), Arc::clone(network), plan.protocol, plan.bug));
        let _alive = [
            while_alive(host, Arc::clone(&interface).listen(inbox)),
            while_alive(host, Arc::clone(&interface).keep_connected()),
        ];
        let level = if plan.promise().exclusion { Level::LeaseBounded } else { Level::BestEffort };
        let first_group = plan.groups().then_some(plan.seed as u16);
        Self {
            interface,
            profile: profile(plan.protocol),
            level,
            first_group,
            requests: AtomicU64::new(0),
            _alive,
        }
    }

    /// The number of the connection for the next request.
    async fn conn(&self) -> Result<u64, EngineError> {
        match self.interface.protocol {
            Protocol::Push => self.interface.conn().await,
            Protocol::Watch | Protocol::Poll => Ok(self.requests.fetch_add(1, Ordering::Relaxed)),
        }
    }

    async fn claim_now(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        if self.interface.in_flight.is_released(claim.id, self.interface.now()) {
            return Ok(Answer::Gone);
        }
        let conn = self.conn().await?;
        let in_flight = self.interface.in_flight.start(claim.id, conn, self.interface.now());
        let reply = match self.interface.call(conn, Request::Claim(claim.clone(), how)).await {
            Err(error) if error.fault == Fault::Unknown => return Err(error),
            reply => reply,
        };
        in_flight.complete();
        let Reply::Claim(answer) = reply? else { return Err(reply_mismatch()) };
        self.interface.note_waiting(claim.id, matches!(answer, Ok(Answer::Waiting(_))));
        answer
    }

    async fn renew_now(&self, holds: &[Hold]) -> Result<Vec<Renewed>, EngineError> {
        let conn = self.conn().await?;
        match self.interface.call(conn, Request::Renew(holds.to_vec())).await? {
            Reply::Renew(renewed) => Ok(renewed),
            _ => Err(reply_mismatch()),
        }
    }

    async fn release_now(&self, releases: &[Release]) -> Result<Vec<Released>, EngineError> {
        releases.iter().for_each(|release| self.interface.note_waiting(release.id, false));
        let conn = self.conn().await?;
        let now = self.interface.now();
        let with_tombstones = releases.iter().map(|release| {
            let is_doubtful =
                self.interface.in_flight.release(release.id, conn, now, now.after(REQUEST_LIFE));
            let leaves_tombstone = is_doubtful || self.interface.protocol != Protocol::Push;
            (release.clone(), leaves_tombstone && self.interface.bug != Some(Bug::NeverAsksForTombstones))
        });
        match self.interface.call(conn, Request::Release(with_tombstones.collect())).await? {
            Reply::Release(released) => {
                releases.iter().for_each(|release| self.interface.in_flight.settle(release.id));
                Ok(released)
            }
            _ => Err(reply_mismatch()),
        }
    }

    async fn break_now(&self, name: &Name, token: u64, force: bool) -> Result<Broken, EngineError> {
        let conn = self.conn().await?;
        match self.interface.call(conn, Request::Break(name.clone(), token, force)).await? {
            Reply::Break(broken) => Ok(broken),
            _ => Err(reply_mismatch()),
        }
    }
}

impl Engine for SimEngine {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn group(&self, name: &Name) -> Option<u16> {
        // The group numbers differ from run to run, and so do the times of the renewals.
        let group = |first: u16| first.wrapping_add(u16::from(name.as_str().as_bytes()[0] & 2));
        self.first_group.map(group)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(self.claim_now(claim, how))
    }

    fn claim_all<'a>(&'a self, _: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        cannot_claim_all()
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(async move {
            self.renew_now(holds)
                .await
                .unwrap_or_else(|error| holds.iter().map(|_| Renewed::Unknown(copy_of(&error))).collect())
        })
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async move {
            self.release_now(releases)
                .await
                .unwrap_or_else(|error| releases.iter().map(|_| Released::Unknown(copy_of(&error))).collect())
        })
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(self.interface.mailbox.read())
    }

    fn memos(&self) -> Option<&dyn leasehold_core::Memos> {
        None
    }

    fn conversions(&self) -> Option<&dyn leasehold_core::Conversions> {
        None
    }
}

impl Inspect for SimEngine {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async { Err(not_modelled()) })
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        Box::pin(async move { Ok(Guarantee::new(self.level, &[])) })
    }

    fn list<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(async { Err(not_modelled()) })
    }

    fn show<'a>(&'a self, _: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(async { Err(not_modelled()) })
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(self.break_now(name, token, force))
    }
}

impl Drop for SimEngine {
    fn drop(&mut self) {
        self.interface.unplug();
    }
}

impl fmt::Debug for SimEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("profile", &self.profile.engine).finish_non_exhaustive()
    }
}

/// Runs `task` until the returned value is dropped.
fn while_alive(host: &Host, task: impl Future<Output = ()> + Send + 'static) -> oneshot::Sender<()> {
    let (alive, gone) = oneshot::channel();
    host.run(async move {
        tokio::select! {
            biased;
            _ = gone => {}
            () = task => {}
        }
    });
    alive
}

/// A copy of the error, for another request.
fn copy_of(error: &EngineError) -> EngineError {
    EngineError::new(error.fault, error.message.clone())
}

/// The error for a reply whose kind does not fit the request.
fn reply_mismatch() -> EngineError {
    EngineError::new(Fault::Internal, "an answer to another question")
}

fn not_modelled() -> EngineError {
    EngineError::new(Fault::Refused, "the modelled server cannot do this")
}

/// The profile of the modelled server.
fn profile(protocol: Protocol) -> Profile {
    let mut profile = Profile::new("sim");
    profile.push = protocol != Protocol::Poll;
    profile.poll = match protocol {
        Protocol::Push | Protocol::Watch => Duration::from_millis(250)..=SLOWEST_POLL,
        Protocol::Poll => Duration::from_millis(50)..=Duration::from_secs(1),
    };
    profile.tokens = if protocol == Protocol::Push { TOKEN_BLOCK } else { 1 };
    profile.fifo = true;
    profile.supports_min_hold = true;
    profile.breaking = Breaking::Lease;
    profile.request_timeout = REQUEST_TIMEOUT;
    profile.request_life = REQUEST_LIFE;
    profile
}
