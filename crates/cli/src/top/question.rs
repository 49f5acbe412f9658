//! The question whether to break a hold. The name must be typed, and Cancel has the focus at first, so that no single
//! key breaks a hold. Pure.

use leasehold::HolderView;

use super::{keys::Key, rows::RowId};
use crate::text::escaped;

/// The longest text that is kept of what was typed: a name has at most 512 bytes, its escaped form a few times that.
const MAX_TYPED_CHARS: usize = 6 * 512;

/// The part of the question that gets the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Focus {
    Cancel,
    Name,
    Break,
}

/// The question about one hold. It does not follow the name to its next holder.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) name: String,
    pub(crate) holder: HolderView,
    pub(crate) token: u64,
    pub(crate) waiters: usize,
    pub(crate) focus: Focus,
    pub(crate) typed: String,
}

/// What a key decides.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Open,
    Cancel,
    Break,
}

impl Question {
    pub(crate) fn new(name: &str, holder: &HolderView, token: u64, waiters: usize) -> Self {
        let (name, typed) = (name.to_owned(), String::new());
        Self { name, holder: holder.clone(), token, waiters, focus: Focus::Cancel, typed }
    }

    pub(crate) fn id(&self) -> RowId {
        RowId { name: self.name.clone(), claim: Some(self.holder.id.clone()) }
    }

    /// Whether the name was typed: as it is, or as the screen shows it.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.typed == self.name || self.typed == escaped(&self.name)
    }

    pub(crate) fn key(&mut self, key: Key) -> Decision {
        match (key, self.focus) {
            (Key::Escape, _) | (Key::Enter, Focus::Cancel) => return Decision::Cancel,
            (Key::Enter, Focus::Break) if self.is_confirmed() => return Decision::Break,
            (Key::Enter, Focus::Name) if self.is_confirmed() => self.focus = Focus::Break,
            (Key::Tab | Key::Down | Key::Right, focus) => self.focus = self.after(focus),
            (Key::BackTab | Key::Up | Key::Left, focus) => self.focus = self.before(focus),
            (Key::Char(c), Focus::Name) => self.type_text(&c.to_string()),
            (Key::Paste(text), Focus::Name) => self.type_text(&text),
            (Key::Backspace, Focus::Name) => drop(self.typed.pop()),
            _ => {}
        }
        Decision::Open
    }

    /// The part after this one. Break gets the focus only when the name was typed.
    fn after(&self, focus: Focus) -> Focus {
        match focus {
            Focus::Cancel => Focus::Name,
            Focus::Name if self.is_confirmed() => Focus::Break,
            Focus::Name | Focus::Break => Focus::Cancel,
        }
    }

    fn before(&self, focus: Focus) -> Focus {
        match focus {
            Focus::Cancel if self.is_confirmed() => Focus::Break,
            Focus::Cancel | Focus::Break => Focus::Name,
            Focus::Name => Focus::Cancel,
        }
    }

    fn type_text(&mut self, text: &str) {
        let room = MAX_TYPED_CHARS.saturating_sub(self.typed.chars().count());
        self.typed.extend(text.chars().filter(|c| !c.is_control()).take(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::view;

    fn question(name: &str) -> Question {
        let view = view("n", &[("o", None, None)], &[]);
        Question::new(name, &view.holders[0], 7, 0)
    }

    /// The decision after these keys.
    fn decide(question: &mut Question, keys: impl IntoIterator<Item = Key>) -> Decision {
        keys.into_iter()
            .map(|key| question.key(key))
            .find(|decision| *decision != Decision::Open)
            .unwrap_or(Decision::Open)
    }

    fn typed(text: &str) -> impl Iterator<Item = Key> {
        text.chars().map(Key::Char)
    }

    #[test]
    fn a_hold_is_broken_only_after_its_name() {
        assert_eq!(decide(&mut question("db"), [Key::Enter]), Decision::Cancel, "Cancel has the focus");
        assert_eq!(decide(&mut question("db"), typed("db").chain([Key::Enter])), Decision::Cancel);
        let keys = [Key::Tab].into_iter().chain(typed("d")).chain([Key::Enter, Key::Enter, Key::Tab]);
        let mut half = question("db");
        assert_eq!(decide(&mut half, keys), Decision::Open);
        assert_eq!(half.focus, Focus::Cancel, "Break is out of reach");
        let keys = [Key::Tab].into_iter().chain(typed("dbx")).chain([Key::Backspace, Key::Enter]);
        let mut whole = question("db");
        assert_eq!(decide(&mut whole, keys), Decision::Open, "the first Enter moves the focus");
        assert_eq!((whole.focus, whole.key(Key::Enter)), (Focus::Break, Decision::Break));
        assert_eq!(decide(&mut whole, [Key::Escape]), Decision::Cancel);
    }

    #[test]
    fn a_name_is_confirmed_as_it_is_shown_or_pasted() {
        let mut question = question("a\u{202e}b");
        decide(&mut question, [Key::Tab].into_iter().chain(typed("a\\u{202e}b")));
        assert!(question.is_confirmed());
        question.typed.clear();
        assert_eq!(
            question.key(Key::Paste("a\u{202e}b\n".into())),
            Decision::Open,
            "a line feed is no Enter"
        );
        assert!(question.is_confirmed());
    }

    #[test]
    fn what_is_typed_has_a_bound() {
        let mut question = question("a");
        question.focus = Focus::Name;
        question.key(Key::Paste("x".repeat(2 * MAX_TYPED_CHARS)));
        question.key(Key::Char('y'));
        assert_eq!(question.typed.len(), MAX_TYPED_CHARS);
    }

    #[test]
    fn the_focus_goes_in_both_directions() {
        let mut question = question("a");
        question.typed = "a".into();
        for (key, focus) in [
            (Key::BackTab, Focus::Break),
            (Key::BackTab, Focus::Name),
            (Key::Right, Focus::Break),
            (Key::Right, Focus::Cancel),
        ] {
            question.key(key.clone());
            assert_eq!(question.focus, focus, "{key:?}");
        }
        question.typed.clear();
        for focus in [Focus::Name, Focus::Cancel] {
            question.key(Key::BackTab);
            assert_eq!(question.focus, focus, "Break is out of reach");
        }
    }
}
