//! The task on whose behalf a claim is made, as part of the label of the claim. Tools for operators find deadlocks by
//! it.

use std::{fmt, str::FromStr};

use crate::{Env, Error};

/// What precedes an actor at the end of a label.
const MARK: &str = " actor=";
/// The number of hexadecimal digits of an id.
const DIGITS: usize = 16;
/// What is between the id of an actor and the id of the actor that it works for.
const PARENT_MARK: char = '/';

/// One sequential task that holds and waits for names: a run of the command, or a task of a program that asks for it by
/// [`Owner::of_task`](crate::Owner::of_task).
///
/// A task that waits for a name keeps all names that it holds. So the claims of tasks show deadlocks: see `leasehold
/// doctor`. The actor is stored at the end of the label of each claim, as ` actor=<id>` or ` actor=<id>/<parent id>`,
/// and is shown by [`HolderView::actor`](crate::HolderView::actor) and [`WaiterView::actor`](crate::WaiterView::actor).
/// It decides nothing about locks.
///
/// Use one actor for one task that does one thing after another, never for a whole process: the tasks of a process
/// continue while one of them waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Actor {
    id: u64,
    parent: Option<u64>,
}

impl Actor {
    /// A new actor that works for no other. Its id is a random number of the system.
    ///
    /// ```
    /// use leasehold::Actor;
    /// assert!(Actor::random() != Actor::random() && Actor::random().parent().is_none());
    /// ```
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; 8];
        Env::system().entropy.fill(&mut bytes);
        Self { id: u64::from_be_bytes(bytes), parent: None }
    }

    /// A new actor for whose end this one waits: while the new one waits for a name, this one keeps what it holds. For
    /// example, a run inside a run.
    ///
    /// ```
    /// use leasehold::Actor;
    /// let outer = Actor::random();
    /// assert_eq!(outer.child().parent(), Some(outer.id()));
    /// ```
    #[must_use]
    pub fn child(self) -> Self {
        Self { parent: Some(self.id), ..Self::random() }
    }

    /// The id.
    #[must_use]
    pub const fn id(self) -> u64 {
        self.id
    }

    /// The id of the actor that waits for the end of this one.
    #[must_use]
    pub const fn parent(self) -> Option<u64> {
        self.parent
    }

    /// How many bytes of a label this actor takes.
    pub(crate) const fn label_bytes(self) -> usize {
        MARK.len() + DIGITS + if self.parent.is_some() { 1 + DIGITS } else { 0 }
    }

    /// The end of a label that tells this actor.
    pub(crate) fn label_end(self) -> String {
        format!("{MARK}{self}")
    }

    /// A label without the actor at its end, and the actor.
    #[doc(hidden)]
    #[must_use]
    pub fn split(label: &str) -> (&str, Option<Self>) {
        match label.rsplit_once(MARK).map(|(text, actor)| (text, Self::read(actor))) {
            Some((text, Some(actor))) => (text, Some(actor)),
            _ => (label, None),
        }
    }

    /// Parses the displayed form.
    fn read(text: &str) -> Option<Self> {
        let id = |digits: &str| {
            let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            u64::from_str_radix(digits, 16).ok().filter(|_| is_hex && digits.len() == DIGITS)
        };
        match text.split_once(PARENT_MARK) {
            Some((own, parent)) => Some(Self { id: id(own)?, parent: Some(id(parent)?) }),
            None => Some(Self { id: id(text)?, parent: None }),
        }
    }
}

/// The id in 16 hexadecimal digits; for an actor with a parent, followed by `/` and the id of the parent.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.id)?;
        self.parent.map_or(Ok(()), |parent| write!(f, "{PARENT_MARK}{parent:016x}"))
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Actor {
    type Err = Error;

    /// Parses the displayed form.
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::read(text).ok_or_else(|| Error::invalid("an actor is 16 hexadecimal digits in lower case"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_OWNER_BYTES, Owner};

    #[test]
    fn a_label_keeps_its_actor_and_loses_its_end() {
        let outer = Actor::random();
        for actor in [outer, outer.child()] {
            for text in ["", "me@host:17", "with actor=0123456789abcdef", &"ä".repeat(MAX_OWNER_BYTES)] {
                let owner = Owner::of_task(text, actor);
                assert!(owner.label().len() <= MAX_OWNER_BYTES);
                let (shown, read) = Actor::split(owner.label());
                assert_eq!(read, Some(actor), "{text}");
                assert!(text.starts_with(shown) && (shown == text || text.len() > 80), "{shown}");
                // The label of a connection is made from text.
                assert_eq!(Owner::new(owner.label()).label(), owner.label());
            }
        }
        assert_eq!(outer.to_string().parse::<Actor>().unwrap(), outer);
    }

    #[test]
    fn what_is_no_actor_stays_in_the_label() {
        let labels = [
            "me",
            "me actor=",
            "me actor=0123456789abcde",
            "me actor=0123456789ABCDEF",
            "me actor=+123456789abcdef",
            "me actor=0123456789abcdef ",
            "me actor=0123456789abcdef/",
            "me actor=0123456789abcdef/0123456789abcdef/0",
            "actor=0123456789abcdef",
        ];
        for label in labels {
            assert_eq!(Actor::split(label), (label, None));
        }
    }
}
