//! The verbs for operators: ping, list, show, break, guarantee.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use leasehold_core::{Broken, EngineError, Fault, Lineage, Name, TokenBlocks, View};

use crate::{
    EtcdEngine,
    client::{Client, Failed},
    error::{is_lease_gone, is_too_long},
    guarantee,
    keys::{Dir, epoch_key, name_of, name_of_bare_key, names_starting_with},
    record::{MAX_RECORD_BYTES, Record, RecordState},
    view::{KeyView, Leases, entries, view},
    wire::{
        DeleteRange, Header, KeyValue, Put, Range, RangeResponse, TimeToLive, TimeToLiveResponse, Txn,
        compare,
    },
};

/// The number of keys that one request reads: 32 of the largest values that servers accept by default still fit the
/// bound of a reply.
const PAGE_KEYS: i64 = 32;
/// The number of leases whose remaining time is read at the same time.
const LEASE_BATCH: usize = 64;

impl Client {
    /// Reads a key below the prefix that does not exist: a user without the rights to read it cannot lock either, and
    /// only a quorum can answer.
    async fn ping(&self) -> Result<(), EngineError> {
        self.ask(Range::key(format!("{}/", self.prefix()).as_bytes())).await.map(drop)
    }

    /// The view of one name.
    async fn show(&self, name: &Name) -> Result<View, EngineError> {
        let dir = self.dir(name);
        let (header, found) = self.read_dir(&dir).await?;
        let entries = entries(&dir, &found);
        let leases = self.leases(entries.iter()).await?;
        Ok(view(name.clone(), &dir, &entries, &leases, self.tokens_of(header.cluster_id)))
    }

    /// The views of all names that begin with `prefix`.
    async fn list(&self, prefix: &str) -> Result<Vec<View>, EngineError> {
        let mut names: BTreeMap<Name, Vec<KeyValue>> = BTreeMap::new();
        let (header, found) = self.read_all(names_starting_with(self.prefix(), prefix)).await?;
        for kv in found {
            let name = name_of(self.prefix(), &kv.key).map(|(name, _)| name);
            if let Some(name) = name.or_else(|| name_of_bare_key(self.prefix(), &kv.key)) {
                names.entry(name).or_default().push(kv);
            }
        }
        names.values_mut().for_each(|kvs| kvs.sort_by_key(|kv| kv.create_revision));
        let mut all = Vec::new();
        for (name, kvs) in &names {
            let dir = self.dir(name);
            let entries = entries(&dir, kvs);
            all.push((name, dir, entries));
        }
        // Names share leases, so each lease is read once.
        let leases = self.leases(all.iter().flat_map(|(_, _, entries)| entries)).await?;
        Ok(all
            .iter()
            .map(|(name, dir, entries)| {
                view(Name::clone(name), dir, entries, &leases, self.tokens_of(header.cluster_id))
            })
            .collect())
    }

    /// How the revisions of this cluster become tokens, and their lineage.
    fn tokens_of(&self, cluster: u64) -> (TokenBlocks, Lineage) {
        (self.token_blocks(), self.lineage(cluster))
    }

    /// Reads all keys of a directory, and the key of clients without a queue, in the order of their creation.
    async fn read_dir(&self, dir: &Dir) -> Result<(Header, Vec<KeyValue>), EngineError> {
        let (header, mut found) = self.read_all(dir.all()).await?;
        let bare_key = Range { revision: header.revision, ..Range::key(&dir.bare_key()) };
        found.extend(self.read(bare_key).await?.kvs);
        found.sort_by_key(|kv| kv.create_revision);
        Ok((header, found))
    }

    /// Reads all keys of a span, page by page, as of one revision. Returns the header of the replies too.
    async fn read_all(
        &self,
        (mut from, to): (Vec<u8>, Vec<u8>),
    ) -> Result<(Header, Vec<KeyValue>), EngineError> {
        let (mut all, mut revision) = (Vec::new(), 0);
        loop {
            let page = Range { revision, ..Range::between(&(from, to.clone())).limit(PAGE_KEYS) };
            let read = self.read(page).await?;
            let header = read.header.unwrap_or_default();
            revision = header.revision;
            let last = read.kvs.last().map(|kv| kv.key.clone());
            all.extend(read.kvs);
            match last.filter(|_| read.more) {
                None => return Ok((header, all)),
                Some(mut last) => {
                    // The smallest key that sorts after the last one.
                    last.push(0);
                    from = last;
                }
            }
        }
    }

    /// Reads a page. If the page exceeds the bound of a reply, reads only its first key; if the value of that key alone
    /// exceeds the bound, reads the key without the value. Cuts values that are longer than any record.
    async fn read(&self, page: Range) -> Result<RangeResponse, EngineError> {
        let first = page.clone().limit(1);
        let mut read = match self.read_within_bound(page).await? {
            Some(read) => read,
            None => match self.read_within_bound(first.clone()).await? {
                Some(read) => read,
                None => self.ask(first.keys_only()).await?.1,
            },
        };
        for kv in &mut read.kvs {
            kv.value.truncate(MAX_RECORD_BYTES + 1);
            kv.value.shrink_to_fit();
        }
        Ok(read)
    }

