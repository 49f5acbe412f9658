//! Sends the conversion of a hold until its outcome is certain, or until the hold has ended.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::exit::PendingItem;
use crate::{
    EngineError, Error, ErrorKind, Fault, Grant, Guard, Hold, Instant, Loss, Mode, Name, Release, Released,
    Renewed, Upgraded,
    contract::observe::Verb,
    driver::{
        local::{BegunConversion, NewClaim},
        shared::Shared,
        validity::Validity,
    },
};

/// The longest time for which a conversion is repeated: as long as a hold of the default ttl lasts without renewal.
const PATIENCE: Duration = crate::DEFAULT_TTL;
/// The pause before a request is repeated. It doubles each time, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often the engine may refuse a conversion for now, with certainty that nothing was applied, before it is given
/// up.
const MAX_REFUSALS: u32 = 5;

/// The guard that is converted. Its caller takes it out when the conversion has ended. If the caller has gone, the
/// guard stays in here, and is released when the conversion is settled.
pub(crate) struct GuardSlot(Mutex<Option<Guard>>);

impl GuardSlot {
    pub(crate) fn new(guard: Guard) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(guard))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Guard>> {
        // No code under this lock can panic in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A conversion on its way.
pub(crate) struct Converter {
    shared: Arc<Shared>,
    slot: Arc<GuardSlot>,
    /// The validity of the guard.
    validity: Arc<Validity>,
    begun: BegunConversion,
    began_at: Instant,
    /// A request of this conversion may have been applied, or may still be.
    may_be_applied: bool,
    /// How often the engine has refused the conversion for now.
    refusals: u32,
    /// The keeper goes on until the conversion is settled.
    _pending: PendingItem,
}

/// What the engine answered.
enum Found {
    /// The hold is shared for this time.
    Shared { sent_at: Instant, ttl: Option<Duration> },
    /// The new claim holds the name exclusively.
    Exclusive { sent_at: Instant, grant: Grant },
    /// The name has another hold or a waiter.
    Taken,
    /// The hold is gone.
    Lost(Loss),
    /// The hold was not converted, or it is unknown whether it was: the fault tells.
    Failed(EngineError),
}

impl Converter {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        slot: &Arc<GuardSlot>,
        validity: &Arc<Validity>,
        begun: BegunConversion,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            slot: Arc::clone(slot),
            validity: Arc::clone(validity),
            begun,
            began_at: shared.now(),
            may_be_applied: false,
            refusals: 0,
            _pending: shared.pending.add(),
        }
    }

    /// Converts the hold, and sends the outcome to `reply`.
    pub(crate) async fn run(mut self, reply: oneshot::Sender<Result<(), Error>>) {
        if self.slot.lock().is_none() {
            // The caller took the guard back before the first request: a blocking call that could never end.
            self.shared.end_conversion(self.name(), self.begun.hold.id);
            return;
        }
        let mut pause = FIRST_PAUSE;
        let found = loop {
            if let Some(found) = self.attempt().await {
                break found;
            }
            if Arc::strong_count(&self.slot) == 1 {
                break Found::Failed(EngineError::new(Fault::Unknown, "its caller has gone"));
            }
            self.shared.sleep_until(self.shared.now().after(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        match (found, &self.begun.new_claim) {
            (Found::Taken, Some(_)) if self.may_be_applied => {
                let taken = self.shared.upgrade_taken(self.name());
                self.rule_out(taken, reply).await;
            }
            (Found::Failed(error), Some(_)) if self.may_be_applied => {
                let error = self.failure(error);
                self.rule_out(error, reply).await;
            }
            (found, _) => drop(reply.send(self.settle(found))),
        }
    }

    fn name(&self) -> &Name {
        &self.begun.hold.name
    }

    /// Sends the conversion one time; `None` if the next attempt may bring certainty.
    async fn attempt(&mut self) -> Option<Found> {
        let (shared, sent_at) = (&self.shared, self.shared.now());
        let observed = shared.observed_now();
        let found = shared.bounded_request(self.send(sent_at)).await;
        shared.report_answer(Verb::Convert, observed, found.as_ref().err().map(|error| error.fault));
        let error = match found {
            Ok(found) => return Some(found),
            Err(error) => error,
        };
        self.may_be_applied |= error.fault.may_be_applied();
        let is_final = !matches!(error.fault, Fault::Retry | Fault::Full | Fault::Unknown);
        self.refusals += u32::from(!error.fault.may_be_applied());
        let is_refused = !self.may_be_applied && self.refusals >= MAX_REFUSALS;
        let now = self.shared.now();
        let is_over = is_refused || now.since(self.began_at) >= PATIENCE || self.validity.loss(now).is_some();
        (is_final || is_over).then_some(Found::Failed(error))
    }

    async fn send(&self, sent_at: Instant) -> Result<Found, EngineError> {
        let engine = &self.shared.engine;
        let conversions = engine.conversions().ok_or_else(|| self.shared.no_conversions())?;
        let hold = &self.begun.hold;
        let Some(NewClaim { claim, .. }) = &self.begun.new_claim else {
            return match conversions.downgrade(hold).await {
                Renewed::Extended { ttl, .. } => Ok(Found::Shared { sent_at, ttl }),
                Renewed::Lost(loss) => Ok(Found::Lost(loss)),
                Renewed::Unknown(error) => Err(error),
            };
        };
        if self.begun.is_downgrade_unsettled
            && let Some(loss) = self.shared.repeat_downgrade(hold).await?
        {
            return Ok(Found::Lost(loss));
        }
        Ok(match conversions.upgrade(hold, claim).await? {
            Upgraded::Held(grant) => Found::Exclusive { sent_at, grant },
            Upgraded::Taken => Found::Taken,
            Upgraded::Lost(loss) => Found::Lost(loss),
        })
    }

    /// Applies an outcome that is certain, and a downgrade that may have been applied.
    fn settle(&self, found: Found) -> Result<(), Error> {
        let (shared, id) = (&self.shared, self.begun.hold.id);
        let mut slot = self.slot.lock();
        match (found, slot.as_mut(), &self.begun.new_claim) {
            (Found::Shared { sent_at, ttl }, Some(guard), _) => shared.apply_downgrade(guard, sent_at, ttl),
            (Found::Exclusive { sent_at, grant }, Some(guard), Some(new_claim)) => {
                shared.apply_upgrade(guard, new_claim, &grant, sent_at)
            }
            (Found::Failed(error), Some(guard), None) if self.may_be_applied => {
                shared.count_as_shared(guard);
                Err(self.failure(error))
            }
            (Found::Failed(error), ..) => {
                shared.end_conversion(self.name(), id);
                Err(self.failure(error))
            }
            (Found::Taken, ..) => {
                shared.end_conversion(self.name(), id);
                Err(shared.upgrade_taken(self.name()))
            }
            (Found::Lost(loss), ..) => Err(self.lose(loss)),
            // The caller has the guard, whose mode is not that of the hold any more.
            (Found::Shared { .. } | Found::Exclusive { .. }, ..) => Err(self.lose(Loss::Gone)),
        }
    }

    /// The hold is lost. The claim of an upgrade may have been granted before, and must not stay.
    fn lose(&self, loss: Loss) -> Error {
        let (shared, id) = (&self.shared, self.begun.hold.id);
        shared.mark_lost(self.name(), id, loss);
        shared.end_conversion(self.name(), id);
        if let Some(new_claim) = &self.begun.new_claim {
            shared.undo(&new_claim.claim);
        }
        let report = self.validity.loss_report(shared.now()).unwrap_or(loss.into());
        let message =
            format!("the hold of {:?} was lost before it was converted: {report}", self.name().as_str());
        Error::new(ErrorKind::Lost(report.loss), message).of_name(self.name())
    }

    /// Whether a user has the guard, or is about to get it.
    fn has_user(&self) -> bool {
        let is_abandoned = Arc::strong_count(&self.slot) == 1 && self.slot.lock().is_some();
        !is_abandoned && self.shared.is_in_use(self.name(), self.begun.hold.id)
    }

    /// The error of a conversion that failed.
    fn failure(&self, error: EngineError) -> Error {
        if let Some(report) = self.validity.loss_report(self.shared.now()) {
            return self.lose(report.loss);
        }
        // R12: an earlier request may have been applied, whatever the last error says.
        let fault = if self.may_be_applied { Fault::Unknown } else { error.fault };
        let what = match (self.may_be_applied, &self.begun.new_claim) {
            (false, _) => "not converted",
            (true, None) => "it is unknown whether the hold was downgraded, and it counts as shared",
            (true, Some(_)) => {
                "it is unknown whether the hold was upgraded, and it is not valid until that is known"
            }
        };
        let message = format!("{what}: {}", error.message);
        let error = EngineError { fault, message, source: error.source };
        Error::from_engine(error, self.name(), self.shared.profile.engine).of_name(self.name())
    }

    /// An upgrade failed, and a request of it may still be applied: releases its claim, so that this cannot happen any
    /// more. Until then the hold is in doubt, because it may have ended. Replies with `error` when the first release
    /// was answered, or was not answered in time.
    async fn rule_out(&self, error: Error, reply: oneshot::Sender<Result<(), Error>>) {
        let Some(NewClaim { claim, .. }) = &self.begun.new_claim else { return };
        let (shared, id) = (&self.shared, self.begun.hold.id);
        shared.doubt_conversion(self.name(), id);
        let release = Release::of_unused(claim);
        // As for a cleanup: from then on nothing of the claim is left, and no request of it can arrive.
        let longest = claim.ttl.max(shared.profile.entry_life) + shared.profile.request_life;
        let give_up_at = shared.now().after(longest);
        let mut outcome = Some((reply, error));
        let mut pause = FIRST_PAUSE;
        loop {
            let released = shared.release_once(&release).await;
            let now = shared.now();
            let is_ruled_out = matches!(released, Released::NotThere) || now >= give_up_at;
            let settled = match (released, self.validity.loss(now)) {
                (Released::Freed, _) => Some(Some(Loss::Gone)),
                (_, Some(loss)) => Some(Some(loss)),
                (_, None) if is_ruled_out => {
                    shared.end_conversion(self.name(), id);
                    Some(None)
                }
                (_, None) => None,
            };
            if let Some(Some(loss)) = settled {
                let lost = self.lose(loss);
                outcome = outcome.map(|(reply, _)| (reply, lost));
            }
            if let Some((reply, error)) = outcome.take() {
                let _ = reply.send(Err(error));
            }
            if settled.is_some() {
                return;
            }
            if !self.has_user() {
                shared.undo(claim);
                return;
            }
            shared.sleep_until(shared.now().after(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Shared {
    /// The error of an engine that converts no holds.
    pub(crate) fn no_conversions(&self) -> EngineError {
        let reason = self.profile.no_conversion.unwrap_or("it has no conversions here");
        EngineError::new(Fault::Misconfigured, format!("the engine converts no holds: {reason}"))
    }

    /// Repeats the downgrade of a hold that counts as shared, until it is answered. Returns the loss that the engine
    /// reported: that of a hold which a renewal or a conversion asks for as well.
    pub(crate) async fn repeat_downgrade(&self, hold: &Hold) -> Result<Option<Loss>, EngineError> {
        let conversions = self.engine.conversions().ok_or_else(|| self.no_conversions())?;
        let exclusive = Hold { mode: Mode::Exclusive, ..hold.clone() };
        let observed = self.observed_now();
        let answer = self
            .bounded_request(async {
                match conversions.downgrade(&exclusive).await {
                    Renewed::Extended { .. } => Ok(None),
                    Renewed::Lost(loss) => Ok(Some(loss)),
                    Renewed::Unknown(error) => Err(error),
                }
            })
            .await;
        self.report_answer(Verb::Convert, observed, answer.as_ref().err().map(|error| error.fault));
        if matches!(answer, Ok(None)) {
            self.settle_downgrade(&hold.name, hold.id);
        }
        answer
    }

    /// One request to release one claim.
    async fn release_once(&self, release: &Release) -> Released {
        let observed = self.observed_now();
        let request = async { Ok(self.engine.release(std::slice::from_ref(release)).await) };
        let answer = self.bounded_request(request).await;
        let no_answer = || Released::Unknown(EngineError::new(Fault::Unknown, "the engine gave no answer"));
        let released = match answer {
            Ok(answers) => answers.into_iter().next().unwrap_or_else(no_answer),
            Err(error) => Released::Unknown(error),
        };
        self.report_answer(Verb::Release, observed, released.fault());
        released
    }
}
