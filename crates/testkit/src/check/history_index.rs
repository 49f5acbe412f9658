//! A history, indexed in one pass: attempts by lock, disturbances, looks at the server, probes.

use std::collections::{BTreeMap, HashMap};

use super::{
    Terms,
    apply_event::apply_event,
    attempt_history::{AttemptHistory, Renewing},
    stalls::{Stalls, within},
};
use crate::history::{AttemptId, Event, Held, History, What};

/// Everything that the checks need.
pub(super) struct HistoryIndex<'h> {
    pub(super) terms: &'h Terms,
    pub(super) events: &'h [Event],
    pub(super) attempts: Vec<AttemptHistory<'h>>,
    by_id: HashMap<AttemptId, usize>,
    /// The attempts of each lock, in the order of their calls.
    pub(super) locks: BTreeMap<&'h str, Vec<usize>>,
    pub(super) truths: Vec<Truth<'h>>,
    /// The longest known lease of each lock. 0: its holds end with their processes.
    pub(super) longest: HashMap<&'h str, u64>,
    /// When each process was stopped. A stop without an end lasts until the end of the history.
    pub(super) stops: HashMap<u32, Vec<(u64, u64)>>,
    /// When the machine gave no time.
    pub(super) stalls: Stalls,
    /// When the system was disturbed: sorted, without overlaps.
    pub(super) storms: Vec<(u64, u64)>,
    /// When only notifications were cut: sorted, without overlaps.
    pub(super) cuts: Vec<(u64, u64)>,
    /// The number of disturbances.
    pub(super) disturbances: u64,
    pub(super) crashes: HashMap<u32, u64>,
    /// Events that contradict the events before them.
    pub(super) strays: Vec<(usize, &'static str)>,
    /// The time of the last event.
    pub(super) end: u64,
}

/// The state of a lock as an administrator's connection saw it.
pub(super) struct Truth<'h> {
    pub(super) lock: &'h str,
    pub(super) at: u64,
    pub(super) until: u64,
    pub(super) holders: &'h [Held],
    pub(super) waiters: &'h [AttemptId],
    pub(super) event: usize,
}

impl<'h> HistoryIndex<'h> {
    pub(super) fn read(history: &'h History, terms: &'h Terms) -> Self {
        let events = history.events();
        let mut index = Self {
            terms,
            events,
            attempts: Vec::new(),
            by_id: HashMap::new(),
            locks: BTreeMap::new(),
            truths: Vec::new(),
            longest: HashMap::new(),
            stops: HashMap::new(),
            stalls: Stalls::default(),
            storms: Vec::new(),
            cuts: Vec::new(),
            disturbances: 0,
            crashes: HashMap::new(),
            strays: Vec::new(),
            end: events.last().map_or(0, |event| event.t),
        };
        let mut open = Open::default();
        for (at, event) in events.iter().enumerate() {
            if event.attempt != 0 {
                index.add_attempt_event(at, event);
            } else {
                index.add_run_event(at, event, &mut open);
            }
        }
        for (victim, from) in open.stops {
            index.stops.entry(victim).or_default().push((from, index.end));
        }
        for (kind, from) in open.storms {
            index.disturbed(kind, from, index.end);
        }
        index.storms = merged(index.storms);
        index.cuts = merged(index.cuts);
        index.stalls.settle();
        for attempt in &mut index.attempts {
            attempt.crashed = index.crashes.get(&attempt.proc).copied();
            if attempt.grant.is_some() {
                let longest = index.longest.entry(attempt.lock).or_default();
                *longest = (*longest).max(attempt.longest_ttl().unwrap_or(0));
            }
        }
        index
    }

