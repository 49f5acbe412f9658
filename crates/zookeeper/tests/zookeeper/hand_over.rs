//! Hand-over inside a process: the tasks of a process share the claims at the server.

use leasehold_core::{HAND_OVER_TOKENS, Locks};
use leasehold_testkit::hand_over;

use crate::{
    peers::Program,
    rig::{Rig, acquire},
};

#[test]
fn tasks_of_a_process_share_claims_and_their_tokens_grow() {
    let rig = Rig::new();
    hand_over::tasks_share_claims(&rig.locks());
}

#[test]
fn without_hand_over_the_token_is_the_czxid() {
    let rig = Rig::new();
    let (with, without) = (rig.locks(), rig.locks_with(|config| config.hand_over(false)));
    let first = acquire(&without, "a");
    let (bare, lineage) = (first.token().number, first.token().lineage);
    assert!(with.mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    // A client with hand-over computes its tokens from the same czxid.
    assert_eq!(rig.show("a").holders[0].token, Some(bare * u64::from(HAND_OVER_TOKENS)));
    first.release_blocking().unwrap();
    let tokens = hand_over::sections(&without);
    assert!(bare < tokens[0] && tokens[0] < bare * u64::from(HAND_OVER_TOKENS));
    let second = acquire(&with, "a");
    assert!(without.mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    assert_ne!(second.token().lineage, lineage);
    second.release_blocking().unwrap();
}

#[test]
fn a_foreign_program_is_granted_beside_a_busy_process() {
    let rig = Rig::new();
    let mut curator = Program::curator(&format!("127.0.0.1:{}", rig.server.port()), 30_000);
    hand_over::busy_process_lets_others_in(&rig.locks(), || {
        curator.send("lock t /locks/a");
        curator.expect_locked("t");
        curator.unlock("t");
    });
    curator.quit();
}

#[test]
fn a_block_survives_a_cut_connection() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    hand_over::block_survives(&rig.runtime, &Locks::builder(engine).build(), || proxy.reset());
    rig.until("the node is deleted", || rig.nodes().is_empty());
}

#[test]
fn a_block_ends_with_its_node() {
    let rig = Rig::new();
    let operator = rig.locks();
    let next = hand_over::block_ends(&rig.runtime, &rig.locks(), || {
        let token = rig.show("a").holders[0].token.unwrap();
        rig.run(operator.break_hold("a", token, true)).unwrap();
    });
    assert_eq!(rig.show("a").holders[0].token, Some(next.token().number));
    next.release_blocking().unwrap();
}

#[test]
fn a_waiter_that_gives_up_at_its_step_keeps_no_hold() {
    let rig = Rig::new();
    let await_free = || rig.until("the node is deleted", || rig.nodes().is_empty());
    hand_over::given_up_at_its_step(&rig.runtime, &rig.locks(), await_free);
}

#[test]
fn the_terms_of_each_task_are_kept() {
    let rig = Rig::new();
    hand_over::terms_of_tasks_are_kept(&rig.runtime, &rig.locks());
}
