//! The transaction for several names: its conditions, and what it reads if it created no key.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Claim, EngineError, Hint, Mode};

use crate::{
    claim::{FirstBlocker, kind_mismatch, record_text},
    client::Client,
    error::unreadable,
    keys::{self, Dir},
    position::{QueuePosition, blockers_range, obstacle_of},
    record::{Record, RecordState},
    session::Session,
    wire::{Compare, Order, Put, Range, RequestOp, Txn, TxnResponse, compare},
};

/// The most names of one transaction. A server accepts 128 conditions, and 128 steps of each kind, by default
/// (`--max-txn-ops`). A name needs at most three of each, and a lease one. The claims of a set are on one lease, or on
/// a few if that is full.
pub(crate) const MAX_NAMES: usize = 40;
/// The most leases beside so many names.
const MAX_LEASES: usize = 128 - 3 * MAX_NAMES;

/// The number of reads for each claim, and their indexes: the claim's own key, the oldest key ahead (for permits all
/// keys ahead), and the key of clients without a queue, or the lock key.
const READS: usize = 3;
const KEY_OP: usize = 0;
const AHEAD_OP: usize = 1;
const BARE_KEY_OP: usize = 2;

/// One claim, as the next transaction sends it.
pub(crate) struct Member<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) dir: Dir,
    pub(crate) session: Arc<Session>,
    pub(crate) key: Vec<u8>,
    /// How long the hold is valid if it is granted.
    pub(crate) ttl: Duration,
    /// The revision at which enough permits were free beside the keys of other claims; `None`: the claim expects no
    /// key that blocks it.
    pub(crate) free_at: Option<i64>,
}

/// The claims of one transaction.
pub(crate) struct Members<'a> {
    members: Vec<Member<'a>>,
    /// The leases of the claims, each with its epoch.
    leases: Vec<(Arc<Session>, i64)>,
}

/// What a transaction that created no key found for one claim.
pub(crate) enum Found {
    /// Its key exists: an earlier request of the claim created it at this revision.
    Created(i64),
    /// Its key belongs to another claim.
    KeyInUse,
    /// Nothing blocks the claim, and no key that could block it exists.
    Free,
    /// Permits of other claims exist, and leave enough for the claim.
    FreeBesideOthers,
    Taken(Hint),
    Refused(EngineError),
}

impl<'a> Members<'a> {
    pub(crate) fn new(members: Vec<Member<'a>>) -> Self {
        let mut leases: Vec<(Arc<Session>, i64)> = Vec::new();
        for session in members.iter().map(|member| &member.session) {
            if !leases.iter().any(|(known, _)| known.id == session.id) {
                leases.push((Arc::clone(session), session.epoch()));
            }
        }
        Self { members, leases }
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Member<'a>> {
        self.members.iter()
    }

    /// Whether a server with the default settings accepts the transaction.
    pub(crate) fn fit_one_transaction(&self) -> bool {
        self.members.len() <= MAX_NAMES && self.leases.len() <= MAX_LEASES
    }

    /// The lease of all claims; `None` if they have several.
    pub(crate) fn only_session(&self) -> Option<&Session> {
        if let [(session, _)] = &self.leases[..] { Some(session) } else { None }
    }

    /// Creates all keys if nothing blocks any claim and no epoch has changed. Otherwise reads why not.
    pub(crate) fn txn(&self, prefix: &str, first_blocker: FirstBlocker) -> Txn {
        let epoch_keys = || self.leases.iter().map(|(session, _)| keys::epoch_key(prefix, session.id));
        let epochs = epoch_keys().zip(&self.leases).map(|(key, (_, epoch))| compare::changed(&key, *epoch));
        Txn {
            compare: epochs.chain(self.iter().flat_map(Member::conditions)).collect(),
            success: self.iter().flat_map(Member::puts).collect(),
            failure: epoch_keys()
                .map(|key| Range::key(&key).keys_only().into())
                .chain(self.iter().flat_map(|member| member.reads(first_blocker)))
                .collect(),
        }
    }

    /// Reads the epochs from the reply of a transaction that created no key. Returns whether one has changed.
    pub(crate) fn read_epochs(&self, reply: &mut TxnResponse) -> Result<bool, EngineError> {
        let mut has_changed = false;
        for (index, (session, epoch)) in self.leases.iter().enumerate() {
            let stored = reply.range(index).ok_or_else(unreadable)?.kvs.pop().map_or(0, |kv| kv.mod_revision);
            if stored != *epoch {
                session.set_epoch(stored);
                has_changed = true;
            }
        }
        Ok(has_changed)
    }

