//! Waits until replicas have a grant, on a separate connection, so that the wait holds up nothing else; one wait covers
//! everything that was granted before it.

use std::time::Duration;

use leasehold_core::{BoxFuture, EngineError, Fault};
use redis::{RedisResult, aio::MultiplexedConnection};
use tokio::sync::{mpsc, oneshot};

use crate::{
    error::sort,
    identity::{Identity, run_id},
    keys::echo,
    open,
    outbox::Destination,
    reach::Client,
    server::Server,
};

/// How long replicas are waited for. They are some round trips away, and the master does not notice at once that one is
/// gone.
const PATIENCE: Duration = Duration::from_secs(1);
/// The lifetime of the key that is written to give `WAIT` a write to wait for.
const ECHO_LIFE: Duration = Duration::from_secs(10);
/// Room for calls that wait for the next wait; further calls wait in their own tasks.
const ROOM: usize = 4096;

/// Asks whether replicas have everything.
pub(crate) struct Replicas(mpsc::Sender<Call>);

struct Call {
    to: Destination,
    reply: oneshot::Sender<Result<(), EngineError>>,
}

/// The connection on which replicas are asked for.
struct Asker {
    mux: MultiplexedConnection,
    prefix: String,
    wanted: u32,
}

impl Replicas {
    /// Connects, and returns the work to be run beside the connection; if no replicas are wanted, that work never ends.
    pub(crate) async fn open(
        client: &Client,
        server: &Server,
        identity: &Identity,
    ) -> Result<(Option<Self>, BoxFuture<'static, ()>), EngineError> {
        let config = &client.config;
        if config.wait == 0 {
            return Ok((None, Box::pin(std::future::pending())));
        }
        let (mux, mut driver) = open::second(server).await?;
        let looks =
            async { Ok::<_, EngineError>((run_id(&mux).await.map_err(sort)?, may_wait(&mux).await?)) };
        let (run, may_wait) = tokio::select! {
            looks = looks => looks?,
            () = &mut driver => return Err(EngineError::new(Fault::Retry, "the server closed the connection")),
        };
        let address = &server.address;
        let (Some(first), Some(second), true) = (&identity.run, run, may_wait) else {
            let message = format!(
                "wait= needs the right to INFO and WAIT on {address}: see docs/engines/redis-sentinel.md"
            );
            return Err(EngineError::new(Fault::Denied, message));
        };
        // The replicas of another server prove nothing, and several servers may be behind one name.
        if *first != second {
            let message =
                format!("two connections to {address} led to two servers: a fail-over may be under way");
            return Err(EngineError::new(Fault::Retry, message));
        }
        let (calls, waiting) = mpsc::channel(ROOM);
        let asker = Asker { mux, prefix: config.prefix.clone(), wanted: config.wait };
        let confirming = async move {
            tokio::select! {
                () = driver => {}
                () = asker.run(waiting) => {}
            }
        };
        Ok((Some(Self(calls)), Box::pin(confirming)))
    }

    /// Waits until the wanted number of replicas has everything that was done before.
    ///
    /// # Errors
    /// Too few replicas have it, or it is unknown.
    pub(crate) async fn have_all(&self, to: Destination) -> Result<(), EngineError> {
        let (reply, answer) = oneshot::channel();
        let broke = || EngineError::new(Fault::Unknown, "the connection broke before the replicas had it");
        if self.0.send(Call { to, reply }).await.is_err() {
            return Err(broke());
        }
        answer.await.unwrap_or_else(|_| Err(broke()))
    }
}

/// Whether the user may call `WAIT`. Asks for no replicas, so that the answer comes at once; better now than at the
/// first grant.
async fn may_wait(mux: &MultiplexedConnection) -> Result<bool, EngineError> {
    let reply: RedisResult<u32> = redis::cmd("WAIT").arg(0).arg(0).query_async(&mut mux.clone()).await;
    match reply.map_err(sort) {
        Ok(_) => Ok(true),
        Err(error) if error.fault == Fault::Denied => Ok(false),
        Err(error) => Err(error),
    }
}

impl Asker {
    async fn run(self, mut waiting: mpsc::Receiver<Call>) {
        let mut calls = Vec::new();
        while waiting.recv_many(&mut calls, ROOM).await > 0 {
            let reply = self.ask(calls[0].to).await;
            for call in calls.drain(..) {
                let reply = reply.as_ref().copied().map_err(EngineError::again);
                let _ = call.reply.send(reply);
            }
        }
    }

    /// `WAIT` covers the last write of this connection: without a write of its own it would succeed at once.
    async fn ask(&self, to: Destination) -> Result<(), EngineError> {
        let wanted = self.wanted;
        let mut both = redis::pipe();
        both.cmd("SET")
            .arg(echo(&self.prefix, to.slot))
            .arg(1)
            .arg("PX")
            .arg(ECHO_LIFE.as_millis() as u64)
            .ignore();
        both.cmd("WAIT").arg(wanted).arg(PATIENCE.as_millis() as u64);
        let reply: RedisResult<(u32,)> = both.query_async(&mut self.mux.clone()).await;
        let (have,) = reply.map_err(sort)?;
        if have >= wanted {
            return Ok(());
        }
        let message =
            format!("only {have} of the {wanted} replicas that wait= asks for had it within {PATIENCE:?}");
        Err(EngineError::new(Fault::Unknown, message))
    }
}
