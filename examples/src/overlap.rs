//! Makes the section of one holder slow: slow enough that a second worker is in its section too, unless the lock keeps
//! that worker out. So a lock that does not exclude shows it in every run, and not only in an unlucky one.
//!
//! Each section writes a line into the file `sections.log` after it has read the data and before it changes the data.
//! While the slow holder waits for the next line, it has read and not yet written; so if the next line appears, two
//! workers act on the same data.

use std::time::{Duration, Instant};

use crate::{Failure, Floor, Protection, floor::unique_word};

/// How long the first holder stays in its section while other workers ask for a lock of leasehold. Only a lock that
/// fails to exclude ends this time early.
const EXCLUSION_TIME: Duration = Duration::from_millis(200);
/// How often a worker looks into the files, and for how long at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
const LIMIT: Duration = Duration::from_secs(60);

/// Where the first holder of an article's lock is slow, for longer than its ttl.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Slow {
    /// Between its read and its write. The next holder reads what the first has read.
    BeforeWrite,
    /// Between its write and its release. Then the release ends the hold of the next holder, and a third worker reads
    /// what the next holder has read.
    BeforeRelease,
}

/// The sections of one worker.
#[derive(Clone)]
pub struct Overlap {
    floor: Floor,
    /// The number of the first section that waits for the next one before it writes.
    first: usize,
}

impl Overlap {
    /// Tells the other workers that this worker is about to ask for the lock.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn begin(floor: &Floor, slow: Slow) -> Result<Self, Failure> {
        floor.append("asked.log", &floor.worker.unwrap_or_default().to_string())?;
        let is_slow_to_release = floor.protection == Protection::Textbook && slow == Slow::BeforeRelease;
        Ok(Self { floor: floor.clone(), first: if is_slow_to_release { 2 } else { 1 } })
    }

    /// Called in a section, after the read and before the write. Returns the number of the section.
    ///
    /// # Errors
    /// If a worker without a lock, or with a lock of an article, was alone for a minute.
    pub async fn before_write(&self) -> Result<usize, Failure> {
        let floor = &self.floor;
        let mine = unique_word();
        floor.append("sections.log", &mine)?;
        let section = floor.lines("sections.log")?.iter().position(|line| *line == mine);
        let section = section.ok_or("a line is missing")? + 1;
        if floor.protection == Protection::Leasehold {
            if section == 1 {
                self.stay().await?;
            }
        } else if section >= self.first {
            self.wait_for_lines("sections.log", self.first + 1).await?;
        }
        Ok(section)
    }

    /// Called after the write of this section and before its release.
    ///
    /// # Errors
    /// Those of [`before_write`](Self::before_write).
    pub async fn before_release(&self, section: usize) -> Result<(), Failure> {
        if section < self.first { self.wait_for_lines("sections.log", self.first).await } else { Ok(()) }
    }

    /// Stays in the section while other workers ask for the lock.
    async fn stay(&self) -> Result<(), Failure> {
        self.wait_for_lines("asked.log", 2).await?;
        let begin = Instant::now();
        while begin.elapsed() < EXCLUSION_TIME && self.floor.lines("sections.log")?.len() == 1 {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    async fn wait_for_lines(&self, file: &str, number: usize) -> Result<(), Failure> {
        let begin = Instant::now();
        while self.floor.lines(file)?.len() < number {
            if begin.elapsed() > LIMIT {
                return Err(format!("no other worker wrote into {file} within {LIMIT:?}").into());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }
}
