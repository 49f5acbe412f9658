//! Notifications of the slots of one node (sharded publish/subscribe), on a separate connection. The connection is made
//! when a claim waits. It subscribes to one channel for each slot in which a claim of this client waits, and is closed
//! when no claim has waited for [`IDLE_LIMIT`]. The client never unsubscribes from a single channel: the server's
//! answer would look like the notification that a slot has moved.

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
    cluster::ClusterState,
    shard_wire::{Frame, ShardWire},
};
use crate::{
    error::Refused,
    keys::slot_channel,
    push_listener::PushListener,
    runtime::{self, BackgroundTask},
    server::Server,
};

/// The interval of pings: as on the connection for requests.
const PING_INTERVAL: Duration = Duration::from_millis(500);
/// A server that is silent for this long counts as gone.
const MAX_SILENCE: Duration = Duration::from_secs(3);
/// How long the connection stays open while no claim waits: a client that had a waiting claim is likely to have waiting
/// claims again.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// Subscribes to the notifications of the slots of a node.
pub(crate) struct ShardSubscriber(Link<ShardDialer>);

/// Makes connections for notifications.
pub(crate) struct ShardDialer {
    cluster: Weak<ClusterState>,
    client: Arc<Client>,
    server: Server,
    listener: Arc<PushListener>,
}

/// One connection for notifications. Dropping it closes the connection.
pub(crate) struct ShardConn {
    address: String,
    subscriptions: Arc<Subscriptions>,
    _task: BackgroundTask,
}

/// The channels of one connection, and the pending subscriptions. A caller that waits for an answer keeps this value
/// alive, even after the connection has ended.
struct Subscriptions {
    /// The state of each channel.
    channels: Mutex<Channels>,
    /// Passes slots to the task of the connection, which subscribes to their channels.
    requests: mpsc::UnboundedSender<u16>,
    /// Whether the connection has ended.
    is_dead: AtomicBool,
}

/// Passes the answer of the server to the caller that waits for a subscription.
type AnswerSender = oneshot::Sender<Result<(), Refused>>;

/// Which channels are subscribed, and which subscriptions are requested.
#[derive(Default)]
struct Channels {
    /// The slots whose channels are subscribed.
    subscribed: HashSet<u16>,
    /// Pending subscriptions in the order of their requests, each with the callers that wait for the answer: at most
    /// one for each slot.
    pending: VecDeque<(u16, Vec<AnswerSender>)>,
    /// The slot of each requested channel.
    slots: HashMap<Vec<u8>, u16>,
}

impl ShardSubscriber {
    pub(crate) fn new(dialer: ShardDialer, clock: &Arc<dyn Clock>) -> Self {
        Self(Link::new(dialer, Arc::clone(clock), Contact::default()))
    }

    /// Whether the slot is subscribed now.
    pub(crate) fn is_subscribed(&self, slot: u16) -> bool {
        self.0.live().is_some_and(|conn| conn.subscriptions.lock().subscribed.contains(&slot))
    }

    /// Subscribes to notifications of the slot.
    pub(crate) async fn subscribe(&self, slot: u16) -> Result<(), Refused> {
        let conn = self.0.conn().await.map_err(Refused::Failed)?;
        let broken_error =
            |_| Refused::Failed(EngineError::new(Fault::Retry, "the connection for notifications broke"));
        let Some(answer) = conn.subscriptions.request(slot) else { return Ok(()) };
        answer.await.map_err(broken_error)?
    }
}

impl ShardDialer {
    pub(crate) fn new(
        cluster: &Weak<ClusterState>,
        client: &Arc<Client>,
        server: Server,
        listener: Arc<PushListener>,
    ) -> Self {
        Self { cluster: Weak::clone(cluster), client: Arc::clone(client), server, listener }
    }

    /// Connects, and starts the task of the connection.
    async fn open(&self, broken: Arc<Notify>) -> Result<ShardConn, EngineError> {
        let (address, limit) = (&self.server.address, self.server.limit);
        let timed_out = || {
            EngineError::new(
                Fault::Retry,
                format!("cannot connect to {address} for notifications: no answer within {limit:?}"),
            )
        };
        let wire = runtime::within(limit, ShardWire::open(&self.server)).await.ok_or_else(timed_out)??;
        let (requests, requested_slots) = mpsc::unbounded_channel();
        let (channels, is_dead) = Default::default();
        let subscriptions = Arc::new(Subscriptions { channels, requests, is_dead });
        let end_notice = EndNotice {
            subscriptions: Arc::clone(&subscriptions),
            cluster: Weak::clone(&self.cluster),
            client: Arc::clone(&self.client),
            broken,
        };
        let shard_task = ShardTask {
            wire,
            requested_slots,
            subscriptions: Arc::clone(&subscriptions),
            listener: Arc::clone(&self.listener),
            client: Arc::clone(&self.client),
            cluster: Weak::clone(&self.cluster),
        };
        let task = runtime::run(async move {
            let _end_notice = end_notice;
            shard_task.run().await;
        });
        Ok(ShardConn { address: address.to_string(), subscriptions, _task: task })
    }
}

