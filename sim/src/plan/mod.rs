//! What happens in a run, as data: who does what, and what goes wrong. Drawn from a seed, and small enough to be taken apart
//! until only what matters for a failure is left.

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

/// How the modelled server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// As Redis: one connection that keeps the order, grants are pushed and dated by the server's clock, tokens in blocks.
    Push,
    /// As a server of watches: requests may overtake each other, who is granted is rung and asks.
    Watch,
    /// As a table of rows: requests may overtake each other, and nothing is ever told.
    Poll,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides delays and the order of whatever could go on at one time.
    pub(crate) seed: u64,
    /// How the server speaks.
    pub(crate) manner: Manner,
    /// What is wrong with it, on purpose.
    pub(crate) bug: Option<Bug>,
    /// Every request says whose it is, so that the server's state can be told apart; then nothing is handed on inside a client.
    pub(crate) named: bool,
    /// How long a message is on its way.
    pub(crate) delay: (Duration, Duration),
    /// How often the truth is looked at.
    pub(crate) look: Duration,
    /// What is locked.
    pub(crate) locks: Vec<Lock>,
    /// Who locks it.
    pub(crate) clients: Vec<ClientPlan>,
    /// What goes wrong.
    pub(crate) faults: Vec<Fault>,
}

/// A name, and what kind of lock it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock {
    /// The name.
    pub(crate) name: &'static str,
    /// Of how many permits it is the semaphore; `None`: a read-write lock.
    pub(crate) limit: Option<u32>,
}

/// What a server that is treated like this promises still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// I1 and what follows from it. Broken by a server that loses what it acknowledged, whose clock is set forward, or
    /// against which a client's clock is slower than by a hundredth; and by an operator's force.
    pub(crate) exclusion: bool,
    /// I2. A clock that is too slow cannot be honest.
    pub(crate) deadlines: bool,
    /// No token is minted twice. A server that loses what it acknowledged, and whose clock was set back as well, may do so.
    pub(crate) new_tokens: bool,
    /// I4. A process hands a hold on, with its older tokens, until it hears that the hold ended.
    pub(crate) tokens: bool,
    /// No clock runs ahead, or seems to because answers overtook each other: nobody has a reason to doubt a hold that is not
    /// lost.
    pub(crate) no_doubt: bool,
    /// Nothing goes wrong at all: then nobody is overtaken, and nobody waits beside a free lock.
    pub(crate) calm: bool,
}

impl Plan {
    /// The plan of this seed, with `ops` acquisitions.
    #[must_use]
    pub fn draw(seed: u64, ops: usize, bug: Option<Bug>) -> Self {
        draw::plan(Rng::of(&[seed, u64::from_be_bytes(*b"  a plan")]), seed, ops, bug)
    }

    /// How many acquisitions there are.
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

    /// How long it takes after a disturbance, at most, until all is in order again: what was lost is asked for anew, what
    /// nobody renews lapses, and whoever does not speak is passed over.
    #[must_use]
    pub(crate) fn recovery(&self) -> Duration {
        self.longest_lease() * 2 + Duration::from_secs(8)
    }

    /// Whether a client is stopped in a way that makes a timer late: its machine is suspended, or it is stopped after it
    /// read the clock and before it sleeps for what was left then.
    pub(crate) fn delays_timers(&self) -> bool {
        let delays = |fault: &Fault| {
            matches!(
                fault,
                Fault::Stop { sleeps: Sleeps::Stand, .. }
                    | Fault::StopAtReading { moment: Moment::After, .. }
            )
        };
        self.faults.iter().any(delays)
    }

    /// For how long clients are stopped in the middle of what they do, in all.
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

    /// Whether the engine says which holds are best renewed together. In few runs, so that most seeds tell what they told before.
    pub(crate) const fn groups(&self) -> bool {
        self.seed % 12 == 7
    }

    /// Whether an operator ends a hold by force.
    fn forces(&self) -> bool {
        self.acquisitions().any(|op| op.breaks == Some(Breaking::Forced))
    }

    /// Whether an operator ends a hold in any way: histories do not tell.
    pub(crate) fn breaks(&self) -> bool {
        self.acquisitions().any(|op| op.breaks.is_some())
    }

    fn acquisitions(&self) -> impl Iterator<Item = &Op> {
        self.clients.iter().flat_map(|client| client.tasks.iter().flatten())
    }

    /// Whether a name is kept taken by nobody.
    pub(crate) fn keeps(&self) -> bool {
        self.acquisitions().any(|op| matches!(op.end, End::Keep(_)))
    }

    /// Whether the server forgets what it acknowledged.
    pub(crate) fn forgets(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::Failover { .. }))
    }

    /// Whether the server's clock is set back.
    pub(crate) fn sets_back(&self) -> bool {
        self.faults.iter().any(|fault| fault.sets_clock() < 0)
    }

    /// What can be asked of such a run.
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
            no_doubt: !(ahead || slow || self.sets_back() && self.manner != Manner::Push),
            calm: self.faults.is_empty() && self.clients.iter().all(|client| client.starts.is_zero()),
        }
    }
}

impl Lock {
    /// The mode of an acquisition: `want` chooses among those that this lock has.
    #[must_use]
    pub(crate) fn mode(&self, want: u32) -> Mode {
        match self.limit {
            Some(limit) => Mode::Permits { count: 1 + want % limit, limit },
            None if want % 3 == 2 => Mode::Shared,
            None => Mode::Exclusive,
        }
    }
}
