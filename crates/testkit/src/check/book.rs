//! A history, read once: attempts by lock, windows of disturbance, truths, probes.

use std::collections::{BTreeMap, HashMap};

use super::life::{Checked, Failure, Granted, Leaving, Life, Outcome, Renewal};
use crate::history::{AttemptId, Event, Held, History, What};

/// Everything the checks need.
pub(super) struct Book<'h> {
    pub(super) events: &'h [Event],
    pub(super) lives: Vec<Life<'h>>,
    by_id: HashMap<AttemptId, usize>,
    /// The attempts of each lock in the order of their invocation.
    pub(super) locks: BTreeMap<&'h str, Vec<usize>>,
    pub(super) truths: Vec<Truth<'h>>,
    /// When each process was stopped; an open end is the end of the history.
    pub(super) stops: HashMap<u32, Vec<(u64, u64)>>,
    /// When the system was disturbed.
    pub(super) storms: Vec<(u64, u64)>,
    crashes: HashMap<u32, u64>,
    /// Events that have no cause.
    pub(super) strays: Vec<(usize, &'static str)>,
    /// The time of the last event.
    pub(super) end: u64,
}

/// What an administrator saw of a lock.
pub(super) struct Truth<'h> {
    pub(super) lock: &'h str,
    pub(super) at: u64,
    pub(super) until: u64,
    pub(super) holders: &'h [Held],
    pub(super) waiters: &'h [AttemptId],
    pub(super) event: usize,
}

impl<'h> Book<'h> {
    pub(super) fn read(history: &'h History) -> Self {
        let events = history.events();
        let mut book = Self {
            events,
            lives: Vec::new(),
            by_id: HashMap::new(),
            locks: BTreeMap::new(),
            truths: Vec::new(),
            stops: HashMap::new(),
            storms: Vec::new(),
            crashes: HashMap::new(),
            strays: Vec::new(),
            end: events.last().map_or(0, |event| event.t),
        };
        let mut open = Open::default();
        for (at, event) in events.iter().enumerate() {
            if event.attempt != 0 {
                book.of_attempt(at, event);
            } else {
                book.of_run(at, event, &mut open);
            }
        }
        for (victim, from) in open.stops {
            book.stops.entry(victim).or_default().push((from, book.end));
        }
        book.storms.extend(open.storms.into_values().map(|from| (from, book.end)));
        for life in &mut book.lives {
            life.crashed = book.crashes.get(&life.proc).copied();
        }
        book
    }

    pub(super) fn life(&self, id: AttemptId) -> Option<&Life<'h>> {
        self.by_id.get(&id).map(|&at| &self.lives[at])
    }

    /// The attempts of each lock.
    pub(super) fn by_lock(&self) -> impl Iterator<Item = Vec<&Life<'h>>> {
        self.locks.values().map(|lives| lives.iter().map(|&at| &self.lives[at]).collect())
    }

    /// `t`, or the moment at which the process ran again when it was stopped within `slack` after `t`.
    pub(super) fn awake(&self, proc: u32, mut t: u64, slack: u64) -> u64 {
        for &(from, until) in self.stops.get(&proc).into_iter().flatten() {
            if from <= t.saturating_add(slack) && until > t {
                t = until;
            }
        }
        t
    }

    fn of_attempt(&mut self, at: usize, event: &'h Event) {
        if let What::AcqInv { mode, limit, within } = &event.what {
            let life = Life {
                id: event.attempt,
                lock: &event.lock,
                proc: event.proc,
                mode: mode.0,
                invoked: event.t,
                limit: *limit,
                within: *within,
                queued: None,
                grant: None,
                failure: None,
                renewals: Vec::new(),
                checks: Vec::new(),
                lost: None,
                leaving: None,
                answer: None,
                crashed: None,
                events: vec![at],
            };
            if self.by_id.insert(event.attempt, self.lives.len()).is_some() {
                self.strays.push((at, "an attempt begins twice"));
            }
            self.locks.entry(&event.lock).or_default().push(self.lives.len());
            self.lives.push(life);
            return;
        }
        let Some(&life) = self.by_id.get(&event.attempt) else {
            self.strays.push((at, "an event of an attempt that never began"));
            return;
        };
        let asked = self.last_request(life);
        let life = &mut self.lives[life];
        life.events.push(at);
        if let Some(why) = tell(life, at, event, asked) {
            self.strays.push((at, why));
        }
    }

    /// When the last renewal of a life left, if nothing was acknowledged since.
    fn last_request(&self, life: usize) -> Option<u64> {
        let last = *self.lives[life].events.last()?;
        matches!(self.events[last].what, What::RenewInv).then(|| self.events[last].t)
    }

    fn of_run(&mut self, at: usize, event: &'h Event, open: &mut Open<'h>) {
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
            What::NemesisBegin { kind } => {
                open.storms.entry(kind).or_insert(event.t);
            }
            What::NemesisEnd { kind } => {
                let from = open.storms.remove(kind.as_str());
                self.storms.extend(from.map(|from| (from, event.t)));
            }
            What::Truth { until, holders, waiters } => self.truths.push(Truth {
                lock: &event.lock,
                at: event.t,
                until: *until,
                holders,
                waiters,
                event: at,
            }),
            What::Probe { .. } => {}
            _ => self.strays.push((at, "an event of an attempt names no attempt")),
        }
    }
}

