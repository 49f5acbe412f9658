//! A history, indexed in one pass: attempts by lock, disturbances, recorded states of the server, probes.

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
    /// The index of each attempt in `attempts`.
    by_id: HashMap<AttemptId, usize>,
    /// The attempts of each lock, in the order of their calls.
    pub(super) locks: BTreeMap<&'h str, Vec<usize>>,
    /// The recorded states of locks.
    pub(super) server_views: Vec<ServerView<'h>>,
    /// What observers of elections saw, in the order of the times at which they knew.
    pub(super) sights: Vec<Sight<'h>>,
    /// The longest known lease of each lock. 0: the holds of the lock end with their processes.
    pub(super) longest_lease: HashMap<&'h str, u64>,
    /// When each process was paused. A pause without a recorded end lasts until the end of the history.
    pub(super) stops: HashMap<u32, Vec<(u64, u64)>>,
    /// When the machine gave no processor or disk time.
    pub(super) stalls: Stalls,
    /// When the system was disturbed: sorted, without overlaps.
    pub(super) storms: Vec<(u64, u64)>,
    /// When only notifications were cut: sorted, without overlaps.
    pub(super) cuts: Vec<(u64, u64)>,
    /// The number of disturbances.
    pub(super) disturbances: u64,
    /// When each killed process was killed.
    pub(super) crashes: HashMap<u32, u64>,
    /// Events that contradict earlier events: the index of each, and why.
    pub(super) contradictions: Vec<(usize, &'static str)>,
    /// The time of the last event.
    pub(super) end: u64,
}

/// The state of a lock as an administrator's connection read it.
pub(super) struct ServerView<'h> {
    pub(super) lock: &'h str,
    /// A time before the request for the state was sent.
    pub(super) at: u64,
    /// A time after the answer arrived.
    pub(super) until: u64,
    pub(super) holders: &'h [Held],
    pub(super) waiters: &'h [AttemptId],
    /// The index of the event that recorded the state.
    pub(super) event: usize,
}

/// The value and the term of a leader, as an observer got them.
pub(super) struct Sight<'h> {
    pub(super) lock: &'h str,
    /// A time after the observer got them.
    pub(super) at: u64,
    /// A time before they were read, if it is known.
    pub(super) since: Option<u64>,
    /// The process and the number of the observer.
    pub(super) observer: (u32, u64),
    /// The attempt that published the value.
    pub(super) leader: AttemptId,
    /// The number of the value within the attempt.
    pub(super) number: u64,
    /// The lineage and the number of the term.
    pub(super) term: (&'h str, u64),
    /// The index of the event.
    pub(super) event: usize,
}

impl<'h> HistoryIndex<'h> {
    /// Reads a history, event by event.
    pub(super) fn read(history: &'h History, terms: &'h Terms) -> Self {
        let events = history.events();
        let mut index = Self {
            terms,
            events,
            attempts: Vec::new(),
            by_id: HashMap::new(),
            locks: BTreeMap::new(),
            server_views: Vec::new(),
            sights: Vec::new(),
            longest_lease: HashMap::new(),
            stops: HashMap::new(),
            stalls: Stalls::default(),
            storms: Vec::new(),
            cuts: Vec::new(),
            disturbances: 0,
            crashes: HashMap::new(),
            contradictions: Vec::new(),
            end: events.last().map_or(0, |event| event.t),
        };
        let mut open = OpenSpans::default();
        for (event_index, event) in events.iter().enumerate() {
            if event.attempt != 0 {
                index.add_attempt_event(event_index, event);
            } else {
                index.add_run_event(event_index, event, &mut open);
            }
        }
        for (victim, from) in open.stops {
            index.stops.entry(victim).or_default().push((from, index.end));
        }
        for (kind, from) in open.storms {
            index.add_disturbance(kind, from, index.end);
        }
        index.storms = merged(index.storms);
        index.cuts = merged(index.cuts);
        index.stalls.merge();
        for attempt in &mut index.attempts {
            attempt.killed_at = index.crashes.get(&attempt.proc).copied();
            if attempt.grant.is_some() {
                let longest_lease = index.longest_lease.entry(attempt.lock).or_default();
                *longest_lease = (*longest_lease).max(attempt.longest_ttl().unwrap_or(0));
            }
        }
        index
    }

