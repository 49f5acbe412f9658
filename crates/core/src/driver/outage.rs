//! Outages of the engine, and requests that fail at once because of one.
//!
//! A request that the engine does not answer is no proof of an outage: one row may be locked, one script may hang. So
//! the keeper then asks the engine for a sign of life, again and again until the engine gives one. The engine counts as
//! unreachable from the first such question that fails until the first that is answered.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{EngineError, Error, ErrorKind, Fault, Instant, Name, driver::shared::Shared};

/// The pause between two questions for a sign of life.
const PROBE_PAUSE: Duration = Duration::from_millis(200);
/// How long the engine may take for a sign of life.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// What a request does while the engine cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenUnreachable {
    /// A request waits until the engine answers again, or until the time limit of the request. Only an engine that was
    /// never reached is given up after `connect_timeout`.
    #[default]
    Wait,
    /// A request fails with [`is_unreachable`](Error::is_unreachable) as soon as the engine is known to be unreachable,
    /// and at once while the engine is unreachable. If a request gets no answer, the engine is asked for a sign of life
    /// five times a second: the engine is unreachable from the first such question that fails until the first that is
    /// answered. Requests that wait in the queue fail then, too. Holds are kept and renewed as long as their leases
    /// last.
    ///
    /// Where the names are distributed over several servers (Redis Cluster), no outage of all servers together is
    /// known: a request fails as soon as its own servers do not answer.
    Fail,
}

/// What is known of an outage of the engine.
#[derive(Default)]
pub(crate) struct Outage {
    /// When the first failed request of the outage was answered, in nanoseconds; 0 if there is no outage.
    since: AtomicU64,
    /// The message of the last failed question for a sign of life.
    last_error: Mutex<String>,
    /// A task asks for signs of life.
    is_probing: AtomicBool,
    /// Notified when an outage begins.
    begins: Notify,
}

impl Outage {
    /// Since when the engine is unreachable; `None` if it is not.
    fn since(&self) -> Option<Instant> {
        match self.since.load(Ordering::Acquire) {
            0 => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }
}

/// The task that asks for signs of life. Another one may start when this value is dropped.
struct Probe(Arc<Shared>);

impl Probe {
    /// Asks until the engine answers. `failed_at`: when a request failed.
    async fn run(self, failed_at: Instant) {
        let shared = &self.0;
        while !shared.is_stopping() && !shared.is_closed() {
            let ping = shared.catch_panic(async { shared.engine.ping().await });
            let error = match shared.with_timeout(PROBE_TIMEOUT, ping).await {
                Some(Ok(Err(error))) if error.fault.is_outage() => error,
                None => EngineError::new(Fault::Retry, format!("no sign of life within {PROBE_TIMEOUT:?}")),
                // Any other answer, also a refusal, is a sign of life.
                Some(_) => break,
            };
            *shared.outage.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error.message;
            let since = failed_at.as_nanos().max(1);
            if shared.outage.since.compare_exchange(0, since, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                shared.outage.begins.notify_waiters();
            }
            shared.sleep_until(shared.now().after(PROBE_PAUSE)).await;
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.outage.since.store(0, Ordering::Release);
        self.0.outage.is_probing.store(false, Ordering::Release);
    }
}

impl Shared {
    /// Records that a request for `name` failed. If requests fail during an outage, and the error can mean one, a task
    /// now asks the engine for signs of life.
    pub(crate) fn note_failure(self: &Arc<Self>, name: &Name, error: &EngineError) {
        let is_relevant = self.when_unreachable == WhenUnreachable::Fail && error.fault.is_outage();
        if !is_relevant
            || self.engine.group(name).is_some()
            || self.outage.is_probing.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let probe = Probe(Arc::clone(self));
        self.spawn(probe.run(self.now()));
    }

    /// If requests fail during an outage, and there is one: the error for a request for `name`.
    pub(crate) fn outage_error(&self, name: &Name) -> Option<Error> {
        if self.when_unreachable == WhenUnreachable::Wait {
            return None;
        }
        let seconds = self.now().since(self.outage.since()?).as_secs_f64();
        let last_error = self.outage.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        let since = if seconds < 0.1 { String::new() } else { format!(" for {seconds:.1} s") };
        Some(self.unreachable_error(name, &format!("the engine is unreachable{since}: {last_error}")))
    }

    /// As [`outage_error`](Self::outage_error), after the request for `name` itself failed with `error`.
    pub(crate) fn outage_error_after(&self, name: &Name, error: &EngineError) -> Option<Error> {
        let fails_alone = self.when_unreachable == WhenUnreachable::Fail
            && error.fault.is_outage()
            && self.engine.group(name).is_some();
        if fails_alone {
            return Some(
                self.unreachable_error(name, &format!("its servers are unreachable: {}", error.message)),
            );
        }
        self.outage_error(name)
    }

    fn unreachable_error(&self, name: &Name, why: &str) -> Error {
        let (engine, name) = (self.profile.engine, name.as_str());
        Error::new(ErrorKind::Unreachable, format!("{engine} lock {name:?}: {why}"))
    }

    /// Sleeps until `at`. Returns earlier with the error for a request for `name` if requests fail during an outage,
    /// and there is one.
    pub(crate) async fn sleep_unless_outage(&self, at: Instant, name: &Name) -> Option<Error> {
        if self.when_unreachable == WhenUnreachable::Wait {
            self.sleep_until(at).await;
            return None;
        }
        let mut begins = std::pin::pin!(self.outage.begins.notified());
        // Enabled before the state is read, so that no begin of an outage is missed.
        begins.as_mut().enable();
        if let Some(error) = self.outage_error(name) {
            return Some(error);
        }
        tokio::select! {
            biased;
            () = begins => self.outage_error(name),
            () = self.sleep_until(at) => None,
        }
    }
}
