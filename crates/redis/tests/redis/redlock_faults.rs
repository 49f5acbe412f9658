//! A Redlock with nodes that hang, answer late or lose data, or whose clocks step.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Answer, Claim, Engine, EngineError, Env, Fault, Grant, Guard, How, Locks, Renewed};
use leasehold_redis::{RedlockConfig, RedlockEngine};

use crate::{
    cluster_rig::{hold_of, release_of},
    redlock_rig::{AGE, RedlockRig, config_of_port},
    rig::{PATIENCE, acquire, claim_of},
};

/// The longest ttl of the clients. It is short, so that a node that lost its data has its vote again soon.
const LONGEST: Duration = Duration::from_secs(5);

fn claim(name: &str) -> Claim {
    Claim { ttl: LONGEST, claim_time: LONGEST, ..claim_of(name) }
}

fn engine(config: &RedlockConfig) -> Arc<RedlockEngine> {
    Arc::new(RedlockEngine::new(config.clone().max_ttl(LONGEST).unwrap(), &Env::system()))
}

fn locks(config: &RedlockConfig) -> Locks {
    Locks::builder(engine(config)).build()
}

/// Acquires a name with the longest ttl.
fn take(locks: &Locks, name: &str) -> Guard {
    locks.mutex(name).ttl(LONGEST).blocking().acquire_within(PATIENCE).unwrap()
}

async fn granted(engine: &RedlockEngine, claim: &Claim) -> Grant {
    match engine.claim(claim, How::Create).await {
        Ok(Answer::Held(grant)) => grant,
        other => panic!("{other:?}"),
    }
}

