//! What the cases about memos send, and the end of the memos of a case.

use std::time::Duration;

use leasehold_core::{
    Claim, EngineError, Grant, HoldAfter, MIN_MEMO_KEEP, Memo, MemoKind, MemoVersion, MemoWrite, Memos, Mode,
    Name, NewMemo, Notification, Written,
};

use super::{
    case::{Outcome, Stop, expect_match},
    fixture::{Client, Fixture},
};

/// For how long the memos of most cases are kept: far longer than a case takes. At the end of its case a memo is
/// replaced by one that ends soon.
pub(super) const KEEP: Duration = Duration::from_secs(300);

/// The write of a memo of the kind "once" under a hold, which goes on.
pub(super) fn write_of(claim: &Claim, grant: &Grant, number: u64, bytes: &[u8]) -> MemoWrite {
    MemoWrite {
        name: claim.name.clone(),
        version: MemoVersion { id: claim.id, number },
        hold_token: grant.token,
        token: grant.token,
        memo: NewMemo::new(MemoKind::ONCE, bytes, KEEP).expect("the memos of cases are valid"),
        after: HoldAfter::Keep,
    }
}

/// As [`write_of`], and the hold ends with the write.
pub(super) fn ending_write(claim: &Claim, grant: &Grant, number: u64, bytes: &[u8]) -> MemoWrite {
    MemoWrite { after: HoldAfter::Release, ..write_of(claim, grant, number, bytes) }
}

impl Client<'_> {
    /// The memos of the engine.
    pub(super) fn memos(&self) -> Outcome<&dyn Memos> {
        self.engine.memos().ok_or_else(|| Stop::Fail("the engine has no memos".into()))
    }

    /// Reads a memo. An error of the engine fails the case.
    pub(super) async fn memo(&self, name: &Name) -> Outcome<Option<Memo>> {
        self.memos()?.read(name).await.map_err(|error| {
            self.fixture.note_error(&error);
            Stop::Fail(format!("read the memo of {name}: {error:?}"))
        })
    }

    /// Writes a memo, for cases that expect an error.
    pub(super) async fn send_memo(&self, write: &MemoWrite) -> Result<Written, EngineError> {
        self.fixture.memo_names.borrow_mut().insert(write.name.clone());
        let memos = self.engine.memos().expect("the case is skipped for engines without memos");
        memos.write(write).await.inspect_err(|error| self.fixture.note_error(error))
    }

    /// Writes a memo. An error of the engine fails the case.
    pub(super) async fn write_memo(&self, write: &MemoWrite) -> Outcome<Written> {
        let written = self.send_memo(write).await;
        written.map_err(|error| Stop::Fail(format!("write the memo of {}: {error:?}", write.name)))
    }

    /// Writes a memo, and fails the case unless it is written.
    pub(super) async fn write_done(&self, write: &MemoWrite) -> Outcome {
        expect_match!(
            self.write_memo(write).await?,
            Written::Done => (),
            "write {} under a hold of {}", write.version.number, write.name
        );
        Ok(())
    }

    /// Reads notifications until one concerns the memo of this name.
    pub(super) async fn wait_for_memo_hint(&self, name: &Name, after: &str) -> Outcome {
        let hinted = async {
            loop {
                for notification in self.engine.notifications().await {
                    match notification {
                        Notification::Memo { name: changed } if changed == *name => return,
                        Notification::AskAll => return,
                        _ => {}
                    }
                }
            }
        };
        let limit = self.fixture.patience();
        let late =
            |_| Stop::Fail(format!("no notification for a follower of {name} after {after} in {limit:?}"));
        tokio::time::timeout(limit, hinted).await.map_err(late)
    }
}

impl<'a> Fixture<'a> {
    /// Replaces the memos of the case by memos that end at once, so that nothing of them is left. Returns the failures.
    pub(super) async fn end_memos(&'a self) -> Vec<String> {
        let names = self.memo_names.take();
        if names.is_empty() {
            return Vec::new();
        }
        let client = self.client().await;
        let mut failures = Vec::new();
        for name in names {
            if let Err(Stop::Fail(failure)) = self.end_memo(&client, &name).await {
                failures.push(format!("the end of the memo of {name}: {failure}"));
            }
        }
        failures
    }

    async fn end_memo(&self, client: &Client<'_>, name: &Name) -> Outcome {
        let Some(memo) = client.memo(name).await? else { return Ok(()) };
        let claim = self.try_claim(name, Mode::Exclusive);
        let grant = client.acquire_soon(&claim).await?;
        let kind = MemoKind::new(memo.kind.as_str()).map_err(|error| error.to_string())?;
        let memo = NewMemo::new(kind, "", MIN_MEMO_KEEP).map_err(|error| error.to_string())?;
        client.write_done(&MemoWrite { memo, ..ending_write(&claim, &grant, 1, b"") }).await
    }
}
