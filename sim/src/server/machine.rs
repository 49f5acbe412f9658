//! The machine that the server runs on: its clock, and the data that it has after a restart or a fail-over.

use std::{collections::BTreeSet, time::Duration};

use leasehold_core::{Instant, View};

use super::{
    Mail, Reply, Request, Store,
    store::{RequestContext, micros},
};
use crate::{bug::Bug, plan::Protocol, scheduler::Group};

/// What the server's clock shows when the world's clock shows zero.
const EPOCH: u64 = 1_700_000_000_000_000_000;

/// The machine that the server runs on.
pub(crate) struct Machine {
    store: Store,
    protocol: Protocol,
    bug: Option<Bug>,
    /// The sum of all changes of the machine's clock, in nanoseconds.
    clock_offset: i64,
    /// The log of requests. It is kept only if another machine takes over in this run.
    log: Option<Vec<LogEntry>>,
}

/// One request, as a replica would receive it.
struct LogEntry {
    /// When the request arrived, by the world's clock.
    at: Instant,
    /// When the request arrived, by the server's clock.
    now: Instant,
    from: Group,
    request: Request,
    /// The clients that the server knew to be disconnected.
    disconnected: BTreeSet<Group>,
}

/// What the server sends because of a request: its clock, the answer, and notifications for other clients.
pub(crate) struct ServerReply {
    /// The reading of the server's clock.
    pub(crate) clock: Duration,
    /// The answer.
    pub(crate) reply: Reply,
    /// Notifications for other clients.
    pub(crate) mail: Vec<Mail>,
}

impl Machine {
    /// A machine without data. `fails_over` says whether another machine takes over in this run.
    #[must_use]
    pub(crate) fn new(protocol: Protocol, bug: Option<Bug>, fails_over: bool) -> Self {
        Self {
            store: Store::new(protocol, bug),
            protocol,
            bug,
            clock_offset: 0,
            log: fails_over.then(Vec::new),
        }
    }

    /// Serves a request that arrives at `at` by the world's clock.
    pub(crate) fn serve(
        &mut self,
        at: Instant,
        from: Group,
        request: Request,
        disconnected: &BTreeSet<Group>,
    ) -> ServerReply {
        let now = self.clock(at);
        let mut context = RequestContext { now, disconnected, mail: Vec::new() };
        let reply = self.store.serve(&mut context, from, &request);
        let mail = context.mail;
        if let Some(log) = &mut self.log
            && !matches!(request, Request::Hello | Request::Time)
        {
            log.push(LogEntry { at, now, from, request, disconnected: disconnected.clone() });
        }
        ServerReply { clock: Duration::from_micros(micros(now)), reply, mail }
    }

    /// Changes the machine's clock by `by` nanoseconds.
    pub(crate) const fn set_clock(&mut self, by: i64) {
        self.clock_offset += by;
    }

    /// Another machine takes over. It knows only the requests that arrived before `known`, and its clock is ahead by
    /// `skew` nanoseconds.
    pub(crate) fn fail_over(&mut self, known: Instant, skew: i64) {
        self.clock_offset += skew;
        let log = self.log.get_or_insert_default();
        log.retain(|entry| entry.at < known);
        self.store = Store::new(self.protocol, self.bug);
        for LogEntry { now, from, request, disconnected, .. } in &*log {
            let mut context = RequestContext { now: *now, disconnected, mail: Vec::new() };
            self.store.serve(&mut context, *from, request);
        }
    }

    /// The holders and waiters of every name.
    #[must_use]
    pub(crate) fn views(&self, at: Instant) -> Vec<View> {
        self.store.views(self.clock(at))
    }

    /// The number of names in use.
    pub(crate) fn in_use(&mut self, at: Instant) -> usize {
        let now = self.clock(at);
        self.store.in_use(now)
    }

    /// The reading of the machine's clock when the world's clock reads `at`.
    fn clock(&self, at: Instant) -> Instant {
        Instant::from_nanos((EPOCH + at.as_nanos()).wrapping_add_signed(self.clock_offset))
    }
}
