//! A model of a lock server and its clients on virtual time. From a seed it generates a history that keeps every
//! invariant.

mod client;
mod server;

use std::collections::{BTreeMap, VecDeque};

use leasehold_core::Mode;
use leasehold_testkit::{
    check::Terms,
    history::{Event, Phase, What},
};

use super::{rng::Rng, scenario::number};

pub(crate) const MS: u64 = 1_000_000;
/// Clients make no calls after this time.
const END: u64 = 3_000 * MS;
/// The lease of renewed holds, and of holds without renewals.
pub(crate) const TTL: u64 = 300 * MS;
const SHORT: u64 = 80 * MS;
const TASKS: u32 = 8;
/// After this time without an answer the outcome is unknown.
const PATIENCE: u64 = 100 * MS;
/// A clean-up starts after this time. Requests take less, so the clean-up comes after the request that it cleans up.
const CLEAN_UP: u64 = 3 * MS;

pub(crate) const LOCKS: [&str; 3] = ["alone", "shared", "permits"];
const MODES: [&[Mode]; 3] = [
    &[Mode::Exclusive],
    &[Mode::Exclusive, Mode::Shared, Mode::Shared],
    &[
        Mode::Permits { count: 1, limit: 3 },
        Mode::Permits { count: 2, limit: 3 },
        Mode::Permits { count: 3, limit: 3 },
    ],
];

/// What the server of the model promises.
pub(crate) fn terms() -> Terms {
    let mut terms = Terms::default();
    terms.overtakes = Some(0);
    terms
}

/// Whether processes are killed and stopped, and the network is cut.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Faults {
    #[default]
    Absent,
    Present,
}

/// The events of one run, in order.
pub(crate) fn events(seed: u64, faults: Faults) -> Vec<Event> {
    let mut model = Model { rng: Rng::new(seed), faults, ..Model::default() };
    model.run();
    number(model.events)
}

#[derive(Default)]
struct Model {
    rng: Rng,
    faults: Faults,
    now: u64,
    steps: BTreeMap<(u64, usize), Step>,
    planned: usize,
    locks: [Lock; 3],
    claims: Vec<Claim>,
    killed: Option<u32>,
    /// The stopped process, and when it runs again.
    stopped: Option<(u32, u64)>,
    /// The time until which no message arrives.
    storm: u64,
    fence: u64,
    list: Vec<u64>,
    events: Vec<Event>,
}

/// A lock on the server.
#[derive(Default)]
struct Lock {
    held: Vec<(usize, u64)>,
    queue: VecDeque<usize>,
    token: u64,
}

struct Claim {
    task: u32,
    lock: usize,
    mode: Mode,
    is_try: bool,
    ttl: u64,
    asked: u64,
    stage: Stage,
    undone: bool,
    /// The server answered that the claim is queued.
    queued: bool,
    token: u64,
    deadline: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Asks,
    Holds,
    Over,
}

/// An event at a time; most events belong to a claim.
#[derive(Clone, Copy)]
enum Step {
    Call(u32),
    Arrive(usize),
    Enqueued(usize),
    Granted(usize),
    GiveUp(usize, GiveUp),
    Undo(usize),
    Write(usize),
    WriteArrives(usize, u64),
    Renew(usize),
    RenewArrives(usize, u64),
    Renewed(usize, u64),
    Check(usize),
    Lost(usize),
    Leave(usize),
    Release(usize, Option<u64>),
    Answer(usize, Answer),
    WriteAnswer(usize, u64, bool),
    Expire(usize),
    Look(usize),
    Kill(u32),
    Stop(u32, u64),
    Continue(u32),
    Storm(u64),
    Calm,
}

impl Step {
    /// The claim in whose process the step happens. `None`: elsewhere.
    fn claim_of_process(self) -> Option<usize> {
        match self {
            Self::Enqueued(id)
            | Self::Granted(id)
            | Self::GiveUp(id, _)
            | Self::Write(id)
            | Self::WriteAnswer(id, ..)
            | Self::Renew(id)
            | Self::Renewed(id, _)
            | Self::Check(id)
            | Self::Lost(id)
            | Self::Leave(id)
            | Self::Answer(id, _) => Some(id),
            _ => None,
        }
    }
}

#[derive(Clone, Copy)]
enum GiveUp {
    Taken,
    Limit,
    Unknown,
    Late,
    Cancel,
}

#[derive(Clone, Copy)]
enum Answer {
    Freed,
    NotHeld,
    Unknown,
}

fn proc(task: u32) -> u32 {
    task / 2 + 1
}

impl Model {
    fn run(&mut self) {
        self.record_run(What::Probe { phase: Phase::Start, found: [("keys".into(), 3)].into() });
        for task in 0..TASKS {
            self.pause(task);
        }
        (0..3).for_each(|lock| self.plan(10 * MS, Step::Look(lock)));
        if self.faults == Faults::Present {
            self.plan_faults();
        }
        while let Some(((at, _), step)) = self.steps.pop_first() {
            self.now = at;
            match (step.claim_of_process().map(|id| proc(self.claims[id].task)), self.stopped) {
                (Some(proc), Some((stopped, until))) if proc == stopped => self.plan(until - at, step),
                _ => self.step(step),
            }
        }
        self.now += 1_000 * MS;
        self.record_run(What::Contents { of: "list".into(), elements: self.list.clone() });
        self.record_run(What::Probe { phase: Phase::Rest, found: [("keys".into(), 3)].into() });
    }

