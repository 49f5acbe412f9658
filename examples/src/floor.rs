//! The floor: the directory of files that the boss and the workers of a scenario share, and where the locks and the
//! data are. It has access to files, and starts processes.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::PathBuf,
    process::{Child, Command},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use leasehold::ErrorKind;

use crate::{Failure, Protection};

/// The directory that the boss and the workers share, and where the locks and the data are.
#[derive(Clone)]
pub struct Floor {
    pub(crate) dir: PathBuf,
    /// The number of this worker. `None`: this process is the boss.
    pub worker: Option<usize>,
    /// The URL of the locks.
    pub url: String,
    /// The URL of the server with the data. `None`: the data is in files of the floor.
    pub data: Option<String>,
    /// What keeps two workers out of the section at once.
    pub protection: Protection,
}

impl Floor {
    /// The path of a file of the scenario.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The locks of the scenario.
    ///
    /// # Errors
    /// Those of `Locks::connect`.
    pub fn locks(&self) -> Result<leasehold::Locks, Failure> {
        Ok(leasehold::Locks::connect(&self.url)?)
    }

    /// Whether the locks are on this engine.
    #[must_use]
    pub fn is_on(&self, engine: &str) -> bool {
        self.url.starts_with(engine)
    }

    /// The URL of the data, for a scenario that has all its data in a server.
    ///
    /// # Errors
    /// If the data is in files.
    pub fn data_url(&self) -> Result<&str, Failure> {
        self.data.as_deref().ok_or_else(|| "the data of this scenario is in a server".into())
    }

    /// Starts the same program as the worker with this number.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn start(&self, worker: usize) -> io::Result<Child> {
        let mut command = Command::new(env::current_exe()?);
        command.env("FLOOR", &self.dir).env("FLOOR_URL", &self.url).env("WORKER", worker.to_string());
        command.env("FLOOR_PROTECTION", self.protection.word());
        command.env("FLOOR_DATA", self.data.as_deref().unwrap_or_default());
        command.spawn()
    }

    /// The floor of a worker, from its environment. `None`: this process is the boss.
    pub(crate) fn of_worker() -> Option<Self> {
        let worker = env::var("WORKER").ok()?.parse().ok()?;
        let data = env::var("FLOOR_DATA").ok()?;
        Some(Self {
            dir: env::var_os("FLOOR")?.into(),
            worker: Some(worker),
            url: env::var("FLOOR_URL").ok()?,
            data: (!data.is_empty()).then_some(data),
            protection: Protection::of_word(&env::var("FLOOR_PROTECTION").ok()?)?,
        })
    }

    /// Reads a number from a file of the scenario. Returns 0 if the file does not exist yet.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub fn number(&self, name: &str) -> Result<u64, Failure> {
        match fs::read_to_string(self.file(name)) {
            Ok(text) => Ok(text.trim().parse()?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces a file of the scenario in one step. A writer that is killed leaves either the old file or the new one.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let draft = self.file(&format!("{name}.{}.draft", std::process::id()));
        fs::write(&draft, text)?;
        fs::rename(draft, self.file(name))
    }

    /// Appends a line to a file of the scenario. A short line that is written in one call stays in one piece, even if
    /// other processes write to the same file.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn append(&self, name: &str, line: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(self.file(name))?;
        file.write_all(format!("{line}\n").as_bytes())
    }

    /// The complete lines of a file of the scenario. There are none if the file does not exist yet.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn lines(&self, name: &str) -> io::Result<Vec<String>> {
        let text = match fs::read_to_string(self.file(name)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        Ok(complete.lines().map(str::to_owned).collect())
    }

    /// Prints how often something went wrong. With leasehold the count must be 0; without a lock, or with a lock of an
    /// article, it must not be 0, because then the run is to show what goes wrong.
    ///
    /// # Errors
    /// If the count is not as it must be.
    pub fn judge(&self, count: usize, what: &str) -> Result<(), Failure> {
        println!("{}: {what}: {count}", self.protection.words());
        match self.protection {
            Protection::Leasehold => check(count == 0, "the lock did not exclude"),
            _ => check(count > 0, "nothing went wrong"),
        }
    }
}

/// A word that no other process of the scenario makes, and this process only once.
pub(crate) fn unique_word() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Waits for workers. Returns how many of them failed. A worker that the boss killed does not count.
///
/// # Errors
/// An error of the operating system.
pub fn failures(workers: Vec<Child>) -> io::Result<usize> {
    let mut failed = 0;
    for mut worker in workers {
        failed += usize::from(worker.wait()?.code().is_some_and(|code| code != 0));
    }
    Ok(failed)
}

/// Calls `done` every few milliseconds until it returns `true`, for at most a minute.
///
/// # Errors
/// When the minute is over, or when `done` fails.
pub fn wait_until(what: &str, mut done: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    for _ in 0..12_000 {
        if done()? {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Err(format!("waited a minute for this: {what}").into())
}

/// Returns an error unless `holds` is true.
///
/// # Errors
/// The text `what`, if `holds` is false.
pub fn check(holds: bool, what: impl Into<String>) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(what.into().into()) }
}

/// Whether a fence refused a write because its hold was over.
#[must_use]
pub fn is_fenced(failure: &Failure) -> bool {
    let error = failure.downcast_ref::<leasehold::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::Fenced)
}
