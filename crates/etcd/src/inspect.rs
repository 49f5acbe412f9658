//! The verbs for operators: ping, list, show, break, guarantee.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use leasehold_core::{Broken, EngineError, Fault, Lineage, Name, TokenBlocks, View};

use crate::{
    EtcdEngine,
    client::{Client, Failed},
    config::Layout,
    diagnose,
    error::{is_lease_gone, is_reply_too_long},
    guarantee,
    keys::{
        Dir, check_name, epoch_key, name_of, name_of_bare_key, name_of_queue_key, names_starting_with,
        probe_key, queues_starting_with,
    },
    record::{MAX_RECORD_BYTES, Record, RecordState},
    view::{KeyView, LeaseTime, LeaseTimes, key_views, queue_key_of_holder, view},
    wire::{
        Compare, DeleteRange, Header, KeyValue, Put, Range, RangeResponse, TimeToLive, TimeToLiveResponse,
        Txn, compare,
    },
};

/// The number of keys that one request reads: 32 of the largest values that servers accept by default still fit the
/// bound of a reply (64 MiB).
const PAGE_KEYS: i64 = 32;
/// The number of lock keys that are read at the same time: this many of the largest values that servers accept by
/// default fit the memory of a client.
const KEY_BATCH: usize = 16;
/// The number of leases whose remaining time is read at the same time.
const LEASE_BATCH: usize = 64;

/// The keys of each name.
type KeysOfNames = BTreeMap<Name, Vec<KeyValue>>;

impl Client {
    /// Reads a key that does not exist: a user without the right to read this key cannot lock either, and only a quorum
    /// can answer the read.
    async fn ping(&self) -> Result<(), EngineError> {
        self.ask(Range::key(&probe_key(&self.link.dialer().config))).await.map(drop)
    }

    /// The view of one name.
    async fn show(&self, name: &Name) -> Result<View, EngineError> {
        let dir = self.dir(name);
        check_name(&dir)?;
        let (header, kvs) = self.read_dir(&dir).await?;
        let key_views = key_views(&dir, &kvs);
        let lease_times = self.lease_times(key_views.iter()).await?;
        Ok(view(name.clone(), &dir, &key_views, &lease_times, self.tokens_of(header.cluster_id)))
    }

    /// The views of all names that begin with `prefix`.
    async fn list(&self, prefix: &str) -> Result<Vec<View>, EngineError> {
        let (header, mut names) = match self.layout() {
            Layout::Directory | Layout::Election => self.read_directories(prefix).await?,
            Layout::Key => self.read_queues(prefix).await?,
        };
        names.values_mut().for_each(|kvs| kvs.sort_by_key(|kv| kv.create_revision));
        let mut dirs = Vec::new();
        for (name, kvs) in &names {
            let dir = self.dir(name);
            let key_views = key_views(&dir, kvs);
            dirs.push((name, dir, key_views));
        }
        // Names share leases, so each lease is read once.
        let lease_times = self.lease_times(dirs.iter().flat_map(|(_, _, key_views)| key_views)).await?;
        Ok(dirs
            .iter()
            .map(|(name, dir, key_views)| {
                view(Name::clone(name), dir, key_views, &lease_times, self.tokens_of(header.cluster_id))
            })
            .collect())
    }

    /// Reads the keys of all names that begin with `prefix`.
    async fn read_directories(&self, prefix: &str) -> Result<(Header, KeysOfNames), EngineError> {
        let mut names = KeysOfNames::new();
        let (header, kvs) = self.read_all(names_starting_with(self.prefix(), prefix)).await?;
        for kv in kvs {
            let name = name_of(self.prefix(), &kv.key).map(|(name, _)| name);
            if let Some(name) = name.or_else(|| name_of_bare_key(self.prefix(), &kv.key)) {
                names.entry(name).or_default().push(kv);
            }
        }
        Ok((header, names))
    }

    /// With `layout=key`: reads the queue keys and the lock keys of all names that begin with `prefix` and have queue
    /// keys. Lock keys without a queue are not read, because they cannot be told from other data in the cluster.
    async fn read_queues(&self, prefix: &str) -> Result<(Header, KeysOfNames), EngineError> {
        let mut names = KeysOfNames::new();
        let (header, kvs) = self.read_all(queues_starting_with(self.prefix(), prefix)).await?;
        for kv in kvs {
            if let Some(name) = name_of_queue_key(self.prefix(), &kv.key) {
                names.entry(name).or_default().push(kv);
            }
        }
        let mut entries: Vec<_> = names.iter_mut().collect();
        for batch in entries.chunks_mut(KEY_BATCH) {
            let reads = batch.iter().map(|(name, _)| {
                let dir = self.dir(name);
                async move { self.read_bare_key(&dir, header.revision).await }
            });
            let lock_keys = join_all(reads).await;
            for ((_, kvs), lock_key) in batch.iter_mut().zip(lock_keys) {
                kvs.extend(lock_key?);
            }
        }
        Ok((header, names))
    }