    /// Reads what a transaction that created no key found for this claim.
    pub(crate) fn read(
        &self,
        client: &Client,
        index: usize,
        reply: &mut TxnResponse,
    ) -> Result<Found, EngineError> {
        let (member, revision) = (&self.members[index], reply.revision());
        let first = self.leases.len() + READS * index;
        let mut range = |op| reply.range(first + op).ok_or_else(unreadable);
        let (own_key, mut ahead, bare_key) =
            (range(KEY_OP)?.kvs.pop(), range(AHEAD_OP)?, range(BARE_KEY_OP)?.kvs.pop());
        let Member { claim, dir, .. } = member;
        if let Some(own_key) = own_key {
            let record = Record::read(&own_key.value);
            // With `layout=election` the key of a claim has no record, and this client gives no two claims one key.
            let is_own = record.map_or(dir.is_election(), |record| record.id == claim.id);
            return Ok(if is_own { Found::Created(own_key.create_revision) } else { Found::KeyInUse });
        }
        let mode_ahead = |kv: &crate::wire::KeyValue| dir.mode(&kv.key);
        if let Some(limit) = claim.mode.limit() {
            let of_other_kind = |mode: &Mode| mode.limit() != Some(limit);
            if let Some(mode) = ahead.kvs.iter().map(mode_ahead).find(of_other_kind) {
                return Ok(Found::Refused(kind_mismatch(claim, mode)));
            }
            let has_others = !ahead.kvs.is_empty();
            let position = QueuePosition::read(dir, claim.mode, &ahead, None).with_foreign(bare_key);
            return Ok(match position.blocker {
                None if has_others => Found::FreeBesideOthers,
                None => Found::Free,
                Some(_) => {
                    client.read_new_min_holds(&ahead, dir, (claim.mode, revision.saturating_add(1)));
                    Found::Taken(Hint::default())
                }
            });
        }
        let oldest = ahead.kvs.pop();
        if let Some(mode) = oldest.as_ref().map(mode_ahead).filter(|mode| mode.limit().is_some())
            && !dir.has_lock_key()
        {
            return Ok(Found::Refused(kind_mismatch(claim, mode)));
        }
        if oldest.is_none() && bare_key.is_none() {
            return Ok(Found::Free);
        }
        // A queue key ends with its lease, and is no minimum hold.
        let may_be_min_hold = if dir.has_lock_key() { bare_key } else { oldest };
        let obstacle = may_be_min_hold.as_ref().filter(|_| dir.has_lock_key()).and_then(obstacle_of);
        may_be_min_hold.iter().for_each(|kv| client.note_min_hold(kv));
        let record = may_be_min_hold.and_then(|kv| Record::read(&kv.value));
        let min_hold = record.filter(|record| record.state == RecordState::MinHold);
        Ok(Found::Taken(Hint {
            ask_in: min_hold.map(|record| record.hold_time),
            obstacle,
            ..Hint::default()
        }))
    }
}

impl Member<'_> {
    /// The conditions that nothing blocks the claim and that its key does not exist.
    fn conditions(&self) -> Vec<Compare> {
        let blockers = self.dir.blockers(self.claim.mode);
        let mut conditions = vec![compare::created(&self.dir.bare_key(), 0)];
        conditions.push(match self.free_at {
            None => compare::empty(&blockers),
            // At that revision there was no key of another kind.
            Some(revision) => compare::none_newer(&blockers, revision),
        });
        // The key of an exclusive claim is one of those that must not exist.
        if self.claim.mode != Mode::Exclusive {
            conditions.push(compare::created(&self.key, 0));
        }
        conditions
    }

    /// The steps that create the key of the claim, and with `layout=key` the lock key.
    fn puts(&self) -> Vec<RequestOp> {
        // With `layout=election` the value of a candidate is empty until it leads and publishes one.
        let value = if self.dir.is_election() { Vec::new() } else { record_text(self.claim, self.ttl) };
        let put = |key| Put { key, value: value.clone(), lease: self.session.id }.into();
        std::iter::once(self.key.clone()).chain(self.dir.lock_key()).map(put).collect()
    }

    /// The reads that show what blocks the claim.
    fn reads(&self, first_blocker: FirstBlocker) -> [RequestOp; READS] {
        let with_value = |range: Range| {
            if first_blocker == FirstBlocker::WithValue { range } else { range.keys_only() }
        };
        let ahead = match self.claim.mode.limit() {
            Some(_) => blockers_range(&self.dir, self.claim.mode),
            None => {
                with_value(Range::between(&self.dir.blockers(self.claim.mode)).by_age(Order::Ascend).limit(1))
            }
        };
        let bare_key = Range::key(&self.dir.bare_key());
        let bare_key = if self.dir.has_lock_key() { with_value(bare_key) } else { bare_key.keys_only() };
        [Range::key(&self.key).into(), ahead.into(), bare_key.into()]
    }

    /// A transaction for this claim alone, with a condition that is never true.
    pub(crate) fn probe(&self, prefix: &str) -> Txn {
        let epoch_key = keys::epoch_key(prefix, self.session.id);
        let never = compare::created(&epoch_key, i64::MAX);
        let (success, failure) = (self.puts(), self.reads(FirstBlocker::KeyOnly).into());
        Txn { compare: self.conditions().into_iter().chain([never]).collect(), success, failure }
    }
}
