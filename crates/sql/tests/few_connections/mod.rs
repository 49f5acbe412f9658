//! A server with few connections, and more clients that wait than it has connections.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use leasehold_core::Locks;

use crate::until::until;

/// Long enough that each of many gets its turn.
const PATIENCE: Duration = Duration::from_secs(400);
/// The name that every client waits for.
const NAME: &str = "wanted";
/// Renewed each third of it while many wait; the rest is for a machine that stalls.
const TTL: Duration = Duration::from_secs(9);

/// What the test does with its server.
pub(crate) trait FewConnections: Sync {
    /// A new client, without a right to the connections that are reserved.
    fn client(&self) -> Locks;

    /// Connects as another program does.
    fn connects(&self) -> Result<(), String>;

    /// Answers a query.
    fn query(&self, query: &str) -> Vec<String>;
}

/// How many clients are in line.
fn waiting(server: &impl FewConnections) -> usize {
    server.query("SELECT COUNT(*) FROM leasehold_claim WHERE stand = 4")[0].parse().unwrap()
}

/// How many of them have no connection: a client that listens has less time to answer when it is granted.
fn asleep(server: &impl FewConnections) -> usize {
    let query = "SELECT COUNT(*) FROM leasehold_claim WHERE stand = 4 AND claim_time > 2500000";
    server.query(query)[0].parse().unwrap()
}

/// Counts however its thread ends.
struct Ends<'a>(&'a AtomicUsize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// More clients wait than the server has connections: no client fails, each client gets the lock, and the holds stay. Once all clients
/// are in line, another program can connect at any time.
pub(crate) fn more_wait_than_there_are(server: &impl FewConnections, limit: usize, waiters: usize) {
    let holder = server.client();
    let first = holder.mutex(NAME).blocking().acquire_within(PATIENCE).unwrap();
    let held = holder.mutex("held").ttl(TTL).blocking().acquire_within(PATIENCE).unwrap();
    let (ended, granted, at_once) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        // Whatever fails here, they get their turn.
        let first = first;
        for _ in 0..waiters {
            scope.spawn(|| {
                let _ends = Ends(&ended);
                let locks = server.client();
                let guard = locks.mutex(NAME).ttl(TTL).blocking().acquire_within(PATIENCE).unwrap();
                assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0, "two hold");
                assert!(guard.check());
                at_once.fetch_sub(1, Ordering::SeqCst);
                guard.release_blocking().unwrap();
                granted.fetch_add(1, Ordering::SeqCst);
            });
        }
        until("all clients are in line", || waiting(server) == waiters);
        until("most clients wait without a connection", || asleep(server) >= waiters - limit);
        until("their connections are closed", || server.connects().is_ok());
        let tries = scope.spawn(|| {
            let mut tries = 0;
            while ended.load(Ordering::SeqCst) < waiters {
                server.connects().unwrap_or_else(|refused| panic!("after {tries} tries: {refused}"));
                tries += 1;
                thread::sleep(Duration::from_millis(50));
            }
            tries
        });
        // Renewed for some time while so many wait.
        thread::sleep(TTL);
        assert!(held.check() && first.check());
        first.release_blocking().unwrap();
        assert!(tries.join().unwrap() > 0);
    });
    assert_eq!(granted.load(Ordering::SeqCst), waiters);
    assert!(held.check());
    held.release_blocking().unwrap();
}
