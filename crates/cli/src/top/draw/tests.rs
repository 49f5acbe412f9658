//! What is on the screen in each state, on a terminal in memory.

use leasehold::{ErrorKind, Guarantee, Level, View};
use ratatui::{Terminal, backend::TestBackend, buffer::Cell};

use super::{
    super::{
        keys::Key,
        sample::{seconds, view},
        state::Setting,
    },
    *,
};
use crate::cmd::show::GuaranteeResult;

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/watching.md"));

fn state(views: Vec<View>) -> State {
    let setting = Setting {
        engine: "redis",
        is_default: false,
        prefix: String::new(),
        pause: seconds(1),
        is_readonly: false,
    };
    let mut state = State::new(setting, views, seconds(100));
    state.guarantee = GuaranteeResult(Ok(Guarantee::new(Level::LeaseBounded, &[])));
    state
}

/// The locks of a small fleet.
fn fleet() -> Vec<View> {
    vec![
        view("backup/db1", &[("root@db1:8121", Some(1312), Some(24))], &[]),
        view("deploy/web", &[("ci@runner-7:4410", Some(3905), Some(21))], &[3600, 1250, 65]),
        view("import/orders", &[("app@web-2:311", Some(2), Some(28))], &[1]),
        view("report", &[("ann@desk:9", Some(40), Some(11)), ("bob@desk:12", Some(3), Some(27))], &[]),
    ]
}

/// The screen as lines, and its cells.
fn painted(
    state: &mut State,
    (width, height): (u16, u16),
    at: u64,
    colours: Colours,
) -> (Vec<String>, Vec<Cell>) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, seconds(at), colours)).unwrap();
    let cells = terminal.backend().buffer().content().to_vec();
    let line = |cells: &[Cell]| cells.iter().map(Cell::symbol).collect::<String>().trim_end().to_owned();
    (cells.chunks(width.into()).map(line).collect(), cells)
}

fn lines(state: &mut State) -> Vec<String> {
    painted(state, (80, 24), 101, Colours::Used).0
}

#[track_caller]
fn assert_shown(state: &mut State, words: &str) {
    let lines = lines(state);
    assert!(lines.iter().any(|line| line.contains(words)), "{words:?} is not in\n{}", lines.join("\n"));
}

/// The page about `top` shows what the code paints.
#[test]
fn the_pictures_of_the_page_are_current() {
    let mut state = state(fleet());
    state.key(Key::Down);
    let (table, _) = painted(&mut state, (80, 12), 101, Colours::Used);
    state.key(Key::Ctrl('d'));
    let (question, _) = painted(&mut state, (80, 18), 101, Colours::Used);
    let (narrow, _) = painted(&mut self::state(fleet()), (40, 10), 101, Colours::Used);
    for picture in [table, question, narrow] {
        let picture = picture.join("\n");
        assert!(PAGE.contains(&picture), "docs/watching.md does not have this picture:\n{picture}");
    }
}

#[test]
fn the_row_that_blocks_the_most_is_on_top() {
    let lines = lines(&mut state(fleet()));
    assert!(
        lines[0].starts_with(" leasehold top  redis (lease-bounded)  names 4  holds 5  waiting 4"),
        "{lines:?}"
    );
    assert!(lines[0].ends_with("age 1s") && lines[1].contains("WAIT*  OLDEST*"), "{lines:?}");
    let words: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(words, ["deploy/web", "ci@runner-7:4410", "1h05m", "21s", "3", "1h00m"]);
    assert!(lines[23].contains("q quit") && lines[23].contains("^D break"), "{lines:?}");
}

#[test]
fn a_wide_screen_has_mode_and_token_and_a_narrow_one_what_matters_most() {
    let (wide, _) = painted(&mut state(fleet()), (120, 24), 101, Colours::Used);
    assert!(wide[1].contains("MODE") && wide[2].contains("exclusive           7"), "{wide:?}");
    let (narrow, _) = painted(&mut state(fleet()), (40, 10), 101, Colours::Used);
    let words: Vec<&str> = narrow[2].split_whitespace().collect();
    assert_eq!(words, ["deploy/web", "ci@runner-7:…", "21s"], "name, holder, time that is left: {narrow:?}");
    assert!(
        narrow[0].starts_with(" redis  names 4  waiting 4") && narrow[0].ends_with("age 1s"),
        "{narrow:?}"
    );
    assert!(narrow.iter().all(|line| line.chars().count() <= 40), "{narrow:?}");
    let (tiny, _) = painted(&mut state(fleet()), (39, 24), 101, Colours::Used);
    assert_eq!(tiny[0], "too small: 40 x 10 needed");
}

/// The fleet on Redis, whose tokens are times.
fn with_long_tokens() -> Vec<View> {
    let mut views = fleet();
    for holder in views.iter_mut().flat_map(|view| &mut view.holders) {
        holder.token = holder.token.map(|token| 1_764_198_752_000_000 + token);
    }
    views
}

