//! Checks that no loss goes unnoticed for long. This is required even if the plan's faults break exclusion.

use std::{collections::BTreeMap, time::Duration};

use leasehold_core::Instant;
use leasehold_testkit::history::{AttemptId, Event, Held, History, What};

use crate::{scheduler::Group, verdict::Complaint};

/// A keeper that is not paused puts its holds in doubt within this time after its client has learned of a reason for
/// doubt.
const HANDLING_TIME: Duration = Duration::from_millis(2);

/// The time at which a client learned that the server's clock runs ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    /// The client.
    pub(crate) client: Group,
    /// The time.
    pub(crate) learned: Instant,
}

/// Checks every hold that the server has forgotten. The user of the hold must not count it as valid for longer than its
/// lease. After the client of this user has learned that the server's clock runs ahead, the user must not count the
/// hold as valid at all.
pub(crate) fn complaints(history: &History, doubts: Vec<Doubt>) -> Vec<Complaint> {
    let mut notice = Notice { doubts, ..Notice::default() };
    history.events().iter().filter_map(|event| notice.read(event)).collect()
}

/// The state of the check after the events that were read so far.
#[derive(Default)]
struct Notice<'h> {
    doubts: Vec<Doubt>,
    active_holds: BTreeMap<AttemptId, ActiveHold<'h>>,
}

/// A hold in use.
struct ActiveHold<'h> {
    lock: &'h str,
    since: u64,
    /// When the server was first seen without the hold.
    forgotten: Option<u64>,
}

impl<'h> Notice<'h> {
    /// Handles the next event. If the event shows a violation, returns the violation.
    fn read(&mut self, event: &'h Event) -> Option<Complaint> {
        match &event.what {
            What::AcqOk { .. } => {
                let active_hold = ActiveHold { lock: &event.lock, since: event.t, forgotten: None };
                self.active_holds.insert(event.attempt, active_hold);
            }
            What::RelInv { .. } | What::Lost { .. } => drop(self.active_holds.remove(&event.attempt)),
            What::Truth { holders, .. } => self.compare(event, holders),
            // A client that is paused may have received the message without handling it, so this doubt is not checked.
            What::Stop { victim } => self.doubts.retain(|doubt| {
                doubt.client.number() != *victim
                    || doubt.learned.as_nanos() > event.t
                    || doubt.learned.after(HANDLING_TIME).as_nanos() < event.t
            }),
            What::RenewOk { deadline, ttl: Some(ttl) } => {
                let forgotten_at = self.forgotten(event)?;
                if *deadline > forgotten_at.saturating_add(*ttl) {
                    return Some(complaint("was renewed", event, forgotten_at));
                }
            }
            What::Check { valid: true, .. } => {
                let forgotten_at = self.forgotten(event)?;
                if self.doubts.iter().any(|doubt| doubt.is_between(forgotten_at, event)) {
                    return Some(complaint("was called valid in spite of doubt", event, forgotten_at));
                }
            }
            _ => {}
        }
        None
    }

    /// Compares the holds of a lock with the true state of the server.
    fn compare(&mut self, truth: &Event, holders: &[Held]) {
        for (attempt, active_hold) in &mut self.active_holds {
            if active_hold.lock != truth.lock || active_hold.since >= truth.t {
                continue;
            }
            let is_known = holders.iter().any(|held| held.attempt == *attempt);
            active_hold.forgotten = if is_known { None } else { active_hold.forgotten.or(Some(truth.t)) };
        }
    }

    /// When the server was first seen without the hold that this event belongs to. `None`: the server still has the
    /// hold.
    fn forgotten(&self, event: &Event) -> Option<u64> {
        self.active_holds.get(&event.attempt)?.forgotten
    }
}

impl Doubt {
    /// Whether the process that recorded `event` learned of the reason for doubt after `forgotten_at`, and then had
    /// time to handle it before `event`.
    fn is_between(&self, forgotten_at: u64, event: &Event) -> bool {
        let is_own = self.client.number() == event.proc;
        is_own
            && self.learned.as_nanos() > forgotten_at
            && self.learned.after(HANDLING_TIME).as_nanos() < event.t
    }
}

fn complaint(what: &str, event: &Event, forgotten_at: u64) -> Complaint {
    let text =
        format!("attempt {:x} {what} at {}, unknown to the server at {forgotten_at}", event.attempt, event.t);
    Complaint::new("loss notice", text)
}
