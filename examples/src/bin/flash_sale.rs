//! Flash sale: 8 processes with 25 tasks each sell 500 pieces of one item. There are 3,000 orders; 600 of them repeat
//! another order (a second click). Two workers are killed during the sale. Exactly 500 pieces are sold, and no order
//! counts twice.
//!
//! The file `orders.log` decides what is sold: it has one line for each order, with the number of its piece, appended
//! under the lock. The file `stock`, for the shop window, is computed from `orders.log`.
//!
//! With `--textbook` the lock is a key in Redis that expires while its holder is still selling.

use std::{collections::HashSet, fs::OpenOptions, process::ExitCode, rc::Rc};

use leasehold::Previous;
use leasehold_examples::{
    Data, Failure, Floor, Hold, Overlap, Owner, Protection, Release, Scenario, Slow, Textbook, TextbookPlace,
    WorkerLocks, check, failures, run, wait_until,
};

const PIECES: usize = 500;
const ORDERS: usize = 3000;
const REPEATS: usize = 600;
const WORKERS: usize = 8;
const TASKS: usize = 25;

fn main() -> ExitCode {
    run(&Scenario { data: Data::Files, textbook: TextbookPlace::Redis }, boss, worker)
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
    let column = |number| sold.iter().filter_map(|line| line.split(' ').nth(number)).collect::<HashSet<_>>();
    let (distinct, pieces) = (column(0), column(1));
    let left = floor.number("stock")?;
    println!("{} of {PIECES} pieces sold to {} orders, {left} left", sold.len(), distinct.len());
    let repeats: usize = floor.lines("repeats.log")?.len();
    println!("{repeats} repeated clicks recognised");
    floor.judge(sold.len() - pieces.len(), "orders that got a piece that was sold already")?;
    if floor.protection != Protection::Leasehold {
        return Ok(());
    }
    check(sold.len() == PIECES, format!("{} pieces sold", sold.len()))?;
    check(distinct.len() == PIECES, "an order counts twice")?;
    check(distinct.is_subset(&orders.iter().map(String::as_str).collect()), "an unknown order was sold")?;
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
    let locks = WorkerLocks::connect(floor, |url| Textbook::connect(url, Owner::Unique, Release::Compare))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let tasks = tokio::task::LocalSet::new();
    let shop = Rc::new(Shop { overlap: Overlap::begin(floor, Slow::BeforeWrite)?, floor: floor.clone() });
    let mine = Rc::new(mine);
    tasks.block_on(&runtime, async {
        let clerks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (shop, mine, locks) = (Rc::clone(&shop), Rc::clone(&mine), locks.clone());
                tokio::task::spawn_local(async move {
                    for order in mine.iter().skip(task).step_by(TASKS) {
                        let hold = locks.acquire("item-4711").await?;
                        shop.sell(&hold, order).await?;
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

/// A worker's view of the shop.
struct Shop {
    floor: Floor,
    overlap: Overlap,
}

impl Shop {
    /// Handles one order, under the lock.
    async fn sell(&self, hold: &Hold, order: &str) -> Result<(), Failure> {
        if hold.guard().is_some_and(|guard| guard.previous() != Previous::Clean) {
            self.repair()?;
        }
        let sold = self.floor.lines("orders.log")?;
        if sold.iter().any(|other| other.split(' ').next() == Some(order)) {
            return Ok(self.floor.append("repeats.log", order)?);
        }
        if sold.len() >= PIECES {
            return Ok(());
        }
        self.overlap.before_write().await?;
        self.floor.append("orders.log", &format!("{order} piece-{}", sold.len() + 1))?;
        Ok(self.floor.replace("stock", &(PIECES - sold.len() - 1).to_string())?)
    }

    /// Repairs the files after a holder that did not release. It may have been killed between two writes, or in the
    /// middle of a write.
    fn repair(&self) -> Result<(), Failure> {
        let sold = self.floor.lines("orders.log")?;
        let whole: usize = sold.iter().map(|line| line.len() + 1).sum();
        let file = OpenOptions::new().append(true).create(true).open(self.floor.file("orders.log"))?;
        file.set_len(whole as u64)?;
        Ok(self.floor.replace("stock", &(PIECES - sold.len()).to_string())?)
    }
}
