//! Which process answers at the address of one server: after a restart or a fail-over it is another process.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::Instant;

use crate::{identity::Identity, lock_mutex, open::RunIdQuery};

/// Which process answered last, and for how long no other process can have taken its place.
pub(crate) struct ServerProcess {
    state: Mutex<ProcessState>,
    /// The trust period, in nanoseconds. An answer that takes no longer than this is prompt; for this long after a
    /// request with a prompt answer was sent, no other server can have replaced this one.
    trust_period: AtomicU64,
    /// When the newest request with a prompt answer was sent, in nanoseconds.
    newest_prompt_sent: AtomicU64,
}

/// What is known of the process that answers for the server.
struct ProcessState {
    /// The run id of the process at the newest connection. `None` before the first connection; `Some(None)` if the user
    /// has no right to read the run id.
    run_id: Option<Option<String>>,
    /// When the process was started, by its own clock in microseconds; `None` if the user has no right to read it.
    started_micros: Option<u64>,
    /// Whether the server was a master at some time.
    was_master: bool,
    /// Whether our holds may be on the server. If none can be there, it does not matter which process answers.
    may_have_holds: bool,
}

impl ServerProcess {
    pub(crate) fn new(may_have_holds: bool) -> Self {
        Self {
            state: Mutex::new(ProcessState {
                run_id: None,
                started_micros: None,
                was_master: false,
                may_have_holds,
            }),
            trust_period: AtomicU64::new(u64::MAX),
            newest_prompt_sent: AtomicU64::new(0),
        }
    }

    /// Records the process to which a new connection leads. Returns true if holds are in doubt: the process is, or may
    /// be, another one than at the last connection, and may lack our holds. It may be a replica that became the master,
    /// or a server that was started from an older copy of its data.
    pub(crate) fn connected(&self, identity: &Identity) -> bool {
        let mut state = lock_mutex(&self.state);
        state.was_master |= identity.role == "master";
        let is_other = match (&state.run_id, &identity.run_id) {
            // The first connection.
            (None, _) => false,
            (Some(Some(old)), Some(new)) => old != new,
            // One of the run ids is unknown.
            _ => true,
        };
        state.run_id = Some(identity.run_id.clone());
        is_other && state.may_have_holds
    }

    /// Records that the process had run for `uptime` seconds when its clock was at `server_micros`.
    pub(crate) fn set_uptime(&self, uptime: Option<u64>, server_micros: u64) {
        // The uptime is rounded down to seconds, so this moment may be later than the real start.
        lock_mutex(&self.state).started_micros =
            uptime.map(|seconds| server_micros.saturating_sub(seconds.saturating_mul(1_000_000)));
    }

    /// The run id of the newest connection, and when that process was started, by its own clock in microseconds.
    pub(crate) fn run_id_and_start(&self) -> Option<(String, u64)> {
        let state = lock_mutex(&self.state);
        state.run_id.clone().flatten().zip(state.started_micros)
    }

    /// Records that our holds may be on the server from now on.
    pub(crate) fn may_have_holds(&self) {
        lock_mutex(&self.state).may_have_holds = true;
    }

    /// Whether to ask for the run id: no, if the server has already refused it to this user.
    pub(crate) fn asks_for_run(&self) -> RunIdQuery {
        if matches!(lock_mutex(&self.state).run_id, Some(None)) { RunIdQuery::Skip } else { RunIdQuery::Ask }
    }

    /// Whether a connection ever led to a master.
    pub(crate) fn was_master(&self) -> bool {
        lock_mutex(&self.state).was_master
    }

    /// Sets the trust period. A notification proves nothing if it comes later than the trust period after the newest
    /// request with a prompt answer was sent: a server whose process was paused for so long may have been replaced.
    /// When the process runs again, it still executes the requests in its socket, and these requests can grant locks.
    pub(crate) fn set_trust_period(&self, period: Duration) {
        self.trust_period.store(u64::try_from(period.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Records that the server answered at `now` to a request sent at `sent`.
    pub(crate) fn answered(&self, sent: Instant, now: Instant) {
        if now.as_nanos().saturating_sub(sent.as_nanos()) <= self.trust_period.load(Ordering::Relaxed) {
            self.newest_prompt_sent.fetch_max(sent.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Whether no other server can have replaced this one by `now`.
    pub(crate) fn is_trusted(&self, now: Instant) -> bool {
        let since_prompt = now.as_nanos().saturating_sub(self.newest_prompt_sent.load(Ordering::Relaxed));
        since_prompt <= self.trust_period.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn connected(process: &ServerProcess, run_id: Option<&str>) -> bool {
        process.connected(&Identity { run_id: run_id.map(str::to_owned), ..Identity::default() })
    }

    #[test]
    fn a_connection_to_another_process_puts_holds_in_doubt() {
        let process = ServerProcess::new(true);
        assert!(!connected(&process, Some("one")), "nothing was held before");
        assert!(!connected(&process, Some("one")));
        assert!(connected(&process, Some("two")));
        assert!(connected(&process, None), "the run id is unknown");
        assert!(connected(&process, None));
        assert_eq!(process.asks_for_run(), RunIdQuery::Skip);
    }

    #[test]
    fn a_restarted_node_without_slots_puts_no_hold_in_doubt() {
        let process = ServerProcess::new(false);
        assert!(!connected(&process, Some("one")));
        assert!(!connected(&process, Some("two")), "a replica that reports the owners of the slots");
        process.may_have_holds();
        assert!(!connected(&process, Some("two")));
        assert!(connected(&process, Some("three")));
    }

    #[test]
    fn a_server_is_trusted_for_a_while_after_a_prompt_answer() {
        let process = ServerProcess::new(true);
        process.set_trust_period(Duration::from_secs(1));
        assert!(!process.is_trusted(at(2000)), "it has not answered yet");
        process.answered(at(3000), at(3001));
        assert!(process.is_trusted(at(3500)) && process.is_trusted(at(4000)));
        assert!(!process.is_trusted(at(4001)), "it may have been stopped since");
        process.answered(at(4000), at(6000));
        assert!(!process.is_trusted(at(6001)), "it was stopped for 2 s");
        process.answered(at(6100), at(6101));
        assert!(process.is_trusted(at(6200)));
    }
}
