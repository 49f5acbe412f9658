//! Paints the table: which columns a screen of a width has, and the rows. Pure.

use std::time::Duration;

use leasehold::View;
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
use crate::text::{escaped, mode_text, or_dash, owner_text, short_duration};

/// From this width on the mode and the token have columns.
const WIDE: u16 = 100;
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

/// The columns of a table of this width.
fn columns(width: u16) -> Vec<Column> {
    let column = |title, width, is_number, sorts, cell| Column { title, width, is_number, sorts, cell };
    let mut columns = vec![
        column("NAME", 0, false, &[Sort::Name], name_cell as fn(&Row, &[View]) -> String),
        column("HOLDER", 0, false, &[], holder_cell),
    ];
    if width >= WIDE {
        columns.push(column("MODE", 9, false, &[], |row, views| {
            row.view(views).mode.map_or_else(|| "-".to_owned(), mode_text)
        }));
        columns.push(column("TOKEN", 10, true, &[], |row, views| {
            or_dash(row.holder(views).and_then(|holder| holder.token))
        }));
    }
    columns.push(column("HELD", 7, true, &[Sort::Held], |row, views| {
        or_dash(row.holder(views).and_then(|holder| holder.held).map(short_duration))
    }));
    columns.push(column("LEFT", 7, true, &[Sort::Left], left_cell));
    columns.push(column("WAIT", 5, true, &[Sort::Waiting, Sort::Load], |row, views| {
        row.waiters(views).to_string()
    }));
    columns.push(column("OLDEST", 7, true, &[Sort::Oldest, Sort::Load], |row, _| {
        or_dash(row.oldest.map(short_duration))
    }));
    // Names and holders share what is left.
    let taken: usize = columns.iter().map(|column| column.width + GAP).sum();
    let room = usize::from(width).saturating_sub(taken - GAP + MARKS[0].len());
    (columns[0].width, columns[1].width) = (room - room / 2, room / 2);
    columns
}

fn name_cell(row: &Row, views: &[View]) -> String {
    escaped(row.view(views).name.as_str())
}

fn holder_cell(row: &Row, views: &[View]) -> String {
    match (row.holder(views), &row.view(views).problem) {
        (Some(holder), _) => owner_text(holder),
        (None, Some(_)) => "unreadable".to_owned(),
        (None, None) => "-".to_owned(),
    }
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
    let columns = columns(area.width);
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
