//! Control groups of Linux, version 2. Finds the group of this process. Lists, kills or moves the processes of a group,
//! and removes a group.
//! See <https://docs.kernel.org/admin-guide/cgroup-v2.html>.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::{
        signal::{Signal, kill},
        stat::Mode,
    },
    unistd::{Pid, getpid},
};

/// The size of the buffer for one of the kernel's files about a group. Most of these files are shorter.
const USUAL_SIZE: usize = 8 << 10;
/// The largest number of bytes of a kernel file about a group that are read. The list of the processes of a group is
/// shorter, because a group has at most four million processes.
const MAX_SIZE: u64 = 64 << 20;

/// A control group. Its files are read and written through its open descriptor, so that no read or write reaches
/// another group that was created later under the same path. Listing the groups below it, and removing the group, use
/// the path.
pub(crate) struct Group {
    path: PathBuf,
    dir: File,
}

impl Group {
    /// The control group of this process.
    ///
    /// # Errors
    /// A text that says why the group cannot be determined.
    pub(crate) fn of_this_process() -> Result<Self, String> {
        let read =
            |file: &str| File::open(file).and_then(read_text).map_err(|error| format!("{file}: {error}"));
        let path = group_directory(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
            .ok_or("there is no mount that shows the cgroup v2 of this process")?;
        let failed = |error| format!("{}: {error}", path.display());
        let group = Self::open(&path).map_err(failed)?;
        // In a container that shows a part of its host's groups, another mount may hide the directory of the group.
        // Then the directory at `path` belongs to another group.
        if !group.processes().map_err(failed)?.contains(&getpid().as_raw()) {
            return Err(format!("{} is not the cgroup of this process", path.display()));
        }
        Ok(group)
    }

    /// Opens the group at `path`.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), dir: File::open(path)? })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of the group, as a file that can be locked.
    pub(crate) const fn dir(&self) -> &File {
        &self.dir
    }

    /// The groups directly below this one that this user is allowed to open.
    pub(crate) fn subgroups(&self) -> Vec<Self> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        groups.filter_map(|group| Self::open(&group.path()).ok()).collect()
    }

    /// The file `cgroup.procs`, through which processes move into the group.
    ///
    /// # Errors
    /// An error of the operating system, for instance because the group was removed.
    pub(crate) fn entrance(&self) -> io::Result<File> {
        self.open_file("cgroup.procs", OFlag::O_WRONLY)
    }

    /// Moves a process into the group.
    ///
    /// # Errors
    /// An error of the operating system, for instance because the process has ended.
    pub(crate) fn move_in(&self, pid: i32) -> io::Result<()> {
        self.entrance()?.write_all(pid.to_string().as_bytes())
    }

    /// The processes in the group itself, without those in groups below it.
    ///
    /// # Errors
    /// An error of the operating system, for instance because the group was removed.
    pub(crate) fn processes(&self) -> io::Result<Vec<i32>> {
        Ok(self.read("cgroup.procs")?.lines().filter_map(|pid| pid.parse().ok()).collect())
    }

    /// Whether any process is in the group or below it. Processes that have ended do not count. Returns false if the
    /// group cannot be read.
    pub(crate) fn is_populated(&self) -> bool {
        self.read("cgroup.events").is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
    }

    /// Kills all processes in the group and below it, whatever user they run as, and all processes that these start
    /// meanwhile. Does not wait until they have ended.
    ///
    /// # Errors
    /// An error of the operating system. On Linux before 5.14, which has no `cgroup.kill`, one such error is `EPERM`:
    /// this user is not allowed to signal some of the processes.
    pub(crate) fn kill(&self) -> io::Result<()> {
        match self.write("cgroup.kill", "1") {
            // Either the kernel has no `cgroup.kill`, or threads of one process are in several groups.
            Err(error) if is_one_of(&error, &[Errno::ENOENT, Errno::EINVAL, Errno::EOPNOTSUPP]) => {
                self.kill_each()
            }
            done => done,
        }
    }

    /// Does what [`kill`](Self::kill) does, but with one signal for each process, for kernels without `cgroup.kill`.
    fn kill_each(&self) -> io::Result<()> {
        // A frozen process starts no other process, and can still be killed.
        let _ = self.write("cgroup.freeze", "1");
        let below = self.subgroups().iter().map(Self::kill_each).fold(Ok(()), Result::and);
        let processes = match self.processes() {
            Err(error) if is_one_of(&error, &[Errno::ENOENT, Errno::ENODEV]) => return below,
            processes => processes?,
        };
        let killed = processes.into_iter().map(|pid| match kill(Pid::from_raw(pid), Signal::SIGKILL) {
            Err(Errno::EPERM) => Err(Errno::EPERM.into()),
            _ => Ok(()),
        });
        killed.fold(below, Result::and)
    }

    /// Removes the group if it has no processes and no groups below it.
    ///
    /// # Errors
    /// An error of the operating system: `EBUSY` if the group has processes or groups below it.
    pub(crate) fn remove_if_empty(&self) -> io::Result<()> {
        fs::remove_dir(&self.path)
    }

