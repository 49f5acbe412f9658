//! How the holds due for renewal are divided into requests to the engine.

use std::time::Duration;

use crate::Hold;

/// The most holds renewed by one request: large enough that 100,000 holds need few requests, small enough that one hold
/// that the engine renews slowly does not leave the renewals of many other holds without an answer.
const MAX_BATCH_SIZE: usize = 128;

/// Divides `holds` into batches of leases of similar length, because the shortest lease of a batch decides how long the
/// answer may take. The holds of one `group` stay in one batch, if they fit.
pub(super) fn batches(holds: Vec<Hold>, group: impl Fn(&Hold) -> Option<u16>) -> Vec<Vec<Hold>> {
    let mut holds: Vec<(BatchKey, Hold)> =
        holds.into_iter().map(|hold| ((hold.ttl, group(&hold)), hold)).collect();
    holds.sort_by_key(|(key, _)| *key);
    let mut batches = Vec::new();
    while let Some(((shortest, _), _)) = holds.first() {
        let longest = *shortest * 2;
        let similar_count = holds.partition_point(|((ttl, _), _)| *ttl <= longest);
        let remaining = holds.split_off(batch_end(&holds, similar_count.min(MAX_BATCH_SIZE)));
        batches.push(holds.into_iter().map(|(_, hold)| hold).collect());
        holds = remaining;
    }
    batches
}

/// The requested lease time and the group of a hold: holds are sorted into batches by them.
type BatchKey = (Duration, Option<u16>);

/// The number of holds in a batch of at most `max_holds`: a group that would be cut in two is left for the next batch,
/// unless it is the only group.
fn batch_end(holds: &[(BatchKey, Hold)], max_holds: usize) -> usize {
    match (&holds[max_holds - 1], holds.get(max_holds)) {
        ((last_key, _), Some((next_key, _))) if last_key == next_key && last_key.1.is_some() => {
            let begin = holds.partition_point(|(key, _)| key < last_key);
            if begin > 0 { begin } else { max_holds }
        }
        _ => max_holds,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ClaimId, Lineage, Mode, Name, Token};

    const SECOND: Duration = Duration::from_secs(1);

    /// The group of a hold is its name.
    fn hold(number: usize, ttl: Duration, group: &str) -> Hold {
        Hold {
            id: ClaimId((number as u128).to_be_bytes()),
            name: Name::new(group).unwrap(),
            mode: Mode::Exclusive,
            token: Token { lineage: Lineage::new(1), number: 1 },
            ttl,
        }
    }

    fn group(hold: &Hold) -> Option<u16> {
        hold.name.as_str().parse().ok()
    }

    /// The numbers of the holds in each batch.
    fn numbers(batches: &[Vec<Hold>]) -> Vec<Vec<u128>> {
        let number = |hold: &Hold| u128::from_be_bytes(hold.id.0);
        batches.iter().map(|batch| batch.iter().map(number).collect()).collect()
    }

    #[test]
    fn without_groups_holds_stay_in_order() {
        let holds = (0..300).map(|number| hold(number, SECOND * 30, "none")).collect();
        let expected: Vec<Vec<u128>> = [0..128, 128..256, 256..300].map(Iterator::collect).into();
        assert_eq!(numbers(&batches(holds, group)), expected);
    }

    #[test]
    fn the_longest_of_a_batch_is_at_most_twice_as_long_as_the_shortest() {
        let holds = [5, 1, 2, 3, 4].map(|secs| hold(secs, SECOND * secs as u32, "none"));
        assert_eq!(numbers(&batches(holds.into(), group)), [vec![1, 2], vec![3, 4, 5]]);
    }

    #[test]
    fn a_group_is_in_one_batch() {
        // 60 holds in each of three groups, alternating.
        let holds = (0..180).map(|number| hold(number, SECOND * 30, &(number % 3).to_string())).collect();
        let batches = batches(holds, group);
        let groups: Vec<Vec<_>> = batches
            .iter()
            .map(|batch| {
                let mut groups: Vec<_> = batch.iter().map(|hold| group(hold).unwrap()).collect();
                groups.dedup();
                groups
            })
            .collect();
        assert_eq!(groups, [vec![0, 1], vec![2]]);
    }

    #[test]
    fn a_group_larger_than_a_batch_fills_batches() {
        let holds = (0..300).map(|number| hold(number, SECOND * 30, "7")).collect();
        let sizes: Vec<_> = batches(holds, group).iter().map(Vec::len).collect();
        assert_eq!(sizes, [128, 128, 44]);
    }

    proptest! {
        /// For any holds: none is left out, no batch has too many holds or lease times of which one is more than twice
        /// another one, and the holds of a group that fits into one batch are in no more batches than they have
        /// different lease times.
        #[test]
        fn every_hold_is_in_one_batch(
            leases in prop::collection::vec((1_u32..5, prop::option::of(0_u16..40)), 0..600),
        ) {
            let name = |group: &Option<u16>| group.map_or("none".to_owned(), |group| group.to_string());
            let all: Vec<Hold> = leases
                .iter()
                .enumerate()
                .map(|(number, (secs, group))| hold(number, SECOND * *secs, &name(group)))
                .collect();
            let count = all.len() as u128;
            let batches = batches(all, group);
            let mut seen: Vec<u128> = numbers(&batches).concat();
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..count));
            for batch in &batches {
                prop_assert!(!batch.is_empty() && batch.len() <= MAX_BATCH_SIZE);
                prop_assert!(batch.last().unwrap().ttl <= batch[0].ttl * 2);
            }
            for key in leases {
                if key.1.is_none() || batches.iter().flatten().filter(|hold| has_key(hold, key)).count() > MAX_BATCH_SIZE {
                    continue;
                }
                prop_assert_eq!(batches.iter().filter(|batch| batch.iter().any(|hold| has_key(hold, key))).count(), 1);
            }
        }
    }

    /// Whether a hold has this ttl in seconds and this group.
    fn has_key(hold: &Hold, (secs, key_group): (u32, Option<u16>)) -> bool {
        hold.ttl == SECOND * secs && group(hold) == key_group
    }
}
