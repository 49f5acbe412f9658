//! What this process sees of other processes: their names are shown beside holds, and `break` asks them to stop.

use std::path::Path;

use nix::unistd::geteuid;

use super::mounts::{MOUNTS, Mount};
use crate::{Diagnostic, Severity};

/// The link to the pid namespace of this process.
const PID_NAMESPACE: &str = "/proc/self/ns/pid";
/// The pid namespace of the machine itself, which has a fixed number in every kernel.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// What this process sees of the processes that share the lock directory. `is_shared`: those of other users too.
pub(super) fn diagnose(is_shared: bool) -> Diagnostic {
    let namespace =
        std::fs::read_link(PID_NAMESPACE).ok().and_then(|link| link.into_os_string().into_string().ok());
    let proc_mount =
        std::fs::read(MOUNTS).ok().and_then(|mounts| Mount::of(&mounts, Path::new("/proc/self")));
    let hides = proc_mount.and_then(|mount| mount.value("hidepid").map(str::to_owned));
    let sees_all = geteuid().is_root() || !is_shared;
    judge(namespace.as_deref(), hides.as_deref().filter(|_| !sees_all))
}

/// `hides`: the value of `hidepid`, if it hides processes that share the directory.
fn judge(namespace: Option<&str>, hides: Option<&str>) -> Diagnostic {
    match (namespace, hides) {
        (_, Some(value)) if !["0", "off"].contains(&value) => Diagnostic::new(
            "file-processes",
            Severity::Warning,
            format!(
                "/proc hides the processes of other users (hidepid={value}): their foreign holds have no name, and `break` is refused"
            ),
            "break and look as root, or mount /proc with a gid= that this user belongs to",
        ),
        (None, _) => Diagnostic::new(
            "file-processes",
            Severity::Unknown,
            format!("{PID_NAMESPACE} cannot be read, so it is not known which processes are seen here"),
            "mount /proc",
        ),
        (Some(FIRST_NAMESPACE), _) => {
            Diagnostic::good("file-processes", "all processes of this machine are seen")
        }
        (Some(_), _) => Diagnostic::good(
            "file-processes",
            "only processes of this container are seen: locks exclude others too, but `break` reaches only these",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_processes_are_a_warning() {
        let judged = |namespace, hides| judge(namespace, hides).severity;
        assert_eq!(judged(Some(FIRST_NAMESPACE), None), Severity::Good);
        assert_eq!(judged(Some("pid:[1]"), Some("0")), Severity::Good);
        assert!(judge(Some("pid:[1]"), None).found.contains("container"));
        for value in ["1", "2", "4", "invisible", "ptraceable"] {
            assert_eq!(judged(Some(FIRST_NAMESPACE), Some(value)), Severity::Warning, "{value}");
        }
        assert_eq!(judged(None, None), Severity::Unknown);
    }
}
