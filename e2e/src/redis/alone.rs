//! One server of the round's own, a proxy for each client. Three configurations: one that keeps what it acknowledged, one
//! whose clock steps besides, and one that forgets. On the last two no exclusion is promised.

use std::{collections::BTreeMap, fs, path::PathBuf};

use leasehold_core::{Guarantee, Level, Locks};
use leasehold_testkit::{
    history::Event,
    server::{Proxy, RedisServer, redis_command},
};

use super::lapses;
use crate::{
    Failure,
    proxied::Proxied,
    workers::Workers,
    world::{Fault, Promise, Setting, World, block_on},
};

/// What the same server is called where locks are Redisson's.
pub const REDISSON: &str = "redis-redisson";
/// What its URLs end with then.
const LAYOUT: &str = "?layout=redisson";

/// How many client processes a round has.
const CLIENTS: usize = 4;
/// How often a server that is loading is told something, and how soon again.
const MOST_TRIES: usize = 1000;
const RETRY: std::time::Duration = std::time::Duration::from_millis(5);
/// The fault that starts the server anew with all that it acknowledged.
pub(crate) const ANEW: &str = "server restarts";
/// How far the server's clock is set forward: beyond the leases.
const STEP: i64 = 3;

/// A server and its clients.
pub struct Redis {
    server: RedisServer,
    proxies: Vec<Proxy>,
    workers: Workers,
    admin: leasehold::Locks,
    promise: Promise,
}

impl Redis {
    /// Starts a server that keeps or forgets, as promised, and its clients, which are processes of this role. On the engine
    /// [`REDISSON`] locks are Redisson's.
    ///
    /// # Errors
    /// The operating system's; and when the engine says another level than the configuration deserves.
    pub fn start(setting: &Setting, promise: Promise, engine: &str, role: &str) -> Result<Self, Failure> {
        let arguments = |fsync| ["--appendonly", "yes", "--appendfsync", fsync];
        let (server, level) = match promise {
            Promise::Exclusion => (RedisServer::start(&arguments("always")), Level::LeaseBounded),
            Promise::Doubt => (RedisServer::with_clock(&arguments("always")), Level::LeaseBounded),
            Promise::Fence => (RedisServer::start(&arguments("everysec")), Level::BestEffort),
        };
        let layout = if engine == REDISSON { LAYOUT } else { "" };
        let at = |port| format!("redis://127.0.0.1:{port}{layout}");
        let admin = leasehold::Locks::connect(&at(server.port()))?;
        expect_label(&block_on(admin.guarantee())?, level)?;
        let proxies: Vec<_> = (0..CLIENTS).map(|_| Proxy::start(server.port())).collect();
        let workers = Workers::start(setting, role, proxies.iter().map(|proxy| at(proxy.port())).collect())?;
        Ok(Self { server, proxies, workers, admin, promise })
    }

    fn says(&self, command: &[&str]) -> Vec<String> {
        self.server.command(command)
    }

    /// Tells a server that may still be loading what it kept.
    fn tell(&self, command: &[&str]) {
        for _ in 0..MOST_TRIES {
            if redis_command(self.server.port(), command).status.success() {
                return;
            }
            std::thread::sleep(RETRY);
        }
        panic!("the server does not hear {command:?}");
    }

    /// The newest part of the append-only file.
    fn log(&self) -> Option<PathBuf> {
        let dir = self.server.socket().with_file_name("appendonlydir");
        let files = fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        files.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max()
    }

    /// What a power cut leaves of a file that was not synced: SIGKILL alone loses nothing, for the kernel has it all.
    fn cut_power(&mut self) {
        self.server.kill();
        let cut = self.log().and_then(|path| fs::OpenOptions::new().write(true).open(path).ok());
        if let Some(log) = cut
            && let Ok(facts) = log.metadata()
        {
            let _ = log.set_len(facts.len() - facts.len().min(4000));
        }
    }

    fn forget_all(&mut self) {
        self.server.kill();
        let _ = fs::remove_dir_all(self.server.socket().with_file_name("appendonlydir"));
    }
}

