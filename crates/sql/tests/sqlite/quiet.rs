//! Waiters do not disturb other processes.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use leasehold_core::{Claim, Inspect, Level};

use crate::{
    client::{Client, claim},
    rig::{PATIENCE, Rig},
};

/// A number that changes with each commit of another connection.
fn commits(other: &rusqlite::Connection) -> i64 {
    other.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_waiter_writes_nothing_and_takes_no_lock() {
    let rig = Rig::new();
    let clients = [Client::new(&rig.path()), Client::new(&rig.path()), Client::new(&rig.path())];
    clients[0].hold(&claim("job"));
    let other = rig.other();
    let begin = Instant::now();
    for client in &clients {
        client.enqueue(&claim("job"));
    }
    let before = commits(&other);
    sleep(Duration::from_millis(4500));
    let after = commits(&other);
    // Their queue entries are extended only after 15 s; on a stalled machine that may have happened.
    assert!(after == before || begin.elapsed() >= Duration::from_secs(15));
    // Polls do not wait for a writer, so a grant is found as soon as it is committed.
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    clients.iter().for_each(|client| assert_eq!(client.show("job").unwrap().waiters.len(), 3));
}

#[test]
fn a_queue_entry_lives_as_long_as_its_client() {
    let rig = Rig::new();
    let (one, other) = (Client::new(&rig.path()), Client::new(&rig.path()));
    let job = claim("job");
    let grant = one.hold(&job);
    // The queue entry of this claim lasts ten seconds, unless it is extended.
    let brief = Claim { ttl: Duration::from_secs(1), claim_time: Duration::from_secs(1), ..claim("job") };
    other.enqueue(&brief);
    let expiries = || rig.query("SELECT expires FROM leasehold_claim WHERE stand <> 0");
    for _ in 0..2 {
        let (before, limit) = (expiries(), Instant::now() + PATIENCE);
        while expiries() == before {
            assert!(Instant::now() < limit, "the queue entry is extended");
            sleep(Duration::from_millis(20));
        }
    }
    assert_eq!(one.show("job").unwrap().waiters.len(), 1);
    one.release_hold(&job, &grant);
    other.wait_for_grant(brief.id);
}

#[test]
fn the_guarantee_names_its_limits() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    let guarantee = client.runtime.block_on(client.engine.guarantee()).unwrap();
    assert_eq!(guarantee.level, Level::LeaseBounded);
    for word in ["one machine", "restart", "replace or delete"] {
        assert!(guarantee.to_string().contains(word), "{word}: {guarantee:?}");
    }
}
