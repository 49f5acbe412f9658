//! The plan of a run, as data: the operations of every client, and the faults. A plan is drawn from a seed. It can be
//! reduced until only the parts are left that matter for a failure.

mod client;
mod draw;
mod fault;
mod op;
mod show;

use std::time::Duration;

use leasehold_core::Mode;

pub(crate) use client::ClientPlan;
pub(crate) use fault::{Direction, Fate, Fault};
pub(crate) use op::{Breaking, End, Op, Patience};

use crate::{
    bug::Bug,
    rng::Rng,
    scheduler::{Moment, Sleeps},
};

/// The protocol of the modelled server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Like Redis: one connection that keeps the order of messages; grants are pushed, with the time of the server's
    /// clock; tokens come in blocks.
    Push,
    /// Like a server with watches: requests may overtake each other; a waiter that is granted gets a hint and asks.
    Watch,
    /// Like a table of rows: requests may overtake each other, and there are no notifications.
    Poll,
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed for the delays, and for the order of tasks that could run at the same time.
    pub(crate) seed: u64,
    /// The protocol of the server.
    pub(crate) protocol: Protocol,
    /// A deliberate mistake of the server or the client library.
    pub(crate) bug: Option<Bug>,
    /// Whether the owner of every request is the id of its attempt, so that the server's claims can be matched with
    /// attempts. If so, no hold is handed over within a client, because the owners differ.
    pub(crate) named: bool,
    /// The least and the largest delay of a message.
    pub(crate) delay: (Duration, Duration),
    /// The interval between two looks at the server's state.
    pub(crate) truth_interval: Duration,
    /// The locks.
    pub(crate) locks: Vec<Lock>,
    /// The clients.
    pub(crate) clients: Vec<ClientPlan>,
    /// The faults.
    pub(crate) faults: Vec<Fault>,
}

/// A name, and what kind of lock it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock {
    /// The name.
    pub(crate) name: &'static str,
    /// The number of permits of a semaphore. `None`: a read-write lock.
    pub(crate) limit: Option<u32>,
}

/// What a server still promises under the faults of a plan. A field is true if the promise holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// I1 (exclusion) and its consequences. The promise ends if the server loses acknowledged writes, if the server's
    /// clock is set forward, if a client's clock is slower by more than a hundredth, or if an operator breaks a hold by
    /// force.
    pub(crate) exclusion: bool,
    /// I2 (honest deadlines). A client whose clock is too slow cannot keep this promise.
    pub(crate) deadlines: bool,
    /// No token is granted twice. If the server loses acknowledged writes and its clock is set back as well, it may
    /// grant a token twice.
    pub(crate) new_tokens: bool,
    /// I4 (growing tokens). It needs `new_tokens`, and either exclusion or named requests. Otherwise a process that has
    /// not learned yet that its hold has ended can hand the hold over, with tokens that are older than those of the
    /// next hold.
    pub(crate) tokens: bool,
    /// No clock runs ahead, and none seems to run ahead because answers overtook each other. So there is no reason to
    /// doubt a hold that is not lost.
    pub(crate) no_doubt: bool,
    /// Whether the plan has no faults and all clients start at the begin of the run. If so, no waiter is overtaken, and
    /// no claim waits while the lock is free.
    pub(crate) calm: bool,
}

impl Plan {
    /// The plan of this seed, with `ops` acquisitions.
    #[must_use]
    pub fn draw(seed: u64, ops: usize, bug: Option<Bug>) -> Self {
        draw::plan(Rng::of(&[seed, u64::from_be_bytes(*b"  a plan")]), seed, ops, bug)
    }

    /// The number of acquisitions.
    #[must_use]
    pub fn ops(&self) -> usize {
        self.acquisitions().count()
    }

    /// The longest lease that an acquisition asks for.
    #[must_use]
    pub(crate) fn longest_lease(&self) -> Duration {
        self.acquisitions().map(|op| op.ttl).max().unwrap_or_default()
    }

    /// The shortest lease that an acquisition asks for.
    #[must_use]
    pub(crate) fn shortest_lease(&self) -> Duration {
        self.acquisitions().map(|op| op.ttl).min().unwrap_or_default()
    }

