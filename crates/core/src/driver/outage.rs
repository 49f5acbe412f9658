//! Since when the engine is known to be away, and requests that fail at once because of that.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    EngineError, Error, ErrorKind, Instant, Name, driver::keeper::KeeperJob, driver::shared::Shared,
};

/// While the engine is away and requests fail at once, it is asked at most this often whether it is back.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);
/// How often a waiting request that fails with an outage looks whether there is one.
pub(crate) const OUTAGE_CHECK: Duration = Duration::from_millis(250);

/// What a request does while the engine cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenUnreachable {
    /// It waits until the engine is back, or until its time limit. Only an engine that was never reached is given up
    /// after `connect_timeout`.
    #[default]
    Wait,
    /// It fails at once with [`is_unreachable`](Error::is_unreachable) while the engine is known to be away: from the
    /// first request of this `Locks` that the engine did not answer until the first that it answers. Requests that
    /// wait in the queue fail then, too. Holds are kept and renewed as long as their leases last.
    Fail,
}

/// What is known of an outage of the engine.
#[derive(Default)]
pub(crate) struct Outage {
    /// The first failure since the last answer, in nanoseconds; 0 if the last request was answered.
    since: AtomicU64,
    /// The message of the last failure.
    last_error: Mutex<String>,
    /// A question whether the engine is back is being asked.
    is_probing: AtomicBool,
    /// When the last such question was asked, in nanoseconds.
    probed_at: AtomicU64,
}

impl Outage {
    /// Records that the engine answered a request.
    pub(crate) fn note_answer(&self) {
        if self.since.load(Ordering::Relaxed) != 0 {
            self.since.store(0, Ordering::Relaxed);
        }
    }

    /// Records that the engine did not answer a request, or could not be reached for it.
    pub(crate) fn note_failure(&self, now: Instant, error: &EngineError) {
        let _ = self.since.compare_exchange(0, now.as_nanos().max(1), Ordering::Relaxed, Ordering::Relaxed);
        let mut last_error = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        if *last_error != error.message {
            last_error.clone_from(&error.message);
        }
    }

    /// Since when the engine is known to be away; `None` if it is not.
    fn since(&self) -> Option<Instant> {
        match self.since.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }
}

/// A question whether the engine is back; another one may be asked when this value is dropped.
struct Probe(Arc<Shared>);

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.outage.is_probing.store(false, Ordering::Release);
    }
}

impl Shared {
    /// Records what the outcome of a request says about an outage.
    pub(crate) fn note_outcome<T>(&self, outcome: &Result<T, EngineError>) {
        match outcome {
            Err(error) if error.fault.is_outage() => self.outage.note_failure(self.now(), error),
            _ => self.outage.note_answer(),
        }
    }

    /// If requests fail at once during an outage, and the engine is known to be away: the error for a request for
    /// `name`. Then this function also asks the engine, in the background, whether it is back.
    pub(crate) fn outage_error(self: &Arc<Self>, name: &Name) -> Option<Error> {
        if self.when_unreachable == WhenUnreachable::Wait {
            return None;
        }
        let since = self.outage.since()?;
        let now = self.now();
        self.probe_if_due(now);
        let (engine, name, seconds) = (self.profile.engine, name.as_str(), now.since(since).as_secs_f64());
        let last_error = self.outage.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        let message =
            format!("{engine} lock {name:?}: the engine is unreachable for {seconds:.1} s: {last_error}");
        Some(Error::new(ErrorKind::Unreachable, message))
    }

    /// Asks the engine whether it is back, unless it was asked a moment ago.
    fn probe_if_due(self: &Arc<Self>, now: Instant) {
        let probed_at = Instant::from_nanos(self.outage.probed_at.load(Ordering::Relaxed));
        if now.since(probed_at) < PROBE_INTERVAL || self.outage.is_probing.swap(true, Ordering::AcqRel) {
            return;
        }
        self.outage.probed_at.store(now.as_nanos(), Ordering::Relaxed);
        let probe = Probe(Arc::clone(self));
        self.queue_job(KeeperJob::Spawn(Box::pin(async move {
            let shared = &probe.0;
            let answer = shared.with_timeout(shared.profile.request_timeout, shared.engine.ping()).await;
            if let Some(Ok(())) = answer {
                shared.outage.note_answer();
            }
        })));
    }
}
