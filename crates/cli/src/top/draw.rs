//! Paints the state on the screen: the title, the message and the keys; `table` and `cards` the rest. Pure.

#[cfg(test)]
mod tests;

use std::time::Duration;

use ratatui::{
    Frame,
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
    text::Span,
};

use super::{
    cards,
    state::{Page, State},
    table::table,
};
use crate::text::{escaped, short_duration};

/// The smallest screen on which something can be seen.
const SMALLEST: (u16, u16) = (40, 10);

/// Whether colours are used. Everything that a colour says is also said by a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colours {
    Used,
    Unused,
}

impl Colours {
    pub(super) fn of(self, colour: Color) -> Style {
        match self {
            Self::Used => Style::new().fg(colour),
            Self::Unused => Style::new(),
        }
    }
}

/// Paints everything, as it is at `now`.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &mut State, now: Duration, colours: Colours) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let text = format!("too small: {} x {} needed", SMALLEST.0, SMALLEST.1);
        return put(buffer, area, 0, 0, &text, Style::new());
    }
    let last_line = area.height - 1;
    title(buffer, area, state, now, colours);
    message(buffer, area, last_line - 1, state, colours);
    keys(buffer, area, last_line, state);
    let body = Rect { y: area.y + 1, height: area.height - 3, ..area };
    match &state.page {
        Page::Details { .. } => cards::details(buffer, body, state),
        _ => table(buffer, body, state, now, colours),
    }
    match &state.page {
        Page::Help => cards::help(buffer, area),
        Page::Question(question) => {
            cards::question(buffer, area, question, state.holder_of(&question.id()).is_none())
        }
        Page::Table | Page::Details { .. } => {}
    }
}

/// The first line: what is shown, and how old it is.
fn title(buffer: &mut Buffer, area: Rect, state: &State, now: Duration, colours: Colours) {
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let age = short_duration(Duration::from_secs(state.age(now).as_secs()));
    let age = age.replace("0ms", "0s").replace(".0s", "s");
    let (right, right_style) = match () {
        () if state.is_stale(now) => (format!(" STALE, age {age} "), style.patch(colours.of(Color::Red))),
        () if state.is_frozen() => (format!(" FROZEN, age {age} "), style),
        () => (format!(" age {age} "), style),
    };
    let is_pushed = state.is_pushed && !state.is_stale(now) && !state.is_frozen();
    let pushed = if is_pushed { " pushed," } else { "" };
    let level = state.guarantee.level().map_or_else(String::new, |level| format!(" ({level})"));
    let holds: usize = state.views.iter().map(|view| view.holders.len()).sum();
    let waiting: usize = state.views.iter().map(|view| view.waiters.len()).sum();
    let room = usize::from(area.width).saturating_sub(right.len());
    let names = state.views.len();
    let engine = match state.setting.is_default {
        true => format!("{} (no URL given)", state.setting.engine),
        false => state.setting.engine.to_owned(),
    };
    let mut left =
        format!(" leasehold top  {engine}{level}  names {names}  holds {holds}  waiting {waiting}");
    if left.len() > room {
        // The counts fit on a narrow screen, too.
        left = format!(" {engine}  names {names}  waiting {waiting}");
    }
    if !state.setting.prefix.is_empty() {
        left += &format!("  prefix {}", escaped(&state.setting.prefix));
    }
    // It is left out before anything else is cut.
    let (room, right) = match room.checked_sub(pushed.len()) {
        Some(room) if Span::raw(&*left).width() <= room => (room, format!("{pushed}{right}")),
        _ => (room, right),
    };
    put(buffer, area, 0, 0, &format!("{:room$}", fit(&left, room)), style);
    put(buffer, area, room, 0, &right, right_style);
}

/// The last line but one: the filter while it is typed, or a message, or why the data are stale.
fn message(buffer: &mut Buffer, area: Rect, line: u16, state: &State, colours: Colours) {
    let style = Style::new().add_modifier(Modifier::BOLD);
    let (text, style) = match (&state.message, &state.trouble) {
        _ if state.is_filtering => (format!("/{}_", escaped(&state.filter)), style),
        (Some(message), _) => (escaped(message), style),
        (None, Some(trouble)) => (escaped(trouble), style.patch(colours.of(Color::Red))),
        (None, None) if !state.filter.is_empty() => {
            (format!("only what contains {:?}; Esc: all", escaped(&state.filter)), Style::new())
        }
        (None, None) => return,
    };
    put(buffer, area, 0, line, &fit(&text, usize::from(area.width)), style);
}

/// The last line: the keys.
fn keys(buffer: &mut Buffer, area: Rect, line: u16, state: &State) {
    let keys = match &state.page {
        _ if state.is_filtering => "Enter: done  Esc: all rows",
        Page::Table if state.setting.is_readonly => {
            "q quit  ? help  Enter details  / filter  s sort  f freeze"
        }
        Page::Table => "q quit  ? help  Enter details  / filter  s sort  f freeze  ^D break",
        Page::Details { .. } => "Esc back  arrows: scroll  f freeze  ^D break  q quit",
        Page::Help => "any key: back",
        Page::Question(_) => "Tab: next  Enter: press  Esc: cancel",
    };
    put(buffer, area, 0, line, &fit(keys, usize::from(area.width)), Style::new().add_modifier(Modifier::DIM));
}

/// Writes a line into an area, at most to its end.
pub(super) fn put(buffer: &mut Buffer, area: Rect, x: usize, y: u16, text: &str, style: Style) {
    let x = u16::try_from(x).unwrap_or(u16::MAX);
    if x < area.width && y < area.height {
        buffer.set_stringn(area.x + x, area.y + y, text, usize::from(area.width - x), style);
    }
}

/// The text, cut to this number of columns of the screen. A cut is marked.
pub(super) fn fit(text: &str, width: usize) -> String {
    // Characters without a width need no column, but time: so their number is limited too.
    if text.chars().count() <= width && Span::raw(text).width() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    while Span::raw(&*cut).width() >= width && cut.pop().is_some() {}
    if width > 0 {
        cut.push('…');
    }
    cut
}
