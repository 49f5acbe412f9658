//! Deletes memos that have ended. The server has no nodes that end by themselves without a setting of its
//! administrator, so clients delete them: each client those that it wrote, and a client that creates memos also some of
//! others.
//!
//! A memo of a hold that still lasts stays, also after its end, because its number tells late writes.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{ClaimId, EngineError, HoldAfter, MemoWrite, Name};

use crate::{
    client::Client,
    conn::Conn,
    engine::REQUEST_TIMEOUT,
    error::Failed,
    memo_place::MemoPlace,
    memo_record::MemoRecord,
    memos::{none_if_missing, set_clock},
    outbox::Sent,
    runtime,
    sessions::Session,
    wire::{Delete, ErrorCode, Exists, GetChildren, GetData, MultiOp, Stat},
};

/// One of so many new memos also looks at other memos.
const NEW_MEMOS_PER_SWEEP: u8 = 8;
/// How many memos it looks at. So there are about two deleted for each new one, as long as there are ended ones.
const SWEPT_MEMOS: usize = 16;
/// The time limit for that.
const SWEEP_LIMIT: Duration = Duration::from_secs(1);
/// A client waits, even if its program is about to end, until it has deleted a memo that ends so soon.
const SOON: Duration = Duration::from_secs(1);
/// When a client looks again at a memo that has ended and whose hold lasts, or after an error.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// A memo is deleted a little after its end: the client's clock is not that of the server.
const AFTER_END: Duration = Duration::from_millis(5);

/// What a look at a memo found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// There is no such memo any more.
    Gone,
    /// It is to be looked at again after this time.
    Later(Duration),
}

/// A memo that may have ended.
struct Candidate {
    path: String,
    /// The path of the node of its hold.
    holder: String,
    record: MemoRecord,
    stat: Stat,
}

impl Client {
    /// Sees to the end of a memo that was written, and sometimes to that of others.
    pub(crate) async fn after_memo(&self, write: &MemoWrite, place: &MemoPlace, is_new: bool) {
        let (name, id, keep) = (&write.name, write.version.id, write.memo.keep());
        self.memo_ends.add(name, id, self.now().after(keep + AFTER_END));
        if keep <= SOON && write.after == HoldAfter::Release {
            if let Some(client) = self.weak_self.upgrade() {
                let name = name.clone();
                runtime::spawn(async move {
                    runtime::sleep(keep + AFTER_END).await;
                    client.delete_ended_memo(&name, id).await;
                });
            }
        } else {
            self.wake_maintenance.notify_one();
        }
        // The id of a claim is random.
        let [first, start, ..] = id.0;
        if is_new && first % NEW_MEMOS_PER_SWEEP == 0 {
            let swept = runtime::within(SWEEP_LIMIT, self.sweep_memos(place, start)).await;
            if let Some(Err(error)) = swept {
                tracing::debug!(?error, "ended memos are not deleted");
            }
        }
    }

    /// Deletes the memo that this claim wrote, if it has ended. If it has not, the client will look again.
    pub(crate) async fn delete_ended_memo(&self, name: &Name, id: ClaimId) {
        let looked = runtime::within(REQUEST_TIMEOUT, self.look_at_memo(name, id)).await;
        let later = match looked {
            Some(Ok(Look::Gone)) => return,
            Some(Ok(Look::Later(later))) => later,
            Some(Err(_)) | None => LOOK_AGAIN,
        };
        self.memo_ends.add(name, id, self.now().after(later));
    }

    async fn look_at_memo(&self, name: &Name, id: ClaimId) -> Result<Look, EngineError> {
        let (place, (slot, conn)) = (self.memo_place(name), self.memo_conn().await?);
        let (now, version, candidates) = self.candidates(&conn, &place, vec![place.node.clone()]).await?;
        let Some(candidate) = candidates.into_iter().find(|candidate| candidate.record.claim() == id) else {
            return Ok(Look::Gone);
        };
        if let Some(left) = candidate.record.left(&candidate.stat, now) {
            return Ok(Look::Later(left + AFTER_END));
        }
        let is_deleted = self.delete_memo(&conn, slot.session(), &place, version, candidate).await?;
        Ok(if is_deleted { Look::Gone } else { Look::Later(LOOK_AGAIN) })
    }

    /// Deletes the ended ones among some memos of a directory. `start` says which: 0 the first ones.
    async fn sweep_memos(&self, place: &MemoPlace, start: u8) -> Result<(), EngineError> {
        let (slot, conn) = self.memo_conn().await?;
        let listed = conn.send(&GetChildren { path: &place.directory, watch: false }).answer().await;
        let mut names = none_if_missing(listed)?.unwrap_or_default();
        names.sort();
        let start = names.len() * usize::from(start) / 256;
        names.rotate_left(start);
        let paths = names.into_iter().take(SWEPT_MEMOS).map(|name| format!("{}/{name}", place.directory));
        let (now, version, candidates) = self.candidates(&conn, place, paths.collect()).await?;
        for candidate in candidates {
            if candidate.record.left(&candidate.stat, now).is_none() {
                self.delete_memo(&conn, slot.session(), place, version, candidate).await?;
            }
        }
        Ok(())
    }

    /// Reads these memos of a directory. Also returns the time of the server before that, and the version of the
    /// directory before that.
    async fn candidates(
        &self,
        conn: &Conn,
        place: &MemoPlace,
        paths: Vec<String>,
    ) -> Result<(i64, i32, Vec<Candidate>), Failed> {
        let clock = conn.send(&set_clock(place));
        let directory = conn.send(&Exists { path: &place.directory });
        let reads: Vec<_> = paths.iter().map(|path| conn.send(&GetData { path, watch: false })).collect();
        let (now, version) =
            match none_if_missing(clock.answer().await)?.zip(none_if_missing(directory.answer().await)?) {
                Some((clock, directory)) => (clock.mtime, directory.version),
                None => return Ok((0, 0, Vec::new())),
            };
        let answers = join_all(reads.into_iter().map(Sent::answer)).await;
        let mut candidates = Vec::new();
        for (path, answer) in paths.into_iter().zip(answers) {
            // What cannot be read, or is no memo, stays.
            let Ok((data, stat)) = answer else { continue };
            let name = path.rsplit_once('/').map(|(_, name)| name);
            if let Some((name, record)) = name.zip(MemoRecord::read(&data)) {
                let holder = format!("{}/{name}/{}", self.base_path(), record.holder);
                candidates.push(Candidate { path, holder, record, stat });
            }
        }
        Ok((now, version, candidates))
    }

    /// Deletes an ended memo, unless its hold lasts. `version`: that of the directory, read before the memo. It counts
    /// the new memos, so a memo that was deleted and created again meanwhile is not taken for the one that was read.
    /// False if the memo stays.
    async fn delete_memo(
        &self,
        conn: &Conn,
        session: &Session,
        place: &MemoPlace,
        version: i32,
        candidate: Candidate,
    ) -> Result<bool, Failed> {
        // This server has applied the write of the memo, so it has the node of the hold, unless that was deleted.
        if none_if_missing(conn.send(&Exists { path: &candidate.holder }).answer().await)?.is_some() {
            return Ok(false);
        }
        let steps = vec![
            MultiOp::Check { path: place.directory.clone(), version },
            MultiOp::Delete(Delete { path: candidate.path, version: candidate.stat.version }),
        ];
        match self.apply_changes(session, conn, steps).await? {
            Ok(()) | Err((1, ErrorCode::NO_NODE)) => Ok(true),
            Err(_) => Ok(false),
        }
    }
}
