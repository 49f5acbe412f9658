//! The child processes of a bench. A child runs the same program as the bench; its arguments say what to do.

use std::{
    io,
    process::{Child, Command, Stdio},
};

use crate::{
    Failure, cluster_holds, contended, election_handover, engines, etcd_handover, handover, holds, one_name,
    postgres_handover, postgres_session, redis_contended, redis_handover, sqlite_bare, sqlite_free,
    sqlite_handover, zookeeper_handover, zookeeper_holds,
};

/// Starts this program as a child with these arguments.
pub(crate) fn start(arguments: &[&str]) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg("child")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

/// Waits until a child has ended, and returns its output. Returns an error if the child failed.
pub(crate) fn output(child: Child) -> Result<String, Failure> {
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("a child ended with {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

pub(crate) fn main(arguments: &[&str]) -> Result<(), Failure> {
    match arguments {
        ["handover", candidate, place, count, hold, pause] => {
            handover::child(candidate, place, [count, hold, pause])
        }
        ["election-handover", candidate, url] => election_handover::child(candidate, url),
        ["hold", url, ttl] => engines::hold_until_killed(url, ttl),
        ["redis-handover", keeper, release_point, port] => redis_handover::child(keeper, release_point, port),
        ["published", port] => redis_handover::print_arrivals(port),
        ["etcd-handover", keeper, release_point, port] => etcd_handover::child(keeper, release_point, port),
        ["watched", port] => etcd_handover::print_arrivals(port),
        ["one-name", tasks, url] => one_name::child(tasks, url),
        ["busy-name", url] => one_name::busy_child(url, |_| one_name::NAME.to_owned()),
        ["busy-names", url] => one_name::busy_child(url, |task| format!("busy-{task}")),
        ["zookeeper-handover", keeper, release_point, port] => {
            zookeeper_handover::child(keeper, release_point, port)
        }
        ["zookeeper-watched", port] => zookeeper_handover::print_arrivals(port),
        ["zookeeper-holds", port] => zookeeper_holds::child(port),
        ["postgres-handover", keeper, release_point, port] => {
            postgres_handover::child(keeper, release_point, port)
        }
        ["postgres-notified", port] => postgres_handover::print_arrivals(port),
        ["postgres-session-handover", keeper, release_point, port] => {
            postgres_session::child(keeper, release_point, port)
        }
        ["postgres-session-hold", port] => postgres_session::hold(port),
        ["sqlite-free", path, tasks] => sqlite_free::child(path, tasks),
        ["sqlite-handover", keeper, path] => sqlite_handover::child(keeper, path),
        ["sqlite-seen", path, first] => sqlite_bare::print_commits(path, first),
        ["cluster-holds", url] => cluster_holds::child(url),
        ["contend", candidate, url] => redis_contended::contend(candidate, url),
        ["crowd", url] => redis_contended::crowd(url),
        ["neighbour", dir] => contended::neighbour(dir),
        ["holds"] => holds::child(),
        _ => Err("unknown arguments for a child".into()),
    }
}
