//! A picture of who waits for whom: a box for each task, and an arrow from each task that waits to the one that keeps
//! it from its grant. A waiter whose arrows lead to the holders has none to the waiter ahead of it: the order of the
//! queue is on the page of the name.

mod arrow;
mod drawn;

use std::collections::{HashMap, HashSet, VecDeque};

use leasehold_ops::waits::{Block, Party};

pub(crate) use self::drawn::Locked;
use self::{arrow::arrow, drawn::with_arrow};
use crate::html::Html;

/// How many arrows are drawn at most. More cannot be followed by eye; the list below the picture has them.
const MAX_ARROWS: usize = 100;
/// The longest text in a box or at an arrow, in characters.
const MAX_CHARS: usize = 34;
/// Distances, in pixels.
const BOX_WIDTH: usize = 250;
const BOX_HEIGHT: usize = 26;
const COLUMN: usize = 560;
const ROW: usize = 44;
const MARGIN: usize = 12;

/// What identifies a task: its actor, or the only claim that is known of it.
pub(crate) type TaskKey = (Option<u64>, String, String);

/// The task of a claim.
pub(crate) fn task_of(party: &Party) -> TaskKey {
    match &party.actor {
        Some(actor) => (Some(actor.id()), String::new(), String::new()),
        None => (None, party.engine.clone(), party.id.clone()),
    }
}

/// A box.
struct Task<'b> {
    label: &'b str,
    column: usize,
    row: usize,
    is_locked: bool,
}

/// Draws the arrows that fit. `locked`: what deadlocks consist of.
pub(crate) fn draw(blocks: &[Block], locked: &Locked) -> Html {
    let mut blocks = with_arrow(blocks, locked);
    // What is cut must not be the deadlock. The sort keeps the order of the others.
    blocks.sort_by_cached_key(|block| !locked.has(block));
    blocks.truncate(MAX_ARROWS);
    let tasks = place(&blocks, &locked.tasks);
    let (columns, rows) = tasks
        .values()
        .fold((0, 0), |(columns, rows), task| (columns.max(task.column + 1), rows.max(task.row + 1)));
    let (width, height) = (columns * COLUMN + MARGIN, rows * ROW + MARGIN);
    let mut html = Html::new();
    html.raw(
        "<svg class=\"waits\" role=\"img\" aria-label=\"Who waits for whom, as in the list below\" width=\"",
    );
    html.text(width)
        .raw("\" height=\"")
        .text(height)
        .raw("\" viewBox=\"0 0 ")
        .text(width)
        .raw(" ")
        .text(height);
    html.raw("\"><defs><marker id=\"end\" orient=\"auto\" ");
    html.raw("markerUnits=\"userSpaceOnUse\" markerWidth=\"8\" markerHeight=\"8\" refX=\"8\" refY=\"4\">");
    html.raw("<path d=\"m0,0l8,4l-8,4\"/></marker></defs>");
    for block in blocks {
        if let (Some(from), Some(to)) =
            (tasks.get(&task_of(&block.waiter)), tasks.get(&task_of(&block.blocker)))
        {
            html.raw(if locked.has(block) { "<path class=\"locked\"" } else { "<path" });
            arrow(&mut html, from, to, &block.waiter.name);
        }
    }
    let mut sorted: Vec<_> = tasks.values().collect();
    sorted.sort_by_key(|task| (task.column, task.row));
    for task in sorted {
        let (x, y) = (task.x(), task.y());
        html.raw(if task.is_locked { "<rect class=\"locked\" x=\"" } else { "<rect x=\"" }).text(x);
        html.raw("\" y=\"").text(y).raw("\" width=\"").text(BOX_WIDTH).raw("\" height=\"").text(BOX_HEIGHT);
        html.raw("\"/><text x=\"").text(x + 8).raw("\" y=\"").text(y + 18).raw("\">").text(short(task.label));
        html.raw("</text>");
    }
    html.raw("</svg>");
    html
}

