//! The claims that several engines list, and the tasks that made them.

use std::{collections::HashMap, time::Duration};

use leasehold::{Actor, HolderView, Mode, View, WaiterView};

/// The answer of one engine to `list`.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// What people call the engine: the kind of the engine, or the label of its URL. It tells several engines apart.
    pub engine: &'a str,
    /// Whether nobody is granted a name before those who have waited longer: [`Profile::fifo`](leasehold::Profile).
    pub fifo: bool,
    /// The names with a holder or a waiter.
    pub views: &'a [View],
}

/// A claim, as tools show it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Party {
    /// The engine, as the look calls it.
    pub engine: String,
    /// The name that the claim holds or waits for.
    pub name: String,
    /// The claim id.
    pub id: String,
    /// The label of the owner.
    pub owner: String,
    /// The task, if the label tells it.
    pub actor: Option<Actor>,
    /// The mode, if it is known.
    pub mode: Option<Mode>,
    /// Whether it holds the name. If not, it waits.
    pub holds: bool,
    /// The first token of a hold of leasehold.
    pub token: Option<u64>,
    /// How long it has held, or waited.
    pub since: Option<Duration>,
    /// How long a hold lasts without a renewal; `None` if it has no end that the engine knows.
    pub remaining: Option<Duration>,
    /// Whether another program than leasehold made it.
    pub foreign: bool,
}

/// The names of all looks with their claims, and the tasks that made the claims. Claims and tasks are known by their
/// index.
pub(super) struct Claims {
    pub(super) parties: Vec<Party>,
    pub(super) queues: Vec<Queue>,
    /// The task of each claim.
    pub(super) task_of: Vec<usize>,
    pub(super) tasks: Vec<Task>,
}

/// The claims of one name.
pub(super) struct Queue {
    pub(super) holders: Vec<usize>,
    /// In the order of the queue.
    pub(super) waiters: Vec<usize>,
    pub(super) fifo: bool,
}

/// Who holds and waits.
#[derive(Default)]
pub(super) struct Task {
    pub(super) claims: Vec<usize>,
    /// The tasks for whose end this one waits.
    pub(super) children: Vec<usize>,
}

impl Claims {
    pub(super) fn of(looks: &[Look<'_>]) -> Self {
        let mut claims =
            Self { parties: Vec::new(), queues: Vec::new(), task_of: Vec::new(), tasks: Vec::new() };
        for look in looks {
            // Of a name that cannot be read, nothing is known.
            for view in look.views.iter().filter(|view| view.problem.is_none()) {
                claims.add_queue(look, view);
            }
        }
        claims.assign_tasks();
        claims
    }

    fn add_queue(&mut self, look: &Look<'_>, view: &View) {
        let party = |id: &str, owner: &str| Party {
            engine: look.engine.to_owned(),
            name: view.name.as_str().to_owned(),
            id: id.to_owned(),
            owner: owner.to_owned(),
            actor: None,
            mode: None,
            holds: false,
            token: None,
            since: None,
            remaining: None,
            foreign: false,
        };
        let first = self.parties.len();
        let holder = |holder: &HolderView| Party {
            actor: holder.actor,
            mode: holder.mode.or(view.mode),
            holds: true,
            token: holder.token,
            since: holder.held,
            remaining: holder.remaining,
            foreign: holder.foreign,
            ..party(&holder.id, &holder.owner)
        };
        self.parties.extend(view.holders.iter().map(holder));
        let middle = self.parties.len();
        let waiter = |waiter: &WaiterView| Party {
            actor: waiter.actor,
            mode: waiter.mode,
            since: waiter.waiting,
            ..party(&waiter.id, &waiter.owner)
        };
        // A claim that was granted between two reads of one answer is a holder.
        let is_holder = |waiter: &&WaiterView| view.holders.iter().any(|holder| holder.id == waiter.id);
        self.parties.extend(view.waiters.iter().filter(|waiter| !is_holder(waiter)).map(waiter));
        self.queues.push(Queue {
            holders: (first..middle).collect(),
            waiters: (middle..self.parties.len()).collect(),
            fifo: look.fifo,
        });
    }

    fn assign_tasks(&mut self) {
        let mut by_actor: HashMap<u64, usize> = HashMap::new();
        for (claim, party) in self.parties.iter().enumerate() {
            let next = self.tasks.len();
            let task = party.actor.map_or(next, |actor| *by_actor.entry(actor.id()).or_insert(next));
            if task == next {
                self.tasks.push(Task::default());
            }
            self.tasks[task].claims.push(claim);
            self.task_of.push(task);
        }
        let mut parents: Vec<Option<usize>> = vec![None; self.tasks.len()];
        for (claim, party) in self.parties.iter().enumerate() {
            let parent =
                party.actor.and_then(Actor::parent).and_then(|parent| by_actor.get(&parent).copied());
            let child = self.task_of[claim];
            if let (Some(parent), None) = (parent, parents[child])
                && !is_below(&parents, parent, child)
            {
                parents[child] = Some(parent);
                self.tasks[parent].children.push(child);
            }
        }
    }
}

/// Whether a task is `other` or below it. Labels are written by others, so they may name parents in a circle: a link
/// that would close one is left out.
fn is_below(parents: &[Option<usize>], task: usize, other: usize) -> bool {
    std::iter::successors(Some(task), |task| parents[*task]).any(|task| task == other)
}
