//! One run per tick, as in the cron of a fleet: every node starts the job at each tick, and one of them runs it.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use leasehold_testkit::stopwatch::Stopwatch;

use crate::{
    etcd::Fixture,
    etcd_limits::COARSE,
    tools::{Dir, Running, assert_until, code, until},
};

const NODES: usize = 5;
/// With a margin for a busy machine: the node that runs a job holds the name until all others have found it taken.
const TTL: Duration = Duration::from_secs(5);
const AT_LEAST: Duration = Duration::from_secs(3);

/// Nodes that log what they run.
struct Fleet {
    fixture: Fixture,
    dir: Dir,
}

impl Fleet {
    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn runs(&self) -> Vec<String> {
        fs::read_to_string(self.log()).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// The command of one node at a tick.
    fn fire(&self, job: &str) -> Running {
        let mut command = self.fixture.leasehold(&["run", "-n", "-q"]);
        command.args(["--ttl", "5s", "--at-least", "3s", "nightly", "--", "sh", "-c", job]);
        Running::start(command)
    }

    /// All nodes start, and all but one find the name taken. Returns the one that runs the job until its input ends.
    fn fire_all(&self, tick: usize) -> Running {
        let job = format!("echo {tick} >>'{}'; read line; true", self.log().display());
        let mut nodes: Vec<Running> = (0..NODES).map(|_| self.fire(&job)).collect();
        until("one node runs the job and the others have ended", || {
            nodes.iter_mut().map(Running::has_ended).filter(|ended| !ended).count() == 1
                && self.runs().len() == tick
        });
        let at = nodes.iter_mut().position(|node| !node.has_ended()).unwrap();
        let runner = nodes.swap_remove(at);
        assert!(nodes.into_iter().all(|node| code(&node.output()) == 75));
        runner
    }

    /// A node whose clock is far behind starts the same tick late, while the name is still taken: until `time` after
    /// `begin`.
    fn fire_late(&self, begin: Instant, time: Duration) {
        assert_until(begin, time, code(&self.fire("true").output()) == 75, "it does not run again");
    }

    fn until_free(&self) {
        let keys = || self.fixture.server.command(&["get", "--prefix", "/locks/", "--keys-only"]);
        until("the name is free", || keys().is_empty());
    }

    /// A tick without a fault: one node runs the job, and the name stays taken for `AT_LEAST`.
    fn pass(&self, tick: usize) {
        let begin = Instant::now();
        assert_eq!(code(&self.fire_all(tick).output()), 0);
        let ended = Stopwatch::start();
        self.fire_late(begin, AT_LEAST);
        self.until_free();
        assert!(begin.elapsed() >= AT_LEAST, "{:?}", begin.elapsed());
        ended.assert_within(AT_LEAST + COARSE, "the name is free");
    }

    /// A tick whose node dies while it runs the job: the name stays taken for the rest of the lease.
    fn pass_with_a_death(&self, tick: usize) {
        let mut runner = self.fire_all(tick);
        let (begin, died) = (Instant::now(), Stopwatch::start());
        runner.kill_whole();
        drop(runner.wait());
        // The lease is renewed after each third of its ttl, so at least this much is left.
        self.fire_late(begin, TTL / 3);
        self.until_free();
        died.assert_within(TTL + COARSE, "the name is free");
    }
}

#[test]
fn one_node_runs_each_tick_even_if_a_node_dies() {
    let fleet = Fleet { fixture: Fixture::new(), dir: Dir::new() };
    fleet.pass(1);
    fleet.pass_with_a_death(2);
    fleet.pass(3);
    fleet.pass_with_a_death(4);
    fleet.pass(5);
    assert_eq!(fleet.runs(), ["1", "2", "3", "4", "5"], "each tick once");
}
