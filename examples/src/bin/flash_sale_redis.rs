//! Flash sale with its stock and orders in Redis. 8 processes with 25 tasks each sell 500 pieces. There are 3,000
//! orders; 600 of them are repeated clicks. Two workers are killed during the sale. One more holder sleeps for longer
//! than its lease and then tries to write. Exactly 500 pieces are sold, no order counts twice, and the write of the
//! holder that slept is refused.
//!
//! The locks are in the same Redis, or on any other engine (`--url`): the fence accepts the tokens of all of them. The
//! stock is in a Redis of the program, or in yours (`--stock`).
//!
//! With `--textbook` the lock is a key in Redis, and a holder that releases too late deletes the key of the next one.

use std::{process::ExitCode, time::Duration};

use leasehold::Guard;
use leasehold_examples::{
    Data, Failure, Floor, Overlap, Owner, Protection, RedisData, Release, Scenario, Slow, Textbook,
    TextbookPlace, WorkerLocks, check, failures, is_fenced, run, wait_until,
};

const PIECES: usize = 500;
const ORDERS: usize = 3000;
const REPEATS: usize = 600;
const WORKERS: usize = 8;
const TASKS: usize = 25;
/// The braces make a cluster store the fence and the data behind the fence on one server.
const ITEM: &str = "{item-4711}";
const STOCK: &str = "{item-4711}stock";
const SOLD: &str = "{item-4711}orders";
const REPEATED: &str = "{item-4711}repeats";
/// The lease of the holder that sleeps. etcd and ZooKeeper have no shorter leases.
const SHORT_LEASE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let data = Data::Server { option: "--stock", kinds: &["redis"] };
    run(&Scenario { data, textbook: TextbookPlace::Redis }, boss, worker)
}

fn boss(floor: &Floor) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let locks = WorkerLocks::connect(floor, textbook)?;
    let data = RedisData::connect(floor, ITEM)?;
    // The boss acquires the lock for its own commands as well.
    let ask = |commands: &[&[&str]]| -> Result<Vec<usize>, Failure> {
        runtime.block_on(async {
            let hold = locks.acquire(ITEM).await?;
            let replies = data.run(hold.token(), commands).await?;
            hold.release().await?;
            Ok(replies)
        })
    };
    ask(&[&["DEL", SOLD, REPEATED], &["SET", STOCK, &PIECES.to_string()]])?;
    let sleeper = sleeper(floor, &runtime)?;
    let mut workers: Vec<_> = (0..WORKERS).map(|number| floor.start(number)).collect::<Result<_, _>>()?;
    for (killed, sold) in [(0, PIECES / 5), (1, PIECES / 2)] {
        wait_until("sales", || Ok(ask(&[&["SCARD", SOLD]])?[0] >= sold))?;
        workers[killed].kill()?;
        println!("worker {killed} killed");
    }
    if let Some(sleeper) = sleeper {
        let late = runtime.block_on(data.run(Some(sleeper.token()), &[&["SET", STOCK, "1000000"]]));
        check(late.as_ref().is_err_and(is_fenced), format!("a holder that overslept wrote: {late:?}"))?;
        println!("the holder that overslept was refused");
    }
    check(failures(workers)? == 0, "a worker failed")?;

    let [left, sold, repeats] = ask(&[&["GET", STOCK], &["SCARD", SOLD], &["GET", REPEATED]])?[..] else {
        return Err("a reply is missing".into());
    };
    println!("{sold} of {PIECES} pieces sold, {left} left, {repeats} repeated clicks recognised");
    floor.judge(sold.saturating_sub(PIECES), "orders that got a piece that was sold already")?;
    check(floor.protection != Protection::Leasehold || (sold == PIECES && left == 0), "the shelves are wrong")
}

/// A holder that sleeps for longer than its lease. `None` without a fence, and on lock files, which have no leases.
fn sleeper(floor: &Floor, runtime: &tokio::runtime::Runtime) -> Result<Option<Guard>, Failure> {
    if floor.protection != Protection::Leasehold || floor.is_on("file") {
        return Ok(None);
    }
    let request = floor.locks()?.mutex(ITEM).ttl(SHORT_LEASE).renew(false);
    Ok(Some(runtime.block_on(request.acquire())?))
}

fn textbook(url: &str) -> Result<Textbook, Failure> {
    Textbook::connect(url, Owner::Unique, Release::Delete)
}

fn worker(floor: &Floor) -> Result<(), Failure> {
    let me = floor.worker.unwrap_or_default();
    let locks = WorkerLocks::connect(floor, textbook)?;
    let shop =
        Shop { data: RedisData::connect(floor, ITEM)?, overlap: Overlap::begin(floor, Slow::BeforeRelease)? };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let clerks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (locks, shop) = (locks.clone(), shop.clone());
                tokio::task::spawn_local(async move {
                    for order in orders().skip(me).step_by(WORKERS).skip(task).step_by(TASKS) {
                        let hold = locks.acquire(ITEM).await?;
                        shop.sell(hold.token(), &order).await?;
                        hold.release().await?;
                    }
                    Ok::<_, Failure>(())
                })
            })
            .collect();
        for clerk in clerks {
            clerk.await??;
        }
        Ok(())
    })
}

/// 2,400 different orders, and 600 of them once more. 1867 and 3000 have no common factor, so every index occurs once,
/// in an order that mixes the orders well.
fn orders() -> impl Iterator<Item = String> {
    (0..ORDERS).map(|index| format!("order-{:04}", index * 1867 % ORDERS % (ORDERS - REPEATS)))
}

#[derive(Clone)]
struct Shop {
    data: RedisData,
    overlap: Overlap,
}

impl Shop {
    /// Handles one order, under the lock. All writes of an order are one step, so a worker that is killed leaves
    /// nothing half done.
    async fn sell(&self, token: Option<leasehold::Token>, order: &str) -> Result<(), Failure> {
        // The first step seals: from here on no earlier holder of the lock can change the data that this step reads.
        let seen = self.data.run(token, &[["SISMEMBER", SOLD, order].as_slice(), &["GET", STOCK]]).await?;
        if seen[0] == 1 {
            self.data.run(token, &[&["INCR", REPEATED]]).await?;
        } else if let left @ 1.. = seen[1] {
            let section = self.overlap.before_write().await?;
            let left = (left - 1).to_string();
            let writes = [["SET", STOCK, &left], ["SADD", SOLD, order]];
            self.data.run(token, writes.each_ref().map(<[_; 3]>::as_slice).as_slice()).await?;
            self.overlap.before_release(section).await?;
        }
        Ok(())
    }
}
