//! Waits until replicas have stored a grant. The wait is on a separate connection, so that it delays no other request.
//! One wait covers all grants that were made before it.

use std::time::Duration;

use leasehold_core::{BoxFuture, EngineError, Fault};
use redis::{RedisResult, aio::MultiplexedConnection};
use tokio::sync::{mpsc, oneshot};

use crate::{
    error::classify,
    identity::{Identity, run_id},
    keys::wait_key,
    open,
    outbox::Destination,
    reach::Client,
    server::Server,
};

/// How long one `WAIT` lasts at most: much longer than the few round trips to a replica that a success needs. The
/// master does not notice at once that a replica is gone, so a wait without a limit could last long.
const REPLICA_TIMEOUT: Duration = Duration::from_secs(1);
/// The lifetime of the key that is written to give `WAIT` a write to wait for.
const WAIT_KEY_LIFE: Duration = Duration::from_secs(10);
/// The capacity of the queue of callers; further callers wait in their own tasks.
const MAX_QUEUED_CALLS: usize = 4096;

/// Passes callers to the task that waits for replicas. Belongs to one connection.
pub(crate) struct ReplicaWaits(mpsc::Sender<WaitCall>);

/// The request of a caller that waits for replicas.
struct WaitCall {
    /// On a Redis Cluster, the slot of the name: the replicas of the slot's master must have the grant.
    destination: Destination,
    /// Passes the result to the caller.
    result: oneshot::Sender<Result<(), EngineError>>,
}

/// The connection on which the task calls `WAIT`.
struct ReplicaWaiter {
    mux: MultiplexedConnection,
    /// The prefix of the lock keys.
    prefix: String,
    /// How many replicas must have a grant.
    needed_replicas: u32,
}

impl ReplicaWaits {
    /// Opens the connection for `WAIT`, and checks the rights of the user. The result contains a future that drives
    /// this connection: the caller must poll it beside the main connection. If the URL asks for no replicas, makes no
    /// connection and completes at once; the future in the result then never completes.
    pub(crate) async fn open(
        client: &Client,
        server: &Server,
        identity: &Identity,
    ) -> Result<(Option<Self>, BoxFuture<'static, ()>), EngineError> {
        let config = &client.config;
        if config.wait == 0 {
            return Ok((None, Box::pin(std::future::pending())));
        }
        let (mux, mut driver) = open::open_without_pushes(server).await?;
        let checks =
            async { Ok::<_, EngineError>((run_id(&mux).await.map_err(classify)?, may_wait(&mux).await?)) };
        let (wait_run_id, may_wait) = tokio::select! {
            checked = checks => checked?,
            () = &mut driver => return Err(EngineError::new(Fault::Retry, "the server closed the connection")),
        };
        let address = &server.address;
        let (Some(main_run_id), Some(wait_run_id), true) = (&identity.run_id, wait_run_id, may_wait) else {
            let message = format!(
                "wait= needs the right to INFO and WAIT on {address}: see docs/engines/redis-sentinel.md"
            );
            return Err(EngineError::new(Fault::Denied, message));
        };
        // Several servers may be behind one host name, and the replicas of another server prove nothing about this one.
        if *main_run_id != wait_run_id {
            let message =
                format!("two connections to {address} led to two servers: a fail-over may be under way");
            return Err(EngineError::new(Fault::Retry, message));
        }
        let (calls, queued_calls) = mpsc::channel(MAX_QUEUED_CALLS);
        let replica_waiter =
            ReplicaWaiter { mux, prefix: config.prefix.clone(), needed_replicas: config.wait };
        let waiting_work = async move {
            tokio::select! {
                () = driver => {}
                () = replica_waiter.run(queued_calls) => {}
            }
        };
        Ok((Some(Self(calls)), Box::pin(waiting_work)))
    }

    /// Waits until the configured number of replicas has stored all writes before this call.
    ///
    /// # Errors
    /// Too few replicas have stored these writes, or it is unknown how many have.
    pub(crate) async fn wait_for_all(&self, destination: Destination) -> Result<(), EngineError> {
        let (result, result_receiver) = oneshot::channel();
        let broken_error =
            || EngineError::new(Fault::Unknown, "the connection broke before the replicas had it");
        if self.0.send(WaitCall { destination, result }).await.is_err() {
            return Err(broken_error());
        }
        result_receiver.await.unwrap_or_else(|_| Err(broken_error()))
    }
}

/// Whether the user has the right to call `WAIT`. Asks for 0 replicas, so that the answer comes at once. Called when
/// the connection is made, so that a missing right is reported before the first grant.
async fn may_wait(mux: &MultiplexedConnection) -> Result<bool, EngineError> {
    let reply: RedisResult<u32> = redis::cmd("WAIT").arg(0).arg(0).query_async(&mut mux.clone()).await;
    match reply.map_err(classify) {
        Ok(_) => Ok(true),
        Err(error) if error.fault == Fault::Denied => Ok(false),
        Err(error) => Err(error),
    }
}

impl ReplicaWaiter {
    /// Waits for replicas again and again, each time for all callers that are queued at that moment.
    async fn run(self, mut queued_calls: mpsc::Receiver<WaitCall>) {
        let mut calls = Vec::new();
        while queued_calls.recv_many(&mut calls, MAX_QUEUED_CALLS).await > 0 {
            // The keys of all callers are on this server, so the slot of any caller will do.
            let result = self.wait_once(calls[0].destination).await;
            for call in calls.drain(..) {
                let result = result.as_ref().copied().map_err(EngineError::without_source);
                let _ = call.result.send(result);
            }
        }
    }

    /// Writes a key, then calls `WAIT`: without a write on this connection `WAIT` would succeed at once.
    async fn wait_once(&self, destination: Destination) -> Result<(), EngineError> {
        let needed = self.needed_replicas;
        let mut pipeline = redis::pipe();
        pipeline
            .cmd("SET")
            .arg(wait_key(&self.prefix, destination.slot))
            .arg(1)
            .arg("PX")
            .arg(WAIT_KEY_LIFE.as_millis() as u64)
            .ignore();
        pipeline.cmd("WAIT").arg(needed).arg(REPLICA_TIMEOUT.as_millis() as u64);
        let reply: RedisResult<(u32,)> = pipeline.query_async(&mut self.mux.clone()).await;
        let (replicas_with_grants,) = reply.map_err(classify)?;
        if replicas_with_grants >= needed {
            return Ok(());
        }
        let message = format!(
            "only {replicas_with_grants} of the {needed} replicas that wait= asks for had it within {REPLICA_TIMEOUT:?}"
        );
        Err(EngineError::new(Fault::Unknown, message))
    }
}
