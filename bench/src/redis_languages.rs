//! Acquire and release of free names on one Redis by npm's `redlock`, Go's redsync and Redisson's `RLock`, in turns
//! with leasehold. Each of these three is a separate program, which is started and warmed up before the measurement.

use std::{cell::RefCell, fs, time::Duration};

use leasehold::{Connect, Keeper, Locks};
use leasehold_testkit::server::RedisServer;

use crate::{
    Failure,
    comparison::Comparison,
    foreign::ForeignProgram,
    packages::{redisson, redlock, redsync},
    pairs::pairs,
};

/// The measurements are short and the rounds are many, because the speed of a shared machine varies.
const MEASUREMENT_TIME: Duration = Duration::from_millis(40);
const ROUNDS: usize = 81;
/// How many times each program runs before it is measured: Java and JavaScript compile code that runs often.
const WARMING: usize = 25;
/// The number of ticks in a second of processor time in `/proc`. It is the same on every architecture of Linux.
const TICKS: f64 = 100.0;

const REDLOCK: &str = "npm redlock 5, ioredis";
const REDSYNC: &str = "Go redsync 4, go-redis";
const REDISSON: &str = "Redisson 4.7, RLock";
const OWN: &str = "leasehold";
const ON_RUNTIME: &str = "leasehold, keeper on the tasks' runtime";

pub(crate) fn bench() -> Result<(), Failure> {
    let site = RedisServer::start(&[]);
    let (port, url) = (site.port().to_string(), format!("redis://127.0.0.1:{}", site.port()));
    let output = site.command(&["INFO", "server"]);
    let server = output
        .iter()
        .find_map(|line| line.strip_prefix("process_id:"))
        .ok_or("no process id in the answer of the server")?;
    let server = server.trim().parse()?;
    let start = |mut command: std::process::Command| {
        command.arg(&port);
        ForeignProgram::start(command)
    };
    let mut others =
        [(REDLOCK, start(redlock()?)?), (REDSYNC, start(redsync()?)?), (REDISSON, start(redisson()?)?)];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks_on_thread = Locks::connect(&url)?;
    let locks_on_runtime = Connect::default().keeper(Keeper::on(runtime.handle().clone())).connect(&url)?;
    let leasehold_pairs = |tasks, locks| pairs(&runtime, MEASUREMENT_TIME, tasks, locks);
    for tasks in [1, 16, 64] {
        println!("  {tasks} at once, a name each");
        for _ in 0..WARMING {
            for (_, program) in &mut others {
                foreign_pairs(program, tasks)?;
            }
            leasehold_pairs(tasks, &locks_on_thread)?;
            leasehold_pairs(tasks, &locks_on_runtime)?;
        }
        let costs = RefCell::new(Vec::new());
        let mut comparison = Comparison::new("pairs/s").rounds(ROUNDS);
        for (name, program) in &mut others {
            let cost = &costs;
            comparison = comparison.candidate(name, || {
                Cost::of(cost, server, name, program.id(), || foreign_pairs(program, tasks))
            });
        }
        for (name, locks) in [(OWN, &locks_on_thread), (ON_RUNTIME, &locks_on_runtime)] {
            let cost = &costs;
            comparison = comparison.candidate(name, || {
                Cost::of(cost, server, name, std::process::id(), || leasehold_pairs(tasks, locks))
            });
        }
        let medians = comparison.run_for_medians()?;
        for (index, (name, _)) in others.iter().enumerate() {
            println!(
                "  pairs compared with {name}: {:.2}; {:.2}",
                medians[3] / medians[index],
                medians[4] / medians[index]
            );
        }
        costs.take().iter().for_each(Cost::print);
    }
    Ok(())
}

fn foreign_pairs(program: &mut ForeignProgram, tasks: usize) -> Result<f64, Failure> {
    program.figure(&format!("{tasks} {}", MEASUREMENT_TIME.as_millis()))
}

/// The processor time that one candidate and the server used in the measurements of the candidate, and the number of
/// pairs (an acquire and its release) in these measurements.
struct Cost {
    name: &'static str,
    pairs: f64,
    client: f64,
    server: f64,
}

impl Cost {
    /// Runs one measurement. Adds the processor time that `process` and the server used for it to the candidate's entry
    /// in `costs`.
    fn of(
        costs: &RefCell<Vec<Self>>,
        server: u32,
        name: &'static str,
        process: u32,
        measurement_time: impl FnOnce() -> Result<f64, Failure>,
    ) -> Result<f64, Failure> {
        let before = (cpu_time(process)?, cpu_time(server)?);
        let rate = measurement_time()?;
        let (client, server) = (cpu_time(process)? - before.0, cpu_time(server)? - before.1);
        let mut costs = costs.borrow_mut();
        let index = costs.iter().position(|cost| cost.name == name).unwrap_or_else(|| {
            costs.push(Self { name, pairs: 0.0, client: 0.0, server: 0.0 });
            costs.len() - 1
        });
        let cost = &mut costs[index];
        cost.pairs += rate * MEASUREMENT_TIME.as_secs_f64();
        cost.client += client;
        cost.server += server;
        Ok(rate)
    }

    fn print(&self) {
        let [client, server] = [self.client, self.server].map(|seconds| seconds * 1e6 / self.pairs);
        println!("  processor time of a pair, {}: {client:.1} us, server {server:.1} us", self.name);
    }
}

/// The processor time of a process so far, in seconds.
fn cpu_time(process: u32) -> Result<f64, Failure> {
    let output = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, words) = output.rsplit_once(')').ok_or("no name of a program")?;
    // After the program's name come the state, ten other fields, and then the times in user code and in the kernel.
    let ticks: Vec<u64> =
        words.split_ascii_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<u64>() as f64 / TICKS)
}
