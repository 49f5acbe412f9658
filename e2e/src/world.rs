//! What a round needs of an engine, and the faults that it may meet. An engine is one file with one `World`.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use leasehold_core::Locks;
use leasehold_testkit::history::{Event, Recorder, now_nanos};

use crate::Failure;

/// An engine with its clients, under faults.
pub trait World: Sized + 'static {
    /// The place of the fault tables: what may happen to one client.
    const OF_CLIENTS: &'static [Fault<Self>];

    /// How many clients there are.
    fn clients(&self) -> usize;

    /// What may happen to the server, or whatever all clients share.
    fn of_server(&self) -> &'static [Fault<Self>];

    /// Where it keeps what it waits for to be on a disk, if it does.
    fn disk(&self) -> Option<PathBuf> {
        Some(std::env::temp_dir())
    }

    /// Locks of an administrator, whom no fault meets.
    fn admin(&self) -> Locks;

    /// Waits until all clients have ended, and gives what they wrote down.
    ///
    /// # Errors
    /// When one hangs or fails.
    fn finish(&mut self) -> Result<Vec<Event>, Failure>;

    /// What is there that must not be left at rest, by kind: I6.
    fn things(&self) -> BTreeMap<String, u64>;

    /// What the engine, as configured, promises.
    fn promise(&self) -> Promise;
}

/// What a configuration promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// All invariants.
    Exclusion,
    /// No exclusion after its faults: only what the label, the loss notice and the fence say.
    Fence,
    /// No exclusion after a step of the server's clock, which may also end a belief for a moment: what is in doubt is renewed.
    Doubt,
}

/// One kind of fault.
pub struct Fault<W: 'static> {
    /// Its name, as the figures count it.
    pub name: &'static str,
    /// How many milliseconds it lasts.
    pub lasts: Range<u64>,
    /// How it begins at a client, or at the server.
    pub begin: fn(&mut W, usize),
    /// How it ends.
    pub end: fn(&mut W, usize),
}

/// What all clients of a round are told.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The seed of the round.
    pub seed: u64,
    /// How long the clients work.
    pub time: Duration,
    /// When they begin nothing new: counted from when the first asks, for servers may take long to start.
    pub until: Arc<OnceLock<u64>>,
    /// A directory of the round's own.
    pub dir: PathBuf,
    /// This program: started again, it is a client.
    pub program: PathBuf,
    /// Where faults are written down.
    pub recorder: Arc<Recorder>,
}

impl Setting {
    /// When the clients begin nothing new, by the clock of histories.
    #[must_use]
    pub fn until(&self) -> u64 {
        *self.until.get_or_init(|| now_nanos() + self.time.as_nanos() as u64)
    }
}

/// What an administrator asks before a round: the work is done by the keeper of the locks.
///
/// # Panics
/// When the system has no memory left.
pub fn block_on<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime without timers and sockets needs nothing of the system").block_on(work)
}
