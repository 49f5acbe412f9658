//! A picture of who waits for whom: a box for each task, and an arrow from each task that waits to the one that keeps
//! it from its grant.

use std::collections::{HashMap, HashSet, VecDeque};

use leasehold_ops::waits::{Block, Deadlock, Party};

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

/// The tasks of these deadlocks.
pub(crate) fn tasks_of<'d>(deadlocks: impl Iterator<Item = &'d Deadlock>) -> HashSet<TaskKey> {
    let parties =
        deadlocks.flat_map(|deadlock| &deadlock.blocks).flat_map(|block| [&block.waiter, &block.blocker]);
    parties.map(task_of).collect()
}

/// A box.
struct Task<'b> {
    label: &'b str,
    column: usize,
    row: usize,
    is_locked: bool,
}

/// Draws the arrows that fit. `locked`: the tasks of deadlocks.
pub(crate) fn draw(blocks: &[Block], locked: &HashSet<TaskKey>) -> Html {
    let blocks = &blocks[..blocks.len().min(MAX_ARROWS)];
    let tasks = place(blocks, locked);
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
    html.raw("\"><defs><marker id=\"end\" orient=\"auto\" markerWidth=\"8\" markerHeight=\"8\" refX=\"8\" refY=\"4\">");
    html.raw("<path d=\"m0,0l8,4l-8,4\"/></marker></defs>");
    for block in blocks {
        if let (Some(from), Some(to)) =
            (tasks.get(&task_of(&block.waiter)), tasks.get(&task_of(&block.blocker)))
        {
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

fn arrow(html: &mut Html, from: &Task<'_>, to: &Task<'_>, name: &str) {
    let (x, y) = (from.x(), from.y() + BOX_HEIGHT / 2);
    // To the right side of a box further left; within a column and backwards, around the right side.
    let (start, bend) =
        if from.column > to.column { (x, x - 60) } else { (x + BOX_WIDTH, x + BOX_WIDTH + 90) };
    let (end_x, end_y) = (to.x() + BOX_WIDTH, to.y() + BOX_HEIGHT / 2);
    let end_bend = if from.column > to.column { end_x + 60 } else { bend };
    html.raw("<path marker-end=\"url(#end)\" d=\"M")
        .text(start)
        .raw(" ")
        .text(y)
        .raw(" C")
        .text(bend)
        .raw(" ")
        .text(y);
    html.raw(" ").text(end_bend).raw(" ").text(end_y).raw(" ").text(end_x).raw(" ").text(end_y).raw("\"/>");
    let (label_x, label_y) = (usize::midpoint(start, end_x), usize::midpoint(y, end_y) - 4);
    let (anchor, label_x) =
        if from.column > to.column { ("middle", label_x) } else { ("start", start.max(end_x) + 72) };
    html.raw("<text text-anchor=\"")
        .text(anchor)
        .raw("\" x=\"")
        .text(label_x)
        .raw("\" y=\"")
        .text(label_y)
        .raw("\">");
    html.text(short(name)).raw("</text>");
}

/// Places the tasks: those that wait for nobody on the left, and each other one to the right of one that it waits for.
/// A task of a cycle that nothing leads to begins on the left, too.
fn place<'b>(blocks: &'b [Block], locked: &HashSet<TaskKey>) -> HashMap<TaskKey, Task<'b>> {
    let mut waiters: HashMap<TaskKey, Vec<TaskKey>> = HashMap::new();
    let (mut labels, mut order, mut waiting) = (HashMap::new(), Vec::new(), HashSet::new());
    for block in blocks {
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
mod tests {
    use leasehold::{HolderView, Mode, Name, View, WaiterView};
    use leasehold_ops::waits::{Look, blocks};

    use super::*;

    fn drawn(locks: &[(&str, &str, &[&str])]) -> (Vec<Block>, String) {
        let views: Vec<_> = locks
            .iter()
            .map(|(name, holder, waiters)| {
                let mut view = View::free(Name::new(name).unwrap(), String::new());
                view.add_holder(Mode::Exclusive, HolderView::new((*holder).into(), format!("<{holder}>")));
                let waiter = |id: &&str| WaiterView::new((*id).into(), format!("<{id}>"), None);
                view.waiters.extend(waiters.iter().map(waiter));
                view
            })
            .collect();
        let blocks = blocks(&[Look { engine: "e", fifo: true, views: &views }]);
        let svg = draw(&blocks, &HashSet::new()).into_string();
        (blocks, svg)
    }

    #[test]
    fn each_task_has_a_box_and_each_wait_an_arrow() {
        let (blocks, svg) = drawn(&[("n&1", "h", &["w", "x"]), ("n2", "g", &["y"])]);
        assert_eq!(svg.matches("<rect").count(), 5);
        assert_eq!(svg.matches("marker-end").count(), blocks.len());
        assert!(svg.contains("&lt;h&gt;") && svg.contains(">n&amp;1<") && !svg.contains("<h>"), "{svg}");
        let tasks = place(&blocks, &HashSet::new());
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
    }
}
