//! Conformance of the file engine: several engines on one directory act as several processes.

use std::{path::PathBuf, sync::Arc};

use leasehold_core::{BoxFuture, Engine, Env, file::FileEngine};
use leasehold_testkit::{
    limits::{OPEN_FILES, raise_open_files},
    suite::{self, Disturbance, Harness},
};

struct Directory(tempfile::TempDir);

impl Directory {
    fn locks(&self) -> PathBuf {
        self.0.path().join("locks")
    }

    fn engine(&self) -> FileEngine {
        FileEngine::open(Some(self.locks()), Env::system()).unwrap()
    }
}

impl Harness for Directory {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        Box::pin(async { Arc::new(self.engine()) as Arc<dyn Engine> })
    }

    fn disturb(&self, _: Disturbance) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Each claim has its own open file, so the limit of open files bounds the number of waiters.
    fn max_waiters(&self) -> usize {
        if raise_open_files() < OPEN_FILES { 250 } else { 1000 }
    }

    /// Lock files stay, by design; holds, waiters and open wake pipes must not.
    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let views = leasehold_core::Inspect::list(&self.engine(), "").await.unwrap();
            views.into_iter().map(|view| format!("{view:?}")).collect()
        })
    }
}

#[test]
fn the_file_engine_conforms() {
    let report = suite::engine(&Directory(tempfile::tempdir().unwrap()));
    assert!(report.passed.len() > 40, "{report}");
}
