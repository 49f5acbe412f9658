//! Faults of the network and of the server behind it.

use std::{sync::Arc, time::Duration};

use leasehold_core::Instant;

use super::{Network, NetworkState, client_endpoint::Delivery, stream};
use crate::{plan::Direction, rng::Rng, scheduler::Group};

/// The percentage of broken connections that each side notices.
pub(super) const NOTICED_PERCENT: u64 = 60;
/// The same when the server goes down.
const NOTICED_AT_RESTART: u64 = 70;
/// Every broken connection is noticed.
const ALWAYS: u64 = 100;

impl Network {
    /// Records that a client is gone and that the server has noticed.
    pub(crate) fn hang_up(&self, client: Group) {
        self.lock().disconnected.insert(client);
    }

    /// Cuts a client off: no message passes between the client and the server until `until`.
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

    /// Delays every second answer that is sent until `until` by `late`.
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

    /// Breaks the connection of a client; the client notices.
    pub(crate) fn reset(self: &Arc<Self>, client: Group) {
        self.break_conn(&mut self.lock(), client, ALWAYS);
    }

    /// Sets the server's clock. When it is set back, leases last longer by as much.
    pub(crate) fn set_clock(&self, by: i64) {
        let mut inner = self.lock();
        inner.machine.set_clock(by);
        inner.prolong_leases(by);
    }

    /// Fails over to another machine that knows only the requests before `known`.
    pub(crate) fn fail_over(&self, known: Instant, skew: i64) {
        let mut inner = self.lock();
        inner.machine.fail_over(known, skew);
        inner.prolong_leases(skew);
    }

    /// Breaks the connection of a client. Each end notices with the probability `noticed`, in percent.
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
    /// Records that leases last longer, by as much as the server's clock is set back.
    fn prolong_leases(&mut self, by: i64) {
        let longer = Duration::from_nanos(by.min(0).unsigned_abs());
        self.lease_start.values_mut().for_each(|(_, lease_start)| *lease_start = lease_start.after(longer));
    }
}
