//! Servers that are stopped, hang, have no quorum, or grant other timeouts.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use leasehold_core::{Answer, Claim, Engine, Env, Hold, How, Locks, Renewed};
use leasehold_testkit::{
    lease_retries::with_longer_leases,
    server::{ZookeeperEnsemble, ZookeeperServer},
};
use leasehold_zookeeper::{Config, ZookeeperEngine};

use crate::rig::{PATIENCE, Rig, acquire, local};

/// The server grants a shorter timeout than requested.
#[test]
fn the_granted_session_timeout_counts_and_is_shown() {
    with_longer_leases(Duration::from_secs(2), "the granted timeout is renewed in time", |granted| {
        let rig = Rig::with(&[&format!("maxSessionTimeout={}", granted.as_millis())]);
        let locks = rig.locks();
        let guard = locks.mutex("a").ttl(Duration::from_secs(60)).blocking().acquire().unwrap();
        assert!(guard.remaining().is_none_or(|left| left <= granted));
        assert!(rig.show("a").holders.iter().all(|holder| holder.remaining.unwrap() <= granted));
        std::thread::sleep(granted + granted / 4);
        guard.check() && guard.release_blocking().is_ok()
    });
}

/// The server grants a longer timeout than requested. The requested ttl counts.
#[test]
fn a_hold_is_valid_for_no_longer_than_its_ttl() {
    let rig = Rig::with(&["minSessionTimeout=20000"]);
    let engine = rig.engine();
    let claim = Claim { ttl: Duration::from_secs(2), ..rig.claim("a") };
    let answer = rig.run(engine.claim(&claim, How::Create));
    let Ok(Answer::Held(grant)) = answer else { panic!("{answer:?}") };
    assert!(grant.ttl.unwrap() <= Duration::from_secs(2), "{grant:?}");
}

#[test]
fn a_lost_quorum_grants_nothing_and_ends_no_session() {
    let mut ensemble = ZookeeperEnsemble::start();
    let leader = ensemble.leader();
    let config = Config::new(ensemble.ports().map(local).to_vec());
    let engine = Arc::new(ZookeeperEngine::new(config, &Env::system()));
    let locks = Locks::builder(engine).connect_timeout(Duration::from_secs(2)).build();
    let held = locks.mutex("held").ttl(Duration::from_secs(60)).blocking().acquire().unwrap();
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    others.iter().for_each(|&node| ensemble.kill(node));
    let error = locks.mutex("a").blocking().acquire_within(Duration::from_secs(3)).unwrap_err();
    assert!(error.is_unreachable() || error.is_timed_out() || error.is_unknown(), "{error:?}");
    assert!(held.check(), "for as long as its session may last");
    others.iter().for_each(|&node| ensemble.restart(node));
    acquire(&locks, "a").release_blocking().unwrap();
    assert!(held.check());
    held.release_blocking().unwrap();
}

/// Without a quorum, a server with a read-only mode answers reads of clients that ask for this mode, but the nodes that
/// it shows may have been deleted.
#[test]
fn show_without_a_quorum_fails_with_the_reason() {
    for lines in [&[][..], &["-Dreadonlymode.enabled=true"]] {
        let mut ensemble = ZookeeperEnsemble::start_with(lines);
        let config = Config::new(vec![local(ensemble.ports()[2])]);
        let client = || Locks::new(Arc::new(ZookeeperEngine::new(config.clone(), &Env::system())));
        let holder = client();
        let held = holder.mutex("a").ttl(PATIENCE).blocking().acquire().unwrap();
        assert_eq!(client().show_blocking("a").unwrap().holders.len(), 1);
        [0, 1].into_iter().for_each(|node| ensemble.kill(node));
        // Until the server has noticed the loss of the quorum, it may still answer.
        let mut errors = Vec::new();
        let limit = Instant::now() + PATIENCE;
        while !errors.last().is_some_and(|last: &String| last.contains("without a quorum")) {
            assert!(Instant::now() < limit, "{lines:?}: {errors:#?}");
            match client().show_blocking("a") {
                Ok(view) => assert_eq!(view.holders.len(), 1, "not free"),
                Err(error) => {
                    assert!(error.is_unreachable() || error.is_unknown(), "{error:?}");
                    errors.push(error.to_string());
                }
            }
        }
        drop(held);
    }
}

