//! Flash sale with everything in Redis: locks, stock and orders. 8 processes with 25 tasks each sell 500 pieces. There
//! are 3,000 orders; 600 of them are repeated clicks. Two workers are killed during the sale. One more holder sleeps
//! for longer than its lease and then tries to write. Exactly 500 pieces are sold, no order counts twice, and the write
//! of the holder that slept is refused.
//!
//! The program starts a Redis of its own; with the argument `redis-sentinel` or `redis-cluster`, it starts several
//! Redis servers. If its argument is a URL, it uses the server of the URL.

use std::{process::ExitCode, time::Duration};

use leasehold::{ErrorKind, Guard, Locks, RedisFence, Reply};
use leasehold_examples::{Failure, Floor, TTL, check, failures, run_on_redis, wait_until};

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

fn main() -> ExitCode {
    run_on_redis(boss, worker)
}

fn boss(floor: &Floor) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let locks = floor.locks()?;
    // The boss acquires the lock for its own commands as well.
    let ask = |commands: &[&[&str]]| -> Result<Vec<Reply>, Failure> {
        runtime.block_on(async {
            let guard = locks.mutex(ITEM).acquire().await?;
            Ok(fence(&locks)?.write(guard.token(), commands).await?)
        })
    };
    ask(&[&["DEL", SOLD, REPEATED], &["SET", STOCK, &PIECES.to_string()]])?;
    let sleeper =
        runtime.block_on(locks.mutex(ITEM).ttl(Duration::from_millis(200)).renew(false).acquire())?;
    let mut workers: Vec<_> = (0..WORKERS).map(|number| floor.start(number)).collect::<Result<_, _>>()?;
    for (killed, left) in [(0, PIECES * 4 / 5), (1, PIECES / 2)] {
        wait_until("sales", || Ok(number(&ask(&[&["GET", STOCK]])?[0])? <= left))?;
        workers[killed].kill()?;
        println!("worker {killed} killed");
    }
    let late = runtime.block_on(fence(&locks)?.write(sleeper.token(), &[&["SET", STOCK, "1000000"]]));
    let refused = late.as_ref().is_err_and(|error| error.kind() == ErrorKind::Fenced);
    check(refused, format!("a holder that overslept wrote: {late:?}"))?;
    println!("the holder that overslept was refused");
    check(failures(workers)? == 0, "a worker failed")?;

    let replies = ask(&[&["GET", STOCK], &["SCARD", SOLD], &["GET", REPEATED]])?;
    let (left, sold, repeats) = (number(&replies[0])?, number(&replies[1])?, number(&replies[2])?);
    println!("{sold} of {PIECES} pieces sold, {left} left, {repeats} repeated clicks recognised");
    check(sold == PIECES && left == 0, "the shelves are wrong")
}

fn worker(floor: &Floor) -> Result<(), Failure> {
    let me = floor.worker.unwrap_or_default();
    let locks = floor.locks()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let clerks: Vec<_> = (0..TASKS)
            .map(|task| {
                let locks = locks.clone();
                tokio::task::spawn_local(async move {
                    for order in orders().skip(me).step_by(WORKERS).skip(task).step_by(TASKS) {
                        let guard = locks.mutex(ITEM).ttl(TTL).acquire().await?;
                        sell(&fence(&locks)?, &guard, &order).await?;
                        guard.release().await?;
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

/// Handles one order, under the lock. All writes of an order are one step, so a worker that is killed leaves nothing
/// half done.
async fn sell(fence: &RedisFence, guard: &Guard, order: &str) -> Result<(), Failure> {
    let token = guard.token();
    // The first step seals: from here on no earlier holder of the lock can change the data that this step reads.
    let seen = fence.write(token, &[["SISMEMBER", SOLD, order].as_slice(), &["GET", STOCK]]).await?;
    if number(&seen[0])? == 1 {
        fence.write(token, &[&["INCR", REPEATED]]).await?;
    } else if let left @ 1.. = number(&seen[1])? {
        let left = (left - 1).to_string();
        fence
            .write(token, &[["SET", STOCK, &left], ["SADD", SOLD, order]].each_ref().map(<[_; 3]>::as_slice))
            .await?;
    }
    Ok(())
}

fn fence(locks: &Locks) -> Result<RedisFence, Failure> {
    locks.redis_fence(ITEM).ok_or_else(|| "these locks are not on Redis".into())
}

fn number(reply: &Reply) -> Result<usize, Failure> {
    match reply {
        Reply::Number(number) => Ok(usize::try_from(*number)?),
        Reply::Nothing => Ok(0),
        other => Ok(other.text().ok_or("no number")?.parse()?),
    }
}
