//! Waits until the result is stored or it is the turn of this run, runs the work, and stores its result.

use std::{ops::ControlFlow, time::Duration};

use super::Once;
use crate::{
    Error, ErrorKind, Guard, Memo, MemoKind, Name, NewMemo, OnceError, Ran,
    memo::check_kind,
    turn::{Look, Turn, Waiting, next_turn},
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
        let mut guard = match self.turn(waiting).await.map_err(OnceError::NotBegun)? {
            Turn::Done(bytes) => return Ok(Ran::Replayed(bytes)),
            Turn::Run(guard, ()) => guard,
        };
        guard.set_working(true);
        let done = guard.run(work(&guard)).await.map_err(OnceError::Cancelled)?;
        guard.set_working(false);
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
    pub(super) async fn turn(&self, waiting: Waiting) -> Result<Turn<Vec<u8>, ()>, Error> {
        // All arguments are checked before anything is sent.
        self.memo(Vec::new())?;
        next_turn(&self.locks, &self.request.for_new_owner(self.owner.as_deref()), waiting, self).await
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
        check_kind(&memo, &MemoKind::ONCE, name, engine)?;
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

impl Look for Once {
    /// The stored result.
    type Done = Vec<u8>;
    type Open = ();

    async fn look(&self) -> Result<ControlFlow<Vec<u8>>, Error> {
        Ok(self.stored().await?.map_or(ControlFlow::Continue(()), ControlFlow::Break))
    }
}

/// The turn of a run, for bindings of other languages: their work is no closure of Rust.
#[doc(hidden)]
#[derive(Debug)]
#[non_exhaustive]
pub enum OnceTurn {
    /// An earlier run did the work: this is its stored result.
    Stored(Vec<u8>),
    /// The work is to run under this guard. If the guard is dropped, the next run is told that this one was abandoned.
    Run(Guard),
}

/// [`Once::run`] in single steps.
#[doc(hidden)]
impl Once {
    /// Waits until the result is stored, or until it is the turn of this run; with `limit` for at most that long; with
    /// a `limit` of zero not at all. Errors and cancel safety are those of [`Once::run`] before the work.
    pub async fn begin(self, limit: Option<Duration>) -> Result<OnceTurn, Error> {
        let waiting = match limit {
            None => Waiting::UntilDone,
            Some(Duration::ZERO) => Waiting::Never,
            Some(limit) => Waiting::AtMost(limit),
        };
        Ok(match self.turn(waiting).await? {
            Turn::Done(bytes) => OnceTurn::Stored(bytes),
            Turn::Run(mut guard, ()) => {
                guard.set_working(true);
                OnceTurn::Run(guard)
            }
        })
    }

    /// Stores the result of work that ran under `guard`, in the step that releases the name. Its errors are those of
    /// [`OnceError::NotStored`].
    pub async fn store(self, mut guard: Guard, bytes: Vec<u8>) -> Result<(), Error> {
        guard.set_working(false);
        guard.release_with_memo(self.memo(bytes)?).await
    }

    /// Releases the name after work that failed. Nothing is stored.
    pub async fn give_up(mut guard: Guard) -> Result<(), Error> {
        guard.set_working(false);
        guard.release().await
    }
}
