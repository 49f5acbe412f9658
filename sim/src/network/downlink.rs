//! Messages from the server to clients.

use std::sync::Arc;

use leasehold_core::Instant;

use super::{
    Network, NetworkState,
    client_endpoint::{Delivery, in_order},
    stream,
};
use crate::{
    plan::{Fate, Fault, Protocol},
    scheduler::Group,
    server::Notification,
};

impl Network {
    /// Sends a message to a client. On a network that keeps the order of messages, the message is lost if `conn` is
    /// broken or is not the client's newest connection.
    pub(super) fn post(self: &Arc<Self>, inner: &mut NetworkState, to: Group, conn: u64, delivery: Delivery) {
        let now = self.scheduler().now();
        let (lag, late) = inner.lag;
        let Some(endpoint) = inner.endpoints.get_mut(&to) else { return };
        let mut arrival = now.after(self.message_delay(to, stream::DOWNLINK, endpoint.replies));
        endpoint.replies += 1;
        if now < lag && endpoint.replies.is_multiple_of(2) {
            arrival = arrival.after(late);
        }
        if self.keeps_order() {
            if endpoint.conn.number != conn || endpoint.conn.down_broken {
                return;
            }
            arrival = in_order(&mut endpoint.conn.down, arrival);
        }
        if now < endpoint.cut_down {
            endpoint.conn.down_broken = true;
            return;
        }
        self.deliver_at(to, arrival, delivery);
    }

    /// Sends a notification to a client, on its newest connection. Does nothing if the protocol has no notifications.
    pub(super) fn notify(self: &Arc<Self>, inner: &mut NetworkState, to: Group, notification: Notification) {
        if self.protocol == Protocol::Poll {
            return;
        }
        let Some(endpoint) = inner.endpoints.get_mut(&to) else { return };
        let nth = endpoint.notifications;
        endpoint.notifications += 1;
        let conn = endpoint.conn.number;
        let Some(fault) = inner.notifications.remove(&(to, nth)) else {
            return self.post(inner, to, conn, Delivery::Notification(notification));
        };
        self.journal.fault(fault.kind());
        let Fault::Notification { fate: Fate::Late(late) | Fate::Twice(late), .. } = fault else { return };
        if matches!(fault, Fault::Notification { fate: Fate::Twice(_), .. }) {
            self.post(inner, to, conn, Delivery::Notification(notification.clone()));
        }
        self.deliver_at(to, self.scheduler().now().after(late), Delivery::Notification(notification));
    }

    /// Delivers a message to a client at this time.
    pub(super) fn deliver_at(self: &Arc<Self>, to: Group, at: Instant, delivery: Delivery) {
        let network = Arc::clone(self);
        self.scheduler().at(at, move || {
            network.scheduler().note(0, || format!("client {} receives {delivery:?}", to.number()));
            // A client that is unplugged from the network gets nothing.
            if let Some(endpoint) = network.lock().endpoints.get(&to) {
                let _ = endpoint.inbox.send(delivery);
            }
        });
    }
}
