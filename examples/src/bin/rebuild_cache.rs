//! Rebuild a cache: 4 processes with 8 tasks each read a page that a slow query builds, and one process changes the row
//! behind the page eight times. Readers share the lock. A reader that finds the page stale acquires the exclusive lock
//! and looks again, so only one of these readers rebuilds the page. There are readers all the time, but the writer does
//! not starve.
//!
//! With `--textbook` a reader rebuilds the page under the shared lock, as an article on caches shows it, so several
//! readers rebuild it.

use std::{
    collections::HashSet,
    process::ExitCode,
    rc::Rc,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use leasehold::{Guard, Locks};
use leasehold_examples::{
    Data, Failure, Floor, Overlap, Protection, Scenario, Slow, TTL, TextbookPlace, check, failures, run,
    wait_until,
};

const READERS: usize = 4;
const TASKS: usize = 8;
const CHANGES: u64 = 8;
/// How long the slow query takes, and how long a reader reads the page.
const QUERY: Duration = Duration::from_millis(30);
const GLANCE: Duration = Duration::from_millis(2);

fn main() -> ExitCode {
    run(&Scenario { data: Data::Files, textbook: TextbookPlace::Locks }, boss, worker)
}

fn boss(floor: &Floor) -> Result<(), Failure> {
    let workers: Vec<_> = (0..=READERS).map(|number| floor.start(number)).collect::<Result<_, _>>()?;
    wait_until("the writer", || Ok(floor.number("row")? == CHANGES))?;
    check(failures(workers)? == 0, "a worker failed")?;

    let rebuilt = floor.lines("rebuilt.log")?;
    let distinct: HashSet<&String> = rebuilt.iter().collect();
    let reads: Vec<usize> =
        floor.lines("read.log")?.iter().map(|line| line.parse()).collect::<Result<_, _>>()?;
    let reads: usize = reads.iter().sum();
    let torn = floor.lines("torn.log")?.len();
    println!(
        "{CHANGES} changes, {} rebuilds, {reads} reads, {torn} reads of a page that changed",
        rebuilt.len()
    );
    floor.judge(rebuilt.len() - distinct.len(), "rebuilds of a page that was built already")?;
    if floor.protection != Protection::Leasehold {
        return Ok(());
    }
    check(torn == 0, "it changed under a reader")?;
    check(rebuilt.len() as u64 <= CHANGES + 1, "a page was built without need")?;
    check(rebuilt.last() == Some(&CHANGES.to_string()), "the last change is not on the page")
}

fn worker(floor: &Floor) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let page = Page { protection: floor.protection, locks: floor.locks()? };
    if floor.worker == Some(0) {
        return runtime.block_on(write(floor, &page));
    }
    let reader = Rc::new(Reader {
        floor: floor.clone(),
        overlap: Overlap::begin(floor, Slow::BeforeWrite)?,
        page,
        reads: AtomicUsize::new(0),
        inner: AtomicUsize::new(0),
    });
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let reader = Rc::clone(&reader);
                tokio::task::spawn_local(async move {
                    reader.meet().await?;
                    reader.read_on().await
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok::<_, Failure>(())
    })?;
    Ok(floor.append("read.log", &reader.reads.load(Ordering::Relaxed).to_string())?)
}

/// Changes the row repeatedly. Begins when, in every reader process, all tasks have held the lock at the same time.
async fn write(floor: &Floor, page: &Page) -> Result<(), Failure> {
    wait_until("all readers hold the lock at once", || Ok(floor.lines("met.log")?.len() == READERS))?;
    for change in 1..=CHANGES {
        let hold = page.exclusive().await?;
        floor.replace("row", &change.to_string())?;
        Page::release(hold).await?;
        tokio::time::sleep(QUERY).await;
        if change == 1 {
            // The first rebuild is slow: see `Overlap`.
            wait_until("the first rebuild", || Ok(floor.number("page")? == change))?;
        }
    }
    Ok(())
}

/// The lock of the page.
struct Page {
    locks: Locks,
    protection: Protection,
}

impl Page {
    async fn shared(&self) -> Result<Option<Guard>, Failure> {
        if self.protection == Protection::WithoutLock {
            return Ok(None);
        }
        Ok(Some(self.locks.rw("page").read().ttl(TTL).acquire().await?))
    }

    async fn exclusive(&self) -> Result<Option<Guard>, Failure> {
        if self.protection == Protection::WithoutLock {
            return Ok(None);
        }
        Ok(Some(self.locks.rw("page").write().ttl(TTL).acquire().await?))
    }

    /// For a rebuild. The article takes the lock that others share.
    async fn for_rebuild(&self) -> Result<Option<Guard>, Failure> {
        if self.protection == Protection::Textbook { self.shared().await } else { self.exclusive().await }
    }

    async fn release(hold: Option<Guard>) -> Result<(), Failure> {
        match hold {
            Some(guard) => Ok(guard.release().await?),
            None => Ok(()),
        }
    }
}

struct Reader {
    floor: Floor,
    overlap: Overlap,
    page: Page,
    reads: AtomicUsize,
    /// The number of tasks of this process that hold the lock at the same time.
    inner: AtomicUsize,
}

impl Reader {
    /// Shows that readers share the lock: no task releases its hold before all tasks of the process hold the lock.
    async fn meet(&self) -> Result<(), Failure> {
        let hold = self.page.shared().await?;
        if self.inner.fetch_add(1, Ordering::Relaxed) + 1 == TASKS {
            self.floor.append("met.log", "met")?;
        }
        while self.inner.load(Ordering::Relaxed) < TASKS {
            tokio::time::sleep(GLANCE).await;
        }
        Page::release(hold).await
    }

    /// Reads until the page shows the last change.
    async fn read_on(&self) -> Result<(), Failure> {
        while self.read().await? != Some(CHANGES) {}
        Ok(())
    }

    /// Reads the page. If the page is stale, rebuilds it and returns `None`.
    async fn read(&self) -> Result<Option<u64>, Failure> {
        let hold = self.page.shared().await?;
        let (page, row) = (self.floor.number("page")?, self.floor.number("row")?);
        tokio::time::sleep(GLANCE).await;
        let still = self.floor.number("row")? == row && self.floor.number("page")? == page;
        if !still {
            self.floor.append("torn.log", &row.to_string())?;
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        Page::release(hold).await?;
        if page == row {
            return Ok(Some(page));
        }
        self.rebuild().await?;
        Ok(None)
    }

    async fn rebuild(&self) -> Result<(), Failure> {
        let hold = self.page.for_rebuild().await?;
        // This is the second look at the page: after the first look, another task may have rebuilt the page.
        let row = self.floor.number("row")?;
        if self.floor.number("page")? != row {
            self.overlap.before_write().await?;
            tokio::time::sleep(QUERY).await;
            self.floor.append("rebuilt.log", &row.to_string())?;
            self.floor.replace("page", &row.to_string())?;
        }
        Page::release(hold).await
    }
}
