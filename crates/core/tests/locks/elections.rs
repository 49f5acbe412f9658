//! Leader election: one leader, its term and value, what observers see, and hand-over. On paused time.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{
    Engine, Env, Keeper, Leader, LeaderWatch, Leadership, Leading, Locks, MAX_MEMO_BYTES, MemoKind, NewMemo,
    Previous, Role, RunError,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::{
    decorators::{Fault, Slow, Verb},
    dropper::{drop_at_every_poll, poll_once},
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    World,
    altered::{Altered, client_of},
    cleanup::{new_client, new_store, paused_runtime},
};

const TTL: Duration = Duration::from_secs(10);

/// A client whose requests can be stopped, as those of a killed or disconnected process.
pub(crate) fn slow_client(store: &Arc<MemoryStore>, env: &Env) -> (Locks, Arc<Slow>) {
    let slow = Arc::new(Slow::new(Arc::new(MemoryEngine::new(Arc::clone(store)))));
    let keeper = Keeper::on(tokio::runtime::Handle::current());
    let locks = Locks::builder(Arc::clone(&slow) as Arc<dyn Engine>).keeper(keeper).env(env.clone()).build();
    (locks, slow)
}

/// From now on no request of this client arrives.
pub(crate) fn kill(slow: &Slow) {
    for verb in [Verb::Claim, Verb::Renew, Verb::Release, Verb::Memo, Verb::Inspect] {
        slow.hold_requests(verb);
    }
}

/// The leader that an observer sees next, past vacancies.
async fn next_leader(watch: &mut LeaderWatch) -> Leader {
    loop {
        if let Leadership::Held(leader) = watch.changed().await.unwrap() {
            return leader;
        }
    }
}

fn assert_leader(leader: &Leader, value: &str, leading: &Leading) {
    assert_eq!((leader.value.as_deref(), leader.term), (Some(value), leading.term()));
}

#[test]
fn observers_see_the_value_and_the_term_of_the_leader_and_the_vacancy_after_it() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let ((locks, ..), (other, ..)) = (new_client(&store, &env), new_client(&store, &env));
        let mut watch = other.election("n").observe().unwrap();
        assert_eq!(watch.changed().await.unwrap(), Leadership::Vacant);
        let leading = locks.election("n").value("first").campaign().await.unwrap();
        assert_leader(&next_leader(&mut watch).await, "first", &leading);
        leading.proclaim("second").await.unwrap();
        assert_leader(&next_leader(&mut watch).await, "second", &leading);
        assert_leader(&other.election("n").leader().await.unwrap().unwrap(), "second", &leading);
        leading.resign().await.unwrap();
        assert_eq!(watch.changed().await.unwrap(), Leadership::Vacant);
        // A minute later not even the memo is left.
        sleep(Duration::from_secs(60)).await;
        assert_eq!(other.read_memo("n").await.unwrap(), None);
        // A leader without a value shows its term, and a mutex of the name is no leader.
        let silent = locks.election("n").campaign().await.unwrap();
        assert_eq!(next_leader(&mut watch).await.value, None);
        drop(silent);
        assert_eq!(watch.changed().await.unwrap(), Leadership::Vacant);
        let _mutex = locks.mutex("n").acquire().await.unwrap();
        assert_eq!(other.election("n").leader().await.unwrap(), None);
    });
}

#[test]
fn a_resignation_hands_over_at_once_and_until_the_next_leader_has_published_observers_see_a_vacancy() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let (next_locks, slow) = slow_client(&store, &env);
        let (observer, ..) = new_client(&store, &env);
        let first = locks.election("n").value("first").ttl(TTL).campaign().await.unwrap();
        let campaign = tokio::spawn(next_locks.election("n").value("next").ttl(TTL).campaign());
        sleep(Duration::from_millis(1)).await;
        let mut watch = observer.election("n").observe().unwrap();
        assert_leader(&next_leader(&mut watch).await, "first", &first);
        slow.hold_requests(Verb::Memo);
        let (began_at, first_term) = (Instant::now(), first.term());
        first.resign().await.unwrap();
        // The next leader is granted the name, and its first request is the write of its memo.
        slow.requests_held(Verb::Memo, 1).await;
        assert_eq!(watch.changed().await.unwrap(), Leadership::Vacant);
        assert_eq!(observer.show("n").await.unwrap().holders.len(), 1);
        assert!(!campaign.is_finished(), "it does not lead before it has published");
        slow.open(Verb::Memo);
        let next = campaign.await.unwrap().unwrap();
        assert_leader(&next_leader(&mut watch).await, "next", &next);
        assert!(next.term() > first_term && next.guard().previous() == Previous::Clean);
        assert!(began_at.elapsed() < Duration::from_millis(100), "no lease was waited for");
    });
}

