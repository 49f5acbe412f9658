//! Notifications of the slots of one node, on a separate connection. It is made when a claim waits, has one channel for
//! each slot in which a claim of this process has waited, and is closed when none has waited for a while. Channels are
//! never unsubscribed one by one: the answer looks like the notification that a slot has moved.
use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{BoxFuture, Clock, Contact, Dial, EngineError, Fault, Instant, Link};
use tokio::sync::{Notify, mpsc, oneshot};

use super::{
    Client,
    cluster::Inner,
    shard_wire::{Frame, Wire},
};
use crate::{
    error::Refused,
    keys::channel_of,
    push_listener::PushListener,
    runtime::{self, Running},
    server::Server,
};

/// The interval of pings, and the silence after which the server counts as gone: as on the other connection.
const PULSE: Duration = Duration::from_millis(500);
const SILENCE: Duration = Duration::from_secs(3);
/// How long the connection stays without waiters: a client that waits once is likely to wait again.
const IDLE: Duration = Duration::from_secs(60);

/// The notifications of the slots of a node.
pub(crate) struct Shards(Link<ShardDialer>);

/// Makes connections for notifications.
pub(crate) struct ShardDialer {
    cluster: Weak<Inner>,
    client: Arc<Client>,
    server: Server,
    listener: Arc<PushListener>,
}

/// One such connection. Dropping it closes it.
pub(crate) struct ShardConn {
    place: String,
    heard: Arc<Heard>,
    _running: Running,
}

/// The channels of one connection, and the pending subscriptions. Callers that wait for an answer keep it alive after
/// the connection.
struct Heard {
    channels: Mutex<Channels>,
    orders: mpsc::UnboundedSender<u16>,
    dead: AtomicBool,
}

/// Receives the server's answer to a subscription.
type Tell = oneshot::Sender<Result<(), Refused>>;

#[derive(Default)]
struct Channels {
    listening: HashSet<u16>,
    /// Pending subscriptions in the order of their requests, each with the callers that wait for the answer. Bounded by
    /// the slots.
    asked: VecDeque<(u16, Vec<Tell>)>,
    /// The slot of each requested channel.
    slots: HashMap<Vec<u8>, u16>,
}

impl Shards {
    pub(crate) fn new(dialer: ShardDialer, clock: &Arc<dyn Clock>) -> Self {
        Self(Link::new(dialer, Arc::clone(clock), Contact::default()))
    }

    /// Whether the slot is subscribed now.
    pub(crate) fn hears(&self, slot: u16) -> bool {
        self.0.live().is_some_and(|conn| conn.heard.lock().listening.contains(&slot))
    }

    /// Subscribes to notifications of the slot.
    pub(crate) async fn listen(&self, slot: u16) -> Result<(), Refused> {
        let conn = self.0.conn().await.map_err(Refused::Failed)?;
        let broke = |_| Refused::Failed(EngineError::new(Fault::Retry, "the connection for news broke"));
        let Some(answer) = conn.heard.ask(slot) else { return Ok(()) };
        answer.await.map_err(broke)?
    }
}

impl ShardDialer {
    pub(crate) fn new(
        cluster: &Weak<Inner>,
        client: &Arc<Client>,
        server: Server,
        listener: Arc<PushListener>,
    ) -> Self {
        Self { cluster: Weak::clone(cluster), client: Arc::clone(client), server, listener }
    }

    async fn open(&self, broken: Arc<Notify>) -> Result<ShardConn, EngineError> {
        let (address, limit) = (&self.server.address, self.server.limit);
        let late = || {
            EngineError::new(
                Fault::Retry,
                format!("cannot connect to {address} for news: no answer within {limit:?}"),
            )
        };
        let wire = runtime::within(limit, Wire::open(&self.server)).await.ok_or_else(late)??;
        let (orders, ordered) = mpsc::unbounded_channel();
        let (channels, dead) = Default::default();
        let heard = Arc::new(Heard { channels, orders, dead });
        let last_words = LastWords {
            heard: Arc::clone(&heard),
            cluster: Weak::clone(&self.cluster),
            client: Arc::clone(&self.client),
            broken,
        };
        let listener = PushHandler {
            wire,
            ordered,
            heard: Arc::clone(&heard),
            listener: Arc::clone(&self.listener),
            client: Arc::clone(&self.client),
            cluster: Weak::clone(&self.cluster),
        };
        let running = runtime::run(async move {
            let _last_words = last_words;
            listener.run().await;
        });
        Ok(ShardConn { place: address.to_string(), heard, _running: running })
    }
}

