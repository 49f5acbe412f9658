//! Elections with `layout=election`, beside `etcdctl elect`, which uses the election package of etcd's own Go client.

use std::{process::Command, sync::mpsc, thread::spawn, time::Duration};

use leasehold_core::{Engine, How, Leader, LeaderWatch, Leadership, Locks, Name, Released};
use leasehold_testkit::suite;
use nix::sys::signal::Signal;

use crate::{
    go::Program,
    late_requests::make_lease,
    memos,
    rig::{PATIENCE, Rig, release_of},
};

/// The election of the tests, and its name for `etcdctl`.
const NAME: &str = "sched/uler";
const PATH: &str = "/locks/sched%2Fuler";

impl Rig {
    /// A candidate by `etcdctl elect`, which prints its key and value when it leads.
    fn candidate(&self, value: &str) -> Program {
        self.elect(&[PATH, value])
    }

    /// An observer by `etcdctl elect`, which prints the key and the value of each leader.
    fn observer(&self) -> Program {
        self.elect(&["--listen", PATH])
    }

    fn elect(&self, arguments: &[&str]) -> Program {
        let mut command = Command::new("etcdctl");
        let endpoint = format!("127.0.0.1:{}", self.server.port());
        command.env("ETCDCTL_API", "3").args(["--endpoints", &endpoint, "elect"]).args(arguments);
        Program::spawn(&mut command)
    }
}

/// Waits until the program prints this line; skips the lines before it.
fn await_line(program: &mut Program, line: &str) {
    while program.receive() != line {}
}

/// The next leader that a watch reports.
fn next_leader(rig: &Rig, watch: &mut LeaderWatch) -> Leader {
    let next = async {
        loop {
            if let Leadership::Held(leader) = watch.changed().await.unwrap() {
                return leader;
            }
        }
    };
    rig.run(async { tokio::time::timeout(PATIENCE, next).await.expect("a leader is seen") })
}

fn campaign(locks: &Locks, value: &str) -> mpsc::Receiver<leasehold_core::Leading> {
    let (election, (tx, rx)) = (locks.election(NAME).value(value), mpsc::channel());
    spawn(move || tx.send(election.campaign_blocking().unwrap()));
    rx
}

#[test]
fn the_etcd_engine_conforms_with_the_layout_of_elections() {
    let rig = Rig::with_elections();
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 90, "{report}");
}

#[test]
fn etcdctl_observes_the_values_of_our_leader() {
    let rig = Rig::with_elections();
    let mut observer = rig.observer();
    let leading = rig.locks().election(NAME).value("10.0.0.7:80").campaign_blocking().unwrap();
    await_line(&mut observer, "10.0.0.7:80");
    // A value that sorts after every record.
    leading.proclaim_blocking("z 10.0.0.8").unwrap();
    await_line(&mut observer, "z 10.0.0.8");
    let stored = rig.server.command(&["get", PATH, "--prefix", "--print-value-only"]);
    assert_eq!(stored, ["z 10.0.0.8"]);
    assert!(leading.check(), "its own value is no loss");
    leading.resign_blocking().unwrap();
    assert_eq!(rig.server.command(&["get", PATH, "--prefix", "--keys-only"]).concat(), "");
}