#[test]
fn each_column_is_shown_from_its_width_on() {
    let headings = |width: u16| {
        let (lines, _) = painted(&mut state(with_long_tokens()), (width, 24), 101, Colours::Used);
        lines[1].replace('*', "").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for (width, expected) in [
        (40, "NAME HOLDER LEFT"),
        (50, "NAME HOLDER LEFT WAIT"),
        (60, "NAME HOLDER HELD LEFT WAIT"),
        (70, "NAME HOLDER HELD LEFT WAIT OLDEST"),
        (80, "NAME HOLDER HELD LEFT WAIT OLDEST"),
        (100, "NAME HOLDER TOKEN HELD LEFT WAIT OLDEST"),
        (120, "NAME HOLDER MODE TOKEN HELD LEFT WAIT OLDEST"),
    ] {
        assert_eq!(headings(width), expected, "{width} columns");
    }
}

#[test]
fn a_token_is_never_cut() {
    for width in 40..200 {
        for page in [Key::Escape, Key::Enter, Key::Ctrl('d')] {
            let mut state = state(with_long_tokens());
            state.key(Key::Down);
            state.key(page);
            let lines = painted(&mut state, (width, 24), 101, Colours::Used).0.join("\n");
            let shown = lines.matches("1764198752000007").count();
            if !matches!(state.page, Page::Question(_)) {
                let begun = lines.matches("17641987").count();
                assert_eq!(begun, lines.matches("1764198752000").count(), "{lines}");
            }
            assert!(shown > 0 || (width < 100 && lines.contains("HOLDER  ")), "{width}: {lines}");
        }
    }
}

#[test]
fn details_are_continued_and_not_cut() {
    let mut views = with_long_tokens();
    views[1].note = Some("its value was written by another program, which does not renew it".to_owned());
    let mut state = state(views);
    state.key(Key::Down);
    state.key(Key::Enter);
    for width in [40, 60, 80] {
        let (lines, _) = painted(&mut state, (width, 40), 101, Colours::Used);
        assert!(!lines[1..38].iter().any(|line| line.contains('…')), "{lines:?}");
        let words: Vec<_> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
        let text = words.join(" ");
        for words in
            ["which does not renew it", "1764198752000007", "id of ci@runner-7:4410", "wait 2 of deploy/web"]
        {
            assert!(text.contains(words), "{words:?} is not in {lines:?}");
        }
    }
}

/// What is needed to break a hold is on the smallest screen.
#[test]
fn the_question_fits_on_the_smallest_screen() {
    let mut state = state(with_long_tokens());
    state.key(Key::Down);
    state.key(Key::Ctrl('d'));
    let (lines, _) = painted(&mut state, (40, 10), 101, Colours::Used);
    for words in ["deploy/web", "token   1764198752000007", "Type the name", "> [ Cancel ] <", "[ Break ]"] {
        assert!(lines.iter().any(|line| line.contains(words)), "{words:?} is not in {lines:#?}");
    }
    let mut long = view(&"n".repeat(512), &[("o", None, None)], &[]);
    long.holders[0].token = Some(1_764_198_752_000_007);
    let mut state = self::state(vec![long]);
    state.key(Key::Down);
    state.key(Key::Ctrl('d'));
    let (lines, _) = painted(&mut state, (40, 10), 101, Colours::Used);
    for words in ["nnnn", "> [ Cancel ] <", "[ Break ]"] {
        assert!(lines.iter().any(|line| line.contains(words)), "{words:?} is not in {lines:#?}");
    }
}

#[test]
fn hostile_text_is_escaped_everywhere() {
    let name = "n\u{202e}ame";
    let mut hostile = view(name, &[("o\u{1b}[2J\n", Some(5), None)], &[9]);
    hostile.waiters[0].owner = "w\u{7}".into();
    hostile.note = Some("note\u{9b}".into());
    let mut state = state(vec![hostile]);
    state.key(Key::Down);
    assert_shown(&mut state, "> n\\u{202e}ame");
    assert_shown(&mut state, "o\\u{1b}[2J\\u{a}");
    state.key(Key::Ctrl('d'));
    state.key(Key::Tab);
    state.key(Key::Paste("\u{202e}".into()));
    assert_shown(&mut state, "\\u{202e}_");
    for (key, words) in
        [(Key::Escape, "n\\u{202e}ame"), (Key::Enter, "w\\u{7}"), (Key::Escape, "n\\u{202e}ame")]
    {
        state.key(key);
        assert_shown(&mut state, words);
    }
    state.key(Key::Char('/'));
    state.key(Key::Paste("\u{202e}".into()));
    assert_shown(&mut state, "/\\u{202e}_");
    state.look(Err(leasehold::Error::new(ErrorKind::Unreachable, "e\u{1b}]0;x")), seconds(1));
    state.key(Key::Enter);
    assert_shown(&mut state, "e\\u{1b}]0;x");
}

#[test]
fn old_data_are_marked_by_a_word_and_by_their_age() {
    let mut state = state(fleet());
    let error = leasehold::Error::new(ErrorKind::Unreachable, "no answer of the server");
    state.look(Err(error), seconds(101));
    let (lines, cells) = painted(&mut state, (80, 24), 165, Colours::Used);
    assert!(lines[0].ends_with("STALE, age 1m05s"), "{lines:?}");
    assert!(lines[22].starts_with("no answer of the server") && lines[2].contains("deploy/web"), "{lines:?}");
    assert!(cells[2 * 80 + 4].modifier.contains(Modifier::DIM), "grey");
    state.look(Ok(fleet()), seconds(165));
    state.key(Key::Char('f'));
    let (lines, _) = painted(&mut state, (80, 24), 175, Colours::Used);
    assert!(lines[0].ends_with("FROZEN, age 10s"), "{lines:?}");
}

/// Whether the engine tells changes is on the screen, unless that would hide something else.
#[test]
fn the_title_tells_whether_changes_are_pushed() {
    let mut state = state(fleet());
    state.is_pushed = true;
    let title = |state: &mut State, width, at| {
        let (lines, _) = painted(state, (width, 24), at, Colours::Unused);
        lines[0].clone()
    };
    let wide = title(&mut state, 100, 101);
    assert!(wide.contains("waiting 4  ") && wide.ends_with(" pushed, age 1s"), "{wide}");
    assert!(title(&mut state, 80, 101).ends_with("waiting 4       age 1s"));
    state.look(Err(leasehold::Error::new(ErrorKind::Unreachable, "no answer")), seconds(101));
    assert!(title(&mut state, 100, 101).ends_with("   STALE, age 1s"));
    (state.trouble, state.is_pushed) = (None, false);
    assert!(title(&mut state, 100, 101).ends_with("   age 1s"));
}

#[test]
fn without_colours_nothing_is_lost() {
    let mut broken = view("z", &[], &[]);
    broken.problem = Some("not a record".into());
    let mut views = fleet();
    views.push(broken);
    let mut state = state(views);
    state.key(Key::Down);
    let (coloured, cells) = painted(&mut state, (80, 24), 300, Colours::Used);
    assert!(
        cells.iter().any(|cell| cell.fg == Color::Yellow) && cells.iter().any(|cell| cell.fg == Color::Red)
    );
    let (plain, cells) = painted(&mut state, (80, 24), 300, Colours::Unused);
    assert_eq!(coloured, plain);
    assert!(cells.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    assert!(plain.iter().any(|line| line.starts_with("> deploy/web")), "the selection has a mark: {plain:?}");
    assert!(plain.iter().any(|line| line.contains("unreadable")), "{plain:?}");
}

#[test]
fn a_question_about_a_hold_that_ended_says_so() {
    let mut state = state(fleet());
    state.key(Key::Down);
    state.key(Key::Ctrl('d'));
    assert_shown(&mut state, "> [ Cancel ] <");
    assert_shown(&mut state, "(first type the name)");
    state.look(Ok(Vec::new()), seconds(101));
    assert_shown(&mut state, "This hold has ended");
}

#[test]
fn an_empty_table_says_why() {
    assert_shown(&mut state(Vec::new()), "nothing is held or waited for");
    let mut state = state(fleet());
    state.key(Key::Char('/'));
    state.key(Key::Paste("nobody".into()));
    assert_shown(&mut state, "no row contains the filter");
    state.key(Key::Enter);
    assert_shown(&mut state, "only what contains \"nobody\"");
    state.key(Key::Char('?'));
    assert_shown(&mut state, "paint the screen anew");
}

#[test]
fn details_scroll_to_the_last_line_and_no_further() {
    let waits: Vec<u64> = (1..=40).collect();
    let mut state = state(vec![view("long", &[("o", None, None)], &waits)]);
    state.key(Key::Down);
    state.key(Key::Enter);
    assert_shown(&mut state, "engine  redis (lease-bounded)");
    for _ in 0..9 {
        state.key(Key::PageDown);
        lines(&mut state);
    }
    assert_shown(&mut state, "waiter 39");
    state.key(Key::Up);
    assert!(!lines(&mut state).iter().any(|line| line.contains("waiter 39")), "one line up");
    state.look(Ok(Vec::new()), seconds(101));
    assert_shown(&mut state, "nobody holds it or waits for it");
}

#[test]
fn text_is_cut_by_columns_of_the_screen() {
    for (text, width, cut) in [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("abc", 0, ""),
    ] {
        assert_eq!(fit(text, width), cut, "{text} in {width}");
    }
    let joined = "e\u{301}".repeat(1000);
    assert!(Span::raw(fit(&joined, 10)).width() <= 10);
}
