//! Tests of what memos cost the store: memory for ended ones, and locks at a release.

use std::time::Duration;

use super::fixture::*;
use crate::{
    Claim, ClaimId, HoldAfter, How, MAX_MEMO_BYTES, MemoKind, MemoVersion, MemoWrite, Memos, NewMemo, Written,
};

/// Takes a name, and releases it with a memo of the largest size that is kept for a second.
fn leave_memo(client: &Client, number: u32) {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    let claim = Claim { id: ClaimId(id), ..claim(1, &number.to_string()) };
    let token = held(client.call(&claim, How::Create).unwrap()).token;
    let memo = NewMemo::new(MemoKind::ONCE, vec![0; MAX_MEMO_BYTES], Duration::from_secs(1)).unwrap();
    let version = MemoVersion { id: claim.id, number: 1 };
    let write =
        MemoWrite { name: claim.name, version, hold_token: token, token, memo, after: HoldAfter::Release };
    assert_eq!(ready_answer(client.0.write(&write)).unwrap(), Written::Done);
}

#[test]
fn ended_memos_do_not_fill_the_memory() {
    let (store, clock) = store();
    let client = Client::of(&store);
    for number in 0..1000 {
        leave_memo(&client, number);
        clock.advance(Duration::from_secs(1));
    }
    let bytes = store.memo_bytes();
    assert!(bytes <= 4 * 1024 * 1024, "{bytes} bytes of memos that have ended");
    assert_eq!(store.leftovers(), [""; 0]);
}

#[test]
fn without_followers_a_release_takes_no_lock_that_all_threads_share() {
    let (store, _) = store();
    let client = Client::of(&store);
    let _locked = store.followers.lock();
    let grant = client.hold(1);
    assert!(client.release(release(1, grant.token)));
    leave_memo(&client, 2);
}
