//! The outbox of one connection: it sends calls of scripts in the order in which they were queued. Consecutive calls of
//! the same script are joined into one: for a short script, half of the cost is the call itself.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use leasehold_core::{EngineError, Fault, Instant, is_on_calling_thread};
use redis::{
    Cmd, RedisError, RedisResult, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    from_redis_value,
};
use smallvec::SmallVec;
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

use crate::{
    error::{Refused, demoted},
    evidence::Evidence,
    open,
    push_listener::PushListener,
    reach::Client,
    scripts::{Item, Script},
    shared_task::SharedTask,
};

/// The most items of one call. With more items each item would hardly become cheaper, and the server answers no item
/// before it has executed all: with 100 items the server was idle while the client read the answers, and the client was
/// idle while the server wrote them.
pub(crate) const MAX_BATCH_ITEMS: usize = 32;
/// The capacity of the queue of calls; further calls wait in their own tasks.
const MAX_QUEUED_CALLS: usize = 4096;

/// The reply of a script: one value for each item; for a script with one item, all values of its answer.
type ScriptReply = Result<Values, Refused>;

/// The items of one call. Most calls are about one lock.
pub(crate) type Items = SmallVec<[Item; 1]>;
/// The values of one reply.
pub(crate) type Values = SmallVec<[Value; 1]>;

/// The end of the outbox at which callers queue their calls.
pub(crate) struct Outbox {
    calls: mpsc::Sender<Call>,
    /// Judges which answers prove the state of the locks.
    pub(crate) evidence: Arc<Evidence>,
}

/// The end of the outbox that sends the queued calls.
pub(crate) struct Sender {
    calls: mpsc::Receiver<Call>,
    mux: MultiplexedConnection,
    client: Arc<Client>,
    listener: Arc<PushListener>,
    evidence: Arc<Evidence>,
}

/// Calls of one script for one destination, sent as one request.
type CallBatch = Vec<Call>;
/// Batches that are sent in one write.
type Load = Vec<CallBatch>;

/// The call of a script for some items, and where its reply goes.
struct Call {
    to: Destination,
    script: Script,
    items: Items,
    reply: oneshot::Sender<ScriptReply>,
}

/// The destination of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Destination {
    /// The slot of the keys of the call, where servers share the slots; otherwise `None`.
    pub(crate) slot: Option<u16>,
    /// Whether the slot is migrating to this server, which answers for the slot only directly after `ASKING`.
    pub(crate) asking: bool,
    /// Whether the slot may have moved to this server just now: then the clients of its waiters may not be subscribed
    /// there yet.
    pub(crate) unsettled: bool,
}

impl Outbox {
    /// Queues a call and waits for the script's reply. If the future is dropped, a call that was not sent yet is never
    /// sent.
    pub(crate) async fn call(
        &self,
        task: &SharedTask,
        to: Destination,
        script: Script,
        items: Items,
    ) -> ScriptReply {
        let (reply, answer) = oneshot::channel();
        let call = Call { to, script, items, reply };
        let queued = if is_on_calling_thread() {
            task.poll_after(|| self.calls.try_send(call))
        } else {
            self.calls.try_send(call)
        };
        let is_queued = match queued {
            // The queue is full. Calls get room in the order in which they came.
            Err(TrySendError::Full(call)) => Box::pin(self.calls.send(call)).await.is_ok(),
            queued => queued.is_ok(),
        };
        if !is_queued {
            return Err(Refused::Failed(EngineError::new(Fault::Retry, "the connection broke")));
        }
        let broke = |_| EngineError::new(Fault::Unknown, "the connection broke before the answer came");
        answer.await.map_err(|error| Refused::Failed(broke(error)))?
    }
}

impl Sender {
    /// Creates both ends of an outbox. `evidence_limit`: an answer that takes longer is no evidence; `None`: each
    /// answer is evidence.
    pub(crate) fn new(
        mux: MultiplexedConnection,
        client: Arc<Client>,
        listener: Arc<PushListener>,
        evidence_limit: Option<Duration>,
    ) -> (Outbox, Self) {
        let (outbox, calls) = mpsc::channel(MAX_QUEUED_CALLS);
        let evidence = Arc::new(Evidence::new(evidence_limit));
        let outbox = Outbox { calls: outbox, evidence: Arc::clone(&evidence) };
        (outbox, Self { calls, mux, client, listener, evidence })
    }

