//! Tells when this process did not run although nobody stopped it: on a busy machine that happens, and no lock can help it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, sleep, spawn},
    time::Duration,
};

use leasehold_testkit::history::{Recorder, What, now_nanos};

/// How often it beats.
const BEAT: Duration = Duration::from_millis(10);
/// A beat so late is a stop of the process: half of the shortest time that the checker allows anybody.
const LATE: Duration = Duration::from_millis(25);

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
            while !ended.load(Relaxed) {
                let before = now_nanos();
                sleep(BEAT);
                let now = now_nanos();
                if now - before > (BEAT + LATE).as_nanos() as u64 {
                    recorder.note_lock(before, "", What::Stop { victim });
                    recorder.note_lock(now, "", What::Cont { victim });
                }
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
