//! Several names in one step, as an oracle sends them: the same claims to both systems, and the answers without the
//! parts in which two correct engines may differ.

use leasehold_core::{
    AllAnswer, Answer, Claim, ClaimId, Engine, Fault, Grant, Hold, How, Mode, Name, Previous, Release,
    Released, Token, Upgraded,
};

/// The sets of one system: how many were claimed, and which of their holds are left.
#[derive(Debug, Default)]
pub struct Sets {
    count: u32,
    held: Vec<(Claim, Token)>,
}

/// The answer to claims of several names.
#[derive(Debug, PartialEq, Eq)]
pub enum SetReply {
    /// All claims hold: the number of tokens of each grant, and how the previous hold ended.
    Held(Vec<(u32, Previous)>),
    /// The claim with this index was not granted, because of so many claims in the queue, among others.
    Taken(usize, Option<u32>),
    /// The claim with this index was refused.
    Refused(usize, Fault),
}

impl SetReply {
    /// The answer without what not all engines report: how the previous holds ended, and who waits.
    #[must_use]
    pub fn without_details(self) -> Self {
        match self {
            Self::Held(grants) => {
                Self::Held(grants.into_iter().map(|(tokens, _)| (tokens, Previous::Clean)).collect())
            }
            Self::Taken(index, _) => Self::Taken(index, None),
            refused @ Self::Refused(..) => refused,
        }
    }
}

/// Whether the engine can take these names in one step.
#[must_use]
pub fn takes_sets(engine: &dyn Engine, names: &[Name]) -> bool {
    engine.profile().claims_at_once >= names.len()
        && names.iter().all(|name| engine.group(name) == engine.group(&names[0]))
}

impl Sets {
    /// Claims these names, each in its mode, by new claims like `pattern`. If they are granted, repeats the request.
    ///
    /// # Panics
    /// If the engine reports an error, or if the repeated request has another answer.
    pub async fn claim(
        &mut self,
        engine: &dyn Engine,
        names: &[Name],
        modes: &[Mode],
        pattern: &Claim,
    ) -> SetReply {
        self.count += 1;
        let claim = |(number, (name, &mode)): (usize, (&Name, &Mode))| {
            // Other claims of the same run have smaller numbers.
            let number = u128::from(self.count) << 32 | number as u128;
            let run = u128::from_be_bytes(pattern.id.0) >> 64 << 64;
            let id = ClaimId((run | number).to_be_bytes());
            Claim { id, name: name.clone(), mode, may_queue: false, ..pattern.clone() }
        };
        let claims: Vec<Claim> = names.iter().zip(modes).enumerate().map(claim).collect();
        match engine.claim_all(&claims).await {
            Ok(AllAnswer::Held(grants)) => {
                let tokens = |grants: &[Grant]| grants.iter().map(|grant| grant.token).collect::<Vec<_>>();
                match engine.claim_all(&claims).await {
                    Ok(AllAnswer::Held(again)) => assert_eq!(tokens(&grants), tokens(&again)),
                    other => panic!("granted, then {other:?}"),
                }
                let reply = grants.iter().map(|grant| (grant.tokens, grant.previous)).collect();
                self.held.extend(claims.into_iter().zip(tokens(&grants)));
                SetReply::Held(reply)
            }
            Ok(AllAnswer::Taken { index, hint }) => SetReply::Taken(index, hint.ahead),
            Ok(AllAnswer::Refused { index, error }) => SetReply::Refused(index, error.fault),
            Ok(AllAnswer::OneByOne) => self.claim_one_by_one(engine, claims).await,
            Err(error) => panic!("a claim of several names: {error:?}"),
        }
    }

    /// Claims one name after another, as core does. If one is not granted, releases those that were.
    async fn claim_one_by_one(&mut self, engine: &dyn Engine, claims: Vec<Claim>) -> SetReply {
        let mut grants = Vec::new();
        for (index, claim) in claims.iter().enumerate() {
            let reply = match engine.claim(claim, How::Create).await {
                Ok(Answer::Held(grant)) => {
                    grants.push(grant);
                    continue;
                }
                Ok(Answer::Taken(hint)) => SetReply::Taken(index, hint.ahead),
                Ok(other) => panic!("a claim that does not wait: {other:?}"),
                Err(error) => SetReply::Refused(index, error.fault),
            };
            let releases: Vec<Release> = claims[..index].iter().map(Release::of_unused).collect();
            let released = engine.release(&releases).await;
            assert!(released.iter().all(|released| matches!(released, Released::Freed)), "{released:?}");
            return reply;
        }
        let tokens = grants.iter().map(|grant| grant.token);
        self.held.extend(claims.into_iter().zip(tokens));
        SetReply::Held(grants.iter().map(|grant| (grant.tokens, grant.previous)).collect())
    }

    /// Upgrades a hold by a new claim like `pattern`: whether it was upgraded; `None` if the hold was lost.
    ///
    /// # Panics
    /// If the engine reports an error, or if a repeated upgrade has another answer.
    pub async fn upgrade(&mut self, engine: &dyn Engine, hold: &Hold, pattern: &Claim) -> Option<bool> {
        self.count += 1;
        let run = u128::from_be_bytes(pattern.id.0) >> 64 << 64;
        let id = ClaimId((run | u128::from(self.count) << 32).to_be_bytes());
        let claim = Claim { id, mode: Mode::Exclusive, may_queue: false, ..pattern.clone() };
        let conversions = engine.conversions().expect("the engine converts holds");
        let upgrade = async || conversions.upgrade(hold, &claim).await.expect("an upgrade");
        match upgrade().await {
            Upgraded::Held(grant) => {
                match upgrade().await {
                    Upgraded::Held(again) => assert_eq!(grant.token, again.token),
                    other => panic!("upgraded, then {other:?}"),
                }
                assert!(grant.token.number > hold.token.number, "tokens grow");
                self.held.push((claim, grant.token));
                Some(true)
            }
            Upgraded::Taken => Some(false),
            Upgraded::Lost(_) => None,
        }
    }

    /// Releases one of the holds; `None` if there is none, otherwise whether it was there.
    ///
    /// # Panics
    /// If the engine reports an error.
    pub async fn release_one(&mut self, engine: &dyn Engine, number: usize) -> Option<bool> {
        if self.held.is_empty() {
            return None;
        }
        let (claim, token) = self.held.swap_remove(number % self.held.len());
        let Claim { id, name, mode, .. } = claim;
        let release = Release { id, name, mode, token: Some(token), ended: Previous::Clean, min_hold: None };
        match engine.release(&[release]).await.pop() {
            Some(Released::Freed) => Some(true),
            Some(Released::NotThere) => Some(false),
            other => panic!("the release of a hold: {other:?}"),
        }
    }
}
