//! The start of a lease, and servers with a wrong clock: F10, F59.

use std::sync::Arc;

use leasehold_core::{Answer, Claim, Engine, Fault, Grant, How, Mode, Renewed, Token};
use mysql_async::{Conn, prelude::Queryable};

use leasehold_testkit::server::MariadbServer;

use crate::rig::{Rig, claim, claim_and_hold, hold_of, pushed_grant, release_hold, renewal_result, until};

/// The database's clock.
const NOW: &str = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";

/// A lease starts when its row was locked, not when the statement or its transaction began.
#[tokio::test]
async fn a_lease_starts_after_the_wait_for_its_row() {
    let rig = Rig::new();
    // The fast path is one statement, the shared mode a transaction.
    for mode in [Mode::Exclusive, Mode::Shared] {
        let engine = rig.engine();
        // Creates the row.
        let first = claim("a");
        let grant = claim_and_hold(&*engine, &first).await;
        release_hold(&*engine, &first, &grant).await;
        let url = format!("{}?prefer_socket=false", rig.server.url());
        let mut blocker = Conn::from_url(url).await.unwrap();
        blocker.query_drop("BEGIN").await.unwrap();
        blocker.query_drop("SELECT * FROM leasehold_lock WHERE name = 'a' FOR UPDATE").await.unwrap();
        let claim = Claim { mode, ..claim("a") };
        let pending_claim = tokio::spawn({
            let (engine, claim) = (Arc::clone(&engine), claim.clone());
            async move { engine.claim(&claim, How::Create).await }
        });
        let waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'";
        while blocker.query_first::<(String, u32), _>(waits).await.unwrap().unwrap().1 == 0 {
            assert!(!pending_claim.is_finished(), "the claim waits for the row");
        }
        blocker.query_drop("DO SLEEP(0.05)").await.unwrap();
        let freed: i64 = blocker.query_first(format!("SELECT {NOW}")).await.unwrap().unwrap();
        blocker.query_drop("COMMIT").await.unwrap();
        let Ok(Answer::Held(grant)) = pending_claim.await.unwrap() else { panic!("{mode}: not granted") };
        let ends = format!(
            "SELECT MAX(expires) - {freed}, MAX(expires) - {NOW} FROM \
             (SELECT expires FROM leasehold_lock UNION ALL SELECT expires FROM leasehold_claim) AS a"
        );
        let row = rig.server.query(&ends).remove(0);
        let (after_freed, left) = row.split_once('|').unwrap();
        let (after_freed, left): (i64, i64) = (after_freed.parse().unwrap(), left.parse().unwrap());
        let ttl = 600_000_000;
        assert!(
            after_freed >= ttl && left <= ttl,
            "{mode}: the lease ends {after_freed} µs after the row was free, {left} µs from now"
        );
        release_hold(&*engine, &claim, &grant).await;
    }
}

/// R10: the row of an unused name is deleted, with its newest token, an hour later by the clock of the server, even if
/// that clock is wrong.
#[tokio::test]
async fn tokens_grow_after_a_wrong_clock_forgot_a_name() {
    const HOURS: i64 = 3600;
    let names = ["one", "line", "three", "four"];
    let rig = Rig::of(MariadbServer::with_clock());
    rig.server.set_clock(9 * HOURS);
    let engine = rig.engine();
    let mut tokens = Vec::new();
    for name in names {
        let claim = claim(name);
        let grant = claim_and_hold(&*engine, &claim).await;
        release_hold(&*engine, &claim, &grant).await;
        tokens.push(grant.token);
    }
    rig.server.set_clock(11 * HOURS);
    let rows = "SELECT name FROM leasehold_lock WHERE name <> ''";
    until("the rows are swept", || rig.server.query(rows).is_empty()).await;
    drop(engine);
    rig.server.set_clock(0);
    let engine = rig.engine();
    // Three paths mint tokens: one statement for one name, a transaction (shared mode), one statement for many names.
    let one = claim_and_hold(&*engine, &claim("one")).await;
    let two = claim_and_hold(&*engine, &Claim { mode: Mode::Shared, ..claim("line") }).await;
    let (three, four) = (claim("three"), claim("four"));
    let (three, four) =
        tokio::join!(biased; claim_and_hold(&*engine, &three), claim_and_hold(&*engine, &four));
    for ((before, after), name) in tokens.iter().zip([one, two, three, four]).zip(names) {
        assert!(after.token > *before, "{name}: {} after {before}", after.token);
    }
    let claim = claim("one");
    assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Taken(_))));
}

