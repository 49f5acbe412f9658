//! `layout=latch`: candidates of leasehold and participants of Curator's `LeaderLatch` in one election.

use std::{sync::mpsc, thread::spawn, time::Duration};

use leasehold_core::{Leading, Locks};

use crate::{
    peers::Program,
    rig::{PATIENCE, Rig, acquire},
};

/// A session timeout after which a test can wait for the end of a killed program's session.
const SHORT_SESSION_MILLIS: u32 = 2000;
const LONG_SESSION_MILLIS: u32 = 30_000;
/// The ttl of our candidates.
const TTL: Duration = Duration::from_secs(4);
/// How long a test waits to show that a lead does not come.
const NO_LEAD_TIME: Duration = Duration::from_millis(300);

fn curator(rig: &Rig, millis: u32) -> Program {
    Program::curator(&format!("127.0.0.1:{}", rig.server.port()), millis)
}

/// Campaigns as the participant with this id, which is also the value.
fn campaign(locks: &Locks, id: &str) -> mpsc::Receiver<Leading> {
    let (tx, rx) = mpsc::channel();
    let election = locks.election("e").ttl(TTL).owner(id).value(id);
    spawn(move || tx.send(election.campaign_blocking().unwrap()));
    rx
}

fn await_participants(rig: &Rig, count: usize) {
    rig.until("the participants are queued", || {
        let view = rig.show("e");
        view.holders.len() + view.waiters.len() == count
    });
}

#[test]
fn curator_and_ours_lead_one_after_another_in_the_order_of_their_nodes() {
    let rig = Rig::latch();
    let (one, two) = (rig.locks(), rig.locks());
    let mut curator = curator(&rig, LONG_SESSION_MILLIS);
    curator.send("latch t /locks/e first");
    curator.expect_locked("t");
    let second = campaign(&one, "second");
    await_participants(&rig, 2);
    curator.send("latch u /locks/e third");
    await_participants(&rig, 3);
    let fourth = campaign(&two, "fourth");
    await_participants(&rig, 4);
    assert_eq!(curator.ask("leaders /locks/e"), "leaders first second third fourth");
    assert!(second.recv_timeout(NO_LEAD_TIME).is_err(), "Curator leads");
    let view = rig.show("e");
    let (holder, waiter) = (&view.holders[0], &view.waiters[0]);
    assert!(holder.foreign && holder.owner == "first" && holder.of_session, "{view:?}");
    assert_eq!(waiter.owner, "second", "{view:?}");
    let first_term = holder.token.unwrap();

    curator.unlock("t");
    let second = second.recv_timeout(PATIENCE).unwrap();
    assert!(second.term().number > first_term);
    assert_eq!(curator.ask("leaders /locks/e"), "leaders second third fourth");
    let view = rig.show("e");
    assert!(!view.holders[0].foreign && view.holders[0].owner == "second", "{view:?}");
    let leader = two.election("e").leader_blocking().unwrap().unwrap();
    assert_eq!((leader.value.as_deref(), leader.term), (Some("second"), second.term()));

    second.resign_blocking().unwrap();
    curator.expect_locked("u");
    assert!(fourth.recv_timeout(NO_LEAD_TIME).is_err(), "Curator leads");
    assert_eq!(two.election("e").leader_blocking().unwrap(), None, "Curator publishes no memo");
    curator.unlock("u");
    fourth.recv_timeout(PATIENCE).unwrap().resign_blocking().unwrap();
    curator.quit();
    assert_eq!(rig.nodes(), [""; 0]);
}

#[test]
fn a_killed_leader_of_either_side_is_followed_by_the_other() {
    let rig = Rig::latch();
    let mut first = curator(&rig, SHORT_SESSION_MILLIS);
    first.send("latch t /locks/e first");
    first.expect_locked("t");
    let (proxy, engine) = rig.proxied();
    let ours = Locks::builder(engine).build();
    let second = campaign(&ours, "second");
    await_participants(&rig, 2);
    first.kill();
    let second = second.recv_timeout(PATIENCE).unwrap();
    let mut third = curator(&rig, LONG_SESSION_MILLIS);
    third.send("latch t /locks/e third");
    await_participants(&rig, 2);
    proxy.block();
    rig.run(second.lost());
    third.expect_locked("t");
    assert_eq!(third.ask("leaders /locks/e"), "leaders third");
    third.unlock("t");
    third.quit();
}

/// A participant of Curator watches the data of the node ahead, and after a change it watches nothing any more. So
/// neither a value, nor a renewal, nor a break without force may change a node.
#[test]
fn nothing_that_a_leader_does_takes_the_notification_from_curator() {
    let rig = Rig::latch();
    let (locks, operator) = (rig.locks(), rig.locks());
    let leading = locks.election("e").ttl(TTL).value("first").campaign_blocking().unwrap();
    let mut curator = curator(&rig, LONG_SESSION_MILLIS);
    curator.send("latch t /locks/e second");
    await_participants(&rig, 2);
    leading.proclaim_blocking("new").unwrap();
    let error = rig.run(operator.break_hold("e", leading.term().number, false)).unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("--force"), "{error}");
    assert!(leading.check());
    leading.resign_blocking().unwrap();
    curator.expect_locked("t");
    // A leader of Curator can be broken by force only, too.
    let token = rig.show("e").holders[0].token.unwrap();
    let error = rig.run(operator.break_hold("e", token, false)).unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("--force"), "{error}");
    rig.run(operator.break_hold("e", token, true)).unwrap();
    acquire(&operator, "e").release_blocking().unwrap();
    curator.quit();
}

#[test]
fn a_latch_has_exclusive_claims_only() {
    let rig = Rig::latch();
    let locks = rig.locks();
    for request in [locks.rw("e").read(), locks.semaphore("e", 2)] {
        let error = request.blocking().try_acquire().unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("layout=latch"), "{error}");
    }
    assert_eq!(rig.nodes(), [""; 0]);
}
