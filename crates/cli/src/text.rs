//! The text output of `show` and `list`, and escapes for the terminal.

use std::{fmt::Write, io::Write as _};

use leasehold::{HolderView, Leadership, View, WaiterView};
pub(crate) use leasehold_ops::short_duration;
use leasehold_ops::{held_text, marks, oldest_waiter, remarks, waiting_text};

use crate::cmd::show::ShownName;

/// The owner that engines show when a name stays taken for its minimum hold time (`--at-least`).
pub(crate) const MIN_HOLD_OWNER: &str = "kept";

/// What is shown for the owner of a hold whose label is not known, because its record was deleted.
const UNKNOWN_OWNER: &str = "unknown";

/// The names in aligned columns.
pub(crate) fn list(views: &[View]) -> String {
    if views.is_empty() {
        return String::new();
    }
    let header = ["NAME", "MODE", "HOLDER", "TOKEN", "HELD", "WAITING", "OLDEST"].map(str::to_owned).to_vec();
    columns(std::iter::once(header).chain(views.iter().map(list_row)).collect())
}

/// The cells of a name in the output of `list`.
fn list_row(view: &View) -> Vec<String> {
    let first = view.holders.first();
    let more = view.holders.len().saturating_sub(1);
    let holder = match first {
        Some(holder) if more > 0 => format!("{} and {more} more", owner_text(holder)),
        Some(holder) => owner_text(holder),
        None => "-".into(),
    };
    let (mode, holder) = match &view.problem {
        Some(problem) => ("unreadable".into(), escaped(problem)),
        None => (view.mode.map_or_else(|| "free".into(), mode_text), holder),
    };
    vec![
        escaped(view.name.as_str()),
        mode,
        holder,
        or_dash(first.and_then(|holder| holder.token)),
        or_dash(first.and_then(held_text)),
        view.waiters.len().to_string(),
        or_dash(oldest_waiter(view).and_then(waiting_text)),
    ]
}

/// What `show` prints for one name: one fact on each line.
pub(crate) fn show(shown: &ShownName<'_>) -> String {
    let view = shown.view;
    let line = |what: &str, value: String| vec![what.to_owned(), value];
    let level = shown.guarantee.level().unwrap_or_else(|| "guarantee not known".to_owned());
    let mut facts = vec![
        line("name", escaped(view.name.as_str())),
        line("engine", format!("{} ({level})", shown.engine)),
        line("key", escaped(&view.key)),
        line("mode", view.mode.map_or_else(|| "free".into(), mode_text)),
    ];
    facts.extend(remarks(view).into_iter().map(|remark| line(remark.what, remark.text)));
    facts.extend(view.note.iter().map(|note| line("note", escaped(note))));
    match &shown.guarantee.0 {
        Ok(guarantee) => {
            facts.extend(
                guarantee.findings.iter().map(|finding| line("finding", escaped(&finding.to_string()))),
            );
            facts.extend(guarantee.notes.iter().map(|note| line("note", escaped(note))));
        }
        Err(why) => facts.push(line("note", escaped(why))),
    }
    let mut text = columns(facts);
    if !view.holders.is_empty() {
        let header = ["HOLDER", "TOKEN", "HELD", "REMAINING", "ID"].map(str::to_owned).to_vec();
        text += "\n";
        text += &columns(std::iter::once(header).chain(view.holders.iter().map(holder_cells)).collect());
    }
    if !view.waiters.is_empty() {
        let header = ["WAITER", "WAITED", "ID"].map(str::to_owned).to_vec();
        text += "\n";
        text += &columns(std::iter::once(header).chain(view.waiters.iter().map(waiter_cells)).collect());
    }
    text
}

/// Who leads an election, on one line: the term and the value, or `vacant` or `unsure`. A leader without a value has a
/// dash.
pub(crate) fn leadership(leadership: &Leadership) -> String {
    match leadership {
        Leadership::Held(leader) => {
            let value = leader.value.as_deref().map_or_else(|| "-".to_owned(), escaped);
            format!("{} {value}\n", leader.term.number)
        }
        Leadership::Vacant => "vacant\n".to_owned(),
        // A state that this command does not know counts as unsure.
        _ => "unsure\n".to_owned(),
    }
}

/// The cells of a holder in the output of `show`.
fn holder_cells(holder: &HolderView) -> Vec<String> {
    vec![
        owner_text(holder),
        or_dash(holder.token),
        or_dash(held_text(holder)),
        match holder.remaining {
            Some(left) => short_duration(left),
            None if holder.of_session => "until its session ends".into(),
            None => "no expiry".into(),
        },
        escaped(&holder.id),
    ]
}

