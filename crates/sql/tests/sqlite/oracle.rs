//! SQLite gives the same answers as the memory engine.

use leasehold_testkit::oracle::{Granting, answers_alike};

use crate::rig::Rig;

#[test]
fn sqlite_answers_as_the_oracle_does() {
    let rig = Rig::new();
    answers_alike(Granting::AtOnce, || rig.engine());
}
