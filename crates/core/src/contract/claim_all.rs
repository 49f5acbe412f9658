//! The answer of an engine to claims of several names in one step: all of them, or none.

use std::future::Future;

use crate::{Claim, EngineError, Fault, Grant, Hint, Release, Released};

/// The answer to [`Engine::claim_all`](crate::Engine::claim_all). No answer tells of some holds only.
#[derive(Debug)]
pub enum AllAnswer {
    /// Every claim holds its name: one grant per claim, in the order of the claims.
    Held(Vec<Grant>),
    /// A name is taken. No claim holds, and nothing of any claim remains on the engine.
    Taken {
        /// The index of the first claim whose name is taken.
        index: usize,
        /// What the engine knows about that claim.
        hint: Hint,
    },
    /// The engine refuses one of the claims. No claim holds, and nothing of any claim remains on the engine.
    Refused {
        /// The index of that claim.
        index: usize,
        /// Why; a [`Fault`](crate::Fault) that says that the claim was certainly not applied.
        error: EngineError,
    },
    /// The engine cannot take these names in one step, for example because of their modes or of a limit of the server.
    /// No claim holds, and nothing of any claim remains on the engine. Core takes one name after another.
    OneByOne,
}

impl AllAnswer {
    /// Returns this answer after `release` has ended the claims, of which something may be on the engine and none was
    /// used.
    ///
    /// # Errors
    /// [`Fault::Unknown`] if it is not certain that every claim has ended.
    ///
    /// # Cancel safety
    /// If the future is dropped, the claims may be on the engine: their release can be repeated.
    pub async fn after_end_of<F>(
        self,
        claims: &[Claim],
        release: impl FnOnce(Vec<Release>) -> F,
    ) -> Result<Self, EngineError>
    where
        F: Future<Output = Vec<Released>>,
    {
        let answers = release(claims.iter().map(Release::of_unused).collect()).await;
        let unknown = answers.into_iter().find_map(|released| match released {
            Released::Unknown(error) => Some(EngineError::new(Fault::Unknown, error.message)),
            Released::Freed | Released::NotThere => None,
        });
        unknown.map_or(Ok(self), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{ClaimId, Mode, Name};

    fn claim(number: u8) -> Claim {
        Claim {
            id: ClaimId([number; 16]),
            name: Name::new(&format!("n{number}")).unwrap(),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(30),
            claim_time: Duration::from_secs(2),
            may_queue: false,
            tokens: 1,
            owner: "tester".into(),
            stops_on_term: false,
        }
    }

    /// R12: as long as one claim may be on the engine, nothing else is answered.
    #[test]
    fn an_answer_is_returned_after_the_certain_end_of_all_claims() {
        let claims = [claim(1), claim(2)];
        let answer_after = |last: Released| {
            let release = async |releases: Vec<Release>| {
                let ids: Vec<ClaimId> = releases.iter().map(|release| release.id).collect();
                assert_eq!(ids, claims.each_ref().map(|claim| claim.id));
                vec![Released::Freed, last]
            };
            pollster::block_on(AllAnswer::OneByOne.after_end_of(&claims, release))
        };
        assert!(matches!(answer_after(Released::NotThere), Ok(AllAnswer::OneByOne)));
        let unknown = Released::Unknown(EngineError::new(Fault::Retry, "no connection"));
        assert_eq!(answer_after(unknown).unwrap_err().fault, Fault::Unknown);
    }
}
