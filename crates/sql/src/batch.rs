//! Combines the requests of many callers into one statement: a request that arrives while as many statements run as are
//! allowed has to wait, and shares the next statement with the other waiting requests.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::oneshot;

use crate::{database::Failed, runtime};

/// The maximum number of requests in one statement.
const MAX_REQUESTS: usize = 256;
/// How many statements of one batch run at the same time: while one waits for the disk, the server works on another.
const MAX_STATEMENTS: usize = 2;

/// Collects requests (`Q`), each about one name, and runs them together; each request gets its own answer (`A`).
pub(crate) struct Batch<Q, A>(Mutex<Inner<Q, A>>);

struct Inner<Q, A> {
    /// The requests that no worker has taken yet, each with the channel for its answer.
    waiting: VecDeque<(Q, oneshot::Sender<Result<A, Failed>>)>,
    /// How many workers run; each executes one statement at a time.
    workers: usize,
}

impl<Q, A> Default for Batch<Q, A> {
    fn default() -> Self {
        Self(Mutex::new(Inner { waiting: VecDeque::new(), workers: 0 }))
    }
}

impl<Q: Send + 'static, A: Send + 'static> Batch<Q, A> {
    /// Adds a request and waits for its answer. `execute` runs one statement for many requests, and returns the answers
    /// in the order of the requests. Requests with the same `key` never share a statement.
    pub(crate) async fn ask<K, F>(
        self: &Arc<Self>,
        request: Q,
        key: fn(&Q) -> K,
        execute: impl Fn(Vec<Q>) -> F + Send + Sync + 'static,
    ) -> Result<A, Failed>
    where
        K: Ord + Send + 'static,
        F: Future<Output = Result<Vec<A>, Failed>> + Send + 'static,
    {
        let (tx, rx) = oneshot::channel();
        let starts_worker = {
            let mut inner = self.lock();
            inner.waiting.push_back((request, tx));
            let starts_worker = inner.workers < MAX_STATEMENTS;
            inner.workers += usize::from(starts_worker);
            starts_worker
        };
        if starts_worker {
            runtime::spawn(Worker { batch: Arc::clone(self), counted: true }.run(key, execute));
        }
        rx.await.unwrap_or_else(|_| {
            Err(Failed::new(leasehold_core::Fault::Unknown, "the statement was abandoned"))
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner<Q, A>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the requests for the next statement out of the queue, sorted by their keys. If no request waits, returns
    /// an empty list and no longer counts the calling worker, which must then end.
    fn take_next<K: Ord>(&self, key: fn(&Q) -> K) -> Vec<(Q, oneshot::Sender<Result<A, Failed>>)> {
        let mut inner = self.lock();
        let mut next_requests: Vec<(Q, _)> = Vec::new();
        let mut postponed = VecDeque::new();
        let mut keys = std::collections::BTreeSet::new();
        // Drops requests whose caller has gone: the claim of such a request may have been released since.
        inner.waiting.retain(|(_, reply_sender)| !reply_sender.is_closed());
        while let Some((request, reply_sender)) = inner.waiting.pop_front() {
            if next_requests.len() == MAX_REQUESTS || !keys.insert(key(&request)) {
                postponed.push_back((request, reply_sender));
                if next_requests.len() == MAX_REQUESTS {
                    break;
                }
            } else {
                next_requests.push((request, reply_sender));
            }
        }
        postponed.append(&mut inner.waiting);
        inner.waiting = postponed;
        // Counted down under the lock, so that a later request starts a new worker.
        inner.workers -= usize::from(next_requests.is_empty());
        drop(inner);
        next_requests.sort_by_key(|(request, _)| key(request));
        next_requests
    }
}

/// Runs statements until no request waits. Dropping the worker, also after a panic, removes it from [`Inner::workers`],
/// so that another worker can start.
struct Worker<Q: Send + 'static, A: Send + 'static> {
    batch: Arc<Batch<Q, A>>,
    /// Whether this worker is part of [`Inner::workers`].
    counted: bool,
}

impl<Q: Send + 'static, A: Send + 'static> Worker<Q, A> {
    async fn run<K, F>(mut self, key: fn(&Q) -> K, execute: impl Fn(Vec<Q>) -> F + Send + Sync)
    where
        K: Ord + Send,
        F: Future<Output = Result<Vec<A>, Failed>> + Send,
    {
        loop {
            let (requests, reply_senders): (Vec<Q>, Vec<_>) = self.batch.take_next(key).into_iter().unzip();
            if requests.is_empty() {
                self.counted = false;
                return;
            }
            match execute(requests).await {
                Ok(answers) => {
                    for (reply_sender, answer) in reply_senders.into_iter().zip(answers) {
                        let _ = reply_sender.send(Ok(answer));
                    }
                }
                Err(failed) => {
                    for reply_sender in reply_senders {
                        let _ = reply_sender.send(Err(failed.clone()));
                    }
                }
            }
        }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Drop for Worker<Q, A> {
    fn drop(&mut self) {
        self.batch.lock().workers -= usize::from(self.counted);
    }
}
