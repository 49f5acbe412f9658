//! The ZooKeeper engine answers as the memory engine does.

use leasehold_testkit::oracle::{Granting, answers_alike};

use crate::rig::Rig;

#[test]
fn zookeeper_answers_as_the_oracle_does() {
    let rig = Rig::new();
    answers_alike(Granting::WhenAsked, || rig.engine());
}
