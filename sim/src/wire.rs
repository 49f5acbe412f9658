//! The network between clients and server: it delays, loses, doubles, and holds back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold_core::{ClaimId, Instant};
use tokio::sync::mpsc;

use crate::{
    clockwork::{Clockwork, Group},
    dice::Dice,
    journal::Journal,
    plan::{Fate, Fault, Manner, Plan, Way},
    server::{Machine, News, REQUEST_LIFE, Reply, Request},
};

/// In so many of a hundred cases a message takes ten times as long.
const SLOW: u64 = 2;
/// In so many of a hundred cases an end hears of it when a connection breaks.
const HEARD: u64 = 60;

/// The network, and the server behind it.
pub(crate) struct Wire {
    journal: Arc<Journal>,
    manner: Manner,
    seed: u64,
    delay: (Duration, Duration),
    inside: Mutex<Inside>,
}

struct Inside {
    machine: Machine,
    ends: BTreeMap<Group, End>,
    /// Clients of which the server knows that they are not there.
    deaf: BTreeSet<Group>,
    /// What becomes of requests and news, by their number.
    requests: BTreeMap<(Group, u64), Fault>,
    news: BTreeMap<(Group, u64), Fault>,
    /// When the last request of each claim left, or the server granted it unasked.
    asked: BTreeMap<ClaimId, Instant>,
    /// Until when the server stands still, or is down.
    still: Instant,
    down: Instant,
}

/// The network's side of one client.
struct End {
    inbox: mpsc::UnboundedSender<Parcel>,
    requests: u64,
    news: u64,
    replies: u64,
    /// Until when nothing passes.
    cut_up: Instant,
    cut_down: Instant,
    conn: Conn,
}

/// A connection that keeps the order: when a message is lost on it, so are all that follow.
#[derive(Default)]
struct Conn {
    number: u64,
    /// When the last message arrives.
    up: Option<Instant>,
    down: Option<Instant>,
    up_broken: bool,
    down_broken: bool,
}

/// What a client receives.
#[derive(Debug)]
pub(crate) enum Parcel {
    /// The answer to the request with this number, and the server's clock.
    Reply { number: u64, clock: Duration, reply: Reply },
    /// The request with this number was not let in.
    Refused { number: u64 },
    /// News.
    News(News),
    /// This connection broke.
    Reset { conn: u64 },
}

/// A request on its way.
struct Letter {
    from: Group,
    conn: u64,
    number: u64,
    request: Request,
    sent: Instant,
    fare: Fare,
}

/// How a request travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fare {
    /// With its answer.
    Return,
    /// Without an answer.
    Single,
    /// Without an answer, and behind those that left after it.
    Stray,
}

impl Wire {
    /// The network of a plan whose clients have these groups.
    #[must_use]
    pub(crate) fn new(plan: &Plan, groups: &[Group], journal: Arc<Journal>) -> Arc<Self> {
        let (mut requests, mut news) = (BTreeMap::new(), BTreeMap::new());
        for fault in &plan.faults {
            match *fault {
                Fault::Request { client, nth, .. } => drop(requests.insert((groups[client], nth), *fault)),
                Fault::News { client, nth, .. } => drop(news.insert((groups[client], nth), *fault)),
                _ => {}
            }
        }
        let inside = Inside {
            machine: Machine::new(plan.manner, plan.bug),
            ends: BTreeMap::new(),
            deaf: BTreeSet::new(),
            requests,
            news,
            asked: BTreeMap::new(),
            still: Instant::from_nanos(0),
            down: Instant::from_nanos(0),
        };
        Arc::new(Self {
            journal,
            manner: plan.manner,
            seed: plan.seed,
            delay: plan.delay,
            inside: Mutex::new(inside),
        })
    }

    /// Plugs a client in; what arrives for it comes here.
    pub(crate) fn plug_in(&self, client: Group) -> mpsc::UnboundedReceiver<Parcel> {
        let (inbox, parcels) = mpsc::unbounded_channel();
        let never = Instant::from_nanos(0);
        let end = End {
            inbox,
            requests: 0,
            news: 0,
            replies: 0,
            cut_up: never,
            cut_down: never,
            conn: Conn::default(),
        };
        self.lock().ends.insert(client, end);
        parcels
    }

    /// Unplugs a client: what is under way to it reaches nobody.
    pub(crate) fn unplug(&self, client: Group) {
        self.lock().ends.remove(&client);
    }

    /// The client is gone, and the server noticed.
    pub(crate) fn hang_up(&self, client: Group) {
        self.lock().deaf.insert(client);
    }

