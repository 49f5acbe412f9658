//! The server of the model: for each lock a first come, first served queue, and leases.

use leasehold_core::{KnownMode, Mode};
use leasehold_testkit::history::{Held, What};

use super::{Answer, END, GiveUp, LOCKS, Lock, MS, Model, PATIENCE, Step, TTL, proc};

impl Model {
    pub(super) fn arrive(&mut self, id: usize) {
        let claim = &self.claims[id];
        let (lock, is_try) = (claim.lock, claim.is_try);
        if claim.undone {
            return;
        }
        self.settle(lock);
        if self.locks[lock].queue.is_empty() && self.admits(lock, id) {
            self.grant(lock, id);
        } else if !is_try {
            self.locks[lock].queue.push_back(id);
            self.send(Step::Enqueued(id));
        } else if !self.rng.percent(5) {
            self.send(Step::GiveUp(id, GiveUp::Taken));
        }
    }

    pub(super) fn admits(&self, lock: usize, id: usize) -> bool {
        let modes = || self.locks[lock].held.iter().map(|held| self.claims[held.0].mode);
        match self.claims[id].mode.known() {
            KnownMode::Exclusive => modes().next().is_none(),
            KnownMode::Shared => modes().all(|mode| mode == Mode::Shared),
            KnownMode::Permits { count, limit } => {
                let held = modes().map(|mode| match mode {
                    Mode::Permits { count, .. } => count,
                    _ => limit,
                });
                held.sum::<u32>() + count <= limit
            }
        }
    }

    /// Grants the head of the queue as long as the lock admits it. No claim overtakes the head. Claims of a killed
    /// process are skipped.
    pub(super) fn settle(&mut self, lock: usize) {
        while let Some(&head) = self.locks[lock].queue.front() {
            let dead = self.killed == Some(proc(self.claims[head].task));
            if !dead && !self.admits(lock, head) {
                break;
            }
            self.locks[lock].queue.pop_front();
            if !dead {
                self.claims[head].asked = self.now;
                self.grant(lock, head);
            }
        }
    }

    pub(super) fn grant(&mut self, lock: usize, id: usize) {
        let claim = &mut self.claims[id];
        self.locks[lock].token += self.rng.between(1, 4);
        claim.token = self.locks[lock].token;
        let (ttl, is_try) = (claim.ttl, claim.is_try);
        self.locks[lock].held.push((id, self.now + ttl));
        self.plan(ttl, Step::Expire(lock));
        if !is_try || !self.rng.percent(5) {
            self.send(Step::Granted(id));
        }
    }

    pub(super) fn undo(&mut self, id: usize) {
        self.claims[id].undone = true;
        let lock = self.claims[id].lock;
        self.locks[lock].held.retain(|held| held.0 != id);
        self.locks[lock].queue.retain(|waiter| *waiter != id);
        self.settle(lock);
    }

    pub(super) fn release(&mut self, id: usize, min_hold: Option<u64>) {
        self.claims[id].undone = true;
        let lock = self.claims[id].lock;
        let until = min_hold.map(|min_hold| self.now + min_hold);
        let position = self.locks[lock].held.iter().position(|held| held.0 == id);
        match (position, until) {
            (Some(position), Some(until)) => {
                self.locks[lock].held[position].1 = until;
                self.plan(until - self.now, Step::Expire(lock));
            }
            (Some(position), None) => {
                self.locks[lock].held.swap_remove(position);
                self.settle(lock);
            }
            (None, _) => {}
        }
        if self.rng.percent(5) {
            self.plan(PATIENCE, Step::Answer(id, Answer::Unknown));
        } else {
            self.send(Step::Answer(id, if position.is_some() { Answer::Freed } else { Answer::NotHeld }));
        }
    }

    pub(super) fn expire(&mut self, lock: usize) {
        let now = self.now;
        self.locks[lock].held.retain(|held| held.1 > now);
        self.settle(lock);
    }

    pub(super) fn look(&mut self, lock: usize) {
        let Lock { held, queue, .. } = &self.locks[lock];
        let holders = held.iter().map(|&(id, expires)| Held {
            attempt: id as u64 + 1,
            token: None,
            expires: Some(expires),
        });
        let waiters = queue.iter().map(|&id| id as u64 + 1).collect();
        let what = What::Truth { until: self.now, holders: holders.collect(), waiters };
        self.record(9, 0, LOCKS[lock], 0, what);
        if self.now < END {
            self.plan(37 * MS, Step::Look(lock));
        }
    }

    pub(super) fn renew(&mut self, id: usize, sent: u64) {
        let (until, claim) = (self.now + TTL, &self.claims[id]);
        let lock = claim.lock;
        let held = self.locks[lock].held.iter_mut().find(|held| held.0 == id);
        if let Some(held) = held.filter(|_| !claim.undone) {
            held.1 = until;
            self.plan(TTL, Step::Expire(lock));
            self.send(Step::Renewed(id, sent));
        }
    }

    /// The resource with its fence.
    pub(super) fn accept(&mut self, id: usize, element: u64) {
        let token = self.claims[id].token;
        let accepted = token >= self.fence;
        if accepted {
            self.fence = token;
            self.list.push(element);
        }
        self.send(Step::WriteAnswer(id, element, accepted));
    }
}
