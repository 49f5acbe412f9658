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
    lock_of,
    wire::{Auth, Code, Header, Op, Ping, Reader, Writer, XID_AUTH, XID_PING},
};

/// The most requests that wait to be written.
const MAX_WAITING: usize = 65_536;
/// The number of bytes from which on a batch is written.
const BATCH_BYTES: usize = 64 * 1024;

/// The result of a request: its answer, or the reason why there is none.
type Response = Result<(Header, Vec<u8>), Failed>;

/// The requests of one connection.
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    filled: Notify,
    /// The number of the last request of this session. A server distinguishes the session's requests by their numbers,
    /// across connections.
    xids: Arc<AtomicI32>,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<PendingRequest>,
    written: VecDeque<Written>,
    /// No request is accepted any more.
    closed: bool,
}

struct PendingRequest {
    message: Vec<u8>,
    code: i32,
    since: Instant,
    response: oneshot::Sender<Response>,
}

struct Written {
    xid: i32,
    since: Instant,
    response: oneshot::Sender<Response>,
}

/// A queued request. If it is dropped before it was written, it is not written.
#[must_use = "what is answered may be that it was not done"]
pub(crate) struct Sent<O> {
    response: oneshot::Receiver<Response>,
    op: PhantomData<fn() -> O>,
}

impl<O: Op> Sent<O> {
    pub(crate) async fn answer(self) -> Result<O::Answer, Failed> {
        let (header, body) = self.response.await.unwrap_or(Err(Failed::Unanswered))?;
        if header.error != 0 {
            return Err(Failed::Refused(Code(header.error)));
        }
        O::read(&mut Reader::new(&body)).ok_or(Failed::Unreadable)
    }
}

impl Outbox {
    pub(crate) fn new(xids: Arc<AtomicI32>) -> Self {
        Self { inner: Mutex::default(), filled: Notify::new(), xids }
    }

    /// Queues a request behind all earlier ones.
    pub(crate) fn send<O: Op>(&self, op: &O, clock: &dyn Clock) -> Sent<O> {
        let mut writer = Writer::new();
        writer.int(0).int(O::CODE);
        op.write(&mut writer);
        let (response, answer) = oneshot::channel();
        let pending =
            PendingRequest { message: writer.finish(), code: O::CODE, since: clock.now(), response };
        let mut inner = lock_of(&self.inner);
        if inner.closed || inner.waiting.len() >= MAX_WAITING {
            drop(inner);
            let _ = pending.response.send(Err(Failed::Unsent));
        } else {
            inner.waiting.push_back(pending);
            drop(inner);
            self.filled.notify_one();
        }
        Sent { response: answer, op: PhantomData }
    }

    /// Waits until there is something to write, and returns it. The returned requests count as written.
    pub(crate) async fn next(&self, clock: &dyn Clock) -> Vec<u8> {
        loop {
            let filled = self.filled.notified();
            let batch = self.take(clock.now());
            if !batch.is_empty() {
                return batch;
            }
            filled.await;
        }
    }

    fn take(&self, now: Instant) -> Vec<u8> {
        let mut batch = Vec::new();
        let mut inner = lock_of(&self.inner);
        while batch.len() < BATCH_BYTES {
            let Some(mut pending) = inner.waiting.pop_front() else { break };
            // The caller has gone, so the request must not be applied.
            if pending.response.is_closed() {
                continue;
            }
            let xid = match pending.code {
                Ping::CODE => XID_PING,
                Auth::CODE => XID_AUTH,
                // Negative numbers have a special meaning.
                _ => self.xids.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & i32::MAX,
            };
            pending.message[4..8].copy_from_slice(&xid.to_be_bytes());
            batch.append(&mut pending.message);
            inner.written.push_back(Written { xid, since: now, response: pending.response });
        }
        batch
    }

    /// Passes on an answer of the server. False if it is not the next expected answer.
    pub(crate) fn answered(&self, header: Header, body: &[u8]) -> bool {
        let mut inner = lock_of(&self.inner);
        // Pings and logins are answered out of order.
        let at =
            if header.xid < 0 { inner.written.iter().position(|one| one.xid == header.xid) } else { Some(0) };
        let Some(written) = at.and_then(|at| inner.written.remove(at)) else { return false };
        drop(inner);
        let fits = written.xid == header.xid;
        let _ =
            written.response.send(if fits { Ok((header, body.to_vec())) } else { Err(Failed::Unreadable) });
        fits
    }

    /// The number of unanswered requests.
    pub(crate) fn load(&self) -> usize {
        let inner = lock_of(&self.inner);
        inner.waiting.len() + inner.written.len()
    }

    /// Since when the oldest request waits.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        let inner = lock_of(&self.inner);
        let oldest = [inner.written.front().map(|one| one.since), inner.waiting.front().map(|one| one.since)];
        oldest.into_iter().flatten().min()
    }

    /// The connection is gone: all requests fail.
    pub(crate) fn close(&self) {
        let (waiting, written) = {
            let mut inner = lock_of(&self.inner);
            inner.closed = true;
            (std::mem::take(&mut inner.waiting), std::mem::take(&mut inner.written))
        };
        waiting.into_iter().for_each(|pending| drop(pending.response.send(Err(Failed::Unsent))));
        written.into_iter().for_each(|written| drop(written.response.send(Err(Failed::Unanswered))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Children, Delete};

    struct Zero;

    impl Clock for Zero {
        fn now(&self) -> Instant {
            Instant::from_nanos(0)
        }
    }

    fn delete(outbox: &Outbox) -> Sent<Delete> {
        outbox.send(&Delete { path: "/a".to_owned(), version: -1 }, &Zero)
    }

    fn header(xid: i32, error: i32) -> Header {
        Header { xid, zxid: 7, error }
    }

    #[test]
    fn answers_come_in_order_except_pings() {
        let outbox = Outbox::new(Arc::default());
        let (one, ping, two) = (delete(&outbox), outbox.send(&Ping, &Zero), delete(&outbox));
        assert!(!outbox.take(Instant::from_nanos(1)).is_empty());
        assert_eq!(outbox.waiting_since(), Some(Instant::from_nanos(1)));
        assert!(outbox.answered(header(1, 0), &[]));
        assert!(!outbox.answered(header(-4, 0), &[]), "no login was sent");
        assert!(outbox.answered(header(-2, 0), &[]));
        assert!(outbox.answered(header(2, -101), &[]));
        assert!(!outbox.answered(header(3, 0), &[]) && outbox.waiting_since().is_none());
        assert!(matches!(pollster(one.answer()), Ok(())));
        assert!(matches!(pollster(ping.answer()), Ok(())));
        assert!(matches!(pollster(two.answer()), Err(Failed::Refused(Code::NO_NODE))));
    }

    #[test]
    fn a_dropped_request_is_not_written_and_an_unwritten_one_is_unsent() {
        let outbox = Outbox::new(Arc::default());
        drop(delete(&outbox));
        assert!(outbox.take(Instant::from_nanos(1)).is_empty());
        let written = outbox.send(&Children { path: "/a", watch: false }, &Zero);
        assert!(!outbox.take(Instant::from_nanos(1)).is_empty());
        let waiting = delete(&outbox);
        outbox.close();
        assert!(matches!(pollster(written.answer()), Err(Failed::Unanswered)));
        assert!(matches!(pollster(waiting.answer()), Err(Failed::Unsent)));
        assert!(matches!(pollster(delete(&outbox).answer()), Err(Failed::Unsent)));
    }

    fn pollster<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }
}
