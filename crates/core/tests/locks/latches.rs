//! Latches: named parties count down, and others wait for all of them. On paused time.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Latch, Locks, MemoKind, NewMemo};
use leasehold_testkit::{
    decorators::{Fault, Verb},
    dropper::drop_at_every_poll,
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    World,
    altered::{Altered, client_of},
    cleanup::{new_client, new_store, paused_runtime},
    elections::slow_client,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn import(locks: &Locks) -> Latch {
    locks.latch("import", 3)
}

#[test]
fn who_waits_first_is_woken_by_the_last_party() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let clients: Vec<_> = (0..4).map(|_| new_client(&store, &env).0).collect();
        let waiting: Vec<_> = clients.iter().map(|locks| tokio::spawn(import(locks).wait())).collect();
        sleep(HOUR).await;
        for party in ["a", "b"] {
            import(&clients[0]).count_down(party).await.unwrap();
        }
        sleep(HOUR).await;
        assert!(waiting.iter().all(|task| !task.is_finished()));
        assert!(import(&clients[1]).count_down("c").await.unwrap().is_open());
        for task in waiting {
            let woken = timeout(SECOND, task).await.expect("all of them are woken").unwrap().unwrap();
            assert!(woken.parties().eq(["a", "b", "c"]));
        }
        assert!(clients[0].list("").await.unwrap().is_empty());
    });
}

#[test]
fn a_party_counts_one_time_and_costs_one_request_when_it_counts_down_again() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, _, counting) = new_client(&store, &env);
        for _ in 0..3 {
            let arrivals = import(&locks).count_down("a").await.unwrap();
            assert_eq!((arrivals.missing(), arrivals.count()), (2, 3));
        }
        let calls = [Verb::Claim, Verb::Memo].map(|verb| counting.count(verb).calls);
        assert_eq!(calls, [1, 1], "the hold and the write of the first time");
    });
}

#[test]
fn parties_that_count_down_at_the_same_time_are_all_counted() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let clients: Vec<_> = (0..2).map(|_| new_client(&store, &env).0).collect();
        // Both have read the latch before one of them gets the hold.
        let held = clients[0].mutex("import").acquire().await.unwrap();
        let count_down = |(locks, party): (&Locks, &'static str)| {
            let latch = import(locks);
            tokio::spawn(async move { latch.count_down(party).await })
        };
        let parties: Vec<_> = clients.iter().zip(["a", "b"]).map(count_down).collect();
        sleep(SECOND).await;
        held.release().await.unwrap();
        for party in parties {
            party.await.unwrap().unwrap();
        }
        assert!(import(&clients[0]).arrivals().await.unwrap().parties().eq(["a", "b"]));
    });
}

#[test]
fn a_count_down_with_an_unknown_outcome_can_be_repeated() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = new_client(&store, &env);
        for (party, fault) in [("a", Fault::RequestLost), ("b", Fault::ReplyLost)] {
            faulty.next(Verb::Memo, fault);
            // The write is repeated and read back.
            assert!(import(&locks).count_down(party).await.unwrap().parties().any(|other| other == party));
        }
        let (cut_off, slow) = slow_client(&store, &env);
        slow.hold_replies(Verb::Memo);
        let unknown = import(&cut_off).count_down("c").await.unwrap_err();
        assert!(unknown.is_unknown() || unknown.is_lost(), "{unknown}");
        let arrivals = import(&locks).count_down("c").await.unwrap();
        assert!(arrivals.is_open() && arrivals.parties().eq(["a", "b", "c"]));
    });
}

#[test]
fn an_open_latch_takes_no_more_parties_and_is_forgotten_after_its_time() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, _, counting) = new_client(&store, &env);
        let latch = import(&locks).keep(HOUR);
        for party in ["a", "b", "c"] {
            sleep(HOUR - SECOND).await;
            latch.count_down(party).await.unwrap();
        }
        let writes = counting.count(Verb::Memo).calls;
        let fourth = latch.count_down("d").await.unwrap();
        assert!(fourth.is_open() && fourth.parties().eq(["a", "b", "c"]));
        assert_eq!(counting.count(Verb::Memo).calls, writes, "it neither changes the latch nor its end");
        sleep(HOUR - SECOND).await;
        assert!(latch.wait_within(SECOND / 2).await.unwrap().is_open());
        sleep(SECOND).await;
        assert_eq!(latch.arrivals().await.unwrap().missing(), 3);
        assert!(latch.wait_within(SECOND).await.unwrap_err().is_timed_out());
    });
}

#[test]
fn a_wait_has_its_limit_and_says_how_many_are_missing() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        import(&locks).count_down("a").await.unwrap();
        let began = Instant::now();
        let error = import(&locks).wait_within(SECOND * 5).await.unwrap_err();
        assert!(error.is_timed_out() && error.to_string().contains("2 of 3 parties"), "{error}");
        assert!(began.elapsed() >= SECOND * 5 && began.elapsed() < SECOND * 7);
    });
}

#[test]
fn a_wait_outlasts_an_outage() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let (cut_off, slow) = slow_client(&store, &env);
        slow.hold_requests(Verb::Inspect);
        let limited = import(&cut_off).wait_within(SECOND * 30).await.unwrap_err();
        assert!(!limited.is_timed_out(), "it could not be read: {limited}");
        let waiting = tokio::spawn(import(&cut_off).wait());
        for party in ["a", "b", "c"] {
            import(&locks).count_down(party).await.unwrap();
        }
        sleep(SECOND * 60).await;
        assert!(!waiting.is_finished());
        slow.open(Verb::Inspect);
        assert!(timeout(SECOND * 10, waiting).await.unwrap().unwrap().unwrap().is_open());
    });
}

