//! The file engine under faults: client processes that share a directory of lock files and are stopped and killed, and
//! another program that locks the files with `flock`.

use std::{
    collections::BTreeMap,
    fs::File,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    thread::sleep,
    time::{Duration, Instant},
};

use leasehold_core::Locks;
use leasehold_testkit::history::Event;
use nix::fcntl::OFlag;

use crate::{
    Failure,
    rng::Rng,
    task::LOCKS,
    workers::Workers,
    world::{Fault, Promise, Setting, World},
};

/// How many client processes a round has.
const CLIENTS: usize = 4;
/// How long the foreign program tries to lock a lock file.
const FLOCK_PATIENCE: Duration = Duration::from_millis(60);

/// A directory and its clients.
pub struct Files {
    /// The directory. It is on a disk, as the lock files of users are.
    dir: tempfile::TempDir,
    workers: Workers,
    admin: leasehold::Locks,
    /// The lock file that the foreign program has locked.
    foreign: Option<File>,
    rng: Rng,
}

impl Files {
    /// Starts the clients.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn start(setting: &Setting) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let url = format!("file://{}", dir.path().display());
        let admin = leasehold::Locks::connect(&url)?;
        let workers = Workers::start(setting, "client", vec![url; CLIENTS])?;
        Ok(Self { dir, workers, admin, foreign: None, rng: Rng::new(setting.seed, 77) })
    }

    /// Locks a random lock file as `flock(1)` does, without joining the queue of leasehold. Gives up after
    /// [`FLOCK_PATIENCE`].
    fn flock(&mut self) {
        let lock = self.rng.pick(&LOCKS);
        let Ok(file) = File::open(self.dir.path().join(format!("{lock}.lock"))) else { return };
        let limit = Instant::now() + FLOCK_PATIENCE;
        while file.try_lock().is_err() {
            if Instant::now() > limit {
                return;
            }
            sleep(Duration::from_millis(1));
        }
        self.foreign = Some(file);
    }
}

impl World for Files {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn client_faults(&self) -> &'static [Fault<Self>] {
        &[
            Fault {
                name: "stop",
                lasts: 10..400,
                begin: |w, client| w.workers.stop(client),
                end: |w, client| w.workers.resume(client),
            },
            Fault {
                name: "kill",
                lasts: 1..100,
                begin: |w, client| w.workers.kill(client),
                end: |w, client| w.workers.replace(client),
            },
        ]
    }

    fn server_faults(&self) -> &'static [Fault<Self>] {
        &[Fault {
            name: "foreign flock",
            lasts: 5..150,
            begin: |w, _| w.flock(),
            end: |w, _| w.foreign = None,
        }]
    }

    fn admin(&self) -> Locks {
        self.admin.core().clone()
    }

    fn finish(&mut self) -> Result<Vec<Event>, Failure> {
        self.workers.join()
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        // Lock files stay by design. The wake pipes of killed processes stay until the next waiter removes them. So
        // only pipes that a process still reads count as leftovers.
        let open_pipes = |path: &PathBuf| {
            let mut pipe = File::options();
            pipe.write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).is_ok()
        };
        let pipes = std::fs::read_dir(self.dir.path().join(".bells")).into_iter().flatten();
        let open_pipes = pipes.filter_map(|entry| Some(entry.ok()?.path())).filter(open_pipes).count();
        [("pipes".to_owned(), open_pipes as u64)].into()
    }

    fn promise(&self) -> Promise {
        Promise::Exclusion
    }
}
