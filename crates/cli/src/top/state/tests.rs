//! The state under keys and looks, without a terminal.

use leasehold::{ErrorKind, HolderView};

use super::{
    super::sample::{seconds, view},
    *,
};
use crate::top::keys::Key;

fn state(views: Vec<View>) -> State {
    let setting = Setting {
        engine: "redis",
        is_default: false,
        prefix: String::new(),
        pause: seconds(1),
        is_readonly: false,
    };
    let mut state = State::new(setting, views, seconds(100));
    state.order.sort = Sort::Name;
    state.arrange();
    state
}

fn two() -> Vec<View> {
    vec![view("a", &[("alice", Some(5), None)], &[]), view("b", &[("bob", Some(9), None)], &[3])]
}

fn press(state: &mut State, keys: &str) -> Action {
    keys.chars().map(|c| state.key(Key::Char(c))).last().unwrap_or(Action::Nothing)
}

/// The owner of the selected hold.
fn selected(state: &State) -> Option<&str> {
    Some(&*state.selected_row()?.holder(&state.views)?.owner)
}

fn message(state: &State) -> &str {
    state.message.as_deref().unwrap_or_default()
}

#[test]
fn the_selection_stays_with_the_hold_and_not_with_the_row() {
    let mut state = state(two());
    assert_eq!(selected(&state), None, "nothing is selected at first");
    press(&mut state, "jj");
    assert_eq!((selected(&state), state.selected_place()), (Some("bob"), Some(1)));
    let mut views = two();
    views.insert(0, view("A first", &[("carol", None, None)], &[]));
    state.look(Ok(views), seconds(101));
    assert_eq!((selected(&state), state.selected_place()), (Some("bob"), Some(2)));
    press(&mut state, "r");
    assert_eq!((selected(&state), state.selected_place()), (Some("bob"), Some(0)), "another order");
}

/// A key must not act on the next holder, which took the place of the selected one.
#[test]
fn a_selection_whose_hold_ended_selects_nothing() {
    let mut state = state(two());
    press(&mut state, "jj");
    let next =
        vec![view("a", &[("alice", Some(6), None)], &[]), view("b", &[("waiter 0", Some(0), None)], &[])];
    state.look(Ok(next), seconds(101));
    assert_eq!((selected(&state), message(&state)), (None, "the selected hold of b has ended"));
    assert_eq!(state.key(Key::Ctrl('d')), Action::Nothing);
    assert!(matches!(state.page, Page::Table) && message(&state).starts_with("select a hold"));
    press(&mut state, "j");
    assert_eq!(selected(&state), Some("waiter 0"), "the row that took its place");
}

#[test]
fn the_keys_move_within_the_rows() {
    let rows =
        |count: u64| (0..count).map(|n| view(&format!("n{n:02}"), &[(&format!("o{n}"), Some(n), None)], &[]));
    let mut state = state(rows(30).collect());
    assert_eq!(state.window(10), 0..10);
    for (key, place, window) in [
        (Key::Up, 0, 0..10),
        (Key::PageDown, 10, 1..11),
        (Key::Down, 11, 2..12),
        (Key::Char('G'), 29, 20..30),
        (Key::Down, 29, 20..30),
        (Key::PageUp, 19, 19..29),
        (Key::Char('k'), 18, 18..28),
        (Key::Home, 0, 0..10),
        (Key::End, 29, 20..30),
    ] {
        state.key(key.clone());
        assert_eq!((state.selected_place(), state.window(10)), (Some(place), window), "{key:?}");
    }
    state.look(Ok(rows(3).collect()), seconds(101));
    assert_eq!(state.window(10), 0..3);
    press(&mut state, "j");
    assert_eq!(state.selected_place(), Some(2), "the last row that is left");
    state.look(Ok(Vec::new()), seconds(102));
    assert_eq!((press(&mut state, "jkgG"), state.window(10)), (Action::Nothing, 0..0));
}

#[test]
fn a_filter_is_typed_and_cleared() {
    let mut state = state(two());
    press(&mut state, "j/bob");
    assert!(state.is_filtering);
    assert_eq!((state.rows.len(), state.filter.as_str(), selected(&state)), (1, "bob", None));
    state.key(Key::Backspace);
    state.key(Key::Enter);
    assert_eq!((state.is_filtering, state.filter.as_str()), (false, "bo"));
    state.look(Ok(two()), seconds(101));
    assert_eq!(state.rows.len(), 1, "the filter stays");
    assert_eq!(press(&mut state, "/q"), Action::Nothing, "q is a letter of the filter");
    state.key(Key::Escape);
    assert_eq!((state.is_filtering, state.rows.len()), (false, 2));
    press(&mut state, "/zz");
    state.key(Key::Enter);
    state.key(Key::Escape);
    assert_eq!(state.rows.len(), 2, "Esc shows all rows");
}

