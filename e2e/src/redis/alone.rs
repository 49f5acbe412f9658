//! One Redis server, with a proxy for each client, in three configurations: a server that loses no acknowledged write,
//! a server whose clock steps, and a server that loses data. The last two configurations promise no exclusion.

use std::{collections::BTreeMap, fs, path::PathBuf};

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::RedisServer;

use super::{may_remain, send_when_loaded};
use crate::{
    served::{Served, System},
    world::{Fault, Promise},
};

/// The engine name on the command line for locks in Redisson's layout.
pub const REDISSON: &str = "redis-redisson";
/// The end of the URL for locks in Redisson's layout.
const LAYOUT: &str = "?layout=redisson";

/// The fault that restarts the server with all acknowledged data.
pub(crate) const RESTART: &str = "server restarts";
/// By how many seconds the server's clock is set forward or back: by more than the ttl of a lease.
const STEP: i64 = 3;

/// How many bytes at the end of the append-only file a power cut loses.
const UNSYNCED: u64 = 4000;

/// The only server, with locks in the default layout or in Redisson's.
pub struct Redis<const OF_REDISSON: bool>(RedisServer);

impl<const OF_REDISSON: bool> Redis<OF_REDISSON> {
    /// The faults of the server that loses no acknowledged write.
    const FAULTS_WITHOUT_LOSS: &'static [Fault<Served<Self>>] = &[
        Fault {
            name: "server stops",
            lasts: 20..1500,
            begin: |w, _| w.system.0.pause(),
            end: |w, _| w.system.0.resume(),
        },
        Fault {
            name: RESTART,
            lasts: 5..300,
            begin: |w, _| w.system.0.kill(),
            end: |w, _| w.system.0.restart(),
        },
        Fault {
            name: "connections killed",
            lasts: 1..10,
            begin: |w, _| send_when_loaded(&w.system.0, &["CLIENT", "KILL", "TYPE", "normal"]),
            end: |_, _| {},
        },
        Fault {
            name: "scripts forgotten",
            lasts: 1..10,
            begin: |w, _| send_when_loaded(&w.system.0, &["SCRIPT", "FLUSH"]),
            end: |_, _| {},
        },
    ];

    /// The faults of the server that loses data.
    const FAULTS_WITH_LOSS: &'static [Fault<Served<Self>>] = &[
        Fault {
            name: "restart without data",
            lasts: 5..200,
            begin: |w, _| w.system.forget_all(),
            end: |w, _| w.system.0.restart(),
        },
        Fault {
            name: "power cut",
            lasts: 5..200,
            begin: |w, _| w.system.cut_power(),
            end: |w, _| w.system.0.restart(),
        },
        Fault {
            name: "all flushed",
            lasts: 1..10,
            begin: |w, _| send_when_loaded(&w.system.0, &["FLUSHALL"]),
            end: |_, _| {},
        },
    ];

    /// The faults of the server whose clock steps.
    const CLOCK_STEPS: &'static [Fault<Served<Self>>] = &[
        Fault {
            name: "clock steps",
            lasts: 20..800,
            begin: |w, _| w.system.0.set_clock(STEP),
            end: |w, _| w.system.0.set_clock(0),
        },
        Fault {
            name: "clock stumbles",
            lasts: 20..800,
            begin: |w, _| w.system.0.set_clock(-STEP),
            end: |w, _| w.system.0.set_clock(0),
        },
    ];

    /// The newest file of the append-only log.
    fn log(&self) -> Option<PathBuf> {
        let dir = self.0.socket().with_file_name("appendonlydir");
        let files = fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        files.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max()
    }

    /// Simulates a power cut: kills the server, and removes the end of the append-only log, as if it had not been
    /// synced. A kill alone would lose nothing, because the kernel still has the data.
    fn cut_power(&mut self) {
        self.0.kill();
        let log_file = self.log().and_then(|path| fs::OpenOptions::new().write(true).open(path).ok());
        if let Some(log) = log_file
            && let Ok(metadata) = log.metadata()
        {
            let _ = log.set_len(metadata.len() - metadata.len().min(UNSYNCED));
        }
    }

    /// Kills the server and deletes its data.
    fn forget_all(&mut self) {
        self.0.kill();
        let _ = fs::remove_dir_all(self.0.socket().with_file_name("appendonlydir"));
    }
}

impl<const OF_REDISSON: bool> System for Redis<OF_REDISSON> {
    const SCHEME: &'static str = "redis";
    const MAX_STOP: u64 = 2500;
    const MAX_HOLD_BACK: u64 = 1500;

    fn faults(promise: Promise) -> &'static [Fault<Served<Self>>] {
        match promise {
            Promise::Exclusion => Self::FAULTS_WITHOUT_LOSS,
            Promise::Fence => Self::FAULTS_WITH_LOSS,
            Promise::Doubt => Self::CLOCK_STEPS,
        }
    }

    /// Starts the server in the configuration that has this promise.
    fn start(_: u64, promise: Promise) -> Self {
        let arguments = |fsync| ["--appendonly", "yes", "--appendfsync", fsync];
        Self(match promise {
            Promise::Exclusion => RedisServer::start(&arguments("always")),
            Promise::Doubt => RedisServer::with_clock(&arguments("always")),
            Promise::Fence => RedisServer::start(&arguments("everysec")),
        })
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn url(servers: &str) -> String {
        format!("redis://{servers}{}", if OF_REDISSON { LAYOUT } else { "" })
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, promise: Promise) -> bool {
        let level = if promise == Promise::Fence { Level::BestEffort } else { Level::LeaseBounded };
        guarantee.level == level && guarantee.to_string().contains("set forward ends them early")
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        let lines = |command: &[&str]| self.0.command(command).into_iter().filter(|line| !line.is_empty());
        let keys =
            lines(&["--raw", "KEYS", "*"]).filter(|key| !may_remain(key, |command| self.0.command(command)));
        let mut leftovers: BTreeMap<String, u64> = keys.map(|key| (format!("key {key}"), 1)).collect();
        // The admin client has one channel and one connection, and `redis-cli` has another connection.
        let channels = lines(&["--raw", "PUBSUB", "CHANNELS"]).count().saturating_sub(1);
        let connections = lines(&["CLIENT", "LIST"]).count().saturating_sub(2);
        leftovers.extend([
            ("channels".to_owned(), channels as u64),
            ("connections".to_owned(), connections as u64),
        ]);
        leftovers
    }
}
