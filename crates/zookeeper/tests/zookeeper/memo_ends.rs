//! The end of memos: who deletes them, and when.

use std::time::Duration;

use leasehold_core::{Claim, ClaimId, HoldAfter, MIN_MEMO_KEEP, Written};

use crate::{
    memos::{KEEP, hold, memo, read, relayed, store, write},
    raw_client::{RawClient, text},
    rig::{Rig, exclusive},
};

/// The beginning of a step that deletes a node, whatever its version, up to the path.
const DELETE_STEP: [u8; 9] = [0, 0, 0, 2, 0, 0xff, 0xff, 0xff, 0xff];
/// The code of a request that lists the nodes of a directory, up to the path.
const LIST: [u8; 4] = [0, 0, 0, 8];

/// Leaves an ended memo of a client that does not run any more.
async fn leave_ended(rig: &Rig, name: &str) {
    // A dropped client deletes no memo that ends so late.
    store(&rig.engine(), exclusive(name), b"x", Duration::from_millis(1100)).await;
    let reader = rig.engine();
    while read(&reader, name).await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn is_stored(raw: &mut RawClient, name: &str) -> bool {
    raw.memos().iter().any(|path| path.ends_with(&format!("/{name}")))
}

/// A claim whose id makes its client look at other memos, from the first one on, if it writes a new memo.
fn sweeping(name: &str) -> Claim {
    let claim = exclusive(name);
    let mut id = claim.id.0;
    id[..2].fill(0);
    Claim { id: ClaimId(id), ..claim }
}

/// Names whose memos are in one directory.
pub(crate) fn names_of_one_directory() -> impl Iterator<Item = String> {
    let hash = |name: &String| {
        let step = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
        name.bytes().fold(2_166_136_261, step) % 256
    };
    (0..).map(|number| format!("n{number}")).filter(move |name| hash(name) == 7)
}

#[test]
fn an_ended_memo_of_a_dead_client_is_deleted_by_others() {
    let rig = Rig::new();
    let mut raw = RawClient::as_super(rig.server.port());
    let names: Vec<String> = names_of_one_directory().take(3).collect();
    let [dead, live, new] = &names[..] else { unreachable!() };
    rig.run(async {
        store(&rig.engine(), exclusive(live), b"x", KEEP).await;
        leave_ended(&rig, dead).await;
    });
    assert_eq!(raw.memos().len(), 2, "only new memos delete it");
    rig.run(async { store(&rig.engine(), sweeping(new), b"x", KEEP).await });
    rig.until("the ended memo is deleted", || !is_stored(&mut raw, dead));
    assert_eq!(raw.memos().len(), 2);
}

/// Many programs end as soon as they have stored a result, so they delete ended memos before.
#[test]
fn a_holder_that_finds_no_memo_deletes_ended_ones_one_time() {
    let rig = Rig::new();
    let (engine, mut raw) = (rig.engine(), RawClient::as_super(rig.server.port()));
    let names: Vec<String> = names_of_one_directory().take(3).collect();
    let [first, second, new] = &names[..] else { unreachable!() };
    rig.run(leave_ended(&rig, first));
    let reader = rig.engine();
    assert_eq!(rig.run(read(&reader, new)).unwrap(), None);
    let held = rig.run(hold(&engine, sweeping(new)));
    assert_eq!(rig.run(read(&engine, new)).unwrap(), None);
    rig.until("the ended memo is deleted", || !is_stored(&mut raw, first));
    rig.run(async {
        leave_ended(&rig, second).await;
        assert_eq!(read(&engine, new).await.unwrap(), None);
        write(&engine, &held, (1, memo(b"x", KEEP)), HoldAfter::Release).await.unwrap();
        store(&engine, sweeping("elsewhere"), b"x", KEEP).await;
    });
    assert!(is_stored(&mut raw, second), "each claim looks one time");
}

/// The deletion of ended memos is no part of a write.
#[test]
fn a_write_is_answered_before_its_client_looks_at_other_memos() {
    let rig = Rig::new();
    let (relay, engine) = relayed(&rig);
    let mut raw = RawClient::as_super(rig.server.port());
    let names: Vec<String> = names_of_one_directory().take(2).collect();
    let [dead, new] = &names[..] else { unreachable!() };
    rig.run(async {
        leave_ended(&rig, dead).await;
        let path = raw.memos().pop().unwrap();
        let directory = path.strip_suffix(&format!("/{dead}")).unwrap();
        relay.stop_at([&LIST[..], &text(directory.as_bytes())].concat());
        store(&engine, sweeping(new), b"x", KEEP).await;
        tokio::task::spawn_blocking(relay.stopped()).await.unwrap();
    });
    assert_eq!(raw.memos().len(), 2);
    // A look that the write had waited for would have ended by now.
    relay.go_on();
    rig.until("the ended memo is deleted", || !is_stored(&mut raw, dead));
}

#[test]
fn a_client_deletes_its_memos_after_their_end() {
    let rig = Rig::new();
    let (engine, mut raw) = (rig.engine(), RawClient::as_super(rig.server.port()));
    rig.run(async {
        store(&engine, exclusive("at-once"), b"x", MIN_MEMO_KEEP).await;
        store(&engine, exclusive("later"), b"x", Duration::from_millis(1100)).await;
        store(&engine, exclusive("much-later"), b"x", KEEP).await;
    });
    let much_later = raw.memos().into_iter().find(|path| path.ends_with("/much-later")).unwrap();
    rig.until("the ended memos are deleted", || raw.memos() == [much_later.as_str()]);
}

/// R28: the number of an ended memo tells late writes as long as its hold lasts.
#[test]
fn an_ended_memo_stays_as_long_as_its_hold() {
    let rig = Rig::new();
    let (engine, mut raw) = (rig.engine(), RawClient::as_super(rig.server.port()));
    let mut names: Vec<String> = names_of_one_directory().take(3).collect();
    // Its client looks at them in this order.
    names.sort();
    let [kept, dead, new] = &names[..] else { unreachable!() };
    let held = rig.run(hold(&engine, exclusive(kept)));
    rig.run(async {
        write(&engine, &held, (9, memo(b"x", MIN_MEMO_KEEP)), HoldAfter::Keep).await.unwrap();
        while read(&engine, kept).await.unwrap().is_some() {}
        leave_ended(&rig, dead).await;
        store(&rig.engine(), sweeping(new), b"x", KEEP).await;
    });
    rig.until("the other one is deleted", || !is_stored(&mut raw, dead));
    let late = rig.run(write(&engine, &held, (8, memo(b"late", KEEP)), HoldAfter::Keep));
    assert_eq!(late.unwrap(), Written::Done);
    assert_eq!(raw.memos().len(), 2);
    assert_eq!(rig.run(read(&engine, kept)).unwrap(), None, "a late write brings nothing back");
}

/// A client that is about to delete an ended memo is slower than others that delete it and create the next one.
#[test]
fn a_new_memo_is_not_deleted_in_place_of_an_ended_one() {
    let rig = Rig::new();
    let (relay, slow) = relayed(&rig);
    let (engine, mut raw) = (rig.engine(), RawClient::as_super(rig.server.port()));
    rig.run(async {
        let held = hold(&slow, exclusive("a")).await;
        write(&slow, &held, (1, memo(b"old", KEEP)), HoldAfter::Keep).await.unwrap();
        let path = raw.memos().pop().unwrap();
        relay.stop_at([&DELETE_STEP[..], &text(path.as_bytes())].concat());
        raw.delete(&path);
        write(&slow, &held, (2, memo(b"old", MIN_MEMO_KEEP)), HoldAfter::Release).await.unwrap();
        tokio::task::spawn_blocking(relay.stopped()).await.unwrap();
        raw.delete(&path);
        store(&engine, exclusive("a"), b"new", KEEP).await;
        relay.go_on();
        // Behind the deletion, on the same connection.
        let _ = read(&slow, "a").await;
        let memo = read(&engine, "a").await.unwrap().expect("the new memo is not deleted");
        assert_eq!(memo.bytes, b"new");
    });
}
