//! Messages from clients to the server.

use std::sync::Arc;

use leasehold_core::Instant;

use super::{
    Network,
    client_endpoint::{Conn, Delivery, in_order},
    faults::NOTICED_PERCENT,
    stream,
};
use crate::{
    plan::{Fate, Fault},
    scheduler::Group,
    server::{Notification, REQUEST_LIFE, Request},
};

/// A request in flight.
struct InTransit {
    from: Group,
    conn: u64,
    number: u64,
    request: Request,
    sent: Instant,
    transit: Transit,
}

/// How a request travels and whether it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transit {
    /// The request is answered.
    Answered,
    /// The request is not answered.
    Unanswered,
    /// The request is not answered, and arrives after requests that were sent later.
    Overtaken,
}

impl Network {
    /// Sends a request of a client on one of its connections.
    pub(crate) fn send(self: &Arc<Self>, from: Group, conn: u64, number: u64, request: Request) {
        let scheduler = self.scheduler();
        if !scheduler.is_alive(from) {
            return;
        }
        let now = scheduler.now();
        let mut inner = self.lock();
        let inner = &mut *inner;
        let Some(endpoint) = inner.endpoints.get_mut(&from) else { return };
        let nth = endpoint.requests;
        endpoint.requests += 1;
        scheduler
            .note(nth, || format!("client {} sends {} as its request {nth}", from.number(), request.verb()));
        let mut arrival = now.after(self.message_delay(from, stream::UPLINK, nth));
        if self.keeps_order() {
            if matches!(request, Request::Hello) {
                endpoint.conn = Conn { number: conn, ..Conn::default() };
            }
            if endpoint.conn.number != conn || endpoint.conn.up_broken {
                return;
            }
            arrival = in_order(&mut endpoint.conn.up, arrival);
        }
        if now < endpoint.cut_up {
            endpoint.conn.up_broken = true;
            return;
        }
        let message = |request, transit| InTransit { from, conn, number, request, sent: now, transit };
        let Some(fault) = inner.requests.remove(&(from, nth)) else {
            return self.deliver(arrival, message(request, Transit::Answered));
        };
        self.journal.fault(fault.kind());
        let Fault::Request { fate, .. } = fault else { return };
        match fate {
            Fate::Lost => {}
            Fate::Unanswered => self.deliver(arrival, message(request, Transit::Unanswered)),
            Fate::Late(late) => self.deliver(arrival.after(late), message(request, Transit::Overtaken)),
            Fate::Twice(late) => {
                // If a claim may not queue and is answered "taken", the server keeps no record of it. So the server
                // could not recognise a second copy of the request.
                let may_double = !matches!(&request, Request::Claim(claim, _) if !claim.may_queue);
                if may_double {
                    self.deliver(arrival.after(late), message(request.clone(), Transit::Overtaken));
                }
                self.deliver(arrival, message(request, Transit::Answered));
            }
        }
        if fate != Fate::Unanswered {
            self.break_conn(inner, from, NOTICED_PERCENT);
        }
    }

    /// Delivers a request at this time.
    fn deliver(self: &Arc<Self>, at: Instant, message: InTransit) {
        let network = Arc::clone(self);
        self.scheduler().at(at, move || network.arrive(message));
    }

    /// Handles a request that arrives: the server serves it, unless it is too late. A stalled server serves it after
    /// the stall, and a server that is down refuses it.
    fn arrive(self: &Arc<Self>, message: InTransit) {
        let now = self.scheduler().now();
        let mut inner = self.lock();
        if now < inner.stalled_until {
            return self.deliver(inner.stalled_until, message);
        }
        let InTransit { from, conn, number, request, sent, transit } = message;
        let may_be_late = self.keeps_order() && transit != Transit::Overtaken;
        if !may_be_late && now.since(sent) > REQUEST_LIFE {
            return;
        }
        if now < inner.down_until {
            if transit == Transit::Answered {
                self.post(&mut inner, from, conn, Delivery::Refused { number });
            }
            return;
        }
        let is_hello = matches!(request, Request::Hello);
        self.scheduler().note(number, || format!("{} of client {} arrives", request.verb(), from.number()));
        let inner = &mut *inner;
        if is_hello && self.scheduler().is_alive(from) {
            inner.disconnected.remove(&from);
        }
        let extends = request.extends();
        let served = inner.machine.serve(now, from, request, &inner.disconnected);
        for claim in served.reply.extended(extends) {
            let lease_start = inner.lease_start.entry(claim).or_insert((sent, sent));
            if lease_start.0 < sent {
                *lease_start = (sent, sent);
            }
        }
        if transit == Transit::Answered {
            self.post(
                inner,
                from,
                conn,
                Delivery::Reply { number, clock: served.clock, reply: served.reply },
            );
        } else if transit == Transit::Unanswered
            && inner.endpoints.get(&from).is_some_and(|endpoint| endpoint.conn.number == conn)
        {
            self.break_conn(inner, from, NOTICED_PERCENT);
        }
        for mail in served.mail {
            if let Notification::Granted { id, .. } = mail.notification {
                inner.lease_start.insert(id, (now, now));
                self.journal.figures(|tally| tally.handed_over += 1);
            }
            self.notify(inner, mail.to, mail.notification);
        }
    }
}
