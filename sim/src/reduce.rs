//! Removes from a failing plan all parts that it does not need to fail: faults, clients, tasks, acquisitions (delta
//! debugging: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002).

use crate::{
    plan::{ClientPlan, Plan},
    world,
};

/// The maximum number of runs of a reduction.
const MAX_RUNS: usize = 3000;

/// The smallest plan found that fails in the same way as `plan`. `None`: `plan` does not fail.
#[must_use]
pub fn reduce(plan: &Plan) -> Option<Plan> {
    let kind = failure(plan)?;
    let mut reducer = Reducer { plan: plan.clone(), kind, runs: 0 };
    loop {
        let previous_size = size(&reducer.plan);
        reducer.shrink(|plan| &mut plan.faults);
        for client in 0..plan.clients.len() {
            reducer.shrink(move |plan| &mut plan.clients[client].tasks);
            for task in 0..reducer.plan.clients[client].tasks.len() {
                reducer.shrink(move |plan| &mut plan.clients[client].tasks[task]);
            }
        }
        reducer.simplify();
        if size(&reducer.plan) == previous_size || reducer.runs >= MAX_RUNS {
            return Some(reducer.plan);
        }
    }
}

/// The kind of a plan's failure. `None`: the plan does not fail.
fn failure(plan: &Plan) -> Option<String> {
    world::run(plan, false).complaints.first().map(|complaint| complaint.kind.clone())
}

/// The size of a plan: the number of faults and tasks, of acquisitions, and of clocks whose rate differs from the
/// world's.
fn size(plan: &Plan) -> (usize, usize, usize) {
    let tasks: usize = plan.clients.iter().map(|client| client.tasks.len()).sum();
    let skewed_clocks = plan.clients.iter().filter(|client| client.fast != 0).count();
    (plan.faults.len() + tasks, plan.ops(), skewed_clocks)
}

/// The state of a reduction.
struct Reducer {
    plan: Plan,
    /// The kind of failure that each smaller plan must have.
    kind: String,
    /// The number of runs so far.
    runs: usize,
}

impl Reducer {
    /// Replaces the plan with a smaller one, if the smaller one fails in the same way. Returns whether it does.
    fn keep_if_failing(&mut self, smaller: Plan) -> bool {
        self.runs += 1;
        let fails = self.runs <= MAX_RUNS && failure(&smaller).as_ref() == Some(&self.kind);
        if fails {
            self.plan = smaller;
        }
        fails
    }

    /// Removes parts of a list as long as the plan still fails in the same way: first the complete list, then halves of
    /// it, then quarters, and so on down to single elements.
    fn shrink<T>(&mut self, list_of: impl Fn(&mut Plan) -> &mut Vec<T>) {
        let mut chunk = list_of(&mut self.plan).len();
        while chunk > 0 {
            let mut from = 0;
            while from < list_of(&mut self.plan).len() {
                let mut smaller = self.plan.clone();
                let list = list_of(&mut smaller);
                let to = (from + chunk).min(list.len());
                drop(list.drain(from..to));
                if !self.keep_if_failing(smaller) {
                    from += chunk;
                }
            }
            chunk /= 2;
        }
    }

    /// Lets each clock have the rate of the world's clock, if the plan still fails in the same way.
    fn simplify(&mut self) {
        for client in 0..self.plan.clients.len() {
            if self.plan.clients[client].fast != 0 {
                let mut plainer = self.plan.clone();
                plainer.clients[client] = ClientPlan { fast: 0, ..plainer.clients[client].clone() };
                self.keep_if_failing(plainer);
            }
        }
    }
}
