//! The file of `--metrics-file`: series about the runs of a name, for the text-file collector of the node exporter.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, SystemTime},
};

use leasehold_ops::series::{RunEnd, RunSeries};
use nix::errno::Errno;
use rustix::fs::{FlockOperation, flock};

use crate::{engines, event_loop::now, exit::Failure, plan::Run};

/// The collector reads only files with this end.
const EXTENSION: &str = "prom";
/// The longest file that is read: a file of one job has less than 4 KiB.
const MAX_BYTES: u64 = 64 * 1024;
/// Another run of the same user may be updating the file, which takes far less than this time. At the begin and at the
/// end of a run the file is written after it all the same, because the run must not wait for others.
const LOCK_LIMIT: Duration = Duration::from_secs(1);
/// How long a run with a CMD that has just started waits for the lock. A loss of the hold is not noticed meanwhile.
const LOCK_LIMIT_WHILE_CMD_RUNS: Duration = Duration::from_millis(100);
const LOCK_INTERVAL: Duration = Duration::from_millis(5);
/// Every user may read the file: the collector runs as a user of its own.
const MODE: u32 = 0o644;

/// A file with series about the runs of a name.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    path: PathBuf,
    /// The directory of the file.
    directory: PathBuf,
    /// A new file, which then replaces the file. The collector does not read it.
    scratch: PathBuf,
}

impl MetricsFile {
    /// The file with this path.
    ///
    /// # Errors
    /// If the collector would not read the path.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        let path = std::path::absolute(path)?;
        let name = path.file_name().filter(|_| path.extension().is_some_and(|end| end == EXTENSION));
        let Some((name, directory)) = name.zip(path.parent()) else {
            return Err(invalid("its name must end in .prom, because the node exporter reads no other file"));
        };
        let process = format!(".{}", std::process::id());
        let scratch: OsString = [".".as_ref(), name, process.as_ref()].into_iter().collect();
        Ok(Self { scratch: directory.join(scratch), directory: directory.to_owned(), path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Records that a run begins.
    ///
    /// # Errors
    /// An error of the operating system, or the file has contents of another program.
    pub(crate) fn begin(&self, plan: &Run) -> io::Result<()> {
        let lock = self.lock(LOCK_LIMIT);
        self.update(plan, lock, |series| series.begun(SystemTime::now()))
    }

    /// Records that the names were granted. Returns `false` if another run is updating the file: CMD does not wait for
    /// it, and [`started`](Self::started) repeats this call.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub(crate) fn granted(&self, plan: &Run) -> io::Result<bool> {
        self.record_grant(plan, Duration::ZERO)
    }

    /// Records, after the start of CMD, that the names were granted. While another process keeps the directory locked,
    /// the file does not show the hold.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub(crate) fn started(&self, plan: &Run) -> io::Result<bool> {
        self.record_grant(plan, LOCK_LIMIT_WHILE_CMD_RUNS)
    }

    /// Records the grant if the lock of the directory is free within `limit`. Returns whether it was.
    fn record_grant(&self, plan: &Run, limit: Duration) -> io::Result<bool> {
        let Some(granted) = plan.course.granted_at() else { return Ok(true) };
        let Some(lock) = self.lock(limit) else { return Ok(false) };
        let waited = plan.course.waited(now()).unwrap_or_default();
        self.update(plan, Some(lock), |series| series.granted(granted, waited)).map(|()| true)
    }

    /// Records that a run has ended with this result.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub(crate) fn end(&self, plan: &Run, result: &Result<u8, Failure>) -> io::Result<()> {
        let end = now();
        let end = RunEnd {
            at: SystemTime::now(),
            outcome: plan.course.outcome(result),
            exit: result.as_ref().map_or_else(|failure| failure.code, |code| *code),
            waited: plan.course.waited(end),
            held: plan.course.held(end),
            granted: plan.course.granted_at(),
        };
        let lock = self.lock(LOCK_LIMIT);
        self.update(plan, lock, |series| series.ended(end))
    }

    /// Changes what the file says of this job, under the lock of the directory. Two runs do this one after another, so
    /// that none removes what the other has written.
    fn update(&self, plan: &Run, lock: Option<File>, change: impl FnOnce(&mut RunSeries)) -> io::Result<()> {
        let mut series = RunSeries::read(&self.read()?, engines::name_of(&plan.url), plan.name.as_str());
        change(&mut series);
        let replaced = self.replace(&series.text());
        if replaced.is_err() {
            let _ = fs::remove_file(&self.scratch);
        }
        drop(lock);
        replaced
    }

    /// Locks the directory of the file. The lock ends when the result is dropped. `None`: another process has it for
    /// longer than `limit`, or the directory cannot be read.
    fn lock(&self, limit: Duration) -> Option<File> {
        let directory = File::open(&self.directory).ok()?;
        let end = now().saturating_add(limit);
        while flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
            if now() >= end {
                return None;
            }
            sleep(LOCK_INTERVAL);
        }
        Some(directory)
    }

    /// The text of the file; nothing if there is no file.
    fn read(&self) -> io::Result<String> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            Err(error) if error.raw_os_error() == Some(Errno::ELOOP as i32) => return Err(other_contents()),
            opened => opened?,
        };
        if !file.metadata()?.is_file() {
            return Err(other_contents());
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8(bytes).map_err(|_| other_contents())?;
        if RunSeries::is_text_of_runs(&text) { Ok(text) } else { Err(other_contents()) }
    }

    /// Writes a new file and gives it the name of the file, so that the collector never reads half a file.
    fn replace(&self, text: &str) -> io::Result<()> {
        match fs::remove_file(&self.scratch) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&self.scratch)?;
        // The mode of the creation is limited by the umask.
        file.set_permissions(Permissions::from_mode(MODE))?;
        file.write_all(text.as_bytes())?;
        fs::rename(&self.scratch, &self.path)
    }
}

fn other_contents() -> io::Error {
    let what = "it is not a file that --metrics-file wrote, and would be replaced";
    io::Error::new(io::ErrorKind::AlreadyExists, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_collector_reads_the_file_and_never_the_new_one() {
        let file = MetricsFile::new(Path::new("/d/job.prom")).unwrap();
        assert_eq!(
            (file.path.as_path(), file.directory.as_path()),
            (Path::new("/d/job.prom"), Path::new("/d"))
        );
        assert_eq!(file.scratch.parent(), Some(Path::new("/d")), "a file is renamed within its file system");
        assert!(file.scratch.extension().is_some_and(|end| end != EXTENSION), "{file:?}");
        for wrong in ["", "/", "job", "job.txt", ".prom", "/d/job.prom/.."] {
            assert!(MetricsFile::new(Path::new(wrong)).is_err(), "{wrong}");
        }
    }
}
