//! The clients of the model.

use leasehold_core::Mode;
use leasehold_testkit::history::{RecordedMode, What};

use super::{
    CLEAN_UP, Claim, END, GiveUp, MODES, MS, Model, PATIENCE, SHORT, Stage, Step, TTL, honest, proc,
};

impl Model {
    pub(super) fn call(&mut self, task: u32) {
        if self.now > END || self.killed == Some(proc(task)) {
            return;
        }
        let lock = self.rng.between(0, 3) as usize;
        let (mode, is_try) = (self.rng.one_of(MODES[lock]), self.rng.percent(50));
        let ttl = if self.rng.percent(30) { SHORT } else { TTL };
        let id = self.claims.len();
        self.claims.push(Claim {
            task,
            lock,
            mode,
            is_try,
            ttl,
            asked: self.now,
            stage: Stage::Asks,
            undone: false,
            queued: false,
            token: 0,
            deadline: 0,
        });
        let limit = match (is_try, self.rng.percent(60)) {
            (true, _) => Some(0),
            (false, limited) => limited.then_some(150 * MS),
        };
        self.record_claim(id, What::AcqInv { mode: RecordedMode(mode), limit, within: None, retries: false });
        if let Some(limit) = limit.filter(|limit| *limit > 0) {
            self.plan(limit, Step::GiveUp(id, GiveUp::Limit));
        }
        if !is_try && self.rng.percent(15) {
            let at = self.rng.between(0, 100 * MS);
            self.plan(at, Step::GiveUp(id, GiveUp::Cancel));
        }
        if is_try {
            self.plan(PATIENCE, Step::GiveUp(id, GiveUp::Unknown));
        }
        if !is_try || !self.rng.percent(3) {
            self.send(Step::Arrive(id));
        }
    }

    pub(super) fn granted(&mut self, id: usize) {
        let claim = &mut self.claims[id];
        if claim.stage != Stage::Asks {
            return;
        }
        claim.deadline = honest(claim.asked, claim.ttl);
        if claim.deadline <= self.now {
            return self.give_up(id, GiveUp::Late);
        }
        claim.stage = Stage::Holds;
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
        self.record_claim(id, ok);
        self.plan(MS / 2, Step::Check(id));
        if (lock, mode) == (0, Mode::Exclusive) {
            self.plan(MS, Step::Write(id));
        }
        let left = deadline - self.now;
        let stay = match (ttl, self.rng.percent(15)) {
            (SHORT, true) => {
                self.plan(left + MS * 3 / 2, Step::Check(id));
                self.plan(left + MS, Step::Lost(id));
                let late = left + self.rng.between(2 * MS, 60 * MS);
                self.plan(late - MS, Step::Write(id));
                late
            }
            (TTL, true) => self.rng.between(100 * MS, 500 * MS),
            _ => self.rng.between(2 * MS, 40 * MS),
        };
        if ttl == TTL {
            self.plan(TTL / 3, Step::Renew(id));
        }
        self.plan(stay, Step::Leave(id));
    }

    pub(super) fn give_up(&mut self, id: usize, how: GiveUp) {
        if self.claims[id].stage != Stage::Asks {
            return;
        }
        self.claims[id].stage = Stage::Over;
        let queued = self.claims[id].queued;
        self.record_claim(
            id,
            match how {
                GiveUp::Taken => What::AcqTaken,
                GiveUp::Limit if queued => What::AcqTaken,
                GiveUp::Limit => What::AcqFail { err: "no answer".into() },
                GiveUp::Unknown => What::AcqUnknown { err: "no answer".into() },
                GiveUp::Late => What::AcqFail { err: "arrived after its lease had run out".into() },
                GiveUp::Cancel => What::Cancel,
            },
        );
        if !self.is_killed(id) {
            self.plan(self.calm() + CLEAN_UP, Step::Undo(id));
        }
        self.pause(self.claims[id].task);
    }

    pub(super) fn write(&mut self, id: usize) {
        if self.claims[id].lock == 0 && self.holds(id) {
            let element = self.events.len() as u64;
            let token = self.claims[id].token;
            self.record_claim(id, What::WriteInv { to: "list".into(), token, element });
            self.send(Step::WriteArrives(id, element));
        }
    }

    pub(super) fn leave(&mut self, id: usize) {
        if self.holds(id) {
            self.claims[id].stage = Stage::Over;
            let min_hold = self.rng.percent(5).then_some(30 * MS);
            self.record_claim(id, What::RelInv { min_hold, sure: None });
            self.send(Step::Release(id, min_hold));
        }
    }
}