impl Dial for ShardDialer {
    type Conn = ShardConn;

    fn dial(&self, broken: Arc<Notify>) -> BoxFuture<'_, Result<ShardConn, EngineError>> {
        Box::pin(self.open(broken))
    }

    fn is_dead(conn: &ShardConn) -> bool {
        conn.heard.dead.load(Ordering::Acquire)
    }

    fn place(conn: &ShardConn) -> String {
        conn.place.clone()
    }

    /// Waiters were notified when the previous connection broke.
    fn connected(&self, _: &Arc<ShardConn>, _: bool) {}
}

impl Heard {
    /// Requests a subscription of a slot, unless it is pending already; returns the receiver of the answer, or `None`
    /// if the slot is subscribed.
    fn ask(&self, slot: u16) -> Option<oneshot::Receiver<Result<(), Refused>>> {
        let (tell, told) = oneshot::channel();
        let mut channels = self.lock();
        if channels.listening.contains(&slot) {
            return None;
        }
        // A connection that has ended never answers; its callers get an error.
        if !self.dead.load(Ordering::Acquire) {
            match channels.asked.iter_mut().find(|(asked, _)| *asked == slot) {
                Some((_, tells)) => tells.push(tell),
                None => {
                    channels.asked.push_back((slot, vec![tell]));
                    // Under the lock: requests leave in this order. If the connection has ended, `asked` is emptied.
                    let _ = self.orders.send(slot);
                }
            }
        }
        Some(told)
    }

    /// The oldest request was answered.
    fn answered(&self, answer: Result<(), Refused>) -> bool {
        let mut channels = self.lock();
        let Some((slot, tells)) = channels.asked.pop_front() else { return false };
        if answer.is_ok() {
            channels.listening.insert(slot);
        }
        drop(channels);
        for tell in tells {
            let told = match &answer {
                Ok(()) => Ok(()),
                Err(refused) => Err(refused.again()),
            };
            let _ = tell.send(told);
        }
        true
    }

    /// The slot of a requested channel.
    fn slot(&self, channel: &[u8]) -> Option<u16> {
        self.lock().slots.get(channel).copied()
    }

