//! Conversions of holds, each in a transaction.

use leasehold_core::{BoxFuture, Claim, Conversions, EngineError, Hold, Renewed, TimeLeft, Upgraded};

use crate::{
    client::{Client, engine_result, lock_mutex, reply_mismatch},
    step::{Reply, Verb},
};

impl Conversions for Client {
    fn downgrade<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Renewed> {
        Box::pin(async move {
            let verb = Verb::Downgrade { id: hold.id, token: hold.token, ttl: hold.ttl };
            match self.apply(&hold.name, &verb).await {
                Ok(Reply::Renewed(Ok(()))) => {
                    Renewed::Extended { ttl: Some(hold.ttl), left: TimeLeft::Unknown }
                }
                Ok(Reply::Renewed(Err(loss))) => {
                    lock_mutex(&self.held).remove(&hold.id);
                    Renewed::Lost(loss)
                }
                Ok(_) => Renewed::Unknown(reply_mismatch()),
                Err(failed) => Renewed::Unknown(failed.into()),
            }
        })
    }

    fn upgrade<'a>(
        &'a self,
        hold: &'a Hold,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<Upgraded, EngineError>> {
        Box::pin(async move {
            let now = self.now();
            if self.in_flight.is_released(claim.id, now) {
                return Ok(Upgraded::Taken);
            }
            let in_flight = self.start_claim(claim.id, now);
            let (id, token) = (hold.id, hold.token);
            let verb = Verb::Upgrade { id, token, claim: claim.clone(), client: self.id };
            let reply = engine_result(self.apply(&hold.name, &verb).await)?;
            in_flight.complete();
            let Reply::Upgraded(upgraded) = reply else { return Err(reply_mismatch()) };
            match upgraded {
                Upgraded::Held(_) => {
                    lock_mutex(&self.held).remove(&id);
                    self.note_released(id, self.now());
                    self.note_held(claim.id);
                }
                Upgraded::Taken => {}
                Upgraded::Lost(_) => drop(lock_mutex(&self.held).remove(&id)),
            }
            Ok(upgraded)
        })
    }
}