#[test]
fn a_frozen_picture_stays_and_thaws_into_the_newest_look() {
    let mut state = state(two());
    press(&mut state, "f");
    for at in [101, 102] {
        state.look(Ok(vec![view("a", &[("alice", Some(at), None)], &[])]), seconds(at));
    }
    assert_eq!((state.rows.len(), state.age(seconds(110))), (2, seconds(10)));
    assert!(!state.is_stale(seconds(110)), "it is old on purpose");
    press(&mut state, "f");
    assert_eq!((state.rows.len(), state.age(seconds(110))), (1, seconds(8)));
    assert!(!state.is_frozen());
}

#[test]
fn data_are_stale_after_an_error_and_after_silence() {
    let mut state = state(two());
    assert!(!state.is_stale(seconds(105)));
    assert!(state.is_stale(seconds(106)), "no answer for too long");
    state.answered_after(seconds(20));
    // The pause after such a look is 15 s.
    assert!(!state.is_stale(seconds(180)) && state.is_stale(seconds(181)), "a slow engine");
    state.answered_after(seconds(1));
    state.look(Err(Error::new(ErrorKind::Unreachable, "cut off")), seconds(101));
    assert!(state.is_stale(seconds(101)) && state.trouble.as_deref() == Some("cut off"));
    assert_eq!(state.rows.len(), 2, "the last data stay");
    state.look(Ok(two()), seconds(102));
    assert!(!state.is_stale(seconds(102)) && state.trouble.is_none());
}

#[test]
fn only_a_confirmed_question_breaks_a_hold() {
    let mut state = state(two());
    press(&mut state, "jj");
    state.key(Key::Ctrl('d'));
    let Page::Question(question) = &state.page else { panic!("no question") };
    assert_eq!((&*question.name, question.token, question.waiters), ("b", 7, 1));
    // The hold moves and ends while the question is open: the question is about this hold still.
    let mut next = view("b", &[("waiter 0", None, None)], &[]);
    next.holders[0].token = Some(8);
    state.look(Ok(vec![next]), seconds(101));
    state.key(Key::Tab);
    press(&mut state, "b");
    state.key(Key::Enter);
    assert_eq!(state.key(Key::Enter), Action::Break { name: "b".into(), token: 7 });
    assert!(matches!(state.page, Page::Table) && message(&state).starts_with("breaking b, token 7"));
    state.broken("b", 7, Ok(Broken::NotHeld));
    assert_eq!(message(&state), "b is not held under token 7 any more");
    press(&mut state, "g");
    state.broken("b", 7, Ok(Broken::Done));
    state.look(Ok(Vec::new()), seconds(102));
    assert_eq!(message(&state), "broken: b, token 7", "its end is no news");
    state.broken("b\u{1b}", 7, Ok(Broken::Done));
    assert_eq!(message(&state), "broken: b\\u{1b}, token 7");
    state.broken("b", 7, Err(Error::new(ErrorKind::Denied, "no right\u{1b}")));
    assert_eq!(message(&state), "no right\\u{1b}");
}

#[test]
fn what_cannot_be_broken_is_not_asked_for() {
    let mut foreign = view("f", &[], &[]);
    foreign.holders.push(HolderView::new("i".into(), "o".into()).foreign(true));
    let mut state = state(vec![foreign, view("g", &[], &[1])]);
    for (keys, words) in [("g", "has no token"), ("G", "nobody holds g")] {
        press(&mut state, keys);
        state.key(Key::Ctrl('d'));
        assert!(matches!(state.page, Page::Table) && message(&state).contains(words), "{}", message(&state));
    }
    let mut readonly = self::state(two());
    readonly.setting.is_readonly = true;
    press(&mut readonly, "g");
    readonly.key(Key::Ctrl('d'));
    assert!(matches!(readonly.page, Page::Table) && message(&readonly).contains("--readonly"));
}

#[test]
fn pages_open_and_close() {
    let mut state = state(two());
    state.key(Key::Enter);
    assert!(message(&state).starts_with("select a row"));
    press(&mut state, "g");
    state.key(Key::Enter);
    assert!(matches!(&state.page, Page::Details { name, from: 0 } if name == "a"));
    press(&mut state, "jj");
    state.key(Key::PageUp);
    assert!(matches!(state.page, Page::Details { from: 1, .. }));
    state.key(Key::Ctrl('d'));
    assert!(matches!(state.page, Page::Question(_)), "the hold that was selected");
    state.key(Key::Escape);
    press(&mut state, "?");
    assert!(matches!(state.page, Page::Help));
    press(&mut state, "x");
    assert!(matches!(state.page, Page::Table));
    for (key, action) in [
        (Key::Char('q'), Action::Quit),
        (Key::Ctrl('c'), Action::Interrupt),
        (Key::Ctrl('z'), Action::Suspend),
        (Key::Ctrl('l'), Action::Repaint),
        (Key::Resized, Action::Nothing),
    ] {
        assert_eq!(state.key(key), action);
    }
}