    fn lock(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task of a connection.
struct PushHandler {
    wire: Wire,
    ordered: mpsc::UnboundedReceiver<u16>,
    heard: Arc<Heard>,
    listener: Arc<PushListener>,
    client: Arc<Client>,
    cluster: Weak<Inner>,
}

impl PushHandler {
    /// Runs until the connection breaks, the server is silent for too long, or no claim has waited for a while.
    async fn run(mut self) -> Option<()> {
        let now = || self.client.clock.now();
        let (mut asked_for_life, mut wanted): (Option<Instant>, _) = (None, now());
        loop {
            tokio::select! {
                frame = self.wire.next() => {
                    asked_for_life = None;
                    hear(&self.heard, &self.listener, &self.cluster, &self.client, frame.ok()?)?;
                }
                slot = self.ordered.recv() => {
                    let (slot, channel) = slot.map(|slot| (slot, channel_of(&self.client.channel, slot)))?;
                    self.heard.lock().slots.insert(channel.clone().into_bytes(), slot);
                    self.wire.send(&["SSUBSCRIBE", &channel]).await.ok()?;
                }
                () = runtime::pause(PULSE) => {
                    let time = self.client.clock.now();
                    if asked_for_life.is_some_and(|asked| time.since(asked) > SILENCE) {
                        return None;
                    }
                    if !self.listener.claims.is_empty() || !self.heard.lock().asked.is_empty() {
                        wanted = time;
                        if asked_for_life.is_none() {
                            asked_for_life = Some(time);
                            self.wire.send(&["PING"]).await.ok()?;
                        }
                    } else if time.since(wanted) > IDLE {
                        return None;
                    }
                }
            }
        }
    }
}

/// `None` for a frame that has no meaning: then no later frame can be trusted.
fn hear(
    heard: &Heard,
    listener: &PushListener,
    cluster: &Weak<Inner>,
    client: &Client,
    frame: Frame,
) -> Option<()> {
    let parts = match frame {
        Frame::List(parts) => parts,
        Frame::Error(said) => return heard.answered(Err(Refused::said(&said))).then_some(()),
        _ => return Some(()),
    };
    match parts.as_slice() {
        [Frame::Bytes(kind), Frame::Bytes(_), Frame::Bytes(message)] if kind == b"smessage" => {
            listener.receive_own(message, client.clock.now());
        }
        [Frame::Bytes(kind), Frame::Bytes(channel), ..] if kind == b"ssubscribe" => {
            let asked = heard.lock().asked.front().map(|(slot, _)| *slot);
            let told = heard.slot(channel);
            // A different order would mean that answers and requests do not match.
            if told.is_none() || told != asked {
                return None;
            }
            heard.answered(Ok(()));
        }
        // Unasked: the slot has moved to another node.
        [Frame::Bytes(kind), Frame::Bytes(channel), ..] if kind == b"sunsubscribe" => {
            let slot = heard.slot(channel)?;
            heard.lock().listening.remove(&slot);
            if let Some(cluster) = cluster.upgrade() {
                cluster.want_map();
                cluster.waiting.ring(slot, &client.mailbox);
            }
        }
        _ => {}
    }
    Some(())
}

/// However a connection ends, claims and callers that wait for it ask again.
struct LastWords {
    heard: Arc<Heard>,
    cluster: Weak<Inner>,
    client: Arc<Client>,
    broken: Arc<Notify>,
}

impl Drop for LastWords {
    fn drop(&mut self) {
        let channels = {
            let mut channels = self.heard.lock();
            self.heard.dead.store(true, Ordering::Release);
            mem::take(&mut *channels)
        };
        self.broken.notify_one();
        if let Some(cluster) = self.cluster.upgrade() {
            channels.listening.iter().for_each(|&slot| cluster.waiting.ring(slot, &self.client.mailbox));
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{ClaimId, Env};

    use super::*;
    use crate::config::Config;

    fn frame(kind: &str, channel: &str) -> Frame {
        let bytes = |text: &str| Frame::Bytes(text.as_bytes().to_vec());
        Frame::List(vec![bytes(kind), bytes(channel), Frame::Word("1".to_owned())])
    }

    /// The client library takes such a notification for the answer to the oldest request, and every later answer for
    /// the one before.
    #[test]
    fn notifications_that_a_slot_has_left_are_the_answer_to_no_request() {
        let client = Client::new(Config::cluster(Vec::new()), ClaimId([1; 16]), Env::system().clock);
        let listener = client.listener_of_many();
        let (orders, _ordered) = mpsc::unbounded_channel();
        let heard = Heard { channels: Mutex::default(), orders, dead: AtomicBool::new(false) };
        let name = |slot: u16| channel_of(&client.channel, slot);
        let said = |frame: Frame| hear(&heard, &listener, &Weak::new(), &client, frame);
        let asked: Vec<_> = [7, 8, 9].map(|slot| heard.ask(slot).unwrap()).into();
        for slot in [7, 8, 9] {
            heard.lock().slots.insert(name(slot).into_bytes(), slot);
        }
        let mut asked = asked.into_iter();
        let mut answer = || asked.next().unwrap().try_recv();
        assert!(said(frame("ssubscribe", &name(7))).is_some());
        assert!(matches!(answer(), Ok(Ok(()))));
        assert!(said(frame("sunsubscribe", &name(7))).is_some());
        assert_eq!(heard.lock().listening.len(), 0);
        assert!(said(Frame::Error("MOVED 8 10.0.0.1:7".to_owned())).is_some());
        assert!(matches!(answer(), Ok(Err(Refused::Moved { to, .. })) if to == "10.0.0.1:7"));
        assert!(said(frame("ssubscribe", &name(9))).is_some());
        assert!(matches!(answer(), Ok(Ok(()))));
        assert_eq!(heard.lock().listening, HashSet::from([9]));
        // After a frame that belongs to no request nothing can be understood.
        assert!(said(Frame::Error("ERR what".to_owned())).is_none());
        heard.ask(7).unwrap();
        assert!(said(frame("ssubscribe", &name(8))).is_none());
    }
}
