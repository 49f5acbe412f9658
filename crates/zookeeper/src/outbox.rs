//! The requests of one connection: those that wait to be written, and those that wait for their answers. The server
//! answers in the order in which the requests were written.

use std::{
    collections::VecDeque,
    marker::PhantomData,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI32, Ordering},
    },
};

use leasehold_core::{Clock, Instant};
use tokio::sync::{Notify, oneshot};

use crate::{
    error::Failed,
    lock_mutex,
    wire::{Auth, ErrorCode, Header, Op, Ping, Reader, Writer, XID_AUTH, XID_PING},
};

/// The most requests that wait to be written.
const MAX_WAITING: usize = 65_536;
/// A batch with at least this many bytes takes no further request.
const BATCH_BYTES: usize = 64 * 1024;

/// The place of the xid (the number of the request) in a message: after the length.
const XID_BYTES: std::ops::Range<usize> = 4..8;

/// The result of a request: its answer, or the reason why there is none.
type Response = Result<(Header, Vec<u8>), Failed>;

/// The requests of one connection.
pub(crate) struct Outbox {
    queues: Mutex<Queues>,
    /// Notified when a request was queued.
    not_empty: Notify,
    /// The number of the last request of this session. A server distinguishes the session's requests by their numbers,
    /// across connections.
    last_xid: Arc<AtomicI32>,
}

#[derive(Default)]
struct Queues {
    /// Requests that were not written yet.
    waiting: VecDeque<PendingRequest>,
    /// Requests that were written and not answered yet.
    written: VecDeque<WrittenRequest>,
    /// No request is accepted any more.
    closed: bool,
}

/// A request that was not written yet.
struct PendingRequest {
    /// The encoded request, in which the xid is still 0.
    message: Vec<u8>,
    /// The kind of the request.
    code: i32,
    queued_at: Instant,
    response: oneshot::Sender<Response>,
}

/// A request that waits for its answer.
struct WrittenRequest {
    /// The number of the request.
    xid: i32,
    written_at: Instant,
    response: oneshot::Sender<Response>,
}

/// A queued request. If it is dropped before it was written, it is not written.
#[must_use = "the request may fail: only its answer says so"]
pub(crate) struct Sent<O> {
    response: oneshot::Receiver<Response>,
    /// The kind of the request: it says how its answer is read.
    op: PhantomData<fn() -> O>,
}

impl<O: Op> Sent<O> {
    /// Waits for the answer.
    pub(crate) async fn answer(self) -> Result<O::Answer, Failed> {
        self.answer_and_zxid().await.map(|(answer, _)| answer)
    }

    /// Waits for the answer. Also returns the number of the newest change that the server had applied; if the request
    /// was a change, this is the number of that change.
    pub(crate) async fn answer_and_zxid(self) -> Result<(O::Answer, i64), Failed> {
        let (header, body) = self.response.await.unwrap_or(Err(Failed::Unanswered))?;
        if header.error != 0 {
            return Err(Failed::Refused(ErrorCode(header.error)));
        }
        let answer = O::read(&mut Reader::new(&body)).ok_or(Failed::Unreadable)?;
        Ok((answer, header.zxid))
    }
}

impl Outbox {
    pub(crate) fn new(last_xid: Arc<AtomicI32>) -> Self {
        Self { queues: Mutex::default(), not_empty: Notify::new(), last_xid }
    }

    /// Queues a request behind all earlier requests.
    pub(crate) fn send<O: Op>(&self, op: &O, clock: &dyn Clock) -> Sent<O> {
        let mut writer = Writer::new();
        // `take_batch` fills in the xid.
        writer.int(0).int(O::CODE);
        op.write(&mut writer);
        let (response, answer) = oneshot::channel();
        let pending =
            PendingRequest { message: writer.finish(), code: O::CODE, queued_at: clock.now(), response };
        let mut queues = lock_mutex(&self.queues);
        if queues.closed || queues.waiting.len() >= MAX_WAITING {
            drop(queues);
            let _ = pending.response.send(Err(Failed::Unsent));
        } else {
            queues.waiting.push_back(pending);
            drop(queues);
            self.not_empty.notify_one();
        }
        Sent { response: answer, op: PhantomData }
    }

    /// Waits until there is something to write, and returns it. The returned requests count as written.
    pub(crate) async fn next_batch(&self, clock: &dyn Clock) -> Vec<u8> {
        loop {
            let not_empty = self.not_empty.notified();
            let batch = self.take_batch(clock.now());
            if !batch.is_empty() {
                return batch;
            }
            not_empty.await;
        }
    }

