//! The lock directory: whether this user may lock in it, whom it serves, and what is in it.

use std::{fs, path::Path};

use nix::unistd::{AccessFlags, Gid, eaccess, geteuid};

use super::{super::dir::lock_dir::WAKE_PIPE_DIR, mounts::existing};
use crate::{Diagnostic, Severity};

/// Lock files from which on there is a warning: `list` reads two files for each, and no lock file is ever removed.
const MANY_NAMES: usize = 100_000;
/// Wake pipes from which on there is a warning: a process chooses the orphans that it removes among so many entries.
const MANY_PIPES: usize = 4096;

/// What an operator should know about the lock directory. `sharing_group` is the group that shares it.
pub(super) fn diagnose(path: &Path, exists: bool, sharing_group: Option<Gid>) -> Vec<Diagnostic> {
    let shown = path.display();
    let may_write = |path: &Path| eaccess(path, AccessFlags::W_OK | AccessFlags::X_OK).is_ok();
    if !exists {
        let is_creatable = existing(path).is_some_and(|parent| may_write(&parent));
        return vec![if is_creatable {
            Diagnostic::good(
                "file-directory",
                format!("the lock directory {shown} does not exist yet: the first lock creates it"),
            )
        } else {
            Diagnostic::new(
                "file-directory",
                Severity::Broken,
                format!("the lock directory {shown} does not exist, and this user may not create it"),
                "create it and give it to this user, or name another directory in the URL",
            )
        }];
    }
    let directory = if may_write(path) {
        let whom = sharing_group.map_or_else(
            || format!("serves user {} only: other users have locks of their own", geteuid()),
            |group| format!("is shared by group {group}"),
        );
        Diagnostic::good("file-directory", format!("the lock directory {shown} {whom}"))
    } else {
        Diagnostic::new(
            "file-directory",
            Severity::Broken,
            format!("this user may not write the lock directory {shown}"),
            "give this user the right to write it, or name another directory in the URL",
        )
    };
    vec![directory, leftovers(path)]
}

/// What the directory keeps of earlier names and waiters.
fn leftovers(path: &Path) -> Diagnostic {
    let count = |dir: &Path, most: usize, is_counted: fn(&str) -> bool| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_str().is_some_and(is_counted)).take(most).count()
    };
    let names = count(path, MANY_NAMES, |file| file.ends_with(".lock"));
    let pipes = count(&path.join(WAKE_PIPE_DIR), MANY_PIPES, |_| true);
    judge_leftovers(names, pipes, &path.display().to_string())
}

fn judge_leftovers(names: usize, pipes: usize, shown: &str) -> Diagnostic {
    let found = format!("{shown} has lock files of {names} names, and {pipes} wake pipes");
    if names >= MANY_NAMES {
        let advice = "use names that come again, or stripes: a lock file stays for ever; \
            while nobody locks, the directory can be removed";
        return Diagnostic::new("file-leftovers", Severity::Warning, format!("{found}, or more"), advice);
    }
    if pipes >= MANY_PIPES {
        let advice = "killed waiters left them: remove those that no process has open (fuser)";
        return Diagnostic::new("file-leftovers", Severity::Warning, format!("{found}, or more"), advice);
    }
    Diagnostic::good("file-leftovers", found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_leftovers_are_a_warning() {
        let judged = |names, pipes| judge_leftovers(names, pipes, "/d");
        assert_eq!(judged(MANY_NAMES - 1, MANY_PIPES - 1).severity, Severity::Good);
        assert!(judged(MANY_NAMES, 0).advice.contains("stripes"));
        assert!(judged(0, MANY_PIPES).advice.contains("fuser"));
    }
}
