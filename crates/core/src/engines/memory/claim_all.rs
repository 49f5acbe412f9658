//! Several names in one step: the shards of all names are locked, so no other client sees a part of the step.

use std::sync::MutexGuard;

use super::{
    MemoryEngine,
    engine::refused,
    shard::{Client, Resources, Shard},
    store::MemoryStore,
};
use crate::{AllAnswer, Answer, Claim, EngineError, Hint, How, Name, Release};

impl MemoryEngine {
    pub(super) fn claim_all_now(&self, claims: &[Claim]) -> Result<AllAnswer, EngineError> {
        let client = self.client();
        let answer = self.store.steps(claims.iter().map(|claim| &claim.name), |shards, resources| {
            let mut grants = Vec::with_capacity(claims.len());
            for (index, claim) in claims.iter().enumerate() {
                let hint = match shards.claim(claim, &client, resources) {
                    Ok(Answer::Held(grant)) => {
                        grants.push(grant);
                        continue;
                    }
                    Ok(Answer::Taken(hint) | Answer::Waiting(hint)) => Ok(hint),
                    Ok(Answer::Gone) => Ok(Hint::default()),
                    Err(error) => Err(error),
                };
                // Also those after it, which an earlier request of the same claims may have granted.
                claims.iter().for_each(|claim| shards.undo(claim, resources));
                return match hint {
                    Ok(hint) => AllAnswer::Taken { index, hint },
                    Err(error) => AllAnswer::Refused { index, error },
                };
            }
            AllAnswer::Held(grants)
        });
        if matches!(answer, AllAnswer::Held(_)) {
            claims.iter().for_each(|claim| self.store.views.tell(&claim.name));
        }
        Ok(answer)
    }
}

/// The locked shards of several names.
pub(super) struct LockedShards<'a> {
    pub(super) store: &'a MemoryStore,
    /// With their numbers.
    pub(super) shards: Vec<(usize, MutexGuard<'a, Shard>)>,
}

impl LockedShards<'_> {
    fn claim(
        &mut self,
        claim: &Claim,
        client: &Client,
        resources: &mut Resources<'_>,
    ) -> Result<Answer, EngineError> {
        let claim_step = |shard: &mut Shard| {
            shard.step(&claim.name, resources, |state, step| state.claim(claim, How::Create, client, step))
        };
        self.shard(&claim.name).map_or(Ok(Answer::Gone), claim_step).map_err(|refusal| refused(&refusal))
    }

    /// Ends a claim of this step. Nothing of it is left, and the next grant is told how the hold before it ended.
    fn undo(&mut self, claim: &Claim, resources: &mut Resources<'_>) {
        let release = Release::of_unused(claim);
        if let Some(shard) = self.shard(&claim.name) {
            shard.step(&claim.name, resources, |state, step| state.release(&release, step));
        }
    }

    fn shard(&mut self, name: &Name) -> Option<&mut Shard> {
        let number = self.store.shard_number(name);
        self.shards.iter_mut().find(|(locked, _)| *locked == number).map(|(_, shard)| &mut **shard)
    }
}
