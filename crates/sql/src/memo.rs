//! Memos in a table of their own: the row of a memo, the decision about a write, and the verbs of a client.

use std::time::Duration;

use leasehold_core::{
    BoxFuture, ClaimId, EngineError, Followed, HoldAfter, Lineage, Memo, MemoHead, MemoKind, MemoVerdict,
    MemoVersion, MemoWrite, Memos, Name, Token, Written, foreign_memo_error, judge_memo,
};

use crate::{
    client::{Client, lock_mutex, within_request_timeout},
    database::{Failed, Timed},
    row::{duration_micros, instant},
    step::{Changes, Snapshot},
};

/// The row of a memo. Times are as in the other tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoRow {
    pub(crate) kind: String,
    pub(crate) content: Vec<u8>,
    pub(crate) print: Option<Vec<u8>>,
    /// The claim that wrote it.
    pub(crate) id: Vec<u8>,
    pub(crate) number: i64,
    /// The lineage of the token, as hexadecimal digits.
    pub(crate) lineage: String,
    pub(crate) token: i64,
    /// When the memo ends.
    pub(crate) ends: i64,
}

/// A memo as it was read, and whether its claim held the name, unbroken: both at one moment.
pub(crate) struct StoredMemo {
    pub(crate) row: MemoRow,
    pub(crate) is_held: bool,
}

/// The parts of a stored memo that decide about a write.
#[derive(Debug)]
pub(crate) struct StoredHead {
    pub(crate) kind: String,
    pub(crate) id: Vec<u8>,
    pub(crate) number: i64,
    pub(crate) ends: i64,
}

/// What a transaction has to write for the write of a memo.
pub(crate) struct MemoStep {
    /// The answer, once everything is written.
    pub(crate) written: Result<Written, EngineError>,
    /// The new row of the memo.
    pub(crate) row: Option<MemoRow>,
    /// The end of the hold.
    pub(crate) changes: Option<Changes>,
}

/// How many ended memos one sweep deletes, at most.
pub(crate) const MAX_SWEPT_MEMOS: usize = 1000;
/// For how long one client deletes ended memos, part by part, before it does something else: its waiting claims need
/// its polls.
const MEMO_SWEEP_TIME: Duration = Duration::from_secs(1);

/// The result of a transaction that writes a memo.
pub(crate) struct MemoWritten {
    pub(crate) written: Result<Written, EngineError>,
    /// The end of the hold, which was written.
    pub(crate) changes: Option<Changes>,
}

impl MemoStep {
    /// A step that writes nothing.
    const fn nothing(written: Result<Written, EngineError>) -> Self {
        Self { written, row: None, changes: None }
    }
}

impl Snapshot {
    /// Decides about the write of a memo, under the lock of the name's row. `stored`: the row of the memo.
    pub(crate) fn write_memo(
        &self,
        write: &MemoWrite,
        stored: Option<&StoredHead>,
    ) -> Result<MemoStep, Failed> {
        let decoded = stored
            .map(|stored| Ok::<_, Failed>((kind_of(&stored.kind)?, version_of(&stored.id, stored.number)?)));
        let decoded = decoded.transpose()?;
        let head = decoded.as_ref().zip(stored).map(|((kind, version), stored)| MemoHead {
            kind,
            version: *version,
            has_ended: stored.ends <= self.now,
        });
        let is_held = self.is_held_by(write.version.id, Some(write.hold_token));
        let row = match judge_memo(write, is_held, head) {
            MemoVerdict::Store => Some(self.memo_row(write)),
            MemoVerdict::LeaveLater => None,
            MemoVerdict::Overtaken => return Ok(MemoStep::nothing(Ok(Written::Overtaken))),
            MemoVerdict::Refuse(error) => return Ok(MemoStep::nothing(Err(error))),
        };
        let changes = match write.after {
            HoldAfter::Keep => None,
            HoldAfter::Release => {
                let release =
                    crate::step::Verb::Release { release: write.release(), late_request_possible: true };
                Some(self.apply(&release)?)
            }
        };
        Ok(MemoStep { written: Ok(Written::Done), row, changes })
    }

    fn memo_row(&self, write: &MemoWrite) -> MemoRow {
        let memo = &write.memo;
        MemoRow {
            kind: memo.kind().as_str().to_owned(),
            content: memo.bytes().to_vec(),
            print: memo.digest().map(|print| print.to_vec()),
            id: write.version.id.0.to_vec(),
            number: i64::try_from(write.version.number).unwrap_or(i64::MAX),
            lineage: write.token.lineage.to_string(),
            token: i64::try_from(write.token.number).unwrap_or(i64::MAX),
            ends: self.now.saturating_add(duration_micros(memo.keep())),
        }
    }
}

impl MemoRow {
    /// The claim that wrote the memo; `None` if the row is foreign.
    pub(crate) fn claim(&self) -> Option<ClaimId> {
        self.id.as_slice().try_into().ok().map(ClaimId)
    }
}

