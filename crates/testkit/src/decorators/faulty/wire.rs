//! Requests in flight. They own their data, so that they outlive their callers.

use leasehold_core::{
    AllAnswer, Answer, Claim, Engine, EngineError, Fault, Hold, How, MemoWrite, Release, Released, Renewed,
    Upgraded, Written,
};

use crate::decorators::{Verb, conversions_of, memos_of};

/// A request that changes state.
#[derive(Clone)]
pub(super) enum Request {
    Claim(Claim, How),
    ClaimAll(Vec<Claim>),
    Renew(Vec<Hold>),
    Release(Vec<Release>),
    Memo(Box<MemoWrite>),
    Downgrade(Box<Hold>),
    Upgrade(Box<(Hold, Claim)>),
}

/// The answer to a request.
pub(super) enum Reply {
    Claim(Result<Answer, EngineError>),
    ClaimAll(Result<AllAnswer, EngineError>),
    Renew(Vec<Renewed>),
    Release(Vec<Released>),
    Memo(Result<Written, EngineError>),
    Downgrade(Renewed),
    Upgrade(Result<Upgraded, EngineError>),
}

impl Request {
    pub(super) fn verb(&self) -> Verb {
        match self {
            Self::Claim(..) | Self::ClaimAll(_) => Verb::Claim,
            Self::Renew(_) => Verb::Renew,
            Self::Release(_) => Verb::Release,
            Self::Memo(_) => Verb::Memo,
            Self::Downgrade(_) | Self::Upgrade(_) => Verb::Convert,
        }
    }

    /// The claims that the request may create.
    pub(super) fn created(&self) -> &[Claim] {
        match self {
            Self::Claim(claim, How::Create) => std::slice::from_ref(claim),
            Self::ClaimAll(claims) => claims,
            Self::Upgrade(upgrade) => std::slice::from_ref(&upgrade.1),
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
            Self::Downgrade(hold) => Reply::Downgrade(conversions_of(engine).downgrade(hold).await),
            Self::Upgrade(upgrade) => {
                let (hold, claim) = &**upgrade;
                Reply::Upgrade(conversions_of(engine).upgrade(hold, claim).await)
            }
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
            Self::Downgrade(_) => Reply::Downgrade(Renewed::Unknown(error())),
            Self::Upgrade(_) => Reply::Upgrade(Err(error())),
        }
    }
}