    /// How the revisions of this cluster become tokens, and their lineage.
    fn tokens_of(&self, cluster: u64) -> (TokenBlocks, Lineage) {
        (self.token_blocks(), self.lineage(cluster))
    }

    /// Reads all keys of a directory, and the key of clients without a queue, in the order of their creation.
    async fn read_dir(&self, dir: &Dir) -> Result<(Header, Vec<KeyValue>), EngineError> {
        let (header, mut kvs) = self.read_all(dir.all_keys()).await?;
        kvs.extend(self.read_bare_key(dir, header.revision).await?);
        kvs.sort_by_key(|kv| kv.create_revision);
        Ok((header, kvs))
    }

    /// Reads the key of clients without a queue, or the lock key, as of this revision.
    async fn read_bare_key(&self, dir: &Dir, revision: i64) -> Result<Vec<KeyValue>, EngineError> {
        Ok(self.read_page(Range { revision, ..Range::key(&dir.bare_key()) }).await?.kvs)
    }

    /// Reads all keys of a span, page by page, as of one revision. Returns the header of the replies too.
    async fn read_all(
        &self,
        (mut from, to): (Vec<u8>, Vec<u8>),
    ) -> Result<(Header, Vec<KeyValue>), EngineError> {
        let (mut all_kvs, mut revision) = (Vec::new(), 0);
        loop {
            let page = Range { revision, ..Range::between(&(from, to.clone())).limit(PAGE_KEYS) };
            let reply = self.read_page(page).await?;
            let header = reply.header.unwrap_or_default();
            revision = header.revision;
            let last_key = reply.kvs.last().map(|kv| kv.key.clone());
            all_kvs.extend(reply.kvs);
            match last_key.filter(|_| reply.more) {
                None => return Ok((header, all_kvs)),
                Some(mut last_key) => {
                    // The smallest key that sorts after `last_key`.
                    last_key.push(0);
                    from = last_key;
                }
            }
        }
    }

    /// Reads a page. If the page exceeds the bound of a reply, reads only its first key; if the value of that key alone
    /// exceeds the bound, reads the key without the value. Cuts values that are longer than any record.
    async fn read_page(&self, page: Range) -> Result<RangeResponse, EngineError> {
        let first = page.clone().limit(1);
        let mut reply = match self.read_within_bound(page).await? {
            Some(reply) => reply,
            None => match self.read_within_bound(first.clone()).await? {
                Some(reply) => reply,
                None => self.ask(first.keys_only()).await?.1,
            },
        };
        for kv in &mut reply.kvs {
            kv.value.truncate(MAX_RECORD_BYTES + 1);
            kv.value.shrink_to_fit();
        }
        Ok(reply)
    }

    /// Reads a page; `None` if the reply exceeds the bound.
    async fn read_within_bound(&self, page: Range) -> Result<Option<RangeResponse>, EngineError> {
        match self.call(page).await {
            Ok((_, reply)) => Ok(Some(reply)),
            Err(Failed::Sent(status)) if is_reply_too_long(&status) => Ok(None),
            Err(failed) => Err(failed.classified()),
        }
    }

