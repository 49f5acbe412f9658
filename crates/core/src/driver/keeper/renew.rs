//! Renewals, in batches.

use std::sync::{Arc, atomic::Ordering};

use tokio::sync::oneshot;

use crate::{
    ClaimId, EngineError, Error, ErrorKind, Fault, Hold, Instant, Loss, Name, Renewed, TimeLeft,
    contract::observe::Verb,
    driver::keeper::{KeeperJob, TimerKey, batches::batches, poll_once},
    driver::local::UNRESPONSIVE_AFTER,
    driver::shared::Shared,
    pure::lease::LeaseAction,
};

/// A renewal that is not answered within this fraction of the lease counts as failed. When the next renewal is sent
/// does not depend on this: [`Lease::step`](crate::Lease::step) decides it.
const ANSWER_FRACTION: u32 = 6;

/// Handles the leases of these holds, whose timers fired.
pub(crate) fn renew_due(shared: &Arc<Shared>, due: Vec<(Name, TimerKey)>) {
    let mut holds = Vec::new();
    for (name, timer) in due {
        match shared.next_lease_step(&name, timer) {
            Some(LeaseStep::Renew { hold, downgrades }) => {
                if downgrades {
                    let (downgrading, hold) = (Arc::clone(shared), hold.clone());
                    shared.spawn(async move { drop(downgrading.repeat_downgrade(&hold).await) });
                }
                holds.push(hold);
            }
            Some(LeaseStep::Lost(id, loss)) => shared.mark_lost(&name, id, loss),
            None => {}
        }
    }
    shared.spawn_renewals(holds);
}

/// What to do for the lease of a hold whose timer fired.
enum LeaseStep {
    /// Renew the hold; `downgrades`: repeat also its downgrade, which was not answered.
    Renew { hold: Hold, downgrades: bool },
    /// Report to the guards that the hold of this claim is lost.
    Lost(ClaimId, Loss),
}

/// Sends one request for a batch and applies its answers; returns the last error, if there was one.
async fn renew(shared: &Arc<Shared>, holds: &[Hold]) -> Result<(), EngineError> {
    let sent_at = shared.now();
    let observed = shared.observer.is_observed().then_some(sent_at);
    let shortest_ttl = holds.iter().map(|hold| hold.ttl).min().unwrap_or_default();
    let timeout = shared.profile.request_timeout.min(shortest_ttl / ANSWER_FRACTION);
    let request = shared.catch_panic(async { shared.engine.renew(holds).await });
    let answered = match shared.profile.inline {
        true => Some(request.await),
        false => shared.with_timeout(timeout, request).await,
    };
    let no_answer_error = || EngineError::new(Fault::Unknown, format!("no answer within {timeout:.0?}"));
    let (answers, mut missing_answer_error) = match answered {
        Some(Ok(answers)) => (answers, Some(no_answer_error())),
        Some(Err(panicked)) => (Vec::new(), Some(panicked.into_error())),
        None => (Vec::new(), Some(no_answer_error())),
    };
    let mut shared_text = None;
    let mut answers = answers.into_iter();
    let mut last_error = None;
    for hold in holds {
        let answer = answers.next();
        if matches!(answer, Some(Renewed::Extended { .. } | Renewed::Lost(_))) {
            shared.set_responsive();
        }
        match answer {
            Some(Renewed::Extended { ttl, left }) => {
                shared.apply_renewal(hold, sent_at, ttl, left);
            }
            Some(Renewed::Lost(loss)) if shared.is_renewed_as(hold) => {
                shared.mark_lost(&hold.name, hold.id, loss);
            }
            Some(Renewed::Lost(_)) => {}
            Some(Renewed::Unknown(error)) => {
                shared.note_failed_renewal(hold, single_line(&mut shared_text, &error));
                last_error = Some(error);
            }
            None => {
                let error = missing_answer_error.take().unwrap_or_else(no_answer_error);
                shared.note_failed_renewal(hold, single_line(&mut shared_text, &error));
                last_error = last_error.or(Some(error));
            }
        }
    }
    shared.report_answer(Verb::Renew, observed, last_error.as_ref().map(|error| error.fault));
    if let (Some(error), Some(hold)) = (&last_error, holds.first()) {
        shared.note_failure(&hold.name, error);
    }
    last_error.map_or(Ok(()), Err)
}

/// The message of an error on one line. Most holds of a batch have the same error, and share the text: `shared_text`
/// has the last message and its text on one line.
fn single_line<'a>(shared_text: &'a mut Option<(String, Arc<str>)>, error: &EngineError) -> &'a Arc<str> {
    if shared_text.as_ref().is_some_and(|(message, _)| *message != error.message) {
        *shared_text = None;
    }
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let message_and_text =
        || (error.message.clone(), error.message.chars().map(printable).collect::<String>().into());
    let (_, text) = shared_text.get_or_insert_with(message_and_text);
    text
}

