//! Paints what lies over the table, or in its place: the details of a name, the help, the question. Pure.

use leasehold_ops::held_text;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    widgets::{Block, Clear, Widget},
};

use super::{
    draw::put,
    help::{CONFIRM, CONSEQUENCES, HAS_ENDED, HELP},
    question::{Focus, Question},
    state::{Page, State},
    wrap::{TABLE_INDENT, value_column, wrap},
};
use crate::{
    cmd::show::ShownName,
    text::{self, escaped, or_dash, owner_text, short_duration},
};

/// The widest card.
const MAX_WIDTH: u16 = 76;
/// The lines at the beginning of the question that are facts about the hold.
const FACTS: usize = 4;
/// The lines at the end of the question that are always shown: what is typed, and the two buttons.
const LAST_LINES: usize = 3;

/// The details of a name: what `leasehold show` prints.
pub(super) fn details(buffer: &mut Buffer, area: Rect, state: &mut State) {
    // Keys scroll by the height of the screen.
    state.window(usize::from(area.height));
    let Page::Details { name, from } = &state.page else { return };
    let from = *from;
    let lines: Vec<String> = match state.view_of(name) {
        None => vec![format!("name    {}", escaped(name)), "nobody holds it or waits for it".to_owned()],
        Some(view) => {
            let shown = ShownName { engine: state.setting.engine, guarantee: &state.guarantee, view };
            let problem = view.problem.iter().map(|problem| format!("problem {}", escaped(problem)));
            problem.chain(text::show(&shown).lines().map(str::to_owned)).collect()
        }
    };
    let lines = wrapped(&lines, usize::from(area.width));
    // The last lines stay on the screen.
    let from = from.min(lines.len().saturating_sub(usize::from(area.height)));
    for (y, line) in lines.iter().skip(from).take(usize::from(area.height)).enumerate() {
        put(buffer, area, 0, y as u16, line, Style::new());
    }
    if let Page::Details { from: remembered, .. } = &mut state.page {
        *remembered = from;
    }
}

/// The lines, continued where the screen is too narrow: first the facts, then an empty line and the tables.
fn wrapped(lines: &[String], width: usize) -> Vec<String> {
    let facts = lines.iter().position(String::is_empty).unwrap_or(lines.len());
    let indent = |place: usize, line: &str| if place < facts { value_column(line) } else { TABLE_INDENT };
    let wrapped = lines.iter().enumerate().map(|(place, line)| wrap(line, width, indent(place, line)));
    wrapped.flatten().collect()
}

pub(super) fn help(buffer: &mut Buffer, area: Rect) {
    let inside = card(buffer, area, " Help ", HELP.len());
    for (y, line) in HELP.iter().enumerate() {
        put(buffer, inside, 1, y as u16, line, Style::new());
    }
}

/// The question whether to break a hold. `is_gone`: the last look does not show the hold any more.
pub(super) fn question(buffer: &mut Buffer, area: Rect, question: &Question, is_gone: bool) {
    let holder = &question.holder;
    let left = match holder.remaining {
        Some(left) => format!("{} left", short_duration(left)),
        None => "no expiry".to_owned(),
    };
    let held = or_dash(held_text(holder));
    let focused = |focus: Focus, text: &str| match question.focus == focus {
        true => format!("> {text} <"),
        false => format!("  {text}  "),
    };
    let confirmed = if question.is_confirmed() { "" } else { " (first type the name)" };
    let plain = Style::new();
    let bold = plain.add_modifier(Modifier::BOLD);
    let style_of = |focus: Focus| match question.focus == focus {
        true => plain.add_modifier(Modifier::REVERSED),
        false => plain,
    };
    // The lines without which a hold is not broken are needed; the others are left out on a low screen.
    let (needed, more) = (true, false);
    let ended = if is_gone { HAS_ENDED } else { "" };
    let lines = [
        (needed, format!("name    {}", escaped(&question.name)), bold),
        (more, format!("holder  {}", owner_text(holder)), bold),
        (needed, format!("token   {}, held {held}, {left}", question.token), plain),
        (more, format!("waiting {}", question.waiters), plain),
        (is_gone, ended.to_owned(), bold),
        (more, CONSEQUENCES.to_owned(), plain),
        (needed, CONFIRM.to_owned(), plain),
        (needed, focused(Focus::Name, &format!("{}_", escaped(&question.typed))), style_of(Focus::Name)),
        (more, String::new(), plain),
        (needed, focused(Focus::Cancel, "[ Cancel ]"), style_of(Focus::Cancel)),
        (needed, focused(Focus::Break, &format!("[ Break ]{confirmed}")), style_of(Focus::Break)),
    ];
    let (width, height) = inside_of_card(area);
    let wrapped = |(place, (is_needed, line, style)): (usize, (bool, String, Style))| {
        let indent = if place < FACTS { value_column(&line) } else { 0 };
        wrap(&line, width, indent).into_iter().map(move |line| (is_needed, line, style))
    };
    let mut lines: Vec<_> = lines.into_iter().enumerate().flat_map(wrapped).collect();
    while lines.len() > height
        && let Some(place) = lines.iter().rposition(|(is_needed, ..)| !is_needed)
    {
        lines.remove(place);
    }
    // A name that is longer than the screen: its end is left out, and not the buttons.
    while lines.len() > height.max(LAST_LINES + 1) {
        lines.remove(lines.len() - LAST_LINES - 1);
    }
    let inside = card(buffer, area, " Break this hold? ", lines.len());
    for (y, (_, line, style)) in lines.iter().enumerate() {
        put(buffer, inside, 1, y as u16, line, *style);
    }
}

/// The columns and lines that a card has for text at most.
fn inside_of_card(area: Rect) -> (usize, usize) {
    let (borders, spaces) = (2, 2);
    let width = area.width.min(MAX_WIDTH).saturating_sub(borders + spaces);
    (usize::from(width), usize::from(area.height.saturating_sub(borders)))
}

/// An empty card with a border for this number of lines, in the middle. Returns its inside.
fn card(buffer: &mut Buffer, area: Rect, title: &str, lines: usize) -> Rect {
    let width = area.width.min(MAX_WIDTH);
    let height = area.height.min(lines as u16 + 2);
    let (x, y) = (area.x + (area.width - width) / 2, area.y + (area.height - height) / 2);
    let outside = Rect { x, y, width, height };
    Clear.render(outside, buffer);
    let block = Block::bordered().title(title);
    let inside = block.inner(outside);
    block.render(outside, buffer);
    inside
}
