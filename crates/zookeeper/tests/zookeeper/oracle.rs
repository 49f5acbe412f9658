//! The ZooKeeper engine answers as the memory engine does.

use leasehold_testkit::oracle::{Granting, compare_with_memory_engine};

use crate::rig::Rig;

#[test]
fn zookeeper_answers_as_the_oracle_does() {
    let rig = Rig::new();
    compare_with_memory_engine(Granting::WhenAsked, || rig.engine());
}

#[test]
fn zookeeper_answers_as_the_oracle_does_in_the_layout_of_leader_latches() {
    let rig = Rig::latch();
    compare_with_memory_engine(Granting::WhenAsked, || rig.engine());
}

#[test]
fn zookeeper_answers_as_the_oracle_does_in_the_layout_of_programs_written_by_hand() {
    let rig = Rig::plain();
    compare_with_memory_engine(Granting::WhenAsked, || rig.engine());
}
