//! Decides whether a run is allowed to create a control group of its own below a given control group.

use std::{fs, path::Path};

/// The suffixes of the names of groups that systemd creates.
const UNIT_SUFFIXES: [&str; 6] = ["service", "scope", "slice", "socket", "mount", "swap"];
/// The extended attributes by which systemd marks a group as delegated. Programs other than systemd are allowed to
/// create groups below a delegated group. See <https://systemd.io/CGROUP_DELEGATION/>.
const DELEGATION_ATTRIBUTES: [&str; 2] = ["user.delegate", "trusted.delegate"];
/// The files with the limits of a group. Programs that adapt to such a limit (the heap of a JVM, the threads of a
/// runtime) often read it only in their own group. In a new group below the limited group they would see no limit.
const LIMITS: [&str; 3] = ["memory.max", "memory.high", "cpu.max"];
/// The word for "no limit" in one of the files of [`LIMITS`].
const UNLIMITED: &str = "max";

/// Fails if a run must not create groups below `group`.
///
/// # Errors
/// A text that says why the run must not create groups there.
pub(crate) fn check_may_create_below(group: &Path) -> Result<(), String> {
    let shown = group.display();
    if Path::new("/run/systemd/system").is_dir() && !is_delegated(group) {
        return Err(format!("{shown} is managed by systemd, without Delegate=yes"));
    }
    match first_limit(group) {
        Some(limit) => {
            Err(format!("{shown}/{limit} is set, and many programs read it only in their own group"))
        }
        None => Ok(()),
    }
}

/// Whether systemd has delegated the unit that the group belongs to. Then programs other than systemd are allowed to
/// create groups in the unit.
fn is_delegated(group: &Path) -> bool {
    let is_unit = |group: &&Path| {
        group
            .extension()
            .and_then(|suffix| suffix.to_str())
            .is_some_and(|suffix| UNIT_SUFFIXES.contains(&suffix))
    };
    group.ancestors().find(is_unit).is_some_and(|unit| {
        DELEGATION_ATTRIBUTES.iter().any(|attribute| {
            let mut value = [0; 8];
            matches!(rustix::fs::getxattr(unit, *attribute, &mut value[..]), Ok(1) if value[0] == b'1')
        })
    })
}

/// The first file of [`LIMITS`] that sets a limit on a group. `None`: the group has no limit.
fn first_limit(group: &Path) -> Option<&'static str> {
    LIMITS.into_iter().find(|limit| {
        let content = fs::read_to_string(group.join(limit));
        content.is_ok_and(|content| content.split_ascii_whitespace().next() != Some(UNLIMITED))
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::{XattrFlags, setxattr};

    use super::*;
    use crate::cgroup::Group;

    #[test]
    fn the_nearest_systemd_unit_decides_delegation() {
        let own = Group::of_this_process()
            .expect("this test needs cgroup v2, mounted and writable: run it as root");
        let dir = own.path().join(format!("lh-unit-{}-delegation", std::process::id()));
        let user = dir.join("user.slice/user@7.service");
        let job = user.join("app.slice/job.service");
        let inner = job.join("leasehold-7-a/below");
        fs::create_dir_all(&inner).unwrap();
        let mark = |unit: &Path| setxattr(unit, DELEGATION_ATTRIBUTES[0], b"1", XattrFlags::empty()).unwrap();
        let made = Group::open(&dir).unwrap();
        assert!(!is_delegated(&dir) && !is_delegated(&user));
        mark(&user);
        assert!(is_delegated(&user) && is_delegated(&user.join("x")));
        assert!(
            !is_delegated(&job) && !is_delegated(&inner),
            "the delegation is to the systemd of that user"
        );
        mark(&job);
        assert!(is_delegated(&job) && is_delegated(&inner));
        made.remove().unwrap();
    }

    #[test]
    fn a_set_limit_is_found() {
        let dir = std::env::temp_dir().join(format!("lh-unit-{}-limits", std::process::id()));
        fs::create_dir(&dir).unwrap();
        assert_eq!(first_limit(&dir), None, "no controller");
        for (file, content, found) in [
            ("memory.max", "max\n", None),
            ("cpu.max", "max 100000\n", None),
            ("cpu.max", "50000 100000\n", Some("cpu.max")),
            ("memory.max", "1073741824\n", Some("memory.max")),
        ] {
            fs::write(dir.join(file), content).unwrap();
            assert_eq!(first_limit(&dir), found);
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
