//! Paints what lies over the table, or in its place: the details of a name, the help, the question. Pure.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    widgets::{Block, Clear, Widget},
};

use super::{
    draw::{fit, put},
    help::{CONSEQUENCES, HAS_ENDED, HELP},
    question::{Focus, Question},
    state::{Page, State},
};
use crate::{
    cmd::show::ShownName,
    text::{self, escaped, or_dash, owner_text, short_duration},
};

/// The widest card.
const MAX_WIDTH: u16 = 76;

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
    // The last lines stay on the screen.
    let from = from.min(lines.len().saturating_sub(usize::from(area.height)));
    for (y, line) in lines.iter().skip(from).take(usize::from(area.height)).enumerate() {
        put(buffer, area, 0, y as u16, &fit(line, usize::from(area.width)), Style::new());
    }
    if let Page::Details { from: remembered, .. } = &mut state.page {
        *remembered = from;
    }
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
    let held = or_dash(holder.held.map(short_duration));
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
    let mut lines = vec![
        (format!("name    {}", escaped(&question.name)), bold),
        (format!("holder  {}", owner_text(holder)), bold),
        (format!("token   {}, held {held}, {left}", question.token), plain),
        (format!("waiting {}", question.waiters), plain),
        (String::new(), plain),
        (CONSEQUENCES[0].to_owned(), plain),
        (CONSEQUENCES[1].to_owned(), plain),
        (focused(Focus::Name, &format!("{}_", escaped(&question.typed))), style_of(Focus::Name)),
        (String::new(), plain),
        (focused(Focus::Cancel, "[ Cancel ]"), style_of(Focus::Cancel)),
        (focused(Focus::Break, &format!("[ Break ]{confirmed}")), style_of(Focus::Break)),
    ];
    if is_gone {
        lines[4] = (HAS_ENDED.to_owned(), bold);
    }
    let inside = card(buffer, area, " Break this hold? ", lines.len());
    let width = usize::from(inside.width).saturating_sub(2);
    for (y, (line, style)) in lines.iter().enumerate() {
        put(buffer, inside, 1, y as u16, &fit(line, width), *style);
    }
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
