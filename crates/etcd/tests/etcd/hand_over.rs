//! Hand-over inside a process: the tasks of a process share the claims at the server.

use leasehold_core::Locks;
use leasehold_testkit::hand_over;

use crate::{
    go::Program,
    rig::{Rig, acquire, first_token},
};

#[test]
fn tasks_of_a_process_share_claims_and_their_tokens_grow() {
    let rig = Rig::new();
    hand_over::tasks_share_claims(&rig.locks());
}

#[test]
fn without_hand_over_the_token_is_the_create_revision() {
    let mut rig = Rig::new();
    rig.config = rig.config.clone().hand_over(false);
    let (locks, mut go) = (rig.locks(), Program::start(rig.server.port(), 30));
    let first = acquire(&locks, "a");
    let token = first.token().number;
    let view = rig.show("a");
    assert_eq!((view.holders[0].token, view.lineage), (Some(token), Some(first.token().lineage)));
    assert_eq!(go.ask("lock /locks/a"), "queued");
    first.release_blocking().unwrap();
    let (_, revision) = go.read_locked();
    assert_eq!(rig.show("a").holders[0].token, Some(revision), "as the other program sees it");
    assert_eq!(go.ask("unlock /locks/a"), "unlocked");
    let tokens = hand_over::sections(&locks);
    assert!(token < revision && revision < tokens[0] && tokens[0] < first_token(revision));
    go.quit();
}

#[test]
fn clients_with_and_without_hand_over_exclude_each_other_and_have_two_lineages() {
    let mut rig = Rig::new();
    let with = rig.locks();
    rig.config = rig.config.clone().hand_over(false);
    let without = rig.locks();
    let first = acquire(&with, "a");
    let lineage = first.token().lineage;
    assert!(without.mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    first.release_blocking().unwrap();
    let second = acquire(&without, "a");
    assert!(with.mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    assert_ne!(second.token().lineage, lineage);
    second.release_blocking().unwrap();
}

#[test]
fn a_foreign_program_is_granted_beside_a_busy_process() {
    let rig = Rig::new();
    let mut go = Program::start(rig.server.port(), 30);
    hand_over::busy_process_lets_others_in(&rig.locks(), || {
        go.send("lock /locks/a");
        go.read_locked();
        assert_eq!(go.ask("unlock /locks/a"), "unlocked");
    });
    go.quit();
}

#[test]
fn a_block_survives_a_cut_connection() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    hand_over::block_survives(&rig.runtime, &Locks::builder(engine).build(), || proxy.reset());
    rig.until("the key is deleted", || rig.keys().is_empty());
}

#[test]
fn a_block_ends_with_its_lease() {
    let rig = Rig::new();
    let next = hand_over::block_ends(&rig.runtime, &rig.locks(), || {
        let lease = rig.server.command(&["lease", "list"]).pop().unwrap();
        rig.server.command(&["lease", "revoke", &lease]);
    });
    assert_eq!(rig.show("a").holders[0].token, Some(next.token().number));
    next.release_blocking().unwrap();
}

#[test]
fn a_block_ends_with_its_key() {
    let rig = Rig::new();
    let next = hand_over::block_ends(&rig.runtime, &rig.locks(), || {
        rig.server.command(&["del", &rig.keys()[0]]);
    });
    next.release_blocking().unwrap();
}

#[test]
fn a_waiter_that_gives_up_at_its_step_keeps_no_hold() {
    let rig = Rig::new();
    let await_free = || rig.until("the key is deleted", || rig.keys().is_empty());
    hand_over::given_up_at_its_step(&rig.runtime, &rig.locks(), await_free);
}

#[test]
fn the_terms_of_each_task_are_kept() {
    let rig = Rig::new();
    hand_over::terms_of_tasks_are_kept(&rig.runtime, &rig.locks());
}
