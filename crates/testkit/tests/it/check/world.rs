//! A model of a lock server and its clients on virtual time: from a seed, a history that keeps every promise.

use std::collections::{BTreeMap, VecDeque};

use leasehold_core::Mode;
use leasehold_testkit::{
    check::Terms,
    history::{Event, Held, HowHeld, Phase, What},
};

use super::{dice::Dice, tale::number};

pub(crate) const MS: u64 = 1_000_000;
/// Clients call until then.
const END: u64 = 3_000 * MS;
/// The lease of holds that are renewed, and of those that are not.
pub(crate) const TTL: u64 = 300 * MS;
const SHORT: u64 = 80 * MS;
const TASKS: u32 = 8;
/// No answer for so long: the outcome is unknown.
const PATIENCE: u64 = 100 * MS;
/// Requests take less, so a clean-up comes after what it cleans up.
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

/// The events of one run, in order.
pub(crate) fn events(seed: u64) -> Vec<Event> {
    let mut world = World { dice: Dice::new(seed), ..World::default() };
    world.run();
    number(world.events)
}

#[derive(Default)]
struct World {
    dice: Dice,
    now: u64,
    steps: BTreeMap<(u64, usize), Step>,
    planned: usize,
    locks: [Lock; 3],
    claims: Vec<Claim>,
    killed: Option<u32>,
    fence: u64,
    list: Vec<u64>,
    events: Vec<Event>,
}

/// A lock on the server.
#[derive(Default)]
struct Lock {
    held: Vec<(usize, u64)>,
    line: VecDeque<usize>,
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
    token: u64,
    deadline: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Asks,
    Holds,
    Over,
}

/// What happens at a time; most of it to a claim.
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
}

#[derive(Clone, Copy)]
enum GiveUp {
    Taken,
    Unknown,
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

impl World {
    fn run(&mut self) {
        self.tell_run(What::Probe { phase: Phase::Start, found: [("keys".into(), 3)].into() });
        for task in 0..TASKS {
            self.pause(task);
        }
        (0..3).for_each(|lock| self.plan(10 * MS, Step::Look(lock)));
        if self.dice.percent(50) {
            let (at, victim) = (self.dice.between(0, END), self.dice.between(1, 5) as u32);
            self.plan(at, Step::Kill(victim));
        }
        while let Some(((at, _), step)) = self.steps.pop_first() {
            self.now = at;
            self.step(step);
        }
        self.now += 1_000 * MS;
        self.tell_run(What::Contents { of: "list".into(), elements: self.list.clone() });
        self.tell_run(What::Probe { phase: Phase::Rest, found: [("keys".into(), 3)].into() });
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Call(task) => self.call(task),
            Step::Arrive(id) => self.arrive(id),
            Step::Enqueued(id) if self.claims[id].stage == Stage::Asks => self.tell(id, What::Enq),
            Step::Enqueued(_) => {}
            Step::Granted(id) => self.granted(id),
            Step::GiveUp(id, how) => self.give_up(id, how),
            Step::Undo(id) => self.undo(id),
            Step::Write(id) => self.write(id),
            Step::WriteArrives(id, element) => {
                let token = self.claims[id].token;
                let accepted = token >= self.fence;
                if accepted {
                    self.fence = token;
                    self.list.push(element);
                }
                self.send(Step::WriteAnswer(id, element, accepted));
            }
            Step::WriteAnswer(id, element, true) => self.tell(id, What::WriteOk { element }),
            Step::WriteAnswer(id, element, false) => self.tell(id, What::WriteFenced { element }),
            Step::Renew(id) if self.holds(id) => {
                self.tell(id, What::RenewInv);
                self.send(Step::RenewArrives(id, self.now));
                self.plan(TTL / 3, Step::Renew(id));
            }
            Step::Renew(_) => {}
            Step::RenewArrives(id, sent) => {
                let until = self.now + TTL;
                let claim = &self.claims[id];
                let held = self.locks[claim.lock].held.iter_mut().find(|held| held.0 == id);
                if let Some(held) = held.filter(|_| !claim.undone) {
                    held.1 = until;
                    self.plan(TTL, Step::Expire(self.claims[id].lock));
                    self.send(Step::Renewed(id, sent));
                }
            }
            Step::Renewed(id, sent) if self.holds(id) => {
                self.claims[id].deadline = honest(sent, TTL);
                self.tell(id, What::RenewOk { deadline: honest(sent, TTL), ttl: Some(TTL) });
            }
            Step::Renewed(..) => {}
            Step::Check(id) if self.holds(id) => {
                let deadline = self.claims[id].deadline;
                self.tell(id, What::Check { valid: self.now < deadline, deadline: Some(deadline) });
            }
            Step::Check(_) => {}
            Step::Lost(id) if self.holds(id) => self.tell(id, What::Lost { err: "lapsed".into() }),
            Step::Lost(_) => {}
            Step::Leave(id) => self.leave(id),
            Step::Release(id, keep) => self.release(id, keep),
            Step::Answer(id, answer) => {
                self.tell(
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
                self.tell_run(What::Crash { victim });
                self.killed = Some(victim);
            }
        }
    }

