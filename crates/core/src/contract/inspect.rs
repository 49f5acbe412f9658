//! Looking at names from outside: who holds, who waits, and breaking a hold on purpose.

use std::time::Duration;

use crate::{BoxFuture, EngineError, Guarantee, Lineage, MAX_OWNER_BYTES, Mode, Name};

/// What operators ask of an engine. Same rules as for [`Engine`](crate::Engine), but nothing here decides ownership.
pub trait Inspect: Send + Sync {
    /// One round trip that shows that the engine can be reached, with the credentials that it was given. It creates nothing, and needs no
    /// right that a claim does not need.
    ///
    /// # Errors
    /// As for `claim`.
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>>;

    /// What is promised, as the server is configured now.
    ///
    /// # Errors
    /// As for `claim`.
    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>>;

    /// The names that begin with `prefix` and have a holder or a waiter, or cannot be read, sorted. One that cannot be read hides no
    /// other.
    ///
    /// # Errors
    /// As for `claim`.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>>;

    /// One name; a free one has no holders and no waiters.
    ///
    /// # Errors
    /// As for `claim`.
    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>>;

    /// Ends the hold whose block of tokens contains `token`. `force` does not wait for the holder's lease.
    ///
    /// # Errors
    /// As for `claim`; [`Fault::Denied`](crate::Fault::Denied) where the engine cannot break this hold, with the reason.
    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>>;
}

/// The longest text of others that is shown of a holder or waiter, in characters. What we write ourselves is not longer.
const MAX_SHOWN: usize = MAX_OWNER_BYTES;

/// Cuts a text that others wrote, and shows that it was cut.
pub(crate) fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.push('…');
    }
}

/// A name as seen from outside.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct View {
    /// The name.
    pub name: Name,
    /// What a foreign program is given for this name: the lock file, the Redis key, ...
    pub key: String,
    /// How it is held; `None` when it is free.
    pub mode: Option<Mode>,
    /// Who holds it.
    pub holders: Vec<HolderView>,
    /// Who waits, first in line first.
    pub waiters: Vec<WaiterView>,
    /// Which run of numbers the tokens of its holders belong to; `None` where that was not seen at this look.
    pub lineage: Option<Lineage>,
    /// In a list: why it cannot be told who holds it. What stands there is in the way of claims.
    pub problem: Option<String>,
}

impl View {
    /// A free name.
    #[must_use]
    pub fn free(name: Name, key: String) -> Self {
        let (holders, waiters) = (Vec::new(), Vec::new());
        Self { name, key, mode: None, holders, waiters, lineage: None, problem: None }
    }

    /// A name of which nothing is known but what went wrong at the look.
    #[must_use]
    pub fn unreadable(name: Name, key: String, error: &EngineError) -> Self {
        Self { problem: Some(error.message.clone()), ..Self::free(name, key) }
    }

    /// The same with what others wrote cut to a length that can be shown.
    pub(crate) fn cut(mut self) -> Self {
        let holders = self.holders.iter_mut().flat_map(|holder| [&mut holder.id, &mut holder.owner]);
        let waiters = self.waiters.iter_mut().flat_map(|waiter| [&mut waiter.id, &mut waiter.owner]);
        holders.chain(waiters).for_each(|text| cut(text, MAX_SHOWN));
        self
    }

    /// One holder more, who holds it so.
    pub fn add_holder(&mut self, mode: Mode, holder: HolderView) {
        self.mode = Some(self.mode.map_or(mode, |all| all.beside(mode)));
        self.holders.push(holder);
    }
}

/// A holder as seen from outside.
#[derive(Clone, Debug)]
pub struct HolderView {
    /// The claim id, or whatever names a foreign holder.
    pub id: String,
    /// What the holder calls itself.
    pub owner: String,
    /// The first token of the grant; `None` for a foreign holder.
    pub token: Option<u64>,
    /// Since when.
    pub held: Option<Duration>,
    /// How long still, unless renewed; `None` where it does not lapse by itself.
    pub remaining: Option<Duration>,
    /// Whether it ends with a session that its holder keeps on the server, and for how long that lasts nobody here can tell.
    pub of_session: bool,
    /// Whether another program than leasehold holds it.
    pub foreign: bool,
}

/// A waiter as seen from outside.
#[derive(Clone, Debug)]
pub struct WaiterView {
    /// The claim id, or whatever names a foreign waiter.
    pub id: String,
    /// What the waiter calls itself.
    pub owner: String,
    /// Since when.
    pub waiting: Option<Duration>,
}

/// What breaking a hold came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The hold was ended, or its holder was asked and went.
    Done,
    /// Nothing is held, or under another token.
    NotHeld,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    #[test]
    fn what_others_wrote_is_cut_between_characters_and_what_is_short_stays() {
        let mut view = View::free(Name::new("a").unwrap(), "k".into());
        let (long, short) = ("ä".repeat(MAX_SHOWN + 1), "ä".repeat(MAX_SHOWN));
        for (id, owner) in [(&long, &short), (&short, &long)] {
            view.waiters.push(WaiterView { id: id.clone(), owner: owner.clone(), waiting: None });
        }
        let cut = view.cut();
        let shown = format!("{short}…");
        assert_eq!((&cut.waiters[0].id, &cut.waiters[0].owner), (&shown, &short));
        assert_eq!((&cut.waiters[1].id, &cut.waiters[1].owner), (&short, &shown));
        let error = EngineError::new(Fault::Refused, "ä".repeat(1 << 20));
        assert!(error.message.chars().count() < 2000 && error.message.ends_with('…'), "it is cut");
    }
}
