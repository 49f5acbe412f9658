//! A look changes nothing.

use leasehold_core::{Engine, Fault, How, Inspect, Level, Name};

use crate::rig::{Rig, USER, as_user, claim, claim_and_hold, engine_at, is_mysql};

#[tokio::test]
async fn a_look_creates_no_tables() {
    let rig = Rig::new();
    let viewer = rig.engine();
    let name = Name::new("a").unwrap();
    for _ in 0..2 {
        assert!(viewer.show(&name).await.unwrap().holders.is_empty());
        assert!(viewer.list("").await.unwrap().is_empty());
        viewer.guarantee().await.unwrap();
        assert_eq!(rig.server.query("SHOW TABLES"), [""; 0]);
    }
    // Once a claim has created the tables, a look shows their rows.
    claim_and_hold(&*rig.engine(), &claim("a")).await;
    assert_eq!(viewer.show(&name).await.unwrap().holders.len(), 1);
    rig.server.query("DROP TABLE leasehold_meta, leasehold_lock, leasehold_claim");
    let other = rig.engine();
    assert!(other.list("").await.unwrap().is_empty());
    claim_and_hold(&*other, &claim("a")).await;
    assert_eq!(other.list("").await.unwrap().len(), 1);
}

/// A user without rights to the tables gets an error, not the answer that names are free.
#[tokio::test]
async fn a_look_without_rights_is_denied() {
    let rig = Rig::new();
    claim_and_hold(&*rig.engine(), &claim("a")).await;
    rig.server.query(USER);
    rig.server.query("GRANT CREATE VIEW ON locks.* TO locker@'%'");
    let viewer = engine_at(&as_user(&rig));
    assert_eq!(viewer.show(&Name::new("a").unwrap()).await.unwrap_err().fault, Fault::Denied);
    assert_eq!(viewer.list("").await.unwrap_err().fault, Fault::Denied);
    assert_eq!(viewer.claim(&claim("a"), How::Create).await.unwrap_err().fault, Fault::Denied);
}

/// The rights that docs/engines/mysql.md gives to a user who only looks.
const VIEWER: &str = "GRANT SELECT ON leasehold_meta TO locker@'%'; GRANT SELECT ON leasehold_lock TO locker@'%'; \
    GRANT SELECT ON leasehold_claim TO locker@'%'";

/// A replica shows holds, too, and refuses claims, also on a connection that was used for a look before.
#[tokio::test]
async fn a_read_only_user_sees_holds_also_on_a_replica() {
    let rig = Rig::new();
    let held = claim("a");
    let grant = claim_and_hold(&*rig.engine(), &held).await;
    rig.server.query(USER);
    rig.server.query(VIEWER);
    let viewer = engine_at(&as_user(&rig));
    let view = viewer.show(&held.name).await.unwrap();
    assert_eq!((view.holders.len(), view.lineage), (1, Some(grant.token.lineage)));
    assert_eq!(viewer.list("").await.unwrap().len(), 1);
    assert_eq!(viewer.claim(&claim("b"), How::Create).await.unwrap_err().fault, Fault::Denied);
    rig.server.query(if is_mysql() { "SET GLOBAL super_read_only = 1" } else { "SET GLOBAL read_only = 1" });
    for viewer in [engine_at(&as_user(&rig)), rig.engine()] {
        for _ in 0..2 {
            let view = viewer.show(&held.name).await.unwrap();
            // A replica may be behind its primary, so its tokens have no lineage.
            assert_eq!((view.holders[0].token, view.lineage), (Some(grant.token.number), None));
            assert_eq!(viewer.list("").await.unwrap().len(), 1);
            let promised = viewer.guarantee().await.unwrap();
            assert!(promised.level == Level::BestEffort, "{promised}");
            assert!(promised.to_string().contains("behind"), "{promised}");
            let other = claim("b");
            for failed in [
                viewer.claim(&other, How::Create).await.map(drop),
                viewer.break_hold(&other.name, 1, true).await.map(drop),
                viewer.ping().await,
            ] {
                let error = failed.unwrap_err();
                assert!(
                    error.fault == Fault::Refused && error.message.contains("name the primary"),
                    "{error:?}"
                );
            }
        }
    }
}