impl Dial for ShardDialer {
    type Conn = ShardConn;

    /// `broken` is notified when the connection breaks.
    fn dial(&self, broken: Arc<Notify>) -> BoxFuture<'_, Result<ShardConn, EngineError>> {
        Box::pin(self.open(broken))
    }

    fn is_dead(conn: &ShardConn) -> bool {
        conn.subscriptions.is_dead.load(Ordering::Acquire)
    }

    fn address(conn: &ShardConn) -> String {
        conn.address.clone()
    }

    /// Nothing to do: the waiting claims asked again when the previous connection broke.
    fn connected(&self, _: &Arc<ShardConn>, _: bool) {}
}

impl Subscriptions {
    /// Requests a subscription of a slot, unless a subscription of the slot is pending already. Returns the receiver of
    /// the answer, or `None` if the slot is subscribed.
    fn request(&self, slot: u16) -> Option<oneshot::Receiver<Result<(), Refused>>> {
        let (sender, answer) = oneshot::channel();
        let mut channels = self.lock();
        if channels.subscribed.contains(&slot) {
            return None;
        }
        // After the end of the connection no answer comes: the sender is dropped here, so that the caller gets an
        // error.
        if !self.is_dead.load(Ordering::Acquire) {
            match channels.pending.iter_mut().find(|(pending, _)| *pending == slot) {
                Some((_, senders)) => senders.push(sender),
                None => {
                    channels.pending.push_back((slot, vec![sender]));
                    // Sent under the lock, so that requests leave in the order of `pending`. If the connection has
                    // ended, `pending` is emptied.
                    let _ = self.requests.send(slot);
                }
            }
        }
        Some(answer)
    }

    /// Passes the answer to the oldest pending request on to its callers. False if no request is pending.
    fn answer_oldest(&self, answer: Result<(), Refused>) -> bool {
        let mut channels = self.lock();
        let Some((slot, senders)) = channels.pending.pop_front() else { return false };
        if answer.is_ok() {
            channels.subscribed.insert(slot);
        }
        drop(channels);
        for sender in senders {
            // Each caller gets a copy of the answer.
            let copy = match &answer {
                Ok(()) => Ok(()),
                Err(refused) => Err(refused.without_source()),
            };
            let _ = sender.send(copy);
        }
        true
    }

    /// The slot of a requested channel.
    fn slot(&self, channel: &[u8]) -> Option<u16> {
        self.lock().slots.get(channel).copied()
    }

