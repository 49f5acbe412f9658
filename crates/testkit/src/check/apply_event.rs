//! Builds the history of an attempt, event by event.

use super::attempt_history::{
    Acceptance, AttemptHistory, CheckCall, Failure, Granted, Outcome, Part, Published, ReleaseCall, Renewal,
    Storing, Write,
};
use crate::history::{Event, What};

/// Applies an event to the history of an attempt. If the event is impossible, returns the reason; otherwise `None`.
pub(super) fn apply_event<'h>(
    attempt: &mut AttemptHistory<'h>,
    event_index: usize,
    event: &'h Event,
) -> Option<&'static str> {
    let t = event.t;
    match &event.what {
        What::AcqInv { .. } => {}
        What::Part { single } => attempt.part = Some(if *single { Part::Single } else { Part::Unknown }),
        What::Enq => attempt.queued = attempt.queued.or(Some(t)),
        What::AcqOk { token, lineage, deadline, ttl, asked, watched, fixed } => {
            let (deadline, ttl, sent_at, watched, fixed) = (*deadline, *ttl, *asked, *watched, *fixed);
            let grant = Granted { at: t, token: *token, lineage, deadline, ttl, sent_at, watched, fixed };
            if attempt.returned().is_some() {
                return Some("an acquire returned twice");
            }
            attempt.grant = Some(grant);
        }
        What::AcqTaken => return record_failure(attempt, t, Failure::Taken),
        What::AcqFail { .. } => return record_failure(attempt, t, Failure::Definite),
        What::AcqUnknown { .. } => return record_failure(attempt, t, Failure::Unknown),
        What::Cancel => return record_failure(attempt, t, Failure::Cancelled),
        What::RenewInv => attempt.renewing.record_request(t),
        What::RenewFail { .. } => drop(attempt.renewing.record_answer()),
        What::RenewOk { deadline, ttl } => {
            let sent_at = attempt.renewing.record_answer();
            attempt.renewals.push(Renewal {
                at: t,
                deadline: *deadline,
                ttl: *ttl,
                sent_at,
                event: event_index,
            });
        }
        What::Check { valid, deadline } => {
            attempt.checks.push(CheckCall { at: t, valid: *valid, deadline: *deadline, event: event_index });
        }
        What::Lost { .. } => attempt.lost = attempt.lost.or(Some(t)),
        What::RelInv { min_hold, sure } => {
            if attempt.grant.is_none() || attempt.release.is_some() {
                return Some("a release of an attempt that was not granted or was released before");
            }
            attempt.release = Some(ReleaseCall {
                at: t,
                min_hold: *min_hold,
                min_hold_certain: sure.or(*min_hold).unwrap_or(0),
            });
        }
        What::RelOk => return record_release_answer(attempt, t, Outcome::Freed),
        What::RelNotheld => return record_release_answer(attempt, t, Outcome::NotHeld),
        What::RelUnknown { .. } => return record_release_answer(attempt, t, Outcome::Unknown),
        What::WriteInv { to, token, element } => {
            let (token, element) = (*token, *element);
            attempt.writes.push(Write { to, token, element, sent: t, event: event_index, answer: None });
        }
        What::WriteOk { element } => {
            return record_write_answer(attempt, *element, (t, Acceptance::Acknowledged, event_index));
        }
        What::WriteFenced { element } => {
            return record_write_answer(attempt, *element, (t, Acceptance::Fenced, event_index));
        }
        What::PublishInv { number } => {
            attempt.values.push(Published { number: *number, sent: t, acknowledged: None });
        }
        What::PublishOk { number } => {
            let value = attempt.values.iter_mut().find(|value| value.number == *number);
            let Some(value) = value else { return Some("an answer to a value that was not published") };
            value.acknowledged = Some((t, event_index));
        }
        What::StoreInv { keep } => {
            attempt.result = Some(Storing { sent: t, keep: *keep, failed: false, event: event_index });
        }
        What::NotStored => {
            let Some(result) = &mut attempt.result else {
                return Some("an answer to a result without a write");
            };
            result.failed = true;
        }
        What::Replay { of } => attempt.replay = Some((t, *of, event_index)),
        What::Crash { .. } | What::Stop { .. } | What::Cont { .. } | What::Stall { .. } => {
            return Some("an event of a process names an attempt");
        }
        What::NemesisBegin { .. }
        | What::NemesisEnd { .. }
        | What::Probe { .. }
        | What::Truth { .. }
        | What::Seen { .. }
        | What::Contents { .. } => return Some("an event of the run names an attempt"),
    }
    let needs_grant = matches!(
        event.what,
        What::RenewOk { .. } | What::Check { .. } | What::Lost { .. } | What::WriteInv { .. }
    );
    (needs_grant && attempt.grant.is_none()).then_some("an event of a hold that was not granted")
}

/// Records that the acquire failed at `t`. If that is impossible, returns the reason; otherwise `None`.
fn record_failure(attempt: &mut AttemptHistory<'_>, t: u64, failure: Failure) -> Option<&'static str> {
    if attempt.returned().is_some() {
        return Some("an acquire returned twice");
    }
    attempt.failure = Some((t, failure));
    None
}

/// Records that the release was answered at `t`. If that is impossible, returns the reason; otherwise `None`.
fn record_release_answer(attempt: &mut AttemptHistory<'_>, t: u64, outcome: Outcome) -> Option<&'static str> {
    if attempt.release.is_none() || attempt.answer.is_some() {
        return Some("an answer to a release that was not called, or a second answer");
    }
    attempt.answer = Some((t, outcome));
    None
}

/// Records the answer to the newest unanswered write of `element`.
fn record_write_answer(
    attempt: &mut AttemptHistory<'_>,
    element: u64,
    answer: (u64, Acceptance, usize),
) -> Option<&'static str> {
    let sent = attempt.writes.iter_mut().rfind(|write| write.element == element && write.answer.is_none());
    let Some(sent) = sent else { return Some("an answer to a write that was not sent, or a second answer") };
    sent.answer = Some(answer);
    None
}