/// A confirmation request, until it is answered or its caller stops waiting. When dropped, it records whether the
/// engine failed to answer.
struct ConfirmRequest<'a> {
    shared: &'a Shared,
    /// When the request was made.
    since: Instant,
    /// Whether the answer is an error that means an outage of the engine; `None`: there was no answer.
    is_outage: Option<bool>,
}

impl Drop for ConfirmRequest<'_> {
    fn drop(&mut self) {
        let unanswered = || self.shared.now().since(self.since) >= UNRESPONSIVE_AFTER;
        if self.is_outage.unwrap_or_else(unanswered) {
            self.shared.set_unresponsive();
        }
    }
}

impl Shared {
    /// The next action for the lease of the hold whose `timer` fired. Sets the next timer.
    fn next_lease_step(self: &Arc<Self>, name: &Name, timer: TimerKey) -> Option<LeaseStep> {
        let mut shard = self.table.shard(name);
        let mut holds = shard.get_mut(name)?.holds.iter_mut();
        let hold = holds.find(|hold| hold.timer == Some(timer)).filter(|hold| !hold.is_ending)?;
        let now = self.now();
        hold.timer = None;
        match hold.lease.step(now) {
            LeaseAction::Lost(loss) => Some(LeaseStep::Lost(hold.id, loss)),
            LeaseAction::Sleep(_) => {
                self.set_lease_timer(name, hold, now);
                None
            }
            LeaseAction::Renew => {
                hold.lease.renewal_sent(now);
                self.set_lease_timer(name, hold, now);
                let downgrades = hold.is_downgrade_unsettled && !hold.is_converting;
                Some(LeaseStep::Renew { hold: hold.as_hold(name, now), downgrades })
            }
        }
    }

    /// Extends a hold after the engine confirmed a renewal that was sent at `sent_at`. `left`: how long the hold had
    /// left before the renewal; the holder is told if another program changed that time.
    fn apply_renewal(
        self: &Arc<Self>,
        &Hold { ref name, id, mode, token, .. }: &Hold,
        sent_at: Instant,
        ttl: Option<std::time::Duration>,
        left: TimeLeft,
    ) {
        let group = self.engine.group(name);
        let mut shard = self.table.shard(name);
        let Some(hold) = shard.get_mut(name).and_then(|state| state.hold(id)) else { return };
        if hold.is_ending || hold.lease.lost().is_some() {
            return;
        }
        let now = self.now();
        let valid_until = hold.lease.valid_until();
        let margin = (valid_until != Instant::NEVER).then(|| valid_until.since(now));
        let new_change = hold.lease.compare_time(sent_at, now, left);
        let stays_in_doubt = hold.is_converting && hold.lease.is_in_doubt();
        hold.lease.renewed(sent_at, now, ttl, group);
        if stays_in_doubt {
            // R31: an upgrade that is applied after this renewal ends the hold.
            hold.lease.stay_in_doubt();
        }
        for validity in &hold.guards {
            validity.copy_ends(&hold.lease);
            validity.renewal_succeeded(hold.lease.time_change());
        }
        self.set_lease_timer(name, hold, now);
        drop(shard);
        self.observer.renewed(name, mode, token, margin);
        if let Some(change) = new_change {
            self.observer.time_changed(name, mode, token, change);
        }
    }

    /// Stores the error of a renewal that the engine did not confirm. If no later renewal is confirmed before the
    /// deadline, the guards report this error.
    fn note_failed_renewal(&self, hold: &Hold, renewal_error: &Arc<str>) {
        let &Hold { ref name, id, mode, token, .. } = hold;
        let first = {
            let mut shard = self.table.shard(name);
            let Some(hold) = shard.get_mut(name).and_then(|state| state.hold(id)) else { return };
            // Every guard stores the error; a guard that joined the hold since has none of an earlier renewal.
            hold.guards.iter().filter(|validity| !validity.renewal_failed(renewal_error)).count() == 0
        };
        self.observer.renewal_failed(name, mode, token, renewal_error, first);
    }

    /// Reports the loss to those guards of a hold whose own `max_hold` has passed. When no guard is allowed to use the
    /// hold any more, its renewal stops (R6).
    pub(crate) fn end_max_hold(self: &Arc<Self>, name: &Name, id: ClaimId) {
        let mut shard = self.table.shard(name);
        let Some(hold) = shard.get_mut(name).and_then(|state| state.hold(id)) else { return };
        let now = self.now();
        let (mut in_use, mut lost) = (false, Vec::new());
        for validity in &hold.guards {
            match validity.loss(now) {
                Some(loss) if validity.mark_lost(loss) => {
                    lost.push(((validity.token(), validity.mode()), loss))
                }
                Some(_) => {}
                None => in_use = true,
            }
        }
        if !in_use && !hold.is_ending {
            hold.lease.stop_renewal();
            self.set_lease_timer(name, hold, now);
        }
        drop(shard);
        for (guard, loss) in lost {
            self.observer.lost(name, &[guard], loss, None);
        }
    }

