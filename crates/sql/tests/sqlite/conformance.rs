//! The SQLite engine conforms.

use std::sync::Arc;

use leasehold_sql::SqlEngine;
use leasehold_testkit::suite::Disturbance;

use crate::{
    harness::{Conforms, assert_conforms},
    rig::Rig,
};

impl Conforms for Rig {
    fn client(&self) -> Arc<SqlEngine> {
        self.engine()
    }

    fn disturb(&self, kind: Disturbance) -> bool {
        // There is no connection to cut.
        let is_supported = kind == Disturbance::Forget;
        if is_supported {
            self.execute("DELETE FROM leasehold_claim; DELETE FROM leasehold_lock");
        }
        is_supported
    }

    fn rows(&self) -> Vec<String> {
        self.remaining_rows()
    }
}

#[test]
fn the_sqlite_engine_conforms() {
    assert_conforms(&Rig::new(), 80);
}