    /// Takes waiting requests, numbers them, and returns their bytes; empty if none waits.
    fn take_batch(&self, now: Instant) -> Vec<u8> {
        let mut batch = Vec::new();
        let mut queues = lock_mutex(&self.queues);
        while batch.len() < BATCH_BYTES {
            let Some(mut pending) = queues.waiting.pop_front() else { break };
            // The caller no longer waits for the answer, so the request must not be applied.
            if pending.response.is_closed() {
                continue;
            }
            let xid = match pending.code {
                Ping::CODE => XID_PING,
                Auth::CODE => XID_AUTH,
                // Negative numbers have a special meaning.
                _ => self.last_xid.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & i32::MAX,
            };
            pending.message[XID_BYTES].copy_from_slice(&xid.to_be_bytes());
            batch.append(&mut pending.message);
            queues.written.push_back(WrittenRequest { xid, written_at: now, response: pending.response });
        }
        batch
    }

    /// Passes on an answer of the server. False if it is not the next expected answer.
    pub(crate) fn on_answer(&self, header: Header, body: &[u8]) -> bool {
        let mut queues = lock_mutex(&self.queues);
        // Pings and logins are answered out of order.
        let index = if header.xid < 0 {
            queues.written.iter().position(|request| request.xid == header.xid)
        } else {
            Some(0)
        };
        let Some(written) = index.and_then(|index| queues.written.remove(index)) else { return false };
        drop(queues);
        let in_order = written.xid == header.xid;
        let _ = written.response.send(if in_order {
            Ok((header, body.to_vec()))
        } else {
            Err(Failed::Unreadable)
        });
        in_order
    }

    /// The number of unanswered requests.
    pub(crate) fn load(&self) -> usize {
        let queues = lock_mutex(&self.queues);
        queues.waiting.len() + queues.written.len()
    }

    /// When the oldest unanswered request was written or queued.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        let queues = lock_mutex(&self.queues);
        let oldest = [
            queues.written.front().map(|request| request.written_at),
            queues.waiting.front().map(|request| request.queued_at),
        ];
        oldest.into_iter().flatten().min()
    }

    /// Fails all requests, because the connection has ended. Later requests fail at once.
    pub(crate) fn close(&self) {
        let (waiting, written) = {
            let mut queues = lock_mutex(&self.queues);
            queues.closed = true;
            (std::mem::take(&mut queues.waiting), std::mem::take(&mut queues.written))
        };
        waiting.into_iter().for_each(|pending| drop(pending.response.send(Err(Failed::Unsent))));
        written.into_iter().for_each(|written| drop(written.response.send(Err(Failed::Unanswered))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Delete, GetChildren};

    struct StoppedClock;

    impl Clock for StoppedClock {
        fn now(&self) -> Instant {
            Instant::from_nanos(0)
        }
    }

    fn delete(outbox: &Outbox) -> Sent<Delete> {
        outbox.send(&Delete { path: "/a".to_owned(), version: -1 }, &StoppedClock)
    }

    fn header(xid: i32, error: i32) -> Header {
        Header { xid, zxid: 7, error }
    }

    #[test]
    fn answers_come_in_order_except_pings() {
        let outbox = Outbox::new(Arc::default());
        let (request, ping, second_request) =
            (delete(&outbox), outbox.send(&Ping, &StoppedClock), delete(&outbox));
        assert!(!outbox.take_batch(Instant::from_nanos(1)).is_empty());
        assert_eq!(outbox.waiting_since(), Some(Instant::from_nanos(1)));
        assert!(outbox.on_answer(header(1, 0), &[]));
        assert!(!outbox.on_answer(header(-4, 0), &[]), "no login was sent");
        assert!(outbox.on_answer(header(-2, 0), &[]));
        assert!(outbox.on_answer(header(2, -101), &[]));
        assert!(!outbox.on_answer(header(3, 0), &[]) && outbox.waiting_since().is_none());
        assert!(matches!(block_on(request.answer()), Ok(())));
        assert!(matches!(block_on(ping.answer()), Ok(())));
        assert!(matches!(block_on(second_request.answer()), Err(Failed::Refused(ErrorCode::NO_NODE))));
    }

    #[test]
    fn a_dropped_request_is_not_written_and_an_unwritten_one_is_unsent() {
        let outbox = Outbox::new(Arc::default());
        drop(delete(&outbox));
        assert!(outbox.take_batch(Instant::from_nanos(1)).is_empty());
        let written = outbox.send(&GetChildren { path: "/a", watch: false }, &StoppedClock);
        assert!(!outbox.take_batch(Instant::from_nanos(1)).is_empty());
        let waiting = delete(&outbox);
        outbox.close();
        assert!(matches!(block_on(written.answer()), Err(Failed::Unanswered)));
        assert!(matches!(block_on(waiting.answer()), Err(Failed::Unsent)));
        assert!(matches!(block_on(delete(&outbox).answer()), Err(Failed::Unsent)));
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }
}
