//! The contract of an engine, and locks on an engine that the program made.
//!
//! An [`Engine`] is one client of a system that stores locks. Programs do not call it: [`Locks`] does. A
//! program needs this module to write an engine of its own, or a wrapper that counts, delays or refuses the requests
//! of one. The contract may get more methods in a minor version.

use std::sync::Arc;

pub use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Claim, Conversions, Engine, EngineError, Fault, Followed, Grant, Hint,
    Hold, HoldAfter, How, Inspect, Memo, MemoKind, MemoVersion, MemoWrite, Memos, NewMemo, NoticeSender,
    Notification, Profile, Release, Released, Renewed, TimeLeft, Upgraded, Watched, Written,
};

use crate::{Connect, Error, Locks, open::EngineHandle};

impl Locks {
    /// Locks on an engine that the program made. Nothing is sent before the first request.
    #[must_use]
    pub fn from_engine(engine: Arc<dyn Engine>) -> Self {
        Self::new(leasehold_core::Locks::new(engine), EngineHandle::Nothing, None)
    }
}

impl Connect {
    /// Locks on an engine that the program made, with these options.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if an option is set that only an engine with a URL has, such as a
    /// password.
    pub fn from_engine(self, engine: Arc<dyn Engine>) -> Result<Locks, Error> {
        if let Some(option) = self.option_of_url() {
            return Err(Error::misconfigured(format!(
                "Connect::{option} is given, but the program made the engine: give the engine this option"
            )));
        }
        Ok(Locks::new(self.builder(engine).build(), EngineHandle::Nothing, None))
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use leasehold_core::{
        Env,
        memory::{MemoryEngine, MemoryStore},
    };

    use super::*;

    fn engine() -> Arc<dyn Engine> {
        let env = Env::system();
        Arc::new(MemoryEngine::new(MemoryStore::new(env.lineage(), env.clock)))
    }

    #[test]
    fn locks_on_an_engine_of_the_program_have_the_options() {
        let guard = Locks::from_engine(engine()).mutex("x").blocking().acquire().unwrap();
        guard.release_blocking().unwrap();
        let locks = Connect::default().owner("me").from_engine(engine()).unwrap();
        let _guard = locks.mutex("x").blocking().acquire().unwrap();
        let view = pollster::block_on(locks.show("x")).unwrap();
        assert_eq!(view.holders[0].owner, "me");
    }

    #[test]
    fn options_of_urls_are_refused() {
        for (options, option) in [
            (Connect::default().password("secret"), "password"),
            (Connect::default().schema("app"), "schema"),
            (Connect::default().max_connections(5), "max_connections"),
        ] {
            let error = options.from_engine(engine()).unwrap_err();
            assert!(error.is_misconfigured() && error.to_string().contains(option), "{error}");
            assert!(!error.to_string().contains("secret"));
        }
    }
}