/// The floor is far above any clock; tokens are minted, pushed, extended and released on every path.
#[tokio::test]
async fn tokens_may_be_as_large_as_their_columns() {
    const FLOOR: u64 = 1 << 62;
    let rig = Rig::new();
    let (engine, other) = (rig.engine(), rig.engine());
    claim_and_hold(&*engine, &claim("made")).await;
    rig.server.query(&format!("INSERT INTO leasehold_lock (name, token) VALUES ('', {FLOOR})"));
    let [one, two, three] = ["one", "two", "three"].map(|name| Claim { tokens: 64, ..claim(name) });
    let shared = Claim { mode: Mode::Shared, ..claim("shared") };
    let first = claim_and_hold(&*engine, &one).await;
    let (second, third) = tokio::join!(claim_and_hold(&*engine, &two), claim_and_hold(&*engine, &three));
    let fourth = claim_and_hold(&*engine, &shared).await;
    let waits = Claim { may_queue: true, ..claim("one") };
    assert!(matches!(other.claim(&waits, How::Create).await, Ok(Answer::Waiting(_))));
    for (claim, grant) in [(&one, &first), (&two, &second), (&three, &third), (&shared, &fourth)] {
        assert!(grant.token.number > FLOOR, "{grant:?}");
        let extended = renewal_result(&*engine, &hold_of(claim, grant)).await;
        assert!(matches!(extended, Renewed::Extended { .. }), "{}: {extended:?}", claim.name);
        let other = Grant { token: Token { number: grant.token.number + 1, ..grant.token }, ..grant.clone() };
        let lost = renewal_result(&*engine, &hold_of(claim, &other)).await;
        assert!(matches!(lost, Renewed::Lost(_)), "{}: {lost:?}", claim.name);
    }
    release_hold(&*engine, &one, &first).await;
    let pushed = pushed_grant(&other, waits.id).await;
    assert!(pushed.token.number >= first.token.number + 64, "{pushed:?} after {first:?}");
    assert!(matches!(renewal_result(&*other, &hold_of(&waits, &pushed)).await, Renewed::Extended { .. }));
    tokio::join!(release_hold(&*engine, &two, &second), release_hold(&*engine, &three, &third));
    release_hold(&*engine, &shared, &fourth).await;
    let again = claim_and_hold(&*engine, &claim("two")).await;
    assert!(again.token.number >= second.token.number + 64, "{again:?} after {second:?}");
}

/// When the token cannot grow, an error is better than two grants with one token.
#[tokio::test]
async fn a_used_up_token_counter_grants_nothing() {
    let rig = Rig::new();
    let engine = rig.engine();
    for (name, mode) in [("row", Mode::Exclusive), ("claims", Mode::Shared)] {
        let claim = Claim { mode, ..claim(name) };
        let grant = claim_and_hold(&*engine, &claim).await;
        release_hold(&*engine, &claim, &grant).await;
        rig.server.query(&format!("UPDATE leasehold_lock SET token = {} WHERE name = '{name}'", i64::MAX));
        let answer = engine.claim(&Claim { id: crate::rig::claim(name).id, ..claim }, How::Create).await;
        let error = answer.unwrap_err();
        assert_eq!(error.fault, Fault::Misconfigured, "{name}: {error}");
        assert!(error.message.contains("token"), "{name}: {error}");
    }
}
