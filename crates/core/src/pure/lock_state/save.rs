//! A lock state as plain rows, for engines that store it externally and restore it for each step.

use std::{sync::Arc, time::Duration};

use super::{
    LastEnd, LockState,
    entry::{HoldState, Holder, Waiter},
};
use crate::{ClaimId, Instant, Lineage, Mode, Previous, Token};

/// The whole content of a lock state.
#[derive(Clone, Debug)]
pub struct Saved<C> {
    /// The newest token minted for this name.
    pub newest_token: u64,
    /// How the last hold ended.
    pub last_end: LastEnd,
    /// The holders; then the queue, in its order; then the silent claims.
    pub entries: Vec<Entry<C>>,
}

/// One row: one claim of a lock state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<C> {
    /// The claim.
    pub id: ClaimId,
    /// The mode in which it holds, or is to hold.
    pub mode: Mode,
    /// Its state.
    pub kind: EntryKind,
    /// The first token of its grant; 0 for a waiter.
    pub token: u64,
    /// How many tokens its grant has, or is to have.
    pub tokens: u32,
    /// How the hold before it ended, as reported to it.
    pub previous: Previous,
    /// Its owner label.
    pub owner: Arc<str>,
    /// Since when it holds, or waits.
    pub since: Instant,
    /// When it ends, unless its claim sends a request.
    pub expires: Instant,
    /// For a waiting or pushed claim: how long a grant lasts if the claim sends no request.
    pub claim_time: Duration,
    /// For a pushed claim: since when it waited, and until when its queue entry would have lasted.
    pub queue_entry: Option<(Instant, Instant)>,
    /// The client that gets its notifications.
    pub client: C,
}

/// The state of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// It holds.
    Held,
    /// It was granted while it waited, and has sent no request after the grant.
    Pushed,
    /// It was broken by an operator, and the name stays taken until its holder releases it or its lease ends.
    Broken,
    /// It was released; the name stays taken without a holder.
    MinHold,
    /// It waits in the queue.
    Waiting,
    /// Its pushed grant lapsed.
    Silent,
}

impl<C: Clone> LockState<C> {
    /// Restores a [saved](Self::save) lock state whose tokens have this lineage.
    #[must_use]
    pub fn restore(saved: Saved<C>, lineage: Lineage) -> Self {
        let Saved { newest_token, last_end, entries } = saved;
        let mut lock = Self { newest_token, last_end, ..Self::new() };
        for entry in entries {
            match entry.kind {
                EntryKind::Waiting => lock.wait_queue_mut().waiting.push_back(entry.into()),
                EntryKind::Silent => lock.wait_queue_mut().silent.push(entry.into()),
                _ => lock.holders.push(restored_holder(entry, lineage)),
            }
        }
        lock.earliest_expiry = lock.next_expiry();
        lock
    }

    /// The whole content, to be stored.
    #[must_use]
    pub fn save(&self) -> Saved<C> {
        let mut entries: Vec<Entry<C>> = self.holders.iter().map(saved_holder).collect();
        if let Some(wait_queue) = &self.wait_queue {
            entries.extend(wait_queue.waiting.iter().map(|waiter| saved_waiter(waiter, EntryKind::Waiting)));
            entries.extend(wait_queue.silent.iter().map(|waiter| saved_waiter(waiter, EntryKind::Silent)));
        }
        Saved { newest_token: self.newest_token, last_end: self.last_end, entries }
    }
}

/// The holder that the row describes.
fn restored_holder<C: Clone>(entry: Entry<C>, lineage: Lineage) -> Holder<C> {
    let state = match entry.kind {
        EntryKind::Pushed => {
            let (since, expires) = entry.queue_entry.unwrap_or((entry.since, entry.expires));
            HoldState::Pushed(Box::new(Waiter { since, expires, ..entry.clone().into() }))
        }
        EntryKind::Broken => HoldState::Broken,
        EntryKind::MinHold => HoldState::MinHold,
        _ => HoldState::Held,
    };
    Holder {
        id: entry.id,
        mode: entry.mode,
        token: Token { lineage, number: entry.token },
        tokens: entry.tokens,
        owner: entry.owner,
        since: entry.since,
        expires: entry.expires,
        previous: entry.previous,
        state,
        client: entry.client,
    }
}

impl<C> From<Entry<C>> for Waiter<C> {
    fn from(entry: Entry<C>) -> Self {
        Self {
            id: entry.id,
            mode: entry.mode,
            tokens: entry.tokens,
            claim_time: entry.claim_time,
            owner: entry.owner,
            since: entry.since,
            expires: entry.expires,
            client: entry.client,
        }
    }
}

/// The row of a holder.
fn saved_holder<C: Clone>(holder: &Holder<C>) -> Entry<C> {
    let (kind, waiter) = match &holder.state {
        HoldState::Held => (EntryKind::Held, None),
        HoldState::Pushed(waiter) => (EntryKind::Pushed, Some(waiter)),
        HoldState::Broken => (EntryKind::Broken, None),
        HoldState::MinHold => (EntryKind::MinHold, None),
    };
    Entry {
        id: holder.id,
        mode: holder.mode,
        kind,
        token: holder.token.number,
        tokens: holder.tokens,
        previous: holder.previous,
        owner: Arc::clone(&holder.owner),
        since: holder.since,
        expires: holder.expires,
        claim_time: waiter.map_or(Duration::ZERO, |waiter| waiter.claim_time),
        queue_entry: waiter.map(|waiter| (waiter.since, waiter.expires)),
        client: holder.client.clone(),
    }
}

/// The row of a waiter.
fn saved_waiter<C: Clone>(waiter: &Waiter<C>, kind: EntryKind) -> Entry<C> {
    Entry {
        id: waiter.id,
        mode: waiter.mode,
        kind,
        token: 0,
        tokens: waiter.tokens,
        previous: Previous::Clean,
        owner: Arc::clone(&waiter.owner),
        since: waiter.since,
        expires: waiter.expires,
        claim_time: waiter.claim_time,
        queue_entry: None,
        client: waiter.client.clone(),
    }
}
