//! Requests and notifications that a proxy loses or delays.

use std::{thread::spawn, time::Duration};

use leasehold_core::{Answer, Engine, Fault, How, Inspect, Locks, Mode, Notification, Release, Released};

use leasehold_testkit::claims::release_of;

use crate::rig::{PATIENCE, Rig, acquire};

/// How often the server received this command.
fn calls(rig: &Rig, command: &str) -> u64 {
    let stats = rig.command(&["INFO", "commandstats"]);
    let calls = stats.split_once(&format!("cmdstat_{command}:calls="));
    calls.map_or(0, |(_, calls)| calls.split(',').next().unwrap().parse().unwrap())
}

/// R9: a claim is sent on a connection that breaks. Its caller gives up, or gets the error, and the release of the
/// claim on the next connection gets a certain answer. Then the claim arrives.
#[test]
fn a_late_claim_of_a_broken_connection_creates_nothing() {
    let rig = Rig::new();
    let modes = [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 2 }];
    for (mode, gets_error) in modes.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let (proxy, engine) = rig.proxied();
        let claim = leasehold_core::Claim { mode, ..rig.claim("a") };
        rig.run(async {
            // The first claim has the same mode, so that the server knows the script: else the late request would have
            // no effect.
            let before = leasehold_core::Claim { mode, ..rig.claim("b") };
            assert!(matches!(engine.claim(&before, How::Create).await, Ok(Answer::Held(_))));
            proxy.hold_requests();
            let mut request = engine.claim(&claim, How::Create);
            while !proxy.holds_a_request() {
                let early = tokio::time::timeout(Duration::from_millis(20), &mut request).await;
                assert!(early.is_err(), "the request is in flight: {early:?}");
            }
            if !gets_error {
                drop(request);
                proxy.cut_clients();
            } else {
                proxy.cut_clients();
                assert_eq!(request.await.unwrap_err().fault, Fault::Unknown);
            }
            let released = loop {
                match &engine.release(&release_of(&claim)).await[..] {
                    [Released::Unknown(_)] => tokio::time::sleep(Duration::from_millis(20)).await,
                    [certain] => break format!("{certain:?}"),
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(released, "NotThere");
            assert_eq!(proxy.connections(), 2);
            let before_it = calls(&rig, "evalsha");
            assert!(before_it > 0);
            proxy.release_held();
            rig.until("the claim arrives", || calls(&rig, "evalsha") > before_it);
            assert!(matches!(engine.release(&release_of(&before)).await[..], [Released::Freed]));
            assert_eq!(rig.leftovers(), Vec::<String>::new(), "{mode}");
        });
    }
}

/// R9: a client repeats a claim, and the repeated request arrives after the release of the hold.
#[test]
fn a_late_claim_after_its_release_creates_nothing() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let claim = rig.claim("a");
    rig.run(async {
        let Ok(Answer::Held(grant)) = engine.claim(&claim, How::Create).await else { panic!("it is free") };
        proxy.hold_requests();
        let mut request = engine.claim(&claim, How::Create);
        while !proxy.holds_a_request() {
            let early = tokio::time::timeout(Duration::from_millis(20), &mut request).await;
            assert!(early.is_err(), "the request is in flight: {early:?}");
        }
        drop(request);
        proxy.cut_clients();
        // The test waits for a connection, so that the engine tries the fast path of a release first.
        while Inspect::ping(&*engine).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let end = Release { token: Some(grant.token), ..release_of(&claim)[0].clone() };
        while let [Released::Unknown(_)] = engine.release(std::slice::from_ref(&end)).await[..] {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let before = calls(&rig, "evalsha");
        proxy.release_held();
        rig.until("the claim arrives", || calls(&rig, "evalsha") > before);
        assert_eq!(rig.leftovers(), Vec::<String>::new());
    });
}

/// I7: if the push of a grant is lost, the waiter learns of the grant at most one poll interval later.
#[test]
fn a_lost_push_is_found_by_asking() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let (locks, proxied_locks) = (rig.locks(), Locks::builder(engine).build());
    let guard = acquire(&locks, "a");
    let waiting = spawn(move || proxied_locks.mutex("a").blocking().acquire_within(PATIENCE));
    rig.until("it waits", || rig.show("a").waiters.len() == 1);
    proxy.hold_answers();
    guard.release_blocking().unwrap();
    rig.until("it is granted", || rig.show("a").holders.len() == 1);
    // The push, and all answers on this connection, are lost; after the client has connected again, the claim asks.
    proxy.cut_clients();
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

/// Without RESP3, notifications use a separate connection, which may stall while the connection for requests works.
#[test]
fn a_silent_notification_connection_is_replaced() {
    let rig = Rig::with(&["--rename-command", "HELLO", ""]);
    let (proxy, engine) = rig.proxied();
    let holder = rig.engine();
    let (first, claim) = (rig.claim("a"), rig.claim("a"));
    rig.run(async {
        assert!(matches!(holder.claim(&first, How::Create).await, Ok(Answer::Held(_))));
        assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Waiting(_))));
        let made = proxy.connections();
        rig.until("the client sent a ping and got the reply", || calls(&rig, "ping") >= 2);
        assert_eq!(proxy.connections(), made);
        proxy.hold_newest_answers();
        let notification =
            tokio::time::timeout(PATIENCE, engine.notifications()).await.expect("the silence is noticed");
        assert!(matches!(notification[..], [Notification::AskAll]), "{notification:?}");
        assert_eq!(proxy.connections(), 2 * made);
        assert!(matches!(holder.release(&release_of(&first)).await[..], [Released::Freed]));
        let notification = tokio::time::timeout(PATIENCE, engine.notifications()).await.unwrap();
        assert!(
            matches!(&notification[..], [Notification::Granted { id, .. }] if *id == claim.id),
            "{notification:?}"
        );
        assert!(matches!(engine.release(&release_of(&claim)).await[..], [Released::Freed]));
    });
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

/// A pushed grant is not valid after its claim time. Its claim can ask again, and then waits in the queue again.
#[test]
fn a_push_after_its_claim_time_is_not_valid() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let holder = rig.engine();
    let claim = leasehold_core::Claim { claim_time: Duration::from_millis(300), ..rig.claim("a") };
    let first = rig.claim("a");
    rig.run(async {
        assert!(matches!(holder.claim(&first, How::Create).await, Ok(Answer::Held(_))));
        assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Waiting(_))));
        proxy.hold_answers();
        assert!(matches!(holder.release(&release_of(&first)).await[..], [Released::Freed]));
        tokio::time::sleep(Duration::from_millis(400)).await;
        proxy.release_held();
        let notification = tokio::time::timeout(PATIENCE, engine.notifications()).await.unwrap();
        let [Notification::Granted { grant, since, .. }] = &notification[..] else {
            panic!("{notification:?}")
        };
        let now = leasehold_core::Env::system().clock.now();
        let is_expired = since.is_none_or(|since| since.after(grant.ttl.unwrap()) <= now);
        assert!(is_expired, "granted at {since:?} for {:?}, and now it is {now:?}", grant.ttl);
        let next = rig.claim("a");
        assert!(
            matches!(holder.claim(&next, How::Create).await, Ok(Answer::Held(_))),
            "the pushed grant has expired"
        );
        let again = engine.claim(&claim, How::Ask).await;
        assert!(matches!(again, Ok(Answer::Waiting(_))), "{again:?}");
        for (client, claim) in [(&holder, &next), (&engine, &claim)] {
            assert!(matches!(client.release(&release_of(claim)).await[..], [Released::Freed]));
        }
    });
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}
