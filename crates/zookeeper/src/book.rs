//! What this client knows of its claims. The truth is on the server; what is here says which nodes to ask for, what a claim waits for,
//! and until when it may stand without a sign of life: a session is shared, so a claim that nobody speaks for any more has to
//! be ended by its client.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use leasehold_core::{Claim, ClaimId, Instant, Mode, Name, lock_state::entry_life};

use crate::{
    sessions::{Session, SessionSlot},
    wire::Created,
};

/// A hold that lasts so long is watched: an operator may break it. Most are over before.
const WATCHED_AFTER: Duration = Duration::from_millis(100);

/// One claim.
pub(crate) struct Entry {
    pub(crate) slot: SessionSlot,
    pub(crate) name: Name,
    pub(crate) mode: Mode,
    pub(crate) claim_time: Duration,
    /// How long a place in line lasts after its claim last spoke.
    life: Duration,
    pub(crate) until: Instant,
    /// When it is looked at whether its time is over.
    due: Instant,
    pub(crate) place: Place,
    /// A change for this claim was sent and not answered: what it made is to be looked for.
    pub(crate) unsettled: bool,
    /// What it made was looked for and not found: it may come all the same.
    pub(crate) doubtful: bool,
}

/// Where a claim stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is being made.
    Made,
    /// In line.
    Waiting { node: Own, before: Before },
    /// It holds, by the nodes with these paths.
    Held { token: i64, paths: Vec<String>, spoken: bool },
    /// Its nodes are being deleted, for nobody spoke for it in time.
    Ending { paths: Vec<String>, again: bool },
    /// Nothing will come of it; its release is to come.
    Gone,
    /// It was granted and did not speak in time. Nothing of it is on the server; it takes a new place when it speaks.
    Lapsed,
}

/// The node of a claim in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) path: String,
    /// The change that made it: the token of a lock.
    pub(crate) czxid: i64,
}

impl Own {
    /// What a server says that it made, asked to append a number to `asked`. `None` if that cannot be.
    pub(crate) fn made(asked: &str, Created { path, stat }: Created) -> Option<Self> {
        let number = path.strip_prefix(asked)?;
        let digits = number.strip_prefix('-').unwrap_or(number);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then_some(Self { path, czxid: stat.czxid })
    }

    /// What it is called in its line.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
    }
}

/// What a claim in line waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// That this node is deleted; then it holds if that was the only one, else it is to ask what else came before. So many stand in
    /// line before it.
    Node { path: String, sole: bool, ahead: u32 },
    /// That fewer permits are taken: it is the first in line.
    Room { path: String },
    /// It is to ask.
    Unknown,
}

impl Before {
    /// What is watched for it.
    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::Node { path, .. } | Self::Room { path } => Some(path),
            Self::Unknown => None,
        }
    }

    pub(crate) fn ahead(&self) -> Option<u32> {
        match self {
            Self::Node { ahead, .. } => Some(*ahead),
            Self::Room { .. } => Some(0),
            Self::Unknown => None,
        }
    }
}

impl Place {
    /// The nodes of the claim, as far as they are known.
    pub(crate) fn paths(&self) -> Vec<String> {
        match self {
            Self::Waiting { node, .. } => vec![node.path.clone()],
            Self::Held { paths, .. } | Self::Ending { paths, .. } => paths.clone(),
            Self::Made | Self::Gone | Self::Lapsed => Vec::new(),
        }
    }
}

/// What the end of a claim that did not speak in time means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// Its nodes are to be deleted.
    End(ClaimId),
    /// Nothing of it is on the server.
    Forget(ClaimId),
}

/// All claims of a client.
#[derive(Default)]
pub(crate) struct Book {
    entries: HashMap<ClaimId, Entry>,
    /// When each is to be looked at; it may have spoken since.
    due: BTreeSet<(Instant, ClaimId)>,
    /// When each that holds is to be watched.
    unwatched: BTreeSet<(Instant, ClaimId)>,
}

impl Entry {
    fn new(claim: &Claim, slot: SessionSlot, now: Instant) -> Self {
        let life = entry_life(claim.ttl);
        Self {
            slot,
            name: claim.name.clone(),
            mode: claim.mode,
            claim_time: claim.claim_time.min(claim.ttl),
            life,
            until: now.after(life),
            due: now.after(life),
            place: Place::Made,
            unsettled: false,
            doubtful: false,
        }
    }

    /// What a change made that was not answered was looked for.
    pub(crate) fn looked_for(&mut self) {
        self.doubtful |= self.unsettled;
        self.unsettled = false;
    }

