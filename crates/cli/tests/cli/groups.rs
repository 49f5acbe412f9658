//! Control groups of tests, in which `leasehold` may create its own.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::{
    start::{LEASEHOLD, program},
    tools::{Dir, until},
};

/// The user of tests without root's rights.
pub(crate) const NOBODY: u32 = 65534;

/// A group that is removed at the end of the test, with all its processes.
pub(crate) struct Group(PathBuf);

impl Group {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        assert!(
            nix::unistd::geteuid().is_root(),
            "a control group of its own needs root: run this test as root"
        );
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let group = Self(mount().join(format!("lh-test-{}-{number}", std::process::id())));
        fs::create_dir(&group.0).unwrap();
        group
    }

    /// A group that belongs to `nobody`, as systemd delegates one to a login.
    pub(crate) fn of_nobody() -> Self {
        let group = Self::new();
        group.give("");
        group.give("cgroup.procs");
        group
    }

    /// Makes `nobody` the owner of a file of the group.
    pub(crate) fn give(&self, file: &str) {
        chown(self.0.join(file), Some(NOBODY), Some(NOBODY)).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of the group in `/proc/PID/cgroup`.
    pub(crate) fn name(&self) -> String {
        format!("/{}", self.0.file_name().unwrap().to_str().unwrap())
    }

    /// A program that starts in the group.
    pub(crate) fn program(&self, words: &[&str]) -> Command {
        enter(&self.0, words)
    }

    /// `leasehold` in the group.
    pub(crate) fn leasehold(&self, dir: &Dir, args: &[&str]) -> Command {
        let mut command = self.program(&[&[LEASEHOLD], args].concat());
        command.env("LEASEHOLD_URL", dir.url());
        command
    }

    /// The groups directly below.
    pub(crate) fn below(&self) -> Vec<PathBuf> {
        below(&self.0)
    }

    /// Creates a group below, with a process in it. Returns the process.
    pub(crate) fn with_process(&self, name: &str, mode: u32) -> crate::tools::Running {
        let path = self.0.join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let mut running = crate::tools::Running::start(enter(&path, &["sh", "-c", "echo ready; read line"]));
        assert_eq!(running.line(), "ready");
        running
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        fs::write(self.0.join("cgroup.kill"), "1").unwrap();
        let is_empty = || fs::read_to_string(self.0.join("cgroup.events")).unwrap().contains("populated 0");
        until("an empty group", is_empty);
        remove(&self.0);
    }
}

fn enter(group: &Path, words: &[&str]) -> Command {
    let mut command = program("sh");
    command.args(["-c", "echo 0 >\"$0\"/cgroup.procs && exec \"$@\""]).arg(group).args(words);
    command
}

/// `leasehold` in a mount namespace without cgroups.
pub(crate) fn leasehold_without(args: &[&str]) -> Command {
    let mut command = program("unshare");
    command.args(["--mount", "sh", "-c", "umount \"$0\" && exec \"$@\""]).arg(mount());
    command.arg(LEASEHOLD).args(args);
    command
}

fn below(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).unwrap().map(|entry| entry.unwrap());
    entries.filter(|entry| entry.file_type().unwrap().is_dir()).map(|entry| entry.path()).collect()
}

/// Removes a group and the groups below it, the innermost first.
fn remove(group: &Path) {
    below(group).iter().for_each(|inner| remove(inner));
    // A run that has just ended removes its own group.
    let _ = fs::remove_dir(group);
}

/// Ends the processes that a killed run left below the group of this process. A run of another test may do the same.
pub(crate) fn remove_leaf_of(front: nix::unistd::Pid) {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
    let Some(own) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else { return };
    for leaf in below(&mount().join(own)) {
        if leaf.to_str().unwrap().contains(&format!("/leasehold-{front}-")) {
            let _ = fs::write(leaf.join("cgroup.kill"), "1");
            until("no group", || fs::remove_dir(&leaf).is_ok() || !leaf.exists());
        }
    }
}

/// The mount point of cgroup v2.
pub(crate) fn mount() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_groups = mounts.lines().find(|line| line.contains(" - cgroup2 "));
    let line = of_groups.expect("cgroup2 is mounted: run this test where it is");
    PathBuf::from(line.split(' ').nth(4).unwrap())
}

/// `leasehold` as `nobody`, who becomes root by `./become`, as with sudo.
pub(crate) struct Nobody<'a> {
    dir: &'a Dir,
    group: &'a Group,
}

/// A script that becomes root, prints its pid, and keeps running.
pub(crate) const BECOME: &str =
    "./become --reuid=0 --regid=0 --clear-groups sh -c 'echo $$; exec setsid sleep 1000'; true";

impl<'a> Nobody<'a> {
    pub(crate) fn new(dir: &'a Dir, group: &'a Group) -> Self {
        for (from, name, mode) in [(LEASEHOLD, "leasehold", 0o755), ("/usr/bin/setpriv", "become", 0o4755)] {
            let to = dir.path().join(name);
            assert!(program("cp").arg(from).arg(&to).status().unwrap().success());
            fs::set_permissions(&to, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(dir.locks()).unwrap();
        chown(dir.locks(), Some(NOBODY), Some(NOBODY)).unwrap();
        Self { dir, group }
    }

    pub(crate) fn leasehold(&self, args: &[&str]) -> Command {
        let become_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "./leasehold"];
        let mut command = self.group.program(&[&become_nobody, args].concat());
        command.current_dir(self.dir.path()).env("LEASEHOLD_URL", self.dir.url());
        command
    }
}
