//! An engine that was restored from an older copy: same lineage, older tokens.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Claim, Engine, EngineError, Env, ErrorKind, Hold, How, Lineage, Locks,
    Loss, Name, Notification, Profile, Release, Released, Renewed,
    memory::{MemoryEngine, MemoryStore},
};

use crate::inspect_macro::inspects_by;

/// Two stores of one lineage behind one address.
struct Restored {
    today: MemoryEngine,
    yesterday: MemoryEngine,
    restored: AtomicBool,
}

impl Restored {
    fn new() -> Arc<Self> {
        let store = || MemoryEngine::new(MemoryStore::new(Lineage::new(7), Env::system().clock));
        Arc::new(Self { today: store(), yesterday: store(), restored: AtomicBool::new(false) })
    }

    fn now(&self) -> &MemoryEngine {
        if self.restored.load(Ordering::SeqCst) { &self.yesterday } else { &self.today }
    }
}

impl Engine for Restored {
    fn profile(&self) -> &Profile {
        self.today.profile()
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.today.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        self.now().claim(claim, how)
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        self.now().claim_all(claims)
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        self.now().renew(holds)
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        self.now().release(releases)
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        self.now().notifications()
    }

    fn memos(&self) -> Option<&dyn leasehold_core::Memos> {
        self.now().memos()
    }

    fn conversions(&self) -> Option<&dyn leasehold_core::Conversions> {
        self.now().conversions()
    }
}

inspects_by!(Restored, |this| this.now());

#[test]
fn a_grant_with_an_older_token_is_refused_and_undone() {
    for tries in [false, true] {
        let engine = Restored::new();
        let locks = Locks::new(Arc::clone(&engine) as _);
        let ask = || {
            let request = locks.mutex("x");
            if tries { request.blocking().try_acquire() } else { request.blocking().acquire() }
        };
        let tokens: Vec<u64> = (0..3).map(|_| ask().unwrap().token().number).collect();
        assert!(tokens.is_sorted() && tokens[0] < tokens[2]);
        engine.restored.store(true, Ordering::SeqCst);
        let error = ask().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost(Loss::TokenWentBack), "{error}");
        assert!(pollster::block_on(locks.list("")).unwrap().is_empty(), "the grant was undone");
    }
}