#[test]
fn a_limited_campaign_that_is_not_published_ends_in_time_and_frees_the_name() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, slow) = slow_client(&store, &env);
        let (other, ..) = new_client(&store, &env);
        slow.hold_requests(Verb::Memo);
        let campaign = locks.election("n").value("late").campaign_within(Duration::from_secs(1));
        let led = timeout(Duration::from_millis(1100), campaign).await.expect("I12");
        let error = led.unwrap_err();
        assert!(error.is_unreachable(), "{error}");
        assert!(error.to_string().contains("not finished within 1s"), "it was granted: {error}");
        slow.open(Verb::Memo);
        let next = other.election("n").value("next").campaign_within(Duration::from_secs(1)).await.unwrap();
        assert_leader(&other.election("n").leader().await.unwrap().unwrap(), "next", &next);
    });
}

#[test]
fn a_leader_that_was_replaced_changes_nothing() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, slow) = slow_client(&store, &env);
        let (other, ..) = new_client(&store, &env);
        let zombie = locks.election("n").value("zombie").ttl(TTL).campaign().await.unwrap();
        // The process is cut off while its lease runs out. Then its requests arrive.
        kill(&slow);
        let next = other.election("n").value("next").ttl(TTL).campaign().await.unwrap();
        assert_eq!(next.guard().previous(), Previous::Lapsed);
        assert!(!zombie.check() && next.term() > zombie.term());
        Verb::ALL.into_iter().for_each(|verb| slow.open(verb));
        assert!(zombie.proclaim("late").await.unwrap_err().is_lost());
        assert!(zombie.resign().await.unwrap_err().is_lost());
        next.guard().confirm().await.unwrap();
        assert_leader(&other.election("n").leader().await.unwrap().unwrap(), "next", &next);
        // An operator ends a term: the engine itself refuses the value, before the leader knows of it.
        other.break_hold("n", next.term().number, true).await.unwrap();
        let last = locks.election("n").value("last").campaign().await.unwrap();
        assert!(next.proclaim("late").await.unwrap_err().is_lost());
        assert_leader(&other.election("n").leader().await.unwrap().unwrap(), "last", &last);
    });
}

#[test]
fn work_is_dropped_before_the_name_is_released() {
    /// Tries to lead when it is dropped.
    struct TryAtDrop<'a>(&'a Locks, &'a std::cell::RefCell<Vec<bool>>);
    impl Drop for TryAtDrop<'_> {
        fn drop(&mut self) {
            let lead =
                poll_once(self.0.election("n").try_campaign()).expect("the memory engine answers at once");
            self.1.borrow_mut().push(lead.is_ok());
        }
    }
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let led = std::cell::RefCell::new(Vec::new());
    let output = pollster::block_on(locks.election("n").run(async |leading| {
        let _at_drop = TryAtDrop(&other, &led);
        leading.term()
    }));
    output.unwrap();
    let mut dropped = Box::pin(locks.election("n").run(async |_| {
        let _at_drop = TryAtDrop(&other, &led);
        std::future::pending::<()>().await;
    }));
    assert!(poll_once(dropped.as_mut()).is_none());
    drop(dropped);
    let lost = pollster::block_on(locks.election("n").run(async |leading| {
        let _at_drop = TryAtDrop(&other, &led);
        other.break_hold("n", leading.term().number, false).await.unwrap();
        leading.guard().confirm().await.unwrap_err();
        std::future::pending::<()>().await;
    }));
    assert!(matches!(lost, Err(RunError::Cancelled(error)) if error.is_lost()));
    assert_eq!(led.into_inner(), [false, false, false]);
    world.assert_no_leftovers();
}

