//! Maintenance: the background upkeep of a client of a server, in rounds as long as the client exists. It also ends
//! claims that sent no request in time, and retries this until it succeeds.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    BoxFuture, ClaimId, Clock, EngineError, Instant, Mailbox, Notification, REQUEST_TIMEOUT,
    client::runtime::{sleep, spawn, within},
    driver::tasks::run_with_restarts,
};

/// The longest sleep before the clock is read again: timers stop during a suspension of the machine, the clock does
/// not.
pub const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// The shortest sleep: actions that are due within it are done together.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);
/// The pause between two tries to end a claim.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// A client that needs background upkeep.
pub trait Maintain: Send + Sync + 'static {
    /// One round of the upkeep: does all that is due at `now`, and returns when the next round is due.
    fn round(self: &Arc<Self>, now: Instant) -> Instant;

    /// The mailbox for the engine's notifications.
    fn mailbox(&self) -> &Mailbox;

    /// Ends a claim that sent no request in time.
    fn end_overdue(&self, id: ClaimId) -> BoxFuture<'_, Result<(), EngineError>>;
}

/// Begins the maintenance of a client, which ends with the client. `due_earlier` is notified when something becomes due
/// earlier than the time that the last round returned. After a round that panicked, all claims are asked for again.
pub fn maintain<C: Maintain>(client: Weak<C>, clock: Arc<dyn Clock>, due_earlier: Arc<Notify>) {
    let start = {
        let client = Weak::clone(&client);
        move || run_rounds(Weak::clone(&client), Arc::clone(&clock), Arc::clone(&due_earlier))
    };
    let after_panic = move || {
        if let Some(client) = client.upgrade() {
            client.mailbox().push(Notification::AskAll);
        }
    };
    spawn(run_with_restarts("maintenance", start, after_panic, sleep));
}

/// Runs rounds of the upkeep until the client is gone.
async fn run_rounds<C: Maintain>(client: Weak<C>, clock: Arc<dyn Clock>, due_earlier: Arc<Notify>) {
    loop {
        let notified = due_earlier.notified();
        let pause = {
            let Some(client) = client.upgrade() else { return };
            let now = clock.now();
            client.round(now).since(now).clamp(SHORTEST_SLEEP, LONGEST_SLEEP)
        };
        tokio::select! {
            () = notified => {}
            () = sleep(pause) => {}
        }
    }
}

/// Ends claims that sent no request in time: each in its own task, which retries until the claim is ended or the client
/// is gone.
pub fn end_claims<C: Maintain>(client: &Arc<C>, overdue: Vec<ClaimId>) {
    for id in overdue {
        let client = Arc::downgrade(client);
        let start = move || end_claim(Weak::clone(&client), id);
        spawn(run_with_restarts("end of a claim", start, || (), sleep));
    }
}

/// Calls `end_overdue` until it succeeds or the client is gone.
async fn end_claim<C: Maintain>(client: Weak<C>, id: ClaimId) {
    while let Some(client) = client.upgrade()
        && !matches!(within(REQUEST_TIMEOUT, client.end_overdue(id)).await, Some(Ok(())))
    {
        // The client may end while this sleeps.
        drop(client);
        tracing::debug!(%id, "a claim that sent no request in time is not ended yet");
        sleep(RETRY_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicU64, Ordering},
    };

    use super::*;
    use crate::Fault;

    /// A client that counts its rounds and the attempts to end a claim. The third round and the third attempt panic.
    #[derive(Default)]
    struct Client {
        mailbox: Mailbox,
        rounds: AtomicU64,
        end_attempts: AtomicU64,
    }

    /// A stopped clock.
    struct StoppedClock;

    impl Clock for StoppedClock {
        fn now(&self) -> Instant {
            Instant::from_nanos(0)
        }
    }

    impl Maintain for Client {
        fn round(self: &Arc<Self>, now: Instant) -> Instant {
            let round = self.rounds.fetch_add(1, Ordering::Relaxed);
            assert_ne!(round, 2, "a bug");
            now.after(Duration::from_secs(60))
        }

        fn mailbox(&self) -> &Mailbox {
            &self.mailbox
        }

        fn end_overdue(&self, _: ClaimId) -> BoxFuture<'_, Result<(), EngineError>> {
            Box::pin(async {
                match self.end_attempts.fetch_add(1, Ordering::Relaxed) {
                    0 => Err(EngineError::new(Fault::Retry, "not now")),
                    1 => pending().await,
                    2 => panic!("a bug"),
                    _ => Ok(()),
                }
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn maintenance_runs_until_its_client_is_gone_and_a_panic_asks_for_all() {
        let (client, due_earlier): (Arc<Client>, Arc<Notify>) = Default::default();
        let rounds = || client.rounds.load(Ordering::Relaxed);
        maintain(Arc::downgrade(&client), Arc::new(StoppedClock), Arc::clone(&due_earlier));
        sleep(Duration::from_millis(10)).await;
        assert_eq!(rounds(), 1, "the next round is a second later at the latest");
        due_earlier.notify_one();
        sleep(Duration::from_millis(10)).await;
        assert_eq!(rounds(), 2);
        sleep(LONGEST_SLEEP).await;
        assert_eq!(rounds(), 3);
        assert!(matches!(client.mailbox.read().await[..], [Notification::AskAll]));
        sleep(LONGEST_SLEEP).await;
        assert_eq!(rounds(), 4, "it is started again");
        let weak_client = Arc::downgrade(&client);
        drop(client);
        sleep(LONGEST_SLEEP * 2).await;
        assert!(weak_client.upgrade().is_none());
        assert_eq!(Arc::strong_count(&due_earlier), 1, "no task waits");
    }

    #[tokio::test(start_paused = true)]
    async fn ending_a_claim_is_retried_until_it_succeeds() {
        let client: Arc<Client> = Arc::default();
        end_claims(&client, vec![ClaimId([1; 16])]);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(
            client.end_attempts.load(Ordering::Relaxed),
            4,
            "an error, no answer, a panic, and then the end"
        );
    }
}
