//! The messages between clients and the server.

use std::time::Duration;

use leasehold_core::{
    Answer, Broken, Claim, ClaimId, EngineError, Grant, Hold, How, Name, Release, Released, Renewed,
};

use crate::scheduler::Group;

/// A request of a client.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Asks for the server's clock; the first request of a connection.
    Hello,
    /// Asks for the server's clock.
    Time,
    /// A claim.
    Claim(Claim, How),
    /// Renewals.
    Renew(Vec<Hold>),
    /// Releases. The flag of each says whether the release must leave a tombstone.
    Release(Vec<(Release, bool)>),
    /// Breaks the hold that has this token; the flag says whether by force.
    Break(Name, u64, bool),
}

/// An answer of the server.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Only the server's clock.
    Time,
    /// The answer to a claim.
    Claim(Result<Answer, EngineError>),
    /// The answers to renewals.
    Renew(Vec<Renewed>),
    /// The answers to releases.
    Release(Vec<Released>),
    /// The answer to a break.
    Break(Broken),
}

impl Reply {
    /// Of these claims, those whose leases begin anew with this reply. The caller must pass the claims that the request
    /// [would extend](Request::extends), in the same order.
    pub(crate) fn extended(&self, claims: Vec<ClaimId>) -> impl Iterator<Item = ClaimId> {
        let is_extended = |at: usize| match self {
            Self::Claim(answer) => matches!(answer, Ok(Answer::Held(_))),
            Self::Renew(renewed) => matches!(renewed[at], Renewed::Extended { .. }),
            _ => false,
        };
        claims.into_iter().enumerate().filter(move |(at, _)| is_extended(*at)).map(|(_, claim)| claim)
    }
}

/// A message that the server sends without a request of the recipient.
#[derive(Clone, Debug)]
pub(crate) enum Notification {
    /// A waiting claim was granted when the server's clock read `at`.
    Granted { name: Name, id: ClaimId, grant: Grant, at: Duration },
    /// A hold was broken.
    Broken { name: Name, id: ClaimId },
}

/// A notification with its recipient.
#[derive(Clone, Debug)]
pub(crate) struct Mail {
    /// The recipient.
    pub(crate) to: Group,
    /// The notification.
    pub(crate) notification: Notification,
}

impl Request {
    /// The claims whose leases begin anew if the request succeeds.
    pub(crate) fn extends(&self) -> Vec<ClaimId> {
        match self {
            Self::Claim(claim, _) => vec![claim.id],
            Self::Renew(holds) => holds.iter().map(|hold| hold.id).collect(),
            _ => Vec::new(),
        }
    }

    /// The name of the verb, for traces.
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
