//! A queue as plain rows, for engines that keep it in a store of theirs and bring it back for each step.

use std::{sync::Arc, time::Duration};

use super::{
    Ended, LockState,
    entry::{HoldState, Holder, Waiter},
};
use crate::{ClaimId, Instant, Lineage, Mode, Previous, Token};

/// All that a queue knows.
#[derive(Clone, Debug)]
pub struct Saved<C> {
    /// The newest token minted here.
    pub newest: u64,
    /// How the last hold ended, the newest token when it did, and until when that is remembered.
    pub ended: (Previous, u64, Instant),
    /// Those who hold; then those in line, in the order of the line; then those who missed their turn.
    pub entries: Vec<Entry<C>>,
}

/// One claim of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<C> {
    /// The claim.
    pub id: ClaimId,
    /// How it holds, or is to.
    pub mode: Mode,
    /// What it is in the queue.
    pub stand: EntryKind,
    /// The first token of its grant; 0 in line.
    pub token: u64,
    /// How many tokens its grant has, or is to have.
    pub tokens: u32,
    /// How the hold before it ended, as it was told.
    pub previous: Previous,
    /// Who it is.
    pub owner: Arc<str>,
    /// Since when it holds, or waits.
    pub since: Instant,
    /// When it is over, unless its claim speaks.
    pub expires: Instant,
    /// In line, and pushed: how long a grant lasts before its claim has spoken.
    pub claim_time: Duration,
    /// Pushed: since when it waited, and until when its place would have lasted.
    pub place: Option<(Instant, Instant)>,
    /// Where its news go.
    pub client: C,
}

/// What a claim is in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// It holds.
    Held,
    /// It was granted while it waited, and has not spoken since.
    Pushed,
    /// It was broken by an operator, and stands until its holder lets go or its lease ends.
    Broken,
    /// It was released; the name is kept taken by nobody.
    Kept,
    /// It waits for its turn.
    Waiting,
    /// It missed its turn.
    Silent,
}

impl<C: Clone> LockState<C> {
    /// The queue that was [saved](Self::save), of tokens of this lineage.
    #[must_use]
    pub fn restore(saved: Saved<C>, lineage: Lineage) -> Self {
        let Saved { newest, ended: (how, upto, until), entries } = saved;
        let mut queue = Self { newest, ended: Ended { how, upto, until }, ..Self::new() };
        for entry in entries {
            match entry.stand {
                EntryKind::Waiting => queue.line_mut().waiting.push_back(entry.into()),
                EntryKind::Silent => queue.line_mut().silent.push(entry.into()),
                _ => queue.holders.push(holder(entry, lineage)),
            }
        }
        queue.due = queue.next_expiry();
        queue
    }

    /// All that it knows.
    #[must_use]
    pub fn save(&self) -> Saved<C> {
        let mut entries: Vec<Entry<C>> = self.holders.iter().map(saved_holder).collect();
        if let Some(line) = &self.line {
            entries.extend(line.waiting.iter().map(|waiter| saved_waiter(waiter, EntryKind::Waiting)));
            entries.extend(line.silent.iter().map(|waiter| saved_waiter(waiter, EntryKind::Silent)));
        }
        let Ended { how, upto, until } = self.ended;
        Saved { newest: self.newest, ended: (how, upto, until), entries }
    }
}

fn holder<C: Clone>(entry: Entry<C>, lineage: Lineage) -> Holder<C> {
    let state = match entry.stand {
        EntryKind::Pushed => {
            let (since, expires) = entry.place.unwrap_or((entry.since, entry.expires));
            HoldState::Pushed(Box::new(Waiter { since, expires, ..entry.clone().into() }))
        }
        EntryKind::Broken => HoldState::Broken,
        EntryKind::Kept => HoldState::Kept,
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

fn saved_holder<C: Clone>(holder: &Holder<C>) -> Entry<C> {
    let (stand, waiter) = match &holder.state {
        HoldState::Held => (EntryKind::Held, None),
        HoldState::Pushed(waiter) => (EntryKind::Pushed, Some(waiter)),
        HoldState::Broken => (EntryKind::Broken, None),
        HoldState::Kept => (EntryKind::Kept, None),
    };
    Entry {
        id: holder.id,
        mode: holder.mode,
        stand,
        token: holder.token.number,
        tokens: holder.tokens,
        previous: holder.previous,
        owner: Arc::clone(&holder.owner),
        since: holder.since,
        expires: holder.expires,
        claim_time: waiter.map_or(Duration::ZERO, |waiter| waiter.claim_time),
        place: waiter.map(|waiter| (waiter.since, waiter.expires)),
        client: holder.client.clone(),
    }
}

fn saved_waiter<C: Clone>(waiter: &Waiter<C>, stand: EntryKind) -> Entry<C> {
    Entry {
        id: waiter.id,
        mode: waiter.mode,
        stand,
        token: 0,
        tokens: waiter.tokens,
        previous: Previous::Clean,
        owner: Arc::clone(&waiter.owner),
        since: waiter.since,
        expires: waiter.expires,
        claim_time: waiter.claim_time,
        place: None,
        client: waiter.client.clone(),
    }
}