    fn call(&mut self, task: u32) {
        if self.now > END || self.killed == Some(proc(task)) {
            return;
        }
        let lock = self.dice.between(0, 3) as usize;
        let (mode, is_try) = (self.dice.one_of(MODES[lock]), self.dice.percent(50));
        let ttl = if self.dice.percent(30) { SHORT } else { TTL };
        let id = self.claims.len();
        let (asked, stage, undone) = (self.now, Stage::Asks, false);
        self.claims.push(Claim {
            task,
            lock,
            mode,
            is_try,
            ttl,
            asked,
            stage,
            undone,
            token: 0,
            deadline: 0,
        });
        let limit = match (is_try, self.dice.percent(60)) {
            (true, _) => Some(0),
            (false, limited) => limited.then_some(150 * MS),
        };
        self.tell(id, What::AcqInv { mode: HowHeld(mode), limit, within: None });
        if let Some(limit) = limit.filter(|limit| *limit > 0) {
            self.plan(limit, Step::GiveUp(id, GiveUp::Taken));
        }
        if !is_try && self.dice.percent(15) {
            let at = self.dice.between(0, 100 * MS);
            self.plan(at, Step::GiveUp(id, GiveUp::Cancel));
        }
        if is_try {
            self.plan(PATIENCE, Step::GiveUp(id, GiveUp::Unknown));
        }
        if !is_try || !self.dice.percent(3) {
            self.send(Step::Arrive(id));
        }
    }

    fn arrive(&mut self, id: usize) {
        let claim = &self.claims[id];
        let (lock, is_try) = (claim.lock, claim.is_try);
        if claim.undone {
            return;
        }
        self.settle(lock);
        if self.locks[lock].line.is_empty() && self.admits(lock, id) {
            self.grant(lock, id);
        } else if !is_try {
            self.locks[lock].line.push_back(id);
            self.send(Step::Enqueued(id));
        } else if !self.dice.percent(5) {
            self.send(Step::GiveUp(id, GiveUp::Taken));
        }
    }

    fn admits(&self, lock: usize, id: usize) -> bool {
        let modes = || self.locks[lock].held.iter().map(|held| self.claims[held.0].mode);
        match self.claims[id].mode {
            Mode::Exclusive => modes().next().is_none(),
            Mode::Shared => modes().all(|mode| mode == Mode::Shared),
            Mode::Permits { count, limit } => {
                let held = modes().map(|mode| match mode {
                    Mode::Permits { count, .. } => count,
                    _ => limit,
                });
                held.sum::<u32>() + count <= limit
            }
        }
    }

    /// The head of the line is granted, as long as it may be; nobody goes before it. The dead are skipped.
    fn settle(&mut self, lock: usize) {
        while let Some(&head) = self.locks[lock].line.front() {
            let dead = self.killed == Some(proc(self.claims[head].task));
            if !dead && !self.admits(lock, head) {
                break;
            }
            self.locks[lock].line.pop_front();
            if !dead {
                self.claims[head].asked = self.now;
                self.grant(lock, head);
            }
        }
    }

    fn grant(&mut self, lock: usize, id: usize) {
        let claim = &mut self.claims[id];
        self.locks[lock].token += self.dice.between(1, 4);
        claim.token = self.locks[lock].token;
        let (ttl, is_try) = (claim.ttl, claim.is_try);
        self.locks[lock].held.push((id, self.now + ttl));
        self.plan(ttl, Step::Expire(lock));
        if !is_try || !self.dice.percent(5) {
            self.send(Step::Granted(id));
        }
    }

    fn granted(&mut self, id: usize) {
        let claim = &mut self.claims[id];
        if claim.stage != Stage::Asks {
            return;
        }
        claim.stage = Stage::Holds;
        claim.deadline = honest(claim.asked, claim.ttl);
        let (deadline, ttl, lock, mode) = (claim.deadline, claim.ttl, claim.lock, claim.mode);
        let ok = What::AcqOk {
            token: claim.token,
            lineage: "0".into(),
            deadline: Some(deadline),
            ttl: Some(ttl),
            asked: Some(claim.asked),
            watched: ttl == SHORT,
            fixed: ttl == SHORT,
        };
        self.tell(id, ok);
        self.plan(MS / 2, Step::Check(id));
        if (lock, mode) == (0, Mode::Exclusive) {
            self.plan(MS, Step::Write(id));
        }
        let left = deadline - self.now;
        let stay = match (ttl, self.dice.percent(15)) {
            (SHORT, true) => {
                self.plan(left + MS * 3 / 2, Step::Check(id));
                self.plan(left + MS, Step::Lost(id));
                let late = left + self.dice.between(2 * MS, 60 * MS);
                self.plan(late - MS, Step::Write(id));
                late
            }
            (TTL, true) => self.dice.between(100 * MS, 500 * MS),
            _ => self.dice.between(2 * MS, 40 * MS),
        };
        if ttl == TTL {
            self.plan(TTL / 3, Step::Renew(id));
        }
        self.plan(stay, Step::Leave(id));
    }

