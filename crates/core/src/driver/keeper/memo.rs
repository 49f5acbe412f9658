//! Sends the write of a memo until its outcome is certain, or until the hold has ended.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    EngineError, Error, ErrorKind, Fault, HoldAfter, Instant, Loss, Memo, MemoVersion, MemoWrite, Name,
    NewMemo, Token, Written,
    contract::observe::Verb,
    driver::{keeper::KeeperJob, shared::Shared, validity::Validity},
};

/// The longest time for which a write is repeated, also under a hold that never lapses: as long as a hold of the
/// default ttl lasts without renewal.
const PATIENCE: Duration = crate::DEFAULT_TTL;
/// The pause before a write is repeated. It doubles each time, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How much later than a limit the requests end that are no waits: a wait reports its own error before, and I12 allows
/// a tenth of a second.
const LIMIT_MARGIN: Duration = Duration::from_millis(50);

/// The outcome of the write of a memo.
#[derive(Debug)]
pub(crate) enum MemoOutcome {
    /// It is stored.
    Done,
    /// The hold had ended on the engine: it is not stored.
    Overtaken,
    /// It is not stored, or it is unknown whether it is: the fault tells.
    Failed(EngineError),
}

/// A write on its way.
pub(crate) struct MemoSender {
    shared: Arc<Shared>,
    write: MemoWrite,
    /// The validity of the guard that writes.
    validity: Arc<Validity>,
    began_at: Instant,
    /// A request of this write may have been applied.
    may_be_written: bool,
    /// The engine answered that the hold has ended, so no request of this write can be applied any more.
    is_overtaken: bool,
}

