//! The messages in flight between a client and the server.

use smallvec::SmallVec;

use crate::{Rules, Ticks, server::Token};

/// A request of a client. Every request is about the only claim of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Request {
    Claim(How),
    Renew(Token),
    Release { token: Option<Token>, mark_dead: bool },
}

/// Whether a claim request also creates the claim, or only asks for its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum How {
    Create,
    Ask,
}

/// An answer of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Held(Grant),
    /// The claim waits. `free_in` is the time after which the lock expires, if it is known.
    Waiting {
        free_in: Option<Ticks>,
    },
    /// The claim has ended and is never granted.
    Gone,
    /// The hold is renewed.
    Extended,
    /// The hold to be renewed has ended.
    Lost,
    /// The release ended a hold or a wait.
    Freed,
    /// The release found nothing to end.
    Absent,
}

/// A grant as its client receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(crate) token: Token,
    /// Whether the previous hold ended by a lapse.
    pub(crate) after_lapse: bool,
}

/// A message with its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Aged<T> {
    pub(crate) message: T,
    pub(crate) age: Ticks,
}

impl<T> Aged<T> {
    pub(crate) const fn new(message: T) -> Self {
        Self { message, age: 0 }
    }

    /// Makes the message one tick older, up to `max_age`: larger ages make no difference.
    fn older(&mut self, max_age: Ticks) {
        self.age = (self.age + 1).min(max_age);
    }
}

/// The state of the client's subscription on the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Subscription {
    /// Pushed grants arrive at the client.
    Open,
    /// The connection is broken, and the server does not know that yet.
    HalfOpen,
    /// The server knows that there is no listener.
    #[default]
    Shut,
}

/// The connection of one client, and the requests that are still in flight on its broken connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Wire {
    /// Whether the connection works.
    pub(crate) is_up: bool,
    pub(crate) subscription: Subscription,
    /// The requests that are not served yet, in the order in which they will be served.
    pub(crate) requests: SmallVec<[Aged<Request>; 2]>,
    /// The number of requests in `requests` for whose answers the client does not wait any more.
    pub(crate) unwanted_answers: usize,
    /// The answer in flight. There is at most one: a client waits for one answer at a time.
    pub(crate) reply: Option<Aged<Reply>>,
    pub(crate) pushes: SmallVec<[Aged<Grant>; 1]>,
    /// Requests on broken connections, each with the time for which it may still be served. They are served in any
    /// order, or never.
    pub(crate) late: SmallVec<[(Request, Ticks); 2]>,
}

impl Wire {
    pub(crate) fn connect(&mut self) {
        (self.is_up, self.subscription) = (true, Subscription::Open);
    }

    /// Breaks the connection. Requests that were not served yet may still be served later; answers and pushed grants in
    /// flight are lost.
    pub(crate) fn break_connection(&mut self, rules: &Rules) {
        let late = self.requests.drain(..).map(|request| (request.message, rules.request_life - request.age));
        self.late.extend(late.filter(|(_, left)| *left > 0));
        self.late.sort_unstable();
        (self.is_up, self.reply, self.unwanted_answers) = (false, None, 0);
        self.pushes.clear();
        if self.subscription == Subscription::Open {
            self.subscription = if rules.half_open { Subscription::HalfOpen } else { Subscription::Shut };
        }
    }

    /// Lets the client stop waiting for the answers to all requests in flight.
    pub(crate) fn forget(&mut self) {
        (self.reply, self.unwanted_answers) = (None, self.requests.len());
    }

    /// Sends the answer to a request from the server to the client. Drops the answer if the client does not wait for it
    /// any more.
    pub(crate) fn answer(&mut self, reply: Reply) {
        if self.unwanted_answers > 0 {
            self.unwanted_answers -= 1;
        } else {
            self.reply = Some(Aged::new(reply));
        }
    }

    /// Publishes a grant to the client's channel. Returns whether the channel has a listener, as far as the server
    /// knows.
    pub(crate) fn publish(&mut self, grant: Grant) -> bool {
        if self.subscription == Subscription::Open {
            self.pushes.push(Aged::new(grant));
        }
        self.has_listener()
    }

    /// Whether the client's channel has a listener, as far as the server knows.
    pub(crate) fn has_listener(&self) -> bool {
        self.subscription != Subscription::Shut
    }

    /// Whether no message is in flight on the connection.
    pub(crate) fn is_quiet(&self) -> bool {
        self.requests.is_empty() && self.reply.is_none() && self.pushes.is_empty()
    }

    /// Lets a tick pass.
    pub(crate) fn tick(&mut self, rules: &Rules) {
        self.requests.iter_mut().for_each(|request| request.older(rules.request_life));
        self.reply.iter_mut().for_each(|reply| reply.older(rules.claim_time));
        self.pushes.iter_mut().for_each(|push| push.older(rules.claim_time));
        self.late.iter_mut().for_each(|(_, left)| *left -= 1);
        self.late.retain(|(_, left)| *left > 0);
    }
}
