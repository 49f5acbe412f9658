//! The memory engine with another profile, with other memos, or with other answers to conversions.

use std::sync::{Arc, Mutex};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Claim, Conversions, Engine, EngineError, Fault, Followed, Hold, How,
    Keeper, Locks, Memo, MemoWrite, Memos, Name, Notification, Profile, Release, Released, Renewed, Upgraded,
    Written,
    memory::{MemoryEngine, MemoryStore},
};

use crate::inspect_macro::inspects_by;

/// The memory engine, altered.
pub(crate) struct Altered {
    engine: MemoryEngine,
    profile: Profile,
    has_memos: bool,
    /// What every read of a memo answers, if it is set: as a replica that is behind.
    old_memo: Mutex<Option<Memo>>,
    /// What every conversion answers, without being applied, if it is set.
    refusal: Mutex<Option<Fault>>,
    /// Is called when the engine has carried out the next release, and before the release returns.
    after_release: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Altered {
    pub(crate) fn new(store: &Arc<MemoryStore>, change: impl FnOnce(&mut Profile)) -> Self {
        let engine = MemoryEngine::new(Arc::clone(store));
        let mut profile = engine.profile().clone();
        change(&mut profile);
        let has_memos = profile.no_memos.is_none();
        Self {
            engine,
            profile,
            has_memos,
            old_memo: Mutex::default(),
            refusal: Mutex::default(),
            after_release: Mutex::default(),
        }
    }

    /// Calls `then` when the engine has carried out the next release, and before the release returns.
    pub(crate) fn after_next_release(&self, then: impl FnOnce() + Send + 'static) {
        *self.after_release.lock().unwrap() = Some(Box::new(then));
    }

    /// From now on every read answers this memo; with `None`, the stored one.
    pub(crate) fn read_always(&self, memo: Option<Memo>) {
        *self.old_memo.lock().unwrap() = memo;
    }

    /// From now on every conversion is refused with this fault; with `None`, it is applied.
    pub(crate) fn refuse_conversions(&self, fault: Option<Fault>) {
        *self.refusal.lock().unwrap() = fault;
    }

    fn refusal(&self) -> Option<EngineError> {
        self.refusal.lock().unwrap().map(|fault| EngineError::new(fault, "it is a test"))
    }
}

/// A client of an altered engine, on the runtime of the caller.
pub(crate) fn client_of(engine: &Arc<Altered>, env: &leasehold_core::Env) -> Locks {
    let keeper = Keeper::on(tokio::runtime::Handle::current());
    Locks::builder(Arc::clone(engine) as Arc<dyn Engine>).keeper(keeper).env(env.clone()).build()
}

impl Engine for Altered {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.engine.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        self.engine.claim(claim, how)
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        self.engine.claim_all(claims)
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        self.engine.renew(holds)
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async {
            let released = self.engine.release(releases).await;
            let then = self.after_release.lock().unwrap().take();
            then.into_iter().for_each(|then| then());
            released
        })
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        self.engine.notifications()
    }

    fn memos(&self) -> Option<&dyn Memos> {
        self.has_memos.then_some(self)
    }

    fn conversions(&self) -> Option<&dyn Conversions> {
        self.profile.no_conversion.is_none().then_some(self)
    }
}

impl Conversions for Altered {
    fn downgrade<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Renewed> {
        match self.refusal() {
            Some(error) => Box::pin(async { Renewed::Unknown(error) }),
            None => self.engine.downgrade(hold),
        }
    }

    fn upgrade<'a>(
        &'a self,
        hold: &'a Hold,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<Upgraded, EngineError>> {
        match self.refusal() {
            Some(error) => Box::pin(async { Err(error) }),
            None => self.engine.upgrade(hold, claim),
        }
    }
}

impl Memos for Altered {
    fn read<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Option<Memo>, EngineError>> {
        if let Some(memo) = self.old_memo.lock().unwrap().clone() {
            return Box::pin(async { Ok(Some(memo)) });
        }
        self.engine.memos().unwrap().read(name)
    }

    fn write<'a>(&'a self, write: &'a MemoWrite) -> BoxFuture<'a, Result<Written, EngineError>> {
        self.engine.memos().unwrap().write(write)
    }

    fn follow(&self, name: &Name) -> Option<Followed> {
        self.engine.memos().unwrap().follow(name)
    }
}

inspects_by!(Altered, |this| this.engine);
