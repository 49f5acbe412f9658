//! The boot-time clock of a client. It has its own rate and runs on while the client is paused. The plan can pause the
//! client when it reads the clock.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Clock, Instant};
use leasehold_testkit::history::What;

use crate::{
    journal::Journal,
    scheduler::{Group, Moment, Scheduler, Sleeps},
};

/// The rate of the world's clock, in millionths.
const MILLION: u128 = 1_000_000;

/// The clock of one client.
pub(crate) struct ClientClock {
    journal: Arc<Journal>,
    group: Group,
    /// The reading of this clock when the world's clock reads zero.
    boot: Duration,
    /// How many millionths of a second this clock advances in a second of the world.
    rate: u128,
}

impl ClientClock {
    /// A clock that runs faster than the world's clock by `fast` millionths.
    #[must_use]
    pub(crate) fn new(journal: Arc<Journal>, group: Group, boot: Duration, fast: i64) -> Self {
        Self { journal, group, boot, rate: MILLION.saturating_add_signed(fast.into()) }
    }

    /// How much of the world's time passes while this clock advances by `own_time`.
    #[must_use]
    pub(crate) fn in_world(&self, own_time: Duration) -> Duration {
        Duration::from_nanos(u64::try_from(own_time.as_nanos() * MILLION / self.rate).unwrap_or(u64::MAX))
    }

    /// Pauses the client here for `length`, in the middle of its step, while the rest of the world goes on.
    fn suspend(&self, length: Duration) {
        let scheduler = self.journal.scheduler();
        let victim = self.group.number();
        let until = scheduler.now().after(length);
        if scheduler.stop(self.group, length, Sleeps::GoOn) {
            self.journal.fault("client stopped in a step");
            self.journal.note("", What::Stop { victim });
            scheduler.run(until);
            scheduler.cont(self.group);
            self.journal.note("", What::Cont { victim });
        }
    }

    /// The reading of this clock at the present time of the world.
    fn read(&self) -> Instant {
        let world = self.scheduler().now().as_nanos();
        let own_time = u64::try_from(u128::from(world) * self.rate / MILLION).unwrap_or(u64::MAX);
        Instant::from_nanos(own_time).after(self.boot)
    }

    fn scheduler(&self) -> &Arc<Scheduler> {
        self.journal.scheduler()
    }
}

impl Clock for ClientClock {
    fn now(&self) -> Instant {
        match self.scheduler().read(self.group) {
            None => self.read(),
            Some((length, Moment::Before)) => {
                self.suspend(length);
                self.read()
            }
            Some((length, Moment::After)) => {
                let read = self.read();
                self.suspend(length);
                read
            }
        }
    }
}
