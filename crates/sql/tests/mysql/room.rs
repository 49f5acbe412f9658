//! A full disk: all data of the server are in one file, which cannot grow.

use std::time::{Duration, Instant};

use leasehold_core::{Answer, Claim, Engine, EngineError, Fault, Grant, How, Mode, Renewed};
use leasehold_testkit::server::MariadbServer;

use crate::rig::{
    PATIENCE, Rig, assert_taken, claim, claim_and_hold, hold_of, is_mysql, release_hold, renewal_result,
};

/// A long name, so that few rows fill a page.
fn name(number: usize) -> String {
    format!("{number:x<500}")
}

/// Claims until a claim is refused. Returns the holds and the error.
async fn fill(engine: &dyn Engine, of: impl Fn(usize) -> Claim) -> (Vec<(Claim, Grant)>, EngineError) {
    let mut held = Vec::new();
    loop {
        let claim = of(held.len());
        match engine.claim(&claim, How::Create).await {
            Ok(Answer::Held(grant)) => held.push((claim, grant)),
            answer => return (held, answer.unwrap_err()),
        }
    }
}

#[tokio::test]
async fn a_full_disk_is_refused_and_holds_stay() {
    let rig = Rig::of(MariadbServer::start(&[
        "--innodb-file-per-table=0",
        "--innodb-data-file-path=ibdata1:12M:autoextend:max:16M",
        // No commit waits for the disk: this test has no crash.
        "--innodb-flush-log-at-trx-commit=0",
    ]));
    let (one, other) = (rig.engine(), rig.engine());
    let first = claim("held");
    let grant = claim_and_hold(&*one, &first).await;
    rig.server.query("CREATE TABLE junk (a int AUTO_INCREMENT PRIMARY KEY, b text)");
    for size in [8000, 1000, 100] {
        // Both servers allow such blocks only in procedures. MySQL returns the error nevertheless.
        rig.server.query(&format!(
            "DELIMITER //\nCREATE PROCEDURE fill() BEGIN DECLARE EXIT HANDLER FOR 1114 BEGIN END; \
             LOOP INSERT INTO junk (b) VALUES (REPEAT('x', {size})); END LOOP; END//"
        ));
        let was_handled = rig.server.succeeds("CALL fill()");
        assert!(was_handled || is_mysql(), "only a full table ends the procedure");
        rig.server.query("DROP PROCEDURE fill");
    }

    // The fast path writes one table, a transaction another one.
    let (others, refused) = fill(&*one, |number| claim(&name(number))).await;
    let read = |number| Claim { mode: Mode::Shared, owner: name(number)[..255].into(), ..claim("read") };
    let (readers, reader_refused) = fill(&*other, read).await;
    for (error, table) in [(refused, "leasehold_lock"), (reader_refused, "leasehold_claim")] {
        assert_eq!(error.fault, Fault::Refused, "{error:?}");
        assert!(error.message.contains(&format!("'{table}' is full")), "{error:?}");
    }

    assert_taken(&*other, "held").await;
    let extended = renewal_result(&*one, &hold_of(&first, &grant)).await;
    assert!(matches!(extended, Renewed::Extended { .. }), "{extended:?}");
    for (claim, grant) in others.iter().chain(&readers) {
        release_hold(&*one, claim, grant).await;
    }
    release_hold(&*one, &first, &grant).await;
    claim_and_hold(&*other, &claim("held")).await;

    rig.server.query("DROP TABLE junk");
    // The server frees the space a little later. The rows of the claims above are still stored, so these rows need
    // space of the dropped table. A multiple of the rows above would not always fit: when the server has just freed the
    // undo log of `fill`, those rows are many.
    for number in 0..64 {
        let limit = Instant::now() + PATIENCE;
        let claim = claim(&format!("{}more", name(number)));
        while let Err(error) = other.claim(&claim, How::Create).await {
            assert!(Instant::now() < limit, "{error:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
