//! The descendants of this process. They include descendants in other sessions and process groups, and descendants
//! whose parents have ended.
//!
//! A *subreaper* becomes the parent of every descendant whose parent ends. This process is a subreaper. It signals only
//! its direct children: they are not reaped yet, so no other process can have their ids. When a child ends, its
//! children become direct children of this process, which signals them next.

use std::{fs, os::unix::fs::MetadataExt};

use nix::{
    errno::Errno,
    sys::{
        prctl::set_child_subreaper,
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, Uid, User, getpid},
};

/// A process that cannot be ended, because this user is not allowed to signal it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Survivor {
    pid: i32,
    program: String,
    user: String,
}

/// Makes this process a subreaper: it becomes the parent of every descendant whose parent ends.
///
/// # Errors
/// An error of the operating system.
pub(crate) fn become_subreaper() -> Result<(), Errno> {
    set_child_subreaper(true)
}

/// The next change of a child: the child has ended or was stopped. If it has ended, this call reaps it. `None`: no
/// child has changed.
///
/// # Errors
/// `ECHILD` when there is no child, and therefore no descendant of this process.
pub(crate) fn reap() -> Result<Option<WaitStatus>, Errno> {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED | WaitPidFlag::__WALL;
    loop {
        match waitpid(None, Some(flags)) {
            Ok(WaitStatus::StillAlive) => return Ok(None),
            Ok(status) => return Ok(Some(status)),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Waits until this process has no child left. Call this only if all children end by themselves, because they have no
/// program to run.
pub(crate) fn wait_for_all() {
    while matches!(waitpid(None, Some(WaitPidFlag::__WALL)), Ok(_) | Err(Errno::EINTR)) {}
}

/// Whether this process has no descendants any more. Reaps every child that has ended.
pub(crate) fn has_no_descendants() -> bool {
    loop {
        match reap() {
            Ok(Some(_)) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// Sends a signal to every direct child.
///
/// # Errors
/// `EPERM` when this user is not allowed to signal one of these children.
pub(crate) fn signal_children(signal: Signal) -> Result<(), Errno> {
    signal_children_outside(signal, Pid::from_raw(0))
}

/// Sends a signal to every direct child that is not in the process group `signalled_group`, which got the signal
/// already.
///
/// # Errors
/// `EPERM` when this user is not allowed to signal one of these children.
pub(crate) fn signal_children_outside(signal: Signal, signalled_group: Pid) -> Result<(), Errno> {
    let this_pid = getpid().as_raw();
    let mut result = Ok(());
    for (pid, _) in
        running_processes(|stat| stat.parent == this_pid && stat.group != signalled_group.as_raw())
    {
        if kill(Pid::from_raw(pid), signal) == Err(Errno::EPERM) {
            result = Err(Errno::EPERM);
        }
    }
    result
}

/// Whether a direct child is in the process group `group`. As long as it is, no other process group can have this id.
pub(crate) fn has_child_in(group: Pid) -> bool {
    let this_pid = getpid().as_raw();
    !running_processes(|stat| stat.parent == this_pid && stat.group == group.as_raw()).is_empty()
}

/// The descendants that this user is not allowed to signal. The list is empty if `/proc` cannot be read.
pub(crate) fn survivors() -> Vec<Survivor> {
    let all = running_processes(|_| true);
    let mut family = vec![getpid().as_raw()];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(all.iter().filter(|(_, stat)| stat.parent == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    let ours = all.into_iter().filter(|(pid, _)| family.contains(pid));
    ours.filter(|(pid, _)| kill(Pid::from_raw(*pid), None::<Signal>) == Err(Errno::EPERM))
        .map(|(pid, stat)| Survivor { pid, program: stat.program, user: user_name(pid) })
        .collect()
}

/// The survivors as a list in words.
pub(crate) fn describe(survivors: &[Survivor]) -> String {
    let descriptions = survivors
        .iter()
        .map(|survivor| format!("{} ({}, of user {})", survivor.pid, survivor.program, survivor.user));
    descriptions.collect::<Vec<_>>().join(", ")
}

/// The name of the user that a process runs as.
fn user_name(pid: i32) -> String {
    let Ok(process) = fs::metadata(format!("/proc/{pid}")) else { return "unknown".to_owned() };
    let user = Uid::from_raw(process.uid());
    let name = User::from_uid(user).ok().flatten().map(|user| user.name);
    name.unwrap_or_else(|| user.to_string())
}

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    program: String,
    parent: i32,
    group: i32,
}

/// The running processes whose fields satisfy `wanted`.
fn running_processes(wanted: impl Fn(&Stat) -> bool) -> Vec<(i32, Stat)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let running = processes.filter_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let stat = parse_stat(&fs::read_to_string(process.path().join("stat")).ok()?)?;
        wanted(&stat).then_some((pid, stat))
    });
    running.collect()
}

/// Parses the `stat` line of a process; `None` if the process has ended. The name of its program may contain spaces and
/// parentheses: `42 (a program) S PARENT GROUP ...`.
fn parse_stat(stat: &str) -> Option<Stat> {
    let (before, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let (_, program) = before.split_once('(')?;
    Some(Stat { program: program.to_owned(), parent, group })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_parsed() {
        let read = Stat { program: "a (b) c".into(), parent: 7, group: 40 };
        assert_eq!(parse_stat("42 (a (b) c) S 7 40 40 0 -1"), Some(read));
        assert_eq!(parse_stat("42 (a) Z 7 40 40 0 -1"), None, "it has ended");
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn this_process_is_found_by_its_parent() {
        let parent = nix::unistd::getppid().as_raw();
        let this_pid = getpid().as_raw();
        assert!(running_processes(|stat| stat.parent == parent).iter().any(|(pid, _)| *pid == this_pid));
    }
}