    fn give_up(&mut self, id: usize, how: GiveUp) {
        if self.claims[id].stage != Stage::Asks {
            return;
        }
        self.claims[id].stage = Stage::Over;
        self.tell(
            id,
            match how {
                GiveUp::Taken => What::AcqTaken,
                GiveUp::Unknown => What::AcqUnknown { err: "no answer".into() },
                GiveUp::Cancel => What::Cancel,
            },
        );
        if !self.is_killed(id) {
            self.plan(CLEAN_UP, Step::Undo(id));
        }
        self.pause(self.claims[id].task);
    }

    fn undo(&mut self, id: usize) {
        self.claims[id].undone = true;
        let lock = self.claims[id].lock;
        self.locks[lock].held.retain(|held| held.0 != id);
        self.locks[lock].line.retain(|waiter| *waiter != id);
        self.settle(lock);
    }

    fn write(&mut self, id: usize) {
        if self.claims[id].lock == 0 && self.holds(id) {
            let element = self.events.len() as u64;
            let token = self.claims[id].token;
            self.tell(id, What::WriteInv { to: "list".into(), token, element });
            self.send(Step::WriteArrives(id, element));
        }
    }

    fn leave(&mut self, id: usize) {
        if self.holds(id) {
            self.claims[id].stage = Stage::Over;
            let keep = self.dice.percent(5).then_some(30 * MS);
            self.tell(id, What::RelInv { keep });
            self.send(Step::Release(id, keep));
        }
    }

    fn release(&mut self, id: usize, keep: Option<u64>) {
        self.claims[id].undone = true;
        let lock = self.claims[id].lock;
        let until = keep.map(|keep| self.now + keep);
        let place = self.locks[lock].held.iter().position(|held| held.0 == id);
        match (place, until) {
            (Some(place), Some(until)) => {
                self.locks[lock].held[place].1 = until;
                self.plan(until - self.now, Step::Expire(lock));
            }
            (Some(place), None) => {
                self.locks[lock].held.swap_remove(place);
                self.settle(lock);
            }
            (None, _) => {}
        }
        if self.dice.percent(5) {
            self.plan(PATIENCE, Step::Answer(id, Answer::Unknown));
        } else {
            self.send(Step::Answer(id, if place.is_some() { Answer::Freed } else { Answer::NotHeld }));
        }
    }

    fn expire(&mut self, lock: usize) {
        let now = self.now;
        self.locks[lock].held.retain(|held| held.1 > now);
        self.settle(lock);
    }

    fn look(&mut self, lock: usize) {
        let Lock { held, line, .. } = &self.locks[lock];
        let holders = held.iter().map(|&(id, expires)| Held {
            attempt: id as u64 + 1,
            token: None,
            expires: Some(expires),
        });
        let waiters = line.iter().map(|&id| id as u64 + 1).collect();
        let what = What::Truth { until: self.now, holders: holders.collect(), waiters };
        self.record(9, 0, LOCKS[lock], 0, what);
        if self.now < END {
            self.plan(37 * MS, Step::Look(lock));
        }
    }

    fn holds(&self, id: usize) -> bool {
        self.claims[id].stage == Stage::Holds && !self.is_killed(id)
    }

    fn is_killed(&self, id: usize) -> bool {
        self.killed == Some(proc(self.claims[id].task))
    }

    fn pause(&mut self, task: u32) {
        let pause = self.dice.between(1, 40 * MS);
        self.plan(pause, Step::Call(task));
    }

    /// Over the wire.
    fn send(&mut self, step: Step) {
        let delay = self.dice.between(MS / 10, 2 * MS);
        self.plan(delay, step);
    }

    fn plan(&mut self, after: u64, step: Step) {
        self.planned += 1;
        self.steps.insert((self.now + after, self.planned), step);
    }

    fn tell(&mut self, id: usize, what: What) {
        let Claim { task, lock, .. } = self.claims[id];
        if self.killed != Some(proc(task)) {
            self.record(proc(task), task, LOCKS[lock], id as u64 + 1, what);
        }
    }

    fn tell_run(&mut self, what: What) {
        self.record(9, 0, "", 0, what);
    }

    fn record(&mut self, proc: u32, task: u32, lock: &str, attempt: u64, what: What) {
        self.events.push(Event { run: 1, proc, seq: 0, t: self.now, task, lock: lock.into(), attempt, what });
    }
}

/// The deadline of a lease asked for at `asked`.
fn honest(asked: u64, ttl: u64) -> u64 {
    asked + ttl / 100 * 98
}
