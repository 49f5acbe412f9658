//! Messages from the server to clients.

use std::sync::Arc;

use leasehold_core::Instant;

use super::{
    Network, NetworkState,
    client_endpoint::{Delivery, in_order},
};
use crate::{
    plan::{Fate, Fault, Manner},
    scheduler::Group,
    server::Notification,
};

impl Network {
    /// Sends a message to a client, on the connection of the client's request.
    pub(super) fn post(self: &Arc<Self>, inner: &mut NetworkState, to: Group, conn: u64, delivery: Delivery) {
        let now = self.scheduler().now();
        let (lag, late) = inner.lag;
        let Some(end) = inner.ends.get_mut(&to) else { return };
        let mut arrival = now.after(self.takes(to, 1, end.replies));
        end.replies += 1;
        if now < lag && end.replies.is_multiple_of(2) {
            arrival = arrival.after(late);
        }
        if self.keeps_order() {
            if end.conn.number != conn || end.conn.down_broken {
                return;
            }
            arrival = in_order(&mut end.conn.down, arrival);
        }
        if now < end.cut_down {
            end.conn.down_broken = true;
            return;
        }
        self.hand_over(to, arrival, delivery);
    }

    /// Sends a notification to a client.
    pub(super) fn notify(self: &Arc<Self>, inner: &mut NetworkState, to: Group, notification: Notification) {
        if self.manner == Manner::Poll {
            return;
        }
        let Some(end) = inner.ends.get_mut(&to) else { return };
        let nth = end.notifications;
        end.notifications += 1;
        let conn = end.conn.number;
        let Some(fault) = inner.notifications.remove(&(to, nth)) else {
            return self.post(inner, to, conn, Delivery::Notification(notification));
        };
        self.journal.fault(fault.kind());
        let Fault::Notification { fate: Fate::Late(late) | Fate::Twice(late), .. } = fault else { return };
        if matches!(fault, Fault::Notification { fate: Fate::Twice(_), .. }) {
            self.post(inner, to, conn, Delivery::Notification(notification.clone()));
        }
        self.hand_over(to, self.scheduler().now().after(late), Delivery::Notification(notification));
    }

    pub(super) fn hand_over(self: &Arc<Self>, to: Group, at: Instant, delivery: Delivery) {
        let network = Arc::clone(self);
        self.scheduler().at(at, move || {
            network.scheduler().note(0, || format!("client {} receives {delivery:?}", to.number()));
            // A client without an endpoint is gone.
            if let Some(end) = network.lock().ends.get(&to) {
                let _ = end.inbox.send(delivery);
            }
        });
    }
}
