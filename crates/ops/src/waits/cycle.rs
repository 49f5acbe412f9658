//! Cycles of waits among the tasks that cannot end.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use super::{
    blocks::{Block, blockers},
    claims::{Claims, Look, Party},
    reduction::{Reduced, is_twin},
};

/// Tasks that wait for one another: none of them can end before another one ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// The waits in the order of the cycle: the waiter of each is the task of the blocker before it, or works for it (a
    /// run inside a run). The last one is followed by the first.
    pub blocks: Vec<Block>,
    /// How many other tasks cannot end before the cycle is broken.
    pub behind: usize,
}

/// Why a task cannot end before another task ends.
#[derive(Clone, Copy)]
enum Why {
    /// One claim waits because of another.
    Waits { waiter: usize, blocker: usize },
    /// It waits for the end of a run inside it.
    Inside,
}

/// From each task that cannot end: the tasks that would have to end before, with the reason.
type Edges = HashMap<usize, Vec<(usize, Why)>>;

impl Deadlock {
    /// The hold that was granted last of those that others of the cycle wait for: the cheapest one to break, because it
    /// has done the least work. `None` if none can be broken by its token.
    #[must_use]
    pub fn victim(&self) -> Option<&Party> {
        let holds = self.blocks.iter().map(|block| &block.blocker);
        let breakable = holds.filter(|hold| hold.holds && !hold.foreign && hold.token.is_some());
        breakable.min_by_key(|hold| (hold.since.unwrap_or(Duration::MAX), Reverse(hold.token)))
    }

    /// The claim that began to wait last: its wait closed the cycle. Where an engine does not tell the times, any one
    /// of the waits, but the same for everyone who asks.
    #[must_use]
    pub fn last_to_wait(&self) -> Option<&Party> {
        let waiters = self.blocks.iter().map(|block| &block.waiter);
        waiters.min_by_key(|waiter| (waiter.since.unwrap_or(Duration::MAX), &waiter.id))
    }

    /// Whether a claim of this task waits in the cycle.
    #[must_use]
    pub fn contains(&self, actor: u64) -> bool {
        self.blocks.iter().any(|block| block.waiter.actor.is_some_and(|waiter| waiter.id() == actor))
    }
}

/// The cycles of one look, at most one for each task. They may already have ended: see [`Finder`](super::Finder).
pub(super) fn cycles(looks: &[Look<'_>]) -> Vec<Deadlock> {
    let claims = Claims::of(looks);
    let edges = edges(&claims, &Reduced::of(&claims));
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    for start in awaited(&edges) {
        if seen.contains(&start) {
            continue;
        }
        let Some(path) = path_back(&edges, start) else { continue };
        seen.extend(path.iter().map(|(task, _)| *task));
        let party = |claim: usize| claims.parties[claim].clone();
        let blocks = path.iter().filter_map(|(_, why)| match why {
            Why::Waits { waiter, blocker } => {
                Some(Block { waiter: party(*waiter), blocker: party(*blocker) })
            }
            Why::Inside => None,
        });
        let blocks: Vec<_> = blocks.collect();
        let members: HashSet<_> = path.iter().map(|(task, _)| *task).collect();
        let behind = behind(&edges, &members);
        found.push(Deadlock { blocks, behind });
    }
    found
}

/// Why the tasks that cannot end cannot.
fn edges(claims: &Claims, reduced: &Reduced) -> Edges {
    let mut edges = Edges::new();
    for queue in &claims.queues {
        let kept = reduced.kept(claims, queue);
        for (place, waiter) in queue.waiters.iter().enumerate() {
            if reduced.granted[*waiter] {
                continue;
            }
            let task = claims.task_of[*waiter];
            let blockers = blockers(claims, queue, place, kept.iter().copied());
            let blockers = blockers.filter(|blocker| {
                !reduced.ends[claims.task_of[*blocker]] && !is_twin(claims, *blocker, *waiter)
            });
            let mut blockers: Vec<usize> = blockers.collect();
            // That a task waits for itself is the reason only if it waits for no other.
            if blockers.iter().any(|blocker| claims.task_of[*blocker] != task) {
                blockers.retain(|blocker| claims.task_of[*blocker] != task);
            }
            let edge = |blocker: usize| (claims.task_of[blocker], Why::Waits { waiter: *waiter, blocker });
            edges.entry(task).or_default().extend(blockers.into_iter().map(edge));
        }
    }
    for (index, task) in claims.tasks.iter().enumerate().filter(|(index, _)| !reduced.ends[*index]) {
        let children = task.children.iter().filter(|child| !reduced.ends[**child]);
        edges.entry(index).or_default().extend(children.map(|child| (*child, Why::Inside)));
    }
    edges
}

/// The tasks without those for which nobody waits, and so on: the rest contains all cycles. In a queue behind a
/// deadlock this leaves out the whole queue.
fn awaited(edges: &Edges) -> Vec<usize> {
    let mut waiting: HashMap<usize, usize> = edges.keys().map(|task| (*task, 0)).collect();
    for (target, _) in edges.values().flatten() {
        *waiting.entry(*target).or_default() += 1;
    }
    let mut free: Vec<usize> =
        waiting.iter().filter(|(_, count)| **count == 0).map(|(task, _)| *task).collect();
    while let Some(task) = free.pop() {
        waiting.remove(&task);
        for (target, _) in edges.get(&task).into_iter().flatten() {
            if let Some(count) = waiting.get_mut(target) {
                *count -= 1;
                if *count == 0 {
                    free.push(*target);
                }
            }
        }
    }
    let mut rest: Vec<usize> = waiting.into_keys().collect();
    // The order of the looks, so that each look tells the same cycles in the same order.
    rest.sort_unstable();
    rest
}

/// The shortest path from a task to itself: each task with the reason why it waits for the next one.
fn path_back(edges: &Edges, start: usize) -> Option<Vec<(usize, Why)>> {
    let mut came_from: HashMap<usize, (usize, Why)> = HashMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(task) = next.pop_front() {
        for (target, why) in edges.get(&task).into_iter().flatten() {
            if came_from.contains_key(target) {
                continue;
            }
            came_from.insert(*target, (task, *why));
            if *target == start {
                let mut path = vec![came_from[&start]];
                while path.last().is_some_and(|(task, _)| *task != start) {
                    path.push(came_from[&path[path.len() - 1].0]);
                }
                path.reverse();
                return Some(path);
            }
            next.push_back(*target);
        }
    }
    None
}

/// How many tasks outside of a cycle cannot end before one of its tasks ends.
fn behind(edges: &Edges, members: &HashSet<usize>) -> usize {
    let mut sources: HashMap<usize, Vec<usize>> = HashMap::new();
    for (task, targets) in edges {
        targets.iter().for_each(|(target, _)| sources.entry(*target).or_default().push(*task));
    }
    let (mut found, mut next) = (members.clone(), members.iter().copied().collect::<Vec<_>>());
    while let Some(task) = next.pop() {
        next.extend(sources.get(&task).into_iter().flatten().copied().filter(|task| found.insert(*task)));
    }
    found.len() - members.len()
}
