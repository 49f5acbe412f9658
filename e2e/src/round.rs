//! One round: clients work, faults strike, and at the end everything that anybody saw is judged.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use leasehold_testkit::{
    history::{History, Phase, Recorder, What},
    stopwatch::Stopwatch,
};

use crate::{
    Failure,
    etcd::{self, Alone, CLUSTER, Three},
    fault_run::{rage, start},
    figures::Figures,
    file::Files,
    heartbeat::Heartbeat,
    mariadb::{Mariadb, Mysql},
    memory::Memory,
    postgres::Postgres,
    redis::{self, Cluster, Group, Nodes, Redis},
    results::ResultStore,
    rng::Rng,
    served::{Served, System},
    speed::EngineSpeed,
    sqlite::Sqlite,
    task::LOCKS,
    truth::Looker,
    verdict::judge,
    world::{Promise, Setting, World},
    zookeeper::{ENSEMBLE, Ensemble, One},
};

/// What stands before the name of another crate that is put in the place of leasehold on Redis.
pub const PEER: &str = "peer ";
/// The same on three independent masters.
pub const PEER_OF_THREE: &str = "peer of three ";
/// How much time of the machine what lapses may take to lapse: leases, kept names, places of dead waiters, of which one that speaks
/// seldom has a minute (`MAX_ENTRY_LIFE`).
const REST: Duration = Duration::from_secs(75);

/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(100);

/// What to do.
#[derive(Clone, Debug)]
pub struct Round<'a> {
    /// On which engine.
    pub engine: &'a str,
    /// From which seed.
    pub seed: u64,
    /// For how long.
    pub time: Duration,
    /// The program that is started again as clients.
    pub program: &'a Path,
}

/// How it went.
pub struct Outcome {
    /// In figures.
    pub figures: Figures,
    /// In words, what was violated.
    pub complaints: Vec<String>,
    /// Where everything is that was written down.
    pub dir: tempfile::TempDir,
}

