//! Flash sale: 8 processes with 25 tasks each sell 500 pieces of one item. There are 3,000 orders; 600 of them repeat
//! another order (a second click). Two workers are killed during the sale. Exactly 500 pieces are sold, and no order
//! counts twice.
//!
//! The file `orders.log` decides what is sold: it has one line for each order, appended under the lock. The file
//! `stock`, for the shop window, is computed from `orders.log`.

use std::{collections::HashSet, fs::OpenOptions, io::Write, process::ExitCode, rc::Rc};

use leasehold::{Guard, Previous};
use leasehold_examples::{Failure, Floor, TTL, check, failures, run, wait_until};

const PIECES: usize = 500;
const ORDERS: usize = 3000;
const REPEATS: usize = 600;
const WORKERS: usize = 8;
const TASKS: usize = 25;

fn main() -> ExitCode {
    run(boss, worker)
}

fn boss(floor: &Floor) -> Result<(), Failure> {
    let orders = orders();
    floor.replace("orders.csv", &(orders.join("\n") + "\n"))?;
    let mut workers: Vec<_> = (0..WORKERS).map(|number| floor.start(number)).collect::<Result<_, _>>()?;
    for (killed, sold) in [(0, PIECES / 5), (1, PIECES / 2)] {
        wait_until("sales", || Ok(floor.lines("orders.log")?.len() >= sold))?;
        workers[killed].kill()?;
        println!("worker {killed} killed after {} sales", floor.lines("orders.log")?.len());
    }
    check(failures(workers)? == 0, "a worker failed")?;

    let sold = floor.lines("orders.log")?;
    let distinct: HashSet<_> = sold.iter().collect();
    let known: HashSet<_> = orders.iter().collect();
    let left = floor.number("stock")?;
    println!("{} of {PIECES} pieces sold to {} orders, {left} left", sold.len(), distinct.len());
    let repeats: usize = floor.lines("repeats.log")?.len();
    println!("{repeats} repeated clicks recognised");
    check(sold.len() == PIECES, format!("{} pieces sold", sold.len()))?;
    check(distinct.len() == PIECES, "an order counts twice")?;
    check(distinct.is_subset(&known), "an unknown order was sold")?;
    check(left == 0, "the shop window is wrong")
}

/// 2,400 different orders, and 600 of them once more, in an order that mixes them well.
fn orders() -> Vec<String> {
    let distinct = ORDERS - REPEATS;
    // 1867 and 3000 have no common factor, so every index occurs once.
    (0..ORDERS)
        .map(|index| index * 1867 % ORDERS % distinct)
        .map(|order| format!("order-{order:04}"))
        .collect()
}

fn worker(floor: &Floor) -> Result<(), Failure> {
    let number = floor.worker.unwrap_or_default();
    let mine: Vec<String> = floor.lines("orders.csv")?.into_iter().skip(number).step_by(WORKERS).collect();
    let locks = floor.locks()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let tasks = tokio::task::LocalSet::new();
    let floor = Rc::new(Floor::clone(floor));
    let mine = Rc::new(mine);
    tasks.block_on(&runtime, async {
        let clerks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (floor, mine, item) =
                    (Rc::clone(&floor), Rc::clone(&mine), locks.mutex("item-4711").ttl(TTL));
                tokio::task::spawn_local(async move {
                    for order in mine.iter().skip(task).step_by(TASKS) {
                        let guard = item.acquire().await?;
                        sell(&floor, &guard, order)?;
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

/// Handles one order, under the lock.
fn sell(floor: &Floor, guard: &Guard, order: &str) -> Result<(), Failure> {
    if guard.previous() != Previous::Clean {
        repair(floor)?;
    }
    let sold = floor.lines("orders.log")?;
    if sold.iter().any(|other| other == order) {
        return append(floor, "repeats.log", order);
    }
    if sold.len() >= PIECES {
        return Ok(());
    }
    append(floor, "orders.log", order)?;
    Ok(floor.replace("stock", &(PIECES - sold.len() - 1).to_string())?)
}

/// Repairs the files after a holder that did not release. It may have been killed between two writes, or in the middle
/// of a write.
fn repair(floor: &Floor) -> Result<(), Failure> {
    let sold = floor.lines("orders.log")?;
    let whole: usize = sold.iter().map(|line| line.len() + 1).sum();
    OpenOptions::new().append(true).create(true).open(floor.file("orders.log"))?.set_len(whole as u64)?;
    Ok(floor.replace("stock", &(PIECES - sold.len()).to_string())?)
}

fn append(floor: &Floor, name: &str, line: &str) -> Result<(), Failure> {
    let mut file = OpenOptions::new().append(true).create(true).open(floor.file(name))?;
    Ok(file.write_all(format!("{line}\n").as_bytes())?)
}
