//! A process that takes turns with programs of others under one lock, and writes down each turn, until it is told that it is over.

use std::{
    fs::{File, OpenOptions, read_to_string},
    io::Write,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use leasehold::Locks;

use crate::Failure;

/// How often whoever lingers in its turn looks around.
const LOOK: Duration = Duration::from_millis(10);
/// What others hold between two turns of ours.
const BETWEEN: Duration = Duration::from_millis(20);
/// How long one turn is waited for before it is looked whether all is over.
const PATIENCE: Duration = Duration::from_secs(5);

/// The directory in which programs of both sides write down their turns. Files tell what to do: `over` to end, `linger` who is to
/// stay inside.
struct Shared(PathBuf);

impl Shared {
    fn is_over(&self) -> bool {
        self.0.join("over").exists()
    }

    fn lingers(&self, side: &str) -> bool {
        read_to_string(self.0.join("linger")).is_ok_and(|told| told == side)
    }

    fn journal(&self) -> std::io::Result<Journal> {
        Ok(Journal(OpenOptions::new().append(true).open(self.0.join("journal"))?))
    }
}

/// Lines are in the order in which they were written, whoever wrote them.
struct Journal(File);

impl Journal {
    /// In one step, so that no other line comes between.
    fn note(&mut self, line: &str) -> std::io::Result<()> {
        self.0.write_all(format!("{line}\n").as_bytes())
    }
}

/// The program: of which locks, which name, for how many milliseconds at a time, in which directory, as whom, such as `ours-1`.
///
/// # Errors
/// What keeps it from working, but not what keeps it from one turn.
pub fn main(args: &[&str]) -> Result<(), Failure> {
    let &[url, name, ttl, dir, who] = args else { return Err("who takes turns has five orders".into()) };
    let ttl = Duration::from_millis(ttl.parse()?);
    let (shared, side) = (Shared(Path::new(dir).to_owned()), who.split('-').next().unwrap_or(who));
    let mut journal = shared.journal()?;
    let locks = Locks::connect(url)?;
    while !shared.is_over() {
        let Ok(guard) = locks.mutex(name).ttl(ttl).blocking().acquire_within(PATIENCE) else { continue };
        if !guard.check() {
            continue;
        }
        journal.note(&format!("enter {who} {}", guard.token().number))?;
        let mut looked = Instant::now();
        let mut longest = Duration::ZERO;
        while shared.lingers(side) && guard.check() {
            sleep(LOOK);
            longest = longest.max(looked.elapsed());
            looked = Instant::now();
        }
        let how = match guard.check() {
            true => "held",
            // A machine that did not let it run is no fault of a lock.
            false if longest.max(looked.elapsed()) > ttl / 2 => "slept",
            false => "lost",
        };
        journal.note(&format!("leave {who} {how}"))?;
        // What was lost is told lost.
        let _ = guard.release_blocking();
        sleep(BETWEEN);
    }
    Ok(())
}
