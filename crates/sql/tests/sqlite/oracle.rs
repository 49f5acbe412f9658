//! SQLite gives the same answers as the memory engine.

use leasehold_testkit::oracle::{Granting, compare_with_memory_engine};

use crate::rig::Rig;

#[test]
fn sqlite_answers_as_the_oracle_does() {
    let rig = Rig::new();
    compare_with_memory_engine(Granting::AtOnce, || rig.engine());
}
