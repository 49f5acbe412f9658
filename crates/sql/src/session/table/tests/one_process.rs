//! The table of one process: the times of its grants, the keys that it counts, and how often it tries.

use std::time::Duration;

use leasehold_core::{Answer, Claim, ClaimId, Fault, How, Instant, Mode, Name};

use super::{
    super::{KeyedClaim, Outcome, SessionTerms, Table},
    Process, World, claim_of, keys_of,
};
use crate::{
    database::Failed,
    session::{
        lock_key::Key,
        server::{BatchReply, NameKeys, Share, Tried},
    },
};

/// A claim that a test asks for at a time.
fn ask(table: &mut Table, claim: &Claim, asked: Instant, now: Instant) {
    table.claim(KeyedClaim { claim, keys: keys_of(0), permit_keys: None, asked }, How::Create, now);
}

/// The ttl of the grant that answers the claim.
fn granted_ttl(table: &mut Table, claim: &Claim) -> Duration {
    let outcomes = table.take_outcomes();
    let ttl = outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Answer(id, Ok(Answer::Held(grant))) if *id == claim.id => grant.ttl,
        _ => None,
    });
    ttl.unwrap_or_else(|| panic!("{outcomes:?}"))
}

/// R1: the session is only known to live since the batch was sent, and the claim counts from its newest request.
#[test]
fn a_repeated_request_gets_what_is_left_of_the_time_since_the_batch_was_sent() {
    let at = |seconds| Instant::from_nanos(1_000_000_000).after(Duration::from_secs(seconds));
    let mut world = World::new(0);
    let claim = Claim { ttl: Duration::from_secs(600), ..world.new_claim(0, Mode::Exclusive) };
    let process = &mut world.processes[0];
    ask(&mut process.table, &claim, at(0), at(0));
    let (batch, plan) = process.table.take_batch().unwrap();
    let reply = world.server.exchange(process.session, &batch);
    ask(&mut process.table, &claim, at(10), at(10));
    process.table.apply((batch, plan), reply, at(0), at(14));
    assert_eq!(granted_ttl(&mut process.table, &claim), Duration::from_secs(5));
    // The reply came between the check for a hold and the request.
    ask(&mut process.table, &claim, at(12), at(14));
    assert_eq!(granted_ttl(&mut process.table, &claim), Duration::from_secs(3));
    process.table.heartbeat_answered(process.session, at(13));
    ask(&mut process.table, &claim, at(14), at(14));
    assert_eq!(granted_ttl(&mut process.table, &claim), Duration::from_secs(14));
    // A machine that was suspended: nothing is left.
    ask(&mut process.table, &claim, at(600), at(600));
    assert_eq!(granted_ttl(&mut process.table, &claim), Duration::ZERO);
}

/// A name that waits uses keys too, and half of the lock table is left to other processes.
#[test]
fn waiting_claims_count_in_half_of_the_lock_table() {
    const MAX_KEYS: usize = 30;
    let mut world = World::new(0);
    let (now, server) = (world.now, &mut world.server);
    let table = &mut world.processes[0].table;
    let terms = SessionTerms { max_keys: MAX_KEYS, ..*table.terms() };
    table.begin_session(terms, now);
    let keys_of = |number| {
        let key = |kind| Key::Bigint(number * 100 + kind);
        NameKeys { lock: key(0), waiters: Some(key(1)), poller: Some(key(2)) }
    };
    let (mut waiting, mut refused) = (0, 0);
    for number in 1..=2 * MAX_KEYS as i64 {
        // Another process has the name.
        assert!(server.lock(u64::MAX, &keys_of(number).lock, Share::Alone));
        let name = Name::new(&format!("w{number}")).unwrap();
        let id = ClaimId(u128::try_from(number).unwrap().to_be_bytes());
        let claim = Claim { id, name, ..claim_of(Mode::Exclusive) };
        table.claim(
            KeyedClaim { claim: &claim, keys: keys_of(number), permit_keys: None, asked: now },
            How::Create,
            now,
        );
        while let Some((batch, plan)) = table.take_batch() {
            let reply = server.exchange(1, &batch);
            table.apply((batch, plan), reply, now, now);
        }
        for outcome in table.take_outcomes() {
            match outcome {
                Outcome::Answer(_, Ok(Answer::Waiting(_))) => waiting += 1,
                Outcome::Answer(_, Err(error)) if error.fault == Fault::Refused => refused += 1,
                outcome => panic!("{outcome:?}"),
            }
        }
        let used = server.locks.values().flatten().filter(|(session, _)| *session == 1).count();
        assert!(used <= MAX_KEYS, "{used} locks");
    }
    assert!(waiting >= MAX_KEYS / 3 && refused >= MAX_KEYS, "{waiting} wait, {refused} are refused");
    // A claim that waits has room to be granted.
    server.end_session(u64::MAX);
    table.poll(now.after(Duration::from_secs(1)));
    while let Some((batch, plan)) = table.take_batch() {
        let reply = server.exchange(1, &batch);
        table.apply((batch, plan), reply, now, now);
    }
    let is_granted = |outcome: &Outcome| matches!(outcome, Outcome::Granted { .. });
    assert_eq!(table.take_outcomes().iter().filter(|outcome| is_granted(outcome)).count(), waiting);
}