    /// Locks the channels.
    fn lock(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task of a connection.
struct ShardTask {
    wire: ShardWire,
    requested_slots: mpsc::UnboundedReceiver<u16>,
    subscriptions: Arc<Subscriptions>,
    listener: Arc<PushListener>,
    client: Arc<Client>,
    cluster: Weak<ClusterState>,
}

impl ShardTask {
    /// Runs until the connection breaks, the server is silent for too long, or no claim has waited for [`IDLE_LIMIT`].
    async fn run(mut self) -> Option<()> {
        let (mut ping_sent_at, mut last_needed): (Option<Instant>, _) = (None, self.client.clock.now());
        loop {
            tokio::select! {
                frame = self.wire.next() => {
                    ping_sent_at = None;
                    handle_frame(&self.subscriptions, &self.listener, &self.cluster, &self.client, frame.ok()?)?;
                }
                slot = self.requested_slots.recv() => {
                    let (slot, channel) = slot.map(|slot| (slot, slot_channel(&self.client.channel, slot)))?;
                    self.subscriptions.lock().slots.insert(channel.clone().into_bytes(), slot);
                    self.wire.send(&["SSUBSCRIBE", &channel]).await.ok()?;
                }
                () = runtime::pause(PING_INTERVAL) => {
                    let now = self.client.clock.now();
                    if ping_sent_at.is_some_and(|sent| now.since(sent) > MAX_SILENCE) {
                        return None;
                    }
                    if !self.listener.claims.is_empty() || !self.subscriptions.lock().pending.is_empty() {
                        last_needed = now;
                        if ping_sent_at.is_none() {
                            ping_sent_at = Some(now);
                            self.wire.send(&["PING"]).await.ok()?;
                        }
                    } else if now.since(last_needed) > IDLE_LIMIT {
                        return None;
                    }
                }
            }
        }
    }
}

/// Handles one frame. Returns `None` for an unexpected frame, after which frames and requests can no longer be matched.
fn handle_frame(
    subscriptions: &Subscriptions,
    listener: &PushListener,
    cluster: &Weak<ClusterState>,
    client: &Client,
    frame: Frame,
) -> Option<()> {
    let parts = match frame {
        Frame::List(parts) => parts,
        Frame::Error(text) => return subscriptions.answer_oldest(Err(Refused::parse(&text))).then_some(()),
        _ => return Some(()),
    };
    match parts.as_slice() {
        [Frame::Bytes(kind), Frame::Bytes(_), Frame::Bytes(message)] if kind == b"smessage" => {
            listener.receive_leasehold_message(message, client.clock.now());
        }
        [Frame::Bytes(kind), Frame::Bytes(channel), ..] if kind == b"ssubscribe" => {
            let oldest_pending = subscriptions.lock().pending.front().map(|(slot, _)| *slot);
            let answered_slot = subscriptions.slot(channel);
            // An answer for another slot than the oldest pending one means that answers and requests can no longer be
            // matched.
            if answered_slot.is_none() || answered_slot != oldest_pending {
                return None;
            }
            subscriptions.answer_oldest(Ok(()));
        }
        // This frame answers no request: the slot has moved to another node.
        [Frame::Bytes(kind), Frame::Bytes(channel), ..] if kind == b"sunsubscribe" => {
            let slot = subscriptions.slot(channel)?;
            subscriptions.lock().subscribed.remove(&slot);
            if let Some(cluster) = cluster.upgrade() {
                cluster.request_map();
                cluster.slot_waiters.recheck(slot, &client.mailbox);
            }
        }
        _ => {}
    }
    Some(())
}

/// Owned by the task of a connection: when dropped, makes the claims that wait in its slots ask again, and the callers
/// that wait for a subscription get an error.
struct EndNotice {
    subscriptions: Arc<Subscriptions>,
    cluster: Weak<ClusterState>,
    client: Arc<Client>,
    /// Notified when the connection has ended, so that the next one can be made.
    broken: Arc<Notify>,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        let channels = {
            let mut channels = self.subscriptions.lock();
            self.subscriptions.is_dead.store(true, Ordering::Release);
            mem::take(&mut *channels)
        };
        self.broken.notify_one();
        if let Some(cluster) = self.cluster.upgrade() {
            channels
                .subscribed
                .iter()
                .for_each(|&slot| cluster.slot_waiters.recheck(slot, &self.client.mailbox));
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
        Frame::List(vec![bytes(kind), bytes(channel), Frame::Text("1".to_owned())])
    }

    /// The client library would take such a notification for the answer to the oldest request, and pass every later
    /// answer to the wrong request.
    #[test]
    fn a_message_that_a_slot_has_left_answers_no_request() {
        let client = Client::new(Config::cluster(Vec::new()), ClaimId([1; 16]), Env::system().clock);
        let listener = client.cluster_node_listener();
        let (requests, _requested_slots) = mpsc::unbounded_channel();
        let subscriptions =
            Subscriptions { channels: Mutex::default(), requests, is_dead: AtomicBool::new(false) };
        let channel = |slot: u16| slot_channel(&client.channel, slot);
        let receive = |frame: Frame| handle_frame(&subscriptions, &listener, &Weak::new(), &client, frame);
        let pending: Vec<_> = [7, 8, 9].map(|slot| subscriptions.request(slot).unwrap()).into();
        for slot in [7, 8, 9] {
            subscriptions.lock().slots.insert(channel(slot).into_bytes(), slot);
        }
        let mut pending = pending.into_iter();
        let mut answer = || pending.next().unwrap().try_recv();
        assert!(receive(frame("ssubscribe", &channel(7))).is_some());
        assert!(matches!(answer(), Ok(Ok(()))));
        assert!(receive(frame("sunsubscribe", &channel(7))).is_some());
        assert_eq!(subscriptions.lock().subscribed.len(), 0);
        assert!(receive(Frame::Error("MOVED 8 10.0.0.1:7".to_owned())).is_some());
        assert!(matches!(answer(), Ok(Err(Refused::Moved { to, .. })) if to == "10.0.0.1:7"));
        assert!(receive(frame("ssubscribe", &channel(9))).is_some());
        assert!(matches!(answer(), Ok(Ok(()))));
        assert_eq!(subscriptions.lock().subscribed, HashSet::from([9]));
        // After a frame that belongs to no request nothing can be understood.
        assert!(receive(Frame::Error("ERR what".to_owned())).is_none());
        subscriptions.request(7).unwrap();
        assert!(receive(frame("ssubscribe", &channel(8))).is_none());
    }
}
