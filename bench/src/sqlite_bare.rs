//! SQLite without leasehold: a single bare writer that waits for the disk as leasehold does; and how soon another
//! process notices the commits of such a writer.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    fcntl::AT_FDCWD,
    sys::{
        inotify::{AddWatchFlags, InitFlags, Inotify},
        stat::{UtimensatFlags, utimensat},
        time::TimeSpec,
    },
};
use rusqlite::Connection;

use crate::{Failure, child, comparison::quantile, handover::now};

const NOTES: usize = 100;

const TABLE: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
    CREATE TABLE IF NOT EXISTS bare (name TEXT PRIMARY KEY, token INTEGER NOT NULL, holder BLOB, expires INTEGER) WITHOUT ROWID";
const TAKE: &str = "INSERT INTO bare VALUES (?1, 1, randomblob(16), 2) ON CONFLICT (name) DO UPDATE SET \
    token = token + 1, holder = excluded.holder, expires = excluded.expires";
const FREE: &str = "UPDATE bare SET holder = NULL WHERE name = ?1";

pub(crate) struct Bare(Connection);

impl Bare {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let connection = Connection::open(path)?;
        connection.execute_batch(TABLE)?;
        Ok(Self(connection))
    }

    /// Acquires and releases a row repeatedly. Returns how long each acquire took together with its release, in
    /// nanoseconds.
    pub(crate) fn pairs(&self, measurement_time: Duration) -> Result<Vec<u64>, Failure> {
        let begin = Instant::now();
        let mut times = Vec::new();
        while begin.elapsed() < measurement_time {
            let from = Instant::now();
            self.0.prepare_cached(TAKE)?.execute(["bench"])?;
            self.0.prepare_cached(FREE)?.execute(["bench"])?;
            times.push(from.elapsed().as_nanos() as u64);
        }
        Ok(times)
    }

    fn token(&self) -> Result<i64, Failure> {
        let mut token = self.0.prepare_cached("SELECT coalesce(max(token), 0) FROM bare")?;
        Ok(token.query_row([], |row| row.get(0))?)
    }
}

/// The quantile at `at` of the times from just before a commit until another process saw it. A change of the time
/// stamps of the file wakes that process.
pub(crate) fn commit_notice_time(path: &Path, at: f64) -> Result<f64, Failure> {
    let bare = Bare::open(path)?;
    let first = bare.token()?;
    let mut other = child::start(&["sqlite-seen", &path.display().to_string(), &first.to_string()])?;
    let mut lines = BufReader::new(other.stdout.take().ok_or("no output")?).lines();
    let mut next = || lines.next().ok_or("the other process ended")?.map_err(Failure::from);
    next()?;
    let mut times = Vec::new();
    for _ in 0..NOTES {
        std::thread::sleep(Duration::from_millis(2));
        let from = now()?;
        bare.0.prepare_cached(TAKE)?.execute(["seen"])?;
        utimensat(AT_FDCWD, path, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW, UtimensatFlags::FollowSymlink)?;
        times.push(next()?.parse::<u64>()?.saturating_sub(from) as f64 / 1000.0);
    }
    other.wait()?;
    Ok(quantile(&mut times, at))
}

/// The process that waits for commits. Prints when it saw each commit.
pub(crate) fn print_commits(path: &str, first: &str) -> Result<(), Failure> {
    let bare = Bare::open(Path::new(path))?;
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
    inotify.add_watch(path, AddWatchFlags::IN_ATTRIB)?;
    let mut token: i64 = first.parse()?;
    println!("ready");
    for _ in 0..NOTES {
        loop {
            inotify.read_events()?;
            let newest = bare.token()?;
            if newest != token {
                token = newest;
                break;
            }
        }
        println!("{}", now()?);
    }
    Ok(())
}
