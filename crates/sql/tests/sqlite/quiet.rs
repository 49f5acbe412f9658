//! Who only waits disturbs nobody.

use std::{thread::sleep, time::Duration};

use leasehold_core::{Claim, Inspect, Level};

use crate::{
    client::{Client, claim},
    rig::Rig,
};

/// Grows with each commit of another.
fn commits(other: &rusqlite::Connection) -> i64 {
    other.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap()
}

#[test]
fn who_waits_writes_nothing_and_takes_no_lock() {
    let rig = Rig::new();
    let clients = [Client::new(&rig.path()), Client::new(&rig.path()), Client::new(&rig.path())];
    clients[0].hold(&Claim { ttl: Duration::from_secs(60), ..claim("job") });
    for client in &clients {
        client.wait(&Claim { ttl: Duration::from_secs(60), ..claim("job") });
    }
    let other = rig.other();
    let before = commits(&other);
    sleep(Duration::from_millis(4500));
    assert_eq!(commits(&other), before);
    // Looks go on while somebody writes: so a grant is heard of, as soon as it is there.
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    clients.iter().for_each(|client| assert_eq!(client.show("job").unwrap().waiters.len(), 3));
}

#[test]
fn a_place_in_line_lives_for_as_long_as_its_client() {
    let rig = Rig::new();
    let (one, other) = (Client::new(&rig.path()), Client::new(&rig.path()));
    let job = claim("job");
    let grant = one.hold(&job);
    // Its place lasts ten seconds, unless it is kept.
    let brief = Claim { ttl: Duration::from_secs(1), claim_time: Duration::from_secs(1), ..claim("job") };
    other.wait(&brief);
    sleep(Duration::from_secs(12));
    assert_eq!(one.show("job").unwrap().waiters.len(), 1);
    one.free(&job, &grant);
    other.granted(brief.id);
}

#[test]
fn what_is_promised_names_the_limits() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    let said = client.runtime.block_on(client.engine.guarantee()).unwrap();
    assert_eq!(said.level, Level::LeaseBounded);
    for word in ["one machine", "restart", "replace or delete"] {
        assert!(said.notes.iter().any(|note| note.contains(word)), "{word}: {said:?}");
    }
}