    /// Plans some random faults.
    fn plan_faults(&mut self) {
        let mut at =
            |share| (self.rng.percent(share), self.rng.between(0, END), self.rng.between(1, 5) as u32);
        let (kill, stop, storm) = (at(50), at(50), at(30));
        let pause = |rng: &mut Rng| rng.between(10 * MS, 600 * MS);
        if let (true, at, victim) = kill {
            self.plan(at, Step::Kill(victim));
        }
        if let (true, at, victim) = stop {
            let pause = pause(&mut self.rng);
            self.plan(at, Step::Stop(victim, pause));
        }
        if let (true, at, _) = storm {
            let length = pause(&mut self.rng);
            self.plan(at, Step::Storm(length));
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Call(task) => self.call(task),
            Step::Arrive(id) => self.arrive(id),
            Step::Enqueued(id) if self.claims[id].stage == Stage::Asks => {
                self.claims[id].queued = true;
                self.record_claim(id, What::Enq);
            }
            Step::Enqueued(_) => {}
            Step::Granted(id) => self.granted(id),
            Step::GiveUp(id, how) => self.give_up(id, how),
            Step::Undo(id) => self.undo(id),
            Step::Write(id) => self.write(id),
            Step::WriteArrives(id, element) => self.accept(id, element),
            Step::WriteAnswer(id, element, true) => self.record_claim(id, What::WriteOk { element }),
            Step::WriteAnswer(id, element, false) => self.record_claim(id, What::WriteFenced { element }),
            Step::Renew(id) if self.holds(id) && self.now < self.claims[id].deadline => {
                self.record_claim(id, What::RenewInv);
                self.send(Step::RenewArrives(id, self.now));
                self.plan(TTL / 3, Step::Renew(id));
            }
            Step::Renew(_) => {}
            Step::RenewArrives(id, sent) => self.renew(id, sent),
            Step::Renewed(id, sent) if self.holds(id) => {
                self.claims[id].deadline = honest(sent, TTL);
                self.record_claim(id, What::RenewOk { deadline: honest(sent, TTL), ttl: Some(TTL) });
            }
            Step::Renewed(..) => {}
            Step::Check(id) if self.holds(id) => {
                let deadline = self.claims[id].deadline;
                self.record_claim(id, What::Check { valid: self.now < deadline, deadline: Some(deadline) });
            }
            Step::Check(_) => {}
            Step::Lost(id) if self.holds(id) => self.record_claim(id, What::Lost { err: "lapsed".into() }),
            Step::Lost(_) => {}
            Step::Leave(id) => self.leave(id),
            Step::Release(id, min_hold) => self.release(id, min_hold),
            Step::Answer(id, answer) => {
                self.record_claim(
                    id,
                    match answer {
                        Answer::Freed => What::RelOk,
                        Answer::NotHeld => What::RelNotheld,
                        Answer::Unknown => What::RelUnknown { err: "no answer".into() },
                    },
                );
                self.pause(self.claims[id].task);
            }
            Step::Expire(lock) => self.expire(lock),
            Step::Look(lock) => self.look(lock),
            Step::Kill(victim) => {
                self.record_run(What::Crash { victim });
                self.killed = Some(victim);
            }
            Step::Stop(victim, pause) => {
                self.record_run(What::Stop { victim });
                self.plan(pause, Step::Continue(victim));
                self.stopped = Some((victim, self.now + pause));
            }
            Step::Continue(victim) => {
                self.record_run(What::Cont { victim });
                self.stopped = None;
            }
            Step::Storm(length) => {
                self.record_run(What::NemesisBegin { kind: "storm".into() });
                self.plan(length, Step::Calm);
                self.storm = self.now + length;
            }
            Step::Calm => self.record_run(What::NemesisEnd { kind: "storm".into() }),
        }
    }

    fn holds(&self, id: usize) -> bool {
        self.claims[id].stage == Stage::Holds && !self.is_killed(id)
    }

    fn is_killed(&self, id: usize) -> bool {
        self.killed == Some(proc(self.claims[id].task))
    }

    fn pause(&mut self, task: u32) {
        let pause = self.rng.between(1, 40 * MS);
        self.plan(pause, Step::Call(task));
    }

    /// Sends a message over the network.
    fn send(&mut self, step: Step) {
        let delay = self.rng.between(MS / 10, 2 * MS);
        self.plan(self.calm() + delay, step);
    }

    /// The remaining time of the storm.
    fn calm(&self) -> u64 {
        self.storm.saturating_sub(self.now)
    }

    fn plan(&mut self, after: u64, step: Step) {
        self.planned += 1;
        self.steps.insert((self.now + after, self.planned), step);
    }

    fn record_claim(&mut self, id: usize, what: What) {
        let Claim { task, lock, .. } = self.claims[id];
        if self.killed != Some(proc(task)) {
            self.record(proc(task), task, LOCKS[lock], id as u64 + 1, what);
        }
    }

    fn record_run(&mut self, what: What) {
        self.record(9, 0, "", 0, what);
    }

    fn record(&mut self, proc: u32, task: u32, lock: &str, attempt: u64, what: What) {
        self.events.push(Event { run: 1, proc, seq: 0, t: self.now, task, lock: lock.into(), attempt, what });
    }
}

/// The deadline of a lease requested at `asked`.
fn honest(asked: u64, ttl: u64) -> u64 {
    asked + ttl / 100 * 98
}
