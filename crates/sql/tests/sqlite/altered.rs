//! Rows with values that leasehold does not write.

use leasehold_core::{Fault, Locks};

use crate::{
    client::{Client, claim},
    rig::Rig,
};

/// R24: the rows cannot be read, so no claim is granted; the thread of the database serves all other names.
#[test]
fn a_claim_reports_altered_rows() {
    for written in ["token = 'green'", "holder = x'00'", "expires = 'soon'"] {
        let rig = Rig::new();
        let client = Client::new(&rig.path());
        let (job, other) = (claim("job"), claim("other"));
        client.hold(&job);
        rig.execute(&format!(
            "PRAGMA ignore_check_constraints = 1; UPDATE leasehold_lock SET {written} WHERE name = 'job'"
        ));
        let (fault, message) = client.refusal();
        assert_eq!(fault, Fault::Misconfigured, "{written}: {message}");
        let grant = client.hold(&other);
        client.release_hold(&other, &grant);
    }
}

/// R24: owners that exceed the bound of a reply together, an unreadable row, and a row with an invalid name.
#[test]
fn foreign_rows_hide_no_other_name() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    client.hold(&claim("held"));
    let long = "replace(hex(zeroblob(20971520)), '0', 'x')";
    rig.execute(&format!(
        "INSERT INTO leasehold_lock (name, token, holder, tokens, owner, expires) VALUES \
         ('bad', 1, x'00', 1, '', 9e15), ('bad too', 1, zeroblob(16), 1, hex(zeroblob(40000000)), 9e15), ('big', 1, zeroblob(16), 1, {long}, 9e15), ({long}, 1, zeroblob(16), 1, '', 9e15); \
         UPDATE leasehold_lock SET expires = CAST(9e15 AS INTEGER) WHERE name <> 'held'; \
         INSERT INTO leasehold_lock (name, token, claims) VALUES ('many', 1, 2); \
         INSERT INTO leasehold_claim SELECT 'many', id, 0, 0, 1, 0, 0, 1, 1, 0, {long}, 0, CAST(9e15 AS INTEGER), 0, 0, 0, 0 \
         FROM (SELECT zeroblob(16) AS id UNION SELECT randomblob(16))"
    ));
    let locks = Locks::builder(rig.engine()).build();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let views = runtime.block_on(locks.list("")).unwrap();
    let listed: Vec<_> = views.iter().map(|view| (view.name.as_str(), view.problem.is_some())).collect();
    assert_eq!(listed, [("bad", true), ("bad too", true), ("big", false), ("held", false), ("many", false)]);
    assert_eq!(views[2].holders[0].owner, "x".repeat(128) + "…");
    assert_eq!(views[4].holders.len(), 2);
}
