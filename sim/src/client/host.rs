//! The runtime of a client's keeper, and the source of its random numbers.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leasehold_core::{BoxFuture, Entropy, Runtime};

use super::ClientClock;
use crate::{
    rng::Rng,
    scheduler::{Group, Scheduler, Sleep},
};

/// One client process. Its tasks run in its group, and its sleeps follow its clock.
#[derive(Clone)]
pub(crate) struct Host {
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) group: Group,
    pub(super) clock: Arc<ClientClock>,
}

impl Host {
    /// The process of a group.
    #[must_use]
    pub(crate) const fn new(scheduler: Arc<Scheduler>, group: Group, clock: Arc<ClientClock>) -> Self {
        Self { scheduler, group, clock }
    }

    /// Runs a task of this process.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.scheduler.spawn(self.group, Box::pin(task));
    }

    /// How much of the world's time passes while this process's clock advances by `own`.
    #[must_use]
    pub(crate) fn in_world(&self, own: Duration) -> Duration {
        self.clock.in_world(own)
    }

    /// Sleeps for `length` by the clock of this process.
    pub(crate) fn nap(&self, length: Duration) -> Sleep {
        self.scheduler.sleep(self.group, self.in_world(length))
    }
}

impl Runtime for Host {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.scheduler.spawn(self.group, task);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(self.nap(duration))
    }
}

/// The random numbers of a client.
pub(crate) struct ClientRng(Mutex<Rng>);

impl ClientRng {
    /// The random numbers of the client with this group, in the world of this seed.
    #[must_use]
    pub(crate) fn new(seed: u64, group: Group) -> Self {
        Self(Mutex::new(Rng::of(&[seed, group.number().into(), u64::from_be_bytes(*b" entropy")])))
    }
}

impl Entropy for ClientRng {
    fn fill(&self, buf: &mut [u8]) {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for bytes in buf.chunks_mut(8) {
            bytes.copy_from_slice(&rng.next().to_le_bytes()[..bytes.len()]);
        }
    }
}
