//! Faults of the network and of the server behind it.

use std::{sync::Arc, time::Duration};

use leasehold_core::Instant;

use super::{Network, NetworkState, client_endpoint::Delivery};
use crate::{plan::Direction, rng::Rng, scheduler::Group};

/// The percentage of broken connections that an end notices.
pub(super) const NOTICED: u64 = 60;

impl Network {
    /// The client is gone, and the server has noticed.
    pub(crate) fn hang_up(&self, client: Group) {
        self.lock().deaf.insert(client);
    }

    /// No message passes between a client and the server until `until`.
    pub(crate) fn cut(&self, client: Group, way: Direction, until: Instant) {
        let mut inner = self.lock();
        let Some(end) = inner.ends.get_mut(&client) else { return };
        if way != Direction::Down {
            end.cut_up = end.cut_up.max(until);
        }
        if way != Direction::Up {
            end.cut_down = end.cut_down.max(until);
        }
    }

    /// Every second answer that leaves until `until` is delayed by `late`.
    pub(crate) fn lag(&self, until: Instant, late: Duration) {
        self.lock().lag = (until, late);
    }

    /// The server does nothing until `until`.
    pub(crate) fn stall(&self, until: Instant) {
        let mut inner = self.lock();
        inner.still = inner.still.max(until);
    }

    /// The server is down until `until`.
    pub(crate) fn take_down(self: &Arc<Self>, until: Instant) {
        let mut inner = self.lock();
        inner.down = inner.down.max(until);
        let clients: Vec<Group> = inner.ends.keys().copied().collect();
        for client in clients {
            self.break_conn(&mut inner, client, 70);
        }
    }

    /// Breaks the connection of a client; the client notices.
    pub(crate) fn reset(self: &Arc<Self>, client: Group) {
        self.break_conn(&mut self.lock(), client, 100);
    }

    /// Sets the server's clock. When it is set back, leases last longer by as much.
    pub(crate) fn set_clock(&self, by: i64) {
        let mut inner = self.lock();
        inner.machine.set_clock(by);
        inner.prolong(by);
    }

    /// Fails over to another machine that knows only the requests before `known`.
    pub(crate) fn fail_over(&self, known: Instant, skew: i64) {
        let mut inner = self.lock();
        inner.machine.fail_over(known, skew);
        inner.prolong(skew);
    }

    /// Breaks the connection of a client. Each end notices with the probability `noticed`, in percent.
    pub(super) fn break_conn(self: &Arc<Self>, inner: &mut NetworkState, client: Group, noticed: u64) {
        if !self.keeps_order() {
            return;
        }
        let Some(end) = inner.ends.get_mut(&client) else { return };
        let conn = end.conn.number;
        (end.conn.up_broken, end.conn.down_broken) = (true, true);
        let mut rng = Rng::of(&[self.seed, client.number().into(), conn, 2]);
        if rng.percent(noticed) {
            inner.deaf.insert(client);
        }
        if rng.percent(noticed) {
            let at = self.scheduler().now().after(self.takes(client, 3, conn));
            self.hand_over(client, at, Delivery::Reset { conn });
        }
    }
}

impl NetworkState {
    fn prolong(&mut self, by: i64) {
        let longer = Duration::from_nanos(by.min(0).unsigned_abs());
        self.asked.values_mut().for_each(|(_, asked)| *asked = asked.after(longer));
    }
}
