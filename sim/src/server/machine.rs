//! The machine that the server runs on: its clock, and its data after a restart or a fail-over.

use std::{collections::BTreeSet, time::Duration};

use leasehold_core::{Instant, View};

use super::{
    Mail, Reply, Request, Store,
    store::{RequestContext, micros},
};
use crate::{bug::Bug, plan::Protocol, scheduler::Group};

/// The reading of the server's clock when the world's reads zero.
const EPOCH: u64 = 1_700_000_000_000_000_000;

/// The machine that the server runs on.
pub(crate) struct Machine {
    store: Store,
    protocol: Protocol,
    bug: Option<Bug>,
    /// By how much the machine's clock was set, in nanoseconds.
    clock_offset: i64,
    /// The log of requests, kept if another machine will take over.
    log: Option<Vec<LogEntry>>,
}

/// One request, as a replica would receive it.
struct LogEntry {
    /// When it arrived, by the world's clock.
    at: Instant,
    /// When it arrived, by the server's clock.
    now: Instant,
    from: Group,
    request: Request,
    /// The clients that the server knew to be disconnected.
    disconnected: BTreeSet<Group>,
}

/// The server's response to a request: its clock, its answer, and notifications for other clients.
pub(crate) struct ServerReply {
    /// The reading of its clock.
    pub(crate) clock: Duration,
    /// The answer.
    pub(crate) reply: Reply,
    /// Notifications for other clients.
    pub(crate) mail: Vec<Mail>,
}

impl Machine {
    /// A machine without data. `fails_over`: another machine will take over.
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

    /// Sets the machine's clock forward or back.
    pub(crate) const fn set_clock(&mut self, by: i64) {
        self.clock_offset += by;
    }

    /// Fails over to another machine that knows only the requests before `known`.
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

    /// The reading of the machine's clock.
    fn clock(&self, at: Instant) -> Instant {
        Instant::from_nanos((EPOCH + at.as_nanos()).wrapping_add_signed(self.clock_offset))
    }
}
