//! One round: clients work under faults, and at the end the recorded history is judged.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use leasehold_testkit::{
    history::{History, Phase, Recorder, What},
    stopwatch::Stopwatch,
};

use crate::{
    Failure,
    etcd::{self, Alone, CLUSTER, Three},
    fault_run::{inject_faults, start},
    figures::Figures,
    file::Files,
    foreign_table::{self, Inserted, Shedlock},
    heartbeat::Heartbeat,
    mariadb::{Mariadb, Mysql},
    memory::Memory,
    observer::Observer,
    postgres::Postgres,
    redis::{self, Cluster, Group, Nodes, Redis},
    results::ResultStore,
    rng::Rng,
    row::{self, MariadbRows, PostgresRows},
    served::{Served, System},
    session::{self, MysqlSessions, PostgresSessions},
    speed::EngineSpeed,
    sqlite::Sqlite,
    task::LOCKS,
    verdict::judge,
    world::{Promise, Setting, World},
    zookeeper::{ENSEMBLE, Ensemble, One},
};

/// An engine name with this prefix stands for another lock crate on one Redis server.
pub const PEER: &str = "peer ";
/// An engine name with this prefix stands for another lock crate on three independent Redis masters.
pub const PEER_OF_THREE: &str = "peer of three ";
/// The names of all engines.
pub const ENGINES: [&str; 22] = [
    "redis",
    redis::REDISSON,
    redis::SENTINEL,
    redis::CLUSTER,
    redis::REDLOCK,
    "etcd",
    CLUSTER,
    "zookeeper",
    ENSEMBLE,
    "postgres",
    session::POSTGRES,
    row::POSTGRES,
    foreign_table::SHEDLOCK,
    "mariadb",
    session::MARIADB,
    row::MARIADB,
    foreign_table::INSERT,
    "mysql",
    session::MYSQL,
    "sqlite",
    "file",
    "memory",
];
/// How long it may take, by the stopwatch, until leases, minimum hold times and the queue entries of dead waiters have
/// ended. These queue entries last up to a minute (`MAX_ENTRY_LIFE`).
const REST_LIMIT: Duration = Duration::from_secs(75);

/// The interval at which the records that remain after a round are counted.
const REST_POLL: Duration = Duration::from_millis(100);

/// The parameters of a round.
#[derive(Clone, Debug)]
pub struct Round<'a> {
    /// The engine.
    pub engine: &'a str,
    /// The seed of the round.
    pub seed: u64,
    /// The length of the round.
    pub time: Duration,
    /// The program that is started for each client.
    pub program: &'a Path,
}

/// The result of a round.
pub struct Outcome {
    /// The figures of the round.
    pub figures: Figures,
    /// A text for each violation that the checker shows.
    pub complaints: Vec<String>,
    /// The directory with everything that was recorded.
    pub dir: tempfile::TempDir,
}

