//! The order of arrival, across engines and processes.

use nix::sys::signal::Signal;

use super::{
    super::{
        dir::open::Access,
        kernel::locks::Mark,
        table::Table,
        table::layout::MAX_CLAIMS,
        table::record::{Record, RecordState},
    },
    helper::Helper,
    *,
};

#[test]
fn claims_of_three_engines_are_granted_in_the_order_of_arrival() {
    let scratch = Scratch::new();
    let engines = [scratch.engine(), scratch.engine(), scratch.engine()];
    let first = claim("job", Mode::Exclusive);
    let mut last = held(create(&engines[0], &first)).token;
    let queue: Vec<(usize, Claim)> = (0..9).map(|n| (n % 3, claim("job", Mode::Exclusive))).collect();
    for (index, (engine, claim)) in queue.iter().enumerate() {
        assert_eq!(waiting(create(&engines[*engine], claim)).ahead, Some(index as u32));
    }
    release_claim(&engines[0], &first);
    for (index, (engine, claim)) in queue.iter().enumerate() {
        for (later_engine, later_claim) in &queue[index + 1..] {
            waiting(ask(&engines[*later_engine], later_claim));
        }
        taken(create(&engines[0], &try_claim("job", Mode::Exclusive)));
        let token = held(ask(&engines[*engine], claim)).token;
        assert!(token > last);
        last = token;
        release_claim(&engines[*engine], claim);
    }
    held(create(&engines[1], &try_claim("job", Mode::Exclusive)));
}

#[test]
fn a_new_claim_does_not_overtake_a_waiter_of_a_free_name() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.engine(), scratch.engine());
    let (first, waiter) = (claim("job", Mode::Exclusive), claim("job", Mode::Exclusive));
    held(create(&one, &first));
    waiting(create(&two, &waiter));
    release_claim(&one, &first);
    for mode in [Mode::Exclusive, Mode::Shared] {
        taken(create(&one, &try_claim("job", mode)));
    }
    let again = claim("job", Mode::Exclusive);
    assert_eq!(waiting(create(&one, &again)).ahead, Some(1));
    held(ask(&two, &waiter));
}

#[test]
fn readers_share_and_wait_behind_a_waiting_writer() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let readers = [claim("job", Mode::Shared), claim("job", Mode::Shared)];
    readers.iter().for_each(|reader| assert_eq!(held(create(&engine, reader)).tokens, 1));
    let writer = claim("job", Mode::Exclusive);
    waiting(create(&engine, &writer));
    let late = [claim("job", Mode::Shared), claim("job", Mode::Shared)];
    assert_eq!(waiting(create(&engine, &late[0])).ahead, Some(1));
    assert_eq!(waiting(create(&engine, &late[1])).ahead, Some(2));
    release_claim(&engine, &readers[0]);
    waiting(ask(&engine, &writer));
    release_claim(&engine, &readers[1]);
    waiting(ask(&engine, &late[0]));
    held(ask(&engine, &writer));
    waiting(ask(&engine, &late[1]));
    release_claim(&engine, &writer);
    held(ask(&engine, &late[1]));
    held(ask(&engine, &late[0]));
}

#[test]
fn a_waiter_that_ends_delays_no_other_waiter() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let first = claim("job", Mode::Exclusive);
    held(create(&engine, &first));
    let mut helper = Helper::start(&scratch.dir());
    assert_eq!(helper.request("claim job exclusive"), "waiting 0");
    let (gives_up, last) = (claim("job", Mode::Exclusive), claim("job", Mode::Exclusive));
    assert_eq!(waiting(create(&engine, &gives_up)).ahead, Some(1));
    assert_eq!(waiting(create(&engine, &last)).ahead, Some(2));
    release_claim(&engine, &gives_up);
    assert_eq!(waiting(ask(&engine, &last)).ahead, Some(1));
    helper.kill();
    assert_eq!(waiting(ask(&engine, &last)).ahead, Some(0));
    release_claim(&engine, &first);
    held(ask(&engine, &last));
    release_claim(&engine, &last);
    let header = std::fs::read(scratch.state_file("job")).unwrap();
    assert_eq!(header[576], 0, "the table is marked empty again");
}