/// A hold that went to another request of the process would keep the claim id of the former leader, whose value would
/// seem to be that of a leader.
#[test]
fn a_dropped_leader_is_no_leader_for_the_next_request_of_its_process() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let leading = locks.election("n").value("first").campaign_blocking().unwrap();
    let (term, id) = (leading.term(), leading.guard().id());
    let mut mutex = std::pin::pin!(locks.mutex("n").acquire());
    assert!(poll_once(mutex.as_mut()).is_none());
    let mut next = std::pin::pin!(locks.election("n").value("next").campaign());
    assert!(poll_once(next.as_mut()).is_none());
    drop(leading);
    let mutex = pollster::block_on(mutex).unwrap();
    assert_eq!(other.election("n").leader_blocking().unwrap(), None);
    drop(mutex);
    let next = pollster::block_on(next).unwrap();
    assert!(next.guard().id() != id && next.term() > term);
    assert_leader(&other.election("n").leader_blocking().unwrap().unwrap(), "next", &next);
    // The same between two candidates of one process.
    let id = next.guard().id();
    let mut last = std::pin::pin!(locks.election("n").value("last").campaign());
    assert!(poll_once(last.as_mut()).is_none());
    drop(next);
    let last = pollster::block_on(last).unwrap();
    assert_ne!(last.guard().id(), id);
    drop(last);
    // The label of an owner is no identity: the same election never leads twice.
    let labelled = locks.election("m").owner("me");
    let one = labelled.campaign_blocking().unwrap();
    assert!(pollster::block_on(labelled.try_campaign()).unwrap_err().is_taken());
    assert_eq!(other.show_blocking("m").unwrap().holders[0].owner, "me");
    one.resign_blocking().unwrap();
}

#[test]
fn without_memos_leaders_have_terms_and_everything_with_a_value_is_refused_before_it_is_sent() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let engine = Arc::new(Altered::new(&store, |profile| profile.no_memos = Some("it is a test")));
        let locks = client_of(&engine, &env);
        let election = locks.election("n");
        let leading = election.campaign().await.unwrap();
        for error in [
            locks.election("m").value("x").campaign().await.unwrap_err(),
            locks.election("m").value("x").stand().unwrap_err(),
            leading.proclaim("x").await.unwrap_err(),
            election.observe().unwrap_err(),
            election.leader().await.unwrap_err(),
        ] {
            assert!(error.is_misconfigured() && error.to_string().contains("it is a test"), "{error}");
        }
        assert!(locks.list("m").await.unwrap().is_empty());
        let mut candidate = election.stand().unwrap();
        assert!(poll_once(std::pin::pin!(candidate.changed())).is_none());
        let term = leading.term();
        leading.resign().await.unwrap();
        let Role::Leader { token } = candidate.changed().await.unwrap() else { panic!("it leads") };
        assert!(token > term);
        candidate.resign().await.unwrap();
        assert!(election.try_campaign().await.is_ok());
    });
}

#[test]
fn an_observer_that_cannot_read_is_unsure_and_recovers() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let (observer, slow) = slow_client(&store, &env);
        let leading = locks.election("n").value("first").campaign().await.unwrap();
        let mut watch = observer.election("n").ttl(TTL).observe().unwrap();
        let seen = watch.changed().await.unwrap();
        // As long as it is read, it stays, also without a change.
        assert!(timeout(TTL * 5, watch.changed()).await.is_err());
        slow.hold_requests(Verb::Inspect);
        let began_at = Instant::now();
        assert_eq!(watch.changed().await.unwrap(), Leadership::Unsure);
        let took = began_at.elapsed();
        assert!(took > TTL - Duration::from_secs(3) && took <= TTL + Duration::from_secs(1), "{took:?}");
        slow.open(Verb::Inspect);
        assert_eq!(watch.changed().await.unwrap(), seen, "the same leader still leads");
        drop(leading);
    });
}