fn expect_label(said: &Guarantee, level: Level) -> Result<(), Failure> {
    let clock = said.to_string().contains("set forward ends them early");
    if said.level == level && clock {
        return Ok(());
    }
    Err(format!("the configuration deserves {level} and a word on clocks, the engine says {said:?}").into())
}

/// What may happen to the server that keeps what it acknowledged.
const KEEPS: &[Fault<Redis>] = &[
    Fault {
        name: "server stops",
        lasts: 20..1500,
        begin: |w, _| w.server.pause(),
        end: |w, _| w.server.resume(),
    },
    Fault { name: ANEW, lasts: 5..300, begin: |w, _| w.server.kill(), end: |w, _| w.server.restart() },
    Fault {
        name: "connections killed",
        lasts: 1..10,
        begin: |w, _| w.tell(&["CLIENT", "KILL", "TYPE", "normal"]),
        end: |_, _| {},
    },
    Fault {
        name: "scripts forgotten",
        lasts: 1..10,
        begin: |w, _| w.tell(&["SCRIPT", "FLUSH"]),
        end: |_, _| {},
    },
];

/// What may happen to the one that forgets.
const FORGETS: &[Fault<Redis>] = &[
    Fault {
        name: "restart without data",
        lasts: 5..200,
        begin: |w, _| w.forget_all(),
        end: |w, _| w.server.restart(),
    },
    Fault { name: "power cut", lasts: 5..200, begin: |w, _| w.cut_power(), end: |w, _| w.server.restart() },
    Fault { name: "all flushed", lasts: 1..10, begin: |w, _| w.tell(&["FLUSHALL"]), end: |_, _| {} },
];

/// What may happen to the one with a clock of its own.
const STEPS: &[Fault<Redis>] = &[
    Fault {
        name: "clock steps",
        lasts: 20..800,
        begin: |w, _| w.server.set_clock(STEP),
        end: |w, _| w.server.set_clock(0),
    },
    Fault {
        name: "clock stumbles",
        lasts: 20..800,
        begin: |w, _| w.server.set_clock(-STEP),
        end: |w, _| w.server.set_clock(0),
    },
];

impl Proxied for Redis {
    const STOPPED: u64 = 2500;
    const HELD: u64 = 1500;

    fn workers(&mut self) -> &mut Workers {
        &mut self.workers
    }

    fn each(&self, at: usize, act: fn(&Proxy)) {
        act(&self.proxies[at]);
    }
}

impl World for Redis {
    const OF_CLIENTS: &'static [Fault<Self>] = Self::FAULTS;

    fn clients(&self) -> usize {
        CLIENTS
    }

    fn of_server(&self) -> &'static [Fault<Self>] {
        match self.promise {
            Promise::Exclusion => KEEPS,
            Promise::Fence => FORGETS,
            Promise::Doubt => STEPS,
        }
    }

    fn admin(&self) -> Locks {
        Locks::clone(&self.admin)
    }

    fn finish(&mut self) -> Result<Vec<Event>, Failure> {
        self.workers.join()
    }

    fn things(&self) -> BTreeMap<String, u64> {
        let lines = |command: &[&str]| self.says(command).into_iter().filter(|line| !line.is_empty());
        let keys = lines(&["--raw", "KEYS", "*"]).filter(|key| !lapses(key, |command| self.says(command)));
        let mut things: BTreeMap<String, u64> = keys.map(|key| (format!("key {key}"), 1)).collect();
        // The administrator has a channel and a connection, and whoever asks here a connection.
        let channels = lines(&["--raw", "PUBSUB", "CHANNELS"]).count().saturating_sub(1);
        let connections = lines(&["CLIENT", "LIST"]).count().saturating_sub(2);
        things.extend([
            ("channels".to_owned(), channels as u64),
            ("connections".to_owned(), connections as u64),
        ]);
        things
    }

    fn promise(&self) -> Promise {
        self.promise
    }
}