    /// The remaining time of the leases of holders.
    async fn lease_times<'a>(
        &self,
        key_views: impl Iterator<Item = &'a KeyView<'a>>,
    ) -> Result<LeaseTimes, EngineError> {
        let mut ids: Vec<i64> =
            key_views.filter(|key_view| key_view.holds).map(|key_view| key_view.kv.lease).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut lease_times = LeaseTimes::new();
        for ids in ids.chunks(LEASE_BATCH) {
            let replies =
                ids.iter().filter(|&&id| id != 0).map(|&id| async move { (id, self.time_to_live(id).await) });
            for (id, time_to_live) in join_all(replies).await {
                let time_to_live = time_to_live?;
                lease_times.extend(time_to_live.map(|TimeToLiveResponse { ttl, granted }| {
                    (id, LeaseTime { granted: seconds(granted), remaining: seconds(ttl) })
                }));
            }
        }
        Ok(lease_times)
    }

    /// The remaining time of a lease; `None` if it has ended.
    pub(crate) async fn time_to_live(&self, id: i64) -> Result<Option<TimeToLiveResponse>, EngineError> {
        match self.call(TimeToLive { id }).await {
            Ok((_, time_to_live)) => Ok(Some(time_to_live).filter(|time_to_live| time_to_live.ttl >= 0)),
            Err(Failed::Sent(status)) if is_lease_gone(&status) => Ok(None),
            Err(failed) => Err(failed.classified()),
        }
    }

    /// Breaks the hold with this token: marks it as broken, or with `force` deletes its key. With `layout=key` the
    /// queue key of the holder ends together with the lock key.
    async fn break_hold(&self, name: &Name, token: u64, force: bool) -> Result<Broken, EngineError> {
        let dir = self.dir(name);
        check_name(&dir)?;
        let (_, kvs) = self.read_dir(&dir).await?;
        let key_views = key_views(&dir, &kvs);
        let revision = self.token_blocks().number_of(token);
        let held_key =
            key_views.iter().find(|key_view| key_view.holds && Some(key_view.kv.create_revision) == revision);
        let Some(key_view) = held_key else { return Ok(Broken::NotHeld) };
        if key_view.is_broken() && !force {
            return Ok(Broken::Done);
        }
        let key = &key_view.kv.key;
        let is_unchanged = |kv: &KeyValue| compare::created(&kv.key, kv.create_revision);
        let queue_key = Some(&dir).filter(|dir| dir.has_lock_key() && key_view.is_ours());
        let queue_key = queue_key.and_then(|dir| queue_key_of_holder(dir, &kvs, key_view.claim()));
        let own_kvs: Vec<&KeyValue> = [key_view.kv].into_iter().chain(queue_key).collect();
        let mut conditions: Vec<Compare> = own_kvs.iter().map(|kv| is_unchanged(kv)).collect();
        // A minimum hold has no holder to notify.
        let (_, reply) = if force || key_view.is_min_hold() {
            let delete =
                |kv: &&KeyValue| DeleteRange { key: kv.key.clone(), ..DeleteRange::default() }.into();
            let success = own_kvs.iter().map(delete).collect();
            self.ask(Txn { compare: conditions, success, failure: Vec::new() }).await?
        } else {
            // The record of the broken hold moves to a new lease. There it stays for the longest time for which the
            // holder may still rely on the hold, and no longer, even if a client keeps the old lease alive.
            let (lease, hold_time) = self.lease_for_remaining(key_view).await?;
            let record = Record {
                state: RecordState::Broken,
                id: key_view.claim(),
                hold_time,
                owner: key_view.owner(),
            };
            let put = |kv: &&KeyValue| Put { key: kv.key.clone(), value: record.text(), lease }.into();
            let success = own_kvs.iter().map(put).collect();
            conditions.push(compare::leased(key, key_view.kv.lease));
            self.ask(Txn { compare: conditions, success, failure: Vec::new() }).await?
        };
        if !reply.succeeded {
            return Ok(Broken::NotHeld);
        }
        if key_view.is_ours() && !key_view.is_min_hold() {
            self.notify_holder(key_view.kv.lease).await;
        }
        Ok(Broken::Done)
    }

    /// Creates a lease for the longest time that the lease of a hold may still last.
    async fn lease_for_remaining(&self, key_view: &KeyView<'_>) -> Result<(i64, Duration), EngineError> {
        let time_to_live =
            if key_view.kv.lease == 0 { None } else { self.time_to_live(key_view.kv.lease).await? };
        let Some(time_to_live) = time_to_live else {
            let why = "it has no lease that could be waited for: break it with --force";
            return Err(EngineError::new(Fault::Denied, why));
        };
        // A keep-alive may still extend the old lease to its full time.
        self.create_lease(seconds(time_to_live.granted).as_secs()).await
    }

    /// Notifies the client with this lease that one of its holds was broken. If the write is lost, the next renewal of
    /// the hold finds out.
    async fn notify_holder(&self, lease: i64) {
        let put_epoch = Put { key: epoch_key(self.prefix(), lease), value: b"broken".to_vec(), lease };
        if let Err(error) = self.ask(Txn { success: vec![put_epoch.into()], ..Txn::default() }).await {
            tracing::debug!(%error, "the holder was not notified");
        }
    }
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(count.try_into().unwrap_or(0))
}

leasehold_core::forward_inspect!(EtcdEngine, guarantee by guarantee::examine, diagnostics by diagnose::diagnose, changes by Client::tell_changes);
