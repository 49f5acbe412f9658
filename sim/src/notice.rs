//! What is asked for also where exclusion is not promised: no loss goes unnoticed for long.

use std::{collections::BTreeMap, time::Duration};

use leasehold_core::Instant;
use leasehold_testkit::history::{AttemptId, History, What};

use crate::{clockwork::Group, verdict::Complaint};

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
pub(crate) fn complaints(history: &History, doubts: &[Doubt]) -> Vec<Complaint> {
    let mut found = Vec::new();
    let mut believed: BTreeMap<AttemptId, u64> = BTreeMap::new();
    let mut truths: BTreeMap<&str, (u64, Vec<AttemptId>)> = BTreeMap::new();
    for event in history.events() {
        let forgotten = truths.get(event.lock.as_str()).and_then(|(at, holders)| {
            let since = believed.get(&event.attempt)?;
            (since < at && !holders.contains(&event.attempt)).then_some(*at)
        });
        let mut complain = |what: &str, at: u64| {
            let text =
                format!("attempt {:x} {what} at {}, unknown to the server at {at}", event.attempt, event.t);
            found.push(Complaint::new("loss notice", text));
        };
        match (&event.what, forgotten) {
            (What::AcqOk { .. }, _) => drop(believed.insert(event.attempt, event.t)),
            (What::RelInv { .. } | What::Lost { .. }, _) => drop(believed.remove(&event.attempt)),
            (What::Truth { holders, .. }, _) => {
                let holders = holders.iter().map(|held| held.attempt).collect();
                truths.insert(&event.lock, (event.t, holders));
            }
            (What::RenewOk { deadline, ttl: Some(ttl) }, Some(at)) if *deadline > at.saturating_add(*ttl) => {
                complain("was renewed", at);
            }
            (What::Check { valid: true, .. }, Some(at)) => {
                let heard = |doubt: &Doubt| {
                    let heard = doubt.heard.after(SOON).as_nanos();
                    doubt.client.number() == event.proc && doubt.heard.as_nanos() > at && heard < event.t
                };
                if doubts.iter().any(heard) {
                    complain("was called valid in spite of doubt", at);
                }
            }
            _ => {}
        }
    }
    found
}
