//! Waits until the result is stored or it is the turn of this run, runs the work, and stores its result.

use std::time::Duration;

use super::Once;
use crate::{
    Error, ErrorKind, Guard, Memo, MemoKind, Modes, Name, NewMemo, OnceError, Owner, Ran, Request,
    contract::memo::kind_error, request::Family,
};

impl Once {
    pub(super) async fn run_or_replay<B, E>(
        self,
        waiting: Waiting,
        work: impl AsyncFnOnce(&Guard) -> Result<B, E>,
    ) -> Result<Ran, OnceError<E>>
    where
        B: Into<Vec<u8>>,
    {
        let guard = match self.turn(waiting).await.map_err(OnceError::NotBegun)? {
            Turn::Replay(bytes) => return Ok(Ran::Replayed(bytes)),
            Turn::Run(guard) => guard,
        };
        let done = guard.run(work(&guard)).await.map_err(OnceError::Cancelled)?;
        let bytes = match done {
            Ok(bytes) => bytes.into(),
            Err(error) => {
                // The error of the work counts, not that of the release: nothing is stored in any case.
                let _ = guard.release().await;
                return Err(OnceError::Work(error));
            }
        };
        let stored = match self.memo(bytes.clone()) {
            Ok(memo) => guard.release_with_memo(memo).await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(()) => Ok(Ran::Fresh(bytes)),
            Err(error) => Err(OnceError::NotStored { bytes, error }),
        }
    }

    /// Waits until the result is stored, or until it is the turn of this run.
    pub(super) async fn turn(&self, waiting: Waiting) -> Result<Turn, Error> {
        // All arguments are checked before anything is sent.
        self.memo(Vec::new())?;
        if let Some(bytes) = self.stored().await? {
            return Ok(Turn::Replay(bytes));
        }
        let began_at = self.locks.shared().now();
        let request = self.request_of_run();
        match request.try_acquire().await {
            Ok(guard) => return self.turn_under(guard).await,
            Err(error) if error.kind() == ErrorKind::Taken && waiting != Waiting::Never => {}
            Err(error) => return Err(error),
        }
        let acquire = |request: &Request| match waiting {
            Waiting::AtMost(limit) => {
                request.acquire_within(limit.saturating_sub(self.locks.shared().now().since(began_at)))
            }
            Waiting::UntilDone | Waiting::Never => request.acquire(),
        };
        if self.locks.profile().modes != Modes::Exclusive {
            let behind =
                acquire(&request.for_name(Ok(self.request.valid_name()?), Family::Shared, 1)).await?;
            let stored = self.stored().await;
            // R30: this hold was not used, so the next one is told how the run before it ended.
            drop(behind.in_transit());
            if let Some(bytes) = stored? {
                return Ok(Turn::Replay(bytes));
            }
        }
        self.turn_under(acquire(&request).await?).await
    }

    /// Looks again under the lock (R30): another run may have ended since.
    async fn turn_under(&self, guard: Guard) -> Result<Turn, Error> {
        match self.stored().await {
            Ok(None) => Ok(Turn::Run(guard)),
            stored => {
                drop(guard.in_transit());
                stored.map(|bytes| Turn::Replay(bytes.unwrap_or_default()))
            }
        }
    }

    fn request_of_run(&self) -> Request {
        let request = self.request.clone();
        match &self.owner {
            Some(label) => request.owner(Owner::new(label)),
            None => request,
        }
    }

    /// The memo of this result.
    pub(super) fn memo(&self, bytes: Vec<u8>) -> Result<NewMemo, Error> {
        let memo = NewMemo::new(MemoKind::ONCE, bytes, self.keep)?;
        Ok(match self.digest {
            Some(digest) => memo.print(digest),
            None => memo,
        })
    }

    /// The result in a memo, unless it is that of another payload.
    pub(super) fn result_of(&self, name: &Name, memo: Memo) -> Result<Vec<u8>, Error> {
        let engine = self.locks.profile().engine;
        if memo.kind != MemoKind::ONCE {
            return Err(Error::from_engine(kind_error(&memo.kind, &MemoKind::ONCE), name, engine));
        }
        let is_other = |stored: &[u8; 32]| self.digest.as_ref().is_some_and(|own| own != stored);
        if memo.print.as_ref().is_some_and(is_other) {
            let name_text = name.as_str();
            let message = format!(
                "{engine} once {name_text:?}: the stored result belongs to another payload: use another key for this one"
            );
            return Err(Error::new(ErrorKind::Mismatch, message).of_name(name));
        }
        Ok(memo.bytes)
    }
}

/// How long a repeat waits for a run that is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    UntilDone,
    AtMost(Duration),
    Never,
}

/// What a call is to do.
pub(super) enum Turn {
    /// Return this stored result.
    Replay(Vec<u8>),
    /// Run the work under this guard.
    Run(Guard),
}
