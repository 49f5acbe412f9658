//! Tells when this process did not run although nobody stopped it: on a busy machine that happens, and no lock can help it.

use std::{
    collections::HashMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, sleep, spawn},
    time::Duration,
};

use leasehold_testkit::history::{Recorder, What, now_nanos};

/// How often it beats.
const BEAT: Duration = Duration::from_millis(15);
/// Not to have run for so much of a beat is a stop of the process: on a machine that is shared by many it comes in slices.
const LATE: Duration = Duration::from_millis(10);

/// Records stops of the process `victim` until it is dropped.
pub struct Pulse {
    ends: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Pulse {
    /// Begins.
    #[must_use]
    pub fn begin(recorder: Arc<Recorder>, victim: u32) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let thread = spawn(move || {
            let mut waits = Waits::default();
            let mut before = now_nanos();
            while !ended.load(Relaxed) {
                sleep(BEAT);
                let now = now_nanos();
                let late = (now - before).saturating_sub(nanos(BEAT)).max(waits.longest());
                if late > nanos(LATE) {
                    recorder.note_lock(before.min(now - late), "", What::Stop { victim });
                    recorder.note_lock(now_nanos(), "", What::Cont { victim });
                }
                before = now;
            }
        });
        Self { ends, thread: Some(thread) }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How long each thread of this process could have run and was not let, as the kernel counts it.
#[derive(Default)]
struct Waits(HashMap<String, u64>);

impl Waits {
    /// The longest since it was last asked, in nanoseconds.
    fn longest(&mut self) -> u64 {
        let mut longest = 0;
        for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let stat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let waited = stat.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
            let known = self.0.insert(task.file_name().to_string_lossy().into_owned(), waited).unwrap_or(0);
            longest = longest.max(waited.saturating_sub(known));
        }
        longest
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}
