//! A server refuses requests: each reason has its own kind of error, and no script stops half done.

use std::{io::Write, net::TcpStream, thread::spawn, time::Duration};

use leasehold_core::{ErrorKind, Locks, Loss};
use leasehold_redis::{Address, Config, RedisEngine};
use leasehold_testkit::{
    lease_retries::with_longer_leases,
    server::{RedisCluster, RedisClusterOptions},
};

use crate::{
    rig::{PATIENCE, Rig, acquire, local},
    sentinel_rig::locks_of as locks_at,
};

fn locks_of(rig: &Rig, user: &str, password: &str) -> Locks {
    let engine = RedisEngine::new(rig.config.clone().login(user, password), &leasehold_core::Env::system());
    Locks::builder(std::sync::Arc::new(engine)).build()
}

#[test]
fn a_wrong_password_is_denied_at_once_and_never_shown() {
    let rig = Rig::with(&["--requirepass", "correct-horse"]);
    for locks in [rig.locks(), locks_of(&rig, "default", "hunter2")] {
        let error = locks.mutex("a").blocking().acquire().unwrap_err();
        assert!(error.is_denied(), "{error}");
        assert!(!format!("{error} {error:?} {locks:?}").contains("hunter2"), "{error}");
    }
    acquire(&locks_of(&rig, "default", "correct-horse"), "a").release_blocking().unwrap();
}

#[test]
fn a_user_without_rights_is_denied() {
    let rig = Rig::new();
    rig.command(&["ACL", "SETUSER", "poor", "on", ">pw", "~lock:*", "&*", "+@all", "-evalsha"]);
    let error = locks_of(&rig, "poor", "pw").mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("NOPERM"), "{error}");
    rig.command(&["ACL", "SETUSER", "poor", "+@all", "resetkeys", "~other:*"]);
    let error = locks_of(&rig, "poor", "pw").mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_denied(), "{error}");
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

/// The server runs the script, but refuses one of its commands.
#[test]
fn a_user_without_a_right_that_a_script_needs_is_denied() {
    for lacks in ["-set", "-zadd", "-hset", "-pttl", "-exists"] {
        let rig = Rig::new();
        rig.command(&["ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all", lacks]);
        let locks = locks_of(&rig, "poor", "pw");
        let error = locks.semaphore("a", 2).blocking().acquire().unwrap_err();
        assert!(error.is_denied() && error.to_string().contains("give it the rights"), "{lacks}: {error}");
        assert_eq!(rig.command(&["EXISTS", "lock:a"]), "0", "{lacks}");
    }
}

/// The error message contains no part of the request: the request may contain a whole script.
#[test]
fn a_server_without_scripts_is_a_misconfiguration() {
    for lacks in ["SCRIPT", "EVALSHA"] {
        let rig = Rig::with(&["--rename-command", lacks, ""]);
        let error = rig.locks().mutex("a").blocking().acquire().unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains(lacks), "{error}");
        assert!(error.to_string().len() < 250, "{error}");
    }
}

/// The server lacks a command that a script calls.
#[test]
fn a_server_without_a_command_that_scripts_call_is_a_misconfiguration() {
    let rig = Rig::with(&["--rename-command", "SET", ""]);
    let error = rig.locks().mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("lacks a command"), "{error}");
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

/// Some of these values are msgpack of another type than a record, others are no msgpack.
#[test]
fn a_record_that_another_program_wrote_is_a_misconfiguration() {
    let rig = Rig::new();
    let locks = rig.locks();
    let guard = locks.rw("a").read().blocking().acquire().unwrap();
    let record = rig.command(&["KEYS", "leasehold:*clock:a"]);
    guard.release_blocking().unwrap();
    for other in ["foo", "\u{1}", "[]", "\u{7ff}"] {
        rig.command(&["SET", &record, other]);
        for request in [locks.mutex("a"), locks.rw("a").read(), locks.semaphore("a", 2)] {
            let error = request.blocking().try_acquire().unwrap_err();
            assert!(error.is_misconfigured(), "{other:?}: {error}");
        }
        let error = rig.run(locks.show("a")).unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("delete"), "{other:?}: {error}");
        assert_eq!(rig.command(&["EXISTS", "lock:a"]), "0", "{other:?}");
    }
    rig.command(&["DEL", &record]);
    acquire(&locks, "a").release_blocking().unwrap();
}