/// Repeats a claim while nodes are late or dead.
async fn claim_until_answered(engine: &RedlockEngine, claim: &Claim) -> Result<Answer, EngineError> {
    loop {
        match engine.claim(claim, How::Create).await {
            Err(error) if matches!(error.fault, Fault::Retry | Fault::Full) => {}
            answer => return answer,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_hung_node_is_not_waited_for() {
    let rig = RedlockRig::new(3);
    let locks = rig.locks();
    acquire(&locks, "first").release_blocking().unwrap();
    rig.nodes[0].pause();
    // One node hangs until all of this is done.
    for index in 0..50 {
        let guard = acquire(&locks, &format!("a{index}"));
        rig.run(guard.confirm()).unwrap();
        guard.release_blocking().unwrap();
    }
    // A client that connects only now can acquire a lock, too.
    let other = rig.locks();
    acquire(&other, "b").release_blocking().unwrap();
    rig.nodes[0].resume();
    rig.until("nothing is left", || rig.command_all(&["KEYS", "lock:*"]).iter().all(String::is_empty));
}

#[test]
fn a_late_success_of_a_node_leaves_no_lock() {
    let rig = RedlockRig::new(3);
    let (proxies, config) = rig.proxied();
    let engine = engine(&config);
    let (first, second) = (claim("first"), claim("a"));
    rig.run(async {
        let grant = granted(&engine, &first).await;
        engine.release(&[release_of(&first, Some(&grant))]).await;
    });
    rig.until("all are connected", || proxies.iter().all(|proxy| proxy.connections() > 0));
    proxies[2].hold_answers();
    rig.run(async {
        let grant = granted(&engine, &second).await;
        rig.until("the last node has it too", || rig.nodes[2].command(&["EXISTS", "lock:a"]) == ["1"]);
        engine.release(&[release_of(&second, Some(&grant))]).await;
    });
    proxies[2].release_held();
    rig.run(async {
        let third = claim("b");
        let grant = granted(&engine, &third).await;
        engine.release(&[release_of(&third, Some(&grant))]).await;
    });
    rig.until("nothing is left", || rig.command_all(&["KEYS", "lock:*"]).iter().all(String::is_empty));
}

/// A claim that holds `a` by the votes of two nodes; its requests did not reach the third node.
fn held_by_two(
    rig: &RedlockRig,
) -> (Vec<leasehold_testkit::server::Proxy>, Arc<RedlockEngine>, Claim, Grant) {
    let (proxies, config) = rig.proxied();
    proxies[2].block();
    let engine = engine(&config);
    let claim = claim("a");
    let grant = rig.run(granted(&engine, &claim));
    assert_eq!(rig.nodes[2].command(&["EXISTS", "lock:a"]), ["0"]);
    (proxies, engine, claim, grant)
}

#[test]
fn a_node_whose_clock_stepped_has_no_vote() {
    let rig = RedlockRig::new(3);
    let (_proxies, first_client, held, grant) = held_by_two(&rig);
    rig.nodes[0].set_clock(AGE + 60);
    assert_eq!(rig.nodes[0].command(&["EXISTS", "lock:a"]), ["0"], "its lease has ended on that node");
    // For a new client the name is free on two nodes.
    let other = engine(&rig.config);
    let answer = rig.run(other.claim(&claim("a"), How::Create));
    assert!(!matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
    let renewed = rig.run(first_client.renew(&[hold_of(&held, &grant)]));
    assert!(matches!(renewed[..], [Renewed::Unknown(_) | Renewed::Extended { .. }]), "{renewed:?}");
    // The two nodes whose clocks agree decide.
    rig.run(first_client.release(&[release_of(&held, Some(&grant))]));
    let answer = rig.run(claim_until_answered(&other, &claim("b")));
    assert!(matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
}

/// A client that saw a node's clock step does not count the votes of that node while leases may have ended early there,
/// even if the node's clock agrees with the others again.
#[test]
fn clock_steps_of_a_majority_end_holds_and_are_reported() {
    let rig = RedlockRig::new(3);
    let first_client = locks(&rig.config);
    let guard = take(&first_client, "a");
    let guarantee = rig.run(first_client.guarantee()).unwrap();
    assert_eq!(guarantee.level, leasehold_core::Level::BestEffort);
    assert!(guarantee.to_string().contains("clocks of a majority"), "{guarantee}");
    rig.nodes[..2].iter().for_each(|node| node.set_clock(AGE + 60));
    rig.until("both are free", || {
        rig.nodes[..2].iter().all(|node| node.command(&["EXISTS", "lock:a"]) == ["0"])
    });
    // No majority of the nodes keeps other claims out now; the next renewal finds that.
    let confirmed = rig.run(guard.confirm());
    assert!(confirmed.as_ref().is_err_and(|error| error.is_lost()), "{confirmed:?}");
    let guarantee = rig.run(first_client.guarantee()).unwrap().to_string();
    assert!(guarantee.contains("the clocks is") && guarantee.contains("ms apart"), "{guarantee}");
}

#[test]
fn a_node_that_restarted_empty_has_no_vote() {
    let mut rig = RedlockRig::new(3);
    let (_proxies, first_client, held, grant) = held_by_two(&rig);
    rig.nodes[0].kill();
    rig.nodes[0].restart();
    // For a new client the name is free on two nodes.
    let other = engine(&rig.config);
    let answer = rig.run(other.claim(&claim("a"), How::Create));
    assert!(!matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
    let released = rig.run(first_client.release(&[release_of(&held, Some(&grant))]));
    assert_eq!(released.len(), 1);
    let answer = rig.run(claim_until_answered(&other, &claim("b")));
    assert!(matches!(answer, Ok(Answer::Held(_))), "two nodes still have a vote: {answer:?}");
}

/// Like a restart from a snapshot, or from a file that was not synced.
#[test]
fn a_node_that_restarted_with_an_older_copy_has_no_vote() {
    let mut rig = RedlockRig::new(3);
    let (_proxies, first_client, held, grant) = held_by_two(&rig);
    rig.nodes[0].kill();
    rig.nodes[0].restart();
    rig.nodes[0].command(&["SET", "leasehold:{}B", "1 1000"]);
    let other = engine(&rig.config);
    let answer = rig.run(other.claim(&claim("a"), How::Create));
    assert!(!matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
    rig.run(first_client.release(&[release_of(&held, Some(&grant))]));
}

#[test]
fn a_node_that_was_emptied_has_no_vote() {
    let rig = RedlockRig::new(3);
    let (_proxies, first_client, held, grant) = held_by_two(&rig);
    rig.nodes[0].command(&["FLUSHALL"]);
    let other = engine(&rig.config);
    let answer = rig.run(other.claim(&claim("a"), How::Create));
    assert!(!matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
    rig.run(first_client.release(&[release_of(&held, Some(&grant))]));
}

#[test]
fn all_nodes_restarted_empty_grant_nothing_until_all_leases_end() {
    let mut rig = RedlockRig::new(3);
    let first_client = engine(&rig.config);
    let held = claim("a");
    let grant = rig.run(granted(&first_client, &held));
    for node in &mut rig.nodes {
        node.kill();
        node.restart();
    }
    let other = engine(&rig.config);
    let error = rig.run(other.claim(&claim("a"), How::Create)).unwrap_err();
    assert!(error.fault == Fault::Full && error.message.contains("has no vote for"), "{error:?}");
    rig.until("its loss is reported", || {
        matches!(rig.run(first_client.renew(&[hold_of(&held, &grant)]))[..], [Renewed::Lost(_)])
    });
    let waiting = locks(&rig.config);
    let next = take(&waiting, "a");
    assert!(next.token().number > grant.token.number, "{:?} after {grant:?}", next.token());
}

#[test]
fn a_failed_renewal_releases_nothing_while_the_lease_lasts() {
    let rig = RedlockRig::new(3);
    let (proxies, config) = rig.proxied();
    let locks = Locks::builder(Arc::new(RedlockEngine::new(config, &Env::system()))).build();
    let guard = acquire(&locks, "a");
    rig.until("it is on all nodes", || {
        rig.command_all(&["EXISTS", "lock:a"]).iter().all(|exists| exists == "1")
    });
    proxies[..2].iter().for_each(|proxy| proxy.block());
    let failed = rig.run(guard.confirm());
    assert!(failed.as_ref().is_err_and(|error| !error.is_lost()), "{failed:?}");
    assert!(guard.check());
    assert!(
        rig.command_all(&["EXISTS", "lock:a"]).iter().all(|exists| exists == "1"),
        "nothing was released"
    );
    proxies[..2].iter().for_each(|proxy| proxy.unblock());
    rig.until("it is renewed again", || rig.run(guard.confirm()).is_ok());
    guard.release_blocking().unwrap();
}

#[test]
fn rolling_restarts_end_no_hold_that_is_renewed() {
    let mut rig = RedlockRig::new(3);
    let locks = locks(&rig.config);
    let guard = take(&locks, "a");
    for index in 0..3 {
        rig.nodes[index].kill();
        rig.nodes[index].restart();
        rig.until("it is set again there", || {
            rig.run(guard.confirm()).unwrap();
            rig.nodes[index].command(&["EXISTS", "lock:a"]) == ["1"]
        });
        // The lock is set on the node again, but the node has no vote yet.
        rig.until("it has its vote again", || {
            rig.run(guard.confirm()).unwrap();
            let micros: Vec<u64> =
                rig.nodes[index].command(&["TIME"]).iter().map(|word| word.parse().unwrap()).collect();
            let born = rig.nodes[index].command(&["GET", "leasehold:{}B"]).join("");
            let born = born.split(' ').next().and_then(|born| born.parse::<u64>().ok());
            let now = micros[0] * 1_000_000 + micros[1];
            born.is_some_and(|born| now.saturating_sub(born) > (LONGEST + LONGEST).as_micros() as u64)
        });
    }
    guard.release_blocking().unwrap();
    rig.until("it is gone", || rig.command_all(&["EXISTS", "lock:a"]).iter().all(|exists| exists == "0"));
}

#[test]
fn a_host_name_that_moves_to_another_node_gets_no_second_vote() {
    let rig = RedlockRig::new(3);
    let (proxies, config) = rig.proxied();
    let engine = engine(&config);
    rig.run(granted(&engine, &claim("first")));
    rig.until("all are connected", || proxies.iter().all(|proxy| proxy.connections() > 0));
    proxies[1].point_to(rig.nodes[0].port());
    proxies[1].drop_connections();
    rig.until("the engine finds one server behind two nodes", || {
        let answer = rig.run(engine.claim(&claim("a"), How::Create));
        answer.is_err_and(|error| error.fault == Fault::Misconfigured && error.message.contains("one server"))
    });
}

/// I4: locks are deleted on single nodes, at any moment while claims are made.
#[test]
fn tokens_stay_unique_when_locks_expire_on_single_nodes() {
    const CLIENTS: usize = 4;
    const CLAIMS: usize = 60;
    let rig = RedlockRig::new(3);
    let engines: Vec<_> = (0..CLIENTS).map(|_| engine(&rig.config)).collect();
    let mut tokens = rig.run(async {
        let work = engines.iter().enumerate().map(|(client, engine)| {
            let nodes = &rig.nodes;
            async move {
                let mut tokens = Vec::new();
                for turn in 0..CLAIMS {
                    let claim = claim("a");
                    if let Ok(Answer::Held(grant)) = engine.claim(&claim, How::Create).await {
                        tokens.push(grant.token.number);
                        // The lock is deleted on one node, each time on another node.
                        nodes[(client + turn) % 3].command(&["DEL", "lock:a"]);
                        engine.release(&[release_of(&claim, Some(&grant))]).await;
                    } else {
                        nodes[(client + turn) % 3].command(&["DEL", "lock:a"]);
                    }
                }
                tokens
            }
        });
        futures_util::future::join_all(work).await.concat()
    });
    let granted = tokens.len();
    assert!(granted > CLAIMS / 2, "{granted} were granted");
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), granted);
}

/// I4: one node restarts empty, its clock steps forward, and another node is unreachable.
#[test]
fn tokens_grow_although_a_node_lost_data_and_its_clock_stepped() {
    let mut rig = RedlockRig::new(3);
    let (_proxies, first_client, held, grant) = held_by_two(&rig);
    rig.run(first_client.release(&[release_of(&held, Some(&grant))]));
    rig.nodes[0].kill();
    rig.nodes[0].restart();
    let ports: Vec<_> = rig.nodes.iter().map(|node| node.port()).collect();
    rig.nodes[1].kill();
    let config = RedlockConfig::new(ports.iter().map(|port| config_of_port(*port)).collect()).unwrap();
    let other = engine(&config);
    assert!(rig.run(other.claim(&claim("a"), How::Create)).is_err(), "the node has only just started");
    // With this clock the node seems to have been running for a day more.
    rig.nodes[0].set_clock(AGE + 86_400);
    for engine in [other, engine(&config)] {
        let answer = rig.run(engine.claim(&claim("a"), How::Create));
        assert!(!matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
    }
    // With a correct clock, the node has its vote again once all leases that it may have lost have ended.
    rig.nodes[0].set_clock(AGE);
    let next = take(&locks(&config), "a");
    assert!(next.token().number > grant.token.number, "{:?} after {grant:?}", next.token());
}
