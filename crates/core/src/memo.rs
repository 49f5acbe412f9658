//! Memos through a `Locks` and a guard: reading, following, and writing under a hold.

use std::sync::Arc;

use crate::{
    BoxFuture, Engine, EngineError, Error, ErrorKind, Fault, Guard, GuardEnd, HoldAfter, Locks, Memo,
    MemoFollower, MemoKind, Mode, Name, NewMemo, Previous,
    contract::memo::kind_error,
    driver::keeper::{KeeperJob, MemoOutcome, MemoSender, poll_once},
    driver::local::Ending,
    driver::shared::Shared,
    guard::Ended,
};

impl Locks {
    /// The memo of `name`: the record that a holder of the name wrote last, also after its hold has ended. `None` if
    /// there is none, or if its time is over. Takes no lock and waits for no holder. Cancel safe.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the engine stores no memos (then nothing was sent), or if the
    /// stored data is no memo; [`is_invalid`](Error::is_invalid) for an invalid name; the engine's error.
    pub async fn read_memo(&self, name: impl AsRef<str>) -> Result<Option<Memo>, Error> {
        let name = Name::new(name.as_ref())?;
        self.check_memos(&name)?;
        self.read_memo_of(&name).await
    }

    /// [`read_memo`](Self::read_memo) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`read_memo`](Self::read_memo).
    #[track_caller]
    pub fn read_memo_blocking(&self, name: impl AsRef<str>) -> Result<Option<Memo>, Error> {
        self.shared().block_on(self.read_memo(name))?
    }

    /// Follows the memo of `name`: see [`MemoFollower`]. Sends nothing before the first
    /// [`changed`](MemoFollower::changed), except a subscription.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the engine stores no memos; [`is_invalid`](Error::is_invalid)
    /// for an invalid name; [`ErrorKind::Closed`] and [`ErrorKind::Forked`].
    pub fn follow_memo(&self, name: impl AsRef<str>) -> Result<MemoFollower, Error> {
        let name = Name::new(name.as_ref())?;
        self.check_memos(&name)?;
        // Only the keeper reads the notifications.
        self.shared().ensure_served()?;
        Ok(MemoFollower::new(self, &name))
    }

    /// An error, if the engine stores no memos.
    fn check_memos(&self, name: &Name) -> Result<(), Error> {
        check_memos(self.shared(), name)
    }

    pub(crate) async fn read_memo_of(&self, name: &Name) -> Result<Option<Memo>, Error> {
        let (shared, read_name) = (Arc::clone(self.shared()), name.clone());
        let call = move |engine: Arc<dyn Engine>| -> BoxFuture<'static, _> {
            Box::pin(async move {
                let memos = engine.memos().ok_or_else(|| shared.no_memos())?;
                shared.bounded_request(memos.read(&read_name)).await.map_err(failed_read)
            })
        };
        self.inspect(name.as_str(), call).await
    }
}

/// A read changes nothing, so its outcome cannot be unknown: it failed.
fn failed_read(error: EngineError) -> EngineError {
    let fault = if error.fault == Fault::Unknown { Fault::Retry } else { error.fault };
    EngineError { fault, ..error }
}

/// An error, if a memo is of another kind than its reader expects.
pub(crate) fn check_kind(
    memo: &Memo,
    expected: &MemoKind,
    name: &Name,
    engine: &'static str,
) -> Result<(), Error> {
    if memo.kind == *expected {
        return Ok(());
    }
    Err(Error::from_engine(kind_error(&memo.kind, expected), name, engine))
}

/// An error, if the engine stores no memos. Nothing is sent.
pub(crate) fn check_memos(shared: &Shared, name: &Name) -> Result<(), Error> {
    match shared.engine.memos() {
        Some(_) => Ok(()),
        None => Err(Error::from_engine(shared.no_memos(), name, shared.profile.engine)),
    }
}

