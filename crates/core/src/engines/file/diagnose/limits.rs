//! The limits that locks on files of this machine meet: open files of a process, and inotify instances of a user.

use std::path::Path;

use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags, InitFlags, Inotify},
};
use rustix::process::{Resource, getrlimit};

use crate::{Diagnostic, Severity};

/// The open files from which on there is no warning. A name that is held or waited for has two open files, and the
/// library keeps up to a hundred more open for names that it used before.
const ENOUGH_OPEN_FILES: u64 = 256;
/// Where the kernel tells how many inotify instances and watches a user may have.
const INOTIFY_SETTINGS: &str = "/proc/sys/fs/inotify";

/// The ids under which an engine reports what this module finds.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct LimitIds {
    /// The limit of open files.
    pub open_files_id: &'static str,
    /// The limits of inotify.
    pub inotify_id: &'static str,
}

/// What an operator should know about the limits of this process and its user. If there is a path to watch, a watch on
/// it is tried.
#[doc(hidden)]
#[must_use]
pub fn diagnose_limits(watched: Option<&Path>, ids: &LimitIds) -> Vec<Diagnostic> {
    vec![of_open_files(getrlimit(Resource::Nofile).current, ids), of_inotify(try_watch(watched), ids)]
}

/// The diagnostic about a limit of open files; `None` is no limit.
fn of_open_files(limit: Option<u64>, ids: &LimitIds) -> Diagnostic {
    match limit {
        Some(limit) if limit < ENOUGH_OPEN_FILES => Diagnostic::new(
            ids.open_files_id,
            Severity::Warning,
            format!(
                "a process of this user may have only {limit} open files, and a name that is held or waited for needs two"
            ),
            format!("raise the limit to {ENOUGH_OPEN_FILES} or more (ulimit -n, LimitNOFILE= of systemd)"),
        ),
        Some(limit) => {
            Diagnostic::good(ids.open_files_id, format!("a process of this user may have {limit} open files"))
        }
        None => {
            Diagnostic::good(ids.open_files_id, "a process of this user may have any number of open files")
        }
    }
}

/// Makes an inotify instance as a waiting process does, and a watch if there is something to watch. Both end at once.
fn try_watch(watched: Option<&Path>) -> Result<(), Errno> {
    let instance = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    watched.map_or(Ok(()), |path| instance.add_watch(path, AddWatchFlags::IN_CLOSE_WRITE).map(drop))
}

/// The diagnostic about an attempt to make an inotify instance and a watch.
fn of_inotify(tried: Result<(), Errno>, ids: &LimitIds) -> Diagnostic {
    let setting = |name: &str| {
        let value = std::fs::read_to_string(format!("{INOTIFY_SETTINGS}/{name}")).ok();
        format!("fs.inotify.{name}, now {}", value.as_deref().map_or("unknown", str::trim))
    };
    let advice = match tried {
        Ok(()) => return Diagnostic::good(ids.inotify_id, "inotify wakes waiting processes"),
        Err(Errno::EMFILE) => {
            format!("raise {}, or the limit of open files", setting("max_user_instances"))
        }
        Err(Errno::ENOSPC) => format!("raise {}", setting("max_user_watches")),
        Err(_) => "allow this process the system calls of inotify".to_owned(),
    };
    let cause = tried.err().map_or("", Errno::desc);
    let found = format!(
        "inotify is not available ({cause}): waiting processes ask again and again instead of being woken"
    );
    Diagnostic::new(ids.inotify_id, Severity::Warning, found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: LimitIds = LimitIds { open_files_id: "files", inotify_id: "inotify" };

    #[test]
    fn few_open_files_are_a_warning() {
        let judged = |limit| of_open_files(limit, &IDS).severity;
        assert_eq!(judged(Some(ENOUGH_OPEN_FILES - 1)), Severity::Warning);
        assert_eq!(judged(Some(ENOUGH_OPEN_FILES)), Severity::Good);
        assert_eq!(judged(None), Severity::Good);
    }

    #[test]
    fn each_failure_of_inotify_names_its_limit() {
        for (errno, word) in [
            (Errno::EMFILE, "fs.inotify.max_user_instances, now "),
            (Errno::ENOSPC, "fs.inotify.max_user_watches, now "),
            (Errno::EPERM, "system calls"),
        ] {
            let found = of_inotify(Err(errno), &IDS);
            assert!(found.severity == Severity::Warning && found.advice.contains(word), "{found:?}");
        }
        assert_eq!(of_inotify(try_watch(Some(Path::new("/"))), &IDS).severity, Severity::Good);
    }
}
