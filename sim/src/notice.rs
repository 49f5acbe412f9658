//! What is asked for also where exclusion is not promised: no loss goes unnoticed for long.

use std::{collections::BTreeMap, time::Duration};

use leasehold_core::Instant;
use leasehold_testkit::history::{AttemptId, Event, Held, History, What};

use crate::{scheduler::Group, verdict::Complaint};

/// A keeper that does not stand still doubts its holds so soon after it heard of a reason to.
const SOON: Duration = Duration::from_millis(2);

/// When a client heard that the server's clock runs ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    /// Which.
    pub(crate) client: Group,
    /// When.
    pub(crate) heard: Instant,
}

/// A hold that the server does not know any more is believed in for no longer than its lease, and not at all by a client that
/// heard since that the server's clock runs ahead.
pub(crate) fn complaints(history: &History, doubts: Vec<Doubt>) -> Vec<Complaint> {
    let mut notice = Notice { doubts, ..Notice::default() };
    history.events().iter().filter_map(|event| notice.read(event)).collect()
}

#[derive(Default)]
struct Notice<'h> {
    doubts: Vec<Doubt>,
    believed: BTreeMap<AttemptId, ActiveHold<'h>>,
}

struct ActiveHold<'h> {
    lock: &'h str,
    since: u64,
    /// When it was seen first that the server does not know the hold any more.
    forgotten: Option<u64>,
}

impl<'h> Notice<'h> {
    fn read(&mut self, event: &'h Event) -> Option<Complaint> {
        match &event.what {
            What::AcqOk { .. } => {
                let active_hold = ActiveHold { lock: &event.lock, since: event.t, forgotten: None };
                self.believed.insert(event.attempt, active_hold);
            }
            What::RelInv { .. } | What::Lost { .. } => drop(self.believed.remove(&event.attempt)),
            What::Truth { holders, .. } => self.look(event, holders),
            // Who is stopped may have heard, and not have thought about it.
            What::Stop { victim } => self.doubts.retain(|doubt| {
                doubt.client.number() != *victim
                    || doubt.heard.as_nanos() > event.t
                    || doubt.heard.after(SOON).as_nanos() < event.t
            }),
            What::RenewOk { deadline, ttl: Some(ttl) } => {
                let at = self.forgotten(event)?;
                if *deadline > at.saturating_add(*ttl) {
                    return Some(complaint("was renewed", event, at));
                }
            }
            What::Check { valid: true, .. } => {
                let at = self.forgotten(event)?;
                if self.doubts.iter().any(|doubt| doubt.is_between(at, event)) {
                    return Some(complaint("was called valid in spite of doubt", event, at));
                }
            }
            _ => {}
        }
        None
    }

    fn look(&mut self, truth: &Event, holders: &[Held]) {
        for (attempt, active_hold) in &mut self.believed {
            if active_hold.lock != truth.lock || active_hold.since >= truth.t {
                continue;
            }
            let is_known = holders.iter().any(|held| held.attempt == *attempt);
            active_hold.forgotten = if is_known { None } else { active_hold.forgotten.or(Some(truth.t)) };
        }
    }

    fn forgotten(&self, event: &Event) -> Option<u64> {
        self.believed.get(&event.attempt)?.forgotten
    }
}

impl Doubt {
    /// Whether who tells `event` heard of it after `at`, and had time to think about it.
    fn is_between(&self, at: u64, event: &Event) -> bool {
        let own = self.client.number() == event.proc;
        own && self.heard.as_nanos() > at && self.heard.after(SOON).as_nanos() < event.t
    }
}

fn complaint(what: &str, event: &Event, at: u64) -> Complaint {
    let text = format!("attempt {:x} {what} at {}, unknown to the server at {at}", event.attempt, event.t);
    Complaint::new("loss notice", text)
}
