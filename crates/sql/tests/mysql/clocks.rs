//! From when a lease counts: F59.

use std::sync::Arc;

use leasehold_core::{Answer, Claim, Engine, How, Mode};
use mysql_async::{Conn, prelude::Queryable};

use crate::rig::{Rig, claim, free, take};

/// The database's clock.
const NOW: &str = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";

/// From when the row was had, not from when the statement or its transaction began.
#[tokio::test]
async fn a_lease_counts_from_the_end_of_the_wait_for_its_row() {
    let rig = Rig::new();
    // By one statement, and by a transaction.
    for mode in [Mode::Exclusive, Mode::Shared] {
        let engine = rig.engine();
        // The row is there.
        let first = claim("a");
        let grant = take(&*engine, &first).await;
        free(&*engine, &first, &grant).await;
        let url = format!("{}?prefer_socket=false", rig.server.url());
        let mut blocker = Conn::from_url(url).await.unwrap();
        blocker.query_drop("BEGIN").await.unwrap();
        blocker.query_drop("SELECT * FROM leasehold_lock WHERE name = 'a' FOR UPDATE").await.unwrap();
        let claim = Claim { mode, ..claim("a") };
        let asked = tokio::spawn({
            let (engine, claim) = (Arc::clone(&engine), claim.clone());
            async move { engine.claim(&claim, How::Create).await }
        });
        let waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'";
        while blocker.query_first::<(String, u32), _>(waits).await.unwrap().unwrap().1 == 0 {
            assert!(!asked.is_finished(), "it waits");
        }
        blocker.query_drop("DO SLEEP(0.05)").await.unwrap();
        let freed: i64 = blocker.query_first(format!("SELECT {NOW}")).await.unwrap().unwrap();
        blocker.query_drop("COMMIT").await.unwrap();
        let Ok(Answer::Held(grant)) = asked.await.unwrap() else { panic!("{mode}: not granted") };
        let ends = format!(
            "SELECT MAX(expires) - {freed}, MAX(expires) - {NOW} FROM \
             (SELECT expires FROM leasehold_lock UNION ALL SELECT expires FROM leasehold_claim) AS a"
        );
        let said = rig.server.says(&ends).remove(0);
        let (after_freed, left) = said.split_once('|').unwrap();
        let (after_freed, left): (i64, i64) = (after_freed.parse().unwrap(), left.parse().unwrap());
        let ttl = 600_000_000;
        assert!(
            after_freed >= ttl && left <= ttl,
            "{mode}: {after_freed} after the row was free, {left} left"
        );
        free(&*engine, &claim, &grant).await;
    }
}
