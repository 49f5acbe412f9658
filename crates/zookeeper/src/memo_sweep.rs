//! Deletes memos that have ended. The server has no nodes that end by themselves without a setting of its
//! administrator, so clients delete them: each client those that it wrote (see `memo_ends.rs`), and a client that
//! creates memos also some of others.
//!
//! A memo of a hold that still lasts stays, also after its end, because its number tells late writes.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{ClaimId, EngineError, Mode, Name};

use crate::{
    claims::State,
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

/// The claim of one of so many new memos also looks at other memos.
const NEW_MEMOS_PER_SWEEP: u8 = 8;
/// How many memos it looks at. So there are about two deleted for each new one, as long as there are ended ones.
const SWEPT_MEMOS: usize = 16;

/// A memo that may have ended.
pub(crate) struct Candidate {
    pub(crate) path: String,
    /// The path of the node of its hold.
    holder: String,
    pub(crate) record: MemoRecord,
    stat: Stat,
}

impl Candidate {
    /// How long it is still kept at `now` by the server's clock; `None` if it has ended.
    pub(crate) fn left(&self, now: i64) -> Option<Duration> {
        self.record.left(&self.stat, now)
    }
}

impl Client {
    /// Whether this claim, which is about to create a memo, is one that looks at other memos. True at most one time for
    /// each claim.
    pub(crate) fn takes_sweep(&self, id: ClaimId) -> bool {
        // The id of a claim is random.
        let sweeps = id.0[0].is_multiple_of(NEW_MEMOS_PER_SWEEP);
        sweeps
            && self.claims().get(id).is_some_and(|entry| !std::mem::replace(&mut entry.data.has_swept, true))
    }

    /// Sweeps for the holder of this name, which has no memo, if this client is the holder. Many programs end as soon
    /// as they have stored their result, so this client does not wait until the memo is written.
    pub(crate) fn sweep_for_holder(&self, place: &MemoPlace, name: &Name) {
        let holder = {
            let claims = self.claims();
            let mut holds = claims.entries().filter(|(_, entry)| {
                entry.name == *name
                    && entry.mode == Mode::Exclusive
                    && matches!(entry.state, State::Held { .. })
            });
            holds.next().map(|(id, _)| id)
        };
        if let Some(id) = holder.filter(|&id| self.takes_sweep(id)) {
            self.sweep(place, id);
        }
    }

    /// Deletes, in the background, the ended ones among some memos of the directory of this memo. The claim says which.
    pub(crate) fn sweep(&self, place: &MemoPlace, id: ClaimId) {
        let Some(client) = self.weak_self.upgrade() else { return };
        let (place, start) = (place.clone(), id.0[1]);
        runtime::spawn(async move {
            let swept = runtime::within(REQUEST_TIMEOUT, client.sweep_memos(&place, start)).await;
            if let Some(Err(error)) = swept {
                tracing::debug!(?error, "ended memos are not deleted");
            }
        });
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
            if candidate.left(now).is_none() {
                self.delete_memo(&conn, slot.session(), place, version, candidate).await?;
            }
        }
        Ok(())
    }

    /// Reads these memos of a directory. Also returns the time of the server before that, and the version of the
    /// directory before that.
    pub(crate) async fn candidates(
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
            let (data, stat) = match answer {
                Ok(answer) => answer,
                // What this login has no right to read stays, and so does what is no memo.
                Err(failed) if failed.is(ErrorCode::NO_NODE) || failed.is(ErrorCode::NO_AUTH) => continue,
                Err(failed) => return Err(failed),
            };
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
    pub(crate) async fn delete_memo(
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
