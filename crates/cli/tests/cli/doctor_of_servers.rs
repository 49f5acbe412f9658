//! `doctor` names what is wrong with a server that an operator is called for.

use leasehold_testkit::server::{EtcdServer, RedisServer, etcd_command};

use crate::{
    doctor::{assert_finding, examined},
    tools::bare,
};

#[test]
fn a_redis_that_evicts_is_named() {
    let server = RedisServer::start(&["--maxmemory-policy", "allkeys-lru"]);
    let memory = server.command(&["INFO", "memory"]);
    let used = memory.iter().find_map(|line| line.trim().strip_prefix("used_memory:")).unwrap();
    let limit = used.parse::<u64>().unwrap() + 1_000_000;
    server.command(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    let large_value = "x".repeat(100_000);
    let evicts = (0..100).any(|number| {
        server.command(&["SET", &format!("cache:{number}"), &large_value]);
        !server.command(&["INFO", "stats"]).join(" ").contains("evicted_keys:0")
    });
    assert!(evicts, "the memory has a bound");
    let (code, value) = examined(bare(&["--url", &url]));
    assert_eq!((code, &value["level"]), (1, &"best effort".into()), "{value:#}");
    assert_finding(&value, "redis-eviction", "warning", "noeviction");
    assert_finding(&value, "lock", "good", "");
}

#[test]
fn an_etcd_that_is_full_is_broken() {
    let server = EtcdServer::start(&["--quota-backend-bytes=4194304"]);
    let large_value = "x".repeat(100_000);
    let is_full = (0..200).any(|number| {
        !etcd_command(server.port(), &["put", &format!("fill{number}"), &large_value]).status.success()
    });
    assert!(is_full, "the database has a bound");
    let (code, value) = examined(bare(&["--url", &server.url()]));
    assert_eq!(code, 2, "{value:#}");
    assert_finding(&value, "etcd-alarms", "broken", "etcdctl alarm disarm");
    assert_finding(&value, "lock", "broken", "database is full");
}
