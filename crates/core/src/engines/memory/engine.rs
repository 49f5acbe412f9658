//! The memory engine: one client of a store.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    shard::Client,
    store::{MemoryStore, REQUEST_LIFE, TTL},
};
use crate::{
    AllAnswer, Answer, BoxFuture, Breaking, Claim, Conversions, Engine, EngineError, Fault, Hold, How, Life,
    MAX_NAMES_AT_ONCE, Mailbox, Memos, Name, Notification, Profile, Release, Released, Renewed, TimeLeft,
    pure::lock_state::Refusal,
};

/// How many tokens a grant carries: the same number as in the file engine.
const TOKENS_PER_GRANT: u32 = 1 + 64;
/// The poll intervals of waiting claims. Notifications are pushed and never lost here except by overflow, and each
/// answer tells the first claims of the queue when a lease runs out, so the poll is only a safety net.
const POLL: std::ops::RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(2);

/// One client of a [`MemoryStore`], as a process is one client of a real server.
///
/// Every verb is done at the first poll of its future. When the engine is dropped, its holds stay until their leases
/// end, and its queue entries are skipped, as for a killed process.
pub struct MemoryEngine {
    pub(super) store: Arc<MemoryStore>,
    pub(super) mailbox: Arc<Mailbox>,
    profile: Profile,
}

impl MemoryEngine {
    /// A new client of `store`.
    #[must_use]
    pub fn new(store: Arc<MemoryStore>) -> Self {
        Self { store, mailbox: Arc::default(), profile: profile() }
    }

    fn claim_now(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        let client = self.client();
        let answer =
            self.store.step(&claim.name, |lock_state, step| lock_state.claim(claim, how, &client, step));
        // A claim that asks again while it waits changes nothing.
        let is_changed = match &answer {
            Ok(Answer::Held(_)) => true,
            Ok(Answer::Waiting(_)) => how == How::Create,
            _ => false,
        };
        if is_changed {
            self.store.views.tell(&claim.name);
        }
        answer.map_err(|refusal| refused(&refusal))
    }

    /// Where notifications of this engine's claims go.
    pub(super) fn client(&self) -> Client {
        Arc::downgrade(&self.mailbox)
    }

    fn renew_now(&self, hold: &Hold) -> Renewed {
        let renewed = self
            .store
            .step(&hold.name, |lock_state, step| lock_state.renew(hold.id, hold.token, hold.ttl, step));
        match renewed {
            Ok(()) => Renewed::Extended { ttl: Some(hold.ttl), left: TimeLeft::Unknown },
            Err(loss) => Renewed::Lost(loss),
        }
    }

    fn release_now(&self, release: &Release) -> Released {
        let (freed, waiters_to_notify) = self.store.step(&release.name, |lock_state, step| {
            let freed = lock_state.release(release, step);
            // No event marks the end of a minimum hold time: the first waiters have to ask at that end, so they must be
            // told when it is.
            let first_waiters = lock_state.watchers().filter(|_| freed && lock_state.is_in_min_hold());
            (freed, first_waiters.map(|(id, client)| (id, client.clone())).collect::<Vec<_>>())
        });
        for (id, client) in waiters_to_notify {
            if let Some(client) = client.upgrade() {
                client.push(Notification::Recheck { name: release.name.clone(), id });
            }
        }
        self.store.followers.notify(&release.name);
        self.store.views.tell(&release.name);
        if freed { Released::Freed } else { Released::NotThere }
    }
}

impl Engine for MemoryEngine {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn group(&self, _: &Name) -> Option<u16> {
        None
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(async move { self.claim_now(claim, how) })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        Box::pin(async move { self.claim_all_now(claims) })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(async move { holds.iter().map(|hold| self.renew_now(hold)).collect() })
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async move { releases.iter().map(|release| self.release_now(release)).collect() })
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(self.mailbox.read())
    }

    fn memos(&self) -> Option<&dyn Memos> {
        Some(self)
    }

    fn conversions(&self) -> Option<&dyn Conversions> {
        Some(self)
    }
}

impl fmt::Debug for MemoryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEngine").field("store", &self.store).finish_non_exhaustive()
    }
}

/// The error of a claim that the lock state refuses.
pub(super) fn refused(refusal: &Refusal) -> EngineError {
    let fault = match refusal {
        Refusal::Clash { .. } => Fault::Misconfigured,
        Refusal::QueueFull => Fault::Refused,
        Refusal::Impossible(_) => Fault::Internal,
    };
    EngineError::new(fault, refusal.to_string())
}

fn profile() -> Profile {
    Profile {
        life: Life::Lease,
        push: true,
        poll: POLL,
        inline: true,
        tokens: TOKENS_PER_GRANT,
        claims_at_once: MAX_NAMES_AT_ONCE,
        fifo: true,
        supports_min_hold: true,
        breaking: Breaking::Lease,
        no_memos: None,
        no_conversion: None,
        no_handles: None,
        ttl: TTL,
        request_timeout: REQUEST_LIFE,
        request_life: REQUEST_LIFE,
        ..Profile::new("memory")
    }
}