#[test]
fn a_killed_leader_ends_no_hold() {
    let mut ensemble = ZookeeperEnsemble::start();
    let config = Config::new(ensemble.ports().map(local).to_vec());
    let client = || Locks::builder(Arc::new(ZookeeperEngine::new(config.clone(), &Env::system()))).build();
    let (one, two) = (client(), client());
    let ttl = Duration::from_secs(30);
    let held = one.mutex("a").ttl(ttl).blocking().acquire().unwrap();
    ensemble.kill(ensemble.leader());
    assert!(two.mutex("b").ttl(ttl).blocking().acquire_within(PATIENCE).unwrap().release_blocking().is_ok());
    assert!(two.mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    assert!(held.check());
    held.release_blocking().unwrap();
    acquire(&two, "a").release_blocking().unwrap();
}

/// A request to a hanging server ends, and the client connects to another server.
#[test]
fn a_hanging_server_is_replaced_by_another() {
    let mut ensemble = ZookeeperEnsemble::start();
    let leader = ensemble.leader();
    let hanging = (leader + 1) % 3;
    let ports = ensemble.ports();
    // Sessions begin with the servers in turn, so at least one of two sessions begins with the hanging server.
    let config = Config::new(vec![local(ports[hanging]), local(ports[leader])]);
    let locks = Locks::builder(Arc::new(ZookeeperEngine::new(config, &Env::system()))).build();
    let ttl = Duration::from_secs(30);
    let held = locks.mutex("held").ttl(ttl).blocking().acquire().unwrap();
    ensemble.pause(hanging);
    for name in ["a", "b", "c"] {
        let guard = locks.mutex(name).ttl(ttl).blocking().acquire_within(PATIENCE).unwrap();
        guard.release_blocking().unwrap();
    }
    assert!(held.check());
    held.release_blocking().unwrap();
    ensemble.resume(hanging);
}

#[test]
fn a_stopped_server_is_unreachable_in_time_and_found_later() {
    let mut server = ZookeeperServer::start(&[]);
    server.kill();
    let config = Config::new(vec![local(server.port())]);
    let engine = Arc::new(ZookeeperEngine::new(config, &Env::system()));
    let locks = Locks::builder(engine).connect_timeout(Duration::from_millis(500)).build();
    let error = locks.mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    let error = locks.ping_blocking().unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    server.restart();
    acquire(&locks, "a").release_blocking().unwrap();
    locks.ping_blocking().unwrap();
}

/// What listens on the port is no ZooKeeper, and answers something else.
#[test]
fn another_service_on_the_port_is_recognised() {
    use std::{io::Write, net::TcpListener};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(50).map_while(Result::ok) {
            let mut stream = stream;
            let _ = stream.write_all(b"\x00\x00\x00\x03abc");
        }
    });
    let engine = Arc::new(ZookeeperEngine::new(Config::new(vec![local(port)]), &Env::system()));
    let locks = Locks::builder(engine).build();
    let error = locks.mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("no ZooKeeper"), "{error}");
}

/// Each of many waiters of one name watches the node ahead of its own; no other waiter is woken.
#[test]
fn a_release_wakes_one_of_a_thousand() {
    const CROWD: u32 = 1000;
    let rig = Rig::new();
    let (engine, other) = (rig.engine(), rig.engine());
    let first = rig.claim("a");
    // Without a request, a queue entry with this ttl ends after a minute.
    let ttl = Duration::from_secs(3600);
    let crowd: Vec<_> = (0..CROWD).map(|_| Claim { ttl, ..rig.claim("a") }).collect();
    rig.run(async {
        let Ok(Answer::Held(grant)) = engine.claim(&first, How::Create).await else { panic!("not granted") };
        for batch in crowd.chunks(100) {
            for reply in join_all(batch.iter().map(|claim| other.claim(claim, How::Create))).await {
                assert!(matches!(reply, Ok(Answer::Waiting(_))), "{reply:?}");
            }
        }
        // After a new connection, as on a busy machine, the next renewal sets the watch of a holder.
        let Claim { id, name, mode, .. } = first.clone();
        let renewed = engine.renew(&[Hold { id, name, mode, token: grant.token, ttl }]).await;
        assert!(matches!(renewed[..], [Renewed::Extended { .. }]), "{renewed:?}");
    });
    // One watch for each waiter, and one watch of the holder and of the first waiter for its own node.
    let watches = rig.watches();
    assert!((CROWD + 1..=CROWD + 2).contains(&watches), "{watches}");
    rig.run(async {
        engine.release(&crate::rig::release_of(&first)).await;
        let notification = tokio::time::timeout(PATIENCE, other.notifications()).await.unwrap();
        assert_eq!(notification.len(), 1, "{notification:?}");
        tokio::time::timeout(Duration::from_millis(300), other.notifications()).await.unwrap_err();
    });
    assert!(rig.show("a").waiters.len() == CROWD as usize - 1);
}
