//! The memory that 100,000 holds need, and the processor time and threads that their renewals need.

use std::{
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use leasehold::Locks;

use crate::{Failure, child, comparison::Comparison};

const HOLDS: usize = 100_000;
const TTL: Duration = Duration::from_secs(30);
/// How long the holds are kept. Each hold is renewed every third of its ttl, so it is renewed once in this time.
const RENEWED_FOR: Duration = Duration::from_secs(10);

pub(crate) fn bench() -> Result<(), Failure> {
    Comparison::new("bytes a hold")
        .rounds(5)
        .candidate("leasehold, memory", || {
            let output = child::output(child::start(&["holds"])?)?;
            let (bytes, rest) = output.trim().split_once(' ').ok_or("a torn line")?;
            println!("  {rest}");
            Ok(bytes.parse()?)
        })
        .run()
}

/// Acquires the holds and keeps them. It runs in a separate process, so that the memory of that process is used for
/// nothing but the holds.
pub(crate) fn child() -> Result<(), Failure> {
    let locks = Locks::connect("memory:bench-holds")?;
    drop(pollster::block_on(locks.mutex("warm").acquire())?);
    let mut guards = Vec::with_capacity(HOLDS);
    let before = status("VmRSS:")?;
    for number in 0..HOLDS {
        guards.push(pollster::block_on(locks.mutex(format!("account/{number:08}")).ttl(TTL).acquire())?);
    }
    let (cpu, begin) = (cpu_seconds()?, Instant::now());
    sleep(RENEWED_FOR);
    let share = (cpu_seconds()? - cpu) / begin.elapsed().as_secs_f64() * 100.0;
    let bytes = (status("VmRSS:")? - before) * 1024 / HOLDS as u64;
    let lost = guards.iter().filter(|guard| !guard.check()).count();
    let threads = status("Threads:")?;
    println!(
        "{bytes} {lost} lost, {threads} threads, {share:.1} % of a core for renewals every {:?}",
        TTL / 3
    );
    Ok(())
}

pub(crate) fn status(field: &str) -> Result<u64, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find(|line| line.starts_with(field)).ok_or("no such line in /proc/self/status")?;
    Ok(line.split_whitespace().nth(1).ok_or("an empty line")?.parse()?)
}

/// The processor time that this process has used: the fields 14 and 15 of proc_pid_stat(5), in ticks of a hundredth of
/// a second.
fn cpu_seconds() -> Result<f64, Failure> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').ok_or("no name in /proc/self/stat")?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / 100.0)
}
