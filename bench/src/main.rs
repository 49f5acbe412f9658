//! The benchmarks (benches). Each bench measures leasehold and another program in turns, in one run, and prints medians
//! and ratios. A *pair* is an acquire and its release.
//!
//! `cargo run --profile measure -p leasehold-bench -- BENCH...`; the results are in `docs/benchmarks.md`.

mod build;
mod child;
mod cluster_free;
mod cluster_holds;
mod cluster_move;
mod command;
mod comparison;
mod contended;
mod election_handover;
mod engines;
mod etcd_bare;
mod etcd_free;
mod etcd_handover;
mod etcd_holds;
mod etcd_messages;
mod etcd_waiters;
mod foreign;
mod free;
mod handover;
mod holds;
mod mysql_free;
mod mysql_waiters;
mod one_name;
mod packages;
mod pairs;
mod postgres_free;
mod postgres_handover;
mod postgres_notify;
mod postgres_session;
mod python;
mod redis_contended;
mod redis_free;
mod redis_handover;
mod redis_holds;
mod redis_languages;
mod redis_site;
mod redlock_free;
mod row_lock;
mod sentinel_failover;
mod sqlite_bare;
mod sqlite_free;
mod sqlite_handover;
mod stamped;
mod zookeeper_bare;
mod zookeeper_free;
mod zookeeper_handover;
mod zookeeper_holds;
mod zookeeper_recipes;
mod zookeeper_socket;

use std::process::ExitCode;

/// The error that ends a bench.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A bench: its name on the command line, a text that says what it measures, and the function that runs it.
type Bench = (&'static str, &'static str, fn() -> Result<(), Failure>);

const BENCHES: [Bench; 41] = [
    ("free", "acquire and release of a free lock, one task", free::bench),
    ("handover", "hand-over between two processes", handover::bench),
    (
        "election",
        "hand-over of the lead between two processes, on Redis and on files",
        election_handover::bench,
    ),
    ("contended", "hand-over within one process, 64 tasks on one name", contended::bench),
    ("holds", "memory of 100,000 holds that are renewed", holds::bench),
    ("command", "`leasehold run x -- true`, the whole process", command::bench),
    ("redis-free", "acquire and release of free names on Redis", redis_free::bench),
    ("redis-handover", "hand-over between two processes on Redis", redis_handover::bench),
    ("redis-contended", "one name on Redis, 32 tasks in each of two processes", redis_contended::contended),
    ("redis-crowd", "10,000 tasks wait for one name in each of four processes", redis_contended::crowds),
    ("redis-holds", "100,000 holds on Redis that are renewed, for five minutes", redis_holds::holds),
    (
        "redis-languages",
        "free names on one Redis, beside npm's redlock, Go's redsync and Redisson",
        redis_languages::bench,
    ),
    (
        "python",
        "the Python module on one Redis, beside redis-py's Lock and the same calls in Rust",
        python::bench,
    ),
    ("redis-names", "what a million names leave on Redis", redis_holds::names),
    (
        "redlock-free",
        "acquire and release of free names on a Redlock, also with a node that hangs",
        redlock_free::bench,
    ),
    (
        "cluster-free",
        "acquire and release of free names on a Redis Cluster, beside one server",
        cluster_free::bench,
    ),
    ("cluster-holds", "100,000 holds on six masters that are renewed, for 90 seconds", cluster_holds::bench),
    ("cluster-move", "a slot moves under 100 holds and 100 waiters", cluster_move::bench),
    (
        "sentinel-failover",
        "a master is killed under holds, and Sentinels name another",
        sentinel_failover::bench,
    ),
    ("etcd-free", "acquire and release of free names on etcd", etcd_free::bench),
    ("etcd-handover", "hand-over between two processes on etcd", etcd_handover::bench),
    ("etcd-contended", "one name on etcd, several tasks in each of several processes", one_name::etcd),
    ("etcd-waiters", "10,000 names on etcd, each with one waiter", etcd_waiters::bench),
    ("etcd-holds", "10,000 holds on etcd that are renewed, for a minute", etcd_holds::bench),
    ("zookeeper-free", "acquire and release of free names on ZooKeeper", zookeeper_free::bench),
    ("zookeeper-handover", "hand-over between two processes on ZooKeeper", zookeeper_handover::bench),
    (
        "zookeeper-contended",
        "one name on ZooKeeper, several tasks in each of several processes",
        one_name::zookeeper,
    ),
    ("zookeeper-holds", "10,000 holds on ZooKeeper that are renewed, for a minute", zookeeper_holds::bench),
    ("zookeeper-recipes", "the recipes of Curator and kazoo on the same ZooKeeper", zookeeper_recipes::bench),
    ("postgres-free", "acquire and release of free names on PostgreSQL", postgres_free::bench),
    ("postgres-handover", "hand-over between two processes on PostgreSQL", postgres_handover::bench),
    ("postgres-notify", "what notifications cost PostgreSQL", postgres_notify::bench),
    ("postgres-session", "locks of sessions on PostgreSQL", postgres_session::bench),
    ("row-lock", "transactions that lock a row on PostgreSQL and MariaDB", row_lock::bench),
    ("sqlite-free", "acquire and release of free names in an SQLite file", sqlite_free::bench),
    ("sqlite-handover", "hand-over between two processes in an SQLite file", sqlite_handover::bench),
    ("mysql-free", "acquire and release of free names on MariaDB", mysql_free::bench),
    ("mysql-waiters", "1,000 claims wait for one name on MariaDB, in four clients", mysql_waiters::bench),
    ("engines", "all engines side by side, in about ten minutes: a table and a chart", engines::bench),
    ("engines-brief", "the same in about a minute, to see that everything works: no figures", engines::brief),
    ("build", "cold build of the command", build::bench),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["child", ref rest @ ..] => child::main(rest),
        [] => Err(usage().into()),
        _ => args.iter().try_for_each(|name| run(name)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str) -> Result<(), Failure> {
    let (_, about, bench) = BENCHES.iter().find(|(known, ..)| *known == name).ok_or_else(usage)?;
    println!("\n{name}: {about}");
    bench()
}

fn usage() -> String {
    let list = BENCHES.map(|(name, about, _)| format!("  {name:18} {about}")).join("\n");
    format!("name one or more of these:\n{list}")
}