impl StoredMemo {
    /// The memo, unless it has ended.
    fn memo(self, now: i64) -> Result<Option<Memo>, Failed> {
        let Self { row, is_held } = self;
        if row.ends <= now {
            return Ok(None);
        }
        let lineage = u128::from_str_radix(&row.lineage, 16).map_err(|_| foreign("lineage"))?;
        let number = u64::try_from(row.token).map_err(|_| foreign("token"))?;
        let print = row.print.map(|print| print.try_into().map_err(|_| foreign("print"))).transpose()?;
        Ok(Some(Memo {
            kind: kind_of(&row.kind)?,
            version: version_of(&row.id, row.number)?,
            bytes: row.content,
            print,
            token: Token { lineage: Lineage::new(lineage), number },
            left: instant(row.ends).since(instant(now)),
            is_held,
        }))
    }
}

fn kind_of(text: &str) -> Result<MemoKind, Failed> {
    MemoKind::new(text).map_err(|_| foreign("kind"))
}

fn version_of(id: &[u8], number: i64) -> Result<MemoVersion, Failed> {
    let id = ClaimId(id.try_into().map_err(|_| foreign("id"))?);
    Ok(MemoVersion { id, number: u64::try_from(number).map_err(|_| foreign("number"))? })
}

/// The error for a row that leasehold did not write.
fn foreign(column: &str) -> Failed {
    let error = foreign_memo_error(&format!("a row of leasehold_memo (column {column})"));
    Failed::new(error.fault, error.message)
}

impl Memos for Client {
    fn read<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Option<Memo>, EngineError>> {
        Box::pin(async move { Ok(within_request_timeout(self.read_memo(name)).await?) })
    }

    fn write<'a>(&'a self, write: &'a MemoWrite) -> BoxFuture<'a, Result<Written, EngineError>> {
        Box::pin(async move { self.write_memo(write).await })
    }

    fn follow(&self, _: &Name) -> Option<Followed> {
        None
    }
}

impl Client {
    async fn read_memo(&self, name: &Name) -> Result<Option<Memo>, Failed> {
        let sent = self.now();
        let read = self.database.read_memo(name).await?;
        let Some(Timed { now, value }) = read else { return Ok(None) };
        self.learn_time(sent, now);
        value.memo(now)
    }

    async fn write_memo(&self, write: &MemoWrite) -> Result<Written, EngineError> {
        let sent = self.now();
        let Timed { now, value } = within_request_timeout(self.database.write_memo(write)).await?;
        self.learn_time(sent, now);
        if let Some(changes) = value.changes {
            self.end_hold(write.version.id);
            for notification in changes.notifications.iter().filter(|message| message.client == self.id) {
                self.handle_notification(notification);
            }
        }
        if write.after == HoldAfter::Release && matches!(value.written, Ok(Written::Overtaken)) {
            // An earlier try has possibly ended the hold, and its answer was lost: then core sends no release.
            lock_mutex(&self.held).remove(&write.version.id);
        }
        value.written
    }

    /// Deletes the memos that have ended, part by part, for a short time at most.
    pub(crate) async fn sweep_memos(&self) -> Result<(), Failed> {
        let end = self.now().after(MEMO_SWEEP_TIME);
        while within_request_timeout(self.database.sweep_memos()).await? == MAX_SWEPT_MEMOS
            && self.now() < end
        {}
        Ok(())
    }

    /// Records that this claim has ended with the write of its memo.
    fn end_hold(&self, id: ClaimId) {
        let now = self.now();
        self.note_released(id, now);
        lock_mutex(&self.held).remove(&id);
    }
}

#[cfg(all(test, feature = "sqlite", target_os = "linux"))]
mod tests {
    use leasehold_core::{Answer, Claim, Engine, Env, How, NewMemo};

    use super::*;

    fn claim() -> Claim {
        let ttl = Duration::from_secs(600);
        leasehold_testkit::claims::exclusive("a", ttl)
    }

    /// The answer to the first write is lost: for this client, as if another client had sent that write.
    #[tokio::test]
    async fn a_repeated_write_ends_the_hold_for_its_client() {
        let dir = tempfile::tempdir().unwrap();
        let engine = || crate::sqlite::engine(&dir.path().join("locks.db"), &Env::system()).unwrap();
        let (engine, other, claim) = (engine(), engine(), claim());
        let Ok(Answer::Held(grant)) = engine.claim(&claim, How::Create).await else {
            panic!("the name is free")
        };
        let write = MemoWrite {
            name: claim.name.clone(),
            version: MemoVersion { id: claim.id, number: 1 },
            hold_token: grant.token,
            token: grant.token,
            memo: NewMemo::new(MemoKind::ONCE, "x", Duration::from_secs(3600)).unwrap(),
            after: HoldAfter::Release,
        };
        assert!(engine.client.holds());
        assert_eq!(other.memos().unwrap().write(&write).await.unwrap(), Written::Done);
        assert_eq!(engine.memos().unwrap().write(&write).await.unwrap(), Written::Overtaken);
        assert!(!engine.client.holds(), "the client counts no hold that has ended");
    }
}
