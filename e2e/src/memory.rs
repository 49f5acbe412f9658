//! The memory engine under faults. The clients are in this process. Each client reaches the store through a decorator
//! that loses, delays and doubles calls. The tasks of a client run on an executor that is blocked or dropped by faults.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, thread, time::Duration};

use leasehold_core::{
    Env, Keeper, Locks,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::{
    decorators::{Fault as WireFault, Faulty, Verb},
    history::{Event, Recorder, What, now_nanos},
    stopwatch::Stopwatch,
};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

use crate::{
    Failure,
    client::{self, ClientState, THREADS},
    dropped::end_events,
    heartbeat::Heartbeat,
    results::ResultStore,
    world::{Fault, Promise, Setting, World},
};

/// How many clients a round has.
const CLIENTS: usize = 4;
/// The number of calls of each verb that one fault affects.
const BURST: usize = 3;
/// For how long an executor is blocked: longer than a lease.
const BLOCK_TIME: Duration = Duration::from_millis(1300);
/// How long a client may take to end after the time of the round is up, by the stopwatch.
const END_LIMIT: Duration = Duration::from_secs(60);

/// A store and its clients.
pub struct Memory {
    store: Arc<MemoryStore>,
    setting: Setting,
    clients: Vec<Client>,
    /// The recorders of all clients that were started so far.
    recorders: Vec<Arc<Recorder>>,
    /// The times at which executors were dropped, by client number.
    dropped: BTreeMap<u32, u64>,
}

/// A client in this process.
struct Client {
    /// The number of the client, which the history has in place of a process id.
    proc: u32,
    /// The decorator of the engine.
    faulty: Arc<Faulty>,
    /// The executor of the client's tasks.
    runtime: Option<Runtime>,
    work: JoinHandle<()>,
    _heartbeat: Heartbeat,
}

impl Memory {
    /// Starts the clients.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn start(setting: &Setting) -> Result<Self, Failure> {
        let env = Env::system();
        let store = MemoryStore::new(env.lineage(), env.clock);
        let mut world = Self {
            store,
            setting: setting.clone(),
            clients: Vec::new(),
            recorders: Vec::new(),
            dropped: BTreeMap::new(),
        };
        for _ in 0..CLIENTS {
            let client = world.launch()?;
            world.clients.push(client);
        }
        Ok(world)
    }

    /// Starts a client.
    fn launch(&mut self) -> Result<Client, Failure> {
        let Setting { seed, dir, .. } = &self.setting;
        let until = self.setting.until();
        // The number 0 belongs to the round's own recorder.
        let proc = self.recorders.len() as u32 + 1;
        let recorder = Arc::new(Recorder::in_memory(*seed, proc));
        self.recorders.push(Arc::clone(&recorder));
        let faulty = Arc::new(Faulty::new(Arc::new(MemoryEngine::new(Arc::clone(&self.store)))));
        // The keeper has its own runtime, which a blocked executor of the user does not affect.
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_time().build()?;
        let locks = Locks::builder(Arc::clone(&faulty) as _).keeper(Keeper::thread()).build();
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(proc.into());
        let heartbeat = Heartbeat::of_process(Arc::clone(&recorder), Some(proc));
        let state = ClientState { locks, recorder, results: ResultStore::new(dir), seed, until };
        let work = runtime.spawn(async move { client::work(&state).await });
        Ok(Client { proc, faulty, runtime: Some(runtime), work, _heartbeat: heartbeat })
    }

    /// Schedules a fault for the next calls of each verb.
    fn schedule_faults(&mut self, client: usize, fault: WireFault) {
        for verb in [Verb::Claim, Verb::Renew, Verb::Release, Verb::Notification] {
            for _ in 0..BURST {
                self.clients[client].faulty.next(verb, fault);
            }
        }
    }

    /// Ends the scheduled faults of a client, and delivers the calls that were delayed.
    fn heal(&mut self, client: usize) {
        let faulty = Arc::clone(&self.clients[client].faulty);
        faulty.clear_planned();
        if let Some(runtime) = &self.clients[client].runtime {
            runtime.block_on(faulty.deliver_late());
        }
    }

    /// Blocks all threads of the user's executor.
    fn block(&mut self, client: usize) {
        let client = &self.clients[client];
        let Some(runtime) = &client.runtime else { return };
        self.setting.recorder.note(What::Stop { victim: client.proc });
        for _ in 0..THREADS {
            runtime.spawn(async { thread::sleep(BLOCK_TIME) });
        }
    }

    /// Records that the executor is no longer blocked.
    fn unblock(&mut self, client: usize) {
        self.setting.recorder.note(What::Cont { victim: self.clients[client].proc });
    }

    /// Drops the executor with all tasks on it.
    fn drop_executor(&mut self, client: usize) {
        if let Some(runtime) = self.clients[client].runtime.take() {
            self.dropped.insert(self.clients[client].proc, now_nanos());
            runtime.shutdown_background();
        }
    }

    /// Starts a new client in the place of one whose executor was dropped.
    fn replace(&mut self, client: usize) {
        self.clients[client] = self.launch().expect("the system has room for a few more threads");
    }
}

impl World for Memory {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn client_faults(&self) -> &'static [Fault<Self>] {
        &[
            Fault {
                name: "requests lost",
                lasts: 50..300,
                begin: |w, client| w.schedule_faults(client, WireFault::RequestLost),
                end: |w, client| w.heal(client),
            },
            Fault {
                name: "replies lost",
                lasts: 50..300,
                begin: |w, client| w.schedule_faults(client, WireFault::ReplyLost),
                end: |w, client| w.heal(client),
            },
            Fault {
                name: "requests doubled",
                lasts: 50..300,
                begin: |w, client| w.schedule_faults(client, WireFault::Duplicated),
                end: |w, client| w.heal(client),
            },
            Fault {
                name: "requests late",
                lasts: 50..600,
                begin: |w, client| w.schedule_faults(client, WireFault::Late),
                end: |w, client| w.heal(client),
            },
            Fault {
                name: "executor blocked",
                lasts: 1500..1600,
                begin: |w, client| w.block(client),
                end: |w, client| w.unblock(client),
            },
            Fault {
                name: "executor dropped",
                lasts: 1..200,
                begin: |w, client| w.drop_executor(client),
                end: |w, client| w.replace(client),
            },
        ]
    }

    fn server_faults(&self) -> &'static [Fault<Self>] {
        &[]
    }

    fn disk(&self) -> Option<PathBuf> {
        None
    }

    fn admin(&self) -> Locks {
        Locks::new(Arc::new(MemoryEngine::new(Arc::clone(&self.store))))
    }

    fn finish(&mut self) -> Result<Vec<Event>, Failure> {
        let watch = Stopwatch::start();
        for client in 0..self.clients.len() {
            while !self.clients[client].work.is_finished() {
                if watch.given() > END_LIMIT {
                    return Err(format!("client {client} hangs").into());
                }
                self.heal(client);
                thread::sleep(Duration::from_millis(10));
            }
            if let Some(runtime) = self.clients[client].runtime.take() {
                runtime.block_on(&mut self.clients[client].work)?;
                runtime.shutdown_background();
            }
        }
        // The heartbeats end with their clients, so nothing is recorded after this line.
        self.clients.clear();
        let mut events = Vec::new();
        for (proc, recorder) in (1..).zip(&self.recorders) {
            let recorded = recorder.events();
            if let Some(dropped_at) = self.dropped.get(&proc) {
                events.extend(end_events(&recorded, *dropped_at));
            }
            events.extend(recorded);
        }
        Ok(events)
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    fn promise(&self) -> Promise {
        Promise::Exclusion
    }
}
