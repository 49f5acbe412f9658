//! What operators ask: who holds, who waits, break a hold, what is promised.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use leasehold_core::{Broken, EngineError, Fault, Name, View};

use crate::{
    EtcdEngine,
    client::{Client, Failed},
    error::{is_lease_gone, is_too_long},
    guarantee,
    keys::{Dir, beginning, epoch, name_of, name_of_bare_key},
    record::{MAX_RECORD_BYTES, Record, RecordState},
    view::{KeyView, Leases, entries, view},
    wire::{
        DeleteRange, Header, KeyValue, Put, Range, RangeResponse, TimeToLive, TimeToLiveResponse, Txn,
        compare,
    },
};

/// Keys read by one request: with the largest values that servers take by default they are still a whole answer.
const PAGE: i64 = 32;
/// Leases asked for by one batch of requests.
const LEASE_BATCH: usize = 64;

impl Client {
    /// A key that nobody has, below the prefix: whoever may not read it cannot lock either, and only a quorum can answer.
    async fn ping(&self) -> Result<(), EngineError> {
        self.ask(Range::key(format!("{}/", self.prefix()).as_bytes())).await.map(drop)
    }

    async fn show(&self, name: &Name) -> Result<View, EngineError> {
        let dir = self.dir(name);
        let (header, found) = self.read_dir(&dir).await?;
        let entries = entries(&dir, &found);
        let leases = self.leases(entries.iter()).await?;
        Ok(view(name.clone(), &dir, &entries, &leases, header.cluster_id))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<View>, EngineError> {
        let mut names: BTreeMap<Name, Vec<KeyValue>> = BTreeMap::new();
        let (header, found) = self.read_all(beginning(self.prefix(), prefix)).await?;
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
        // Many names are held by one lease.
        let leases = self.leases(all.iter().flat_map(|(_, _, entries)| entries)).await?;
        Ok(all
            .iter()
            .map(|(name, dir, entries)| view(Name::clone(name), dir, entries, &leases, header.cluster_id))
            .collect())
    }

    /// A directory with all that is in it, and the key of clients that have no line, in the order in which they were created.
    async fn read_dir(&self, dir: &Dir) -> Result<(Header, Vec<KeyValue>), EngineError> {
        let (header, mut found) = self.read_all(dir.all()).await?;
        let bare_key = Range { revision: header.revision, ..Range::key(&dir.bare_key()) };
        found.extend(self.read(bare_key).await?.kvs);
        found.sort_by_key(|kv| kv.create_revision);
        Ok((header, found))
    }

    /// Everything in a span, page by page, as it was at one moment, and the header of the answers.
    async fn read_all(
        &self,
        (mut from, to): (Vec<u8>, Vec<u8>),
    ) -> Result<(Header, Vec<KeyValue>), EngineError> {
        let (mut all, mut revision) = (Vec::new(), 0);
        loop {
            let page = Range { revision, ..Range::between(&(from, to.clone())).limit(PAGE) };
            let read = self.read(page).await?;
            let header = read.header.unwrap_or_default();
            revision = header.revision;
            let last = read.kvs.last().map(|kv| kv.key.clone());
            all.extend(read.kvs);
            match last.filter(|_| read.more) {
                None => return Ok((header, all)),
                Some(mut last) => {
                    last.push(0);
                    from = last;
                }
            }
        }
    }

    /// A page, or its first key where all of it is longer than an answer may be; without its value where that alone is. Of other
    /// values as much is kept as tells that they are no cards.
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

    async fn read_within_bound(&self, page: Range) -> Result<Option<RangeResponse>, EngineError> {
        match self.call(page).await {
            Ok((_, read)) => Ok(Some(read)),
            Err(Failed::Sent(status)) if is_too_long(&status) => Ok(None),
            Err(failed) => Err(failed.classified()),
        }
    }

    /// How long the leases of those who hold have left.
    async fn leases<'a>(
        &self,
        entries: impl Iterator<Item = &'a KeyView<'a>>,
    ) -> Result<Leases, EngineError> {
        let mut ids: Vec<i64> = entries.filter(|entry| entry.holds).map(|entry| entry.kv.lease).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut leases = Leases::new();
        for ids in ids.chunks(LEASE_BATCH) {
            let asked = ids.iter().filter(|&&id| id != 0).map(|&id| async move { (id, self.left(id).await) });
            for (id, left) in join_all(asked).await {
                leases.extend(left?.map(|left| (id, seconds(left.ttl))));
            }
        }
        Ok(leases)
    }

    /// How long a lease has left; `None` if it is gone.
    async fn left(&self, id: i64) -> Result<Option<TimeToLiveResponse>, EngineError> {
        match self.call(TimeToLive { id }).await {
            Ok((_, left)) => Ok(Some(left).filter(|left| left.ttl >= 0)),
            Err(Failed::Sent(status)) if is_lease_gone(&status) => Ok(None),
            Err(failed) => Err(failed.classified()),
        }
    }

    async fn break_hold(&self, name: &Name, token: u64, force: bool) -> Result<Broken, EngineError> {
        let dir = self.dir(name);
        let (_, found) = self.read_dir(&dir).await?;
        let entries = entries(&dir, &found);
        let held =
            entries.iter().find(|entry| entry.holds && u64::try_from(entry.kv.create_revision) == Ok(token));
        let Some(entry) = held else { return Ok(Broken::NotHeld) };
        if entry.is_broken() && !force {
            return Ok(Broken::Done);
        }
        let key = &entry.kv.key;
        let same = compare::created(key, entry.kv.create_revision);
        // Of a kept name there is nobody who would have to let go.
        let broken = if force || entry.is_min_hold() {
            let delete = DeleteRange { key: key.clone(), ..DeleteRange::default() };
            self.ask(Txn { compare: vec![same], success: vec![delete.into()], failure: Vec::new() }).await?
        } else {
            // It stands for as long as it may be believed in at most, whoever keeps its lease alive.
            let (lease, time) = self.lease_for_rest(entry).await?;
            let record = Record { state: RecordState::Broken, id: entry.claim(), time, owner: entry.owner() };
            let put = Put { key: key.clone(), value: record.text(), lease };
            let compare = vec![same, compare::leased(key, entry.kv.lease)];
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

    /// A lease for as long as the lease of a hold may last still.
    async fn lease_for_rest(&self, entry: &KeyView<'_>) -> Result<(i64, Duration), EngineError> {
        let left = if entry.kv.lease == 0 { None } else { self.left(entry.kv.lease).await? };
        let Some(left) = left else {
            let why = "it has no lease that could be waited for: break it with --force";
            return Err(EngineError::new(Fault::Denied, why));
        };
        // It may be kept alive once more before this is known: then it has all of its time.
        self.grant(seconds(left.granted).as_secs()).await
    }

    /// Tells the holder. If it does not arrive, the holder finds out at its next renewal.
    async fn notify_holder(&self, lease: i64) {
        let bell = Put { key: epoch(self.prefix(), lease), value: b"broken".to_vec(), lease };
        if let Err(error) = self.ask(Txn { success: vec![bell.into()], ..Txn::default() }).await {
            tracing::debug!(%error, "the holder was not told");
        }
    }
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(count.try_into().unwrap_or(0))
}

leasehold_core::forward_inspect!(EtcdEngine, guarantee::examine);