/// What began and has not ended.
#[derive(Default)]
struct Open<'h> {
    stops: HashMap<u32, u64>,
    storms: HashMap<&'h str, u64>,
}

/// Tells a life what happened to it; answers why that cannot be.
fn tell<'h>(life: &mut Life<'h>, at: usize, event: &'h Event, asked: Option<u64>) -> Option<&'static str> {
    let t = event.t;
    match &event.what {
        What::AcqInv { .. } => {}
        What::Enq => life.queued = life.queued.or(Some(t)),
        What::AcqOk { token, lineage, deadline, ttl, asked, watched, fixed } => {
            let (deadline, ttl, asked, watched, fixed) = (*deadline, *ttl, *asked, *watched, *fixed);
            let grant = Granted { at: t, token: *token, lineage, deadline, ttl, asked, watched, fixed };
            if life.returned().is_some() {
                return Some("an acquire returned twice");
            }
            life.grant = Some(grant);
        }
        What::AcqFail { .. } => return fail(life, t, Failure::Definite),
        What::AcqUnknown { .. } => return fail(life, t, Failure::Unknown),
        What::Cancel => return fail(life, t, Failure::Cancelled),
        What::RenewOk { deadline, ttl } => {
            life.renewals.push(Renewal { at: t, deadline: *deadline, ttl: *ttl, asked, event: at });
        }
        What::Check { valid, deadline } => {
            life.checks.push(Checked { at: t, valid: *valid, deadline: *deadline, event: at });
        }
        What::Lost { .. } => life.lost = life.lost.or(Some(t)),
        What::RelInv { keep } => {
            if life.grant.is_none() || life.leaving.is_some() {
                return Some("a release of what was not granted, or released before");
            }
            life.leaving = Some(Leaving { at: t, keep: *keep });
        }
        What::RelOk => return answer(life, t, Outcome::Freed),
        What::RelNotheld => return answer(life, t, Outcome::NotHeld),
        What::RelUnknown { .. } => return answer(life, t, Outcome::Unknown),
        What::RenewInv | What::RenewFail { .. } => {}
        What::WriteInv { .. } | What::WriteOk { .. } | What::WriteFenced { .. } => {}
        What::Crash { .. } | What::Stop { .. } | What::Cont { .. } => {
            return Some("an event of a process names an attempt");
        }
        What::NemesisBegin { .. } | What::NemesisEnd { .. } | What::Probe { .. } | What::Truth { .. } => {
            return Some("an event of the run names an attempt");
        }
    }
    let needs_grant = matches!(event.what, What::RenewOk { .. } | What::Check { .. } | What::Lost { .. });
    (needs_grant && life.grant.is_none()).then_some("an event of a hold that was not granted")
}

fn fail(life: &mut Life<'_>, t: u64, failure: Failure) -> Option<&'static str> {
    if life.returned().is_some() {
        return Some("an acquire returned twice");
    }
    life.failure = Some((t, failure));
    None
}

fn answer(life: &mut Life<'_>, t: u64, outcome: Outcome) -> Option<&'static str> {
    if life.leaving.is_none() || life.answer.is_some() {
        return Some("a release answered that was not called, or twice");
    }
    life.answer = Some((t, outcome));
    None
}
