//! Cleanups: releases that are sent in batches, and again until the engine is certain (R9) or the lease has run out
//! anyway.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::sync::oneshot;

use super::exit::PendingItem;
use crate::{
    EngineError, Error, Fault, Instant, Loss, Name, Release, Released,
    driver::keeper::{KeeperJob, at_once_all},
    driver::local::release_result,
    driver::shared::Shared,
};

/// The most releases sent by one request.
const BATCH: usize = 1000;
/// The pause before a release is sent again. It doubles each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A release that is still to be sent, or was not answered yet.
pub(crate) struct Cleanup {
    release: Release,
    /// The name of the engine, for errors.
    engine: &'static str,
    /// When the cleanup began.
    began: Instant,
    /// When nothing of the claim can be left on the engine any more, whatever happened to the requests.
    give_up: Instant,
    /// This release was sent before, and may have arrived: an answer "not there" may be the effect of that request.
    was_sent: bool,
    /// `None` for the release of a claim that no user held.
    hold: Option<HoldRelease>,
    /// Counted as pending until it is done, so that closing can wait for it.
    _pending: PendingItem,
}

/// The part of a cleanup that releases a hold which its guard still considered valid; a caller may wait for the answer.
struct HoldRelease {
    /// Until when the lease cannot have lapsed.
    deadline: Instant,
    /// Where the outcome is sent to.
    reply: oneshot::Sender<Result<(), Error>>,
}

impl Cleanup {
    pub(crate) fn new(shared: &Shared, release: Release, ttl: Duration) -> Self {
        // A queue entry may outlive a short lease, and so may the entry of a pushed grant that lapsed.
        let began = shared.now();
        let give_up = began.after(ttl.max(shared.profile.entry_life) + shared.profile.request_life);
        let engine = shared.profile.engine;
        Self { release, engine, began, give_up, was_sent: false, hold: None, _pending: shared.pending.add() }
    }

    pub(crate) fn name(&self) -> &Name {
        &self.release.name
    }

    /// Marks the release as sent before.
    pub(crate) fn already_sent(mut self) -> Self {
        self.was_sent = true;
        self
    }

    /// Makes this the cleanup of a hold that was valid until `deadline`, with the outcome sent to `reply`.
    pub(crate) fn for_hold(mut self, deadline: Instant, reply: oneshot::Sender<Result<(), Error>>) -> Self {
        self.hold = Some(HoldRelease { deadline, reply });
        self
    }

    /// Reports a certain answer of the engine to the releasing caller. `freed`: the hold was there; `doubted`: when
    /// holds were last put in doubt.
    fn done(self, freed: bool, now: Instant, doubted: Instant) {
        let Some(HoldRelease { deadline, reply }) = self.hold else { return };
        let unknown = |what| unknown(self.engine, &self.release, what);
        let result = match freed {
            true => Ok(()),
            false if !self.was_sent => release_result(&self.release.name, Some(Loss::Gone.into())),
            // I10: this release certainly freed the hold only while the lease could not have lapsed and nothing else
            // had ended it.
            false if now < deadline && doubted <= self.began => Ok(()),
            false => Err(unknown("was answered after the hold may have ended by itself")),
        };
        let _ = reply.send(result);
    }

    /// Handles an error of the engine. The releasing caller gets it at once if a later try will not help either; and,
    /// for a release with a minimum hold time, also if the engine refuses only for now: that may last longer than the
    /// process.
    fn refused(mut self, error: &EngineError) -> Self {
        let is_final = match error.fault {
            Fault::Denied | Fault::Misconfigured => true,
            Fault::Refused => self.release.min_hold.is_some(),
            Fault::Retry | Fault::Full | Fault::Unknown | Fault::Internal => false,
        };
        if is_final && let Some(HoldRelease { reply, .. }) = self.hold.take() {
            let _ =
                reply.send(Err(Error::from_engine(error.without_source(), &self.release.name, self.engine)));
        }
        self
    }

    /// Reports that the release was not answered before its end.
    fn abandon(self) {
        if let Some(hold) = self.hold {
            let _ = hold.reply.send(Err(unknown(
                self.engine,
                &self.release,
                "was not answered: it is free when its lease has run out",
            )));
        }
    }
}

fn unknown(engine: &str, release: &Release, what: &str) -> Error {
    let error = EngineError::new(Fault::Unknown, format!("the release {what}"));
    Error::from_engine(error, &release.name, engine)
}

/// Starts the cleanups, in batches.
pub(crate) fn send(shared: &Arc<Shared>, mut cleanups: Vec<Cleanup>) {
    while !cleanups.is_empty() {
        let rest = cleanups.split_off(cleanups.len().min(BATCH));
        shared.spawn(run_cleanups(Arc::clone(shared), cleanups));
        cleanups = rest;
    }
}

/// Sends cleanups as one batch, again and again until all are answered or given up.
pub(crate) async fn run_cleanups(shared: Arc<Shared>, mut cleanups: Vec<Cleanup>) {
    let mut pause = FIRST_PAUSE;
    loop {
        cleanups = send_once(&shared, cleanups).await;
        let now = shared.now();
        let (expired, rest): (Vec<_>, Vec<_>) =
            cleanups.into_iter().partition(|cleanup| now >= cleanup.give_up);
        expired.into_iter().for_each(Cleanup::abandon);
        cleanups = rest;
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
    let request = shared.caught(async { shared.engine.release(&releases).await });
    let answers = shared.within(shared.profile.request_timeout, request).await;
    // If the engine panicked, the releases may or may not have been applied.
    let mut answers = answers.and_then(Result::ok).unwrap_or_default().into_iter();
    let now = shared.now();
    let doubted = Instant::from_nanos(shared.doubted.load(Ordering::Relaxed));
    let mut rest = Vec::new();
    for cleanup in cleanups {
        let answer = answers.next();
        if matches!(answer, Some(Released::Freed | Released::NotThere)) {
            shared.mark_responsive();
        }
        match answer {
            Some(Released::Freed) => cleanup.done(true, now, doubted),
            Some(Released::NotThere) => cleanup.done(false, now, doubted),
            Some(Released::Unknown(error)) => {
                if matches!(error.fault, Fault::Refused | Fault::Denied | Fault::Misconfigured) {
                    shared.mark_unresponsive();
                }
                rest.push(cleanup.refused(&error).already_sent());
            }
            None => rest.push(cleanup.already_sent()),
        }
    }
    rest
}

impl Shared {
    /// Removes every trace of a claim that no request waits for: on this thread where the engine never waits, else
    /// through the keeper.
    pub(crate) fn clean_up(self: &Arc<Self>, release: Release, ttl: Duration) {
        if self.profile.inline {
            let released = at_once_all(self.engine.release(std::slice::from_ref(&release)));
            if matches!(released, Some(Released::Freed | Released::NotThere)) {
                return;
            }
        }
        self.queue_job(KeeperJob::Release(Cleanup::new(self, release, ttl)));
    }
}
