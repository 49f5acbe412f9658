//! Makes and ends the leases of memos.

use std::time::Duration;

use leasehold_core::{ClaimId, EngineError, Fault, Instant};
use tokio::sync::oneshot;
use tonic::Status;

use crate::{
    client::Client,
    engine::REQUEST_TIMEOUT,
    error::classify,
    memo_leases::{
        ALLOWED, LATENESS, LONGEST_SHARED_LEASE, LeaseOfMemo, MemoLease, MemoLeases, longest, new_lease,
    },
    release::REVOKE_LIMIT,
    runtime,
    session::whole_seconds,
    wire::Revoke,
};

/// How often a lease is asked for, for one memo: an answer that took long may leave too little time.
const MAX_ATTEMPTS: usize = 2;

impl MemoLeases {
    /// Takes the place for one memo of this claim on a lease that fits, and makes a lease if there is none. `make`
    /// makes one of at least so many seconds, and adds it. Returns the granted time.
    async fn take_or_make<F: Future<Output = Result<Duration, EngineError>>>(
        &self,
        (keep, id): (Duration, ClaimId),
        now: impl Fn() -> Instant,
        mut make: impl FnMut(u64) -> F,
    ) -> Result<LeaseOfMemo, EngineError> {
        if let Some(lease) = self.take(now(), keep, id) {
            return Ok(lease);
        }
        let _creation = self.creation.lock().await;
        for _ in 0..MAX_ATTEMPTS {
            if let Some(lease) = self.take(now(), keep, id) {
                return Ok(lease);
            }
            let granted = make(whole_seconds(new_lease(keep))).await?;
            if granted + LATENESS > longest(keep) {
                return Err(too_long(granted));
            }
        }
        self.take(now(), keep, id).ok_or_else(|| {
            EngineError::new(Fault::Retry, "the server took too long to grant a lease for the memo")
        })
    }
}

impl Client {
    /// A lease for a memo of this claim that is written now and kept for `keep`; makes one if none fits.
    pub(crate) async fn lease_for_memo(
        &self,
        keep: Duration,
        id: ClaimId,
    ) -> Result<LeaseOfMemo, EngineError> {
        let make = |seconds| self.make_memo_lease(seconds, id);
        self.memo_leases.take_or_make((keep, id), || self.now(), make).await
    }

    /// Makes a lease for memos. A task of its own does it, so that the lease is known also if this future is dropped.
    async fn make_memo_lease(&self, seconds: u64, id: ClaimId) -> Result<Duration, EngineError> {
        let (sender, made) = oneshot::channel();
        let client = self.weak();
        let asked_at = self.now();
        runtime::spawn(async move {
            let Some(client) = client.upgrade() else { return };
            let granted = runtime::within(REQUEST_TIMEOUT, client.create_lease(seconds)).await;
            let granted = granted.unwrap_or_else(|| Err(no_answer()));
            let granted = granted.map(|(lease, ttl)| {
                let hold = (ttl > LONGEST_SHARED_LEASE).then_some(id);
                let answered_at = client.now();
                client.memo_leases.add(MemoLease { id: lease, asked_at, answered_at, ttl, hold, memos: 0 });
                ttl
            });
            let is_abandoned = sender.send(granted).is_err();
            if is_abandoned && client.claims().get(id).is_none() {
                client.end_unused_memo_leases(id).await;
            }
        });
        made.await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Revokes the leases of this hold on which no memo can be.
    pub(crate) async fn end_unused_memo_leases(&self, hold: ClaimId) {
        for lease in self.memo_leases.take_unused(hold) {
            self.revoke_memo_lease(lease).await;
        }
    }

    /// Revokes a lease that has no memo any more, and on which nobody can write one.
    pub(crate) async fn revoke_memo_lease(&self, id: i64) {
        self.memo_leases.forget(id);
        // If the request is lost, the lease ends by itself.
        let _ = runtime::within(REVOKE_LIMIT, self.ask(Revoke { id })).await;
    }
}

/// The error of a request for a lease whose answer did not come.
fn no_answer() -> EngineError {
    classify(&Status::deadline_exceeded(""))
}

/// The error of a memo that would last too long on the shortest lease of the server.
fn too_long(granted: Duration) -> EngineError {
    let shortest_keep = (granted + LATENESS).saturating_sub(ALLOWED);
    EngineError::new(
        Fault::Misconfigured,
        format!(
            "the server gives no lease shorter than {granted:?}: keep the memo for {shortest_keep:?} or longer"
        ),
    )
}

#[cfg(test)]
mod tests {
    use leasehold_core::MIN_MEMO_KEEP;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const START: Instant = Instant::from_nanos(0);
    const HOLD: ClaimId = ClaimId([1; 16]);

    /// What a server answers whose shortest lease lasts this long, and how often it was asked.
    fn memo_lease_of(
        shortest: Duration,
        keep: Duration,
        delay: Duration,
    ) -> (Result<i64, EngineError>, usize) {
        let leases = MemoLeases::default();
        let now = std::cell::Cell::new(START);
        let asked = std::cell::Cell::new(0);
        let make = |seconds| {
            asked.set(asked.get() + 1);
            assert!(asked.get() < 10, "it asks without end");
            let ttl = shortest.max(Duration::from_secs(seconds));
            let asked_at = now.get();
            now.set(asked_at.after(delay));
            let (answered_at, hold) = (now.get(), None);
            leases.add(MemoLease { id: 7, asked_at, answered_at, ttl, hold, memos: 0 });
            std::future::ready(Ok(ttl))
        };
        let taken = leases.take_or_make((keep, HOLD), || now.get(), make);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(taken) = std::pin::pin!(taken).poll(&mut context) else {
            panic!("nothing waits")
        };
        (taken.map(|lease| lease.id), asked.get())
    }

    #[test]
    fn a_server_whose_shortest_lease_is_too_long_is_not_asked_again_and_again() {
        let shortest = Duration::from_secs(75);
        let (refused, asked) = memo_lease_of(shortest, MIN_MEMO_KEEP, SECOND);
        let error = refused.unwrap_err();
        assert_eq!((error.fault, asked), (Fault::Misconfigured, 1), "{error:?}");
        let message = "the server gives no lease shorter than 75s: keep the memo for 20s or longer";
        assert_eq!(error.message, message);
        let (granted, asked) = memo_lease_of(shortest, Duration::from_secs(20), SECOND);
        assert_eq!((granted.unwrap(), asked), (7, 1), "as the message says");
        let (refused, asked) = memo_lease_of(SECOND, SECOND, Duration::from_secs(10));
        assert_eq!((refused.unwrap_err().fault, asked), (Fault::Retry, MAX_ATTEMPTS), "too slow");
    }
}
