//! Broken connections, and servers that die, pause, restart or lose data.

use std::{
    sync::Arc,
    thread::{sleep, spawn},
    time::Duration,
};

use leasehold_core::{Answer, Claim, Engine, ErrorKind, How, Locks, Loss, Notification};
use leasehold_testkit::{
    decorators::{Slow, Verb},
    dropper::poll_once,
    lease_retries::with_longer_leases,
    stopwatch::Stopwatch,
};

use crate::rig::{PATIENCE, Rig, acquire};

#[test]
fn a_dead_server_is_reported_unreachable_in_time() {
    let mut rig = Rig::new();
    rig.server.kill();
    let locks = Locks::builder(rig.engine()).connect_timeout(Duration::from_millis(500)).build();
    let error = locks.mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("127.0.0.1"), "{error}");
    let error = locks.ping_blocking().unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("127.0.0.1"), "{error}");
    let watch = Stopwatch::start();
    let error = locks.mutex("a").blocking().acquire_within(Duration::from_millis(200)).unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    watch.assert_within(Duration::from_secs(2), "I12: an acquire that may take 200 ms");
    rig.server.restart();
    acquire(&locks, "a").release_blocking().unwrap();
    locks.ping_blocking().unwrap();
    rig.server.pause();
    let error = locks.ping_blocking().unwrap_err();
    assert!(error.is_unreachable(), "also with a connection to a paused server: {error}");
    rig.server.resume();
}

