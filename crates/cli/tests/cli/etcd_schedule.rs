//! One run per schedule, as a fleet has it in its cron: every node fires each tick, and one of them runs the job.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use crate::{
    etcd::Site,
    etcd_limits::COARSE,
    tools::{Dir, Running, code, until},
};

const NODES: usize = 5;
const TTL: Duration = Duration::from_secs(3);
const AT_LEAST: Duration = Duration::from_secs(3);

/// Nodes that write down what they run.
struct Fleet {
    site: Site,
    dir: Dir,
}

impl Fleet {
    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn runs(&self) -> Vec<String> {
        fs::read_to_string(self.log()).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// What one node does at a tick.
    fn fire(&self, tick: usize, rest_of_job: &str) -> Running {
        let job = format!("echo {tick} >>'{}'; {rest_of_job}", self.log().display());
        let mut command = self.site.leasehold(&["run", "-n", "-q"]);
        command.args(["--ttl", "3s", "--at-least", "3s", "nightly", "--", "sh", "-c", &job]);
        Running::start(command)
    }

    fn fire_all(&self, tick: usize, rest_of_job: &str) -> Vec<Running> {
        (0..NODES).map(|_| self.fire(tick, rest_of_job)).collect()
    }

    /// A node whose clock is far behind fires the same tick when its job is done already.
    fn fire_late(&self, tick: usize) {
        assert_eq!(code(&self.fire(tick, "true").output()), 75);
    }

    fn until_free(&self) {
        let keys = || self.site.0.command(&["get", "--prefix", "/locks/", "--keys-only"]);
        until("the name is free", || keys().is_empty());
    }

    /// A tick that all goes well with: one runs it, and the name stays taken for its time.
    fn pass(&self, tick: usize) {
        let begin = Instant::now();
        let mut codes: Vec<i32> =
            self.fire_all(tick, "true").into_iter().map(|node| code(&node.output())).collect();
        codes.sort_unstable();
        assert_eq!(codes, [0, 75, 75, 75, 75]);
        let ended = Instant::now();
        self.fire_late(tick);
        self.until_free();
        assert!(begin.elapsed() >= AT_LEAST, "{:?}", begin.elapsed());
        assert!(ended.elapsed() < AT_LEAST + COARSE, "{:?}", ended.elapsed());
    }

    /// A tick whose node dies while it runs the job: nobody keeps the name then but what is left of its lease.
    fn pass_with_a_death(&self, tick: usize) {
        let mut nodes = self.fire_all(tick, "exec sleep 60");
        until("one runs and the others left it", || {
            nodes.iter_mut().map(Running::has_ended).filter(|ended| !ended).count() == 1
                && self.runs().len() == tick
        });
        let at = nodes.iter_mut().position(|node| !node.has_ended()).unwrap();
        let mut runner = nodes.swap_remove(at);
        runner.signal(Signal::SIGKILL);
        let died = Instant::now();
        drop(runner.wait());
        assert!(nodes.into_iter().all(|node| code(&node.output()) == 75));
        self.fire_late(tick);
        self.until_free();
        assert!(died.elapsed() < TTL + COARSE, "{:?}", died.elapsed());
    }
}

#[test]
fn one_node_runs_each_tick_also_after_a_node_died_in_one() {
    let fleet = Fleet { site: Site::new(), dir: Dir::new() };
    fleet.pass(1);
    fleet.pass_with_a_death(2);
    fleet.pass(3);
    fleet.pass_with_a_death(4);
    fleet.pass(5);
    assert_eq!(fleet.runs(), ["1", "2", "3", "4", "5"], "each tick once");
}
