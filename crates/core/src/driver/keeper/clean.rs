//! Cleanups: releases that are sent in batches, and sent again until the engine's answer is certain (R9), or until all
//! that the claim had on the engine has lapsed.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::sync::oneshot;

use super::exit::PendingItem;
use crate::{
    EngineError, Error, Fault, Instant, Loss, Name, Release, Released,
    contract::observe::Verb,
    driver::keeper::{KeeperJob, released_at_once},
    driver::local::release_result,
    driver::shared::Shared,
};

/// The most releases sent by one request.
const MAX_BATCH_SIZE: usize = 1000;
/// The pause before a release is sent again. It doubles each time, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A release that is still to be sent, or was not answered yet.
pub(crate) struct Cleanup {
    release: Release,
    /// The name of the engine, for error messages.
    engine: &'static str,
    /// When the cleanup began.
    began_at: Instant,
    /// When nothing of the claim can be left on the engine any more, whatever happened to the requests.
    give_up_at: Instant,
    /// This release was sent before, and may have arrived: an answer "not there" may be the effect of the earlier
    /// request.
    was_sent: bool,
    /// `None` for the release of a claim that no user held.
    hold_release: Option<HoldRelease>,
    /// The cleanup counts as pending until it is done, so that closing can wait for it.
    _pending: PendingItem,
}

/// The part of a cleanup that releases a hold which its guard still considered valid; a caller may wait for the answer.
struct HoldRelease {
    /// The lease cannot lapse before this instant.
    deadline: Instant,
    /// How long the caller waits for an answer.
    until: Instant,
    /// Where the outcome is sent to.
    reply: oneshot::Sender<Result<(), Error>>,
}

impl Cleanup {
    pub(crate) fn new(shared: &Shared, release: Release, ttl: Duration) -> Self {
        // A queue entry may outlive a short lease, and so may the entry of a pushed grant that lapsed.
        let began_at = shared.now();
        let give_up_at = began_at.after(ttl.max(shared.profile.entry_life) + shared.profile.request_life);
        let engine = shared.profile.engine;
        Self {
            release,
            engine,
            began_at,
            give_up_at,
            was_sent: false,
            hold_release: None,
            _pending: shared.pending.add(),
        }
    }

    pub(crate) fn name(&self) -> &Name {
        &self.release.name
    }

    /// Records that the release was sent before.
    pub(crate) fn already_sent(mut self) -> Self {
        self.was_sent = true;
        self
    }

    /// Makes this the cleanup of a hold that was valid until `deadline`, with the outcome sent to `reply`, at the
    /// latest after the first try that ends after `until`.
    pub(crate) fn for_hold(
        mut self,
        deadline: Instant,
        until: Instant,
        reply: oneshot::Sender<Result<(), Error>>,
    ) -> Self {
        self.hold_release = Some(HoldRelease { deadline, until, reply });
        self
    }

    /// Reports to the releasing caller what the engine answered, when the answer leaves no doubt. `freed`: the hold was
    /// there; `last_doubt`: when holds were last put in doubt.
    fn report_answer(self, shared: &Shared, freed: bool, now: Instant, last_doubt: Instant) {
        let Some(HoldRelease { deadline, reply, .. }) = self.hold_release else { return };
        let unknown_error = |what| unknown_error(self.engine, &self.release, what);
        let result = match freed {
            true => Ok(()),
            false if !self.was_sent => {
                shared.report_loss_at_release(&self.release);
                release_result(&self.release.name, Some(Loss::Gone.into()))
            }
            // I10: an earlier request of this release certainly freed the hold only if the lease cannot have lapsed by
            // now and no doubt came after the cleanup began.
            false if now < deadline && last_doubt <= self.began_at => Ok(()),
            false => Err(unknown_error("was answered after the hold may have ended by itself")),
        };
        let _ = reply.send(result);
    }

    /// Handles an error of the engine. The releasing caller gets the error at once if a later try will not help either.
    /// For a release with a minimum hold time, the caller also gets it at once if the engine refuses only for now: the
    /// refusal may last longer than the process.
    fn handle_error(mut self, error: &EngineError) -> Self {
        let is_final = match error.fault {
            Fault::Denied | Fault::Misconfigured => true,
            Fault::Refused => self.release.min_hold.is_some(),
            Fault::Retry | Fault::Full | Fault::Unknown | Fault::Internal => false,
        };
        if is_final && let Some(HoldRelease { reply, .. }) = self.hold_release.take() {
            let _ =
                reply.send(Err(Error::from_engine(error.without_source(), &self.release.name, self.engine)));
        }
        self
    }