/// The cells of a waiter in the output of `show`.
fn waiter_cells(waiter: &WaiterView) -> Vec<String> {
    vec![escaped(&waiter.owner), or_dash(waiting_text(waiter)), escaped(&waiter.id)]
}

/// The owner of a hold, with what is not as it should be, and whether the hold is foreign.
pub(crate) fn owner_text(holder: &HolderView) -> String {
    let (owner, marks) = (owner_only(holder), marks(holder));
    if marks.is_empty() { owner } else { format!("{owner} ({})", marks.join(", ")) }
}

/// The owner of a hold. It is never empty, so that each column of a table has a word in it.
pub(crate) fn owner_only(holder: &HolderView) -> String {
    if holder.owner.is_empty() { UNKNOWN_OWNER.to_owned() } else { escaped(&holder.owner) }
}

/// A part of a sentence about the holders of a name, if there are any: "held by me@host:7 for 1m05s, 24s left, and 2
/// more".
pub(crate) fn held_by(view: &View) -> Option<String> {
    let (first, others) = view.holders.split_first()?;
    let is_min_hold = first.owner == MIN_HOLD_OWNER && !first.foreign;
    let mut summary = if is_min_hold {
        "blocked by --at-least".to_owned()
    } else {
        format!("held by {}", owner_text(first))
    };
    let _ = first.held.map_or(Ok(()), |held| write!(summary, " for {}", short_duration(held)));
    let _ = first.remaining.map_or(Ok(()), |left| write!(summary, ", {} left", short_duration(left)));
    if !others.is_empty() {
        let _ = write!(summary, ", and {} more", others.len());
    }
    let _ = view.note.iter().try_for_each(|note| write!(summary, ": {}", escaped(note)));
    Some(summary)
}

pub(crate) fn mode_text(mode: leasehold::Mode) -> String {
    match mode.limit() {
        Some(limit) => format!("permit (limit {limit})"),
        None => mode.word().to_owned(),
    }
}

/// The value, or a dash if there is none.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

/// The widest column. A longer cell moves only the rest of its own line: a name of 512 bytes must not make every line
/// as long.
const MAX_COLUMN: usize = 48;

