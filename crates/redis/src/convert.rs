//! Conversions of holds: one script makes an exclusive hold shared, one makes a shared hold exclusive.

use leasehold_core::{
    Answer, BoxFuture, Claim, Conversions, EngineError, Fault, Hold, How, Loss, Renewed, Upgraded,
};

use crate::{
    RedisEngine,
    engine::read_answer,
    error::is_foreign_type,
    holds::{answer_of, read_renewed},
    reach::Route,
    reply::unreadable,
    scripts::Script,
};

impl RedisEngine {
    async fn downgrade_now(&self, hold: &Hold) -> Result<Renewed, EngineError> {
        let slot = self.keys(&hold.name)?.slot;
        let item = |_: &Route| Ok([self.renewal_item(hold)?].into());
        let word = answer_of(self.reach.run(slot, Script::Downgrade, item).await?)?;
        let renewed = read_renewed(&word, hold);
        if matches!(renewed, Renewed::Extended { .. }) && self.followers.ended_by_conversion(hold.id) {
            self.notify_followers(&hold.name).await;
        }
        Ok(renewed)
    }

    async fn upgrade_now(&self, hold: &Hold, claim: &Claim) -> Result<Upgraded, EngineError> {
        let keys = self.keys(&hold.name)?;
        if self.in_flight.is_released(claim.id, self.client.clock.now()) {
            return Ok(Upgraded::Taken);
        }
        let mut request = self.reach.request(keys.slot);
        let (route, reply) = loop {
            let route = request.route().await?;
            let (is_listening, channel) = (false, route.channel(&self.client).await?);
            let item = self.claim_item(&keys, claim, How::Create, is_listening, &channel)?;
            let item = item.grant(hold.id, Some(hold.token));
            let in_flight = self.in_flight.start(claim.id, route.conn.number, self.client.clock.now());
            match route.run(Script::Upgrade, [item].into()).await {
                Ok(reply) => {
                    in_flight.complete();
                    break (route, answer_of(reply)?);
                }
                // The request in flight counts as unanswered.
                Err(refused) if refused.is_unknown() => return Err(refused.into()),
                Err(refused) => {
                    in_flight.complete();
                    request.retry(refused).await?;
                }
            }
        };
        let upgraded = self.read_upgraded(claim, &reply)?;
        if matches!(upgraded, Upgraded::Held(_)) {
            if self.followers.ended_by_conversion(hold.id) {
                self.notify_followers(&hold.name).await;
            }
            // Without the replicas, a fail-over could bring back the shared hold. Core repeats the request.
            let replicated = route.conn.wait_for_replicas(route.destination).await;
            replicated.map_err(|error| EngineError::new(Fault::Unknown, error.message))?;
        }
        Ok(upgraded)
    }

    /// Reads the answer of `lua/upgrade.lua`.
    fn read_upgraded(&self, claim: &Claim, reply: &str) -> Result<Upgraded, EngineError> {
        Ok(match reply {
            "taken" => Upgraded::Taken,
            "gone" => Upgraded::Lost(Loss::Gone),
            "broken" => Upgraded::Lost(Loss::Broken),
            "overwritten" => Upgraded::Lost(Loss::Overwritten),
            error if is_foreign_type(error) => Upgraded::Lost(Loss::Overwritten),
            reply => match read_answer(claim, reply, self.client.config.layout)? {
                Answer::Held(grant) => Upgraded::Held(grant),
                _ => return Err(unreadable()),
            },
        })
    }
}

impl Conversions for RedisEngine {
    fn downgrade<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Renewed> {
        Box::pin(async move { self.downgrade_now(hold).await.unwrap_or_else(Renewed::Unknown) })
    }

    fn upgrade<'a>(
        &'a self,
        hold: &'a Hold,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<Upgraded, EngineError>> {
        Box::pin(self.upgrade_now(hold, claim))
    }
}