    /// Nothing passes between a client and the server until `until`.
    pub(crate) fn cut(&self, client: Group, way: Way, until: Instant) {
        let mut inside = self.lock();
        let Some(end) = inside.ends.get_mut(&client) else { return };
        if way != Way::Down {
            end.cut_up = end.cut_up.max(until);
        }
        if way != Way::Up {
            end.cut_down = end.cut_down.max(until);
        }
    }

    /// The server does nothing until `until`.
    pub(crate) fn stall(&self, until: Instant) {
        let mut inside = self.lock();
        inside.still = inside.still.max(until);
    }

    /// The server is down until `until`.
    pub(crate) fn take_down(self: &Arc<Self>, until: Instant) {
        let mut inside = self.lock();
        inside.down = inside.down.max(until);
        let clients: Vec<Group> = inside.ends.keys().copied().collect();
        for client in clients {
            self.break_conn(&mut inside, client, 70);
        }
    }

    /// The connection of a client breaks, and the client hears of it.
    pub(crate) fn reset(self: &Arc<Self>, client: Group) {
        self.break_conn(&mut self.lock(), client, 100);
    }

    /// The server's clock is set. What is set back lasts so much longer.
    pub(crate) fn set_clock(&self, by: i64) {
        let mut inside = self.lock();
        inside.machine.set_clock(by);
        inside.prolong(by);
    }

    /// Another machine takes over that has heard of everything before `known` only.
    pub(crate) fn fail_over(&self, known: Instant, skew: i64) {
        let mut inside = self.lock();
        inside.machine.fail_over(known, skew);
        inside.prolong(skew);
    }

    /// Looks at the server.
    pub(crate) fn server<R>(&self, look: impl FnOnce(&mut Machine) -> R) -> R {
        look(&mut self.lock().machine)
    }

    /// When the last request of a claim left, or the server granted it unasked: no lease of it can be counted from later;
    /// but for as long as the server's clock was set back since.
    pub(crate) fn asked(&self, claim: ClaimId) -> Option<Instant> {
        self.lock().asked.get(&claim).copied()
    }

    /// A client sends a request on one of its connections.
    pub(crate) fn send(self: &Arc<Self>, from: Group, conn: u64, number: u64, request: Request) {
        let clockwork = self.clockwork();
        if !clockwork.is_alive(from) {
            return;
        }
        let now = clockwork.now();
        let mut inside = self.lock();
        let inside = &mut *inside;
        inside.asked.extend(request.extends().map(|claim| (claim, now)));
        let Some(end) = inside.ends.get_mut(&from) else { return };
        let nth = end.requests;
        end.requests += 1;
        clockwork
            .note(nth, || format!("client {} sends {} as its request {nth}", from.number(), request.verb()));
        let mut arrival = now.after(self.takes(from, 0, nth));
        if self.keeps_order() {
            if matches!(request, Request::Hello) {
                end.conn = Conn { number: conn, ..Conn::default() };
            }
            if end.conn.number != conn || end.conn.up_broken {
                return;
            }
            arrival = in_order(&mut end.conn.up, arrival);
        }
        if now < end.cut_up {
            end.conn.up_broken = true;
            return;
        }
        let letter = |request, fare| Letter { from, conn, number, request, sent: now, fare };
        let Some(fault) = inside.requests.remove(&(from, nth)) else {
            return self.deliver(arrival, letter(request, Fare::Return));
        };
        self.journal.fault(fault.kind());
        let Fault::Request { fate, .. } = fault else { return };
        match fate {
            Fate::Lost => {}
            Fate::Unanswered => self.deliver(arrival, letter(request, Fare::Single)),
            Fate::Late(late) => self.deliver(arrival.after(late), letter(request, Fare::Stray)),
            Fate::Twice(late) => {
                // Of a try that was answered "taken" nothing is left by which its double could be known.
                let may_double = !matches!(&request, Request::Claim(claim, _) if !claim.may_queue);
                if may_double {
                    self.deliver(arrival.after(late), letter(request.clone(), Fare::Stray));
                }
                self.deliver(arrival, letter(request, Fare::Return));
            }
        }
        if fate != Fate::Unanswered {
            self.break_conn(inside, from, HEARD);
        }
    }

    fn deliver(self: &Arc<Self>, at: Instant, letter: Letter) {
        let wire = Arc::clone(self);
        self.clockwork().at(at, move || wire.arrive(letter));
    }