    pub(super) fn attempt(&self, id: AttemptId) -> Option<&AttemptHistory<'h>> {
        self.by_id.get(&id).map(|&at| &self.attempts[at])
    }

    /// The attempts of each lock.
    pub(super) fn by_lock(&self) -> impl Iterator<Item = Vec<&AttemptHistory<'h>>> {
        self.locks.values().map(|attempts| attempts.iter().map(|&at| &self.attempts[at]).collect())
    }

    /// `t`. If the process was stopped within `slack` after `t`: the time at which it ran again.
    pub(super) fn awake(&self, proc: u32, mut t: u64, slack: u64) -> u64 {
        for &(from, until) in self.stops_since(proc, t) {
            if from > t.saturating_add(slack) {
                break;
            }
            t = until;
        }
        t
    }

    /// When the process was stopped between two times.
    pub(super) fn stopped(&self, proc: u32, from: u64, until: u64) -> impl Iterator<Item = (u64, u64)> {
        within(self.stops_since(proc, from), from, until)
    }

    fn stops_since(&self, proc: u32, t: u64) -> &[(u64, u64)] {
        let stops = self.stops.get(&proc).map_or(&[][..], Vec::as_slice);
        &stops[stops.partition_point(|stop| stop.1 <= t)..]
    }

    fn disturbed(&mut self, kind: &str, from: u64, until: u64) {
        self.disturbances += 1;
        let cut = self.terms.cuts.iter().any(|cut| cut == kind);
        if cut { &mut self.cuts } else { &mut self.storms }.push((from, until));
    }

    fn add_attempt_event(&mut self, at: usize, event: &'h Event) {
        if let What::AcqInv { mode, limit, within, retries } = &event.what {
            let attempt = AttemptHistory {
                id: event.attempt,
                lock: &event.lock,
                proc: event.proc,
                mode: mode.0,
                invoked: event.t,
                limit: *limit,
                within: *within,
                retries: *retries,
                queued: None,
                grant: None,
                failure: None,
                renewals: Vec::new(),
                renewing: Renewing::default(),
                checks: Vec::new(),
                writes: Vec::new(),
                lost: None,
                release: None,
                answer: None,
                crashed: None,
                events: vec![at],
            };
            if self.by_id.insert(event.attempt, self.attempts.len()).is_some() {
                self.strays.push((at, "an attempt begins twice"));
            }
            self.locks.entry(&event.lock).or_default().push(self.attempts.len());
            self.attempts.push(attempt);
            return;
        }
        let Some(&attempt) = self.by_id.get(&event.attempt) else {
            self.strays.push((at, "an event of an attempt that never began"));
            return;
        };
        let attempt = &mut self.attempts[attempt];
        attempt.events.push(at);
        if let Some(why) = apply_event(attempt, at, event) {
            self.strays.push((at, why));
        }
    }

    fn add_run_event(&mut self, at: usize, event: &'h Event, open: &mut Open<'h>) {
        match &event.what {
            What::Crash { victim } => {
                self.crashes.entry(*victim).or_insert(event.t);
            }
            What::Stop { victim } => {
                open.stops.entry(*victim).or_insert(event.t);
            }
            What::Cont { victim } => {
                if let Some(from) = open.stops.remove(victim) {
                    self.stops.entry(*victim).or_default().push((from, event.t));
                }
            }
            What::Stall { until, victim, .. } => self.stalls.add(*victim, (event.t, *until)),
            What::NemesisBegin { kind } => {
                open.storms.entry(kind).or_insert(event.t);
            }
            What::NemesisEnd { kind } => {
                if let Some(from) = open.storms.remove(kind.as_str()) {
                    self.disturbed(kind, from, event.t);
                }
            }
            What::Truth { until, holders, waiters } => self.truths.push(Truth {
                lock: &event.lock,
                at: event.t,
                until: *until,
                holders,
                waiters,
                event: at,
            }),
            What::Probe { .. } | What::Contents { .. } => {}
            _ => self.strays.push((at, "an event of an attempt names no attempt")),
        }
    }
}

/// Stops and disturbances that have not ended yet.
#[derive(Default)]
struct Open<'h> {
    stops: HashMap<u32, u64>,
    storms: HashMap<&'h str, u64>,
}

/// Merges overlapping spans; the result is sorted.
pub(super) fn merged(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.sort_unstable();
    spans.dedup_by(|next, span| {
        let touches = next.0 <= span.1;
        if touches {
            span.1 = span.1.max(next.1);
        }
        touches
    });
    spans
}
