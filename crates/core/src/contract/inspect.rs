//! Inspection: listing holders and waiters of names, and breaking a hold on purpose.

use std::time::Duration;

use crate::{
    Actor, BoxFuture, ClaimId, Diagnostic, EngineError, Guarantee, HolderView, Lineage, MAX_OWNER_BYTES,
    Mode, Name, NoticeSender, Watched,
};

/// The operations of an engine for operators. The rules of [`Engine`](crate::Engine) apply. What these operations
/// report is for display: no claim is granted by it.
pub trait Inspect: Send + Sync {
    /// One round trip that proves that the engine can be reached with the given credentials. It creates nothing, and
    /// needs no right that a claim does not need.
    ///
    /// # Errors
    /// As for `claim`.
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>>;

    /// What the engine promises, as its server is configured now.
    ///
    /// # Errors
    /// As for `claim`.
    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>>;

    /// What an operator should know about the servers, their clocks and the rights of this user, beside what
    /// [`guarantee`](Self::guarantee) finds. It changes nothing on the servers. What may not be looked at is a
    /// diagnostic of [`Severity::Unknown`](crate::Severity::Unknown), not an error.
    ///
    /// # Errors
    /// As for `claim`.
    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, EngineError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// The names that begin with `prefix` and have a holder or a waiter, or cannot be read, sorted. A name that cannot
    /// be read hides no other.
    ///
    /// # Errors
    /// As for `claim`.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>>;

    /// One name; a free one has no holders and no waiters.
    ///
    /// # Errors
    /// As for `claim`.
    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>>;

    /// Ends the hold whose block of tokens contains `token`. With `force`, the next grant does not wait until the
    /// holder releases or its lease ends.
    ///
    /// # Errors
    /// As for `claim`; [`Fault::Denied`](crate::Fault::Denied) where the engine cannot break this hold, with the
    /// reason.
    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>>;

    /// Tells a view of changes of these names, as long as the future is polled: [`NoticeSender::begin`] once each
    /// change is told, and [`NoticeSender::changed`] for each change. Several changes may be one notice, a change of
    /// another name may be one, and an extended lease is none. It writes nothing, and needs no right that
    /// [`list`](Self::list) does not need. Where the end of a lease is not told, a view sees it at its next look.
    ///
    /// The future ends with `Ok` if the engine cannot tell changes: core does not ask again. It ends with an error
    /// when it tells changes no more, or cannot at present: core asks again after a pause. The future may be dropped at
    /// any point, and then nothing of it remains.
    ///
    /// # Errors
    /// Why changes are not told at present.
    fn tell_changes<'a>(
        &'a self,
        watched: &'a Watched,
        notices: &'a NoticeSender,
    ) -> BoxFuture<'a, Result<(), EngineError>> {
        let _ = (watched, notices);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The longest foreign text shown of a holder or waiter, in characters. Our own texts are never longer.
const MAX_TEXT_CHARS: usize = MAX_OWNER_BYTES;

