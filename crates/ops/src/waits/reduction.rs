//! Which claims can never be granted, by the reduction of the graph: every task that waits for nothing is assumed to
//! end and to release what it holds, again and again. What still waits at the end, waits for itself.
//!
//! All doubts are decided in favour of an end, so that no wait is called endless that is not.

use leasehold::Mode;

use super::claims::{Claims, Queue};

/// The result of the reduction.
pub(super) struct Reduced {
    /// By task: it can end.
    pub(super) ends: Vec<bool>,
    /// By claim: it holds, or can be granted the name.
    pub(super) granted: Vec<bool>,
}

impl Reduced {
    pub(super) fn of(claims: &Claims) -> Self {
        let granted = claims.parties.iter().map(|party| party.holds).collect();
        let mut reduced = Self { ends: vec![false; claims.tasks.len()], granted };
        // A child has often been added after its parent, so a chain of runs ends in one pass.
        (0..claims.tasks.len()).rev().for_each(|task| _ = reduced.end(claims, task));
        // Each round but the last grants a claim or ends a task, so the number of rounds is limited.
        loop {
            let mut changed = false;
            for queue in &claims.queues {
                changed |= reduced.grant_in(claims, queue);
            }
            for task in (0..claims.tasks.len()).rev() {
                changed |= !reduced.ends[task] && reduced.end(claims, task);
            }
            if !changed {
                return reduced;
            }
        }
    }

    /// Grants the name to the waiters that fit, in the order of the queue. Returns whether there was one.
    fn grant_in(&mut self, claims: &Claims, queue: &Queue) -> bool {
        let mut changed = false;
        let mut kept: Vec<usize> = self.kept(claims, queue);
        for (place, waiter) in queue.waiters.iter().enumerate() {
            if self.granted[*waiter] {
                continue;
            }
            if !fits(claims, &kept, *waiter, mode_of_waiter(claims, queue, place)) {
                if queue.fifo {
                    // Nobody behind it is granted the name before it.
                    return changed;
                }
                continue;
            }
            (self.granted[*waiter], changed) = (true, true);
            if !self.end(claims, claims.task_of[*waiter]) && queue.fifo {
                kept.push(*waiter);
            }
        }
        changed
    }

    /// Ends the task if nothing keeps it from its end. Returns whether it ends.
    fn end(&mut self, claims: &Claims, index: usize) -> bool {
        let task = &claims.tasks[index];
        self.ends[index] = task.claims.iter().all(|claim| self.granted[*claim])
            && task.children.iter().all(|child| self.ends[*child]);
        self.ends[index]
    }

    /// The claims that keep the name: holders that cannot end, and waiters that were granted the name and cannot end.
    /// Without an order of the queue only the holders, because another waiter may be granted the name before.
    pub(super) fn kept(&self, claims: &Claims, queue: &Queue) -> Vec<usize> {
        let waiters: &[usize] = if queue.fifo { &queue.waiters } else { &[] };
        let granted = waiters.iter().filter(|claim| self.granted[**claim]);
        let all = queue.holders.iter().chain(granted).copied();
        all.filter(|claim| !self.ends[claims.task_of[*claim]]).collect()
    }
}

/// Whether this waiter, which waits for the mode `wanted`, can be granted a name that these claims keep.
fn fits(claims: &Claims, kept: &[usize], waiter: usize, wanted: Mode) -> bool {
    let mode = |claim: &usize| claims.parties[*claim].mode;
    let mut others = kept.iter().filter(|claim| !is_twin(claims, **claim, waiter));
    match wanted {
        Mode::Permits { count, limit } => {
            let taken: u64 = others.map(|claim| permits(mode(claim))).sum();
            taken + u64::from(count) <= u64::from(limit)
        }
        wanted => !others.any(|claim| conflicts(mode(claim), wanted)),
    }
}

/// Whether a claim ahead is another wait of the task of this waiter: a task that waits twice for one name does not do
/// one thing after another, and may release the first before the second is granted.
pub(super) fn is_twin(claims: &Claims, ahead: usize, waiter: usize) -> bool {
    !claims.parties[ahead].holds && claims.task_of[ahead] == claims.task_of[waiter]
}

/// The mode for which the claim at this place of the queue waits. If an engine does not tell it, the least that
/// explains why the claim waits.
pub(super) fn mode_of_waiter(claims: &Claims, queue: &Queue, place: usize) -> Mode {
    if let Some(mode) = claims.parties[queue.waiters[place]].mode {
        return mode;
    }
    let held = queue.holders.iter().filter_map(|holder| claims.parties[*holder].mode);
    let is_first = place == 0 && queue.fifo;
    match held.clone().next() {
        Some(Mode::Permits { limit, .. }) => {
            let taken: u64 = held.map(|mode| permits(Some(mode))).sum();
            let free = u64::from(limit).saturating_sub(taken);
            let count = if is_first { u32::try_from(free + 1).unwrap_or(limit) } else { 1 };
            Mode::Permits { count: count.min(limit), limit }
        }
        Some(Mode::Shared) if is_first => Mode::Exclusive,
        _ => Mode::Shared,
    }
}

/// How many permits a claim takes.
fn permits(mode: Option<Mode>) -> u64 {
    match mode {
        Some(Mode::Permits { count, .. }) => u64::from(count),
        _ => 1,
    }
}

/// Whether a claim of this mode can keep a waiter for `wanted` from the name.
pub(super) fn conflicts(held: Option<Mode>, wanted: Mode) -> bool {
    !matches!((held, wanted), (Some(Mode::Shared), Mode::Shared))
}
