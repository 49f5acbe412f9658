//! Requests in flight. They own their data, so that they outlive their callers.

use leasehold_core::{Answer, Claim, Engine, EngineError, Fault, Hold, How, Release, Released, Renewed};

use crate::decorators::Verb;

/// A request that changes state.
#[derive(Clone)]
pub(super) enum Request {
    Claim(Claim, How),
    Renew(Vec<Hold>),
    Release(Vec<Release>),
}

/// The answer to a request.
pub(super) enum Reply {
    Claim(Result<Answer, EngineError>),
    Renew(Vec<Renewed>),
    Release(Vec<Released>),
}

impl Request {
    pub(super) fn verb(&self) -> Verb {
        match self {
            Self::Claim(..) => Verb::Claim,
            Self::Renew(_) => Verb::Renew,
            Self::Release(_) => Verb::Release,
        }
    }

    pub(super) async fn send(&self, engine: &dyn Engine) -> Reply {
        match self {
            Self::Claim(claim, how) => Reply::Claim(engine.claim(claim, *how).await),
            Self::Renew(holds) => Reply::Renew(engine.renew(holds).await),
            Self::Release(releases) => Reply::Release(engine.release(releases).await),
        }
    }

    /// The answer when the network failed.
    pub(super) fn failed(&self, fault: Fault, why: &str) -> Reply {
        let error = || EngineError::new(fault, why);
        match self {
            Self::Claim(..) => Reply::Claim(Err(error())),
            Self::Renew(holds) => Reply::Renew(holds.iter().map(|_| Renewed::Unknown(error())).collect()),
            Self::Release(all) => Reply::Release(all.iter().map(|_| Released::Unknown(error())).collect()),
        }
    }
}
