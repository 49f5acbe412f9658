//! What is modelled: who meets, how long things take, what may go wrong.

use crate::Bug;

/// The smallest time there is: all clocks tick together.
pub(crate) type Ticks = u8;

/// The rules of one world. All times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// So many clients make a claim each.
    pub(crate) clients: u8,
    /// So often another program takes the name by its plain token lock.
    pub(crate) foreign: u8,
    /// The lease of a hold that its client knows of, and of the other program.
    pub(crate) ttl: Ticks,
    /// How long a pushed grant lasts until its client speaks.
    pub(crate) claim_time: Ticks,
    /// The lease of a place in line.
    pub(crate) place: Ticks,
    /// How long a request on a broken connection may still arrive, and a tombstone stands.
    pub(crate) request_life: Ticks,
    /// How long a waiter asks nothing without news.
    pub(crate) poll: Ticks,
    /// Whether holders may renew.
    pub(crate) renews: bool,
    /// What holders do.
    pub(crate) section: Section,
    /// Whether every step may take any time. If not, time passes only when there is nothing to send, to serve or to hear.
    pub(crate) slow: bool,
    /// Whether the server may be late to notice that a connection broke.
    pub(crate) half_open: bool,
    /// What may go wrong.
    pub(crate) faults: Faults,
    /// Worlds with more grants are not looked at.
    pub(crate) most_grants: u8,
    /// What is wrong on purpose.
    pub(crate) bugs: &'static [Bug],
}

/// How often something may go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// A client gives up waiting.
    pub(crate) cancels: u8,
    /// A client waits no longer for an answer.
    pub(crate) timeouts: u8,
    /// A connection breaks.
    pub(crate) breaks: u8,
    /// A pushed grant is lost on a connection that stands.
    pub(crate) losses: u8,
    /// A client that waits dies.
    pub(crate) dead_waiters: u8,
    /// A client that holds dies.
    pub(crate) dead_holders: u8,
}

/// What a holder does with the resource under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// Nothing.
    Empty,
    /// Reads, checks that it still holds, writes what follows from what it read.
    Unfenced,
    /// The same, and the resource refuses a write with a smaller token than one that wrote before.
    Fenced,
    /// Before it reads it also shows its token, so that smaller ones are refused from then on.
    Sealed,
}

impl Rules {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bugs.contains(&bug)
    }

    /// I7: for how long at most a live client waits while nobody holds who knows, where nothing is slow: until the leases of
    /// the dead have lapsed, and until somebody asks after what nobody tells.
    pub(crate) fn patience(&self) -> Ticks {
        let Faults { dead_holders, dead_waiters, losses, .. } = self.faults;
        let silent = if self.half_open { dead_waiters * self.claim_time } else { 0 };
        dead_holders * self.ttl + silent + (losses + self.foreign) * self.poll
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + use<> {
        (0..self.clients).map(Id)
    }
}

/// A client, and the id of its one claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(pub(crate) u8);

/// The most clients of a world.
pub(crate) const MOST_CLIENTS: usize = 3;

/// One of something for each client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Each<T>([T; MOST_CLIENTS]);

impl<T> std::ops::Index<Id> for Each<T> {
    type Output = T;

    fn index(&self, id: Id) -> &T {
        &self.0[usize::from(id.0)]
    }
}

impl<T> std::ops::IndexMut<Id> for Each<T> {
    fn index_mut(&mut self, id: Id) -> &mut T {
        &mut self.0[usize::from(id.0)]
    }
}

impl<T> Each<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}
