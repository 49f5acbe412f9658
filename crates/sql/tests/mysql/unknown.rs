//! Requests that were committed but whose reply was lost.

use std::sync::Arc;

use leasehold_core::{Answer, Claim, Engine, Fault, How, Mode};
use mysql_async::{Conn, prelude::Queryable};

use crate::rig::{Rig, claim, claim_and_hold, is_mysql, release_hold, until};

/// Blocks all commits of a server.
struct Dam(Conn);

impl Dam {
    async fn build(rig: &Rig) -> Self {
        let url = format!("{}?prefer_socket=false", rig.server.url());
        let mut conn = Conn::from_url(url).await.unwrap();
        if is_mysql() {
            // Installing it twice is an error, which is ignored. Commits wait for a replica, and there is none.
            let _ = conn.query_drop("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'").await;
            conn.query_drop("SET GLOBAL rpl_semi_sync_source_timeout = 600000").await.unwrap();
            conn.query_drop("SET GLOBAL rpl_semi_sync_source_enabled = 1").await.unwrap();
            return Self(conn);
        }
        for stage in ["START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"] {
            conn.query_drop(format!("BACKUP STAGE {stage}")).await.unwrap();
        }
        Self(conn)
    }

    async fn open(mut self) {
        let open =
            if is_mysql() { "SET GLOBAL rpl_semi_sync_source_enabled = 0" } else { "BACKUP STAGE END" };
        self.0.query_drop(open).await.unwrap();
        self.0.disconnect().await.unwrap();
    }
}

/// The number of blocked commits.
fn blocked_commits(rig: &Rig) -> usize {
    let state = if is_mysql() { "Waiting for semi-sync ACK" } else { "Waiting for backup lock" };
    rig.server
        .query(&format!("SELECT id FROM information_schema.processlist WHERE state LIKE '{state}%'"))
        .len()
}

/// F73: on the fast path, and in a transaction.
#[tokio::test]
async fn a_grant_with_a_lost_reply_is_found_again() {
    let rig = Rig::new();
    for mode in [Mode::Exclusive, Mode::Shared] {
        let engine = rig.proxied();
        let before = claim("before");
        let grant = claim_and_hold(&*engine, &before).await;
        let lost = Claim { mode, ..claim("a") };
        let dam = Dam::build(&rig).await;
        let pending_claim = tokio::spawn({
            let (engine, lost) = (Arc::clone(&engine), lost.clone());
            async move { engine.claim(&lost, How::Create).await }
        });
        until("the commit is blocked", || blocked_commits(&rig) == 1).await;
        rig.proxy.hold_answers();
        dam.open().await;
        until("the claim is granted", || rig.remaining_rows().len() > 1).await;
        rig.proxy.cut_clients();
        assert_eq!(pending_claim.await.unwrap().unwrap_err().fault, Fault::Unknown);
        let tokens = rig.server.query("SELECT token FROM leasehold_lock WHERE name = 'a'");
        let found_grant = claim_and_hold(&*engine, &lost).await;
        assert_eq!(found_grant.token.number.to_string(), tokens[0], "{mode}");
        release_hold(&*engine, &lost, &found_grant).await;
        release_hold(&*engine, &before, &grant).await;
        // Nothing is left except the tombstone against a late copy of the lost request.
        let left = rig.server.query("SELECT name FROM leasehold_claim WHERE stand <> 6");
        assert_eq!(left, Vec::<String>::new());
        rig.server.query("DELETE FROM leasehold_claim; DELETE FROM leasehold_lock");
    }
}

/// A grant that is found again is extended, so that its client does not rely on it for longer than its row says.
#[tokio::test]
async fn a_grant_found_again_is_extended() {
    let rig = Rig::new();
    let engine = rig.engine();
    let claim = claim("a");
    let first = claim_and_hold(&*engine, &claim).await;
    let expires = || rig.server.query("SELECT expires FROM leasehold_lock").remove(0).parse::<i64>().unwrap();
    let before = expires();
    rig.server.query("UPDATE leasehold_lock SET expires = expires - 30000000");
    let found_grant = claim_and_hold(&*engine, &claim).await;
    assert_eq!(found_grant.token, first.token);
    assert!(expires() > before, "the grant is extended");
}

/// I10: many releases in one request; each gets its own answer.
#[tokio::test]
async fn each_of_many_releases_gets_its_own_answer() {
    let rig = Rig::new();
    let engine = rig.engine();
    let mut held = Vec::new();
    for number in 0..40 {
        let claim = claim(&format!("n{number}"));
        let grant = claim_and_hold(&*engine, &claim).await;
        held.push((claim, grant));
    }
    let release = |(claim, grant): &(Claim, leasehold_core::Grant)| leasehold_core::Release {
        id: claim.id,
        name: claim.name.clone(),
        mode: claim.mode,
        token: Some(grant.token),
        ended: leasehold_core::Previous::Clean,
        min_hold: None,
    };
    let mut releases: Vec<_> = held.iter().map(release).collect();
    let wrong_index = 7;
    releases[wrong_index].id = claim("n7").id;
    let answers = engine.release(&releases).await;
    for (at, answer) in answers.iter().enumerate() {
        let is_freed = matches!(answer, leasehold_core::Released::Freed);
        assert_eq!(is_freed, at != wrong_index, "{at}: {answer:?}");
    }
    assert_eq!(rig.remaining_rows(), ["n7|-1"]);
    let answer = engine.claim(&claim("n7"), How::Create).await;
    assert!(matches!(answer, Ok(Answer::Taken(_))), "{answer:?}");
}
