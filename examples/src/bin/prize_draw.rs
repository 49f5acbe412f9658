//! Prize draw: 100 clients in 4 processes draw at the same time from a pot of 10 prizes. Exactly 10 clients win, and
//! the pot is empty at the end. Every other client is told that the pot was empty or that its wait for the lock timed
//! out, and no client hangs.
//!
//! The pot is a file, or with `--pot` a number in Redis behind a fence, whichever engine has the lock.
//!
//! With `--textbook` the lock is a key in Redis whose value is the same for every holder: a late holder compares before
//! it deletes, and deletes the key of the next holder all the same.

use std::{process::ExitCode, time::Duration};

use leasehold::Token;
use leasehold_examples::{
    Data, Failure, Floor, Hold, Overlap, Owner, Protection, RedisData, Release, Scenario, Slow, Textbook,
    TextbookPlace, WorkerLocks, check, failures, run,
};

const PRIZES: usize = 10;
const WORKERS: usize = 4;
const CLIENTS: usize = 25;
/// How long a client waits for the lock.
const PATIENCE: Duration = Duration::from_secs(60);
const POT: &str = "pot";

fn main() -> ExitCode {
    let data = Data::FilesOrRedis { option: "--pot" };
    run(&Scenario { data, textbook: TextbookPlace::Redis }, boss, worker)
}

fn boss(floor: &Floor) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let locks = WorkerLocks::connect(floor, textbook)?;
    let pot = Pot::open(floor)?;
    // The boss acquires the lock for its own commands as well.
    let under_lock = |prizes: Option<usize>| {
        runtime.block_on(async {
            let hold = locks.acquire(POT).await?;
            if let Some(prizes) = prizes {
                pot.fill(hold.token(), prizes).await?;
            }
            let left = pot.left(hold.token()).await?;
            hold.release().await?;
            Ok::<_, Failure>(left)
        })
    };
    under_lock(Some(PRIZES))?;
    let workers = (0..WORKERS).map(|number| floor.start(number)).collect::<Result<_, _>>()?;
    check(failures(workers)? == 0, "a worker failed")?;

    let results = floor.lines("results.log")?;
    let count = |word: &str| results.iter().filter(|line| line.ends_with(word)).count();
    let (won, empty, timed_out) = (count("won"), count("empty"), count("timed out"));
    let left = under_lock(None)?;
    println!("{won} won, {empty} found the pot empty, {timed_out} timed out, {left} prizes left");
    check(won + empty + timed_out == WORKERS * CLIENTS, "a client got no result")?;
    floor.judge(won.saturating_sub(PRIZES), "winners without a prize")?;
    check(
        floor.protection != Protection::Leasehold || (won == PRIZES && left == 0),
        "the prizes do not add up",
    )
}

fn textbook(url: &str) -> Result<Textbook, Failure> {
    Textbook::connect(url, Owner::Constant, Release::Compare)
}

fn worker(floor: &Floor) -> Result<(), Failure> {
    let locks = WorkerLocks::connect(floor, textbook)?;
    let (pot, overlap) = (Pot::open(floor)?, Overlap::begin(floor, Slow::BeforeRelease)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (floor, pot, locks, overlap) =
                    (floor.clone(), pot.clone(), locks.clone(), overlap.clone());
                tokio::task::spawn_local(async move {
                    let result = match within_patience(&locks).await? {
                        Some(hold) => {
                            let result = pot.reach_in(hold.token(), &overlap).await?;
                            hold.release().await?;
                            result
                        }
                        None => "timed out",
                    };
                    let worker = floor.worker.unwrap_or_default();
                    Ok::<_, Failure>(
                        floor.append("results.log", &format!("client {worker}/{client}: {result}"))?,
                    )
                })
            })
            .collect();
        for client in clients {
            client.await??;
        }
        Ok(())
    })
}

/// Waits for the lock. `None`: the wait timed out.
async fn within_patience(locks: &WorkerLocks) -> Result<Option<Hold>, Failure> {
    let WorkerLocks::Leasehold(locks) = locks else { return locks.acquire(POT).await.map(Some) };
    match locks.mutex(POT).acquire_within(PATIENCE).await {
        Ok(guard) => Ok(Some(Hold::Leasehold(guard))),
        Err(error) if error.is_timed_out() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The pot: a file, or a number in Redis.
#[derive(Clone)]
enum Pot {
    File(Floor),
    Redis(RedisData),
}

impl Pot {
    fn open(floor: &Floor) -> Result<Self, Failure> {
        Ok(if floor.data.is_some() {
            Self::Redis(RedisData::connect(floor, POT)?)
        } else {
            Self::File(floor.clone())
        })
    }

    async fn left(&self, token: Option<Token>) -> Result<usize, Failure> {
        match self {
            Self::File(floor) => Ok(usize::try_from(floor.number(POT)?)?),
            Self::Redis(data) => Ok(data.run(token, &[&["GET", POT]]).await?[0]),
        }
    }

    async fn fill(&self, token: Option<Token>, prizes: usize) -> Result<(), Failure> {
        let prizes = prizes.to_string();
        match self {
            Self::File(floor) => Ok(floor.replace(POT, &prizes)?),
            Self::Redis(data) => data.run(token, &[&["SET", POT, &prizes]]).await.map(drop),
        }
    }

    /// Called under the lock. Takes a prize out of the pot, if there is one.
    async fn reach_in(&self, token: Option<Token>, overlap: &Overlap) -> Result<&'static str, Failure> {
        let left = self.left(token).await?;
        if left == 0 {
            return Ok("empty");
        }
        let section = overlap.before_write().await?;
        self.fill(token, left - 1).await?;
        overlap.before_release(section).await?;
        Ok("won")
    }
}