#[test]
fn terms_never_go_back_for_an_observer() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let engine = Arc::new(Altered::new(&store, |_| {}));
        let (observer, (locks, ..)) = (client_of(&engine, &env), new_client(&store, &env));
        let first = locks.election("n").value("first").campaign().await.unwrap();
        let mut watch = observer.election("n").observe().unwrap();
        next_leader(&mut watch).await;
        let old = locks.read_memo("n").await.unwrap();
        first.resign().await.unwrap();
        let second = locks.election("n").value("second").campaign().await.unwrap();
        assert_leader(&next_leader(&mut watch).await, "second", &second);
        engine.read_always(old);
        assert_eq!(watch.changed().await.unwrap(), Leadership::Unsure);
        engine.read_always(None);
        assert_leader(&next_leader(&mut watch).await, "second", &second);
    });
}

#[test]
fn a_value_without_an_answer_is_published_or_the_candidate_does_not_lead() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = new_client(&store, &env);
        for fault in [Fault::RequestLost, Fault::ReplyLost] {
            faulty.next(Verb::Memo, fault);
            let leading = locks.election("n").value("first").campaign().await.unwrap();
            assert_leader(&locks.election("n").leader().await.unwrap().unwrap(), "first", &leading);
            faulty.next(Verb::Memo, fault);
            leading.resign().await.unwrap();
        }
        assert_eq!(faulty.pending(), 0);
        let (cut_off, slow) = slow_client(&store, &env);
        slow.hold_requests(Verb::Memo);
        assert!(cut_off.election("n").value("x").campaign().await.unwrap_err().is_unknown());
        sleep(Duration::from_secs(1)).await;
        assert!(locks.mutex("n").try_acquire().await.is_ok(), "it was released");
    });
}

#[test]
fn values_and_memos_that_are_none_of_an_election_are_refused() {
    let world = World::new();
    let locks = world.client();
    for value in [String::new(), "x".repeat(MAX_MEMO_BYTES + 1)] {
        assert!(locks.election("n").value(value.clone()).campaign_blocking().unwrap_err().is_invalid());
        let leading = locks.election("n").campaign_blocking().unwrap();
        assert!(leading.proclaim_blocking(value).unwrap_err().is_invalid());
        leading.resign_blocking().unwrap();
    }
    drop(locks.election("n").value("x".repeat(MAX_MEMO_BYTES)).campaign_blocking().unwrap());
    let write = |name: &str, kind, bytes: &[u8]| {
        let memo = NewMemo::new(kind, bytes, Duration::from_secs(60)).unwrap();
        let guard = locks.mutex(name).blocking().acquire().unwrap();
        guard.write_memo_blocking(memo).unwrap();
        guard
    };
    drop(write("once", MemoKind::ONCE, b"result"));
    let _guard = write("bytes", MemoKind::ELECTION, b"\xff");
    for error in [
        locks.election("once").campaign_blocking().unwrap_err(),
        locks.election("once").leader_blocking().unwrap_err(),
        locks.election("once").observe().unwrap().changed_blocking().unwrap_err(),
        locks.election("bytes").leader_blocking().unwrap_err(),
    ] {
        assert!(error.is_misconfigured(), "{error}");
    }
    assert!(locks.mutex("once").blocking().try_acquire().is_ok(), "the refused candidate has released");
}

#[test]
fn a_campaign_that_is_dropped_at_any_poll_leaves_no_leader() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let campaign = || locks.election("n").value("x").campaign();
    drop_at_every_poll(
        campaign,
        || (),
        |_| {
            world.assert_no_leftovers();
            assert_eq!(other.election("n").leader_blocking().unwrap(), None);
        },
    );
    // The same behind another leader.
    let holder = other.election("n").value("holder").campaign_blocking().unwrap();
    let within = || locks.election("n").value("x").campaign_within(Duration::from_millis(5));
    drop_at_every_poll(
        within,
        || (),
        |_| {
            assert_leader(&other.election("n").leader_blocking().unwrap().unwrap(), "holder", &holder);
        },
    );
    holder.resign_blocking().unwrap();
    world.assert_no_leftovers();
}

