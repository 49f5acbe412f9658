//! Programs of both sides share a name, while holders are killed and servers change: here redis-py's clients of
//! Sentinels and of a Cluster.

use std::{
    fs,
    io::Write,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use leasehold_testkit::server::{RedisCluster, RedisFailover, RedisSentinels};

use crate::{
    journal::{Tally, holder_of, judge, side},
    packages::Neighbour,
};

/// The number of programs of each side.
const OF_EACH: usize = 3;
pub(crate) const SIDES: [&str; 2] = ["ours", "theirs"];
/// The ttl, longer than a fail-over takes: here a server is considered down after at most 1.5 s.
const TTL: Duration = Duration::from_secs(8);
/// The number of sections of each side after each event, before the next event.
const TURNS: usize = 15;
/// How often each event is injected while a program of each side holds.
pub(crate) const ROUNDS: usize = 2;
/// The time limit for events that come soon or never.
const PATIENCE: Duration = Duration::from_secs(180);
/// The name of the lock that both sides use.
const NAME: &str = "shared";

/// A fault of servers.
pub(crate) struct ServerFault<T> {
    /// Begins the fault, and returns the server under the fault.
    pub(crate) begin: fn(&mut T) -> usize,
    /// Ends the fault, and restores the earlier state.
    pub(crate) end: fn(&mut T, usize),
    /// Whether acknowledged writes may be lost.
    pub(crate) loses: bool,
}

/// The programs of both sides, which share the lock.
pub(crate) struct Contest<'a> {
    dir: &'a Path,
    /// The command line of each side, without the directory and the name of the program.
    commands: [Vec<String>; 2],
    programs: Vec<(String, Neighbour)>,
    started: usize,
}

impl<'a> Contest<'a> {
    /// Starts all programs: ours at this URL, and those of redis-py with this kind of client at these addresses.
    fn start(dir: &'a Path, url: &str, kind: &str, addresses: &str) -> Self {
        let key = format!("lock:{NAME}");
        let theirs = ["python3", "turns.py", kind, addresses, &key];
        Self::of(dir, url, theirs.map(str::to_owned).to_vec())
    }

    /// Starts all programs: ours at this URL, and the others by this command line, to which the ttl is added.
    pub(crate) fn of(dir: &'a Path, url: &str, mut theirs: Vec<String>) -> Self {
        fs::write(dir.join("journal"), "").unwrap();
        let ttl = TTL.as_millis().to_string();
        let ours =
            [env!("CARGO_BIN_EXE_leasehold-e2e"), "turns", url, NAME, &ttl].map(str::to_owned).to_vec();
        theirs.push(ttl);
        let commands = [ours, theirs];
        let mut contest = Self { dir, commands, programs: Vec::new(), started: 0 };
        for _ in 0..OF_EACH {
            SIDES.iter().for_each(|side| contest.start_program(side));
        }
        contest.resume();
        contest
    }

    fn start_program(&mut self, name: &str) {
        let program = format!("{name}-{}", self.started);
        self.started += 1;
        let command_line = &self.commands[side(name)];
        let mut command = Command::new(&command_line[0]);
        command.args(&command_line[1..]).arg(self.dir).arg(&program);
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/neighbours"));
        self.programs.push((program, Neighbour::run(command)));
    }

    fn journal(&self) -> String {
        fs::read_to_string(self.dir.join("journal")).unwrap()
    }