impl MemoSender {
    /// A write under the hold that the engine knows by `hold_token`.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        (name, id): (&Name, crate::ClaimId),
        (validity, hold_token): (&Arc<Validity>, Token),
        memo: NewMemo,
        after: HoldAfter,
    ) -> Self {
        let number = shared.memo_numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let (version, token) = (MemoVersion { id, number }, validity.token());
        Self {
            shared: Arc::clone(shared),
            write: MemoWrite { name: name.clone(), version, hold_token, token, memo, after },
            validity: Arc::clone(validity),
            began_at: shared.now(),
            may_be_written: false,
            is_overtaken: false,
        }
    }

    /// Sends the write until its outcome is certain, the hold has ended, or nobody waits for the outcome.
    pub(crate) async fn run(mut self, is_wanted: impl Fn() -> bool) -> MemoOutcome {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(outcome) = self.attempt().await {
                return outcome;
            }
            if !is_wanted() {
                return MemoOutcome::Failed(EngineError::new(Fault::Unknown, "its caller has gone"));
            }
            self.shared.sleep_until(self.shared.now().after(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Sends the write one time, or reads back what is stored; `None` if the next attempt may bring certainty.
    pub(crate) async fn attempt(&mut self) -> Option<MemoOutcome> {
        if !self.is_overtaken {
            match self.send().await {
                Ok(Written::Done) => return Some(MemoOutcome::Done),
                Ok(Written::Overtaken) if !self.may_be_written => return Some(MemoOutcome::Overtaken),
                Ok(Written::Overtaken) => self.is_overtaken = true,
                Err(error) => {
                    self.may_be_written |= error.fault.may_be_applied();
                    return self.failed(error);
                }
            }
        }
        match self.read_back().await {
            Ok(memo) => Some(self.settle(memo.as_ref())),
            Err(error) => self.failed(error),
        }
    }

    /// Decides by the stored memo whether this write was applied, after the end of its hold.
    fn settle(&self, stored: Option<&Memo>) -> MemoOutcome {
        let own = self.write.version;
        let replaced = "a later memo is stored in its place, and it is unknown whether it was written before";
        let ended =
            "no memo is stored, and it is unknown whether it was written and replaced by one that has ended";
        match stored {
            Some(memo) if memo.version.id == own.id && memo.version.number >= own.number => MemoOutcome::Done,
            Some(memo) if memo.version.id == own.id || memo.token < self.write.token => {
                MemoOutcome::Overtaken
            }
            Some(_) => MemoOutcome::Failed(EngineError::new(Fault::Unknown, replaced)),
            // A later holder may have replaced it by a memo that was kept for a shorter time.
            None => MemoOutcome::Failed(EngineError::new(Fault::Unknown, ended)),
        }
    }

    /// The outcome after this error; `None` if a repetition may help.
    fn failed(&self, error: EngineError) -> Option<MemoOutcome> {
        let is_final = !matches!(error.fault, Fault::Retry | Fault::Full | Fault::Unknown);
        let now = self.shared.now();
        let is_over = now.since(self.began_at) >= PATIENCE || self.validity.loss(now).is_some();
        if !is_final && !is_over {
            return None;
        }
        // R12: an earlier request may have been applied, whatever the last error says.
        let fault = if self.may_be_written { Fault::Unknown } else { error.fault };
        let source = error.source;
        Some(MemoOutcome::Failed(EngineError { fault, message: error.message, source }))
    }

    async fn send(&self) -> Result<Written, EngineError> {
        let request = async {
            let memos = self.shared.engine.memos().ok_or_else(|| self.shared.no_memos())?;
            memos.write(&self.write).await
        };
        let observed = self.shared.observed_now();
        let written = self.shared.bounded_request(request).await;
        let fault = written.as_ref().err().map(|error| error.fault);
        self.shared.report_answer(Verb::Memo, observed, fault);
        written
    }

    async fn read_back(&self) -> Result<Option<Memo>, EngineError> {
        let request = async {
            let memos = self.shared.engine.memos().ok_or_else(|| self.shared.no_memos())?;
            memos.read(&self.write.name).await
        };
        self.shared.bounded_request(request).await
    }
}

impl MemoOutcome {
    /// The result for the caller. `loss`: why the hold of the guard ended, if that is known.
    pub(crate) fn into_result(self, name: &Name, engine: &str, loss: Option<Loss>) -> Result<(), Error> {
        match self {
            Self::Done => Ok(()),
            Self::Overtaken => {
                let loss = loss.unwrap_or(Loss::Gone);
                let name = name.as_str();
                Err(Error::new(
                    ErrorKind::Lost(loss),
                    format!("the memo of {name:?} was not written: its hold was lost before: {loss}"),
                ))
            }
            Self::Failed(mut error) => {
                let what = if error.fault.may_be_applied() {
                    "it is unknown whether the memo was written"
                } else {
                    "the memo was not written"
                };
                error.message = format!("{what}: {}", error.message);
                Err(Error::from_engine(error, name, engine))
            }
        }
    }
}

impl Shared {
    /// The error of an engine that stores no memos.
    pub(crate) fn no_memos(&self) -> EngineError {
        let reason = self.profile.no_memos.unwrap_or("it has none here");
        EngineError::new(Fault::Misconfigured, format!("the engine stores no memos: {reason}"))
    }

    /// One request: its answer, or an error with an unknown outcome after the engine's time for a request.
    pub(crate) async fn bounded_request<T>(
        &self,
        request: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let answer = async {
            let answer = self.catch_panic(request).await;
            answer.unwrap_or_else(|panicked| Err(panicked.into_error()))
        };
        if self.profile.inline {
            return answer.await;
        }
        let timeout = self.profile.request_timeout;
        let answer = self.with_timeout(timeout, answer).await;
        let no_answer = || Err(EngineError::new(Fault::Unknown, format!("no answer within {timeout:?}")));
        answer.unwrap_or_else(no_answer)
    }

    /// Resolves at `at`, by the clock of the keeper. The channel is closed early when the keeper ends.
    pub(crate) fn alarm(self: &Arc<Self>, at: Instant) -> oneshot::Receiver<()> {
        let (mut tx, rx) = oneshot::channel();
        let shared = Arc::clone(self);
        self.queue_job(KeeperJob::Spawn(Box::pin(async move {
            tokio::select! {
                biased;
                () = tx.closed() => return,
                () = shared.sleep_until(at) => {}
            }
            let _ = tx.send(());
        })));
        rx
    }

    /// Awaits `work` for at most `limit` and [`LIMIT_MARGIN`] (I12). Within this time an acquire of `work` with the
    /// same limit reports its own error. What is not done then waits for the answer to a request before or after the
    /// acquire: the engine does not answer, or the requests together take longer than the limit.
    pub(crate) async fn within_limit<T>(
        self: &Arc<Self>,
        name: &Name,
        limit: Duration,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        if let Some(done) = self.done_within(limit, work).await {
            return done;
        }
        let (engine, name_text) = (self.profile.engine, name.as_str());
        let message = format!(
            "{engine} lock {name_text:?}: not finished within {limit:?}: the requests that come before and after the \
             grant were not all answered in this time"
        );
        Err(Error::new(ErrorKind::Unreachable, message).of_name(name))
    }

    /// The result of `work`, or `None` after `limit` and [`LIMIT_MARGIN`].
    pub(crate) async fn done_within<T>(
        self: &Arc<Self>,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let until = self.now().after(limit.saturating_add(LIMIT_MARGIN));
        let mut work = pin!(work);
        // Where the engine answers at once, no timer is needed.
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(done);
        }
        tokio::select! {
            biased;
            done = work.as_mut() => return Some(done),
            _ = self.alarm(until) => {}
        }
        // The alarm also ends when the keeper ends. Then the work ends too, with an error of its own.
        if self.now() < until { Some(work.await) } else { None }
    }
}
