//! The second process of a bench: this program again, told by its arguments what to do.

use std::{
    io,
    process::{Child, Command, Stdio},
};

use crate::{
    Failure, contended, etcd_handover, handover, holds, redis_handover, redis_line, zookeeper_handover,
    zookeeper_holds,
};

/// Starts this program as a child that does `what`.
pub(crate) fn start(what: &[&str]) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg("child")
        .args(what)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

/// What a child printed, when it ended well.
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
        ["published", port] => redis_handover::hear(port),
        ["etcd-handover", keeper, from, port] => etcd_handover::child(keeper, from, port),
        ["watched", port] => etcd_handover::hear(port),
        ["zookeeper-handover", keeper, from, port] => zookeeper_handover::child(keeper, from, port),
        ["zookeeper-watched", port] => zookeeper_handover::hear(port),
        ["zookeeper-holds", port] => zookeeper_holds::child(port),
        ["contend", way, url] => redis_line::contend(way, url),
        ["crowd", url] => redis_line::crowd(url),
        ["neighbour", dir] => contended::neighbour(dir),
        ["holds"] => holds::child(),
        _ => Err("an unknown task for a child".into()),
    }
}