    /// The attempt with this id.
    pub(super) fn attempt(&self, id: AttemptId) -> Option<&AttemptHistory<'h>> {
        self.by_id.get(&id).map(|&number| &self.attempts[number])
    }

    /// The attempts of each lock.
    pub(super) fn by_lock(&self) -> impl Iterator<Item = Vec<&AttemptHistory<'h>>> {
        self.locks.values().map(|attempts| attempts.iter().map(|&number| &self.attempts[number]).collect())
    }

    /// If the process was paused at `t`, or within `slack` after `t`: the time at which it ran again. Another pause
    /// within `slack` after that time counts too. Otherwise: `t`.
    pub(super) fn resumed_at(&self, proc: u32, mut t: u64, slack: u64) -> u64 {
        for &(from, until) in self.stops_since(proc, t) {
            if from > t.saturating_add(slack) {
                break;
            }
            t = until;
        }
        t
    }

    /// The pauses of the process that overlap the range between two times, cut to this range.
    pub(super) fn stopped(&self, proc: u32, from: u64, until: u64) -> impl Iterator<Item = (u64, u64)> {
        within(self.stops_since(proc, from), from, until)
    }

    /// Of the pauses of a process, those whose end is after `t`.
    fn stops_since(&self, proc: u32, t: u64) -> &[(u64, u64)] {
        let stops = self.stops.get(&proc).map_or(&[][..], Vec::as_slice);
        &stops[stops.partition_point(|stop| stop.1 <= t)..]
    }

    /// Adds a disturbance of this kind.
    fn add_disturbance(&mut self, kind: &str, from: u64, until: u64) {
        self.disturbances += 1;
        let cut = self.terms.cuts.iter().any(|cut| cut == kind);
        if cut { &mut self.cuts } else { &mut self.storms }.push((from, until));
    }

    /// Adds an event of an attempt.
    fn add_attempt_event(&mut self, event_index: usize, event: &'h Event) {
        if let What::AcqInv { mode, limit, within, retries } = &event.what {
            let attempt = AttemptHistory {
                id: event.attempt,
                lock: &event.lock,
                proc: event.proc,
                mode: mode.0,
                invoked: event.t,
                limit: *limit,
                outer_attempt: *within,
                retries: *retries,
                part: None,
                queued: None,
                grant: None,
                failure: None,
                renewals: Vec::new(),
                renewing: Renewing::default(),
                checks: Vec::new(),
                writes: Vec::new(),
                values: Vec::new(),
                result: None,
                replay: None,
                lost: None,
                release: None,
                answer: None,
                killed_at: None,
                events: vec![event_index],
            };
            if self.by_id.insert(event.attempt, self.attempts.len()).is_some() {
                self.contradictions.push((event_index, "an attempt begins twice"));
            }
            self.locks.entry(&event.lock).or_default().push(self.attempts.len());
            self.attempts.push(attempt);
            return;
        }
        let Some(&attempt) = self.by_id.get(&event.attempt) else {
            self.contradictions.push((event_index, "an event of an attempt that never began"));
            return;
        };
        let attempt = &mut self.attempts[attempt];
        attempt.events.push(event_index);
        if let Some(why) = apply_event(attempt, event_index, event) {
            self.contradictions.push((event_index, why));
        }
    }

    /// Adds an event of a process, a lock or the run.
    fn add_run_event(&mut self, event_index: usize, event: &'h Event, open: &mut OpenSpans<'h>) {
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
                    self.add_disturbance(kind, from, event.t);
                }
            }
            What::Truth { until, holders, waiters } => self.server_views.push(ServerView {
                lock: &event.lock,
                at: event.t,
                until: *until,
                holders,
                waiters,
                event: event_index,
            }),
            What::Seen { observer, since, leader, number, token, lineage } => self.sights.push(Sight {
                lock: &event.lock,
                at: event.t,
                since: *since,
                observer: (event.proc, *observer),
                leader: *leader,
                number: *number,
                term: (lineage, *token),
                event: event_index,
            }),
            What::Probe { .. } | What::Contents { .. } => {}
            _ => self.contradictions.push((event_index, "an event of an attempt names no attempt")),
        }
    }
}

/// The pauses and disturbances whose end was not read yet.
#[derive(Default)]
struct OpenSpans<'h> {
    /// When each paused process was paused.
    stops: HashMap<u32, u64>,
    /// When each disturbance began, by its kind.
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
