//! Conformance of Redisson's layout on each kind of server, with the documented rights.

use leasehold_core::{Answer, Claim, Engine, How, Mode, Renewed};
use leasehold_redis::{Config, Layout};
use leasehold_testkit::suite;

use crate::{
    cluster_rig::{ClusterRig, granted, hold_of, release_of},
    conformance::{PASSWORD, has_rights_on_channels, without_channel_rights},
    oracle::compare_with_memory_engine,
    redisson_rig::{redisson, redisson_with},
    rig::{PATIENCE, Rig, acquire},
    sentinel_rig::{SentinelRig, late_failover},
};

fn in_redisson_layout(config: Config) -> Config {
    config.layout(Layout::Redisson).unwrap()
}

/// The users with the documented rights: see docs/engines/redisson.md.
const USERS: &str = include_str!("../../../../docs/engines/redisson.acl");
const USERS_OF_CLUSTERS: &str = include_str!("../../../../docs/engines/redisson-cluster.acl");

fn acl_file(users: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users.acl");
    let everyone = format!("user default on nopass ~* &* +@all\n{}", users.replace("CHANGE-ME", PASSWORD));
    let everyone = if has_rights_on_channels() { everyone } else { without_channel_rights(&everyone) };
    std::fs::write(&file, everyone).unwrap();
    let file = file.to_str().unwrap().to_owned();
    (directory, file)
}

fn as_user(name: &str) -> (tempfile::TempDir, Rig) {
    let (directory, file) = acl_file(USERS);
    let mut rig = redisson_with(&["--aclfile", &file]);
    rig.config = rig.config.login(name, PASSWORD);
    (directory, rig)
}

#[test]
fn the_layout_conforms_with_operator_rights() {
    let (_directory, rig) = as_user("leasehold-operator");
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 80, "{report}");
}

#[test]
fn the_layout_conforms_with_the_old_protocol() {
    let report = suite::engine(&redisson_with(&["--rename-command", "HELLO", ""]));
    assert!(report.passed.len() > 80, "{report}");
}

#[test]
fn the_layout_conforms_through_sentinels() {
    let options = leasehold_testkit::server::RedisSentinelOptions {
        down_after: std::time::Duration::from_secs(120),
        ..late_failover()
    };
    let mut rig = SentinelRig::new(options);
    rig.config = in_redisson_layout(rig.config);
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 80, "{report}");
}

fn cluster(name: &str, replicas: usize) -> (tempfile::TempDir, ClusterRig) {
    let (directory, file) = acl_file(USERS_OF_CLUSTERS);
    let mut rig = ClusterRig::with(3, replicas, &["--aclfile", &file]);
    rig.config = in_redisson_layout(rig.config).login(name, PASSWORD);
    rig.redisson = true;
    (directory, rig)
}

#[test]
fn the_layout_conforms_on_a_cluster_with_operator_rights() {
    let (_directory, rig) = cluster("leasehold-operator", 3);
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 80, "{report}");
}

#[test]
fn the_layout_agrees_with_the_memory_engine() {
    let rig = redisson();
    compare_with_memory_engine(|| rig.engine(), 300);
    let rig = ClusterRig::with(3, 0, &[]);
    let config = in_redisson_layout(rig.config.clone());
    let engine = || {
        std::sync::Arc::new(leasehold_redis::RedisEngine::new(config.clone(), &leasehold_core::Env::system()))
    };
    compare_with_memory_engine(engine, 100);
}

#[test]
fn locker_rights_suffice_to_wake_redisson() {
    let (_directory, rig) = as_user("leasehold");
    let locks = rig.locks();
    rig.redisson_runs(&["lock fenced", "unlock", "read"]);
    let reader = locks.rw("a").read().blocking().acquire_within(PATIENCE).unwrap();
    reader.release_blocking().unwrap();
    rig.redisson_runs(&["read unlock", "fair wait"]);
    assert!(locks.mutex("a").blocking().try_acquire().unwrap_err().is_taken(), "it sees Redisson's waiter");
    rig.command(&["DEL", "redisson_lock_queue:{lock:a}"]);
    let mut listener = rig.listen(&["redisson_lock__channel:{lock:a}"]);
    acquire(&locks, "a").release_blocking().unwrap();
    assert_eq!(listener.receive().1, "0");
    assert_eq!(rig.run(locks.show("a")).unwrap().holders.len(), 0);
    assert!(rig.run(locks.list("")).unwrap_err().is_denied());
}