    /// Sends the queued calls until the [`Outbox`] is dropped.
    pub(crate) async fn run(mut self) {
        let mut queued = Vec::new();
        let mut in_flight = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(()) = in_flight.next(), if !in_flight.is_empty() => {}
                count = self.calls.recv_many(&mut queued, MAX_QUEUED_CALLS) => {
                    // The outbox was dropped.
                    if count == 0 {
                        return;
                    }
                    for load in loads(batches(queued.drain(..))) {
                        // The request is built at the first poll, without the calls whose callers no longer wait: so a
                        // claim whose caller gave up is not sent after the release of the claim.
                        in_flight.push(self.send(load));
                    }
                }
            }
        }
    }

    /// Sends one load in one write, and hands out the replies of the scripts.
    fn send(&self, mut load: Load) -> impl Future<Output = ()> + use<> {
        let mut mux = self.mux.clone();
        let (client, listener, evidence) =
            (Arc::clone(&self.client), Arc::clone(&self.listener), Arc::clone(&self.evidence));
        async move {
            let context = CallContext { client: &client, listener: &listener, evidence: &evidence };
            let all = match &mut load[..] {
                [batch] => vec![context.send_batch(&mut mux, batch).await],
                all => Box::pin(context.send_load(&mut mux, all)).await,
            };
            for (reply, batch) in all.into_iter().zip(load) {
                match reply {
                    Ok(reply) => hand_out(Ok(reply), batch),
                    // Boxed, because errors are rare and `finish` needs much memory.
                    reply => Box::pin(context.finish(&mut mux, reply, batch)).await,
                }
            }
        }
    }
}

/// Groups consecutive calls of one script for the same destination into batches of up to [`MAX_BATCH_ITEMS`] items.
fn batches(calls: impl Iterator<Item = Call>) -> Vec<CallBatch> {
    let mut batches: Vec<CallBatch> = Vec::new();
    let mut items = 0;
    for call in calls {
        let fits = |batch: &&mut CallBatch| {
            (batch[0].script, batch[0].to) == (call.script, call.to)
                && call.script.accepts_many()
                && items + call.items.len() <= MAX_BATCH_ITEMS
        };
        if let Some(batch) = batches.last_mut().filter(fits) {
            items += call.items.len();
            batch.push(call);
        } else {
            items = call.items.len();
            batches.push(vec![call]);
        }
    }
    batches
}

/// Groups batches into loads. Where servers share the slots, a request is about one slot, so the batches for up to
/// [`MAX_BATCH_ITEMS`] slots share one write: half of what a request costs the client is sending the request and
/// receiving the reply. Any other batch is a load of its own.
fn loads(batches: Vec<CallBatch>) -> Vec<Load> {
    let mut loads: Vec<Load> = Vec::new();
    for batch in batches {
        let may_share_write = |batch: &[Call]| batch[0].to.slot.is_some() && !batch[0].to.asking;
        let fits = |load: &&mut Load| {
            load.len() < MAX_BATCH_ITEMS && may_share_write(&load[0]) && may_share_write(&batch)
        };
        match loads.last_mut().filter(fits) {
            Some(load) => load.push(batch),
            None => loads.push(vec![batch]),
        }
    }
    loads
}

/// Why a call failed.
enum CallError {
    /// An error of the server or the connection.
    Server(RedisError),
    /// The server answered, but the answer does not count: it came too late, or the server is no longer a master.
    Judged(Refused),
}

impl CallError {
    fn code(&self) -> Option<&str> {
        match self {
            Self::Server(error) => error.code(),
            Self::Judged(_) => None,
        }
    }

    fn into_refused(self) -> Refused {
        match self {
            Self::Server(error) => Refused::new(error),
            Self::Judged(refused) => refused,
        }
    }
}

impl From<RedisError> for CallError {
    fn from(error: RedisError) -> Self {
        Self::Server(error)
    }
}

/// What sending a request and reading its reply need besides the connection.
struct CallContext<'a> {
    client: &'a Client,
    listener: &'a PushListener,
    evidence: &'a Evidence,
}

