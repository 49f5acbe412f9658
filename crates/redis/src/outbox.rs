//! The outbox of one connection: it sends calls of scripts in the order in which they were queued. Neighbours that call
//! the same script are sent as one call: half of the cost of a short script is its call.

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

/// The most items of one call. More would hardly make each cheaper, and the server could not answer the first item
/// before it is done with the last: with 100 the server was idle while we read its answers, and we were idle while it
/// wrote them.
pub(crate) const BATCH: usize = 32;
/// Room for calls that wait to be sent; further calls wait in their own tasks.
const ROOM: usize = 4096;

/// The reply of a script: one value for each item, or, of a script with a longer answer, all of its values.
type ScriptReply = Result<Values, Refused>;

/// Most calls are about one lock.
pub(crate) type Items = SmallVec<[Item; 1]>;
pub(crate) type Values = SmallVec<[Value; 1]>;

/// The end at which calls are queued.
pub(crate) struct Outbox {
    calls: mpsc::Sender<Call>,
    /// Judges which answers count.
    pub(crate) evidence: Arc<Evidence>,
}

/// The end that sends the calls.
pub(crate) struct Sender {
    calls: mpsc::Receiver<Call>,
    mux: MultiplexedConnection,
    client: Arc<Client>,
    listener: Arc<PushListener>,
    evidence: Arc<Evidence>,
}

struct Call {
    to: Destination,
    script: Script,
    items: Items,
    reply: oneshot::Sender<ScriptReply>,
}

/// The destination of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Destination {
    /// The slot of its keys, where servers share the slots.
    pub(crate) slot: Option<u16>,
    /// The slot is migrating to this server.
    pub(crate) asking: bool,
    /// The slot may have arrived just now, so its listeners may still be on their way.
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
        let left = if is_on_calling_thread() {
            task.poll_after(|| self.calls.try_send(call))
        } else {
            self.calls.try_send(call)
        };
        let left = match left {
            // The call waits for room, in the order in which calls came.
            Err(TrySendError::Full(call)) => Box::pin(self.calls.send(call)).await.is_ok(),
            left => left.is_ok(),
        };
        if !left {
            return Err(Refused::Failed(EngineError::new(Fault::Retry, "the connection broke")));
        }
        let broke = |_| EngineError::new(Fault::Unknown, "the connection broke before the answer came");
        answer.await.map_err(|error| Refused::Failed(broke(error)))?
    }
}

impl Sender {
    /// `evidence_limit`: an answer that takes longer is no evidence.
    pub(crate) fn new(
        mux: MultiplexedConnection,
        client: Arc<Client>,
        listener: Arc<PushListener>,
        evidence_limit: Option<Duration>,
    ) -> (Outbox, Self) {
        let (outbox, calls) = mpsc::channel(ROOM);
        let evidence = Arc::new(Evidence::new(evidence_limit));
        let outbox = Outbox { calls: outbox, evidence: Arc::clone(&evidence) };
        (outbox, Self { calls, mux, client, listener, evidence })
    }

    /// Sends until the outbox is dropped.
    pub(crate) async fn run(mut self) {
        let mut waiting = Vec::new();
        let mut in_flight = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(()) = in_flight.next(), if !in_flight.is_empty() => {}
                left = self.calls.recv_many(&mut waiting, ROOM) => {
                    if left == 0 {
                        return;
                    }
                    for load in loads(batches(waiting.drain(..))) {
                        // Built at its first poll, which leaves out calls without a waiting caller: a claim that was
                        // given up cannot be sent after its release.
                        in_flight.push(self.send(load));
                    }
                }
            }
        }
    }

    /// Sends one load in one write, and hands out the replies of the scripts.
    fn send(&self, mut load: Vec<Vec<Call>>) -> impl Future<Output = ()> + use<> {
        let mut mux = self.mux.clone();
        let (client, listener, evidence) =
            (Arc::clone(&self.client), Arc::clone(&self.listener), Arc::clone(&self.evidence));
        async move {
            let context = CallContext { client: &client, listener: &listener, evidence: &evidence };
            let all = match &mut load[..] {
                [batch] => vec![context.once(&mut mux, batch).await],
                all => Box::pin(context.all_once(&mut mux, all)).await,
            };
            for (reply, batch) in all.into_iter().zip(load) {
                match reply {
                    Ok(reply) => hand_out(Ok(reply), batch),
                    // Boxed: it is rare, and needs much memory, while this path runs a thousand times a second.
                    reply => Box::pin(context.finish(&mut mux, reply, batch)).await,
                }
            }
        }
    }
}