#[test]
fn our_observer_sees_the_leader_of_etcdctl_and_each_waits_for_the_other() {
    let rig = Rig::with_elections();
    let (locks, other) = (rig.locks(), rig.locks());
    let mut watch = other.election(NAME).observe().unwrap();
    assert_eq!(watch.changed_blocking().unwrap(), Leadership::Vacant);
    let mut theirs = rig.candidate("theirs");
    let leader = next_leader(&rig, &mut watch);
    assert_eq!(leader.value.as_deref(), Some("theirs"));
    let key = theirs.receive();
    assert!(key.starts_with(PATH), "{key}");
    assert_eq!(theirs.receive(), "theirs");
    assert_eq!(other.election(NAME).leader_blocking().unwrap(), Some(leader.clone()));
    assert!(rig.run(locks.election(NAME).try_campaign()).unwrap_err().is_taken());

    let ours = campaign(&locks, "ours");
    rig.until("it is queued", || rig.show(NAME).waiters.len() == 1);
    // `etcdctl` resigns and ends.
    theirs.signal(Signal::SIGINT);
    let ours = ours.recv_timeout(PATIENCE).unwrap();
    assert!(ours.term() > leader.term, "{} after {}", ours.term(), leader.term);
    let seen = next_leader(&rig, &mut watch);
    assert_eq!((seen.value.as_deref(), seen.term), (Some("ours"), ours.term()));

    let mut next = rig.candidate("next");
    rig.until("it is queued", || rig.show(NAME).waiters.len() == 1);
    let term = ours.term();
    ours.resign_blocking().unwrap();
    assert!(next.receive().starts_with(PATH));
    assert_eq!(next.receive(), "next");
    let seen = next_leader(&rig, &mut watch);
    assert!(seen.value.as_deref() == Some("next") && seen.term > term, "{seen:?}");
    next.signal(Signal::SIGINT);
    assert_eq!(watch.changed_blocking().unwrap(), Leadership::Vacant);
}

/// The server reports the first candidate of another program: an observer that only reads at intervals gets no
/// notification.
#[test]
fn a_first_leader_of_another_program_is_pushed() {
    let rig = Rig::with_elections();
    let engine = rig.engine();
    let name = Name::new(NAME).unwrap();
    let _theirs = rig.run(async {
        let _followed = engine.memos().unwrap().follow(&name).unwrap();
        memos::hint(&engine, NAME).await;
        assert!(engine.memos().unwrap().read(&name).await.unwrap().is_none());
        let theirs = rig.candidate("theirs");
        memos::hint(&engine, NAME).await;
        assert_eq!(engine.memos().unwrap().read(&name).await.unwrap().unwrap().bytes, b"theirs");
        theirs
    });
}

/// The key of such a candidate has no record, by which its client could tell it from others.
#[test]
fn the_release_of_a_candidate_whose_claim_was_not_answered_deletes_its_key() {
    let rig = Rig::with_elections();
    let (proxy, engine) = rig.proxied();
    let claim = rig.claim("a");
    rig.run(async {
        make_lease(&rig, &*engine).await;
        proxy.hold_answers();
        let mut sent = engine.claim(&claim, How::Create);
        while rig.keys().is_empty() {
            let answer = tokio::time::timeout(Duration::from_millis(20), &mut sent).await;
            assert!(answer.is_err(), "the answer is held back: {answer:?}");
        }
        drop(sent);
        proxy.cut_clients();
        proxy.release_answers();
        loop {
            match &engine.release(&release_of(&claim)).await[..] {
                [Released::Unknown(_)] => tokio::time::sleep(Duration::from_millis(20)).await,
                released => break assert!(matches!(released, [Released::Freed]), "{released:?}"),
            }
        }
    });
    assert_eq!(rig.keys(), [""; 0]);
}

/// A value with the form of a record would count as one.
#[test]
fn a_value_that_looks_like_a_record_is_refused() {
    let rig = Rig::with_elections();
    let value = format!("b 1 {} 5 x", "a".repeat(32));
    let leading = rig.locks().election(NAME).value("ours").campaign_blocking().unwrap();
    let error = leading.proclaim_blocking(value).unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("form of a record"), "{error}");
    assert!(leading.check());
    leading.resign_blocking().unwrap();
}

/// A leader whose key an operator overwrote publishes nothing more.
#[test]
fn a_leader_whose_key_was_overwritten_is_told_at_its_next_value() {
    let rig = Rig::with_elections();
    let locks = rig.locks();
    let leading = locks.election(NAME).value("ours").campaign_blocking().unwrap();
    let key = rig.server.command(&["get", PATH, "--prefix", "--keys-only"]).concat();
    rig.server.command(&["put", "--ignore-lease", &key, "theirs"]);
    assert!(leading.proclaim_blocking("late").unwrap_err().is_lost());
    assert_eq!(rig.server.command(&["get", &key, "--print-value-only"]), ["theirs"]);
    let leader = locks.election(NAME).leader_blocking().unwrap().unwrap();
    assert_eq!(leader.value.as_deref(), Some("theirs"));
    let _ = leading.resign_blocking();
}