#[test]
fn a_waiter_survives_an_outage() {
    let mut rig = Rig::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let locks = rig.locks();
    let guard = acquire(&locks, "a");
    let other = rig.locks();
    let waiting = spawn(move || other.mutex("a").blocking().acquire_within(PATIENCE));
    rig.until("it waits", || rig.show("a").waiters.len() == 1);
    rig.server.kill();
    sleep(Duration::from_millis(300));
    rig.server.restart();
    assert!(guard.check(), "its lease has not run out");
    guard.release_blocking().unwrap();
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

#[test]
fn holds_survive_a_restart_only_with_their_data() {
    with_longer_leases(
        Duration::from_secs(2),
        "it was renewed on a new connection, and its loss was found by a renewal",
        |ttl| {
            let mut rig = Rig::with(&["--appendonly", "yes", "--appendfsync", "always"]);
            let locks = rig.locks();
            let guard = locks.mutex("a").ttl(ttl).blocking().acquire().unwrap();
            let token = guard.token();
            rig.server.kill();
            rig.server.restart();
            sleep(ttl + ttl / 4);
            if !guard.check() {
                return false;
            }
            rig.command(&["FLUSHALL"]);
            rig.until("the loss is reported", || !guard.check());
            if guard.release_blocking().unwrap_err().kind() != ErrorKind::Lost(Loss::Gone) {
                return false;
            }
            let next = acquire(&locks, "a");
            assert!(next.token() > token, "tokens grow: {} after {token}", next.token());
            true
        },
    );
}

/// R3: it is unknown whether a restarted server still has its data, so until the next renewal the hold is neither valid
/// nor lost.
#[test]
fn a_hold_is_in_doubt_from_a_restart_until_its_renewal() {
    let mut rig = Rig::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let slow = Arc::new(Slow::new(rig.engine()));
    let locks = Locks::builder(Arc::clone(&slow) as Arc<dyn Engine>).build();
    let long = Duration::from_secs(3600);
    let guard = locks.mutex("a").ttl(long).blocking().acquire_within(PATIENCE).unwrap();
    slow.hold_requests(Verb::Renew);
    rig.server.kill();
    rig.server.restart();
    rig.until("the client is connected again", || locks.ping_blocking().is_ok() && !guard.check());
    assert_eq!(guard.remaining(), Some(Duration::ZERO));
    assert!(poll_once(Box::pin(guard.lost())).is_none(), "it was reported lost");
    slow.open(Verb::Renew);
    guard.confirm_blocking().unwrap();
    assert!(guard.check(), "the server has it");
    guard.release_blocking().unwrap();
}

#[test]
fn tokens_grow_after_a_restart_from_an_older_copy() {
    let mut rig = Rig::new();
    let locks = rig.locks();
    acquire(&locks, "a").release_blocking().unwrap();
    rig.command(&["SAVE"]);
    let newest = (0..100).map(|_| acquire(&locks, "a").token()).collect::<Vec<_>>()[99];
    rig.server.kill();
    rig.server.restart();
    assert_eq!(rig.command(&["EXISTS", "leasehold:{}tlock:"]), "1", "the copy contains an older counter");
    let next = acquire(&locks, "a");
    assert!(next.token() > newest, "{} after {newest}", next.token());
}

#[test]
fn tokens_grow_when_the_counter_is_deleted() {
    let rig = Rig::new();
    let locks = rig.locks();
    let before = acquire(&locks, "a").token();
    rig.command(&["DEL", "leasehold:{}tlock:"]);
    let after = acquire(&locks, "a").token();
    assert!(after > before, "{after} after {before}");
    let remaining: i64 = rig.command(&["TTL", "leasehold:{}tlock:"]).parse().unwrap();
    assert!((3000..=3600).contains(&remaining), "the counter lasts an hour: {remaining}");
}

#[test]
fn killed_connections_are_replaced_without_loss() {
    with_longer_leases(
        Duration::from_secs(1),
        "it was renewed on new connections for longer than a lease",
        |ttl| {
            let rig = Rig::new();
            let (locks, other) = (rig.locks(), rig.locks());
            let guard = locks.mutex("a").ttl(ttl).blocking().acquire().unwrap();
            let waiting = spawn(move || other.mutex("a").blocking().acquire_within(PATIENCE));
            rig.until("it waits, or the lease has ended", || {
                !rig.show("a").waiters.is_empty() || !guard.check()
            });
            for _ in 0..5 {
                rig.server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
                rig.server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                sleep(ttl / 4);
            }
            let survived = guard.check() && guard.release_blocking().is_ok();
            waiting.join().unwrap().unwrap().release_blocking().unwrap();
            if survived {
                assert_eq!(rig.leftovers(), Vec::<String>::new());
            }
            survived
        },
    );
}

#[test]
fn flushed_scripts_are_loaded_again() {
    let rig = Rig::new();
    let locks = rig.locks();
    for _ in 0..3 {
        rig.command(&["SCRIPT", "FLUSH"]);
        let guard = acquire(&locks, "a");
        rig.command(&["SCRIPT", "FLUSH"]);
        guard.release_blocking().unwrap();
    }
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

#[test]
fn a_long_server_pause_ends_the_hold_at_its_deadline() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = locks.mutex("a").ttl(Duration::from_secs(1)).blocking().acquire().unwrap();
    let token = guard.token();
    rig.server.pause();
    rig.until("the deadline passes", || !guard.check());
    assert_eq!(guard.release_blocking().unwrap_err().kind(), ErrorKind::Lost(Loss::Lapsed));
    let watch = Stopwatch::start();
    let error = other.mutex("a").blocking().acquire_within(Duration::from_millis(300)).unwrap_err();
    assert!(error.is_unreachable() || error.is_timed_out(), "{error}");
    watch.assert_within(Duration::from_secs(2), "I12: an acquire that may take 300 ms");
    rig.server.resume();
    let next = acquire(&other, "a");
    assert!(next.token() > token);
    next.release_blocking().unwrap();
    rig.until("nothing is left", || rig.leftovers().is_empty());
}

#[test]
fn a_dead_waiter_is_passed_over() {
    let rig = Rig::new();
    let (locks, dead, other) = (rig.locks(), rig.locks(), rig.locks());
    let guard = acquire(&locks, "a");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let doomed =
        Locks::builder(rig.engine()).keeper(leasehold_core::Keeper::on(runtime.handle().clone())).build();
    drop(dead);
    let mut first = Box::pin(doomed.mutex("a").acquire());
    assert!(futures_util::FutureExt::now_or_never(&mut first).is_none());
    rig.until("the first waits", || rig.show("a").waiters.len() == 1);
    let waiting = spawn(move || other.mutex("a").blocking().acquire_within(PATIENCE));
    rig.until("both wait", || rig.show("a").waiters.len() == 2);
    // The connections close, so the server sees that the client is gone.
    runtime.shutdown_background();
    rig.until("its connection is closed", || {
        !rig.command(&["PUBSUB", "CHANNELS"]).is_empty() && {
            let clients = rig.server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            clients.iter().filter(|line| !line.is_empty()).count() <= 2
        }
    });
    guard.release_blocking().unwrap();
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
}

/// I7: the server sends nothing at the end of a minimum hold time, so the head of the queue must know when that is, and
/// ask then.
#[test]
fn a_waiter_is_granted_as_soon_as_the_minimum_hold_time_ends() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    for request in [locks.mutex("a"), locks.semaphore("s", 1)] {
        let begin = Stopwatch::start();
        let guard = request.blocking().acquire_within(PATIENCE).unwrap();
        let name = guard.name().as_str().to_owned();
        let other = if name == "a" { other.mutex("a") } else { other.semaphore("s", 1) };
        let waiting = spawn(move || other.blocking().acquire_within(PATIENCE));
        rig.until("it waits", || rig.show(&name).waiters.len() == 1);
        let min_hold = Duration::from_millis(100);
        let held = Stopwatch::start();
        // The minimum hold time counts from the grant, so the time since the grant is added.
        rig.run(guard.release_at_least(begin.elapsed() + min_hold)).unwrap();
        let next = waiting.join().unwrap().unwrap();
        // A waiter that only polls would ask again after a second at the earliest.
        held.assert_within(Duration::from_millis(700), &name);
        next.release_blocking().unwrap();
    }
}

