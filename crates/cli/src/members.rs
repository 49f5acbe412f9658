//! Who is in a process group.

use std::{fs, os::unix::fs::MetadataExt};

use nix::unistd::{Pid, Uid, User};

/// A process of a group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) pid: i32,
    pub(crate) program: String,
    pub(crate) user: String,
}

/// The processes of a group that have not ended. None where `/proc` cannot be read.
pub(crate) fn members(group: Pid) -> Vec<Member> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(process.path().join("stat")).ok()?;
            let program = running(&stat, group)?.to_owned();
            let user = Uid::from_raw(process.metadata().ok()?.uid());
            let name = User::from_uid(user).ok().flatten().map(|user| user.name);
            Some(Member { pid, program, user: name.unwrap_or_else(|| user.to_string()) })
        })
        .collect()
}

/// The name of the program, if it runs in this group. It may hold spaces and parentheses: `42 (a program) S 1 GROUP ...`.
fn running(stat: &str, group: Pid) -> Option<&str> {
    let (before, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    let found: i32 = fields.nth(1)?.parse().ok()?;
    let (_, program) = before.split_once('(')?;
    (!ended && found == group.as_raw()).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_read() {
        let group = Pid::from_raw(40);
        assert_eq!(running("42 (a (b) c) S 1 40 40 0 -1", group), Some("a (b) c"));
        assert_eq!(running("42 (a) S 1 41 40 0 -1", group), None);
        assert_eq!(running("42 (a) Z 1 40 40 0 -1", group), None);
        assert_eq!(running("nonsense", group), None);
    }

    #[test]
    fn this_process_is_in_its_group() {
        let own = std::process::id() as i32;
        assert!(members(nix::unistd::getpgrp()).iter().any(|member| member.pid == own));
    }
}
