//! The interface between a round and an engine under faults. Each engine has one file with one `World`.

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
    /// The number of clients.
    fn clients(&self) -> usize;

    /// The faults of one client.
    fn client_faults(&self) -> &'static [Fault<Self>];

    /// The faults of the server or, without a server, of the resource that all clients share.
    fn server_faults(&self) -> &'static [Fault<Self>];

    /// The directory of the data that the engine syncs to a disk, if it syncs data.
    fn disk(&self) -> Option<PathBuf> {
        Some(std::env::temp_dir())
    }

    /// An admin client that is exempt from faults.
    fn admin(&self) -> Locks;

    /// Waits until all clients have ended, and returns the events that they recorded.
    ///
    /// # Errors
    /// When a client hangs or fails.
    fn finish(&mut self) -> Result<Vec<Event>, Failure>;

    /// I6: the records of the engine that must not remain after all clients have ended, counted by kind.
    fn leftovers(&self) -> BTreeMap<String, u64>;

    /// The promise of the engine in its present configuration.
    fn promise(&self) -> Promise;
}

/// What an engine in one configuration promises under the faults of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// All invariants hold.
    Exclusion,
    /// After the first fault there is no exclusion. The engine still promises what its guarantee says, that losses are
    /// reported, and that the fence holds.
    Fence,
    /// After a clock step of the server two clients may hold one name, so exclusion is not checked. A clock step may
    /// also put a valid hold in doubt until the hold is renewed.
    Doubt,
}

/// One kind of fault.
pub struct Fault<W: 'static> {
    /// The name of the fault in the figures.
    pub name: &'static str,
    /// The range of its length in milliseconds.
    pub lasts: Range<u64>,
    /// Begins the fault at the client with this index, or at the server.
    pub begin: fn(&mut W, usize),
    /// Ends the fault.
    pub end: fn(&mut W, usize),
}

/// The parameters that all clients of a round share.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The seed of the round.
    pub seed: u64,
    /// How long the clients work.
    pub time: Duration,
    /// When the clients stop starting new work. It is set by the first call of [`until`](Self::until), because servers
    /// may take long to start.
    pub until: Arc<OnceLock<u64>>,
    /// The directory of this round.
    pub dir: PathBuf,
    /// The path of this program, which is started again as a client.
    pub program: PathBuf,
    /// The recorder of faults.
    pub recorder: Arc<Recorder>,
}

impl Setting {
    /// When the clients stop starting new work, by the clock of histories.
    #[must_use]
    pub fn until(&self) -> u64 {
        *self.until.get_or_init(|| now_nanos() + self.time.as_nanos() as u64)
    }
}

/// Runs a request of the admin client before a round. The runtime that this function makes needs no timers, because the
/// keeper does the work.
///
/// # Panics
/// When the system has no memory left.
pub fn block_on<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime without timers and sockets needs nothing of the system").block_on(work)
}