    fn arrive(self: &Arc<Self>, letter: Letter) {
        let now = self.clockwork().now();
        let mut inside = self.lock();
        if now < inside.still {
            return self.deliver(inside.still, letter);
        }
        let Letter { from, conn, number, request, sent, fare } = letter;
        let may_be_late = self.keeps_order() && fare != Fare::Stray;
        if !may_be_late && now.since(sent) > REQUEST_LIFE {
            return;
        }
        if now < inside.down {
            if fare == Fare::Return {
                self.post(&mut inside, from, conn, Parcel::Refused { number });
            }
            return;
        }
        let is_hello = matches!(request, Request::Hello);
        self.clockwork().note(number, || format!("{} of client {} arrives", request.verb(), from.number()));
        let inside = &mut *inside;
        if is_hello && self.clockwork().is_alive(from) {
            inside.deaf.remove(&from);
        }
        let said = inside.machine.serve(now, from, request, &inside.deaf);
        if fare == Fare::Return {
            self.post(inside, from, conn, Parcel::Reply { number, clock: said.clock, reply: said.reply });
        } else if fare == Fare::Single && inside.ends.get(&from).is_some_and(|end| end.conn.number == conn) {
            self.break_conn(inside, from, HEARD);
        }
        for mail in said.mail {
            if let News::Granted { id, .. } = mail.news {
                inside.asked.insert(id, now);
                self.journal.figures(|tally| tally.in_line += 1);
            }
            self.tell(inside, mail.to, mail.news);
        }
    }

    /// Sends something to a client, on the connection on which it asked.
    fn post(self: &Arc<Self>, inside: &mut Inside, to: Group, conn: u64, parcel: Parcel) {
        let now = self.clockwork().now();
        let Some(end) = inside.ends.get_mut(&to) else { return };
        let mut arrival = now.after(self.takes(to, 1, end.replies));
        end.replies += 1;
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
        self.hand_over(to, arrival, parcel);
    }

    /// Tells a client unasked.
    fn tell(self: &Arc<Self>, inside: &mut Inside, to: Group, news: News) {
        if self.manner == Manner::Poll {
            return;
        }
        let Some(end) = inside.ends.get_mut(&to) else { return };
        let nth = end.news;
        end.news += 1;
        let conn = end.conn.number;
        let Some(fault) = inside.news.remove(&(to, nth)) else {
            return self.post(inside, to, conn, Parcel::News(news));
        };
        self.journal.fault(fault.kind());
        let Fault::News { fate: Fate::Late(late) | Fate::Twice(late), .. } = fault else { return };
        if matches!(fault, Fault::News { fate: Fate::Twice(_), .. }) {
            self.post(inside, to, conn, Parcel::News(news.clone()));
        }
        self.hand_over(to, self.clockwork().now().after(late), Parcel::News(news));
    }

    fn hand_over(self: &Arc<Self>, to: Group, at: Instant, parcel: Parcel) {
        let wire = Arc::clone(self);
        self.clockwork().at(at, move || {
            wire.clockwork().note(0, || format!("client {} receives {parcel:?}", to.number()));
            // Without an end, nobody is there any more.
            if let Some(end) = wire.lock().ends.get(&to) {
                let _ = end.inbox.send(parcel);
            }
        });
    }

    /// Nothing passes on the connection of a client any more; in so many of a hundred cases each end hears of it.
    fn break_conn(self: &Arc<Self>, inside: &mut Inside, client: Group, heard: u64) {
        if !self.keeps_order() {
            return;
        }
        let Some(end) = inside.ends.get_mut(&client) else { return };
        let conn = end.conn.number;
        (end.conn.up_broken, end.conn.down_broken) = (true, true);
        let mut dice = Dice::of(&[self.seed, client.number().into(), conn, 2]);
        if dice.percent(heard) {
            inside.deaf.insert(client);
        }
        if dice.percent(heard) {
            let at = self.clockwork().now().after(self.takes(client, 3, conn));
            self.hand_over(client, at, Parcel::Reset { conn });
        }
    }

    fn keeps_order(&self) -> bool {
        self.manner == Manner::Push
    }

    /// How long the `nth` message of a client takes on this way.
    fn takes(&self, client: Group, way: u64, nth: u64) -> Duration {
        let mut dice = Dice::of(&[self.seed, client.number().into(), way, nth]);
        let nanos = |time: Duration| time.as_nanos() as u64;
        let takes = dice.among(nanos(self.delay.0)..=nanos(self.delay.1));
        Duration::from_nanos(if dice.percent(SLOW) { takes * 10 } else { takes })
    }

    fn clockwork(&self) -> &Arc<Clockwork> {
        self.journal.clockwork()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    fn prolong(&mut self, by: i64) {
        let longer = Duration::from_nanos(by.min(0).unsigned_abs());
        self.asked.values_mut().for_each(|asked| *asked = asked.after(longer));
    }
}

/// When a message arrives that follows another on its connection.
fn in_order(last: &mut Option<Instant>, arrival: Instant) -> Instant {
    let arrival = last.map_or(arrival, |last| arrival.max(last.after(Duration::from_nanos(1))));
    *last.insert(arrival)
}
