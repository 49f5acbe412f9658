//! One step of several names: a snapshot of each in, the changes of each out, so that all claims hold or none. Pure.

use leasehold_core::{Answer, Claim, EngineError, Grant, How, Release};

use crate::{
    client::{refused, reply_mismatch},
    database::Failed,
    row::ClientId,
    step::{Changes, Reply, Snapshot, Verb},
};

/// The outcome of one step of several names.
#[derive(Debug)]
pub(crate) struct AllChanges {
    /// The time of the database, in microseconds; `None` if the rows of no name are as leasehold writes them.
    pub(crate) now: Option<i64>,
    /// One grant per claim, if all claims hold.
    pub(crate) reply: Result<Vec<Grant>, NotGranted>,
    /// The changes of each name, in the order of the claims; empty if nothing has to be written.
    pub(crate) changes: Vec<Changes>,
}

/// Why no claim holds.
#[derive(Debug)]
pub(crate) struct NotGranted {
    /// The index of the first claim that cannot be granted.
    pub(crate) index: usize,
    /// The answer to it.
    pub(crate) answer: Result<Answer, EngineError>,
}

/// Claims the names of these snapshots, all or none. A snapshot is an error if the rows of its name are not as
/// leasehold writes them. All rows are locked, and `snapshots` and `claims` are in the same order.
pub(crate) fn claim_all(
    snapshots: &[Result<Snapshot, Failed>],
    claims: &[Claim],
    client: ClientId,
) -> AllChanges {
    let now = snapshots.iter().flatten().map(|snapshot| snapshot.now).max();
    let none_held =
        |index, answer, changes| AllChanges { now, reply: Err(NotGranted { index, answer }), changes };
    if snapshots.len() != claims.len() {
        return none_held(0, Err(reply_mismatch()), Vec::new());
    }
    let (mut grants, mut changes) = (Vec::with_capacity(claims.len()), Vec::with_capacity(claims.len()));
    for (index, (snapshot, claim)) in snapshots.iter().zip(claims).enumerate() {
        let entry_life = std::time::Duration::ZERO;
        let verb = Verb::Claim { claim: claim.clone(), how: How::Create, client, entry_life };
        let step = match snapshot.as_ref().map_err(Clone::clone).and_then(|snapshot| snapshot.apply(&verb)) {
            Ok(step) => step,
            // The name cannot be used at all. Nothing was granted, so nothing has to be written.
            Err(failed) => return none_held(index, Err(failed.into()), Vec::new()),
        };
        match step.reply {
            Reply::Claim(Ok(Answer::Held(ref grant))) => grants.push(grant.clone()),
            Reply::Claim(reply) => {
                return none_held(index, reply.map_err(refused), end_all(snapshots, claims));
            }
            _ => return none_held(index, Err(reply_mismatch()), Vec::new()),
        }
        changes.push(step);
    }
    AllChanges { now, reply: Ok(grants), changes }
}

