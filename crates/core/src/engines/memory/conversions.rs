//! Conversions of holds in a store.

use super::engine::MemoryEngine;
use crate::{BoxFuture, Claim, Conversions, EngineError, Hold, Renewed, TimeLeft, Upgraded};

impl Conversions for MemoryEngine {
    fn downgrade<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Renewed> {
        Box::pin(async move {
            let shared = self.store.step(&hold.name, |lock_state, step| {
                lock_state.downgrade(hold.id, hold.token, hold.ttl, step)
            });
            // The hold that wrote the memo is not exclusive any more.
            self.store.followers.notify(&hold.name);
            self.store.views.tell(&hold.name);
            match shared {
                Ok(()) => Renewed::Extended { ttl: Some(hold.ttl), left: TimeLeft::Unknown },
                Err(loss) => Renewed::Lost(loss),
            }
        })
    }

    fn upgrade<'a>(
        &'a self,
        hold: &'a Hold,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<Upgraded, EngineError>> {
        Box::pin(async move {
            let client = self.client();
            let upgraded = self.store.step(&hold.name, |lock_state, step| {
                lock_state.upgrade(hold.id, hold.token, claim, &client, step)
            });
            // The hold that wrote the memo may have ended.
            self.store.followers.notify(&hold.name);
            self.store.views.tell(&hold.name);
            Ok(upgraded)
        })
    }
}
