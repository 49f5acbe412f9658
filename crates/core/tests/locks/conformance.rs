//! Conformance of the file engine: several engines on one directory act as several processes.

use std::{path::PathBuf, sync::Arc};

use leasehold_core::{BoxFuture, Engine, Env, Locks, MIN_MEMO_KEEP, MemoKind, NewMemo, file::FileEngine};
use leasehold_testkit::{
    limits::{OPEN_FILES, raise_open_files},
    suite::{self, Disturbance, Harness},
};

struct Directory(tempfile::TempDir);

impl Directory {
    fn locks(&self) -> PathBuf {
        self.0.path().join("locks")
    }

    /// The files of memos, complete or not.
    fn memo_files(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.locks().join(".state")) else { return Vec::new() };
        let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        files.filter(|file| file.ends_with(".memo") || file.starts_with(".memo-")).collect()
    }

    /// Ended memos are removed by later writes: writes so often that they look at every file twice.
    async fn sweep_memos(&self) {
        let locks = Locks::new(Arc::new(self.engine()));
        let files = std::fs::read_dir(self.locks().join(".state")).map_or(0, Iterator::count);
        for _ in 0..files / 4 + 2 {
            let guard = locks.mutex("sweeper").acquire().await.unwrap();
            let memo = NewMemo::new(MemoKind::ONCE, "", MIN_MEMO_KEEP).unwrap();
            guard.release_with_memo(memo).await.unwrap();
        }
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

    /// Lock files stay, by design; holds, waiters, open wake pipes and ended memos must not.
    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            self.sweep_memos().await;
            let views = leasehold_core::Inspect::list(&self.engine(), "").await.unwrap();
            let views = views.into_iter().map(|view| format!("{view:?}"));
            views.chain(self.memo_files().into_iter().filter(|file| file != "sweeper.memo")).collect()
        })
    }
}

#[test]
fn the_file_engine_conforms() {
    let report = suite::engine(&Directory(tempfile::tempdir().unwrap()));
    assert!(report.passed.len() > 40, "{report}");
}