    /// Reads a page; `None` if the reply exceeds the bound.
    async fn read_within_bound(&self, page: Range) -> Result<Option<RangeResponse>, EngineError> {
        match self.call(page).await {
            Ok((_, read)) => Ok(Some(read)),
            Err(Failed::Sent(status)) if is_too_long(&status) => Ok(None),
            Err(failed) => Err(failed.classified()),
        }
    }

    /// The remaining time of the leases of holders.
    async fn leases<'a>(
        &self,
        entries: impl Iterator<Item = &'a KeyView<'a>>,
    ) -> Result<Leases, EngineError> {
        let mut ids: Vec<i64> = entries.filter(|entry| entry.holds).map(|entry| entry.kv.lease).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut leases = Leases::new();
        for ids in ids.chunks(LEASE_BATCH) {
            let replies =
                ids.iter().filter(|&&id| id != 0).map(|&id| async move { (id, self.time_to_live(id).await) });
            for (id, time_to_live) in join_all(replies).await {
                leases.extend(time_to_live?.map(|time_to_live| (id, seconds(time_to_live.ttl))));
            }
        }
        Ok(leases)
    }

    /// The remaining time of a lease; `None` if it has ended.
    async fn time_to_live(&self, id: i64) -> Result<Option<TimeToLiveResponse>, EngineError> {
        match self.call(TimeToLive { id }).await {
            Ok((_, time_to_live)) => Ok(Some(time_to_live).filter(|time_to_live| time_to_live.ttl >= 0)),
            Err(Failed::Sent(status)) if is_lease_gone(&status) => Ok(None),
            Err(failed) => Err(failed.classified()),
        }
    }

    /// Breaks the hold with this token: marks it as broken, or with `force` deletes its key.
    async fn break_hold(&self, name: &Name, token: u64, force: bool) -> Result<Broken, EngineError> {
        let dir = self.dir(name);
        let (_, found) = self.read_dir(&dir).await?;
        let entries = entries(&dir, &found);
        let revision = self.token_blocks().number_of(token);
        let held = entries.iter().find(|entry| entry.holds && Some(entry.kv.create_revision) == revision);
        let Some(entry) = held else { return Ok(Broken::NotHeld) };
        if entry.is_broken() && !force {
            return Ok(Broken::Done);
        }
        let key = &entry.kv.key;
        let is_unchanged = compare::created(key, entry.kv.create_revision);
        // A minimum hold has no holder to notify.
        let broken = if force || entry.is_min_hold() {
            let delete = DeleteRange { key: key.clone(), ..DeleteRange::default() };
            self.ask(Txn { compare: vec![is_unchanged], success: vec![delete.into()], failure: Vec::new() })
                .await?
        } else {
            // The broken record stays for the longest time for which its holder may rely on the hold, even if a client
            // keeps the old lease alive.
            let (lease, time) = self.lease_for_remaining(entry).await?;
            let record = Record { state: RecordState::Broken, id: entry.claim(), time, owner: entry.owner() };
            let put = Put { key: key.clone(), value: record.text(), lease };
            let compare = vec![is_unchanged, compare::leased(key, entry.kv.lease)];
            self.ask(Txn { compare, success: vec![put.into()], failure: Vec::new() }).await?
        };
        if !broken.1.succeeded {
            return Ok(Broken::NotHeld);
        }
        if entry.is_ours() && !entry.is_min_hold() {
            self.notify_holder(entry.kv.lease).await;
        }
        Ok(Broken::Done)
    }

    /// Creates a lease for the longest time that the lease of a hold may still last.
    async fn lease_for_remaining(&self, entry: &KeyView<'_>) -> Result<(i64, Duration), EngineError> {
        let time_to_live = if entry.kv.lease == 0 { None } else { self.time_to_live(entry.kv.lease).await? };
        let Some(time_to_live) = time_to_live else {
            let why = "it has no lease that could be waited for: break it with --force";
            return Err(EngineError::new(Fault::Denied, why));
        };
        // A keep-alive may still extend the old lease to its full time.
        self.grant(seconds(time_to_live.granted).as_secs()).await
    }

    /// Notifies the client with this lease that one of its holds was broken. If the write is lost, the next renewal of
    /// the hold finds out.
    async fn notify_holder(&self, lease: i64) {
        let signal = Put { key: epoch_key(self.prefix(), lease), value: b"broken".to_vec(), lease };
        if let Err(error) = self.ask(Txn { success: vec![signal.into()], ..Txn::default() }).await {
            tracing::debug!(%error, "the holder was not notified");
        }
    }
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(count.try_into().unwrap_or(0))
}

leasehold_core::forward_inspect!(EtcdEngine, guarantee::examine);
