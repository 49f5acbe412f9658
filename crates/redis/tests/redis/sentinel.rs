//! Servers behind Sentinels: conformance, rights, and errors in a URL or a group.

use std::time::Duration;

use leasehold_core::{ErrorKind, Level, Locks, Password};
use leasehold_testkit::{server::RedisSentinelOptions, suite};

use crate::{
    conformance::{PASSWORD, has_rights_on_channels, without_channel_rights},
    rig::{PATIENCE, acquire},
    sentinel_rig::{SentinelRig, config_of, late_failover, locks_of},
};

/// Sentinels that promote no replica, even on a busy machine.
fn no_failover() -> RedisSentinelOptions<'static> {
    RedisSentinelOptions { down_after: Duration::from_secs(120), ..late_failover() }
}

#[test]
fn the_engine_conforms_through_sentinels() {
    let report = suite::engine(&SentinelRig::new(no_failover()));
    assert!(report.passed.len() > 80, "{report}");
}

#[test]
fn the_engine_conforms_when_it_waits_for_two_replicas() {
    let mut rig = SentinelRig::new(no_failover());
    rig.config = rig.config.wait(2);
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 80, "{report}");
}

/// The users with the documented rights: see docs/engines/redis-sentinel.md.
const OF_SENTINELS: &str = include_str!("../../../../docs/engines/redis-sentinel.acl");
const OF_NODES: &str = include_str!("../../../../docs/engines/redis.acl");

#[test]
fn the_documented_rights_suffice_on_sentinels_and_servers() {
    let mut rig = SentinelRig::new(no_failover());
    let set = |users: &str, command: &dyn Fn(&[&str]) -> Vec<String>| {
        let users = if has_rights_on_channels() { users.to_owned() } else { without_channel_rights(users) };
        for line in users.lines() {
            let line = line.replace("CHANGE-ME", PASSWORD);
            let words: Vec<&str> = ["ACL", "SETUSER"].into_iter().chain(line.split(' ').skip(1)).collect();
            assert_eq!(command(&words), ["OK"]);
        }
    };
    let sentinels_have_users = has_users(&rig);
    if sentinels_have_users {
        (0..3).for_each(|sentinel| set(OF_SENTINELS, &|words| rig.redis.sentinel_command(sentinel, words)));
        rig.config = rig.config.sentinel_login(Some("leasehold"), PASSWORD);
    }
    (0..3).for_each(|node| set(OF_NODES, &|words| rig.redis.command(node, words)));
    let as_user = |user: &str| {
        let prefix = if user.starts_with("team-") { format!("{user}:") } else { "lock:".to_owned() };
        rig.config.clone().login(user, PASSWORD).prefix(&prefix).unwrap()
    };
    for user in ["leasehold", "leasehold-operator", "team-a", "team-b"] {
        acquire(&locks_of(as_user(user)), "a").release_blocking().unwrap();
        let allow = |right: &str| {
            (0..3).for_each(|node| drop(rig.redis.command(node, &["ACL", "SETUSER", user, right])));
        };
        // One of the two rights is not enough. The error comes at once, not after a time limit.
        for right in ["+info", "+wait"] {
            let error = locks_of(as_user(user).wait(2)).mutex("a").blocking().acquire().unwrap_err();
            assert!(error.is_denied() && error.to_string().contains("INFO and WAIT"), "{user}: {error}");
            allow(right);
        }
        acquire(&locks_of(as_user(user).wait(2)), "a").release_blocking().unwrap();
    }
    for wait in [0, 2] {
        let error = refused(&locks_of(as_user("team-a").prefix("team-b:").unwrap().wait(wait)));
        assert!(error.is_denied(), "{error}");
    }
    let operator = locks_of(as_user("leasehold-operator"));
    let guard = acquire(&operator, "b");
    assert_eq!(rig.runtime.block_on(operator.list("")).unwrap().len(), 1);
    assert_eq!(rig.runtime.block_on(operator.guarantee()).unwrap().level, Level::BestEffort);
    guard.release_blocking().unwrap();
    if sentinels_have_users {
        let wrong = locks_of(as_user("leasehold").sentinel_login(Some("leasehold"), "wrong"));
        assert!(refused(&wrong).is_denied());
    }
}

/// Sentinels before 6.2 have no users.
fn has_users(rig: &SentinelRig) -> bool {
    rig.redis.sentinel_answer(0, &["ACL", "WHOAMI"]).is_ok()
}

fn refused(locks: &Locks) -> leasehold_core::Error {
    locks.mutex("a").blocking().acquire_within(PATIENCE).unwrap_err()
}

#[test]
fn a_wrong_master_name_is_refused_with_the_known_names() {
    let rig = SentinelRig::new(no_failover());
    let url = rig.redis.url().replace("/mymaster", "/hermaster");
    let error = refused(&locks_of(config_of(&url)));
    assert!(error.is_misconfigured(), "{error}");
    assert!(error.to_string().contains("\"hermaster\": they know mymaster"), "{error}");
}

#[test]
fn a_url_of_the_wrong_kind_is_refused_with_the_right_one() {
    let rig = SentinelRig::new(no_failover());
    let (sentinel, node) = (rig.redis.sentinel_ports()[0], rig.redis.ports()[0]);
    for (url, right) in [
        (
            format!("redis://127.0.0.1:{sentinel}"),
            format!("redis+sentinel://127.0.0.1:{sentinel}/NAME (it knows mymaster)"),
        ),
        (format!("redis+sentinel://127.0.0.1:{node}/mymaster"), format!("write redis://127.0.0.1:{node}")),
    ] {
        let error = refused(&locks_of(config_of(&url)));
        assert!(error.is_misconfigured() && error.to_string().contains(&right), "{url}: {error}");
    }
}