/// R7: pushes on the connection that broke may be lost.
#[test]
fn every_claim_asks_again_after_a_reconnect() {
    let rig = Rig::new();
    let (holder, waiter) = (rig.engine(), rig.engine());
    rig.run(async {
        holder.claim(&rig.claim("a"), How::Create).await.unwrap();
        assert!(matches!(waiter.claim(&rig.claim("a"), How::Create).await, Ok(Answer::Waiting(_))));
        rig.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        let told_to_ask_again = async {
            while !waiter
                .notifications()
                .await
                .iter()
                .any(|notification| matches!(notification, Notification::AskAll))
            {}
        };
        tokio::time::timeout(PATIENCE, told_to_ask_again).await.expect("no request to ask again came");
    });
}

#[test]
fn a_loading_server_is_waited_for() {
    // Loading takes twenty seconds, unless the delay is set to 0 meanwhile.
    let slowly = ["--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024"];
    let mut rig = Rig::with(&[&["--enable-debug-command", "yes"], &slowly[..]].concat());
    rig.command(&["DEBUG", "POPULATE", "4000"]);
    rig.command(&["SAVE"]);
    let (locks, fresh) = (rig.locks(), rig.locks());
    acquire(&locks, "a").release_blocking().unwrap();
    rig.server.kill();
    rig.server.restart_without_waiting();
    assert!(rig.command(&["INFO", "persistence"]).contains("loading:1"), "it loads");
    let error = fresh.mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("loading"), "{error}");
    rig.command(&["CONFIG", "SET", "key-load-delay", "0"]);
    acquire(&locks, "a").release_blocking().unwrap();
    acquire(&fresh, "a").release_blocking().unwrap();
}

