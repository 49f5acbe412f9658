//! The command on a Sentinel group and on a Redis Cluster.

use leasehold_testkit::server::{RedisCluster, RedisSentinelOptions, RedisSentinels, RedisServer};

use crate::tools::{HOLD, Running, bare, code, finish, one_line, stdout};

/// `leasehold run` with a wrong URL: its exit code, and its message.
fn refused(url: &str) -> (i32, String) {
    let output = finish(bare(&["--url", url, "run", "-w", "10s", "job", "--", "true"]));
    (code(&output), one_line(&output))
}

/// Checks that a run at this URL excludes another and is shown.
fn excludes(url: &str) {
    let call = |args: &[&str]| finish(bare(&[&["--url", url], args].concat()));
    let mut holder =
        Running::start(bare(&["--url", url, "run", "--owner", "first", "job", "--", "sh", "-c", HOLD]));
    assert_eq!(holder.line(), "ready");
    assert_eq!(code(&call(&["run", "-n", "job", "--", "true"])), 75);
    let shown = call(&["show", "--json", "job"]);
    assert_eq!(code(&shown), 0, "{shown:?}");
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&shown["engine"], &shown["holders"][0]["owner"]), (&"redis".into(), &"first".into()));
    assert_eq!(stdout(&call(&["list", "--json", "jo"])).lines().count(), 1);
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(code(&call(&["run", "-n", "job", "--", "true"])), 0);
}

#[test]
fn a_run_on_a_sentinel_group_excludes_and_a_wrong_url_is_78() {
    // No fail-over happens during this test, even on a busy machine.
    let still = RedisSentinelOptions { down_after: std::time::Duration::from_secs(60), ..Default::default() };
    let group = RedisSentinels::start_with(still);
    excludes(&group.url());
    let (sentinel, node) = (group.sentinel_ports()[0], group.ports()[0]);
    for (url, expected) in [
        (group.url().replace("/mymaster", "/hermaster"), "they know mymaster".to_owned()),
        (format!("redis://127.0.0.1:{sentinel}"), format!("redis+sentinel://127.0.0.1:{sentinel}/NAME")),
        (format!("redis+sentinel://127.0.0.1:{node}/mymaster"), format!("write redis://127.0.0.1:{node}")),
    ] {
        let (exit, line) = refused(&url);
        assert!(exit == 78 && line.contains(&expected), "{url}: {exit} {line}");
    }
}

#[test]
fn a_run_on_a_cluster_excludes_and_a_wrong_url_is_78() {
    let cluster = RedisCluster::start();
    excludes(&cluster.url());
    let (node, plain) = (cluster.ports()[0], RedisServer::start(&[]));
    for (url, expected) in [
        (format!("redis://127.0.0.1:{node}"), "redis+cluster://"),
        (format!("redis+cluster://127.0.0.1:{}", plain.port()), "redis://"),
    ] {
        let (exit, line) = refused(&url);
        assert!(exit == 78 && line.contains(expected), "{url}: {exit} {line}");
    }
}
