//! Requests in flight. They own their data, so that they outlive their callers.

use leasehold_core::{
    AllAnswer, Answer, Claim, Engine, EngineError, Fault, Hold, How, MemoWrite, Release, Released, Renewed,
    Written,
};

use crate::decorators::{Verb, memos_of};

/// A request that changes state.
#[derive(Clone)]
pub(super) enum Request {
    Claim(Claim, How),
    ClaimAll(Vec<Claim>),
    Renew(Vec<Hold>),
    Release(Vec<Release>),
    Memo(Box<MemoWrite>),
}

/// The answer to a request.
pub(super) enum Reply {
    Claim(Result<Answer, EngineError>),
    ClaimAll(Result<AllAnswer, EngineError>),
    Renew(Vec<Renewed>),
    Release(Vec<Released>),
    Memo(Result<Written, EngineError>),
}

impl Request {
    pub(super) fn verb(&self) -> Verb {
        match self {
            Self::Claim(..) | Self::ClaimAll(_) => Verb::Claim,
            Self::Renew(_) => Verb::Renew,
            Self::Release(_) => Verb::Release,
            Self::Memo(_) => Verb::Memo,
        }
    }

    /// The claims that the request may create.
    pub(super) fn created(&self) -> &[Claim] {
        match self {
            Self::Claim(claim, How::Create) => std::slice::from_ref(claim),
            Self::ClaimAll(claims) => claims,
            _ => &[],
        }
    }

    pub(super) async fn send(&self, engine: &dyn Engine) -> Reply {
        match self {
            Self::Claim(claim, how) => Reply::Claim(engine.claim(claim, *how).await),
            Self::ClaimAll(claims) => Reply::ClaimAll(engine.claim_all(claims).await),
            Self::Renew(holds) => Reply::Renew(engine.renew(holds).await),
            Self::Release(releases) => Reply::Release(engine.release(releases).await),
            Self::Memo(write) => Reply::Memo(memos_of(engine).write(write).await),
        }
    }

    /// The answer when the network failed.
    pub(super) fn failed(&self, fault: Fault, why: &str) -> Reply {
        let error = || EngineError::new(fault, why);
        match self {
            Self::Claim(..) => Reply::Claim(Err(error())),
            Self::ClaimAll(_) => Reply::ClaimAll(Err(error())),
            Self::Renew(holds) => Reply::Renew(holds.iter().map(|_| Renewed::Unknown(error())).collect()),
            Self::Release(all) => Reply::Release(all.iter().map(|_| Released::Unknown(error())).collect()),
            Self::Memo(_) => Reply::Memo(Err(error())),
        }
    }
}