/// The name stays taken until the lease ends, but the error must come at once.
#[test]
fn a_forbidden_release_is_denied_at_once() {
    let rig = Rig::new();
    rig.command(&["ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all", "-del"]);
    let guard = acquire(&locks_of(&rig, "poor", "pw"), "a");
    let error = guard.release_blocking().unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("give it the rights"), "{error}");
}

#[test]
fn a_cluster_node_is_a_misconfiguration() {
    let cluster =
        RedisCluster::start_with(RedisClusterOptions { masters: 1, replicas: 0, ..Default::default() });
    let endpoint = local(cluster.ports()[0]);
    let right = format!("write redis+cluster://{endpoint}");
    let error = locks_at(Config::new(Address::Tcp(endpoint))).mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains(&right), "{error}");
}

/// The server forgets a script between the load and the call.
#[test]
fn requests_are_retried_while_scripts_are_flushed() {
    let rig = Rig::new();
    let (is_done, port) = (std::sync::atomic::AtomicBool::new(false), rig.server.port());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = leasehold_testkit::server::redis_command(port, &["-r", "50", "SCRIPT", "FLUSH"]);
            }
        });
        let locks = rig.locks();
        let ends: Vec<_> = (0..15)
            .map(|_| {
                locks
                    .mutex("a")
                    .blocking()
                    .acquire_within(PATIENCE)
                    .and_then(leasehold_core::Guard::release_blocking)
            })
            .collect();
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        for end in ends {
            end.unwrap();
        }
    });
}

#[test]
fn a_full_server_refuses_claims_but_no_renewal_and_no_release() {
    with_longer_leases(Duration::from_secs(2), "renewed for longer than its lease", |ttl| {
        let rig = Rig::new();
        let (locks, other) = (rig.locks(), rig.locks());
        let guard = locks.mutex("a").ttl(ttl).blocking().acquire().unwrap();
        let shared = locks.rw("b").read().blocking().acquire().unwrap();
        let waiting = spawn(move || other.mutex("a").blocking().acquire_within(PATIENCE));
        rig.until("it waits, or the lease has ended", || !rig.show("a").waiters.is_empty() || !guard.check());
        rig.command(&["CONFIG", "SET", "maxmemory", "1"]);
        refuses_claims(&rig, &locks);
        std::thread::sleep(ttl + ttl / 4);
        if !guard.check() || guard.release_blocking().is_err() {
            // Meanwhile the server may have refused a request of the waiter.
            rig.command(&["CONFIG", "SET", "maxmemory", "0"]);
            drop(waiting.join().unwrap());
            return false;
        }
        // The hand-over is a part of the release, and the server refuses no release for lack of memory.
        let next = waiting.join().unwrap().unwrap();
        shared.release_blocking().unwrap();
        next.release_blocking().unwrap();
        assert_eq!(rig.leftovers(), Vec::<String>::new());
        rig.command(&["CONFIG", "SET", "maxmemory", "0"]);
        acquire(&locks, "c").release_blocking().unwrap();
        true
    });
}

fn refuses_claims(rig: &Rig, locks: &Locks) {
    for request in [locks.mutex("c"), locks.rw("d").read(), locks.rw("b").read(), locks.rw("b").write()] {
        let error = request.blocking().try_acquire();
        // A second reader in the same process shares the hold of the first one, without a request.
        if let Err(error) = error {
            assert!(error.is_refused() || error.is_taken(), "{error}");
        }
    }
    assert!(rig.locks().mutex("c").blocking().acquire().unwrap_err().is_refused());
}

#[test]
fn a_replica_refuses_claims_and_its_holds_end_in_time() {
    let (rig, primary) = (Rig::new(), Rig::new());
    let locks = rig.locks();
    let guard = locks.mutex("a").ttl(Duration::from_secs(1)).blocking().acquire().unwrap();
    rig.command(&["REPLICAOF", "127.0.0.1", &primary.server.port().to_string()]);
    let error = rig.locks().mutex("b").blocking().acquire().unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("replica"), "{error}");
    // A client for which the server was the master before waits for the end of a fail-over.
    let error = locks.mutex("b").blocking().acquire_within(Duration::from_millis(500)).unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("replica"), "{error}");
    // Another server may be the master now, so the hold is in doubt at once. The hold ends at its deadline at the
    // latest.
    rig.run(guard.lost());
    let error = guard.release_blocking().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost(Loss::Lapsed | Loss::Gone)), "{error}");
}