#[test]
fn a_candidate_follows_leads_loses_and_leads_again() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let ((locks, ..), (other, ..)) = (new_client(&store, &env), new_client(&store, &env));
        let first = other.election("n").value("first").campaign().await.unwrap();
        let mut candidate = locks.election("n").value("me").ttl(TTL).stand().unwrap();
        let follower = |leader: Option<&str>| Role::Follower { leader: leader.map(str::to_owned) };
        assert_eq!(candidate.changed().await.unwrap(), follower(Some("first")));
        assert!(candidate.leading().is_none());
        first.proclaim("still first").await.unwrap();
        assert_eq!(candidate.changed().await.unwrap(), follower(Some("still first")));
        first.resign().await.unwrap();
        // A vacancy may be seen before the grant.
        let mut role = candidate.changed().await.unwrap();
        if role == follower(None) {
            role = candidate.changed().await.unwrap();
        }
        let Role::Leader { token } = role else { panic!("it leads: {role:?}") };
        assert_eq!(candidate.leading().unwrap().term(), token);
        assert!(timeout(TTL * 5, candidate.changed()).await.is_err(), "it goes on leading");
        assert!(candidate.leading().unwrap().check());
        other.break_hold("n", token.number, false).await.unwrap();
        assert_eq!(candidate.changed().await.unwrap(), follower(None));
        let Role::Leader { token: next } = candidate.changed().await.unwrap() else {
            panic!("it leads again")
        };
        assert!(next > token);
        drop(candidate);
        let last = other.election("n").campaign().await.unwrap();
        assert!(last.term() > next);
    });
}

/// Processes lead, publish, and are killed at random. No two lead at the same time by their own clocks, and an observer
/// sees each term with the value of its leader alone, in growing order.
#[test]
fn among_killed_candidates_one_leads_and_observers_see_growing_terms() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (observer, ..) = new_client(&store, &env);
        let mut watch = observer.election("n").observe().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let history = Arc::clone(&seen);
        let watching = tokio::spawn(async move {
            loop {
                let leader = next_leader(&mut watch).await;
                history.lock().unwrap().push(leader);
            }
        });
        let mut random = 20_261_126_u64;
        let mut draw = move |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let new_candidate = |number: usize| {
            let (locks, slow) = slow_client(&store, &env);
            let campaign = locks.election("n").value(format!("candidate {number}")).ttl(TTL).campaign();
            (tokio::spawn(campaign), slow, number)
        };
        let mut candidates: Vec<_> = (0..4).map(new_candidate).collect();
        let (mut values, mut zombies, mut killed) = (HashMap::new(), Vec::<Leading>::new(), HashSet::new());
        for number in 4..60 {
            if draw(3) == 0 {
                let (_, slow, number) = &candidates[draw(4) as usize];
                kill(slow);
                killed.insert(*number);
            }
            let (campaign, slow, number_of_first) = candidates.remove(0);
            candidates.push(new_candidate(number));
            // A killed candidate waits for ever, or does not come to publish.
            let Ok(Ok(Ok(leading))) = timeout(TTL * 8, campaign).await else { continue };
            values.insert(format!("candidate {number_of_first}"), leading.term());
            assert!(zombies.iter().all(|zombie| !(zombie.check() && leading.check())), "one leader");
            if draw(2) == 0 && leading.check() {
                // Long enough for the observer, which is notified.
                sleep(Duration::from_millis(1)).await;
                let resigned = leading.resign().await;
                assert!(resigned.is_ok() || killed.contains(&number_of_first), "{resigned:?}");
            } else {
                kill(&slow);
                zombies.push(leading);
            }
        }
        watching.abort();
        let seen = seen.lock().unwrap();
        assert!(seen.len() > 20 && !zombies.is_empty(), "{} leaders were seen", seen.len());
        assert!(seen.windows(2).all(|pair| pair[0].term < pair[1].term), "terms grow: {seen:?}");
        for leader in &*seen {
            let term = values.get(leader.value.as_ref().unwrap());
            assert!(term.is_none_or(|term| *term == leader.term), "a value with its own term: {leader:?}");
        }
        assert!(seen.iter().any(|leader| values.contains_key(leader.value.as_ref().unwrap())));
    });
}