    fn spawn_renewals(self: &Arc<Self>, holds: Vec<Hold>) {
        for batch in batches(holds, |hold| self.engine.group(&hold.name)) {
            let shared = Arc::clone(self);
            self.spawn(async move { drop(renew(&shared, &batch).await) });
        }
    }

    /// Renews one hold at once, outside its schedule: on this thread if the engine never waits, else through the
    /// keeper. `until`: the hold is to last at least until then, if the engine grants that.
    ///
    /// # Errors
    /// Also if a conversion of the hold is not settled: the hold that the engine confirms may end by it.
    pub(crate) async fn confirm(
        self: &Arc<Self>,
        name: &Name,
        id: ClaimId,
        until: Option<Instant>,
    ) -> Result<(), Error> {
        let hold = {
            let mut shard = self.table.shard(name);
            let Some(hold) = shard.get_mut(name).and_then(|state| state.hold(id)) else { return Ok(()) };
            if hold.is_converting {
                return Err(self.unsettled_conversion_error(name, "confirmed"));
            }
            let now = self.now();
            until.into_iter().for_each(|until| hold.lease.extend(now, until));
            hold.as_hold(name, now)
        };
        let (tx, rx) = oneshot::channel();
        let shared = Arc::clone(self);
        let mut renewal = Box::pin(async move { drop(tx.send(renew(&shared, &[hold]).await)) });
        let mut confirm_request = ConfirmRequest { shared: self, since: self.now(), is_outage: None };
        if !self.profile.inline || poll_once(renewal.as_mut()).is_none() {
            self.queue_job(KeeperJob::Spawn(renewal));
        }
        let reply = rx.await;
        confirm_request.is_outage = Some(matches!(&reply, Ok(Err(error)) if error.fault.is_outage()));
        match reply {
            Ok(renewed) => renewed.map_err(|error| Error::from_engine(error, name, self.profile.engine)),
            Err(_) => Err(Error::new(ErrorKind::Closed, "the keeper is gone")),
        }
    }

    /// After a confirmed renewal: an error, if the hold is not valid until `until`.
    pub(crate) fn check_extension(&self, name: &Name, id: ClaimId, until: Instant) -> Result<(), Error> {
        let mut shard = self.table.shard(name);
        let Some(hold) = shard.get_mut(name).and_then(|state| state.hold(id)) else { return Ok(()) };
        let (engine, text) = (self.profile.engine, name.as_str());
        if hold.lease.is_in_doubt() {
            let message = format!(
                "{engine} lock {text:?}: the hold is in doubt, and it is not known if it was extended"
            );
            return Err(Error::new(ErrorKind::Unknown, message));
        }
        if hold.lease.deadline() >= until || hold.lease.lost().is_some() {
            return Ok(());
        }
        Err(Error::misconfigured(format!(
            "{engine} lock {text:?}: the hold cannot be extended so far: the engine granted {:.1?}; acquire it with a \
             longer ttl",
            hold.lease.granted_time()
        )))
    }

    /// Puts all holds in doubt: none is valid until it is renewed, which is due now.
    pub(crate) fn doubt_all(self: &Arc<Self>) {
        let now = self.now();
        // Stored first, so that a hold granted during the loop below is put in doubt either by the loop or by this
        // value: both lock the shard.
        self.last_doubt.fetch_max(now.as_nanos(), Ordering::Relaxed);
        for mut shard in self.table.shards() {
            for (name, state) in shard.iter_mut() {
                for hold in state.holds.iter_mut().filter(|hold| !hold.is_ending) {
                    hold.lease.doubt(now);
                    hold.guards.iter().for_each(|validity| validity.copy_ends(&hold.lease));
                    self.set_lease_timer(name, hold, now);
                }
            }
        }
    }

    /// Renews now every hold that is renewed in the background, because notifications about holds may have been missed.
    pub(crate) fn renew_all(self: &Arc<Self>) {
        let (mut live_holds, now) = (Vec::new(), self.now());
        for shard in self.table.shards() {
            for (name, state) in shard.iter() {
                let live_of_name =
                    state.holds.iter().filter(|hold| !hold.is_ending && hold.lease.is_renewed());
                live_holds.extend(live_of_name.map(|hold| hold.as_hold(name, now)));
            }
        }
        self.spawn_renewals(live_holds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_errors_share_one_single_line_text() {
        let mut shared_text = None;
        let mut text = |message: &str| {
            let error = EngineError::new(Fault::Unknown, message);
            Arc::clone(single_line(&mut shared_text, &error))
        };
        let (first, same) = (text("one\nand two"), text("one\nand two"));
        assert!(Arc::ptr_eq(&first, &same));
        assert_eq!((first.as_ref(), text("three").as_ref()), ("one and two", "three"));
    }
}
