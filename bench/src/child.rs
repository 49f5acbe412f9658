//! The second process of a bench: this program again, with arguments that say what to do.

use std::{
    io,
    process::{Child, Command, Stdio},
};

use crate::{
    Failure, cluster_holds, contended, etcd_handover, handover, holds, one_name, postgres_handover,
    redis_contended, redis_handover, sqlite_bare, sqlite_free, sqlite_handover, zookeeper_handover,
    zookeeper_holds,
};

/// Starts this program as a child with these arguments.
pub(crate) fn start(what: &[&str]) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg("child")
        .args(what)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

/// The output of a child, if it ended with success.
pub(crate) fn output(child: Child) -> Result<String, Failure> {
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("a child ended with {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

pub(crate) fn main(what: &[&str]) -> Result<(), Failure> {
    match what {
        ["handover", way, place] => handover::child(way, place),
        ["redis-handover", keeper, from, port] => redis_handover::child(keeper, from, port),
        ["published", port] => redis_handover::receive(port),
        ["etcd-handover", keeper, from, port] => etcd_handover::child(keeper, from, port),
        ["watched", port] => etcd_handover::receive(port),
        ["one-name", tasks, url] => one_name::child(tasks, url),
        ["busy-name", url] => one_name::busy_child(url),
        ["zookeeper-handover", keeper, from, port] => zookeeper_handover::child(keeper, from, port),
        ["zookeeper-watched", port] => zookeeper_handover::receive(port),
        ["zookeeper-holds", port] => zookeeper_holds::child(port),
        ["postgres-handover", keeper, from, port] => postgres_handover::child(keeper, from, port),
        ["postgres-notified", port] => postgres_handover::receive(port),
        ["sqlite-free", path, tasks] => sqlite_free::child(path, tasks),
        ["sqlite-handover", keeper, path] => sqlite_handover::child(keeper, path),
        ["sqlite-seen", path, first] => sqlite_bare::print_commits(path, first),
        ["cluster-holds", url] => cluster_holds::child(url),
        ["contend", way, url] => redis_contended::contend(way, url),
        ["crowd", url] => redis_contended::crowd(url),
        ["neighbour", dir] => contended::neighbour(dir),
        ["holds"] => holds::child(),
        _ => Err("unknown arguments for a child".into()),
    }
}