#[test]
fn a_stopped_waiter_is_passed_and_stays_in_the_queue() {
    let scratch = Scratch::new();
    let (clock, env) = env_with_manual_clock();
    let engine = FileEngine::open(Some(scratch.dir()), env).unwrap();
    let (first, second) = (claim("job", Mode::Exclusive), claim("job", Mode::Exclusive));
    held(create(&engine, &first));
    let mut helper = Helper::start(&scratch.dir());
    assert_eq!(helper.request("claim job exclusive"), "waiting 0");
    helper.signal(Signal::SIGSTOP);
    waiting(create(&engine, &second));
    release_claim(&engine, &first);
    waiting(ask(&engine, &second));
    clock.advance(Duration::from_millis(900));
    waiting(ask(&engine, &second));
    clock.advance(Duration::from_millis(200));
    held(ask(&engine, &second));
    helper.signal(Signal::SIGCONT);
    assert_eq!(helper.request("ask"), "waiting 0");
    release_claim(&engine, &second);
    assert!(helper.request("ask").starts_with("held"));
}

#[test]
fn a_stopped_latch_owner_makes_others_retry() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let first = claim("job", Mode::Exclusive);
    held(create(&engine, &first));
    let (_, stopped) = opened(&engine, "job");
    let latch = stopped.latch().unwrap();
    let second = claim("job", Mode::Exclusive);
    assert_eq!(create(&engine, &second).unwrap_err().fault, crate::Fault::Retry);
    release_claim(&engine, &first);
    held(create(&engine, &try_claim("job", Mode::Exclusive)));
    drop(latch);
    waiting(create(&engine, &second));
}

/// I13: a reader may fit beside the claim that changes the table, so the answer must not be that the lock is taken.
#[test]
fn a_reader_is_granted_while_another_reader_releases() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let first = claim("job", Mode::Shared);
    held(create(&engine, &first));
    let (_, releasing) = opened(&engine, "job");
    let latch = releasing.latch().unwrap();
    for mode in [Mode::Shared, Mode::Permits { count: 1, limit: 2 }] {
        assert_eq!(create(&engine, &try_claim("job", mode)).unwrap_err().fault, crate::Fault::Retry);
    }
    taken(create(&engine, &try_claim("job", Mode::Exclusive)));
    drop(latch);
    held(create(&engine, &try_claim("job", Mode::Shared)));
}

#[test]
fn a_claim_far_back_is_answered_without_the_latch() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    held(create(&engine, &claim("job", Mode::Exclusive)));
    let mut helper = Helper::start(&scratch.dir());
    assert_eq!(helper.request("claim job exclusive"), "waiting 0");
    for _ in 0..8 {
        waiting(create(&engine, &claim("job", Mode::Exclusive)));
    }
    let (last, reader) = (claim("job", Mode::Exclusive), claim("job", Mode::Shared));
    assert_eq!(waiting(create(&engine, &last)).ahead, Some(9));
    assert_eq!(waiting(create(&engine, &reader)).ahead, Some(10));
    let (_, stopped) = opened(&engine, "job");
    let latch = stopped.latch().unwrap();
    assert_eq!(waiting(ask(&engine, &last)).ahead, Some(9));
    assert_eq!(waiting(ask(&engine, &reader)).ahead, Some(10));
    helper.kill();
    assert_eq!(ask(&engine, &last).unwrap_err().fault, crate::Fault::Retry);
    drop(latch);
    assert_eq!(waiting(ask(&engine, &last)).ahead, Some(8), "the dead one was cleared away");
}

#[test]
fn a_full_queue_refuses_and_dead_entries_are_reused() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    held(create(&engine, &claim("job", Mode::Exclusive)));
    let (paths, lock_file) = opened(&engine, "job");
    let state_file = engine.state_files.get(&engine.dir, &paths, Access::Existing).unwrap().unwrap();
    let mut table =
        Table::load(&engine, &paths, &lock_file, &state_file, lock_file.latch().unwrap()).unwrap();
    for _ in 0..MAX_CLAIMS {
        let (slot, ticket) = table.assign_slot().unwrap();
        lock_file.set_mark(Mark::Ticket(ticket)).unwrap();
        let record =
            engine.new_record(&claim("job", Mode::Exclusive), RecordState::Waiting, engine.env.clock.now());
        table.write_record(slot, Record { ticket, ..record }).unwrap();
    }
    drop(table);
    let error = create(&engine, &claim("job", Mode::Exclusive)).unwrap_err();
    assert_eq!(error.fault, crate::Fault::Refused);
    assert!(error.message.contains("the queue is full"), "{error}");
    assert_eq!(taken(create(&engine, &try_claim("job", Mode::Exclusive))).ahead, Some(MAX_CLAIMS));
    drop(lock_file);
    assert_eq!(waiting(create(&engine, &claim("job", Mode::Exclusive))).ahead, Some(0));
}