#[test]
fn the_notification_connection_of_the_old_protocol_is_replaced() {
    let rig = Rig::with(&["--rename-command", "HELLO", ""]);
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = acquire(&locks, "a");
    let waiting = spawn(move || other.mutex("a").blocking().acquire_within(PATIENCE));
    rig.until("it waits", || rig.show("a").waiters.len() == 1);
    rig.server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    guard.release_blocking().unwrap();
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

#[test]
fn a_renewal_extends_the_record_of_a_shared_hold() {
    let rig = Rig::new();
    let locks = rig.locks();
    let permit = locks.semaphore("s", 2).ttl(Duration::from_secs(30)).blocking().acquire().unwrap();
    let record = rig.server.command(&["--raw", "KEYS", "leasehold:{*}clock:s"]).remove(0);
    rig.command(&["PEXPIRE", &record, "20000"]);
    let remaining = || rig.command(&["PTTL", &record]).parse::<i64>().unwrap();
    assert!(remaining() <= 20_000);
    rig.run(permit.confirm()).unwrap();
    assert!(remaining() > 3_000_000, "a renewal extends the record");
    permit.release_blocking().unwrap();
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

#[test]
fn a_counter_ahead_of_the_clock_outlives_its_lead() {
    let rig = Rig::new();
    let locks = rig.locks();
    acquire(&locks, "a").release_blocking().unwrap();
    // The counter is two hours ahead of the clock, as after hours with more than a million tokens a second.
    let ahead = "local t = redis.call('TIME')
        redis.call('SET', KEYS[1], string.format('%.0f', (t[1] + 7200) * 1000000), 'PX', 60000)";
    rig.command(&["EVAL", ahead, "1", "leasehold:{}tlock:"]);
    let token = acquire(&locks, "a").token();
    let remaining: i64 = rig.command(&["TTL", "leasehold:{}tlock:"]).parse().unwrap();
    assert!(remaining > 10_000, "the ttl covers two hours of lead and one hour of reserve: {remaining}");
    let next = acquire(&locks, "a").token();
    let reader = locks.rw("r").read().blocking().acquire().unwrap();
    assert!(next > token && reader.token() > next, "tokens also grow in the full script");
}

#[test]
fn a_short_lease_survives_a_slow_reconnect() {
    let rig = Rig::new();
    let survived = |ttl: Duration| {
        let (proxy, engine) = rig.proxied();
        let locks = Locks::builder(engine).build();
        let guard = locks.mutex("a").ttl(ttl).blocking().acquire_within(PATIENCE).unwrap();
        // A new connection needs several round trips; their delays add up to more than a sixth of the ttl, which is the
        // time limit of a renewal.
        proxy.delay(ttl / 20);
        proxy.cut_clients();
        sleep(ttl + ttl / 2);
        guard.check() && guard.release_blocking().is_ok()
    };
    let reason = "the attempt to connect outlasted the renewals that waited for it";
    with_longer_leases(Duration::from_secs(2), reason, survived);
}

#[test]
fn an_invalid_name_does_not_delay_other_releases() {
    let rig = Rig::new();
    let plain = leasehold_redis::RedisEngine::new(
        rig.config.clone().prefix("").unwrap(),
        &leasehold_core::Env::system(),
    );
    let locks = Locks::builder(std::sync::Arc::new(plain)).build();
    for _ in 0..20 {
        let guard = acquire(&locks, "good");
        let error = locks.mutex("leasehold:{x}").blocking().acquire().unwrap_err();
        assert!(error.is_misconfigured(), "{error}");
        guard.release_blocking().unwrap();
    }
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

/// After a loss of data the counter restarts from the clock. Blocks of more than one token are therefore granted only
/// while the counter is not far ahead of the clock.
#[test]
fn token_blocks_do_not_run_ahead_of_the_clock() {
    let rig = Rig::new();
    let (first_client, second_client) = (rig.engine(), rig.engine());
    let block = 65_536;
    rig.run(async {
        let mut last = 0;
        for turn in 0..200 {
            let claim = Claim { tokens: block, ..rig.claim(&format!("n{turn}")) };
            let engine = if turn % 2 == 0 { &first_client } else { &second_client };
            let Ok(Answer::Held(grant)) = engine.claim(&claim, How::Create).await else {
                panic!("it is free")
            };
            assert!(grant.token.number > last, "tokens grow");
            last = grant.token.number + u64::from(grant.tokens) - 1;
        }
        // The tokens of 200 whole blocks would be far more than the microseconds that the grants took. The counter may
        // be ahead of the clock by one block and 10 ms.
        let server_time = rig.server.command(&["TIME"]);
        let now: u64 =
            server_time[0].parse::<u64>().unwrap() * 1_000_000 + server_time[1].parse::<u64>().unwrap();
        let max_lead = u64::from(block) + 10_000;
        assert!(last <= now + max_lead, "{} us ahead", last - now);
        tokio::time::sleep(Duration::from_micros(max_lead)).await;
        rig.command(&["FLUSHALL"]);
        let Ok(Answer::Held(grant)) = second_client.claim(&rig.claim("n0"), How::Create).await else {
            panic!("it is free")
        };
        assert!(grant.token.number > last, "tokens grow after a loss of all data too");
    });
}