/// Places the tasks: those that wait for nobody on the left, and each other one to the right of one that it waits for.
/// A task of a cycle that nothing leads to begins on the left, too.
fn place<'b>(blocks: &[&'b Block], locked: &HashSet<TaskKey>) -> HashMap<TaskKey, Task<'b>> {
    let mut waiters: HashMap<TaskKey, Vec<TaskKey>> = HashMap::new();
    let (mut labels, mut order, mut waiting) = (HashMap::new(), Vec::new(), HashSet::new());
    for &block in blocks {
        for party in [&block.blocker, &block.waiter] {
            if labels.insert(task_of(party), party.owner.as_str()).is_none() {
                order.push(task_of(party));
            }
        }
        waiters.entry(task_of(&block.blocker)).or_default().push(task_of(&block.waiter));
        waiting.insert(task_of(&block.waiter));
    }
    let (free, other): (Vec<_>, Vec<_>) = order.into_iter().partition(|task| !waiting.contains(task));
    let mut placed: HashMap<TaskKey, Task<'b>> = HashMap::new();
    let mut rows: Vec<usize> = Vec::new();
    for root in free.into_iter().chain(other) {
        let mut queue = VecDeque::from([(root, 0)]);
        while let Some((task, column)) = queue.pop_front() {
            if placed.contains_key(&task) {
                continue;
            }
            rows.resize(rows.len().max(column + 1), 0);
            let (row, is_locked) = (rows[column], locked.contains(&task));
            rows[column] += 1;
            queue.extend(waiters.get(&task).into_iter().flatten().map(|waiter| (waiter.clone(), column + 1)));
            let label = labels.get(&task).copied().unwrap_or_default();
            placed.insert(task, Task { label, column, row, is_locked });
        }
    }
    placed
}

impl Task<'_> {
    const fn x(&self) -> usize {
        MARGIN + self.column * COLUMN
    }

    const fn y(&self) -> usize {
        MARGIN + self.row * ROW
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use leasehold::{HolderView, Mode, Name, View, WaiterView};
    use leasehold_ops::waits::{Look, blocks};

    use super::*;

    pub(super) fn views(locks: &[(&str, &str, &[&str])]) -> Vec<View> {
        let views = locks.iter().map(|(name, holder, waiters)| {
            let mut view = View::free(Name::new(name).unwrap(), String::new());
            view.add_holder(Mode::Exclusive, HolderView::new((*holder).into(), format!("<{holder}>")));
            let waiter = |id: &&str| {
                let mut waiter = WaiterView::new((*id).into(), format!("<{id}>"), None);
                waiter.mode = Some(Mode::Exclusive);
                waiter
            };
            view.waiters.extend(waiters.iter().map(waiter));
            view
        });
        views.collect()
    }

    pub(super) fn blocks_of(views: &[View]) -> Vec<Block> {
        blocks(&[Look { engine: "e", fifo: true, views }])
    }

    fn drawn(locks: &[(&str, &str, &[&str])]) -> (Vec<Block>, String) {
        let blocks = blocks_of(&views(locks));
        let svg = draw(&blocks, &Locked::default()).into_string();
        (blocks, svg)
    }

    #[test]
    fn each_task_has_a_box_and_each_wait_an_arrow() {
        let (blocks, svg) = drawn(&[("n&1", "h", &["w", "x"]), ("n2", "g", &["y"])]);
        assert_eq!(svg.matches("<rect").count(), 5);
        // Who is second in the queue waits for the holder, and behind the first: one arrow.
        assert_eq!((svg.matches("marker-end").count(), blocks.len()), (3, 4));
        assert!(svg.contains("&lt;h&gt;") && svg.contains(">n&amp;1<") && !svg.contains("<h>"), "{svg}");
        let waits: Vec<_> = blocks.iter().collect();
        let tasks = place(&waits, &HashSet::new());
        let column = |owner: &str| tasks.values().find(|task| task.label == owner).unwrap().column;
        assert_eq!((column("<h>"), column("<w>"), column("<y>")), (0, 1, 1));
    }

    #[test]
    fn very_many_waits_do_not_fill_the_page() {
        let ids: Vec<_> = (0..500).map(|id| format!("w{id}")).collect();
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        let (blocks, svg) = drawn(&[("n", "h", &ids)]);
        assert!(blocks.len() > MAX_ARROWS);
        assert_eq!(svg.matches("marker-end").count(), MAX_ARROWS);
    }

    #[test]
    fn a_cycle_is_drawn() {
        let actor = |id: &str| id.to_owned();
        let (a, b) = (actor("a"), actor("b"));
        let (_, svg) = drawn(&[("one", &a, &[&b]), ("two", &b, &[&a])]);
        assert_eq!((svg.matches("<rect").count(), svg.matches("marker-end").count()), (2, 2), "{svg}");
        // The way back leaves the row of the boxes.
        assert!(svg.contains("d=\"M572 25 ") && svg.contains("d=\"M137 38 C137 60 697 60 697 38\""), "{svg}");
    }
}
