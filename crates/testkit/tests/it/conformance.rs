//! `MemoryEngine` conforms, by itself and behind every decorator.

use std::sync::Arc;

use leasehold_testkit::{
    decorators::{Counting, Faulty, Rates, Slow},
    suite,
};

use crate::rig::Rig;

#[test]
fn the_memory_engine_conforms() {
    let report = suite::engine(&Rig::new());
    assert!(report.passed.len() > 60, "{report}");
}

#[test]
fn decorators_without_faults_conform() {
    suite::engine(&Rig::wrapped(|engine| {
        Arc::new(Slow::new(Arc::new(Counting::new(Arc::new(Faulty::new(engine))))))
    }));
}

#[test]
fn an_engine_with_duplicated_calls_conforms() {
    suite::engine(&Rig::wrapped(|engine| {
        let always = Rates { duplicated: 1000, ..Rates::default() };
        Arc::new(Faulty::seeded(engine, 1, always))
    }));
}