/// The changes after which nothing of any claim is left: an earlier request of the same claims may have been granted.
/// What has lapsed ends, and free names are granted to their waiters.
fn end_all(snapshots: &[Result<Snapshot, Failed>], claims: &[Claim]) -> Vec<Changes> {
    let end = |(snapshot, claim): (&Result<Snapshot, Failed>, &Claim)| {
        let verb = Verb::Release { release: Release::of_unused(claim), late_request_possible: false };
        snapshot.as_ref().ok()?.apply(&verb).ok()
    };
    // Each name has changes of its own, or none.
    snapshots.iter().zip(claims).map(|pair| end(pair).unwrap_or_else(Changes::none)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::{ClaimId, Fault, Lineage, Mode, Name};

    use super::*;
    use crate::{
        database::bad_value,
        row::{ClaimRow, LockRow, instant},
    };

    const CLIENT: ClientId = ClientId(7);
    const NOW: i64 = 5_000_000;

    fn claim(number: u8) -> Claim {
        Claim {
            id: ClaimId([number; 16]),
            name: Name::new(&format!("n{number}")).unwrap(),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(30),
            claim_time: Duration::from_secs(2),
            may_queue: false,
            tokens: 1,
            owner: "tester".into(),
            stops_on_term: false,
        }
    }

    fn snapshot(lock: LockRow) -> Result<Snapshot, Failed> {
        Ok(Snapshot { now: NOW, floor: NOW, lineage: Lineage::new(7), lock, claims: Vec::new() })
    }

    /// The row of a name that this claim holds until this time.
    fn held_by(number: u8, expires: i64) -> LockRow {
        let row = ClaimRow {
            stand: 0,
            token: 3,
            tokens: 1,
            expires,
            ..ClaimRow::tombstone(ClaimId([number; 16]), instant(0))
        };
        LockRow { token: 3, holder: Some(row), ..LockRow::default() }
    }

    /// The claim that holds each name after the changes; `None` for a name whose row is not changed.
    fn holders(all: &AllChanges) -> Vec<Option<Option<ClaimId>>> {
        let holder = |lock: &LockRow| lock.holder.as_ref().map(|row| row.id);
        all.changes.iter().map(|changes| changes.lock.as_ref().map(holder)).collect()
    }

    #[test]
    fn all_free_names_are_granted() {
        let claims = [claim(1), claim(2)];
        let all = claim_all(&[snapshot(LockRow::default()), snapshot(held_by(9, NOW - 1))], &claims, CLIENT);
        let tokens: Vec<u64> = all.reply.as_ref().unwrap().iter().map(|grant| grant.token.number).collect();
        assert_eq!(tokens, [NOW as u64, NOW as u64]);
        assert_eq!(holders(&all), [Some(Some(claims[0].id)), Some(Some(claims[1].id))]);
    }

    #[test]
    fn a_taken_name_leaves_every_other_row_as_it_is() {
        let claims = [claim(1), claim(2), claim(3)];
        let rows = [LockRow::default(), held_by(9, NOW + 1), LockRow::default()];
        let all = claim_all(&rows.map(snapshot), &claims, CLIENT);
        let refused = all.reply.as_ref().unwrap_err();
        assert!(refused.index == 1 && matches!(refused.answer, Ok(Answer::Taken(_))), "{refused:?}");
        assert_eq!(holders(&all), [None, None, None]);
    }

    /// An earlier request of the same claims was granted, and one of the holds was lost since.
    #[test]
    fn holds_of_an_earlier_request_end_if_a_name_is_taken() {
        let claims = [claim(1), claim(2), claim(3)];
        let rows = [held_by(1, NOW + 1), held_by(9, NOW + 1), held_by(3, NOW + 1)];
        let all = claim_all(&rows.map(snapshot), &claims, CLIENT);
        assert_eq!(holders(&all), [Some(None), None, Some(None)]);
    }

    #[test]
    fn an_unreadable_row_is_named_and_nothing_is_written() {
        let claims = [claim(1), claim(2)];
        let last_token = LockRow { token: i64::MAX, ..LockRow::default() };
        for unusable in [Err(bad_value("id", "it is not 16 bytes long")), snapshot(last_token)] {
            let all = claim_all(&[snapshot(LockRow::default()), unusable], &claims, CLIENT);
            let refused = all.reply.as_ref().unwrap_err();
            let fault = refused.answer.as_ref().map_err(|error| error.fault).map(drop);
            assert_eq!((refused.index, fault), (1, Err(Fault::Misconfigured)));
            assert!(all.changes.is_empty());
        }
    }

    #[test]
    fn an_answer_of_the_database_without_a_name_grants_nothing() {
        let all = claim_all(&[snapshot(LockRow::default())], &[claim(1), claim(2)], CLIENT);
        assert!(all.reply.is_err() && all.changes.is_empty());
    }

    /// R24: a set of unusable rows says nothing about the clock of the database.
    #[test]
    fn unusable_rows_have_no_time() {
        let unusable = Err(Failed::new(Fault::Misconfigured, "unusable"));
        let all = claim_all(&[unusable], &[claim(1)], CLIENT);
        assert_eq!(all.now, None);
        assert!(matches!(all.reply, Err(NotGranted { index: 0, answer: Err(_) })), "{all:?}");
    }
}