    /// Reports to the releasing caller that the engine did not answer in time, that of the lease if that is known: a
    /// later answer could not tell whether the release or the end of the lease freed the hold. The cleanup goes on
    /// without the caller.
    fn report_silence(mut self, now: Instant) -> Self {
        if self.hold_release.as_ref().is_some_and(|hold_release| now >= hold_release.until) {
            self.report_unanswered();
        }
        self
    }

    /// Reports that the engine did not answer the release before the cleanup was given up.
    fn abandon(mut self) {
        self.report_unanswered();
    }

    fn report_unanswered(&mut self) {
        if let Some(hold_release) = self.hold_release.take() {
            let _ = hold_release.reply.send(Err(unknown_error(
                self.engine,
                &self.release,
                "was not answered: it is free when its lease has run out",
            )));
        }
    }
}

/// The error for a release whose outcome is unknown.
fn unknown_error(engine: &str, release: &Release, what: &str) -> Error {
    let error = EngineError::new(Fault::Unknown, format!("the release {what}"));
    Error::from_engine(error, &release.name, engine)
}

/// Starts the cleanups, in batches.
pub(crate) fn start_cleanups(shared: &Arc<Shared>, mut cleanups: Vec<Cleanup>) {
    while !cleanups.is_empty() {
        let remaining = cleanups.split_off(cleanups.len().min(MAX_BATCH_SIZE));
        shared.spawn(run_cleanups(Arc::clone(shared), cleanups));
        cleanups = remaining;
    }
}

/// Sends cleanups as one batch, again and again until all are answered or given up.
pub(crate) async fn run_cleanups(shared: Arc<Shared>, mut cleanups: Vec<Cleanup>) {
    let mut pause = FIRST_PAUSE;
    loop {
        cleanups = send_once(&shared, cleanups).await;
        let now = shared.now();
        let (expired, remaining): (Vec<_>, Vec<_>) =
            cleanups.into_iter().partition(|cleanup| now >= cleanup.give_up_at);
        expired.into_iter().for_each(Cleanup::abandon);
        cleanups = remaining.into_iter().map(|cleanup| cleanup.report_silence(now)).collect();
        if cleanups.is_empty() {
            return;
        }
        shared.sleep_until(now.after(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Sends one request; returns the cleanups that have to be sent again.
async fn send_once(shared: &Arc<Shared>, cleanups: Vec<Cleanup>) -> Vec<Cleanup> {
    let releases: Vec<Release> = cleanups.iter().map(|cleanup| cleanup.release.clone()).collect();
    let observed = shared.observed_now();
    let request = shared.catch_panic(async { shared.engine.release(&releases).await });
    let answers = shared.with_timeout(shared.profile.request_timeout, request).await;
    let fault = match &answers {
        Some(Ok(answers)) => answers.iter().find_map(Released::fault),
        Some(Err(_)) => Some(Fault::Internal),
        None => Some(Fault::Unknown),
    };
    shared.report_answer(Verb::Release, observed, fault);
    // If the engine panicked, the releases may or may not have been applied.
    let mut answers = answers.and_then(Result::ok).unwrap_or_default().into_iter();
    let now = shared.now();
    let last_doubt = Instant::from_nanos(shared.last_doubt.load(Ordering::Relaxed));
    let mut remaining = Vec::new();
    for cleanup in cleanups {
        let answer = answers.next();
        if matches!(answer, Some(Released::Freed | Released::NotThere)) {
            shared.set_responsive();
        }
        match answer {
            Some(answer @ (Released::Freed | Released::NotThere)) => {
                let freed = matches!(answer, Released::Freed);
                cleanup.report_answer(shared, freed, now, last_doubt);
            }
            Some(Released::Unknown(error)) => {
                if matches!(error.fault, Fault::Refused | Fault::Denied | Fault::Misconfigured) {
                    shared.set_unresponsive();
                }
                remaining.push(cleanup.handle_error(&error).already_sent());
            }
            None => remaining.push(cleanup.already_sent()),
        }
    }
    remaining
}

impl Shared {
    /// Removes every trace of a claim that no request waits for: on this thread if the engine never waits, else through
    /// the keeper.
    pub(crate) fn clean_up(self: &Arc<Self>, release: Release, ttl: Duration) {
        if self.profile.inline {
            let observed = self.observed_now();
            let released = released_at_once(self.engine.release(std::slice::from_ref(&release)));
            self.report_answer(Verb::Release, observed, released.as_ref().and_then(Released::fault));
            if matches!(released, Some(Released::Freed | Released::NotThere)) {
                return;
            }
        }
        self.queue_job(KeeperJob::Release(Cleanup::new(self, release, ttl)));
    }
}