impl CallContext<'_> {
    /// Hands out the reply of a script. If the server does not know the script, first loads the script and calls it
    /// again.
    async fn finish(
        &self,
        mux: &mut MultiplexedConnection,
        mut reply: Result<Vec<Value>, CallError>,
        mut batch: Vec<Call>,
    ) {
        reply = self.with_loaded_script(mux, reply, &mut batch).await;
        if reply.as_ref().is_err_and(|error| error.code() == Some("NOPERM")) && batch.len() > 1 {
            // The user has no rights on one of the locks, so the server did nothing for any of them: each call is sent
            // alone.
            for call in batch {
                let mut alone = vec![call];
                let reply = self.send_batch(mux, &mut alone).await;
                let reply = self.with_loaded_script(mux, reply, &mut alone).await;
                hand_out(reply.map_err(CallError::into_refused), alone);
            }
            return;
        }
        hand_out(reply.map_err(CallError::into_refused), batch);
    }

    /// Returns `reply`, unless it says that the server does not know the script: then loads the script, and returns the
    /// reply to a new call.
    async fn with_loaded_script(
        &self,
        mux: &mut MultiplexedConnection,
        reply: Result<Vec<Value>, CallError>,
        batch: &mut CallBatch,
    ) -> Result<Vec<Value>, CallError> {
        match batch.first() {
            Some(call) if reply.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT")) => {
                open::load_script(mux, self.client.config.layout.text(call.script)).await?;
                self.send_batch(mux, batch).await
            }
            _ => reply,
        }
    }

    /// Sends one batch, and reads the reply.
    async fn send_batch(
        &self,
        mux: &mut MultiplexedConnection,
        batch: &mut CallBatch,
    ) -> Result<Vec<Value>, CallError> {
        let Some((to, command)) = self.command(batch) else { return Ok(Vec::new()) };
        let sent = self.client.clock.now();
        let reply = send_command(mux, to, command).await;
        self.read_reply(sent, self.client.clock.now(), reply)
    }

    /// Like [`send_batch`](Self::send_batch), for a whole load in one write.
    async fn send_load(
        &self,
        mux: &mut MultiplexedConnection,
        load: &mut [CallBatch],
    ) -> Vec<Result<Vec<Value>, CallError>> {
        let mut requests = redis::pipe();
        let mut is_sent = Vec::with_capacity(load.len());
        for batch in &mut *load {
            let command = self.command(batch);
            is_sent.push(command.is_some());
            if let Some((_, command)) = command {
                requests.add_command(command);
            }
        }
        if requests.is_empty() {
            return load.iter().map(|_| Ok(Vec::new())).collect();
        }
        let sent = self.client.clock.now();
        let reply = mux.req_packed_commands(&requests, 0, requests.len()).await;
        let now = self.client.clock.now();
        let mut reply = reply.map(Vec::into_iter);
        let read_next = |is_sent: bool| {
            if !is_sent {
                return Ok(Vec::new());
            }
            let reply = match &mut reply {
                Ok(reply) => reply.next().unwrap_or(Value::Nil).extract_error(),
                Err(error) => Err(error.clone()),
            };
            self.read_reply(sent, now, reply.and_then(reply_items))
        };
        is_sent.into_iter().map(read_next).collect()
    }

    /// The request for a batch. Calls without a waiting caller are left out, because their claims may have been
    /// released already; `None` if no call is left.
    fn command(&self, batch: &mut CallBatch) -> Option<(Destination, Cmd)> {
        batch.retain(|call| !call.reply.is_closed());
        let Call { script, to, .. } = batch.first()?;
        let counter_key = self.client.token_counter.key(to.slot);
        let items = batch.iter().flat_map(|call| &call.items);
        Some((
            *to,
            script.call(self.client.config.layout, *to, &counter_key, self.listener.time.floor(), items),
        ))
    }

    /// Checks that a reply is evidence and comes from a master, learns the server's time from its first value, and
    /// returns the other values.
    fn read_reply(
        &self,
        sent: Instant,
        now: Instant,
        reply: RedisResult<Vec<Value>>,
    ) -> Result<Vec<Value>, CallError> {
        self.evidence.judge(sent, now).map_err(|error| CallError::Judged(Refused::Failed(error)))?;
        let mut reply = reply?;
        if reply.is_empty() {
            return Ok(reply);
        }
        // The first value is the server's time; 0 from a script that does not read the clock.
        if let Value::Int(micros @ 1..) = reply.remove(0) {
            self.listener.learn(sent, now, micros as u64);
        }
        match reply.iter().find_map(demoted) {
            Some(error) => Err(CallError::Judged(Refused::Demoted(error))),
            None => Ok(reply),
        }
    }
}

/// Sends the command. If the slot is migrating to this server, sends `ASKING` before it: the server answers requests
/// about the slot only directly after `ASKING`.
async fn send_command(
    mux: &mut MultiplexedConnection,
    to: Destination,
    command: Cmd,
) -> RedisResult<Vec<Value>> {
    if !to.asking {
        return reply_items(mux.req_packed_command(&command).await?.extract_error()?);
    }
    Box::pin(send_asking(mux, command)).await
}

/// Sends `ASKING` and the command in one write.
async fn send_asking(mux: &mut MultiplexedConnection, command: Cmd) -> RedisResult<Vec<Value>> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("ASKING").add_command(command);
    let reply = mux.req_packed_commands(&pipeline, 0, 2).await?.pop().unwrap_or(Value::Nil);
    reply_items(reply.extract_error()?)
}

/// The items of a reply. The scripts of the fast path write the items as one text of numbers.
fn reply_items(reply: Value) -> RedisResult<Vec<Value>> {
    let Value::BulkString(text) = &reply else { return Ok(from_redis_value(reply)?) };
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse().ok().map(Value::Int);
    match text.split(|&byte| byte == b' ').map(number).collect() {
        Some(numbers) => Ok(numbers),
        None => Ok(from_redis_value(reply)?),
    }
}

/// Passes each call of a batch its part of the reply, or the error.
fn hand_out(reply: Result<Vec<Value>, Refused>, batch: Vec<Call>) {
    let mut reply = reply.map(Vec::into_iter);
    let alone = batch.len() == 1;
    for call in batch {
        let part = match &mut reply {
            Ok(reply) if alone => Ok(reply.collect()),
            Ok(reply) => Ok(reply.take(call.items.len()).collect()),
            Err(refused) => Err(refused.without_source()),
        };
        let _ = call.reply.send(part);
    }
}
