//! A look changes nothing.

use leasehold_core::{Engine, Fault, How, Inspect, Name};

use crate::rig::{Rig, USER, as_user, at, claim, take};

#[tokio::test]
async fn a_look_makes_no_tables() {
    let rig = Rig::new();
    let looks = rig.engine();
    let name = Name::new("a").unwrap();
    for _ in 0..2 {
        assert!(looks.show(&name).await.unwrap().holders.is_empty());
        assert!(looks.list("").await.unwrap().is_empty());
        looks.guarantee().await.unwrap();
        assert_eq!(rig.server.says("SHOW TABLES"), [""; 0]);
    }
    // Once somebody made them, it sees what is in them, and makes them itself when it locks.
    take(&*rig.engine(), &claim("a")).await;
    assert_eq!(looks.show(&name).await.unwrap().holders.len(), 1);
    rig.server.says("DROP TABLE leasehold_meta, leasehold_lock, leasehold_claim");
    let other = rig.engine();
    assert!(other.list("").await.unwrap().is_empty());
    take(&*other, &claim("a")).await;
    assert_eq!(other.list("").await.unwrap().len(), 1);
}

/// Who may not see the tables is not told that names are free.
#[tokio::test]
async fn a_look_without_the_right_to_it_is_denied() {
    let rig = Rig::new();
    take(&*rig.engine(), &claim("a")).await;
    rig.server.says(USER);
    rig.server.says("GRANT CREATE VIEW ON locks.* TO locker@'%'");
    let looks = at(&as_user(&rig));
    assert_eq!(looks.show(&Name::new("a").unwrap()).await.unwrap_err().fault, Fault::Denied);
    assert_eq!(looks.list("").await.unwrap_err().fault, Fault::Denied);
    assert_eq!(looks.claim(&claim("a"), How::Create).await.unwrap_err().fault, Fault::Denied);
}
