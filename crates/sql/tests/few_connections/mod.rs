//! A server with fewer connections than waiting clients.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use leasehold_core::Locks;

use crate::until::until;

/// Long enough for each of many clients to be granted the lock.
const PATIENCE: Duration = Duration::from_secs(400);
/// The name that every client waits for.
const NAME: &str = "wanted";
/// The holds are renewed after each third of this ttl; the rest is slack for a stalled machine.
const TTL: Duration = Duration::from_secs(9);

/// The server of the test.
pub(crate) trait FewConnections: Sync {
    /// A new client, which has no right to use reserved connections.
    fn client(&self) -> Locks;

    /// Connects as another program.
    fn try_connect(&self) -> Result<(), String>;

    /// Runs a query.
    fn query(&self, query: &str) -> Vec<String>;
}

/// The number of waiting clients.
fn waiting(server: &impl FewConnections) -> usize {
    server.query("SELECT COUNT(*) FROM leasehold_claim WHERE stand = 4")[0].parse().unwrap()
}

/// How many of the waiting clients have no connection. The query recognises them by their claim time, which is longer
/// than that of a listening client.
fn asleep(server: &impl FewConnections) -> usize {
    let query = "SELECT COUNT(*) FROM leasehold_claim WHERE stand = 4 AND claim_time > 2500000";
    server.query(query)[0].parse().unwrap()
}

/// Counts the end of its thread, also by a panic.
struct EndCounter<'a>(&'a AtomicUsize);

impl Drop for EndCounter<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// More clients wait than the server has connections: no client fails, each is granted the lock, and holds stay valid.
/// Once all clients wait, another program can connect at any time.
pub(crate) fn more_wait_than_there_are(server: &impl FewConnections, limit: usize, waiters: usize) {
    let holder = server.client();
    let first = holder.mutex(NAME).blocking().acquire_within(PATIENCE).unwrap();
    let held = holder.mutex("held").ttl(TTL).blocking().acquire_within(PATIENCE).unwrap();
    let (ended, granted, holders) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        // This guard is dropped also when something fails below, so that the threads end.
        let first = first;
        for _ in 0..waiters {
            scope.spawn(|| {
                let _end_counter = EndCounter(&ended);
                let locks = server.client();
                let guard = locks.mutex(NAME).ttl(TTL).blocking().acquire_within(PATIENCE).unwrap();
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two clients hold the lock");
                assert!(guard.check());
                holders.fetch_sub(1, Ordering::SeqCst);
                guard.release_blocking().unwrap();
                granted.fetch_add(1, Ordering::SeqCst);
            });
        }
        until("all clients wait", || waiting(server) == waiters);
        until("most clients wait without a connection", || asleep(server) >= waiters - limit);
        until("their connections are closed", || server.try_connect().is_ok());
        let tries = scope.spawn(|| {
            let mut tries = 0;
            while ended.load(Ordering::SeqCst) < waiters {
                server.try_connect().unwrap_or_else(|refused| panic!("after {tries} tries: {refused}"));
                tries += 1;
                thread::sleep(Duration::from_millis(50));
            }
            tries
        });
        // The holds are renewed while many clients wait.
        thread::sleep(TTL);
        assert!(held.check() && first.check());
        first.release_blocking().unwrap();
        assert!(tries.join().unwrap() > 0);
    });
    assert_eq!(granted.load(Ordering::SeqCst), waiters);
    assert!(held.check());
    held.release_blocking().unwrap();
}
