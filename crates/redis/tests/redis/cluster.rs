//! Conformance of the Redis engine on a Redis Cluster.

use std::sync::Arc;

use leasehold_core::{BoxFuture, Engine, Env, Name};
use leasehold_redis::RedisEngine;
use leasehold_testkit::{
    server::{RedisServer, redis_command},
    suite::{self, Disturbance, Harness, wait_for_no_leftovers},
};

use crate::{
    cluster_rig::ClusterRig,
    conformance::{PASSWORD, has_rights_on_channels, without_channel_rights},
    oracle::compare_with_memory_engine,
    rig::{PATIENCE, acquire, major},
    sentinel_rig::locks_of,
};

impl Harness for ClusterRig {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        Box::pin(async { Arc::new(RedisEngine::new(self.config.clone(), &Env::system())) as Arc<dyn Engine> })
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        let commands: &[&[&str]] = match kind {
            Disturbance::Forget => &[&["FLUSHALL"]],
            Disturbance::Cut => {
                &[&["CLIENT", "KILL", "TYPE", "normal"], &["CLIENT", "KILL", "TYPE", "pubsub"]]
            }
            _ => return Box::pin(std::future::ready(false)),
        };
        for node in self.masters() {
            commands.iter().for_each(|command| drop(self.cluster().command(node, command)));
        }
        Box::pin(std::future::ready(true))
    }

    fn accepts(&self, name: &Name) -> bool {
        // Redisson's layout needs a hash tag between the braces; the default layout accepts every name.
        let (_, after_brace) = name.as_str().split_once('{').unwrap_or(("", "tag}"));
        !self.redisson || after_brace.find('}').is_some_and(|length| length > 0)
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(wait_for_no_leftovers(|| self.leftovers()))
    }
}

/// The users with the documented rights: see docs/engines/redis-cluster.md.
const USERS: &str = include_str!("../../../../docs/engines/redis-cluster.acl");

/// Whether the servers have sharded channels, which Redis has since version 7.0.
fn has_channels_of_slots() -> bool {
    let server = RedisServer::start(&[]);
    major(|words| server.command(words)) >= 7
}

/// Removes the rights that this server does not know, as docs/engines/redis-cluster.md describes: before Redis 7.0
/// those to sharded channels, and on Redis 6.0 all rights on channels.
fn for_this_server(users: &str) -> String {
    if has_channels_of_slots() {
        return users.to_owned();
    }
    let users = users.replace(" +ssubscribe +spublish", "");
    if has_rights_on_channels() { users } else { without_channel_rights(&users) }
}

/// A cluster with the documented users; the clients log in as `name`.
pub(crate) fn as_user(name: &str, replicas: usize) -> (tempfile::TempDir, ClusterRig) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users.acl");
    let everyone = format!("user default on nopass ~* &* +@all\n{}", USERS.replace("CHANGE-ME", PASSWORD));
    let everyone = for_this_server(&everyone);
    std::fs::write(&file, everyone).unwrap();
    let mut rig = ClusterRig::with(3, replicas, &["--aclfile", file.to_str().unwrap()]);
    rig.config = rig.config.login(name, PASSWORD);
    (directory, rig)
}

#[test]
fn the_engine_conforms_on_a_cluster_with_operator_rights() {
    let (_directory, rig) = as_user("leasehold-operator", 3);
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 80, "{report}");
}

/// Like servers before Redis 7.0: no sharded channels, and only the old protocol.
#[test]
fn the_engine_conforms_on_a_cluster_of_old_servers() {
    let old = ["--rename-command", "HELLO", "", "--rename-command", "SPUBLISH", ""];
    let old = if has_channels_of_slots() { &old[..] } else { &old[..3] };
    let report = suite::engine(&ClusterRig::with(3, 0, old));
    assert!(report.passed.len() > 80, "{report}");
}

#[test]
fn locker_rights_on_a_cluster_allow_locking_and_nothing_else() {
    let (_directory, rig) = as_user("leasehold", 0);
    let (locks, other) = (rig.locks(), rig.locks());
    let reader = locks.rw("r").read().blocking().acquire_within(PATIENCE).unwrap();
    let permit = locks.semaphore("s", 2).blocking().acquire_within(PATIENCE).unwrap();
    let guard = acquire(&locks, "m");
    let waiting = rig.runtime().spawn(other.mutex("m").acquire_within(PATIENCE));
    rig.until("it waits", || rig.show("m").waiters.len() == 1);
    let (slot, _, to) = rig.slot_and_nodes("m");
    rig.cluster().open_slot(slot, to).unwrap();
    rig.cluster().move_keys(slot, 100).unwrap();
    rig.run(guard.confirm()).unwrap();
    rig.cluster().close_slot(slot).unwrap();
    for guard in [guard, reader, permit] {
        guard.release_blocking().unwrap();
    }
    rig.run(waiting).unwrap().unwrap().release_blocking().unwrap();
    for error in [rig.run(locks.list("")).unwrap_err(), rig.run(locks.guarantee()).unwrap_err()] {
        assert!(error.is_denied(), "{error}");
    }
    let port = rig.cluster().ports()[0];
    let channels: &[&[&str]] = &[&["SSUBSCRIBE", "other"], &["SPUBLISH", "other", "x"]];
    let channels = channels.iter().copied().filter(|_| has_channels_of_slots());
    for command in [
        ["KEYS", "*"].as_slice(),
        &["FLUSHALL"],
        &["CONFIG", "GET", "*"],
        &["EVAL", "return 1", "0"],
        &["CLUSTER", "NODES"],
        &["CLUSTER", "FAILOVER"],
    ]
    .iter()
    .copied()
    .chain(channels)
    {
        let login = ["--user", "leasehold", "--pass", PASSWORD, "--no-auth-warning"];
        let output = redis_command(port, &[&login, command].concat());
        let output = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.contains("NOPERM"), "{command:?}: {output}");
    }
}

#[test]
fn waiting_for_replicas_in_a_cluster_needs_two_more_rights() {
    let (_directory, rig) = as_user("leasehold", 3);
    let locks = || locks_of(rig.config.clone().wait(1));
    let error = locks().mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("INFO and WAIT"), "{error}");
    let nodes = rig.cluster().ports().len();
    for node in 0..nodes {
        rig.cluster().command(node, &["ACL", "SETUSER", "leasehold", "+wait", "+info"]);
    }
    acquire(&locks(), "a").release_blocking().unwrap();
}

#[test]
fn a_cluster_agrees_with_the_memory_engine() {
    let rig = ClusterRig::with(3, 0, &[]);
    compare_with_memory_engine(|| rig.engine(), 100);
}
