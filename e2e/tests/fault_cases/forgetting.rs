//! Servers that lose data, so that no exclusion is promised: the guarantee reports that, the loss is reported to the
//! holder, and tokens keep growing.

use std::{fs, thread::sleep, time::Duration};

use leasehold::{Guard, Level, Locks};
use leasehold_testkit::server::RedisServer;

use crate::rig::{HELD, LONG, Rig, acquire, millis, rng, until, until_renewed};

/// Asserts that the guarantee is best effort, with a reason that contains this word.
fn expect_best_effort(locks: &Locks, reason: &str) {
    let guarantee = pollster::block_on(locks.guarantee()).unwrap();
    assert_eq!(guarantee.level, Level::BestEffort, "{guarantee:?}");
    assert!(guarantee.to_string().contains(reason), "{guarantee:?}");
}

/// Asserts that the loss is reported to the holder, and that the fence refuses its writes.
fn expect_loss(rig: &Rig, guard: Guard) {
    let next = acquire(&rig.locks(), "a", LONG);
    assert!(next.token().number > guard.token().number, "I4");
    let fence = rig.locks().redis_fence("resource").unwrap();
    pollster::block_on(fence.seal(next.token())).unwrap();
    assert!(pollster::block_on(fence.seal(guard.token())).unwrap_err().is_fenced());
    until("the loss is reported", || !guard.check());
    assert!(guard.release_blocking().unwrap_err().is_lost());
    assert!(next.check());
}

#[test]
fn f29_power_cut_with_a_lazy_log() {
    let mut rig = Rig::with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let locks = rig.locks();
    expect_best_effort(&locks, "everysec");
    let before = fs::metadata(log(&rig)).map_or(0, |log| log.len());
    let guard = acquire(&locks, "a", millis(1500));
    sleep(rng().millis(0..300));
    rig.server.kill();
    // SIGKILL loses nothing that the kernel has, so the test cuts off what was not synced.
    fs::OpenOptions::new().write(true).open(log(&rig)).unwrap().set_len(before).unwrap();
    rig.server.restart();
    expect_loss(&rig, guard);
}

#[test]
fn f29_power_cut_with_a_synced_log() {
    let mut rig = Rig::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let locks = rig.locks();
    assert_eq!(pollster::block_on(locks.guarantee()).unwrap().level, Level::LeaseBounded);
    let guard = acquire(&locks, "a", HELD);
    sleep(rng().millis(0..300));
    rig.server.kill();
    rig.server.restart();
    let error = rig.locks().mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.is_taken(), "{error:?}");
    until_renewed(&guard);
    assert!(guard.check(), "the hold survived");
    guard.release_blocking().unwrap();
}

#[test]
fn f30_restart_without_data() {
    let mut rig = Rig::new();
    let locks = rig.locks();
    expect_best_effort(&locks, "appendonly is no");
    let guard = acquire(&locks, "a", millis(1500));
    sleep(rng().millis(0..300));
    rig.server.kill();
    rig.server.restart();
    expect_loss(&rig, guard);
}

#[test]
fn f31_full_memory_evicts_locks() {
    let rig = Rig::with(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-random"]);
    let locks = rig.locks();
    expect_best_effort(&locks, "evicts");
    let guard = acquire(&locks, "a", millis(1500));
    sleep(rng().millis(0..300));
    rig.command(&["SET", "bulk", &"x".repeat(50_000)]);
    rig.command(&["CONFIG", "SET", "maxmemory", "1"]);
    until("the lock is evicted", || rig.left("lock:a") == -2);
    rig.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    expect_loss(&rig, guard);
}

#[test]
fn f32_promoted_replica_whose_clock_is_ahead() {
    // By default the server waits for more replicas before it starts a transfer.
    let mut rig = Rig::with(&["--repl-diskless-sync-delay", "0"]);
    let (proxy, locks) = rig.proxied();
    let primary = format!("{}", rig.server.port());
    let replica = RedisServer::with_clock(&["--replicaof", &format!("127.0.0.1 {primary}")]);
    replica.set_clock(3600);
    let guard = acquire(&locks, "a", Duration::from_secs(60));
    let offset = |server: &RedisServer, field: &str| {
        let lines = server.command(&["INFO", "replication"]);
        lines
            .iter()
            .find_map(|line| line.trim_end().strip_prefix(field)?.strip_prefix(':')?.parse::<u64>().ok())
    };
    until("the replica has all data", || {
        offset(&replica, "slave_repl_offset") >= offset(&rig.server, "master_repl_offset")
    });
    expect_best_effort(&locks, "fail-over");
    sleep(rng().millis(0..300));
    rig.server.kill();
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    proxy.point_to(replica.port());
    let promoted = Rig { server: replica };
    // Any reply of the new server shows the client of the holder that the server was replaced.
    acquire(&locks, "b", Duration::from_secs(60)).release_blocking().unwrap();
    expect_loss(&promoted, guard);
}

fn log(rig: &Rig) -> std::path::PathBuf {
    let dir = rig.server.socket().with_file_name("appendonlydir");
    let mut files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.to_string_lossy().ends_with(".incr.aof")).unwrap()
}