    /// The longest time from the end of a disturbance until it has no effect any more: lost requests have been sent
    /// again, holds without renewals have lapsed, and claims that do not ask have been passed over.
    #[must_use]
    pub(crate) fn recovery(&self) -> Duration {
        self.longest_lease() * 2 + Duration::from_secs(8)
    }

    /// Whether a client is paused in a way that makes a timer late: the client's machine is suspended, or the client
    /// is paused after it read the clock and before it begins the sleep that it computed from this reading.
    pub(crate) fn delays_timers(&self) -> bool {
        let delays = |fault: &Fault| {
            matches!(
                fault,
                Fault::Stop { sleeps: Sleeps::Suspend, .. }
                    | Fault::StopAtReading { moment: Moment::After, .. }
            )
        };
        self.faults.iter().any(delays)
    }

    /// The total time for which clients are paused in the middle of a step.
    pub(crate) fn stops_in_steps(&self) -> Duration {
        let length = |fault: &Fault| match *fault {
            Fault::StopAtReading { length, .. } => length,
            _ => Duration::ZERO,
        };
        self.faults.iter().map(length).sum()
    }

    /// The total time for which clients are paused.
    pub(crate) fn stops(&self) -> Duration {
        let length = |fault: &Fault| match *fault {
            Fault::Stop { length, .. } | Fault::StopAtReading { length, .. } => length,
            _ => Duration::ZERO,
        };
        self.faults.iter().map(length).sum()
    }

    /// Whether the engine names groups of holds that are to be renewed together. Few plans have groups, so that most
    /// seeds still give the same runs as in versions of the simulation without groups.
    pub(crate) const fn groups(&self) -> bool {
        self.seed % 12 == 7
    }

    /// Whether an operator breaks a hold by force.
    fn forces(&self) -> bool {
        self.acquisitions().any(|op| op.breaks == Some(Breaking::Forced))
    }

    /// Whether an operator breaks a hold, by force or not. Histories do not record breaks.
    pub(crate) fn breaks(&self) -> bool {
        self.acquisitions().any(|op| op.breaks.is_some())
    }

    /// All acquisitions.
    fn acquisitions(&self) -> impl Iterator<Item = &Op> {
        self.clients.iter().flat_map(|client| client.tasks.iter().flatten())
    }

    /// Whether a release has a minimum hold time (`release_at_least`).
    pub(crate) fn has_min_holds(&self) -> bool {
        self.acquisitions().any(|op| matches!(op.end, End::MinHold(_)))
    }

    /// Whether the server loses acknowledged writes.
    pub(crate) fn forgets(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::Failover { .. }))
    }

    /// Whether the server's clock is set back.
    pub(crate) fn sets_back(&self) -> bool {
        self.faults.iter().any(|fault| fault.sets_clock() < 0)
    }

    /// The promises that a run of this plan has to keep.
    #[must_use]
    pub(crate) fn promise(&self) -> Promise {
        let forgets = self.forgets();
        let ahead = self.faults.iter().any(|fault| fault.sets_clock() > 0);
        let slow = self.clients.iter().any(|client| client.is_too_slow());
        let new_tokens = !(forgets && self.sets_back());
        let exclusion = !(forgets || ahead || slow || self.forces());
        Promise {
            exclusion,
            deadlines: !slow,
            new_tokens,
            tokens: new_tokens && (exclusion || self.named),
            no_doubt: !(ahead || slow || self.sets_back() && self.protocol != Protocol::Push),
            calm: self.faults.is_empty() && self.clients.iter().all(|client| client.starts.is_zero()),
        }
    }
}

impl Lock {
    /// The mode of an acquisition: `want` chooses among the modes of this lock.
    #[must_use]
    pub(crate) fn mode(&self, want: u32) -> Mode {
        match self.limit {
            Some(limit) => Mode::Permits { count: 1 + want % limit, limit },
            None if want % 3 == 2 => Mode::Shared,
            None => Mode::Exclusive,
        }
    }
}
