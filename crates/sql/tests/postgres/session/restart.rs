//! A server that starts anew has lost all locks: for a time nothing is granted.

use std::time::Duration;

use leasehold_core::{Level, Locks};
use leasehold_sql::postgres::SessionOptions;
use leasehold_testkit::server::PostgresServer;

use super::rig::{SessionRig, at_once, engine_of};
use crate::rig::{acquire, until};

/// A client that waits for the lock delay of this length.
fn delayed(rig: &SessionRig, seconds: u64) -> Locks {
    let options = SessionOptions::default().delay(Duration::from_secs(seconds)).unwrap();
    Locks::builder(engine_of("postgres", rig.server.port(), options)).build()
}

/// F09: the holder of the time before may still rely on its hold, so the name reads as taken.
#[test]
fn nothing_is_granted_for_the_lock_delay_after_a_start() {
    let mut rig = SessionRig::of(PostgresServer::durable(&[]));
    let locks = rig.locks();
    let guard = acquire(&locks, "a");
    let token = guard.token();
    rig.server.kill();
    rig.server.restart();
    assert!(delayed(&rig, 60).mutex("a").blocking().try_acquire().is_err_and(|error| error.is_taken()));
    until("the former holder is told", || !guard.check());
    // The delay is over, or switched off.
    let next = acquire(&delayed(&rig, 1), "a");
    assert_ne!(next.token().lineage, token.lineage, "transaction ids may come again after a crash");
    next.release_blocking().unwrap();
    let before = acquire(&delayed(&rig, 1), "a").token();
    rig.server.stop();
    rig.server.restart();
    let after = acquire(&delayed(&rig, 1), "a").token();
    assert!(after.number > before.number && after.lineage != before.lineage);
    let at_once = Locks::builder(engine_of("postgres", rig.server.port(), at_once())).build();
    acquire(&at_once, "a").release_blocking().unwrap();
}

/// After a crash of one backend the server ends all sessions, and goes on with the same start time.
#[test]
fn nothing_is_granted_for_the_lock_delay_after_a_crash_of_a_backend() {
    let rig = SessionRig::of(PostgresServer::durable(&[]));
    let age = "SELECT 1 WHERE clock_timestamp() - pg_postmaster_start_time() > interval '3 s'";
    until("the lock delay is over", || !rig.server.query(age).is_empty());
    let locks = delayed(&rig, 2);
    let guard = acquire(&locks, "a");
    let token = guard.token();
    let pid = rig.server.query("SELECT pid FROM pg_stat_activity WHERE application_name = 'leasehold'");
    let pid = nix::unistd::Pid::from_raw(pid[0].parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    until("the holder is told", || !guard.check());
    until("the server answers", || {
        let tried = delayed(&rig, 60).mutex("b").blocking().try_acquire();
        tried.is_err_and(|error| error.is_taken())
    });
    let next = acquire(&locks, "a");
    assert_ne!(next.token().lineage, token.lineage, "transaction ids may come again after a crash");
    next.release_blocking().unwrap();
}

/// F60: a promoted replica has none of the locks of its primary, as the guarantee says. A holder is told when the old
/// primary ends, and a fence tells apart the tokens of the two servers.
#[test]
fn a_promoted_replica_grants_what_its_primary_still_holds() {
    let mut rig = SessionRig::of(PostgresServer::durable(&[]));
    let replica = rig.server.replica();
    let locks = rig.locks();
    let guard = acquire(&locks, "a");
    replica.promote();
    let promoted = Locks::builder(engine_of("postgres", replica.port(), at_once())).build();
    let next = acquire(&promoted, "a");
    assert!(guard.check() && next.check(), "the old primary serves its clients still");
    assert_ne!(next.token().lineage, guard.token().lineage);
    rig.server.kill();
    until("the former holder is told", || !guard.check());
    assert!(next.check());
    next.release_blocking().unwrap();
}

/// A shorter delay lowers the guarantee.
#[test]
fn the_guarantee_tells_a_short_delay() {
    let rig = SessionRig::new();
    let guarantee = |locks: &Locks| rig.run(locks.guarantee()).unwrap();
    let full = guarantee(&delayed(&rig, 15));
    assert_eq!((full.level, full.findings.len()), (Level::LeaseBounded, 0), "{full}");
    let short = guarantee(&delayed(&rig, 14));
    assert_eq!(short.level, Level::BestEffort);
    assert_eq!(short.findings[0].what, "delay", "{short}");
    assert!(SessionOptions::default().delay(Duration::from_secs(61)).unwrap_err().is_misconfigured());
}

/// A proxy in between can end the session of a process without telling it.
#[test]
fn the_guarantee_tells_a_proxy_in_between() {
    let rig = SessionRig::new();
    let options = SessionOptions::default();
    let proxied = Locks::builder(engine_of("postgres", rig.proxy.port(), options)).build();
    let guarantee = rig.run(proxied.guarantee()).unwrap();
    assert_eq!((guarantee.level, guarantee.findings.len()), (Level::BestEffort, 1), "{guarantee}");
    assert!(guarantee.findings[0].what.contains("address"), "{guarantee}");
}

/// A replica grants nothing, and its locks would exclude nobody on the primary.
#[test]
fn a_replica_is_refused_and_lowers_the_guarantee() {
    let rig = SessionRig::of(PostgresServer::durable(&[]));
    let replica = rig.server.replica();
    let locks = Locks::builder(engine_of("postgres", replica.port(), at_once())).build();
    let error = locks.mutex("a").blocking().acquire_within(Duration::from_secs(2)).unwrap_err();
    assert!(error.to_string().contains("it is a replica"), "{error}");
    until("the replica follows", || !rig.server.query("SELECT 1 FROM pg_stat_replication").is_empty());
    let guarantee = rig.run(delayed(&rig, 15).guarantee()).unwrap();
    assert_eq!(guarantee.findings[0].what, "the number of replicas", "{guarantee}");
}