/// While a slot is migrating, scripts may use only one or two keys: see `lua/renew_lock_redisson.lua` and the files
/// beside it.
#[test]
fn holds_in_a_migrating_slot_are_renewed_and_released() {
    let (_directory, rig) = cluster("leasehold", 0);
    let engine = rig.engine();
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 3 }] {
        let claim = Claim { mode, ..rig.claim("m") };
        let grant = rig.run(granted(&engine, &claim));
        let (slot, from, to) = rig.slot_and_nodes("m");
        let field =
            rig.cluster().command(from, &["HKEYS", "lock:m"]).into_iter().find(|field| field != "mode");
        let timeout = format!("{{lock:m}}:{}:rwlock_timeout:1", field.unwrap());
        rig.cluster().open_slot(slot, to).unwrap();
        rig.cluster().command(from, &["PEXPIRE", "lock:m", "9000"]);
        if mode == Mode::Shared {
            rig.cluster().command(from, &["PEXPIRE", &timeout, "9000"]);
        }
        let renewed = rig.run(engine.renew(&[hold_of(&claim, &grant)]));
        assert!(matches!(renewed[..], [Renewed::Extended { .. }]), "{mode}: {renewed:?}");
        let remaining_ms =
            |key: &str| rig.cluster().command(from, &["PTTL", key]).concat().parse::<i64>().unwrap();
        assert!(remaining_ms("lock:m") > 20_000, "{mode}");
        assert!(mode != Mode::Shared || remaining_ms(&timeout) > 20_000, "Redisson's readers read this key");
        // No claim is granted while the side keys of the name are on another node.
        let other = rig.run(engine.claim(&rig.claim("m"), How::Create));
        assert!(other.is_err() || !matches!(other, Ok(Answer::Held(_))), "{mode}: {other:?}");
        rig.run(engine.release(&[release_of(&claim, Some(&grant))]));
        let existing_keys = rig.cluster().command(from, &["KEYS", "*"]);
        assert!(
            !existing_keys.iter().any(|key| *key == "lock:m" || *key == timeout),
            "{mode}: {existing_keys:?}"
        );
        rig.cluster().move_keys(slot, 100).unwrap();
        rig.cluster().close_slot(slot).unwrap();
        rig.until("the release is complete", || {
            rig.run(engine.release(&[release_of(&claim, Some(&grant))]));
            rig.show("m").holders.is_empty()
        });
    }
}

/// For these names Redisson uses keys in several slots, so Redisson cannot unlock them.
#[test]
fn names_that_redisson_cannot_lock_on_a_cluster_are_refused() {
    let rig = ClusterRig::with(3, 0, &[]);
    let locks = crate::sentinel_rig::locks_of(in_redisson_layout(rig.config.clone()));
    for name in ["a}b", "{", "{}", "}{b}{"] {
        let error = locks.mutex(name).blocking().acquire_within(PATIENCE);
        match error {
            Ok(guard) => {
                assert_eq!(name, "}{b}{", "one pair of braces is a tag");
                guard.release_blocking().unwrap();
            }
            Err(error) => {
                assert!(error.is_misconfigured() && error.to_string().contains("several slots"), "{error}");
            }
        }
    }
    let guard = locks.rw("x{tag}y").read().blocking().acquire_within(PATIENCE).unwrap();
    let slot = rig.cluster().slot("tag");
    let owner = rig.cluster().owner(slot);
    let keys = rig.cluster().command(owner, &["KEYS", "lock:x{tag}y:*:rwlock_timeout:1"]);
    assert_eq!(keys.iter().filter(|key| !key.is_empty()).count(), 1, "{keys:?}");
    guard.release_blocking().unwrap();
}

/// Some clients of Redisson subscribe to sharded channels, others to plain channels.
#[test]
fn a_release_on_a_cluster_wakes_listeners_of_both_channel_kinds() {
    let (_directory, rig) = cluster("leasehold", 0);
    let (_, owner, _) = rig.slot_and_nodes("a");
    let port = rig.cluster().ports()[owner];
    let channel = "redisson_lock__channel:{lock:a}";
    let (mut all, mut slot) = (
        crate::redisson_rig::ChannelListener::at(port, &[channel]),
        crate::redisson_rig::ChannelListener::by_slot(port, channel),
    );
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    assert_eq!(all.receive().1, "0");
    assert_eq!(slot.receive_by_slot().1, "0");
}