#[test]
fn a_view_of_a_replica_warns_that_it_may_be_behind() {
    let rig = Rig::new();
    let _held = acquire(&rig.locks(), "a");
    let primary = rig.server.port().to_string();
    let replica = Rig::with(&["--replicaof", &format!("127.0.0.1 {primary}")]);
    replica.until("the replica has the hold", || replica.show("a").holders.len() == 1);
    let listed = replica.run(replica.locks().list("")).unwrap();
    assert_eq!(listed.iter().map(|view| view.name.as_str()).collect::<Vec<_>>(), ["a"]);
    let promised = replica.run(replica.locks().guarantee()).unwrap().to_string();
    assert!(promised.contains("may be behind"), "{promised}");
    assert!(replica.locks().mutex("b").blocking().try_acquire().unwrap_err().is_refused());
}

/// The claim continues to wait, whether it first learns that its queue entry is lost, or that the server refuses
/// writes.
#[test]
fn a_waiter_forgotten_by_a_read_only_server_keeps_waiting() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    let _guard = acquire(&locks, "a");
    let waiting = spawn(move || other.mutex("a").blocking().acquire_within(PATIENCE));
    rig.until("it waits", || rig.show("a").waiters.len() == 1);
    let mut operator = TcpStream::connect(("127.0.0.1", rig.server.port())).unwrap();
    operator.write_all(b"MULTI\r\nFLUSHALL\r\nCONFIG SET min-replicas-to-write 1\r\nEXEC\r\n").unwrap();
    rig.until("it is refused", || {
        waiting.is_finished() || rig.command(&["INFO", "errorstats"]).contains("errorstat_NOREPLICAS")
    });
    rig.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
}

#[test]
fn a_long_foreign_script_is_waited_out() {
    let rig = Rig::with(&["--busy-reply-threshold", "100"]);
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = acquire(&locks, "a");
    let waiting = spawn(move || other.mutex("a").blocking().acquire_within(PATIENCE));
    rig.until("it waits", || rig.show("a").waiters.len() == 1);
    let port = rig.server.port();
    let busy =
        spawn(move || leasehold_testkit::server::redis_command(port, &["EVAL", "while true do end", "0"]));
    rig.until("the server is busy", || {
        let output = leasehold_testkit::server::redis_command(port, &["GET", "x"]);
        String::from_utf8_lossy(&output.stdout).contains("BUSY")
            || String::from_utf8_lossy(&output.stderr).contains("BUSY")
    });
    let released = spawn(move || guard.release_blocking());
    std::thread::sleep(Duration::from_millis(500));
    rig.command(&["SCRIPT", "KILL"]);
    busy.join().unwrap();
    released.join().unwrap().unwrap();
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

#[test]
fn a_refused_claim_in_a_batch_does_not_affect_the_others() {
    let rig = Rig::new();
    rig.command(&["ACL", "SETUSER", "half", "on", ">pw", "~lock:mine-*", "~leasehold:*", "&*", "+@all"]);
    let locks = locks_of(&rig, "half", "pw");
    rig.command(&["LPUSH", "lock:mine-list", "x"]);
    // All claims are made at the same time, so that one request contains all of them.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let names = ["mine-1", "theirs", "mine-2", "mine-list", "mine-3"];
    let ends =
        runtime.block_on(futures_util::future::join_all(names.map(|name| locks.mutex(name).try_acquire())));
    let kinds: Vec<_> = ends.iter().map(|end| end.as_ref().err().map(leasehold_core::Error::kind)).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::Denied), None, Some(ErrorKind::Misconfigured), None]);
    let guards = ends.into_iter().flatten();
    for end in runtime.block_on(futures_util::future::join_all(guards.map(leasehold_core::Guard::release))) {
        end.unwrap();
    }
    rig.command(&["DEL", "lock:mine-list"]);
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}
