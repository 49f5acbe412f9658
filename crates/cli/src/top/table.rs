//! Paints the table: which columns a screen of a width has, and the rows. Pure.

use std::time::Duration;

use leasehold::View;
use leasehold_ops::{held_text, marks, oldest_waiter, waiting_text};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
    text::Span,
};

use super::{
    draw::{Colours, fit, put},
    rows::{Row, Sort},
    state::State,
};
use crate::text::{escaped, mode_text, or_dash, owner_only, short_duration};

/// How many columns of the screen NAME and HOLDER keep each. A column of the table that would leave less is not shown.
const LEAST: usize = 12;
/// The same for MODE and TOKEN, which matter less to a reader than whole names.
const LEAST_BESIDE_TOKEN: usize = 18;
/// The space between two columns.
const GAP: usize = 2;
/// The mark of the selected row, and its place in the other rows.
const MARKS: [&str; 2] = ["> ", "  "];

/// A column of the table.
struct Column {
    title: &'static str,
    width: usize,
    is_number: bool,
    sorts: &'static [Sort],
    cell: fn(&Row, &[View]) -> String,
}

/// The columns of a table of this width, in their order on the screen. `tokens`: the width of the longest token, which
/// is never cut, because it is what a command to break a hold needs.
fn columns(width: u16, tokens: usize) -> Vec<Column> {
    let column = |title, width, is_number, sorts, cell| Column { title, width, is_number, sorts, cell };
    let mut name = column("NAME", 0, false, &[Sort::Name], name_cell as fn(&Row, &[View]) -> String);
    let mut holder = column("HOLDER", 0, false, &[], holder_cell);
    // What matters most first: its place on the screen, and what names and holders keep beside it.
    let others = [
        (3, LEAST, column("LEFT", 7, true, &[Sort::Left], left_cell)),
        (4, LEAST, column("WAIT", 5, true, &[Sort::Waiting, Sort::Load], waiting_cell)),
        (2, LEAST, column("HELD", 7, true, &[Sort::Held], held_cell)),
        (5, LEAST, column("OLDEST", 7, true, &[Sort::Oldest, Sort::Load], oldest_cell)),
        (1, LEAST_BESIDE_TOKEN, column("TOKEN", tokens.max(10), true, &[], token_cell)),
        (0, LEAST_BESIDE_TOKEN, column("MODE", 9, false, &[], mode_cell)),
    ];
    let mut room = usize::from(width).saturating_sub(MARKS[0].len() + GAP);
    let mut shown = Vec::new();
    for (place, least, column) in others {
        if room >= column.width + GAP + 2 * least {
            room -= column.width + GAP;
            shown.push((place, column));
        }
    }
    shown.sort_by_key(|(place, _)| *place);
    // Names and holders share what is left.
    (name.width, holder.width) = (room - room / 2, room / 2);
    [name, holder].into_iter().chain(shown.into_iter().map(|(_, column)| column)).collect()
}

fn name_cell(row: &Row, views: &[View]) -> String {
    escaped(row.view(views).name.as_str())
}

fn holder_cell(row: &Row, views: &[View]) -> String {
    match (row.holder(views), &row.view(views).problem) {
        // The marks come first, because long owners are cut.
        (Some(holder), _) => match &marks(holder)[..] {
            [] => owner_only(holder),
            marks => format!("({}) {}", marks.join(", "), owner_only(holder)),
        },
        (None, Some(_)) => "unreadable".to_owned(),
        (None, None) => "-".to_owned(),
    }
}

fn mode_cell(row: &Row, views: &[View]) -> String {
    row.view(views).mode.map_or_else(|| "-".to_owned(), mode_text)
}

fn token_cell(row: &Row, views: &[View]) -> String {
    or_dash(row.holder(views).and_then(|holder| holder.token))
}

fn held_cell(row: &Row, views: &[View]) -> String {
    or_dash(row.holder(views).and_then(held_text))
}

fn waiting_cell(row: &Row, views: &[View]) -> String {
    row.waiters(views).to_string()
}

fn oldest_cell(row: &Row, views: &[View]) -> String {
    or_dash(oldest_waiter(row.view(views)).and_then(waiting_text))
}

fn left_cell(row: &Row, views: &[View]) -> String {
    match row.holder(views) {
        None => "-".to_owned(),
        Some(holder) => match holder.remaining {
            Some(left) => short_duration(left),
            None if holder.of_session => "session".to_owned(),
            None => "no end".to_owned(),
        },
    }
}

/// Paints the heading and the rows that fit.
pub(super) fn table(buffer: &mut Buffer, area: Rect, state: &mut State, now: Duration, colours: Colours) {
    let tokens = state.views.iter().flat_map(|view| &view.holders).filter_map(|holder| holder.token);
    let columns = columns(area.width, tokens.max().map_or(0, |token| token.to_string().len()));
    let order = state.order;
    let heading = columns.iter().map(|column| {
        let mark = if order.is_reversed { "^" } else { "*" };
        let mark = if column.sorts.contains(&order.sort) { mark } else { "" };
        format!("{}{mark}", column.title)
    });
    let heading = line(&columns, heading, MARKS[1]);
    put(buffer, area, 0, 0, &heading, Style::new().add_modifier(Modifier::BOLD));
    let window = state.window(usize::from(area.height - 1));
    let base = if state.is_stale(now) { Style::new().add_modifier(Modifier::DIM) } else { Style::new() };
    for (y, place) in window.clone().enumerate() {
        let row = &state.rows[place];
        let is_selected = state.selected_place() == Some(place);
        let view = row.view(&state.views);
        let mut style = base;
        if view.problem.is_some() {
            style = style.patch(colours.of(Color::Red));
        } else if !view.waiters.is_empty() {
            style = style.patch(colours.of(Color::Yellow));
        }
        if is_selected {
            style = style.add_modifier(Modifier::REVERSED);
        }
        let cells = columns.iter().map(|column| (column.cell)(row, &state.views));
        let text = line(&columns, cells, MARKS[usize::from(!is_selected)]);
        put(buffer, area, 0, y as u16 + 1, &text, style);
    }
    if window.is_empty() {
        let text = if state.views.is_empty() {
            "nothing is held or waited for"
        } else {
            "no row contains the filter"
        };
        put(buffer, area, MARKS[1].len(), 1, text, Style::new());
    }
}

/// The cells as a line of the table.
fn line(columns: &[Column], cells: impl Iterator<Item = String>, mark: &str) -> String {
    let cells = columns.iter().zip(cells).map(|(column, cell)| {
        let cell = fit(&cell, column.width);
        let padding = " ".repeat(column.width.saturating_sub(Span::raw(&*cell).width()));
        if column.is_number { padding + &cell } else { cell + &padding }
    });
    mark.to_owned() + &cells.collect::<Vec<_>>().join(&" ".repeat(GAP))
}