    /// It spoke at `now`: it lives on, and takes a new place if it lost the old one.
    pub(crate) fn speaks(&mut self, now: Instant) {
        if self.place == Place::Lapsed {
            self.place = Place::Made;
        }
        if matches!(self.place, Place::Made | Place::Waiting { .. }) {
            self.until = self.until.max(now.after(self.life));
        }
    }

    /// It waits, and spoke at `now`.
    pub(crate) fn waits(&mut self, node: Own, before: Before, now: Instant) {
        self.place = Place::Waiting { node, before };
        self.speaks(now);
    }
}

impl Book {
    pub(crate) fn get(&mut self, id: ClaimId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    /// Writes a claim down, on the session of its seat.
    pub(crate) fn enter(&mut self, claim: &Claim, slot: SessionSlot, now: Instant) {
        self.remove(claim.id);
        let entry = Entry::new(claim, slot, now);
        self.due.insert((entry.due, claim.id));
        self.entries.insert(claim.id, entry);
    }

    pub(crate) fn remove(&mut self, id: ClaimId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.due.remove(&(entry.due, id));
        Some(entry)
    }

    /// The claim holds until `until`, unless it speaks again.
    pub(crate) fn holds(&mut self, id: ClaimId, held: Place, (now, until): (Instant, Instant)) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let was_held = matches!(entry.place, Place::Held { .. });
        entry.place = held;
        entry.until = if was_held { entry.until.max(until) } else { until };
        if entry.until < entry.due {
            self.due.remove(&(entry.due, id));
            entry.due = entry.until;
            self.due.insert((entry.due, id));
        }
        if !was_held {
            self.unwatched.insert((now.after(WATCHED_AFTER), id));
        }
    }

    /// Whether all who are on this session stand in line, with others before them. Then there is nothing to believe in yet.
    pub(crate) fn only_stands_in_line(&self, session: &Arc<Session>) -> bool {
        let stands = |entry: &Entry| {
            matches!(entry.place, Place::Waiting { before: Before::Node { sole: false, .. }, .. })
        };
        let mut on_it = self.entries.values().filter(|entry| Arc::ptr_eq(entry.slot.session(), session));
        on_it.next().is_some_and(stands) && on_it.all(stands)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (ClaimId, &Entry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    /// When the next one is to be looked at.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let first = [self.due.first(), self.unwatched.first()];
        first.into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// What entries that `lost` their connection watched is watched no longer.
    pub(crate) fn look_again(&mut self, now: Instant, lost: impl Fn(&Entry) -> bool) {
        for (id, entry) in self.entries.iter_mut().filter(|(_, entry)| lost(entry)) {
            match &mut entry.place {
                Place::Held { .. } => {
                    self.unwatched.insert((now, *id));
                }
                Place::Waiting { before, .. } => *before = Before::Unknown,
                _ => {}
            }
        }
    }

    /// Those that hold and are to be watched from now on.
    pub(crate) fn lasting(&mut self, now: Instant) -> Vec<ClaimId> {
        let mut lasting = Vec::new();
        while let Some(&(at, id)) = self.unwatched.first()
            && at <= now
        {
            self.unwatched.pop_first();
            let holds = self.entries.get(&id).is_some_and(|entry| matches!(entry.place, Place::Held { .. }));
            lasting.extend(holds.then_some(id));
        }
        lasting
    }

    /// Those whose time is over. That they are ended is taken for granted.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        while let Some(&(at, id)) = self.due.first()
            && at <= now
        {
            self.due.pop_first();
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            if entry.until > now {
                entry.due = entry.until;
                self.due.insert((entry.due, id));
                continue;
            }
            let again = match entry.place {
                Place::Lapsed => {
                    overdue.push(Overdue::Forget(id));
                    continue;
                }
                Place::Ending { .. } => continue,
                Place::Held { spoken, .. } => !spoken,
                _ => false,
            };
            entry.place = Place::Ending { paths: entry.place.paths(), again };
            overdue.push(Overdue::End(id));
        }
        overdue
    }

    /// The nodes of a claim that did not speak in time are deleted.
    pub(crate) fn ended(&mut self, id: ClaimId, now: Instant) -> Option<Entry> {
        let entry = self.entries.get_mut(&id)?;
        match entry.place {
            Place::Ending { again: true, .. } => {
                entry.place = Place::Lapsed;
                entry.until = now.after(entry.life);
                entry.due = entry.until;
                self.due.insert((entry.due, id));
                None
            }
            Place::Ending { .. } => self.remove(id),
            _ => None,
        }
    }
}