    /// Removes the group and the groups below it, if no process is in any of them.
    ///
    /// # Errors
    /// An error of the operating system: `EBUSY` if a process is in one of them. Also fails if another process has
    /// locked a group below this one. Then the group stays.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match self.remove_if_empty() {
            Err(error) if is_one_of(&error, &[Errno::EBUSY]) && !self.is_populated() => {
                for inner in self.subgroups() {
                    // If another process has locked `inner`, that process is about to use it. Then this line fails, and
                    // `inner` is not removed.
                    inner.dir.try_lock_shared()?;
                    inner.remove()?;
                }
                self.remove_if_empty()
            }
            done => done,
        }
    }

    /// Reads a file of the group.
    fn read(&self, name: &str) -> io::Result<String> {
        read_text(self.open_file(name, OFlag::O_RDONLY)?)
    }

    /// Writes a file of the group.
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.open_file(name, OFlag::O_WRONLY)?.write_all(text.as_bytes())
    }

    /// Opens a file of the group.
    fn open_file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        Ok(openat(&self.dir, name, flags | OFlag::O_CLOEXEC, Mode::empty())?.into())
    }
}

/// Reads a file whose size the kernel does not report. The buffer grows only if the file is longer than [`USUAL_SIZE`].
fn read_text(file: File) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(USUAL_SIZE);
    file.take(MAX_SIZE).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Whether the error has one of these error numbers.
fn is_one_of(error: &io::Error, errnos: &[Errno]) -> bool {
    error.raw_os_error().is_some_and(|number| errnos.contains(&Errno::from_raw(number)))
}

/// The number of fields before ROOT in a line of `mountinfo`.
const FIELDS_BEFORE_ROOT: usize = 3;

/// The directory of a process's group, from the process's `mountinfo` and `cgroup` files. In `cgroup`, the group of
/// version 2 is in the line without a controller (`0::PATH`). A line of `mountinfo` says which part of the hierarchy a
/// mount shows (ROOT), and in which directory (MOUNT_POINT):
/// `ID PARENT DEVICE ROOT MOUNT_POINT OPTIONS ... - TYPE SOURCE OPTIONS`.
fn group_directory(mounts: &str, groups: &str) -> Option<PathBuf> {
    let group = Path::new(groups.lines().find_map(|line| line.strip_prefix("0::"))?);
    mounts.lines().find_map(|mount| {
        let (mount, system) = mount.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(FIELDS_BEFORE_ROOT);
        let (root, mount_point) = (fields.next()?, fields.next()?);
        let path_below_root = group.strip_prefix(root).ok().filter(|_| system.starts_with("cgroup2 "))?;
        // The path of a group outside of this process's namespace begins with `/..`. Such a group is not in the mount.
        path_below_root
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
            .then(|| Path::new(mount_point).join(path_below_root))
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    #[test]
    fn the_group_directory_is_found_in_mountinfo() {
        const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            32 31 0:29 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n\
            41 31 0:41 / /sys/fs/cgroup/unified rw shared:1 - cgroup2 cgroup2 rw\n";
        const CONTAINER: &str = "41 31 0:41 /docker/7 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        const HOST: &str = "41 31 0:41 /../.. /host/cgroup rw - cgroup2 cgroup rw\n";
        for (mounts, groups, found) in [
            (HYBRID, "9:cpu:/\n0::/\n", Some("/sys/fs/cgroup/unified")),
            (HYBRID, "0::/user.slice/a.scope", Some("/sys/fs/cgroup/unified/user.slice/a.scope")),
            (HYBRID, "9:cpu:/", None),
            (HYBRID, "0::/../other", None),
            ("31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw", "0::/", None),
            (CONTAINER, "0::/docker/7/x", Some("/sys/fs/cgroup/x")),
            (CONTAINER, "0::/docker/77", None),
            (HOST, "0::/", None),
            (HOST, "0::/../../a", Some("/host/cgroup/a")),
            ("", "", None),
            ("nonsense", "0::/", None),
        ] {
            assert_eq!(group_directory(mounts, groups).as_deref(), found.map(Path::new), "{mounts} {groups}");
        }
    }

    /// A process in a group that the test creates below the group of the test.
    struct Inner {
        group: Group,
        child: Child,
    }

    impl Inner {
        fn new(name: &str) -> Self {
            let own = Group::of_this_process()
                .expect("this test needs cgroup v2, mounted and writable: run it as root");
            let path = own.path.join(format!("lh-unit-{}-{name}", std::process::id()));
            fs::create_dir_all(path.join("below")).unwrap();
            let script = format!("echo 0 >{}/below/cgroup.procs && exec sleep 1000", path.display());
            let child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
            let group = Group::open(&path).unwrap();
            while !group.is_populated() {
                std::thread::yield_now();
            }
            Self { group, child }
        }

        fn assert_killed(mut self) {
            let status = self.child.wait().unwrap();
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
            while self.group.is_populated() {
                std::thread::yield_now();
            }
            self.group.remove().unwrap();
            assert!(!self.group.path.exists());
        }
    }

    #[test]
    fn kill_ends_all_processes_of_a_group() {
        let inner = Inner::new("kill");
        assert!(inner.group.remove().is_err(), "a group with processes is not removed");
        inner.group.kill().unwrap();
        inner.assert_killed();
        let inner = Inner::new("each");
        inner.group.kill_each().unwrap();
        inner.assert_killed();
    }
}
