//! The rules of the Redis model: the clients, how long things take, and which faults may happen.

use crate::Bug;

/// The smallest unit of time. All clocks tick at the same moment.
pub(crate) type Ticks = u8;

/// The rules of one world. All times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The number of clients; each makes one claim.
    pub(crate) clients: u8,
    /// How often another program acquires the name by its plain token lock.
    pub(crate) foreign_takes: u8,
    /// The lease of a hold that its client knows of. It is also the lease of the other program's lock.
    pub(crate) ttl: Ticks,
    /// The lease of a pushed grant, until a request of its client confirms the grant.
    pub(crate) claim_time: Ticks,
    /// The lease of a queue entry.
    pub(crate) entry_life: Ticks,
    /// For how long a request on a broken connection may still arrive. A tombstone lasts equally long.
    pub(crate) request_life: Ticks,
    /// How long a waiter waits for a notification before it asks.
    pub(crate) poll_interval: Ticks,
    /// Whether holders may renew.
    pub(crate) renews: bool,
    /// What a holder does under the lock.
    pub(crate) section: Section,
    /// Whether every step may take any time. If false, time passes only when there is no message to send, serve or
    /// receive.
    pub(crate) slow: bool,
    /// Whether the server may notice a broken connection late.
    pub(crate) half_open: bool,
    /// The faults that may happen.
    pub(crate) faults: Faults,
    /// Worlds with more grants are not searched.
    pub(crate) max_grants: u8,
    /// Deliberate mistakes.
    pub(crate) bugs: &'static [Bug],
}

/// How often each fault may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// A client gives up waiting.
    pub(crate) cancels: u8,
    /// A client stops waiting for an answer.
    pub(crate) timeouts: u8,
    /// A connection breaks.
    pub(crate) breaks: u8,
    /// A pushed grant is lost on a connection that is up.
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
    /// Reads, checks that the hold is valid, and writes a value that depends on what it read.
    Unfenced,
    /// Like `Unfenced`, but the resource refuses a write whose token is smaller than that of an earlier write.
    Fenced,
    /// Like `Fenced`, but the holder also shows its token before the read, so that the resource refuses smaller tokens
    /// from then on.
    Sealed,
}

impl Rules {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bugs.contains(&bug)
    }

    /// I7, for runs without slow steps: the longest time for which a live client may wait while the name is held
    /// neither by another program nor by a client that knows of its own hold. It is the time until the leases of dead
    /// clients have lapsed, and until waiters have polled for the events that no notification reports.
    pub(crate) fn patience(&self) -> Ticks {
        let Faults { dead_holders, dead_waiters, losses, .. } = self.faults;
        let silent = if self.half_open { dead_waiters * self.claim_time } else { 0 };
        dead_holders * self.ttl + silent + (losses + self.foreign_takes) * self.poll_interval
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + use<> {
        (0..self.clients).map(Id)
    }
}

/// A client, and the id of its only claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(pub(crate) u8);

/// The largest number of clients of a world.
pub(crate) const MAX_CLIENTS: usize = 3;

/// One value for each client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PerClient<T>([T; MAX_CLIENTS]);

impl<T> std::ops::Index<Id> for PerClient<T> {
    type Output = T;

    fn index(&self, id: Id) -> &T {
        &self.0[usize::from(id.0)]
    }
}

impl<T> std::ops::IndexMut<Id> for PerClient<T> {
    fn index_mut(&mut self, id: Id) -> &mut T {
        &mut self.0[usize::from(id.0)]
    }
}

impl<T> PerClient<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}
