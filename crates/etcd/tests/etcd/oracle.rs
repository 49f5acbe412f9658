//! etcd answers as the memory engine does, which is the oracle.

use leasehold_testkit::oracle::{Granting, compare_with_memory_engine};

use crate::rig::Rig;

#[test]
fn etcd_answers_as_the_oracle_does() {
    let rig = Rig::new();
    compare_with_memory_engine(Granting::AtOnce, || rig.engine());
}

#[test]
fn etcd_with_lock_keys_answers_as_the_oracle_does() {
    let rig = Rig::with_lock_keys("");
    compare_with_memory_engine(Granting::WhenAsked, || rig.engine());
}
