//! Builds the life of an attempt, event by event.

use super::life::{Acceptance, Checked, Failure, Granted, Life, Outcome, ReleaseCall, Renewal, Write};
use crate::history::{Event, What};

/// Applies an event to a life. Returns why the event is impossible, if it is.
pub(super) fn apply_event<'h>(life: &mut Life<'h>, at: usize, event: &'h Event) -> Option<&'static str> {
    let t = event.t;
    match &event.what {
        What::AcqInv { .. } => {}
        What::Enq => life.queued = life.queued.or(Some(t)),
        What::AcqOk { token, lineage, deadline, ttl, asked, watched, fixed } => {
            let (deadline, ttl, asked, watched, fixed) = (*deadline, *ttl, *asked, *watched, *fixed);
            let grant = Granted { at: t, token: *token, lineage, deadline, ttl, asked, watched, fixed };
            if life.returned().is_some() {
                return Some("an acquire returned twice");
            }
            life.grant = Some(grant);
        }
        What::AcqTaken => return fail(life, t, Failure::Taken),
        What::AcqFail { .. } => return fail(life, t, Failure::Definite),
        What::AcqUnknown { .. } => return fail(life, t, Failure::Unknown),
        What::Cancel => return fail(life, t, Failure::Cancelled),
        What::RenewInv => life.renewing.ask(t),
        What::RenewFail { .. } => drop(life.renewing.answer()),
        What::RenewOk { deadline, ttl } => {
            let asked = life.renewing.answer();
            life.renewals.push(Renewal { at: t, deadline: *deadline, ttl: *ttl, asked, event: at });
        }
        What::Check { valid, deadline } => {
            life.checks.push(Checked { at: t, valid: *valid, deadline: *deadline, event: at });
        }
        What::Lost { .. } => life.lost = life.lost.or(Some(t)),
        What::RelInv { keep, sure } => {
            if life.grant.is_none() || life.release.is_some() {
                return Some("a release of an attempt that was not granted or was released before");
            }
            life.release =
                Some(ReleaseCall { at: t, min_hold: *keep, min_hold_certain: sure.or(*keep).unwrap_or(0) });
        }
        What::RelOk => return answer(life, t, Outcome::Freed),
        What::RelNotheld => return answer(life, t, Outcome::NotHeld),
        What::RelUnknown { .. } => return answer(life, t, Outcome::Unknown),
        What::WriteInv { to, token, element } => {
            let (token, element) = (*token, *element);
            life.writes.push(Write { to, token, element, sent: t, event: at, answer: None });
        }
        What::WriteOk { element } => return written(life, *element, (t, Acceptance::Acknowledged, at)),
        What::WriteFenced { element } => return written(life, *element, (t, Acceptance::Fenced, at)),
        What::Crash { .. } | What::Stop { .. } | What::Cont { .. } | What::Stall { .. } => {
            return Some("an event of a process names an attempt");
        }
        What::NemesisBegin { .. }
        | What::NemesisEnd { .. }
        | What::Probe { .. }
        | What::Truth { .. }
        | What::Contents { .. } => return Some("an event of the run names an attempt"),
    }
    let needs_grant = matches!(
        event.what,
        What::RenewOk { .. } | What::Check { .. } | What::Lost { .. } | What::WriteInv { .. }
    );
    (needs_grant && life.grant.is_none()).then_some("an event of a hold that was not granted")
}

fn fail(life: &mut Life<'_>, t: u64, failure: Failure) -> Option<&'static str> {
    if life.returned().is_some() {
        return Some("an acquire returned twice");
    }
    life.failure = Some((t, failure));
    None
}

fn answer(life: &mut Life<'_>, t: u64, outcome: Outcome) -> Option<&'static str> {
    if life.release.is_none() || life.answer.is_some() {
        return Some("an answer to a release that was not called, or a second answer");
    }
    life.answer = Some((t, outcome));
    None
}

fn written(life: &mut Life<'_>, element: u64, answer: (u64, Acceptance, usize)) -> Option<&'static str> {
    let sent = life.writes.iter_mut().rfind(|write| write.element == element && write.answer.is_none());
    let Some(sent) = sent else { return Some("an answer to a write that was not sent, or a second answer") };
    sent.answer = Some(answer);
    None
}
