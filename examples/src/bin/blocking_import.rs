//! A program without an async runtime: an import that runs on one machine at a time, in pieces. It stops between two
//! pieces when the lock is lost, and the next run goes on where this one stopped.
//!
//! `blocking_import file:/tmp/import-locks /tmp/import-done`

use std::{fs, io, path::Path, time::Duration};

use leasehold::{Guard, Locks, Previous};

type Failure = Box<dyn std::error::Error>;

const PIECES: usize = 5;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, done] = &arguments[..] else { return Err("usage: blocking_import URL FILE".into()) };
    let locks = Locks::connect(url)?;
    let nightly = locks.mutex("nightly-import").ttl(Duration::from_secs(10));
    match nightly.blocking().try_run(|guard| import(guard, Path::new(done))) {
        Ok(imported) => println!("{} pieces imported", imported?),
        Err(error) if error.error().is_taken() => println!("another machine imports"),
        Err(error) => return Err(error.into()),
    }
    locks.close_blocking(Duration::from_secs(10));
    Ok(())
}

/// Imports the pieces that are missing.
fn import(guard: &Guard, done: &Path) -> io::Result<usize> {
    if guard.previous() != Previous::Clean {
        println!("the run before this one did not end well");
    }
    let begin = fs::read_to_string(done).map_or(0, |text| text.lines().count());
    for piece in begin..PIECES {
        // Asks nobody: false from the moment at which another machine may begin.
        if !guard.check() {
            return Err(io::Error::other("the lock is lost: the rest is for the next run"));
        }
        fs::write(done, (0..=piece).map(|piece| format!("{piece}\n")).collect::<String>())?;
    }
    Ok(PIECES - begin)
}
