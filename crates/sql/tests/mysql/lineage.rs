//! Servers with a copy of the tables.

use leasehold_core::Renewed;
use leasehold_testkit::server::MariadbServer;

use crate::rig::{Rig, claim, claim_and_hold, hold_of, renewal_result};

/// F60: the copy on a replica may lack grants of its primary.
#[tokio::test]
async fn a_hold_is_lost_on_a_promoted_copy_but_not_on_a_moved_server() {
    let mut rig = Rig::of(MariadbServer::start(&["--server-id=1"]));
    let engine = rig.proxied();
    let claim = claim("a");
    let grant = claim_and_hold(&*engine, &claim).await;
    rig.server.stop();
    let moved = rig.server.copy(&["--server-id=1"]);
    let promoted = rig.server.copy(&["--server-id=2"]);
    rig.proxy.point_to(moved.port());
    let extended = renewal_result(&*engine, &hold_of(&claim, &grant)).await;
    assert!(matches!(extended, Renewed::Extended { .. }), "{extended:?}");
    rig.proxy.drop_connections();
    rig.proxy.point_to(promoted.port());
    let lost = renewal_result(&*engine, &hold_of(&claim, &grant)).await;
    assert!(matches!(lost, Renewed::Lost(_)), "{lost:?}");
    let next = claim_and_hold(&*engine, &crate::rig::claim("b")).await;
    assert_ne!(next.token.lineage, grant.token.lineage);
}