/// The error tells whether the Sentinels or the servers refused the login.
#[test]
fn sentinels_and_servers_have_separate_passwords() {
    let [of_nodes, of_sentinels] = ["hunter2-nodes", "hunter2-sentinels"];
    for (nodes, sentinels) in [(true, true), (true, false), (false, true)] {
        let options = RedisSentinelOptions {
            password: nodes.then_some(of_nodes),
            sentinel_password: sentinels.then_some(of_sentinels),
            ..no_failover()
        };
        let rig = SentinelRig::new(options);
        let right = if sentinels {
            rig.config.clone().sentinel_login(None, of_sentinels)
        } else {
            rig.config.clone()
        };
        acquire(&locks_of(right.clone()), "a").release_blocking().unwrap();
        let denied = |config| {
            let error = refused(&locks_of(config));
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            let text = error.to_string();
            assert!(!text.contains("hunter2"), "{text}");
            text
        };
        if sentinels {
            for config in [rig.config.clone(), rig.config.clone().sentinel_login(None, of_nodes)] {
                if has_users(&rig) {
                    let log = rig.redis.sentinel_command(0, &["ACL", "LOG"]).concat();
                    assert_eq!(
                        log, "",
                        "the Sentinel was sent no password, and never the password of the servers"
                    );
                }
                let text = denied(config);
                assert!(
                    text.contains("the Sentinel at 127.0.0.1:") && text.contains("sentinel_password_file"),
                    "{text}"
                );
            }
        }
        if nodes {
            let text = denied(right.password(Password::from("hunter2-wrong")));
            assert!(text.contains("the user or password of the URL") && !text.contains("Sentinel"), "{text}");
        }
    }
}

#[test]
fn missing_sentinels_count_against_the_majority() {
    let mut rig = SentinelRig::new(no_failover());
    rig.redis.kill_sentinel(0);
    let locks = rig.locks();
    // The renewal is not due during the test.
    let hold = locks.mutex("a").ttl(Duration::from_secs(3600)).blocking();
    let guard = hold.acquire_within(PATIENCE).unwrap();
    rig.redis.kill_sentinel(1);
    rig.until("the hold is in doubt: no majority names a master", || !guard.check());
    let error = locks.mutex("b").blocking().acquire_within(Duration::from_secs(4)).unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("no majority of the Sentinels"), "{error}");
    rig.redis.restart_sentinel(1);
    rig.until("the hold is confirmed on the same master", || guard.check());
    guard.release_blocking().unwrap();
}

#[test]
fn a_dead_master_is_named_in_the_error() {
    let mut rig = SentinelRig::new(no_failover());
    rig.redis.kill(0);
    let error = rig.locks().mutex("a").blocking().acquire_within(Duration::from_secs(4)).unwrap_err();
    let dead = format!("cannot connect to 127.0.0.1:{}", rig.redis.ports()[0]);
    assert!(error.is_unreachable() && error.to_string().contains(&dead), "{error}");
    assert!(error.to_string().contains("the Sentinels name this server"), "{error}");
}

/// An operator turned the master into a replica, and the Sentinels still name it as the master.
#[test]
fn a_replica_named_as_master_is_not_used() {
    let rig = SentinelRig::new(no_failover());
    rig.redis.command(0, &["REPLICAOF", "127.0.0.1", &rig.redis.ports()[1].to_string()]);
    let error = rig.locks().mutex("a").blocking().acquire_within(Duration::from_secs(4)).unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("reports the role replica"), "{error}");
}

#[test]
fn an_address_map_replaces_announced_addresses() {
    let rig = SentinelRig::new(no_failover());
    let [port, ..] = rig.redis.ports();
    let proxy = leasehold_testkit::server::Proxy::start(port);
    let map = format!("127.0.0.1:{port}=localhost:{}", proxy.port());
    let config = rig.config.clone().map(leasehold_redis::AddressMap::parse(&map).unwrap());
    acquire(&locks_of(config), "a").release_blocking().unwrap();
    assert!(proxy.connections() > 0);
}

#[test]
fn the_guarantee_of_a_sentinel_group_is_best_effort() {
    let arguments = &["--appendonly", "yes", "--appendfsync", "always"];
    let rig = SentinelRig::new(RedisSentinelOptions { arguments, ..no_failover() });
    let guarantee = rig.runtime.block_on(rig.locks().guarantee()).unwrap();
    assert_eq!(guarantee.level, Level::BestEffort);
    let text = guarantee.to_string();
    for part in ["Sentinels", "two may hold one lock", "min-replicas-to-write", "wait"] {
        assert!(text.contains(part), "{text}");
    }
    let url = rig.redis.url();
    let (_, sentinels) = url.rsplit_once("//").unwrap();
    let one = format!("redis+sentinel://{}/mymaster", sentinels.split(',').next().unwrap());
    let locks = locks_of(config_of(&one));
    let guarantee = rig.runtime.block_on(locks.guarantee()).unwrap();
    assert!(guarantee.to_string().contains("1 of 3 Sentinels"), "{guarantee}");
}
