//! A lone lock is granted and released by prepared statements, and by text on a server that prepares none.

use leasehold_testkit::server::MariadbServer;

use crate::rig::{Rig, assert_taken, claim, claim_and_hold, release_hold};

/// How many statements were prepared, how many prepared statements were executed, and how many statements insert.
fn counts(rig: &Rig) -> (u64, u64, u64) {
    let count = |name: &str| -> u64 {
        let rows = rig.server.query(&format!("SHOW GLOBAL STATUS LIKE '{name}'"));
        rows[0].rsplit('|').next().unwrap().parse().unwrap()
    };
    (count("Com_stmt_prepare"), count("Com_stmt_execute"), count("Com_insert"))
}

#[tokio::test]
async fn a_lock_whose_row_exists_costs_two_prepared_statements() {
    let rig = Rig::new();
    let (engine, other) = (rig.engine(), rig.engine());
    let first = claim("n");
    let grant = claim_and_hold(&*engine, &first).await;
    release_hold(&*engine, &first, &grant).await;
    let (prepared, executed, inserted) = counts(&rig);
    let mut newest = grant.token;
    for _ in 0..10 {
        let claim = claim("n");
        let grant = claim_and_hold(&*engine, &claim).await;
        assert!(grant.token.number > newest.number, "tokens grow");
        newest = grant.token;
        release_hold(&*engine, &claim, &grant).await;
    }
    assert_eq!(counts(&rig), (prepared, executed + 20, inserted));
    let held = claim("n");
    let grant = claim_and_hold(&*engine, &held).await;
    assert_taken(&*other, "n").await;
    release_hold(&*engine, &held, &grant).await;
    assert!(rig.remaining_rows().is_empty());
}

#[tokio::test]
async fn a_server_that_prepares_no_statement_gets_text() {
    let rig = Rig::of(MariadbServer::start(&["--max-prepared-stmt-count=0"]));
    let (engine, other) = (rig.engine(), rig.engine());
    for _ in 0..3 {
        let held = claim("n");
        let grant = claim_and_hold(&*engine, &held).await;
        assert_taken(&*other, "n").await;
        release_hold(&*engine, &held, &grant).await;
    }
    assert_eq!(counts(&rig).1, 0);
    assert!(rig.remaining_rows().is_empty());
}

/// The floor is ahead of the clock, as after a clock was set back, and counts for new names only.
#[tokio::test]
async fn a_name_that_exists_has_a_holder_also_below_the_floor() {
    const FLOOR: u64 = 1 << 62;
    let rig = Rig::of(MariadbServer::start(&["--max-prepared-stmt-count=0"]));
    let (engine, other) = (rig.engine(), rig.engine());
    let held = claim("n");
    let grant = claim_and_hold(&*engine, &held).await;
    release_hold(&*engine, &held, &grant).await;
    rig.server.query(&format!("INSERT INTO leasehold_lock (name, token) VALUES ('', {FLOOR})"));
    let held = claim("n");
    let grant = claim_and_hold(&*engine, &held).await;
    assert_taken(&*other, "n").await;
    release_hold(&*engine, &held, &grant).await;
}