impl Round<'_> {
    /// Runs the round. Calls `report` repeatedly with the number of faults so far.
    ///
    /// # Errors
    /// When the round cannot be run, or a client hangs.
    pub fn run(&self, report: impl FnMut(u64)) -> Result<Outcome, Failure> {
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
        let (figures, complaints) = self.run_in_setting(&setting, report)?;
        Ok(Outcome { figures, complaints, dir })
    }

    /// Starts the engine with its clients, and runs the round.
    fn run_in_setting(
        &self,
        setting: &Setting,
        report: impl FnMut(u64),
    ) -> Result<(Figures, Vec<String>), Failure> {
        match self.engine {
            "redis" => self.run_on_servers::<Redis<false>>(setting, report),
            redis::REDISSON => self.run_on_servers::<Redis<true>>(setting, report),
            redis::SENTINEL => self.run_on_servers::<Group>(setting, report),
            redis::CLUSTER => self.run_on_servers::<Cluster>(setting, report),
            redis::REDLOCK => self.run_on_servers::<Nodes>(setting, report),
            "etcd" => self.run_on_servers::<Alone>(setting, report),
            CLUSTER => self.run_on_servers::<Three>(setting, report),
            "zookeeper" => self.run_on_servers::<One>(setting, report),
            ENSEMBLE => self.run_on_servers::<Ensemble>(setting, report),
            "postgres" => self.run_on_servers::<Postgres>(setting, report),
            session::POSTGRES => self.run_on_servers::<PostgresSessions>(setting, report),
            row::POSTGRES => self.run_on_servers::<PostgresRows>(setting, report),
            foreign_table::SHEDLOCK => self.run_on_servers::<Shedlock>(setting, report),
            "mariadb" | session::MARIADB | row::MARIADB | foreign_table::INSERT => {
                Mariadb::check_available()?;
                match self.engine {
                    session::MARIADB => self.run_on_servers::<MysqlSessions>(setting, report),
                    row::MARIADB => self.run_on_servers::<MariadbRows>(setting, report),
                    foreign_table::INSERT => self.run_on_servers::<Inserted>(setting, report),
                    _ => self.run_on_servers::<Mariadb>(setting, report),
                }
            }
            "mysql" => {
                Mysql::check_available()?;
                self.run_on_servers::<Mysql>(setting, report)
            }
            session::MYSQL => {
                Mysql::check_available()?;
                self.run_on_servers::<MysqlSessions>(setting, report)
            }
            "sqlite" => self.run_in_world(setting, Sqlite::start(setting)?, report),
            "file" => self.run_in_world(setting, Files::start(setting)?, report),
            "memory" => self.run_in_world(setting, Memory::start(setting)?, report),
            other => self.run_peer(other, setting, report),
        }
    }

    /// Runs the round with clients that use another lock crate.
    fn run_peer(
        &self,
        engine: &str,
        setting: &Setting,
        report: impl FnMut(u64),
    ) -> Result<(Figures, Vec<String>), Failure> {
        let promise = promise_of(engine, self.seed);
        if let Some(peer) = engine.strip_prefix(PEER_OF_THREE) {
            return self.run_in_world(setting, Served::<Nodes>::start_as(setting, promise, peer)?, report);
        }
        let unknown = || format!("no engine {engine:?}: expected {}", ENGINES.join(", "));
        let peer = engine.strip_prefix(PEER).ok_or_else(unknown)?;
        self.run_in_world(setting, Served::<Redis<false>>::start_as(setting, promise, peer)?, report)
    }

    /// Runs the round on servers of the system `S`, with clients that use leasehold.
    fn run_on_servers<S: System>(
        &self,
        setting: &Setting,
        report: impl FnMut(u64),
    ) -> Result<(Figures, Vec<String>), Failure> {
        let promise = promise_of(self.engine, self.seed);
        self.run_in_world(setting, Served::<S>::start(setting, promise)?, report)
    }

    /// Runs the round in this world, and judges its history.
    fn run_in_world<W: World>(
        &self,
        setting: &Setting,
        mut world: W,
        report: impl FnMut(u64),
    ) -> Result<(Figures, Vec<String>), Failure> {
        let recorder = &setting.recorder;
        let admin = world.admin();
        recorder.note(What::Probe { phase: Phase::Start, found: BTreeMap::new() });
        let disk = world.disk();
        let heartbeat = Heartbeat::of_all(Arc::clone(recorder), &setting.program, disk.as_deref())?;
        // Other lock crates store locks in a form that the admin client cannot read, so rounds with them have no
        // observer.
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let observer = (!self.engine.starts_with(PEER)).then(|| Observer::begin(admin.clone(), runtime));
        let (rng, speed) = (&mut Rng::new(self.seed, 0), EngineSpeed::of(self.engine));
        let (fault_run, faults) = inject_faults(&mut world, recorder, rng, setting.until(), &speed, report);
        let events = world.finish().map_err(|failure| format!("seed {}: {failure}", self.seed))?;
        drop(heartbeat);
        let events = History::from_events(events);
        if let Some(observer) = observer {
            observer.record(recorder);
        }
        recorder.note(What::Probe { phase: Phase::Rest, found: leftovers_at_rest(&world, &admin, &faults)? });
        let mut events = events.events().to_vec();
        events.extend(recorder.events());
        let (mut figures, mut complaints) = judge(&events, world.promise(), speed);
        if !complaints.is_empty() {
            let lines: Result<Vec<_>, _> = events.iter().map(serde_json::to_string).collect();
            std::fs::write(setting.dir.join("history.jsonl"), lines?.join("\n") + "\n")?;
        }
        figures.no_memos = admin.profile().no_memos.unwrap_or_default().to_owned();
        figures.engine = self.engine.to_owned();
        figures.seed = self.seed;
        figures.seconds = fault_run.as_secs_f64();
        figures.faults = faults.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect();
        audit(&ResultStore::new(&setting.dir), &mut figures, &mut complaints)?;
        Ok((figures, complaints))
    }
}

/// A directory for the histories of clients. It is in memory if the system has `/dev/shm`: on a disk, all clients would
/// wait to write their histories while servers sync data.
fn in_memory() -> std::io::Result<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

/// The promise of the round with this seed on an engine.
pub(crate) fn promise_of(engine: &str, seed: u64) -> Promise {
    match engine {
        "redis" | redis::REDISSON => redis::promise_of(seed),
        redis::SENTINEL | redis::CLUSTER => redis::promise_of_many(seed),
        CLUSTER => etcd::promise_of(seed),
        session::POSTGRES | session::MARIADB | session::MYSQL | row::POSTGRES | row::MARIADB => {
            session::promise_of(seed)
        }
        _ => Promise::Exclusion,
    }
}

/// The records that remain after all clients have ended. Returns as soon as no record remains, and after [`REST_LIMIT`]
/// at the latest.
fn leftovers_at_rest<W: World>(
    world: &W,
    admin: &leasehold_core::Locks,
    faults: &BTreeMap<&'static str, u64>,
) -> Result<BTreeMap<String, u64>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let watch = Stopwatch::start();
    loop {
        let mut found = world.leftovers();
        etcd::excuse_unused_leases(&mut found, faults);
        let names = runtime.block_on(admin.list(""))?.len() as u64;
        found.insert("names held or waited for".to_owned(), names);
        if found.values().all(|count| *count == 0) || watch.given() > REST_LIMIT {
            return Ok(found);
        }
        std::thread::sleep(REST_POLL);
    }
}

/// I5: checks that the fenced files contain everything that they acknowledged.
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
