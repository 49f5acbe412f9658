//! The view of a directory for operators.

use std::{collections::HashMap, time::Duration};

use leasehold_core::{
    ClaimId, HolderView, KnownMode, Lineage, Mode, Name, TokenBlocks, View, WaiterView,
    lock_state::MIN_HOLD_OWNER,
};

use crate::{
    keys::Dir,
    record::{Record, RecordState},
    wire::KeyValue,
};

/// The times of leases, as the server reports them.
pub(crate) type LeaseTimes = HashMap<i64, LeaseTime>;

/// The server reports whole seconds, and leaves out what is below a second.
const ROUNDING: Duration = Duration::from_secs(1);

/// The times of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseTime {
    /// The time to which each keep-alive extends it.
    pub(crate) granted: Duration,
    /// The time until it ends.
    pub(crate) remaining: Duration,
}

impl LeaseTime {
    /// How long ago the lease was extended last, at least.
    fn since_renewal(self) -> Duration {
        self.granted.saturating_sub(self.remaining).saturating_sub(ROUNDING)
    }
}

/// The claim id of a record that an operator wrote over the value of another program.
const FOREIGN_CLAIM: ClaimId = ClaimId([0; 16]);

/// One key of a directory.
pub(crate) struct KeyView<'a> {
    pub(crate) kv: &'a KeyValue,
    mode: Mode,
    /// The part of the key after its directory; for a bare key the whole path.
    part_below: String,
    record: Option<Record>,
    /// The claim of this key holds.
    pub(crate) holds: bool,
}

/// Parses the keys of a directory, given in the order of their creation, and finds out which of them hold.
pub(crate) fn key_views<'a>(dir: &Dir, kvs: &'a [KeyValue]) -> Vec<KeyView<'a>> {
    let (mut exclusive_keys, mut earlier_keys, mut permits_so_far) = (0_u64, 0_u64, 0_u64);
    let path = dir.key_of_others();
    let bare_key = kvs.iter().find(|kv| kv.key == dir.bare_key());
    let holding_claim = bare_key.and_then(|kv| record_id(&Record::read(&kv.value)));
    let mut key_views = Vec::new();
    for kv in kvs {
        // A client without a queue holds as long as its key exists, even beside another holder.
        let is_bare = kv.key == dir.bare_key();
        let part_below = if is_bare { Some(path.as_str()) } else { dir.part_below(&kv.key) };
        let Some(part_below) = part_below else { continue };
        let record = Record::read(&kv.value);
        if !is_bare && dir.has_lock_key() && holding_claim.is_some() && record_id(&record) == holding_claim {
            // The queue key of the holder.
            continue;
        }
        let mode = dir.mode(&kv.key);
        let holds = match mode.known() {
            _ if is_bare => true,
            // Only the lock key is a hold.
            _ if dir.has_lock_key() => false,
            KnownMode::Exclusive => earlier_keys == 0,
            KnownMode::Shared => exclusive_keys == 0,
            KnownMode::Permits { count, limit } => {
                permits_so_far += u64::from(count);
                exclusive_keys == 0 && permits_so_far <= u64::from(limit)
            }
        };
        earlier_keys += 1;
        exclusive_keys += u64::from(mode == Mode::Exclusive);
        key_views.push(KeyView { kv, mode, part_below: part_below.to_owned(), record, holds });
    }
    key_views
}

/// The claim of this record; `None` if there is none.
fn record_id(record: &Option<Record>) -> Option<ClaimId> {
    record.as_ref().map(|record| record.id).filter(|id| *id != FOREIGN_CLAIM)
}

/// With `layout=key`: the queue key of the claim that holds by the lock key.
pub(crate) fn queue_key_of_holder<'a>(
    dir: &Dir,
    kvs: &'a [KeyValue],
    holder: ClaimId,
) -> Option<&'a KeyValue> {
    let of_holder = |kv: &&KeyValue| record_id(&Record::read(&kv.value)) == Some(holder);
    kvs.iter().filter(|kv| dir.part_below(&kv.key).is_some()).find(of_holder)
}

impl KeyView<'_> {
    /// Whether a leasehold client created the key. Such a client is notified through its epoch key.
    pub(crate) fn is_ours(&self) -> bool {
        self.our_record().is_some()
    }

    /// The record, unless an operator wrote it over the value of another program.
    fn our_record(&self) -> Option<&Record> {
        self.record.as_ref().filter(|record| record.id != FOREIGN_CLAIM)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.state == RecordState::Broken)
    }

    pub(crate) fn is_min_hold(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.state == RecordState::MinHold)
    }

    pub(crate) fn owner(&self) -> String {
        match &self.record {
            Some(Record { state: RecordState::MinHold, .. }) => MIN_HOLD_OWNER.to_owned(),
            Some(record) => record.owner.clone(),
            None => "another program".to_owned(),
        }
    }

    /// The claim id; zero for a foreign key.
    pub(crate) fn claim(&self) -> ClaimId {
        self.our_record().map_or(FOREIGN_CLAIM, |record| record.id)
    }

    /// The claim id; for a foreign key the part of the key after its directory.
    fn id(&self) -> String {
        self.our_record().map_or_else(|| self.part_below.clone(), |record| record.id.to_string())
    }

    fn holder(&self, lease_times: &LeaseTimes, token_blocks: TokenBlocks) -> HolderView {
        let lease = lease_times.get(&self.kv.lease).copied();
        // The hold may end before its lease, which other claims share.
        let remaining = lease.map(|lease| match &self.record {
            Some(record) => lease.remaining.min(record.hold_time),
            None => lease.remaining,
        });
        // Nobody renews a broken hold or a minimum hold. The client of another program renews as it likes.
        let renewed = lease.filter(|_| self.is_ours() && !self.is_broken() && !self.is_min_hold());
        HolderView::new(self.id(), self.owner())
            .token(token_blocks.first(self.kv.create_revision))
            .times(None, remaining)
            .renewed(renewed.map(|lease| lease.granted), renewed.map(LeaseTime::since_renewal))
            .foreign(!self.is_ours())
            .broken(self.is_broken())
    }
}

/// Builds the view of a name.
pub(crate) fn view(
    name: Name,
    dir: &Dir,
    key_views: &[KeyView<'_>],
    lease_times: &LeaseTimes,
    (token_blocks, lineage): (TokenBlocks, Lineage),
) -> View {
    let mut view = View::free(name, dir.key_of_others());
    view.lineage = Some(lineage);
    for key_view in key_views {
        if key_view.holds {
            view.add_holder(key_view.mode, key_view.holder(lease_times, token_blocks));
        } else {
            let waiter = WaiterView::new(key_view.id(), key_view.owner(), None);
            view.waiters.push(waiter.of_mode(key_view.mode));
        }
    }
    view
}
