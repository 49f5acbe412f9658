//! The work of each of two processes that acquire one lock in turns; and a wrapper around an engine, which records when
//! a release is sent.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Broken, Claim, Engine, EngineError, Guarantee, Hold, How, Inspect, Keeper,
    Locks, Name, Notification, Profile, Release, Released, Renewed, View,
};

use crate::{Failure, handover::now};

/// How many times a process acquires the lock, how long it holds the lock, and how long it pauses after a release.
pub(crate) struct Turns {
    pub(crate) count: usize,
    /// How long each hold lasts: long enough that the other process waits for the lock when the hold ends.
    pub(crate) hold: Duration,
    /// The pause after a release: long enough that the grant has arrived at the other process.
    pub(crate) pause: Duration,
}

/// Acquires and releases the lock repeatedly. Prints two times for each hold. The first is the time of the grant. The
/// second is the time at which the release was sent if `release_point` is `sent`; otherwise it is the time at which the
/// guard was dropped.
pub(crate) fn take_turns(
    engine: impl Engine,
    keeper: &str,
    release_point: &str,
    turns: Turns,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let timed_engine = Arc::new(TimedEngine { engine, release_sent_at: AtomicU64::new(0) });
    let keeper = if keeper == "on_runtime" { Keeper::on(runtime.handle().clone()) } else { Keeper::thread() };
    let locks = Locks::builder(Arc::clone(&timed_engine) as Arc<dyn Engine>).keeper(keeper).build();
    let mut stamps = Vec::with_capacity(turns.count);
    runtime.block_on(async {
        let request = locks.mutex("handover");
        for _ in 0..turns.count {
            let guard = request.acquire().await?;
            let granted = now()?;
            tokio::time::sleep(turns.hold).await;
            let dropped = now()?;
            drop(guard);
            tokio::time::sleep(turns.pause).await;
            let sent = timed_engine.release_sent_at.load(Relaxed);
            stamps.push((granted, if release_point == "sent" { sent } else { dropped }));
        }
        Ok::<_, Failure>(())
    })?;
    let mut out = std::io::stdout().lock();
    for (granted, released) in stamps {
        writeln!(out, "{granted} {released}")?;
    }
    Ok(())
}

/// An engine that records when a release is sent.
struct TimedEngine<E> {
    engine: E,
    release_sent_at: AtomicU64,
}

impl<E: Engine> Engine for TimedEngine<E> {
    fn profile(&self) -> &Profile {
        self.engine.profile()
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.engine.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        self.engine.claim(claim, how)
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        self.engine.claim_all(claims)
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        self.engine.renew(holds)
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        self.release_sent_at.store(now().unwrap_or(0), Relaxed);
        self.engine.release(releases)
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        self.engine.notifications()
    }

    fn memos(&self) -> Option<&dyn leasehold_core::Memos> {
        self.engine.memos()
    }

    fn conversions(&self) -> Option<&dyn leasehold_core::Conversions> {
        self.engine.conversions()
    }
}

impl<E: Engine> Inspect for TimedEngine<E> {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.engine.ping()
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        self.engine.guarantee()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        self.engine.list(prefix)
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        self.engine.show(name)
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        self.engine.break_hold(name, token, force)
    }
}
