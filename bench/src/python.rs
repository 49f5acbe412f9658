//! The Python module on one Redis, in turns with redis-py's `Lock` and with the same calls in Rust: free names by
//! threads and by tasks, and one name for which threads of two processes contend.

use std::time::{Duration, Instant};

use leasehold::Locks;
use leasehold_testkit::server::RedisServer;

use crate::{Failure, comparison::Comparison, foreign::ForeignProgram, packages::python_pairs};

/// Long enough that redis-py's waiters, which sleep for 100 ms, have turns.
const MEASUREMENT_TIME: Duration = Duration::from_millis(300);
const ROUNDS: usize = 15;
const IMPORTS: usize = 21;

const REDIS_PY: &str = "redis-py 8, Lock";
const OWN: &str = "leasehold in Python";

pub(crate) fn bench() -> Result<(), Failure> {
    let server = RedisServer::start(&[]);
    let port = server.port();
    let start = |library| ForeignProgram::start(python_pairs(library, port)?);
    let [mut redis_py, mut own, mut floor] = [start("redis")?, start("leasehold")?, start("floor")?];
    let locks = Locks::connect(&format!("redis://127.0.0.1:{port}"))?;
    for (what, count) in [("threads", 1), ("threads", 16), ("tasks", 1), ("tasks", 256)] {
        println!("  {count} {what}, a name each");
        let mut comparison = Comparison::new("pairs/s")
            .rounds(ROUNDS)
            .candidate(REDIS_PY, || pairs(&mut redis_py, what, count))
            .candidate(OWN, || pairs(&mut own, what, count));
        if (what, count) == ("threads", 1) {
            comparison = comparison.candidate("leasehold in Rust, blocking calls", || blocking_pairs(&locks));
        }
        if what == "tasks" {
            comparison =
                comparison.candidate("two waits of asyncio, no lock", || pairs(&mut floor, what, count));
        }
        comparison.run()?;
    }
    println!("  8 threads in each of two processes, one name");
    let [mut redis_pys, mut owns] = [[redis_py, start("redis")?], [own, start("leasehold")?]];
    Comparison::new("sections/s")
        .rounds(ROUNDS)
        .candidate(REDIS_PY, || contended(&mut redis_pys))
        .candidate(OWN, || contended(&mut owns))
        .run()?;
    println!("  import of the library by a new interpreter");
    let [[redis_py, _], [own, _]] = [&mut redis_pys, &mut owns];
    Comparison::new("ms")
        .rounds(IMPORTS)
        .candidate("redis-py 8", || redis_py.figure("import"))
        .candidate(OWN, || own.figure("import"))
        .run()
}

fn order(what: &str, count: usize) -> String {
    format!("{what} {count} {}", MEASUREMENT_TIME.as_millis())
}

fn pairs(program: &mut ForeignProgram, what: &str, count: usize) -> Result<f64, Failure> {
    program.figure(&order(what, count))
}

/// How many sections all threads of both programs complete in a second.
fn contended(programs: &mut [ForeignProgram; 2]) -> Result<f64, Failure> {
    for program in &mut *programs {
        program.order(&order("contended", 8))?;
    }
    let mut sum = 0.0;
    for program in programs {
        let answer = program.read_answer()?;
        let figure: f64 = answer.trim().parse().map_err(|_| format!("a program answered {answer:?}"))?;
        sum += figure;
    }
    Ok(sum)
}

/// What [`OWN`] does with one thread, without Python.
fn blocking_pairs(locks: &Locks) -> Result<f64, Failure> {
    let request = locks.mutex("rust").ttl(Duration::from_secs(30));
    let (begin, mut completed) = (Instant::now(), 0_u32);
    while begin.elapsed() < MEASUREMENT_TIME {
        request.blocking().acquire()?.release_blocking()?;
        completed += 1;
    }
    Ok(f64::from(completed) / begin.elapsed().as_secs_f64())
}
