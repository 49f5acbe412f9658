//! What clients and the server say to each other.

use std::time::Duration;

use leasehold_core::{
    Answer, Broken, Claim, ClaimId, EngineError, Grant, Hold, How, Name, Release, Released, Renewed,
};

use crate::scheduler::Group;

/// What a client asks.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// What its clock says; the first request of a connection.
    Hello,
    /// What its clock says.
    Time,
    /// A claim.
    Claim(Claim, How),
    /// Renewals.
    Renew(Vec<Hold>),
    /// Releases; with each, whether it must leave a tombstone.
    Release(Vec<(Release, bool)>),
    /// The end of a hold that carries this token.
    Break(Name, u64, bool),
}

/// What the server answers.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Nothing but its time.
    Time,
    /// To a claim.
    Claim(Result<Answer, EngineError>),
    /// To renewals.
    Renew(Vec<Renewed>),
    /// To releases.
    Release(Vec<Released>),
    /// To a break.
    Break(Broken),
}

impl Reply {
    /// Those of the claims that the request [extends](Request::extends) whose leases did begin anew.
    pub(crate) fn extended(&self, claims: Vec<ClaimId>) -> impl Iterator<Item = ClaimId> {
        let is_extended = |at: usize| match self {
            Self::Claim(answer) => matches!(answer, Ok(Answer::Held(_))),
            Self::Renew(renewed) => matches!(renewed[at], Renewed::Kept { .. }),
            _ => false,
        };
        claims.into_iter().enumerate().filter(move |(at, _)| is_extended(*at)).map(|(_, claim)| claim)
    }
}

/// What the server tells unasked.
#[derive(Clone, Debug)]
pub(crate) enum Notification {
    /// A waiting claim was granted, when its clock said `at`.
    Granted { name: Name, id: ClaimId, grant: Grant, at: Duration },
    /// A hold was broken.
    Broken { name: Name, id: ClaimId },
}

/// News, and for whom.
#[derive(Clone, Debug)]
pub(crate) struct Mail {
    /// For whom.
    pub(crate) to: Group,
    /// What.
    pub(crate) notification: Notification,
}

impl Request {
    /// The claims whose leases it asks to begin anew.
    pub(crate) fn extends(&self) -> Vec<ClaimId> {
        match self {
            Self::Claim(claim, _) => vec![claim.id],
            Self::Renew(holds) => holds.iter().map(|hold| hold.id).collect(),
            _ => Vec::new(),
        }
    }

    /// The verb, for traces.
    #[must_use]
    pub(crate) const fn verb(&self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Time => "time",
            Self::Claim(_, How::Create) => "claim",
            Self::Claim(_, How::Ask) => "ask",
            Self::Renew(_) => "renew",
            Self::Release(_) => "release",
            Self::Break(..) => "break",
        }
    }
}