    fn note(&self, line: &str) {
        let mut journal = fs::OpenOptions::new().append(true).open(self.dir.join("journal")).unwrap();
        // In one write, so that no other line is mixed into it.
        journal.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Waits until a program of a side holds the lock, and makes it hold until [`resume`](Self::resume).
    fn keep_inside(&self, side: &str) -> String {
        // In one step, because a program that reads a part of the word leaves its section.
        fs::write(self.dir.join("draft"), side).unwrap();
        fs::rename(self.dir.join("draft"), self.dir.join("linger")).unwrap();
        self.until(&format!("a program of {side} holds the lock"), || {
            holder_of(&self.journal()).filter(|program| program.starts_with(side)).map(str::to_owned)
        })
    }

    /// Lets the holder leave its section, and waits until each side has had its sections.
    fn resume(&self) {
        let _ = fs::remove_file(self.dir.join("linger"));
        let turns = || {
            let journal = self.journal();
            let entered = journal.lines().filter_map(|line| line.strip_prefix("enter "));
            let theirs = entered.clone().filter(|program| side(program) == 1).count();
            [entered.count() - theirs, theirs]
        };
        let before = turns();
        self.until("each side had its sections", || {
            let now = turns();
            (0..2).all(|side| now[side] >= before[side] + TURNS).then_some(())
        });
    }

    /// Kills the holder of a side, and starts another program in its place.
    pub(crate) fn kill(&mut self, side: &str) {
        let program = self.keep_inside(side);
        let index = self.programs.iter().position(|(known, _)| *known == program).unwrap();
        // Noted before the kill: the lock of a session is free a moment after it. The holder stays in its section.
        self.note(&format!("killed {program}"));
        drop(self.programs.swap_remove(index));
        self.start_program(side);
        self.resume();
    }

    /// Injects a fault into the servers while a program of a side holds the lock.
    pub(crate) fn inject<T>(&mut self, side: &str, servers: &mut T, fault: &ServerFault<T>) {
        self.keep_inside(side);
        if fault.loses {
            self.note("lossy begins");
        }
        let target = (fault.begin)(servers);
        self.resume();
        (fault.end)(servers, target);
        if fault.loses {
            // A grant of a replaced master lasts for so long.
            std::thread::sleep(TTL);
            self.note("lossy ends");
        }
        self.resume();
    }

    fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let limit = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < limit, "waited {PATIENCE:?} until {what}:\n{}", self.newest());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The last lines of the journal.
    fn newest(&self) -> String {
        let journal = self.journal();
        let lines: Vec<&str> = journal.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Ends all programs, and judges their journal.
    pub(crate) fn finish(mut self, what: &str) -> Tally {
        fs::write(self.dir.join("over"), "").unwrap();
        self.programs.drain(..).for_each(|(_, program)| program.finish());
        let tally = judge(&self.journal());
        println!("{what}: {tally:?}");
        tally
    }
}

pub(crate) fn expect_no_overlap(tally: &Tally) {
    assert_eq!([tally.overlaps, tally.tokens], [0, 0], "{tally:?}");
    assert_eq!(tally.killed, [ROUNDS; 2], "{tally:?}");
}

pub(crate) fn joined(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
}

/// Both sides exclude each other, except perhaps around a fail-over: it may lose what a replica had not received, and
/// after a planned fail-over some programs stay at the old master for a while.
#[test]
fn redis_py_by_sentinels() {
    let mut servers = RedisSentinels::start();
    let addresses = format!("{}/{}", joined(&servers.sentinel_ports()), servers.name());
    let dir = tempfile::tempdir().unwrap();
    let mut contest = Contest::start(dir.path(), &servers.url(), "sentinel", &addresses);
    let killed = ServerFault {
        begin: |servers: &mut RedisSentinels| {
            let master = servers.master();
            servers.kill(master);
            let _ = servers.master();
            master
        },
        end: |servers, node| {
            servers.restart(node);
            servers.wait_until_stable();
        },
        loses: true,
    };
    let planned = ServerFault {
        begin: RedisSentinels::failover,
        end: |servers, _| servers.wait_until_stable(),
        loses: true,
    };
    for _ in 0..ROUNDS {
        for side in SIDES {
            contest.kill(side);
            contest.inject(side, &mut servers, &killed);
            contest.inject(side, &mut servers, &planned);
        }
    }
    expect_no_overlap(&contest.finish("redis-py, Sentinel"));
}

/// As with Sentinels, but planned fail-overs and migrations of the slot lose nothing, so they excuse no overlap.
#[test]
fn redis_py_on_a_cluster() {
    let mut servers = RedisCluster::start();
    let addresses = joined(&servers.ports());
    let dir = tempfile::tempdir().unwrap();
    let mut contest = Contest::start(dir.path(), &servers.url(), "cluster", &addresses);
    let killed = ServerFault {
        begin: |servers: &mut RedisCluster| {
            let owner = owner(servers);
            servers.kill(owner);
            let _ = self::owner(servers);
            owner
        },
        end: |servers, node| {
            servers.restart(node);
            servers.wait_until_stable();
        },
        loses: true,
    };
    let planned =
        ServerFault { begin: fail_over, end: |servers, _| servers.wait_until_stable(), loses: false };
    let moved = ServerFault { begin: move_slot, end: |servers, _| servers.wait_until_stable(), loses: false };
    for _ in 0..ROUNDS {
        for side in SIDES {
            contest.kill(side);
            contest.inject(side, &mut servers, &killed);
            contest.inject(side, &mut servers, &planned);
            contest.inject(side, &mut servers, &moved);
        }
    }
    expect_no_overlap(&contest.finish("redis-py, Cluster"));
}

fn slot(servers: &RedisCluster) -> u16 {
    servers.slot(&format!("lock:{NAME}"))
}

fn owner(servers: &RedisCluster) -> usize {
    servers.owner(slot(servers))
}

/// Makes the replica of the owner take over by a planned fail-over.
fn fail_over(servers: &mut RedisCluster) -> usize {
    let owner = owner(servers);
    let follows =
        |node: usize| servers.command(owner, &["ROLE"]).contains(&servers.ports()[node].to_string());
    let replica = (0..servers.ports().len()).find(|&node| node != owner && follows(node)).unwrap();
    servers.failover(replica, RedisFailover::Plain).unwrap();
    replica
}

pub(crate) fn move_slot(servers: &mut RedisCluster) -> usize {
    let (slot, owner) = (slot(servers), owner(servers));
    let mut others = (0..servers.ports().len()).filter(|&node| node != owner && servers.is_master(node));
    let to = others.next_back().unwrap();
    servers.migrate_slot(slot, to).unwrap();
    to
}
