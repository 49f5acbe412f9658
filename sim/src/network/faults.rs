//! Faults of the network and of the server behind it.

use std::{sync::Arc, time::Duration};

use leasehold_core::Instant;

use super::{Network, NetworkState, client_endpoint::Delivery, stream};
use crate::{plan::Direction, rng::Rng, scheduler::Group};

/// With this probability, in percent, each side notices that a connection broke.
pub(super) const NOTICED_PERCENT: u64 = 60;
/// The probability, in percent, that each side notices that a connection broke because the server went down.
const NOTICED_AT_RESTART: u64 = 70;
/// This probability if both sides always notice that the connection broke.
const ALWAYS: u64 = 100;

impl Network {
    /// Records that the server has noticed that a client is gone.
    pub(crate) fn hang_up(&self, client: Group) {
        self.lock().disconnected.insert(client);
    }

    /// Cuts a client off: until `until`, no message in this direction passes between the client and the server.
    pub(crate) fn cut(&self, client: Group, way: Direction, until: Instant) {
        let mut inner = self.lock();
        let Some(endpoint) = inner.endpoints.get_mut(&client) else { return };
        if way != Direction::Down {
            endpoint.cut_up = endpoint.cut_up.max(until);
        }
        if way != Direction::Up {
            endpoint.cut_down = endpoint.cut_down.max(until);
        }
    }

    /// Until `until`, delays every second message to each client by `late`.
    pub(crate) fn lag(&self, until: Instant, late: Duration) {
        self.lock().lag = (until, late);
    }

    /// Stalls the server until `until`.
    pub(crate) fn stall(&self, until: Instant) {
        let mut inner = self.lock();
        inner.stalled_until = inner.stalled_until.max(until);
    }

    /// Takes the server down until `until`.
    pub(crate) fn take_down(self: &Arc<Self>, until: Instant) {
        let mut inner = self.lock();
        inner.down_until = inner.down_until.max(until);
        let clients: Vec<Group> = inner.endpoints.keys().copied().collect();
        for client in clients {
            self.break_conn(&mut inner, client, NOTICED_AT_RESTART);
        }
    }

    /// Breaks the connection of a client. Both sides notice.
    pub(crate) fn reset(self: &Arc<Self>, client: Group) {
        self.break_conn(&mut self.lock(), client, ALWAYS);
    }

    /// Changes the server's clock by `by` nanoseconds. If the clock is set back, leases last longer by the same time.
    pub(crate) fn set_clock(&self, by: i64) {
        let mut inner = self.lock();
        inner.machine.set_clock(by);
        inner.prolong_leases(by);
    }

    /// The server fails over to another machine, which knows only the requests that arrived before `known`. The clock
    /// of the other machine is ahead by `skew` nanoseconds.
    pub(crate) fn fail_over(&self, known: Instant, skew: i64) {
        let mut inner = self.lock();
        inner.machine.fail_over(known, skew);
        inner.prolong_leases(skew);
    }

    /// Breaks the connection of a client. Each side notices it with the probability `noticed`, in percent. Does nothing
    /// on a network that does not keep the order of messages.
    pub(super) fn break_conn(self: &Arc<Self>, inner: &mut NetworkState, client: Group, noticed: u64) {
        if !self.keeps_order() {
            return;
        }
        let Some(endpoint) = inner.endpoints.get_mut(&client) else { return };
        let conn = endpoint.conn.number;
        (endpoint.conn.up_broken, endpoint.conn.down_broken) = (true, true);
        let mut rng = Rng::of(&[self.seed, client.number().into(), conn, stream::BREAK]);
        if rng.percent(noticed) {
            inner.disconnected.insert(client);
        }
        if rng.percent(noticed) {
            let at = self.scheduler().now().after(self.message_delay(client, stream::RESET, conn));
            self.deliver_at(client, at, Delivery::Reset { conn });
        }
    }
}

impl NetworkState {
    /// If `by` is negative, records that leases last longer, by the time by which the server's clock is set back.
    fn prolong_leases(&mut self, by: i64) {
        let longer = Duration::from_nanos(by.min(0).unsigned_abs());
        self.lease_start.values_mut().for_each(|(_, lease_start)| *lease_start = lease_start.after(longer));
    }
}
