//! Prize draw: 100 clients in 4 processes draw at the same time from a pot of 10 prizes. Exactly 10 clients win, and
//! the pot is empty at the end. Every other client is told that the pot was empty or that its wait for the lock timed
//! out, and no client hangs.

use std::{fs::OpenOptions, io::Write, process::ExitCode, time::Duration};

use leasehold_examples::{Failure, Floor, check, failures, run};

const PRIZES: u64 = 10;
const WORKERS: usize = 4;
const CLIENTS: usize = 25;
/// How long a client waits for the lock.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    run(boss, worker)
}

fn boss(floor: &Floor) -> Result<(), Failure> {
    floor.replace("pot", &PRIZES.to_string())?;
    let workers = (0..WORKERS).map(|number| floor.start(number)).collect::<Result<_, _>>()?;
    check(failures(workers)? == 0, "a worker failed")?;

    let results = floor.lines("results.log")?;
    let count = |word: &str| results.iter().filter(|line| line.ends_with(word)).count();
    let (won, empty, timed_out) = (count("won"), count("empty"), count("timed out"));
    let left = floor.number("pot")?;
    println!("{won} won, {empty} found the pot empty, {timed_out} timed out, {left} prizes left");
    check(won as u64 == PRIZES && left == 0, "the prizes do not add up")?;
    check(won + empty + timed_out == WORKERS * CLIENTS, "a client got no result")
}

fn worker(floor: &Floor) -> Result<(), Failure> {
    let locks = floor.locks()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (floor, pot) = (floor.clone(), locks.mutex("pot"));
                tokio::task::spawn_local(async move {
                    let result = match pot.acquire_within(PATIENCE).await {
                        Ok(guard) => {
                            let result = reach_in(&floor)?;
                            guard.release().await?;
                            result
                        }
                        Err(error) if error.is_timed_out() => "timed out",
                        Err(error) => return Err(error.into()),
                    };
                    report(&floor, client, result)
                })
            })
            .collect();
        for client in clients {
            client.await??;
        }
        Ok(())
    })
}

/// Called under the lock. Takes a prize out of the pot, if there is one.
fn reach_in(floor: &Floor) -> Result<&'static str, Failure> {
    let left = floor.number("pot")?;
    if left == 0 {
        return Ok("empty");
    }
    floor.replace("pot", &(left - 1).to_string())?;
    Ok("won")
}

/// Records the result of a client. A short line that is written in one call stays in one piece, even if other processes
/// write to the same file.
fn report(floor: &Floor, client: usize, result: &str) -> Result<(), Failure> {
    let worker = floor.worker.unwrap_or_default();
    let mut file = OpenOptions::new().append(true).create(true).open(floor.file("results.log"))?;
    Ok(file.write_all(format!("client {worker}/{client}: {result}\n").as_bytes())?)
}