impl Guard {
    /// Writes the memo of the name under this hold. The engine writes it only if the hold still exists there, in one
    /// atomic step. Readers get the whole memo or the one before, and after this call has returned, no older one.
    ///
    /// A write without an answer is repeated as long as the hold is valid, for at most 30 s. After a write, the release
    /// of the hold does not hand it over to the next request of this process, which makes a claim of its own: a late
    /// write never lands under another guard.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is not known whether the memo is written. A later write of this hold replaces it in
    /// any case: an earlier request that arrives late changes nothing.
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if the hold had ended: the memo was not written. [`is_unknown`](Error::is_unknown)
    /// if the engine did not answer. [`is_misconfigured`](Error::is_misconfigured) if the engine stores no memos
    /// (then nothing was sent), or if a memo of another kind is stored under the name.
    /// [`is_invalid`](Error::is_invalid) for a hold that is not exclusive. [`ErrorKind::Forked`] in a child process.
    /// Otherwise the engine's error, with which the memo was not written.
    pub async fn write_memo(&self, memo: NewMemo) -> Result<(), Error> {
        let shared = self.shared_handle();
        shared.ensure_served()?;
        self.check_writes_memos()?;
        if let Some(report) = self.validity.loss_report(shared.now()) {
            return Err(self.lost_error(&report));
        }
        let engine = shared.profile.engine;
        let Some(token) = shared.begin_memo_write(self.name(), self.id()) else {
            return MemoOutcome::Overtaken.into_result(self.name(), engine, None);
        };
        let hold = (&self.validity, token);
        let mut sender = MemoSender::new(shared, (self.name(), self.id()), hold, memo, HoldAfter::Keep);
        let mut outcome = None;
        if shared.profile.inline {
            let mut attempt = std::pin::pin!(sender.attempt());
            outcome = poll_once(attempt.as_mut()).flatten();
        }
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => send_on_keeper(shared, sender).await?,
        };
        let mut loss = None;
        if matches!(outcome, MemoOutcome::Overtaken) {
            // The renewal finds out how the hold ended, and reports that to every guard of it.
            let _ = shared.confirm(self.name(), self.id(), None).await;
            loss = self.validity.loss(shared.now());
        }
        outcome.into_result(self.name(), engine, loss)
    }

    /// [`write_memo`](Self::write_memo) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`write_memo`](Self::write_memo).
    #[track_caller]
    pub fn write_memo_blocking(&self, memo: NewMemo) -> Result<(), Error> {
        self.shared_handle().block_on(self.write_memo(memo))?
    }

    /// Writes the memo of the name and releases the hold, in one atomic step of the engine: nobody finds the name free
    /// without the memo. The hold is not handed over to the next request of this process, which makes a claim of its
    /// own. If several guards share the hold, the memo is written and this guard alone is released.
    ///
    /// Whatever the outcome, the guard is released: after an error, in the background. Dropping the future stops
    /// neither the write nor the release.
    ///
    /// # Errors
    /// As [`write_memo`](Self::write_memo); and as [`release`](Self::release).
    pub fn release_with_memo(
        mut self,
        memo: NewMemo,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let begun = self.check_writes_memos().map(|()| {
            let ending = Ending { ended: Previous::Clean, min_hold_until: None };
            let outcome = self.end_by(ending, GuardEnd::Released, |shared, guard_release| {
                shared.release_guard_with_memo(guard_release, memo)
            });
            Ended::new(self.name(), outcome)
        });
        async move { begun?.await }
    }

    /// [`release_with_memo`](Self::release_with_memo) for code without an executor: blocks the thread until the engine
    /// has answered.
    ///
    /// # Errors
    /// As [`release_with_memo`](Self::release_with_memo).
    #[track_caller]
    pub fn release_with_memo_blocking(self, memo: NewMemo) -> Result<(), Error> {
        let handle = Arc::clone(self.shared_handle());
        handle.block_on(self.release_with_memo(memo))?
    }

    /// An error, if this guard can write no memo.
    fn check_writes_memos(&self) -> Result<(), Error> {
        check_memos(self.shared_handle(), self.name())?;
        if self.mode() == Mode::Exclusive {
            return Ok(());
        }
        let (name, mode) = (self.name().as_str(), self.mode());
        Err(Error::invalid(format!(
            "the hold of {name:?} is {mode}, and only an exclusive hold writes the memo of its name"
        )))
    }
}

/// Leaves the write to the keeper, which stops repeating it when this future is dropped.
async fn send_on_keeper(shared: &Arc<Shared>, sender: MemoSender) -> Result<MemoOutcome, Error> {
    let (tx, rx) = tokio::sync::oneshot::channel();
    let pending = shared.pending.add();
    shared.queue_job(KeeperJob::Spawn(Box::pin(async move {
        let _pending = pending;
        let outcome = sender.run(|| !tx.is_closed()).await;
        let _ = tx.send(outcome);
    })));
    rx.await.map_err(|_| closed_error())
}

fn closed_error() -> Error {
    Error::new(ErrorKind::Closed, "this Locks was closed, or its keeper's runtime is gone")
}
