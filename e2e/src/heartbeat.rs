//! Measures stalls: times in which a busy machine did not run a process although no fault stopped the process. The
//! checker accepts a recorded stall as an excuse for a late event, for exactly as long as the stall lasted.
//!
//! A client measures its own process. The process of the round measures the stalls that affect all clients at once:
//! those of itself, because it has the proxies, those of the servers, and those of the servers' disk.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, sleep, spawn},
    time::Duration,
};

use leasehold_testkit::history::{Recorder, What, nanos, now_nanos};

use crate::{
    Failure,
    waits::{Waits, descendants},
};

/// The interval at which a measuring thread measures.
const INTERVAL: Duration = Duration::from_millis(15);
/// A thread that waits at least this long for a processor within one interval counts as stalled. A busy machine stalls
/// a process for whole time slices; waits on an idle machine are shorter.
const STALL: Duration = Duration::from_millis(2);
/// A write to the disk that takes longer than this counts as a stall. A write takes so long only if other programs keep
/// the disk busy.
const DISK_STALL: Duration = Duration::from_millis(10);
/// The number of intervals after which the list of server processes is read again.
const INTERVALS_PER_LOOKUP: u32 = 20;

/// Records stalls until it is dropped.
pub struct Heartbeat {
    /// Whether the threads have to end.
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// The data of one measuring thread.
struct Meter {
    recorder: Arc<Recorder>,
    /// The process that a stall affects. `None`: a stall affects all clients.
    victim: Option<u32>,
    /// Whether the threads have to end.
    stop: Arc<AtomicBool>,
}

impl Heartbeat {
    /// Begins to measure this process, which the history calls `victim`. With `None`, a stall of this process counts
    /// for all clients: on an engine without a server, the stalled process may have locked the file that all share.
    #[must_use]
    pub fn of_process(recorder: Arc<Recorder>, victim: Option<u32>) -> Self {
        let (mut heartbeat, meter) = Self::new(recorder, victim);
        heartbeat.start(meter(), |meter| meter.process());
        heartbeat
    }

    /// Begins to measure the delays that affect all clients at once. Children of this process that run `program` are
    /// clients. All other children are servers; their data is on the disk of the directory `disk`, if there is one.
    ///
    /// # Errors
    /// When no file can be written in that directory.
    pub fn of_all(recorder: Arc<Recorder>, program: &Path, disk: Option<&Path>) -> Result<Self, Failure> {
        let (mut heartbeat, meter) = Self::new(recorder, None);
        heartbeat.start(meter(), |meter| meter.process());
        let program = program.canonicalize()?;
        heartbeat.start(meter(), move |meter| meter.servers(&program));
        if let Some(disk) = disk {
            let file = tempfile::tempfile_in(disk)?;
            heartbeat.start(meter(), move |meter| meter.disk(file));
        }
        Ok(heartbeat)
    }

    fn new(recorder: Arc<Recorder>, victim: Option<u32>) -> (Self, impl Fn() -> Meter) {
        let stop = Arc::new(AtomicBool::new(false));
        let heartbeat = Self { stop: Arc::clone(&stop), threads: Vec::new() };
        (heartbeat, move || Meter { recorder: Arc::clone(&recorder), victim, stop: Arc::clone(&stop) })
    }

    /// Starts a measuring thread.
    fn start(&mut self, meter: Meter, measure: impl FnOnce(Meter) + Send + 'static) {
        self.threads.push(spawn(|| measure(meter)));
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Meter {
    /// Sleeps for one interval. Returns true if the thread has to measure again.
    fn next_interval(&self) -> bool {
        sleep(INTERVAL);
        !self.stop.load(Relaxed)
    }

    /// Records a stall from `from` until now, if this time is longer than `late`. `of` says what was stalled.
    fn stalled(&self, from: u64, late: Duration, of: &str) {
        let until = now_nanos();
        if until.saturating_sub(from) > nanos(late) {
            let (victim, of) = (self.victim, of.to_owned());
            self.recorder.note_lock(from, "", What::Stall { until, victim, of });
        }
    }

    /// Measures whether this thread wakes up late, or whether a thread of this process is ready but does not run.
    fn process(self) {
        let (mut waits, mut previous) = (Waits::default(), now_nanos());
        while self.next_interval() {
            let longest = waits.longest(&[process::id()]);
            let now = now_nanos();
            self.stalled((previous + nanos(INTERVAL)).min(now - longest), STALL, "processor");
            previous = now;
        }
    }

    /// Measures whether a thread of a server is ready but does not run.
    fn servers(self, clients: &Path) {
        let (mut waits, mut servers) = (Waits::default(), Vec::new());
        for interval in 0.. {
            if interval % INTERVALS_PER_LOOKUP == 0 {
                servers = descendants(process::id());
                let is_client = |pid: &u32| {
                    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| program == clients)
                };
                servers.retain(|pid| !is_client(pid));
            }
            if !self.next_interval() {
                return;
            }
            let longest = waits.longest(&servers);
            self.stalled(now_nanos() - longest, STALL, "processor of a server");
        }
    }

    /// Measures whether a write reaches the disk late.
    fn disk(self, mut file: File) {
        while self.next_interval() {
            let begin = now_nanos();
            // The file grows, so that its sync costs as much as the sync of a server's log.
            if file.write_all(&[0; 64]).and_then(|()| file.sync_all()).is_err() {
                return;
            }
            self.stalled(begin, DISK_STALL, "disk");
        }
    }
}
