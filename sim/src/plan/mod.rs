//! The plan of a run, as data: the operations of every client, and the faults. It is drawn from a seed, and can be
//! reduced until only the parts that matter for a failure are left.

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
    /// Like Redis: one connection that keeps the order, grants are pushed and dated by the server's clock, tokens come
    /// in blocks.
    Push,
    /// Like a server with watches: requests may overtake each other, and a granted waiter gets a hint and asks.
    Watch,
    /// Like a table of rows: requests may overtake each other, and there are no notifications.
    Poll,
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides the delays, and the order of tasks that could run at the same time.
    pub(crate) seed: u64,
    /// The protocol of the server.
    pub(crate) protocol: Protocol,
    /// A deliberate mistake of the server or the client library.
    pub(crate) bug: Option<Bug>,
    /// Whether the owner of every request is the id of its attempt, so that the server's state can be attributed to
    /// attempts. Then nothing is handed over within a client.
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

/// What a server still promises under the faults of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// I1 and its consequences. Broken by a server that loses acknowledged writes, by a clock of the server that is set
    /// forward, by a client clock that is slower by more than a hundredth, and by an operator who breaks a hold by
    /// force.
    pub(crate) exclusion: bool,
    /// I2. A client clock that is too slow cannot keep it.
    pub(crate) deadlines: bool,
    /// No token is granted twice. A server that loses acknowledged writes, and whose clock was set back as well, may
    /// grant a token twice.
    pub(crate) new_tokens: bool,
    /// I4. A process hands a hold over, with its older tokens, until it learns that the hold has ended.
    pub(crate) tokens: bool,
    /// No clock runs ahead, or seems to because answers overtook each other: so there is no reason to doubt a hold that
    /// is not lost.
    pub(crate) no_doubt: bool,
    /// Whether the plan has no faults: then no waiter is overtaken, and no claim waits for a free lock.
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

    /// The longest lease.
    #[must_use]
    pub(crate) fn longest_lease(&self) -> Duration {
        self.acquisitions().map(|op| op.ttl).max().unwrap_or_default()
    }

    /// The shortest lease.
    #[must_use]
    pub(crate) fn shortest_lease(&self) -> Duration {
        self.acquisitions().map(|op| op.ttl).min().unwrap_or_default()
    }

    /// The longest time from a disturbance until everything is in order again: lost requests are sent again, holds
    /// without renewals lapse, and claims that do not ask are passed over.
    #[must_use]
    pub(crate) fn recovery(&self) -> Duration {
        self.longest_lease() * 2 + Duration::from_secs(8)
    }

    /// Whether a client is stopped in a way that makes a timer late: its machine is suspended, or it is stopped between
    /// reading the clock and the sleep that it computed from the reading.
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

    /// For how long clients are stopped in the middle of a step, in all.
    pub(crate) fn stops_in_steps(&self) -> Duration {
        let length = |fault: &Fault| match *fault {
            Fault::StopAtReading { length, .. } => length,
            _ => Duration::ZERO,
        };
        self.faults.iter().map(length).sum()
    }

    /// For how long clients are stopped, in all.
    pub(crate) fn stops(&self) -> Duration {
        let length = |fault: &Fault| match *fault {
            Fault::Stop { length, .. } | Fault::StopAtReading { length, .. } => length,
            _ => Duration::ZERO,
        };
        self.faults.iter().map(length).sum()
    }

    /// Whether the engine names groups of holds to be renewed together. Few runs have them, so most seeds run as they
    /// did before groups existed.
    pub(crate) const fn groups(&self) -> bool {
        self.seed % 12 == 7
    }

    /// Whether an operator ends a hold by force.
    fn forces(&self) -> bool {
        self.acquisitions().any(|op| op.breaks == Some(Breaking::Forced))
    }

    /// Whether an operator ends a hold in any way. Histories do not record that.
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