/// Groups neighbours that call one script for the same destination, up to a bound.
fn batches(calls: impl Iterator<Item = Call>) -> Vec<Vec<Call>> {
    let mut batches: Vec<Vec<Call>> = Vec::new();
    let mut items = 0;
    for call in calls {
        let fits = |batch: &&mut Vec<Call>| {
            (batch[0].script, batch[0].to) == (call.script, call.to)
                && call.script.takes_many()
                && items + call.items.len() <= BATCH
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

/// Where servers share the slots, a request is about one slot. Requests with as many items as one batch leave in one
/// write, because half of what a request costs us is its sending and receiving.
fn loads(batches: Vec<Vec<Call>>) -> Vec<Vec<Vec<Call>>> {
    let mut loads: Vec<Vec<Vec<Call>>> = Vec::new();
    for batch in batches {
        let fits_in_load = |batch: &[Call]| batch[0].to.slot.is_some() && !batch[0].to.asking;
        let fits =
            |load: &&mut Vec<Vec<Call>>| load.len() < BATCH && fits_in_load(&load[0]) && fits_in_load(&batch);
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
    ScriptReply(RedisError),
    /// Our own judgement of an answer.
    OwnError(Refused),
}

impl CallError {
    fn code(&self) -> Option<&str> {
        match self {
            Self::ScriptReply(error) => error.code(),
            Self::OwnError(_) => None,
        }
    }

    fn into_refused(self) -> Refused {
        match self {
            Self::ScriptReply(error) => Refused::new(error),
            Self::OwnError(refused) => refused,
        }
    }
}

impl From<RedisError> for CallError {
    fn from(error: RedisError) -> Self {
        Self::ScriptReply(error)
    }
}

/// The context of every call.
struct CallContext<'a> {
    client: &'a Client,
    listener: &'a PushListener,
    evidence: &'a Evidence,
}

impl CallContext<'_> {
    /// Hands out the reply of a script; first loads the script if the server does not know it.
    async fn finish(
        &self,
        mux: &mut MultiplexedConnection,
        mut reply: Result<Vec<Value>, CallError>,
        mut batch: Vec<Call>,
    ) {
        reply = self.with_loaded_script(mux, reply, &mut batch).await;
        if reply.as_ref().is_err_and(|error| error.code() == Some("NOPERM")) && batch.len() > 1 {
            // The user may not touch one of the locks, so the server did nothing for any: each is sent alone.
            for call in batch {
                let mut alone = vec![call];
                let reply = self.once(mux, &mut alone).await;
                let reply = self.with_loaded_script(mux, reply, &mut alone).await;
                hand_out(reply.map_err(CallError::into_refused), alone);
            }
            return;
        }
        hand_out(reply.map_err(CallError::into_refused), batch);
    }

    /// The same reply, unless the server does not know the script: then the reply after it was loaded.
    async fn with_loaded_script(
        &self,
        mux: &mut MultiplexedConnection,
        reply: Result<Vec<Value>, CallError>,
        batch: &mut Vec<Call>,
    ) -> Result<Vec<Value>, CallError> {
        match batch.first() {
            Some(call) if reply.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT")) => {
                open::load_script(mux, self.client.config.layout.text(call.script)).await?;
                self.once(mux, batch).await
            }
            _ => reply,
        }
    }

    async fn once(
        &self,
        mux: &mut MultiplexedConnection,
        batch: &mut Vec<Call>,
    ) -> Result<Vec<Value>, CallError> {
        let Some((to, command)) = self.command(batch) else { return Ok(Vec::new()) };
        let sent = self.client.clock.now();
        let reply = ask(mux, to, command).await;
        self.read(sent, self.client.clock.now(), reply)
    }

    /// Like [`once`](Self::once), for a whole load.
    async fn all_once(
        &self,
        mux: &mut MultiplexedConnection,
        load: &mut [Vec<Call>],
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
        let one = |is_sent: bool| {
            if !is_sent {
                return Ok(Vec::new());
            }
            let reply = match &mut reply {
                Ok(reply) => reply.next().unwrap_or(Value::Nil).extract_error(),
                Err(error) => Err(error.clone()),
            };
            self.read(sent, now, reply.and_then(listed))
        };
        is_sent.into_iter().map(one).collect()
    }

    /// The request for a batch. Calls without a waiting caller are left out: their claims may have been released
    /// already.
    fn command(&self, batch: &mut Vec<Call>) -> Option<(Destination, Cmd)> {
        batch.retain(|call| !call.reply.is_closed());
        let Call { script, to, .. } = batch.first()?;
        let counter = self.client.token_counter.key(to.slot);
        let items = batch.iter().flat_map(|call| &call.items);
        Some((*to, script.call(self.client.config.layout, *to, &counter, self.listener.time.floor(), items)))
    }

    /// The answers of a reply, one for each item.
    fn read(
        &self,
        sent: Instant,
        now: Instant,
        reply: RedisResult<Vec<Value>>,
    ) -> Result<Vec<Value>, CallError> {
        self.evidence.judge(sent, now).map_err(|error| CallError::OwnError(Refused::Failed(error)))?;
        let mut reply = reply?;
        if reply.is_empty() {
            return Ok(reply);
        }
        if let Value::Int(server @ 1..) = reply.remove(0) {
            self.listener.learn(sent, now, server as u64);
        }
        match reply.iter().find_map(demoted) {
            Some(error) => Err(CallError::OwnError(Refused::Demoted(error))),
            None => Ok(reply),
        }
    }
}

/// Sends the command. A server to which a slot is migrating answers for it only directly after `ASKING`.
async fn ask(mux: &mut MultiplexedConnection, to: Destination, command: Cmd) -> RedisResult<Vec<Value>> {
    if !to.asking {
        return listed(mux.req_packed_command(&command).await?.extract_error()?);
    }
    Box::pin(ask_importer(mux, command)).await
}

async fn ask_importer(mux: &mut MultiplexedConnection, command: Cmd) -> RedisResult<Vec<Value>> {
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(command);
    let reply = mux.req_packed_commands(&both, 0, 2).await?.pop().unwrap_or(Value::Nil);
    listed(reply.extract_error()?)
}

/// The items of a reply. Short scripts write them as one text of numbers.
fn listed(reply: Value) -> RedisResult<Vec<Value>> {
    let Value::BulkString(text) = &reply else { return Ok(from_redis_value(reply)?) };
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse().ok().map(Value::Int);
    match text.split(|&byte| byte == b' ').map(number).collect() {
        Some(numbers) => Ok(numbers),
        None => Ok(from_redis_value(reply)?),
    }
}

fn hand_out(reply: Result<Vec<Value>, Refused>, batch: Vec<Call>) {
    let mut reply = reply.map(Vec::into_iter);
    let alone = batch.len() == 1;
    for call in batch {
        let part = match &mut reply {
            Ok(reply) if alone => Ok(reply.collect()),
            Ok(reply) => Ok(reply.take(call.items.len()).collect()),
            Err(refused) => Err(refused.again()),
        };
        let _ = call.reply.send(part);
    }
}
