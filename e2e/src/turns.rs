//! A process that shares one lock with other programs. It records when it enters and leaves each section under the
//! lock, until a command ends the process.

use std::{
    fs::{File, OpenOptions, read_to_string},
    io::Write,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use leasehold::Locks;

use crate::Failure;

/// The interval at which a process that stays in its section checks whether it still has to stay.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// The time between two sections of this process, in which other programs can hold the lock.
const BETWEEN: Duration = Duration::from_millis(20);
/// How long the process waits for the lock before it checks whether it has to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The directory that all programs share. They record their sections in its file `journal`. Two other files are
/// commands: if `over` exists, the programs end. The file `linger` contains the name of a *side*, which is the first
/// part of its processes' names, such as `ours` in `ours-1`; a holder of this side stays in its section.
struct Shared(PathBuf);

impl Shared {
    /// Whether the programs have to end.
    fn is_over(&self) -> bool {
        self.0.join("over").exists()
    }

    /// Whether a holder of this side has to stay in its section.
    fn lingers(&self, side: &str) -> bool {
        read_to_string(self.0.join("linger")).is_ok_and(|side_to_stay| side_to_stay == side)
    }

    /// Opens the journal.
    fn journal(&self) -> std::io::Result<Journal> {
        Ok(Journal(OpenOptions::new().append(true).open(self.0.join("journal"))?))
    }
}

/// A journal that all programs share. Its lines are in the order in which the programs wrote them.
struct Journal(File);

impl Journal {
    /// Writes a line in one call, so that no other line is mixed into it.
    fn note(&mut self, line: &str) -> std::io::Result<()> {
        self.0.write_all(format!("{line}\n").as_bytes())
    }
}

/// Runs the program. The arguments are the URL of the locks, the name, the ttl in milliseconds, the directory, and the
/// name of this process, such as `ours-1`.
///
/// # Errors
/// When the process cannot work at all. An error in one section does not end the process.
pub fn main(args: &[&str]) -> Result<(), Failure> {
    let &[url, name, ttl, dir, name_of_process] = args else {
        return Err("`turns` needs five arguments".into());
    };
    let ttl = Duration::from_millis(ttl.parse()?);
    let (shared, side) =
        (Shared(Path::new(dir).to_owned()), name_of_process.split('-').next().unwrap_or(name_of_process));
    let mut journal = shared.journal()?;
    let locks = Locks::connect(url)?;
    while !shared.is_over() {
        let Ok(guard) = locks.mutex(name).ttl(ttl).blocking().acquire_within(PATIENCE) else { continue };
        if !guard.check() {
            continue;
        }
        journal.note(&format!("enter {name_of_process} {}", guard.token().number))?;
        let mut last_check = Instant::now();
        let mut longest = Duration::ZERO;
        while shared.lingers(side) && guard.check() {
            sleep(CHECK_INTERVAL);
            longest = longest.max(last_check.elapsed());
            last_check = Instant::now();
        }
        let ending = match guard.check() {
            true => "held",
            // The machine did not run the process for a long time. That is no fault of the lock.
            false if longest.max(last_check.elapsed()) > ttl / 2 => "slept",
            false => "lost",
        };
        journal.note(&format!("leave {name_of_process} {ending}"))?;
        // If the hold was lost, the loss was recorded above.
        let _ = guard.release_blocking();
        sleep(BETWEEN);
    }
    Ok(())
}
