//! The memory engine under faults: the clients are in this process. Each reaches the store through a decorator that
//! loses, delays and doubles calls, and runs on an executor that is blocked and dropped.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, thread, time::Duration};

use leasehold_core::{
    Env, Keeper, Locks,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::{
    decorators::{Fault as Wire, Faulty, Verb},
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
    dropped::ends,
    heartbeat::Heartbeat,
    results::ResultStore,
    world::{Fault, Promise, Setting, World},
};

/// How many clients a round has.
const CLIENTS: usize = 4;
/// The number of calls of each verb that one fault affects.
const BURST: usize = 3;
/// For how long an executor is blocked: longer than a lease.
const BLOCKED: Duration = Duration::from_millis(1300);
/// How much time of the machine a client may take to end after its time is up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store and its clients.
pub struct Memory {
    store: Arc<MemoryStore>,
    setting: Setting,
    clients: Vec<Client>,
    /// The recorders of all clients so far, and the times at which executors were dropped.
    recorders: Vec<Arc<Recorder>>,
    dropped: BTreeMap<u32, u64>,
}

struct Client {
    proc: u32,
    wire: Arc<Faulty>,
    runtime: Option<Runtime>,
    work: JoinHandle<()>,
    _heartbeat: Heartbeat,
}

impl Memory {
    /// Starts the clients.
    ///
    /// # Errors
    /// The operating system's.
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

    fn launch(&mut self) -> Result<Client, Failure> {
        let Setting { seed, dir, .. } = &self.setting;
        let until = self.setting.until();
        // Number 0 is the round's own recorder.
        let proc = self.recorders.len() as u32 + 1;
        let recorder = Arc::new(Recorder::in_memory(*seed, proc));
        self.recorders.push(Arc::clone(&recorder));
        let wire = Arc::new(Faulty::new(Arc::new(MemoryEngine::new(Arc::clone(&self.store)))));
        // The keeper has its own runtime, which a blocked executor of the user does not affect.
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_time().build()?;
        let locks = Locks::builder(Arc::clone(&wire) as _).keeper(Keeper::thread()).build();
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(proc.into());
        let heartbeat = Heartbeat::of_process(Arc::clone(&recorder), Some(proc));
        let state = ClientState { locks, recorder, results: ResultStore::new(dir), seed, until };
        let work = runtime.spawn(async move { client::work(&state).await });
        Ok(Client { proc, wire, runtime: Some(runtime), work, _heartbeat: heartbeat })
    }

    /// Schedules a fault for the next calls of each verb.
    fn schedule_faults(&mut self, at: usize, fault: Wire) {
        for verb in [Verb::Claim, Verb::Renew, Verb::Release, Verb::Notification] {
            for _ in 0..BURST {
                self.clients[at].wire.next(verb, fault);
            }
        }
    }

    /// Ends the faults; delayed calls arrive.
    fn heal(&mut self, at: usize) {
        let wire = Arc::clone(&self.clients[at].wire);
        wire.clear_planned();
        if let Some(runtime) = &self.clients[at].runtime {
            runtime.block_on(wire.deliver_late());
        }
    }

    /// Blocks all threads of the user's executor.
    fn block(&mut self, at: usize) {
        let client = &self.clients[at];
        let Some(runtime) = &client.runtime else { return };
        self.setting.recorder.note(What::Stop { victim: client.proc });
        for _ in 0..THREADS {
            runtime.spawn(async { thread::sleep(BLOCKED) });
        }
    }

    fn unblock(&mut self, at: usize) {
        self.setting.recorder.note(What::Cont { victim: self.clients[at].proc });
    }

    /// Drops the executor with all tasks on it.
    fn drop_executor(&mut self, at: usize) {
        if let Some(runtime) = self.clients[at].runtime.take() {
            self.dropped.insert(self.clients[at].proc, now_nanos());
            runtime.shutdown_background();
        }
    }

    fn replace(&mut self, at: usize) {
        self.clients[at] = self.launch().expect("the system has room for a few more threads");
    }
}

impl World for Memory {
    const CLIENT_FAULTS: &'static [Fault<Self>] = &[
        Fault {
            name: "requests lost",
            lasts: 50..300,
            begin: |w, at| w.schedule_faults(at, Wire::RequestLost),
            end: |w, at| w.heal(at),
        },
        Fault {
            name: "replies lost",
            lasts: 50..300,
            begin: |w, at| w.schedule_faults(at, Wire::ReplyLost),
            end: |w, at| w.heal(at),
        },
        Fault {
            name: "requests doubled",
            lasts: 50..300,
            begin: |w, at| w.schedule_faults(at, Wire::Duplicated),
            end: |w, at| w.heal(at),
        },
        Fault {
            name: "requests late",
            lasts: 50..600,
            begin: |w, at| w.schedule_faults(at, Wire::Late),
            end: |w, at| w.heal(at),
        },
        Fault {
            name: "executor blocked",
            lasts: 1500..1600,
            begin: |w, at| w.block(at),
            end: |w, at| w.unblock(at),
        },
        Fault {
            name: "executor dropped",
            lasts: 1..200,
            begin: |w, at| w.drop_executor(at),
            end: |w, at| w.replace(at),
        },
    ];

    fn clients(&self) -> usize {
        CLIENTS
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
        for at in 0..self.clients.len() {
            while !self.clients[at].work.is_finished() {
                if watch.given() > PATIENCE {
                    return Err(format!("client {at} hangs").into());
                }
                self.heal(at);
                thread::sleep(Duration::from_millis(10));
            }
            if let Some(runtime) = self.clients[at].runtime.take() {
                runtime.block_on(&mut self.clients[at].work)?;
                runtime.shutdown_background();
            }
        }
        // The heartbeats end with the clients, so nothing is recorded after this.
        self.clients.clear();
        let mut events = Vec::new();
        for (proc, recorder) in (1..).zip(&self.recorders) {
            let own = recorder.events();
            if let Some(at) = self.dropped.get(&proc) {
                events.extend(ends(&own, *at));
            }
            events.extend(own);
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
