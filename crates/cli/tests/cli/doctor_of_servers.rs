//! `doctor` names what is wrong with a server that an operator is called for.

use leasehold_testkit::server::{EtcdServer, PgBouncer, PostgresServer, RedisServer, etcd_command};
use serde_json::Value;

use crate::{
    doctor::{assert_finding, examined},
    tools::{bare, finish, stdout},
};

/// The ids and the advice of all findings that are not good.
fn bad(value: &Value) -> Vec<(&str, &str)> {
    let findings = value["findings"].as_array().unwrap().iter();
    let bad = findings.filter(|found| found["severity"] != "good");
    bad.map(|found| (found["id"].as_str().unwrap(), found["advice"].as_str().unwrap())).collect()
}

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

/// Behind a pooler every request fails: the pooler is the only fault, and no grant would help.
#[test]
fn a_pooler_is_told_on_one_line() {
    let server = PostgresServer::durable(&[]);
    server.query("CREATE TABLE jobs (name text PRIMARY KEY)");
    let pooler = PgBouncer::start(server.port());
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", pooler.port());
    for (options, advice) in [
        ("", "percent-encoded, as listen_url="),
        ("?hold=session&delay=0s", "pool_mode = session"),
        ("?hold=row&table=jobs&column=name", "name the server itself"),
    ] {
        let url = format!("{url}{options}");
        let (code, value) = examined(bare(&["--url", &url]));
        let bad = bad(&value);
        assert_eq!((code, bad.len()), (2, 1), "{options}: {bad:#?}");
        assert!(bad[0].0 == "postgres-pooler" && bad[0].1.contains(advice), "{options}: {bad:?}");
        let text = stdout(&finish(bare(&["--url", &url, "doctor"])));
        assert!(text.split_whitespace().take(2).eq(["broken", "postgres-pooler"]), "{text}");
    }
    let listen = server.url().replace(':', "%3A").replace('/', "%2F").replace('@', "%40");
    let (code, value) = examined(bare(&["--url", &format!("{url}?listen_url={listen}")]));
    assert_eq!((code, bad(&value)), (0, vec![]), "{value:#}");
}

/// A wrong password makes every request fail for one reason.
#[test]
fn one_reason_is_told_on_one_line() {
    let server = RedisServer::start(&["--requirepass", "right"]);
    let url = format!("redis://:wrong@127.0.0.1:{}", server.port());
    let (code, value) = examined(bare(&["--url", &url]));
    let ids: Vec<_> = bad(&value).into_iter().map(|(id, _)| id).collect();
    assert_eq!((code, &ids[..]), (2, &["reach"][..]), "{value:#}");
    assert_finding(&value, "reach", "broken", "check the user, the password");
}
