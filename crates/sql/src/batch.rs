//! Combines the requests of many callers into one statement: while one statement runs, requests for the next one
//! collect.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::oneshot;

use crate::{database::Failed, runtime};

/// The maximum number of requests in one statement.
const MOST: usize = 256;
/// How many statements run at once: while one waits for the disk, the server works on another.
const AT_ONCE: usize = 2;

/// Collects requests, each about one name.
pub(crate) struct Batch<Q, A>(Mutex<Inner<Q, A>>);

struct Inner<Q, A> {
    waiting: VecDeque<(Q, oneshot::Sender<Result<A, Failed>>)>,
    under_way: usize,
}

impl<Q, A> Default for Batch<Q, A> {
    fn default() -> Self {
        Self(Mutex::new(Inner { waiting: VecDeque::new(), under_way: 0 }))
    }
}

impl<Q: Send + 'static, A: Send + 'static> Batch<Q, A> {
    /// The answer to one request. `run` answers many, in order; requests with the same `key` may not share a
    /// statement.
    pub(crate) async fn ask<K, F>(
        self: &Arc<Self>,
        question: Q,
        key: fn(&Q) -> K,
        run: impl Fn(Vec<Q>) -> F + Send + Sync + 'static,
    ) -> Result<A, Failed>
    where
        K: Ord + Send + 'static,
        F: Future<Output = Result<Vec<A>, Failed>> + Send + 'static,
    {
        let (tx, rx) = oneshot::channel();
        let begins = {
            let mut inner = self.lock();
            inner.waiting.push_back((question, tx));
            let begins = inner.under_way < AT_ONCE;
            inner.under_way += usize::from(begins);
            begins
        };
        if begins {
            runtime::spawn(Worker { batch: Arc::clone(self), counted: true }.run(key, run));
        }
        rx.await.unwrap_or_else(|_| {
            Err(Failed::new(leasehold_core::Fault::Unknown, "the statement was abandoned"))
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner<Q, A>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next requests for one statement, sorted by their keys; empty: this worker is done.
    fn next<K: Ord>(&self, key: fn(&Q) -> K) -> Vec<(Q, oneshot::Sender<Result<A, Failed>>)> {
        let mut inner = self.lock();
        let mut next: Vec<(Q, _)> = Vec::new();
        let mut rest = VecDeque::new();
        let mut keys = std::collections::BTreeSet::new();
        // A request without a waiting caller may have been released since.
        inner.waiting.retain(|(_, reply)| !reply.is_closed());
        while let Some((question, reply)) = inner.waiting.pop_front() {
            if next.len() == MOST || !keys.insert(key(&question)) {
                rest.push_back((question, reply));
                if next.len() == MOST {
                    break;
                }
            } else {
                next.push((question, reply));
            }
        }
        rest.append(&mut inner.waiting);
        inner.waiting = rest;
        // Under the lock, so that a later request starts a new worker.
        inner.under_way -= usize::from(next.is_empty());
        drop(inner);
        next.sort_by_key(|(question, _)| key(question));
        next
    }
}

/// Runs statements until no request waits. However it ends, another worker may start.
struct Worker<Q: Send + 'static, A: Send + 'static> {
    batch: Arc<Batch<Q, A>>,
    counted: bool,
}

impl<Q: Send + 'static, A: Send + 'static> Worker<Q, A> {
    async fn run<K, F>(mut self, key: fn(&Q) -> K, run: impl Fn(Vec<Q>) -> F + Send + Sync)
    where
        K: Ord + Send,
        F: Future<Output = Result<Vec<A>, Failed>> + Send,
    {
        loop {
            let (questions, replies): (Vec<Q>, Vec<_>) = self.batch.next(key).into_iter().unzip();
            if questions.is_empty() {
                self.counted = false;
                return;
            }
            match run(questions).await {
                Ok(answers) => {
                    for (reply, answer) in replies.into_iter().zip(answers) {
                        let _ = reply.send(Ok(answer));
                    }
                }
                Err(failed) => {
                    for reply in replies {
                        let _ = reply.send(Err(failed.clone()));
                    }
                }
            }
        }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Drop for Worker<Q, A> {
    fn drop(&mut self) {
        self.batch.lock().under_way -= usize::from(self.counted);
    }
}
