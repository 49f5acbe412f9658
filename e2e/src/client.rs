//! A client, whose tasks work under locks until the time of the round is up. A client is a process; on the memory
//! engine it is a part of the process of the round.

use std::{
    path::{Path, PathBuf},
    process,
    sync::Arc,
    time::Duration,
};

use leasehold_core::Locks;
use leasehold_testkit::history::{Phase, Recorder, What, now_nanos};

use crate::{
    Failure,
    election::{self, ELECTIONS},
    heartbeat::Heartbeat,
    results::ResultStore,
    task,
};

/// How many tasks each client has.
const TASKS: u32 = 10;
/// The number of threads that the tasks run on.
pub const THREADS: usize = 2;
/// The time limit for `Locks::close`: longer than the slowest request with its cleanup.
const CLOSE_LIMIT: Duration = Duration::from_secs(12);

/// How many times a client counts its threads and sockets again at its end, while the keeper may not have ended yet.
const MAX_PROBES: u32 = 100;

/// The URL schemes of engines without a server. On these engines only one client at a time can proceed.
const SERVERLESS: [&str; 2] = ["file:", "sqlite:"];

/// The arguments of a client.
#[derive(Clone, Debug)]
pub struct ClientArguments {
    /// The role of the client: `client`, or the name of another lock crate that it uses.
    pub role: String,
    /// The URL of the engine.
    pub url: String,
    /// The number of the round.
    pub run: u64,
    /// The seed of this client.
    pub seed: u64,
    /// When the client stops starting new work, by the clock of histories.
    pub until: u64,
    /// The file for its history.
    pub history: PathBuf,
    /// The directory of the protected resources.
    pub results: PathBuf,
}

/// The state that the tasks of a client share.
#[derive(Clone)]
pub struct ClientState {
    /// The locks of the client.
    pub locks: Locks,
    /// The recorder of the client's history.
    pub recorder: Arc<Recorder>,
    /// The protected resources.
    pub results: ResultStore,
    /// The seed of the client.
    pub seed: u64,
    /// When the tasks stop starting new work.
    pub until: u64,
}

impl ClientArguments {
    /// The arguments as strings for the command line of the program.
    #[must_use]
    pub fn args(&self) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        vec![
            self.role.clone(),
            self.url.clone(),
            self.run.to_string(),
            self.seed.to_string(),
            self.until.to_string(),
            path(&self.history),
            path(&self.results),
        ]
    }

    /// Parses the arguments after the role.
    ///
    /// # Errors
    /// When they are not the arguments of a client.
    pub fn parse(args: &[&str]) -> Result<Self, Failure> {
        let &[url, run, seed, until, history, results] = args else {
            return Err("a client needs six arguments".into());
        };
        Ok(Self {
            role: String::new(),
            url: url.to_owned(),
            run: run.parse()?,
            seed: seed.parse()?,
            until: until.parse()?,
            history: history.into(),
            results: results.into(),
        })
    }
}

/// Runs the program as a client.
///
/// # Errors
/// When the client cannot start.
pub fn main(args: &[&str]) -> Result<(), Failure> {
    let arguments = ClientArguments::parse(args)?;
    let recorder = Arc::new(Recorder::to_file(arguments.run, &arguments.history)?);
    // The first tokio runtime of a process creates resources that last as long as the process. So a runtime is created
    // before the resources are counted.
    drop(tokio::runtime::Builder::new_current_thread().enable_all().build()?);
    let (start, found_at_start) = (now_nanos(), own_resources()?);
    {
        let is_alone = !SERVERLESS.iter().any(|scheme| arguments.url.starts_with(scheme));
        let _heartbeat = Heartbeat::of_process(Arc::clone(&recorder), is_alone.then(process::id));
        let locks = leasehold::Locks::connect(&arguments.url)?;
        let (seed, until, results) = (arguments.seed, arguments.until, ResultStore::new(&arguments.results));
        let state = ClientState {
            locks: locks.core().clone(),
            recorder: Arc::clone(&recorder),
            results,
            seed,
            until,
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_time().build()?;
        runtime.block_on(work(&state));
    }
    // Both counts are recorded at the end: a killed client has no second count, so it must not record the first.
    recorder.note_lock(start, "", What::Probe { phase: Phase::Start, found: found_at_start });
    let mut found = own_resources()?;
    for _ in 0..MAX_PROBES {
        // The thread of the keeper ends soon after the last `Locks` or guard that uses it.
        if found.values().sum::<u64>() <= 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        found = own_resources()?;
    }
    recorder.note(What::Probe { phase: Phase::Rest, found });
    Ok(())
}

/// Works until the time of the round is up and all started work has ended.
pub async fn work(state: &ClientState) {
    let mut tasks: Vec<_> = (0..TASKS).map(|task| tokio::spawn(task::work(state.clone(), task))).collect();
    let has_memos = state.locks.profile().no_memos.is_none();
    if has_memos {
        let observers = (0..).zip(ELECTIONS);
        tasks.extend(
            observers.map(|(number, name)| tokio::spawn(election::observe(state.clone(), name, number))),
        );
    }
    for task in tasks {
        if let Err(error) = task.await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
    if has_memos {
        election::clear(state, TASKS).await;
    }
    state.locks.close(CLOSE_LIMIT).await;
}

/// Invariant I6: the threads and sockets of this process, which must not remain at its end.
fn own_resources() -> std::io::Result<std::collections::BTreeMap<String, u64>> {
    let threads = std::fs::read_dir("/proc/self/task")?.count() as u64;
    let sockets = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count() as u64;
    Ok([("threads".to_owned(), threads), ("sockets".to_owned(), sockets)].into())
}
