//! The arrow from the box of a task that waits to the box of the task that it waits for.

use super::{BOX_HEIGHT, BOX_WIDTH, Task, short};
use crate::html::Html;

/// How far an arrow to the right goes below or above the boxes, in pixels: its curve stays within the space between two
/// rows.
const DETOUR: usize = 22;

type Point = (usize, usize);

/// The course of an arrow: a curve with two control points, and its label.
struct Route {
    points: [Point; 4],
    /// The value of `text-anchor`.
    anchor: &'static str,
    label: Point,
}

/// The attributes of the path of an arrow, and its label.
pub(super) fn arrow(html: &mut Html, from: &Task<'_>, to: &Task<'_>, name: &str) {
    let Route { points: [start, first, second, end], anchor, label } = route(from, to);
    html.raw(" marker-end=\"url(#end)\" d=\"");
    for (letter, (x, y)) in [("M", start), (" C", first), (" ", second), (" ", end)] {
        html.raw(letter).text(x).raw(" ").text(y);
    }
    html.raw("\"/><text text-anchor=\"")
        .raw(anchor)
        .raw("\" x=\"")
        .text(label.0)
        .raw("\" y=\"")
        .text(label.1);
    html.raw("\">").text(short(name)).raw("</text>");
}

fn route(from: &Task<'_>, to: &Task<'_>) -> Route {
    let middle = |task: &Task<'_>| task.y() + BOX_HEIGHT / 2;
    let (from_y, to_y, to_right) = (middle(from), middle(to), to.x() + BOX_WIDTH);
    if from.column > to.column {
        // From the left side to the right side.
        let points = [(from.x(), from_y), (from.x() - 60, from_y), (to_right + 60, to_y), (to_right, to_y)];
        let label = (usize::midpoint(from.x(), to_right), usize::midpoint(from_y, to_y) - 4);
        return Route { points, anchor: "middle", label };
    }
    if from.column == to.column {
        // Around the right side; of one box, from its upper half to its lower half.
        let apart = if from.row == to.row { BOX_HEIGHT / 4 } else { 0 };
        let (from_y, to_y, bend) = (from_y - apart, to_y + apart, to_right + 90);
        let points = [(to_right, from_y), (bend, from_y), (bend, to_y), (to_right, to_y)];
        let label = (to_right + 72, usize::midpoint(from_y, to_y) - 4);
        return Route { points, anchor: "start", label };
    }
    // To the right: a straight line would go through the boxes, and beside the arrow in the other direction it would
    // look like one arrow with two heads.
    let below = |task: &Task<'_>| task.y() + BOX_HEIGHT;
    let (from_x, to_x) = (from.x() + BOX_WIDTH / 2, to.x() + BOX_WIDTH / 2);
    let (start, end) = match from.row.cmp(&to.row) {
        std::cmp::Ordering::Less => (below(from), to.y()),
        std::cmp::Ordering::Equal => (below(from), below(to)),
        std::cmp::Ordering::Greater => (from.y(), below(to)),
    };
    let first = if from.row > to.row { start.saturating_sub(DETOUR) } else { start + DETOUR };
    let second = if from.row < to.row { end.saturating_sub(DETOUR) } else { end + DETOUR };
    let points = [(from_x, start), (from_x, first), (to_x, second), (to_x, end)];
    // Above the lowest part of the curve, below the line between two boxes of a row.
    let label = (usize::midpoint(from_x, to_x), usize::midpoint(start, end) + 11);
    Route { points, anchor: "middle", label }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn task(column: usize, row: usize) -> Task<'static> {
        Task { label: "", column, row, is_locked: false }
    }

    fn float(pixels: usize) -> f64 {
        f64::from(u32::try_from(pixels).unwrap())
    }

    /// Whether a point lies in the box of a task.
    fn is_inside((x, y): (f64, f64), task: &Task<'_>) -> bool {
        let (left, top) = (float(task.x()), float(task.y()));
        let (right, bottom) = (left + float(BOX_WIDTH), top + float(BOX_HEIGHT));
        x > left && x < right && y > top && y < bottom
    }

    #[test]
    fn an_arrow_goes_through_no_box_of_its_tasks() {
        let places = (0..3).flat_map(|column| (0..3).map(move |row| (column, row)));
        let places: Vec<_> = places.collect();
        for from in &places {
            for to in &places {
                let (from, to) = (task(from.0, from.1), task(to.0, to.1));
                let [a, b, c, d] = route(&from, &to).points.map(|(x, y)| (float(x), float(y)));
                for step in 0..=100 {
                    let t = f64::from(step) / 100.0;
                    let along = |a: f64, b: f64, c: f64, d: f64| {
                        let u = 1.0 - t;
                        a * u * u * u + 3.0 * b * t * u * u + 3.0 * c * t * t * u + d * t * t * t
                    };
                    let point = (along(a.0, b.0, c.0, d.0), along(a.1, b.1, c.1, d.1));
                    let is_hidden = is_inside(point, &from) || is_inside(point, &to);
                    assert!(!is_hidden, "from {:?} to {:?}", (from.column, from.row), (to.column, to.row));
                }
            }
        }
    }
}
