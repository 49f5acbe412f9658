//! Finds unreported losses: holds that their crate reported as held when another client certainly had the lock.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_testkit::history::{AttemptId, Event, What};

/// One sentence for each such hold.
///
/// Only cases without doubt are counted: the other client asked after the hold had been granted, and was granted before
/// the crate reported the hold as held. The server of these rounds loses nothing, so the lease was over.
pub(crate) fn losses(events: &[Event]) -> Vec<String> {
    let mut asked: BTreeMap<AttemptId, u64> = BTreeMap::new();
    let mut granted: BTreeMap<AttemptId, u64> = BTreeMap::new();
    // For each name, the granted attempt that asked last: when it asked, and when it was granted.
    let mut newest: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let (mut known, mut found) = (BTreeSet::new(), Vec::new());
    for event in events {
        match event.what {
            What::AcqInv { .. } => drop(asked.insert(event.attempt, event.t)),
            What::AcqOk { .. } => {
                granted.insert(event.attempt, event.t);
                if let Some(&asked) = asked.get(&event.attempt) {
                    let newest = newest.entry(&event.lock).or_default();
                    *newest = (*newest).max((asked, event.t));
                }
            }
            What::Check { valid: true, .. } => {
                let (Some(&begin), Some(&(asked, since))) =
                    (granted.get(&event.attempt), newest.get(event.lock.as_str()))
                else {
                    continue;
                };
                if begin < asked && known.insert(event.attempt) {
                    found.push(format!(
                        "attempt {:x} of {:?} is reported as held {} ms after its grant; {} ms before, another attempt was granted \
                         that had asked {} ms after that grant",
                        event.attempt,
                        event.lock,
                        (event.t - begin) / 1_000_000,
                        (event.t - since) / 1_000_000,
                        (asked - begin) / 1_000_000,
                    ));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Lineage, Mode, Token};
    use leasehold_testkit::history::{ActiveHold, Attempt, Granted, Recorder};

    use super::*;

    fn granted(attempt: Attempt<'_>) -> ActiveHold<'_> {
        let token = Token { lineage: Lineage::new(0), number: 1 };
        attempt.granted(Granted { token, ttl_nanos: None, watched: false, fixed: false }, || None)
    }

    #[test]
    fn a_certain_unreported_loss_is_counted_once() {
        let recorder = Recorder::in_memory(1, 1);
        let ask = || recorder.attempt(0, "m0", Mode::Exclusive, None);
        let [first, early] = [ask(), ask()];
        let first = granted(first);
        first.check(|| true, || None);
        // It may have been granted before the first, and have been notified late.
        let early = granted(early);
        first.check(|| true, || None);
        assert_eq!(losses(&recorder.events()), [""; 0]);
        let late = granted(ask());
        late.check(|| true, || None);
        early.check(|| false, || None);
        assert_eq!(losses(&recorder.events()), [""; 0]);
        first.check(|| true, || None);
        first.check(|| true, || None);
        assert_eq!(losses(&recorder.events()).len(), 1);
    }
}
