//! Names that are nearly equal.

use std::collections::HashSet;

use leasehold_core::Inspect;

use crate::{
    client::{Client, claim},
    rig::Rig,
};

#[test]
fn similar_names_are_different_locks() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    let long = "x".repeat(511);
    let names = [
        "job",
        "Job",
        "JOB",
        "job ",
        " job",
        "j\u{f6}b",
        "jo\u{308}b",
        "a",
        "a/b",
        "a%b",
        "a_b",
        "'; DROP TABLE leasehold_lock; --",
        &format!("{long}a"),
        &format!("{long}A"),
        &format!("{long}b"),
        &long,
        "1",
        "1.0",
        "01",
        "NULL",
        "\u{10ffff}",
    ];
    let tokens: HashSet<_> = names.iter().map(|name| client.hold(&claim(name)).token).collect();
    assert_eq!(rig.remaining_rows().len(), names.len());
    assert!(!tokens.is_empty());
    let list = |prefix: &str| client.runtime.block_on(client.engine.list(prefix)).unwrap();
    assert_eq!(list("").len(), names.len());
    assert_eq!(list("a%").len(), 1);
    assert_eq!(list("a").len(), 4);
    assert_eq!(list("J").len(), 2);
    assert_eq!(list(&long).len(), 4);
    for name in names {
        client.enqueue(&claim(name));
    }
}

#[test]
fn a_swept_name_continues_its_tokens() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    let job = claim("job");
    let grant = client.hold(&job);
    client.release_hold(&job, &grant);
    // As if the clock had stepped back since: the row is deleted, and its token is in the floor of all names.
    rig.execute("DELETE FROM leasehold_lock; UPDATE leasehold_meta SET floor = 9000000000000000000");
    assert_eq!(client.hold(&claim("job")).token.number, 9_000_000_000_000_000_001);
}
