//! The resources that the locks protect: for each lock a list with a fence and a list without one. A holder reads a
//! list and writes it back with one more element.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    rng::Rng,
    scheduler::{Group, Scheduler},
    tally::Updates,
};

/// The percentage of messages to the resource that are slow.
const SLOW_PERCENT: u64 = 8;
/// The largest delay of a slow message.
const SLOW_DELAY: Duration = Duration::from_millis(900);

/// The resources of all locks.
pub(crate) struct Resources {
    scheduler: Arc<Scheduler>,
    seed: u64,
    /// The least and the largest delay of a message that is not slow.
    delay: (Duration, Duration),
    inner: Mutex<ResourceState>,
}

/// The state of all resources.
#[derive(Default)]
struct ResourceState {
    /// How many requests to the lists were sent.
    visits: u64,
    by_lock: BTreeMap<&'static str, Lists>,
}

/// The two lists of one lock.
#[derive(Default)]
pub(crate) struct Lists {
    /// The list with a fence, which refuses a token that is smaller than the largest it has seen.
    pub(crate) fenced: List,
    /// The list without a fence, which accepts every write.
    pub(crate) unfenced: List,
    /// The largest token that the fence has seen.
    largest_token: u64,
}

/// A list.
#[derive(Default)]
pub(crate) struct List {
    elements: Vec<u64>,
    acknowledged: BTreeSet<u64>,
    refused: u64,
}

/// The error of a fence that refuses a token, because it has seen the larger token of a later holder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overtaken;

impl Resources {
    /// Empty resources. `delay` has the least and the largest delay of a message, as for messages to the server.
    #[must_use]
    pub(crate) fn new(scheduler: Arc<Scheduler>, seed: u64, delay: (Duration, Duration)) -> Self {
        Self { scheduler, seed, delay, inner: Mutex::default() }
    }

    /// Sends a request to the lists of a lock. The request arrives even if its sender is killed after it was sent.
    pub(crate) async fn visit<T: Send + 'static>(
        self: &Arc<Self>,
        from: Group,
        lock: &'static str,
        request: impl FnOnce(&mut Lists) -> T + Send + 'static,
    ) -> T {
        let (answer, answered) = oneshot::channel();
        if !self.scheduler.is_alive(from) {
            // A killed process may still finish its present step. What this step sends reaches no other process.
            return std::future::pending().await;
        }
        let (request_delay, reply_delay) = self.delays();
        let resources = Arc::clone(self);
        self.scheduler.at(self.scheduler.now().after(request_delay), move || {
            let reply = request(resources.lock().by_lock.entry(lock).or_default());
            let at = resources.scheduler.now().after(reply_delay);
            resources.scheduler.at(at, move || drop(answer.send(reply)));
        });
        match answered.await {
            Ok(reply) => reply,
            // The run has ended, so no answer comes.
            Err(_) => std::future::pending().await,
        }
    }

    /// Records that the writer of an element got the acknowledgement.
    pub(crate) fn acknowledge(
        &self,
        lock: &'static str,
        list: impl FnOnce(&mut Lists) -> &mut List,
        element: u64,
    ) {
        list(self.lock().by_lock.entry(lock).or_default()).acknowledged.insert(element);
    }

    /// The counts of the updates of all locks: first of the fenced lists, then of the unfenced lists.
    #[must_use]
    pub(crate) fn updates(&self) -> (Updates, Updates) {
        let mut all = (Updates::default(), Updates::default());
        for lists in self.lock().by_lock.values() {
            lists.fenced.count(&mut all.0);
            lists.unfenced.count(&mut all.1);
        }
        all
    }

    /// The delays of the next request and of its reply.
    fn delays(&self) -> (Duration, Duration) {
        let mut inner = self.lock();
        inner.visits += 1;
        let mut rng = Rng::of(&[self.seed, u64::from_be_bytes(*b"resource"), inner.visits]);
        let mut delay = || {
            let most = if rng.percent(SLOW_PERCENT) { SLOW_DELAY } else { self.delay.1 };
            Duration::from_nanos(rng.among(self.delay.0.as_nanos() as u64..=most.as_nanos() as u64))
        };
        (delay(), delay())
    }

    fn lock(&self) -> MutexGuard<'_, ResourceState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lists {
    /// Shows the fence a token before the first read, so that no earlier holder changes the list after the read.
    ///
    /// # Errors
    /// The fence has seen a larger token.
    pub(crate) fn seal(&mut self, token: u64) -> Result<Vec<u64>, Overtaken> {
        if token < self.largest_token {
            self.fenced.refused += 1;
            return Err(Overtaken);
        }
        self.largest_token = token;
        Ok(self.fenced.elements.clone())
    }

    /// Replaces the fenced list.
    ///
    /// # Errors
    /// The fence has seen a larger token.
    pub(crate) fn write_fenced(&mut self, token: u64, elements: Vec<u64>) -> Result<(), Overtaken> {
        self.seal(token)?;
        self.fenced.elements = elements;
        Ok(())
    }
}

impl List {
    /// The elements of the list.
    #[must_use]
    pub(crate) fn read(&self) -> Vec<u64> {
        self.elements.clone()
    }

    /// Replaces the list.
    pub(crate) fn write(&mut self, elements: Vec<u64>) {
        self.elements = elements;
    }

    fn count(&self, updates: &mut Updates) {
        let present: BTreeSet<u64> = self.elements.iter().copied().collect();
        updates.acknowledged += self.acknowledged.len() as u64;
        updates.lost += self.acknowledged.difference(&present).count() as u64;
        updates.refused += self.refused;
    }
}
