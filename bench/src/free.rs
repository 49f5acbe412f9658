//! Acquire and release of a name that no other task wants.

use std::{fs::File, path::Path, time::Instant};

use leasehold::Locks;
use nix::fcntl::{Flock, FlockArg};

use crate::{Failure, comparison::Comparison};

const PAIRS: u32 = 1000;

pub(crate) fn bench() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let file = Locks::connect(&format!("file://{}", dir.path().join("locks").display()))?;
    let memory = Locks::connect("memory:bench-free")?;
    let path = dir.path().join("bare");
    Comparison::new("pairs/s")
        .candidate("bare open, flock, unlock, close", || {
            let begin = Instant::now();
            for _ in 0..PAIRS {
                drop(bare_lock(&path)?);
            }
            Ok(f64::from(PAIRS) / begin.elapsed().as_secs_f64())
        })
        .candidate("leasehold, file", || pairs(&file))
        .candidate("leasehold, memory", || pairs(&memory))
        .candidate("leasehold, memory, by run", || runs(&memory))
        .candidate("leasehold, memory, as a set of one name", || sets(&memory))
        .run()
}

fn pairs(locks: &Locks) -> Result<f64, Failure> {
    let request = locks.mutex("free");
    pollster::block_on(async {
        let begin = Instant::now();
        for _ in 0..PAIRS {
            request.acquire().await?.release().await?;
        }
        Ok(f64::from(PAIRS) / begin.elapsed().as_secs_f64())
    })
}

fn runs(locks: &Locks) -> Result<f64, Failure> {
    let request = locks.mutex("free");
    pollster::block_on(async {
        let begin = Instant::now();
        for _ in 0..PAIRS {
            request.run(async |_| ()).await?;
        }
        Ok(f64::from(PAIRS) / begin.elapsed().as_secs_f64())
    })
}

fn sets(locks: &Locks) -> Result<f64, Failure> {
    let request = locks.all().mutex("free");
    pollster::block_on(async {
        let begin = Instant::now();
        for _ in 0..PAIRS {
            request.acquire().await?.release().await?;
        }
        Ok(f64::from(PAIRS) / begin.elapsed().as_secs_f64())
    })
}

/// The lock that leasehold is compared with: opens the file and waits for its exclusive `flock`. Dropping the returned
/// value releases the lock.
pub(crate) fn bare_lock(path: &Path) -> Result<Flock<File>, Failure> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    Ok(Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?)
}
