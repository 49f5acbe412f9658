//! Measures when the machine did not serve, although nobody stopped anything: on a busy machine that happens, and no lock can
//! help it. The checker takes what is written down here as an excuse, for exactly as long as it lasted.
//!
//! A client measures its own process. The round measures what all clients share: itself, with the proxies in it, the servers,
//! and the disk that they wait for.

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

/// How often it beats.
const BEAT: Duration = Duration::from_millis(15);
/// To wait for so much of a beat is a stall: on a machine that is shared by many they come in slices. Less happens on an idle one.
const LATE: Duration = Duration::from_millis(2);
/// What is written is on the disk sooner, unless others keep the disk busy.
const LATE_ON_DISK: Duration = Duration::from_millis(10);
/// After how many beats it is looked which servers there are.
const FRESH: u32 = 20;

/// Writes stalls down until it is dropped.
pub struct Heartbeat {
    ends: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// What a thread of it needs.
struct Beat {
    recorder: Arc<Recorder>,
    /// Who is stalled; `None`: everybody.
    victim: Option<u32>,
    ends: Arc<AtomicBool>,
}

impl Heartbeat {
    /// Begins to measure this process, in which all is done that `victim` stands for in the history. `None`: others wait while it
    /// is stalled, for there is no server, and it may have the file that all share.
    #[must_use]
    pub fn of_process(recorder: Arc<Recorder>, victim: Option<u32>) -> Self {
        let (mut heartbeat, beat) = Self::new(recorder, victim);
        heartbeat.start(beat(), |beat| beat.process());
        heartbeat
    }

    /// Begins to measure what all clients share. Children of this process that run `program` are clients, all others are servers,
    /// which wait for the disk below `disk`, if for any.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn of_all(recorder: Arc<Recorder>, program: &Path, disk: Option<&Path>) -> Result<Self, Failure> {
        let (mut heartbeat, beat) = Self::new(recorder, None);
        heartbeat.start(beat(), |beat| beat.process());
        let program = program.canonicalize()?;
        heartbeat.start(beat(), move |beat| beat.servers(&program));
        if let Some(disk) = disk {
            let file = tempfile::tempfile_in(disk)?;
            heartbeat.start(beat(), move |beat| beat.disk(file));
        }
        Ok(heartbeat)
    }

    fn new(recorder: Arc<Recorder>, victim: Option<u32>) -> (Self, impl Fn() -> Beat) {
        let ends = Arc::new(AtomicBool::new(false));
        let heartbeat = Self { ends: Arc::clone(&ends), threads: Vec::new() };
        (heartbeat, move || Beat { recorder: Arc::clone(&recorder), victim, ends: Arc::clone(&ends) })
    }

    fn start(&mut self, beat: Beat, measure: impl FnOnce(Beat) + Send + 'static) {
        self.threads.push(spawn(|| measure(beat)));
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Beat {
    /// Sleeps for a beat; whether there is another.
    fn goes_on(&self) -> bool {
        sleep(BEAT);
        !self.ends.load(Relaxed)
    }

    /// Writes a stall down that ends now, if it is one.
    fn stalled(&self, from: u64, late: Duration, of: &str) {
        let until = now_nanos();
        if until.saturating_sub(from) > nanos(late) {
            let (victim, of) = (self.victim, of.to_owned());
            self.recorder.note_lock(from, "", What::Stall { until, victim, of });
        }
    }

    /// This thread wakes late, or one of this process could run and is not let.
    fn process(self) {
        let (mut waits, mut before) = (Waits::default(), now_nanos());
        while self.goes_on() {
            let longest = waits.longest(&[process::id()]);
            let now = now_nanos();
            self.stalled((before + nanos(BEAT)).min(now - longest), LATE, "processor");
            before = now;
        }
    }

    /// A thread of a server could run and is not let.
    fn servers(self, clients: &Path) {
        let (mut waits, mut servers) = (Waits::default(), Vec::new());
        for beat in 0.. {
            if beat % FRESH == 0 {
                servers = descendants(process::id());
                let is_client = |pid: &u32| {
                    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| program == clients)
                };
                servers.retain(|pid| !is_client(pid));
            }
            if !self.goes_on() {
                return;
            }
            let longest = waits.longest(&servers);
            self.stalled(now_nanos() - longest, LATE, "processor of a server");
        }
    }

    /// What is written is on the disk late.
    fn disk(self, mut file: File) {
        while self.goes_on() {
            let begin = now_nanos();
            // It grows: so this waits for what a server waits for that writes to its log.
            if file.write_all(&[0; 64]).and_then(|()| file.sync_all()).is_err() {
                return;
            }
            self.stalled(begin, LATE_ON_DISK, "disk");
        }
    }
}
