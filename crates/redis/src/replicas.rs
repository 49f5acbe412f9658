//! Waiting until replicas have what was granted, on a connection of its own: what waits there holds up nothing else, and one wait is
//! for all that was granted before it.

use std::time::Duration;

use leasehold_core::{BoxFuture, EngineError, Fault};
use redis::{RedisResult, aio::MultiplexedConnection};
use tokio::sync::{mpsc, oneshot};

use crate::{
    error::sort,
    identity::{Identity, run_id},
    keys::echo,
    open,
    outbox::To,
    reach::Client,
    server::Server,
};

/// For how long replicas are waited for. They are some round trips away; one that is gone is noticed by nobody for a while.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the key lasts that is written so that there is something to wait for.
const ECHO_LIFE: Duration = Duration::from_secs(10);
/// Calls that wait to be taken along; more wait in their own tasks.
const ROOM: usize = 4096;

/// Asks whether replicas have it all.
pub(crate) struct Replicas(mpsc::Sender<Call>);

struct Call {
    to: To,
    said: oneshot::Sender<Result<(), EngineError>>,
}

/// Where they are asked.
struct Asker {
    mux: MultiplexedConnection,
    prefix: String,
    wanted: u32,
}

impl Replicas {
    /// Connects, and what is to be run beside it; nothing that ever ends, where no replicas are wanted.
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
            () = &mut driver => return Err(EngineError::new(Fault::Retry, "the server hung up")),
        };
        let address = &server.address;
        let (Some(first), Some(second), true) = (&identity.run, run, may_wait) else {
            let message = format!(
                "wait= needs the right to INFO and WAIT on {address}: see docs/engines/redis-sentinel.md"
            );
            return Err(EngineError::new(Fault::Denied, message));
        };
        // Replicas of another server say nothing of this one, and behind a name there may be several.
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

    /// Waits until so many replicas as are wanted have all that was done before.
    ///
    /// # Errors
    /// They have not, or nobody knows.
    pub(crate) async fn have_all(&self, to: To) -> Result<(), EngineError> {
        let (said, answer) = oneshot::channel();
        let broke = || EngineError::new(Fault::Unknown, "the connection broke before the replicas had it");
        if self.0.send(Call { to, said }).await.is_err() {
            return Err(broke());
        }
        answer.await.unwrap_or_else(|_| Err(broke()))
    }
}

/// Whether the user may wait for replicas. Asked for none of them, so that it is answered at once: a grant would not be the time to hear it.
async fn may_wait(mux: &MultiplexedConnection) -> Result<bool, EngineError> {
    let said: RedisResult<u32> = redis::cmd("WAIT").arg(0).arg(0).query_async(&mut mux.clone()).await;
    match said.map_err(sort) {
        Ok(_) => Ok(true),
        Err(error) if error.fault == Fault::Denied => Ok(false),
        Err(error) => Err(error),
    }
}

impl Asker {
    async fn run(self, mut waiting: mpsc::Receiver<Call>) {
        let mut calls = Vec::new();
        while waiting.recv_many(&mut calls, ROOM).await > 0 {
            let said = self.ask(calls[0].to).await;
            for call in calls.drain(..) {
                let said = said.as_ref().copied().map_err(EngineError::again);
                let _ = call.said.send(said);
            }
        }
    }

    /// `WAIT` is about what this connection wrote last: without a write of its own it would say yes at once.
    async fn ask(&self, to: To) -> Result<(), EngineError> {
        let wanted = self.wanted;
        let mut both = redis::pipe();
        both.cmd("SET")
            .arg(echo(&self.prefix, to.slot))
            .arg(1)
            .arg("PX")
            .arg(ECHO_LIFE.as_millis() as u64)
            .ignore();
        both.cmd("WAIT").arg(wanted).arg(PATIENCE.as_millis() as u64);
        let said: RedisResult<(u32,)> = both.query_async(&mut self.mux.clone()).await;
        let (have,) = said.map_err(sort)?;
        if have >= wanted {
            return Ok(());
        }
        let message =
            format!("only {have} of the {wanted} replicas that wait= asks for had it within {PATIENCE:?}");
        Err(EngineError::new(Fault::Unknown, message))
    }
}
