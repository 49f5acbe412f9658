//! etcd: names with a common prefix, and claims that share a lease.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::channel,
    thread::spawn,
};

use leasehold_core::{Answer, Claim, ClaimId, Engine, Env, How, Mode, Name, Previous, Release, Released};
use leasehold_etcd::{Config, EtcdEngine};

use crate::{
    etcd_rig::Rig,
    rig::{LONG, PATIENCE, SLACK, acquire},
};

/// `etcdctl lock`, which holds until it is killed.
struct Foreign(Child);

impl Foreign {
    fn holding(rig: &Rig, key: &str) -> Self {
        let endpoint = format!("127.0.0.1:{}", rig.server.port());
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &endpoint, "lock", "--ttl=5", key]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        // It prints its key once it holds the lock.
        let mut output = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut output).unwrap();
        assert!(output.starts_with(key), "{output}");
        Self(process)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn f45_names_with_a_common_prefix_are_separate() {
    let rig = Rig::new();
    let locks = rig.locks();
    let names = ["a", "a/b", "a/b/c", "a%2Fb", "a/", "a0"];
    let guards = names.map(|name| locks.mutex(name).ttl(LONG).blocking().try_acquire().unwrap());
    let others = rig.locks();
    for name in names {
        assert!(others.mutex(name).ttl(LONG).blocking().try_acquire().unwrap_err().is_taken(), "{name}");
    }
    let listed = pollster::block_on(locks.list("")).unwrap();
    assert_eq!(listed.len(), names.len());
    guards.into_iter().for_each(|guard| guard.release_blocking().unwrap());
}

#[test]
fn f45_foreign_lock_on_one_of_them() {
    let rig = Rig::new();
    let locks = rig.locks();
    let taken = |name: &str| match locks.mutex(name).ttl(LONG).blocking().try_acquire() {
        Ok(guard) => guard.release_blocking().is_err(),
        Err(error) => error.is_taken(),
    };
    // The shown key is the one that another program must lock for `a/b`.
    let shown = pollster::block_on(locks.show("a/b")).unwrap().key;
    let foreign = Foreign::holding(&rig, &shown);
    assert_eq!(["a/b", "a", "a/b/c"].map(taken), [true, false, false]);
    drop(foreign);
    // For clients of etcd a lock of `/locks/b/c` is in the queue of `/locks/b`. So it is for us: it takes `b`, not
    // `b/c`.
    let _foreign = Foreign::holding(&rig, "/locks/b/c");
    assert_eq!(["b", "b/c", "c"].map(taken), [true, false, false]);
}

#[test]
fn f48_tasks_of_one_process_exclude_each_other() {
    let rig = Rig::new();
    let locks = rig.locks();
    let guard = acquire(&locks, "a", LONG);
    assert!(locks.mutex("a").ttl(LONG).blocking().try_acquire().unwrap_err().is_taken());
    let (sender, granted) = channel();
    for _ in 0..3 {
        let (request, sender) = (locks.mutex("a").ttl(LONG).blocking(), sender.clone());
        spawn(move || sender.send(request.acquire_within(PATIENCE).unwrap()));
    }
    let alone = || granted.recv_timeout(SLACK / 4).is_err();
    assert!(alone() && guard.check());
    let mut tokens = vec![guard.token()];
    guard.release_blocking().unwrap();
    for _ in 0..3 {
        let next = granted.recv_timeout(PATIENCE).unwrap();
        assert!(alone() && next.check(), "I1: one at a time");
        tokens.push(next.token());
        next.release_blocking().unwrap();
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "I4: {tokens:?}");
}

#[test]
fn f48_claims_on_one_lease_exclude_each_other() {
    let rig = Rig::new();
    let config = Config::from_url("etcd", rig.url().trim_start_matches("etcd:")).unwrap();
    let engine = EtcdEngine::new(config, &Env::system());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ask = |claim: &Claim| runtime.block_on(engine.claim(claim, How::Create)).unwrap();
    let claim = |id, may_queue| Claim {
        id: ClaimId([id; 16]),
        name: Name::new("a").unwrap(),
        mode: Mode::Exclusive,
        ttl: LONG,
        claim_time: LONG,
        may_queue,
        tokens: 1,
        owner: "one".into(),
        stops_on_term: false,
    };
    let (holds, tries, waits) = (claim(1, true), claim(2, false), claim(3, true));
    assert!(matches!(ask(&holds), Answer::Held(_)));
    assert!(matches!(ask(&tries), Answer::Taken(_)), "a claim on the same lease is refused too");
    assert!(matches!(ask(&waits), Answer::Waiting(_)));
    let keys = rig.queue_keys("a");
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0].1, keys[1].1, "one lease");
    let release = Release {
        id: holds.id,
        name: holds.name.clone(),
        mode: holds.mode,
        token: None,
        ended: Previous::Clean,
        min_hold: None,
    };
    assert!(matches!(runtime.block_on(engine.release(&[release]))[0], Released::Freed));
    assert!(matches!(ask(&waits), Answer::Held(_)), "the release of one claim leaves the other");
    assert!(matches!(ask(&tries), Answer::Taken(_)));
}