impl Round<'_> {
    /// Does it. `tell` hears of each moment how many faults there were.
    ///
    /// # Errors
    /// When it cannot be done, or a client hangs.
    pub fn run(&self, tell: impl FnMut(u64)) -> Result<Outcome, Failure> {
        let dir = in_memory()?;
        let setting = Setting {
            seed: self.seed,
            time: self.time,
            until: Arc::default(),
            dir: dir.path().to_owned(),
            program: self.program.to_owned(),
            recorder: Arc::new(Recorder::in_memory(self.seed, 0)),
        };
        start(&setting.recorder);
        let (figures, complaints) = match self.engine {
            "redis" => self.on::<Redis<false>>(&setting, promise_of(self.seed), tell)?,
            redis::REDISSON => self.on::<Redis<true>>(&setting, promise_of(self.seed), tell)?,
            redis::SENTINEL => self.on::<Group>(&setting, redis::promise_of_many(self.seed), tell)?,
            redis::CLUSTER => self.on::<Cluster>(&setting, redis::promise_of_many(self.seed), tell)?,
            redis::REDLOCK => self.on::<Nodes>(&setting, Promise::Exclusion, tell)?,
            "etcd" => self.on::<Alone>(&setting, Promise::Exclusion, tell)?,
            CLUSTER => self.on::<Three>(&setting, etcd::promise_of(self.seed), tell)?,
            "zookeeper" => self.on::<One>(&setting, Promise::Exclusion, tell)?,
            ENSEMBLE => self.on::<Ensemble>(&setting, Promise::Exclusion, tell)?,
            "postgres" => self.on::<Postgres>(&setting, Promise::Exclusion, tell)?,
            "mariadb" => {
                Mariadb::is_there()?;
                self.on::<Mariadb>(&setting, Promise::Exclusion, tell)?
            }
            "mysql" => {
                Mysql::is_there()?;
                self.on::<Mysql>(&setting, Promise::Exclusion, tell)?
            }
            "sqlite" => self.through(&setting, Sqlite::start(&setting)?, tell)?,
            "file" => self.through(&setting, Files::start(&setting)?, tell)?,
            "memory" => self.through(&setting, Memory::start(&setting)?, tell)?,
            other if other.starts_with(PEER_OF_THREE) => {
                let peer = &other[PEER_OF_THREE.len()..];
                let world = Served::<Nodes>::start_as(&setting, Promise::Exclusion, peer)?;
                self.through(&setting, world, tell)?
            }
            other => {
                let peer = other.strip_prefix(PEER);
                let peer = peer.ok_or(format!(
                    "no engine {other:?}: redis, {}, {}, {}, {}, etcd, {CLUSTER}, zookeeper, {ENSEMBLE}, postgres, mariadb, mysql, sqlite, file and memory are there",
                    redis::REDISSON,
                    redis::SENTINEL,
                    redis::CLUSTER,
                    redis::REDLOCK
                ))?;
                let world = Served::<Redis<false>>::start_as(&setting, Promise::Exclusion, peer)?;
                self.through(&setting, world, tell)?
            }
        };
        Ok(Outcome { figures, complaints, dir })
    }

    /// On these servers, with clients of leasehold.
    fn on<S: System>(
        &self,
        setting: &Setting,
        promise: Promise,
        tell: impl FnMut(u64),
    ) -> Result<(Figures, Vec<String>), Failure> {
        self.through(setting, Served::<S>::start(setting, promise)?, tell)
    }

    fn through<W: World>(
        &self,
        setting: &Setting,
        mut world: W,
        tell: impl FnMut(u64),
    ) -> Result<(Figures, Vec<String>), Failure> {
        let recorder = &setting.recorder;
        let admin = world.admin();
        recorder.note(What::Probe { phase: Phase::Start, found: BTreeMap::new() });
        let disk = world.disk();
        let heartbeat = Heartbeat::of_all(Arc::clone(recorder), &setting.program, disk.as_deref())?;
        // Of the locks of other crates it knows nothing.
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let looker = (!self.engine.starts_with(PEER)).then(|| Looker::begin(admin.clone(), runtime));
        let (rng, speed) = (&mut Rng::new(self.seed, 0), EngineSpeed::of(self.engine));
        let (fault_run, faults) = rage(&mut world, recorder, rng, setting.until(), speed.traces, tell);
        let events = world.finish().map_err(|failure| format!("seed {}: {failure}", self.seed))?;
        drop(heartbeat);
        let events = History::from_events(events);
        if let Some(looker) = looker {
            looker.record(recorder);
        }
        recorder.note(What::Probe { phase: Phase::Rest, found: at_rest(&world, &admin)? });
        let mut events = events.events().to_vec();
        events.extend(recorder.events());
        let (mut figures, mut complaints) = judge(&events, world.promise(), speed);
        if !complaints.is_empty() {
            let lines: Result<Vec<_>, _> = events.iter().map(serde_json::to_string).collect();
            std::fs::write(setting.dir.join("history.jsonl"), lines?.join("\n") + "\n")?;
        }
        figures.engine = self.engine.to_owned();
        figures.seed = self.seed;
        figures.seconds = fault_run.as_secs_f64();
        figures.faults = faults.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect();
        audit(&ResultStore::new(&setting.dir), &mut figures, &mut complaints)?;
        Ok((figures, complaints))
    }
}

/// Where clients write down what they see: not on a disk, for which all of them would wait while servers sync their data.
fn in_memory() -> std::io::Result<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

/// Every third and fourth round on Redis is on a server that promises no exclusion.
pub(crate) const fn promise_of(seed: u64) -> Promise {
    match seed % 4 {
        2 => Promise::Doubt,
        3 => Promise::Fence,
        _ => Promise::Exclusion,
    }
}

/// What is left when nobody works any more, once everything that lapses had its time.
fn at_rest<W: World>(world: &W, admin: &leasehold_core::Locks) -> Result<BTreeMap<String, u64>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let watch = Stopwatch::start();
    loop {
        let mut found = world.things();
        let names = runtime.block_on(admin.list(""))?.len() as u64;
        found.insert("names held or waited for".to_owned(), names);
        if found.values().all(|count| *count == 0) || watch.given() > REST {
            return Ok(found);
        }
        std::thread::sleep(LOOK);
    }
}

/// I5: what the fenced files acknowledged is in them.
fn audit(results: &ResultStore, figures: &mut Figures, complaints: &mut Vec<String>) -> Result<(), Failure> {
    for lock in LOCKS {
        figures.appends += results.acknowledged(lock)?.len() as u64;
        figures.appends_lost += results.lost_elements(lock)?;
    }
    figures.checked.insert("I5 fence".to_owned(), figures.appends);
    if figures.appends_lost > 0 {
        figures.violations.insert("I5 fence".to_owned(), figures.appends_lost);
        complaints.push(format!("{} acknowledged appends are lost", figures.appends_lost));
    }
    Ok(())
}