#[test]
fn a_limited_wait_names_no_count_that_it_has_not_read() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let (cut_off, slow) = slow_client(&store, &env);
        slow.hold_requests(Verb::Inspect);
        let began = Instant::now();
        let unread = import(&cut_off).wait_within(SECOND / 2).await.unwrap_err();
        assert!(unread.is_unreachable() && began.elapsed() < SECOND, "{unread}");
        slow.open(Verb::Inspect);
        // The latch is read, and the next read is not answered.
        let waiting = tokio::spawn(import(&cut_off).wait_within(SECOND * 3 / 2));
        sleep(SECOND).await;
        slow.hold_requests(Verb::Inspect);
        import(&locks).count_down("a").await.unwrap();
        let stale = waiting.await.unwrap().unwrap_err();
        assert!(stale.is_unreachable(), "{stale}");
        // A read that is under way at the limit is answered soon after it.
        let waiting = tokio::spawn(import(&cut_off).wait_within(SECOND / 2));
        sleep(Duration::from_millis(510)).await;
        slow.open(Verb::Inspect);
        let late = waiting.await.unwrap().unwrap_err();
        assert!(late.is_timed_out() && late.to_string().contains("2 of 3 parties"), "{late}");
    });
}

#[test]
fn the_names_of_all_parties_fit_into_one_memo() {
    let world = World::new();
    let locks = world.client();
    let latch = locks.latch("many", 200);
    let party = |number: usize| format!("{number:0512}");
    let added =
        (0..200).map(|number| latch.count_down_blocking(party(number))).take_while(Result::is_ok).count();
    // 64 KiB, less the first line, in lines of 513 bytes.
    assert_eq!(added, 127);
    let error = latch.count_down_blocking(party(127)).unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("at most 65536"), "{error}");
    assert_eq!(pollster::block_on(latch.arrivals()).unwrap().missing(), 73, "nothing was lost");
    world.assert_no_leftovers();
}

#[test]
fn wrong_arguments_and_other_memos_are_refused() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, _, counting) = new_client(&store, &env);
        for (latch, party, reason) in [
            (locks.latch("x", 0), "a", "a count of 0"),
            (locks.latch("x", 10_001), "a", "a count of 10001"),
            (locks.latch("x", 1), "", "no name of a party"),
            (locks.latch("x", 1), "a\nb", "no name of a party"),
            (locks.latch("", 1), "a", "name"),
            (locks.latch("x", 1).keep(Duration::ZERO), "a", "cannot be kept"),
        ] {
            let error = latch.count_down(party).await.unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains(reason), "{error}");
        }
        assert!(locks.latch("x", 0).wait().await.unwrap_err().is_invalid());
        let engine = Arc::new(Altered::new(&store, |profile| profile.no_memos = Some("it is a test")));
        let without = import(&client_of(&engine, &env));
        assert!(without.count_down("a").await.unwrap_err().is_misconfigured());
        assert!(without.wait().await.unwrap_err().is_misconfigured());
        assert_eq!(counting.count(Verb::Claim).calls, 0);
        import(&locks).count_down("a").await.unwrap();
        let error = locks.latch("import", 4).count_down("b").await.unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("made for 3 parties"), "{error}");
        assert!(locks.latch("import", 4).wait().await.unwrap_err().is_misconfigured());
        for (kind, bytes, reason) in [
            (MemoKind::ELECTION, "leader", "kind election"),
            (MemoKind::LATCH, "2 of a later version", "is no list of parties"),
        ] {
            let guard = locks.mutex(kind.as_str()).acquire().await.unwrap();
            guard.release_with_memo(NewMemo::new(kind.clone(), bytes, HOUR).unwrap()).await.unwrap();
            let error = locks.latch(kind.as_str(), 3).count_down("a").await.unwrap_err();
            assert!(error.is_misconfigured() && error.to_string().contains(reason), "{error}");
        }
    });
}

#[test]
fn a_count_down_that_is_dropped_at_any_poll_can_be_repeated() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let latch = locks.latch("dropped", 2);
    let count_down = || latch.count_down("a");
    drop_at_every_poll(count_down, || (), |_| world.assert_no_leftovers());
    assert!(pollster::block_on(other.latch("dropped", 2).arrivals()).unwrap().parties().eq(["a"]));
    let wait = || latch.wait_within(Duration::from_millis(5));
    drop_at_every_poll(wait, || (), |_| world.assert_no_leftovers());
    latch.count_down_blocking("b").unwrap();
    assert!(other.latch("dropped", 2).wait_blocking().unwrap().is_open());
    assert!(other.latch("dropped", 2).wait_within_blocking(Duration::ZERO).is_ok());
}

#[test]
fn the_end_of_the_locks_ends_a_wait() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let waiting = tokio::spawn(import(&locks).wait());
        let limited = tokio::spawn(import(&locks).wait_within(HOUR));
        sleep(SECOND).await;
        locks.close(SECOND).await;
        for task in [waiting, limited] {
            let ended = timeout(SECOND * 5, task).await.expect("it ends").unwrap();
            assert!(ended.unwrap_err().is_closed());
        }
    });
}