/// The rows as text with aligned columns.
pub(crate) fn columns(rows: Vec<Vec<String>>) -> String {
    let mut widths = Vec::new();
    for (index, cell) in rows.iter().flat_map(|row| row.iter().enumerate()) {
        if widths.len() <= index {
            widths.push(0);
        }
        widths[index] = widths[index].max(cell.chars().count().min(MAX_COLUMN));
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Writes one line to standard error.
pub(crate) fn print_message(message: &str) {
    // One write call, so that lines of several processes do not mix. A failed write cannot be reported anywhere.
    let _ = std::io::stderr().write_all(&message_line(message));
}

/// A message as a line, with escapes.
pub(crate) fn message_line(message: &str) -> Vec<u8> {
    format!("leasehold: {}\n", escaped(message)).into_bytes()
}

/// Whether a terminal interprets the character or does not show it: control characters, characters that change the
/// direction of text, and characters without a width. None of them needs more than four hexadecimal digits.
pub(crate) fn is_interpreted(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
        )
}

/// Text that others chose, with an escape for every character that a terminal interprets.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if is_interpreted(c) {
            let _ = write!(escaped, "{}", c.escape_unicode());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// The text, quoted as one word for a shell, so that a user can copy a printed line and run it.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    let quoted = match text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    };
    // The `--` keeps the text from being read as an option.
    if text.starts_with('-') { format!("-- {quoted}") } else { quoted }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::{Guarantee, Level, Mode, Name};

    use super::*;
    use crate::cmd::show::GuaranteeResult;

    fn view() -> View {
        let mut view = View::free(Name::new("night").unwrap(), "/d/night.lock".into());
        view.mode = Some(Mode::Exclusive);
        let holder = HolderView::new("ab".into(), "\u{1b}]0;evil\u{7}".into());
        view.holders.push(holder.token(Some(7)).times(Some(Duration::from_secs(3725)), None));
        let waiting = Some(Duration::from_millis(1500));
        view.waiters.push(WaiterView::new("cd".into(), "me".into(), waiting));
        view
    }

    #[test]
    fn a_held_name_is_shown_with_escaped_text() {
        let view = view();
        let guarantee = GuaranteeResult(Ok(Guarantee::new(Level::Exact, &["one host\u{1b}"])));
        let text = show(&ShownName { engine: "file", guarantee: &guarantee, view: &view });
        assert_eq!(
            text,
            "name    night\nengine  file (exact)\nkey     /d/night.lock\nmode    exclusive\n\
             note    one host\\u{1b}\n\n\
             HOLDER              TOKEN  HELD   REMAINING  ID\n\
             \\u{1b}]0;evil\\u{7}  7      1h02m  no expiry  ab\n\n\
             WAITER  WAITED  ID\nme      1.5s    cd\n"
        );
    }

    #[test]
    fn a_character_that_cannot_be_seen_is_escaped() {
        assert_eq!(escaped("a\u{200b}b\u{feff}\u{ad}\u{2060}"), "a\\u{200b}b\\u{feff}\\u{ad}\\u{2060}");
        assert_eq!(escaped("é漢🔒"), "é漢🔒");
    }

    #[test]
    fn a_long_cell_moves_only_the_rest_of_its_line() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let long = "n".repeat(512);
        let text = columns(vec![row(["job", "x"]), row([&long, "x"])]);
        assert_eq!(text, format!("job{}  x\n{long}  x\n", " ".repeat(MAX_COLUMN - 3)));
    }

    #[test]
    fn remarks_about_the_holder_are_facts_of_the_name() {
        let (mut view, guarantee) = (view(), GuaranteeResult(Ok(Guarantee::new(Level::Exact, &[]))));
        view.holders[0].broken = true;
        view.holders[0].process = Some(leasehold::HolderProcess::new(7, Some('T')));
        view.holders[0].owner.clear();
        let text = show(&ShownName { engine: "file", guarantee: &guarantee, view: &view });
        assert!(text.contains("\nbroken   the name is free when the holder stops\n"), "{text}");
        assert!(text.contains("\nprocess  the holder's process 7 is stopped (state T), "), "{text}");
        assert!(text.contains("\nunknown (broken, stopped)  7 "), "{text}");
    }

    #[test]
    fn the_remaining_time_is_shown_if_known() {
        let mut holder = view().holders.remove(0);
        let mut shown = |remaining, of_session| {
            (holder.remaining, holder.of_session) = (remaining, of_session);
            super::holder_cells(&holder)[3].clone()
        };
        assert_eq!(shown(None, false), "no expiry");
        assert_eq!(shown(None, true), "until its session ends");
        assert_eq!(shown(Some(Duration::from_secs(7)), false), "7.0s");
    }

    #[test]
    fn a_minimum_hold_is_not_shown_as_held() {
        let mut view = view();
        view.holders[0].owner = "kept".into();
        view.holders[0].remaining = Some(Duration::from_secs(29));
        assert_eq!(held_by(&view).unwrap(), "blocked by --at-least for 1h02m, 29s left");
        view.holders[0].foreign = true;
        assert!(held_by(&view).unwrap().starts_with("held by kept (foreign)"));
    }

    #[test]
    fn a_state_without_a_leader_is_one_word() {
        assert_eq!(leadership(&Leadership::Vacant), "vacant\n");
        assert_eq!(leadership(&Leadership::Unsure), "unsure\n");
    }

    #[test]
    fn a_note_follows_who_holds_the_name() {
        let mut view = view();
        view.note = Some("its value is a time\nthat is over".into());
        let held = held_by(&view).unwrap();
        assert!(held.ends_with(": its value is a time\\u{a}that is over"), "{held}");
    }

    #[test]
    fn a_list_is_aligned_or_empty() {
        let free = View::free(Name::new("a longer name").unwrap(), "k".into());
        assert_eq!(
            list(&[view(), free]),
            "NAME           MODE       HOLDER              TOKEN  HELD   WAITING  OLDEST\n\
             night          exclusive  \\u{1b}]0;evil\\u{7}  7      1h02m  1        1.5s\n\
             a longer name  free       -                   -      -      0        -\n"
        );
        assert_eq!(list(&[]), "");
    }

    #[test]
    fn a_name_is_quoted_for_a_shell() {
        let shown = ["a/b", "two words", "it's", "-n", "$x"].map(shell_word);
        assert_eq!(shown, ["a/b", "'two words'", r"'it'\''s'", "-- -n", "'$x'"]);
    }

    #[test]
    fn text_direction_characters_are_escaped() {
        assert_eq!(escaped("a\u{202e}b\u{85}c"), "a\\u{202e}b\\u{85}c");
        assert_eq!(escaped("läuft ✓"), "läuft ✓");
    }
}