/// The poller finds a fresh change fast, and costs the server less the longer it waits.
#[test]
fn the_poller_tries_less_often_the_longer_it_waits() {
    let mut world = World::new(0);
    let (mut now, server) = (world.now, &mut world.server);
    let process = &mut world.processes[0];
    assert!(server.lock(u64::MAX, &keys_of(0).lock, Share::Alone));
    let claim = claim_of(Mode::Exclusive);
    ask(&mut process.table, &claim, now, now);
    let mut tries_until = |process: &mut Process, end: Instant| {
        let mut tries = 0;
        loop {
            while let Some((batch, plan)) = process.table.take_batch() {
                tries += batch.tries.len();
                let reply = server.exchange(process.session, &batch);
                process.table.apply((batch, plan), reply, now, now);
            }
            now = process.table.next_due().unwrap();
            if now > end {
                return tries;
            }
            process.table.poll(now);
        }
    };
    let at = |seconds| world.now.after(Duration::from_secs(seconds));
    let (first, late) = (tries_until(process, at(2)), tries_until(process, at(100)));
    assert!((90..=110).contains(&first), "{first} tries in 2 s");
    let minute = tries_until(process, at(160));
    assert!((235..=245).contains(&minute), "{minute} tries in a minute, and {late} before");
    process.table.may_be_free(&Key::Bigint(1), at(160));
    let woken = tries_until(process, at(162));
    assert!((90..=110).contains(&woken), "{woken} tries in the 2 s after a notification");
}

/// A batch has a bounded number of permit statements, and no try is forgotten.
#[test]
fn permit_tries_are_spread_over_batches() {
    let mut world = World::new(0);
    let now = world.now;
    let table = &mut world.processes[0].table;
    for number in 1..=100_i64 {
        let key = |kind| Key::Bigint(number * 100 + kind);
        let keys = NameKeys { lock: key(0), waiters: Some(key(1)), poller: Some(key(2)) };
        let name = Name::new(&format!("p{number}")).unwrap();
        let id = ClaimId(u128::try_from(number).unwrap().to_be_bytes());
        let claim = Claim { id, name, ..claim_of(Mode::Permits { count: 1, limit: 2 }) };
        let permit_keys = Some((vec![key(3), key(4)], key(5)));
        table.claim(KeyedClaim { claim: &claim, keys, permit_keys, asked: now }, How::Create, now);
    }
    let mut tries = 0;
    while let Some((batch, plan)) = table.take_batch() {
        assert!((1..=32).contains(&batch.tries.len()), "{} tries", batch.tries.len());
        tries += batch.tries.len();
        let reply = world.server.exchange(1, &batch);
        table.apply((batch, plan), reply, now, now);
    }
    assert_eq!(tries, 100);
    let held = |outcome: &Outcome| matches!(outcome, Outcome::Answer(_, Ok(Answer::Held(_))));
    assert_eq!(table.take_outcomes().iter().filter(|outcome| held(outcome)).count(), 100);
}

/// The server works on the second half while the client still handles the reply to the first one.
#[test]
fn much_is_sent_as_two_halves_and_little_at_once() {
    let mut world = World::new(0);
    let now = world.now;
    let claims: Vec<Claim> = (0..8).map(|number| world.new_claim(number, Mode::Exclusive)).collect();
    let sizes_after_claims = |table: &mut Table, claims: &[Claim]| -> Vec<usize> {
        for (number, claim) in (1_i64..).zip(claims) {
            let key = |kind| Key::Bigint(number * 100 + kind);
            let keys = NameKeys { lock: key(0), waiters: Some(key(1)), poller: Some(key(2)) };
            let keyed = KeyedClaim { claim, keys, permit_keys: None, asked: now };
            table.claim(keyed, How::Create, now);
        }
        std::iter::from_fn(|| table.take_half().map(|(batch, _)| batch.tries.len())).collect()
    };
    assert_eq!(sizes_after_claims(&mut world.processes[0].table, &claims), [4, 4]);
    assert_eq!(sizes_after_claims(&mut world.processes[1].table, &claims[..5]), [5]);
}

/// A try that failed alone fails its own claim alone, and leaves its key free.
#[test]
fn a_failed_try_fails_no_other_claim_of_its_batch() {
    let mut world = World::new(0);
    let now = world.now;
    let claims = [world.new_claim(0, Mode::Exclusive), world.new_claim(1, Mode::Exclusive)];
    let table = &mut world.processes[0].table;
    for (number, claim) in claims.iter().enumerate() {
        let keyed = KeyedClaim { claim, keys: keys_of(number), permit_keys: None, asked: now };
        table.claim(keyed, How::Create, now);
    }
    let batch = table.take_batch().unwrap();
    let failed = Failed::new(Fault::Retry, "the gate is closed");
    let tried = vec![Tried::Failed(failed), Tried::Granted(Vec::new())];
    table.apply(batch, BatchReply { tried, token: 1, ..BatchReply::default() }, now, now);
    let outcomes = table.take_outcomes();
    let [Outcome::Answer(first, Err(error)), Outcome::Answer(second, Ok(Answer::Held(_)))] = &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    assert_eq!(([*first, *second], error.fault), (claims.each_ref().map(|claim| claim.id), Fault::Retry));
    assert_eq!(table.keys.keys().collect::<Vec<_>>(), [&keys_of(1).lock]);
}