/// Cuts a foreign text to `max_chars` characters, and marks the cut.
pub(crate) fn truncate_chars(text: &mut String, max_chars: usize) {
    if let Some((end, _)) = text.char_indices().nth(max_chars) {
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
    /// How other programs find this name: the lock file, the Redis key, ...
    pub key: String,
    /// The mode in which it is held; `None` when it is free.
    pub mode: Option<Mode>,
    /// The holders.
    pub holders: Vec<HolderView>,
    /// The waiters, in queue order.
    pub waiters: Vec<WaiterView>,
    /// The lineage of its holders' tokens; `None` if this read did not see it.
    pub lineage: Option<Lineage>,
    /// In a list: why the holders could not be read. The unreadable data blocks claims of this name.
    pub problem: Option<String>,
    /// Why the name is taken and what to do, where its holders alone do not show it.
    pub note: Option<String>,
}

impl View {
    /// A free name.
    #[doc(hidden)]
    #[must_use]
    pub fn free(name: Name, key: String) -> Self {
        let (holders, waiters) = (Vec::new(), Vec::new());
        Self { name, key, mode: None, holders, waiters, lineage: None, problem: None, note: None }
    }

    /// A name that could not be read, with the error.
    #[doc(hidden)]
    #[must_use]
    pub fn unreadable(name: Name, key: String, error: &EngineError) -> Self {
        Self { problem: Some(error.message.clone()), ..Self::free(name, key) }
    }

    /// The same view as users see it: the actors are not in the labels, and foreign texts are cut to a length that can
    /// be shown.
    pub(crate) fn for_users(mut self) -> Self {
        for holder in self.holders.iter_mut().filter(|holder| !holder.foreign) {
            holder.actor = take_actor(&holder.id, &mut holder.owner);
        }
        for waiter in &mut self.waiters {
            waiter.actor = take_actor(&waiter.id, &mut waiter.owner);
        }
        let holders = self.holders.iter_mut().flat_map(|holder| [&mut holder.id, &mut holder.owner]);
        let waiters = self.waiters.iter_mut().flat_map(|waiter| [&mut waiter.id, &mut waiter.owner]);
        holders.chain(waiters).for_each(|text| truncate_chars(text, MAX_TEXT_CHARS));
        self
    }

    /// Adds a holder; the mode of the name then includes the holder's mode.
    #[doc(hidden)]
    pub fn add_holder(&mut self, mode: Mode, mut holder: HolderView) {
        self.mode = Some(self.mode.map_or(mode, |held| held.combined_with(mode)));
        holder.mode = Some(mode);
        self.holders.push(holder);
    }
}

/// Takes the actor out of the label of a claim. The label of another program stays as it is: its claims have no claim
/// id.
fn take_actor(id: &str, label: &mut String) -> Option<Actor> {
    ClaimId::read(id)?;
    let (text, actor) = Actor::split(label);
    let end = text.len();
    label.truncate(end);
    actor
}

/// A waiter as seen from outside.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaiterView {
    /// The claim id, or some other identifier of a foreign waiter.
    pub id: String,
    /// The label of the waiter.
    pub owner: String,
    /// How long it has waited.
    pub waiting: Option<Duration>,
    /// For how long, at least, it has waited: how long views that look again and again have seen it. `None` in the
    /// answer of an engine, and where the engine tells [`waiting`](Self::waiting).
    pub waiting_at_least: Option<Duration>,
    /// The mode for which it waits; `None` if this read did not see it.
    pub mode: Option<Mode>,
    /// The task that waits, if its label tells it.
    pub actor: Option<Actor>,
}

impl WaiterView {
    /// A waiter with this id and this label, which has waited for this time.
    #[must_use]
    pub const fn new(id: String, owner: String, waiting: Option<Duration>) -> Self {
        Self { id, owner, waiting, waiting_at_least: None, mode: None, actor: None }
    }

    /// The same waiter, which waits for this mode.
    #[must_use]
    pub const fn of_mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }
}

/// The result of breaking a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// The hold was ended, or its holder was asked to stop and released it. Without `force` the name can stay taken: a
    /// look then shows the hold as [`HolderView::broken`].
    Done,
    /// Nothing is held, or it is held under another token.
    NotHeld,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    #[test]
    fn foreign_text_is_cut_between_characters() {
        let mut view = View::free(Name::new("a").unwrap(), "k".into());
        let (long, short) = ("ä".repeat(MAX_TEXT_CHARS + 1), "ä".repeat(MAX_TEXT_CHARS));
        for (id, owner) in [(&long, &short), (&short, &long)] {
            view.waiters.push(WaiterView::new(id.clone(), owner.clone(), None));
        }
        let shortened = view.for_users();
        let marked = format!("{short}…");
        assert_eq!((&shortened.waiters[0].id, &shortened.waiters[0].owner), (&marked, &short));
        assert_eq!((&shortened.waiters[1].id, &shortened.waiters[1].owner), (&short, &marked));
        let error = EngineError::new(Fault::Refused, "ä".repeat(1 << 20));
        assert!(error.message.chars().count() < 2000 && error.message.ends_with('…'), "it is cut");
    }

    #[test]
    fn the_actor_of_a_claim_is_no_part_of_its_owner_and_a_foreign_label_has_none() {
        let (actor, claim) = (Actor::random(), "0".repeat(32));
        let label = crate::Owner::of_task("me", actor).label().to_owned();
        let mut view = View::free(Name::new("a").unwrap(), "k".into());
        view.add_holder(Mode::Shared, HolderView::new(claim.clone(), label.clone()));
        view.add_holder(Mode::Shared, HolderView::new(claim.clone(), label.clone()).foreign(true));
        view.waiters.push(WaiterView::new(claim, label.clone(), None).of_mode(Mode::Exclusive));
        view.waiters.push(WaiterView::new("lock-7".into(), label.clone(), None));
        let shown = view.for_users();
        let holders: Vec<_> =
            shown.holders.iter().map(|holder| (holder.owner.as_str(), holder.actor)).collect();
        assert_eq!(holders, [("me", Some(actor)), (label.as_str(), None)]);
        let waiters: Vec<_> =
            shown.waiters.iter().map(|waiter| (waiter.owner.as_str(), waiter.actor)).collect();
        assert_eq!(waiters, holders);
        assert_eq!(
            (shown.holders[0].mode, shown.waiters[0].mode),
            (Some(Mode::Shared), Some(Mode::Exclusive))
        );
    }
}
