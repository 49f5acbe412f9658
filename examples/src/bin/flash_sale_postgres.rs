//! Flash sale with everything in PostgreSQL: locks, stock and orders. 8 processes with 25 tasks each sell 500 pieces.
//! There are 3,000 orders; 600 of them are repeated clicks. Two workers are killed during the sale. One more holder
//! sleeps for longer than its lease and then tries to write. Exactly 500 pieces are sold, no order counts twice, and
//! the fence in the row of the item refuses the write of the holder that slept.
//!
//! The program starts a PostgreSQL of its own. If its argument is a URL, it uses the database of the URL, and needs the
//! permission to create the tables `stock` and `orders` in it.

use std::{process::ExitCode, time::Duration};

use leasehold::{ErrorKind, Guard, SqlFence};
use leasehold_examples::{Failure, Floor, TTL, check, failures, run_on_postgres, wait_until};
use tokio_postgres::{Client, NoTls};

const PIECES: i64 = 500;
const ORDERS: usize = 3000;
const REPEATS: usize = 600;
const WORKERS: usize = 8;
const TASKS: usize = 25;
const ITEM: &str = "item-4711";
/// How many connections a worker has for stock and orders.
const DESKS: usize = 2;

fn main() -> ExitCode {
    run_on_postgres(boss, worker)
}

fn boss(floor: &Floor) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = floor.locks()?;
    let shop = runtime.block_on(Shop::open(floor))?;
    let tables = format!(
        "DROP TABLE IF EXISTS stock, orders; CREATE TABLE stock (item text PRIMARY KEY, pieces bigint NOT NULL); {}; \
         INSERT INTO stock VALUES ('{ITEM}', {PIECES}); CREATE TABLE orders (id text PRIMARY KEY, clicks bigint NOT NULL)",
        shop.fence.column()
    );
    runtime.block_on(shop.client.batch_execute(&tables))?;
    let sleeper =
        runtime.block_on(locks.mutex(ITEM).ttl(Duration::from_millis(200)).renew(false).acquire())?;
    let mut workers: Vec<_> = (0..WORKERS).map(|number| floor.start(number)).collect::<Result<_, _>>()?;
    for (killed, left) in [(0, PIECES * 4 / 5), (1, PIECES / 2)] {
        wait_until("sales", || Ok(runtime.block_on(shop.pieces())? <= left))?;
        workers[killed].kill()?;
        println!("worker {killed} killed");
    }
    let late = runtime.block_on(shop.write(&sleeper, "pieces = 1000000"));
    check(late.as_ref().is_err_and(is_fenced), format!("a holder that overslept wrote: {late:?}"))?;
    println!("the holder that overslept was refused");
    check(failures(workers)? == 0, "a worker failed")?;

    let counts = "SELECT count(*), coalesce(sum(clicks - 1), 0)::bigint FROM orders";
    let row = runtime.block_on(shop.client.query_one(counts, &[]))?;
    let (sold, repeats): (i64, i64) = (row.get(0), row.get(1));
    let left = runtime.block_on(shop.pieces())?;
    println!("{sold} of {PIECES} pieces sold, {left} left, {repeats} repeated clicks recognised");
    check(sold == PIECES && left == 0, "the shelves are wrong")
}

fn is_fenced(failure: &Failure) -> bool {
    let error = failure.downcast_ref::<leasehold::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::Fenced)
}

fn worker(floor: &Floor) -> Result<(), Failure> {
    let me = floor.worker.unwrap_or_default();
    let locks = floor.locks()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let mut clerks = Vec::new();
        for desk in 0..DESKS {
            let shop = std::rc::Rc::new(tokio::sync::Mutex::new(Shop::open(floor).await?));
            for task in (desk..TASKS).step_by(DESKS) {
                let (locks, shop) = (locks.clone(), std::rc::Rc::clone(&shop));
                clerks.push(tokio::task::spawn_local(async move {
                    for order in orders().skip(me).step_by(WORKERS).skip(task).step_by(TASKS) {
                        let guard = locks.mutex(ITEM).ttl(TTL).acquire().await?;
                        shop.lock().await.sell(&guard, &order).await?;
                        guard.release().await?;
                    }
                    Ok::<_, Failure>(())
                }));
            }
        }
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

/// What one desk needs of the shop: a connection of its own, and the fence in the row of the item.
struct Shop {
    client: Client,
    fence: SqlFence,
}

impl Shop {
    async fn open(floor: &Floor) -> Result<Self, Failure> {
        let (client, connection) = tokio_postgres::connect(&floor.url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Self { client, fence: SqlFence::new("stock", "fence")? })
    }

    async fn pieces(&self) -> Result<i64, Failure> {
        Ok(self.client.query_one("SELECT pieces FROM stock WHERE item = $1", &[&ITEM]).await?.get(0))
    }

    /// Handles one order, under the lock.
    async fn sell(&mut self, guard: &Guard, order: &str) -> Result<(), Failure> {
        // This update seals: from here on no earlier holder of the lock can change the data that is read next.
        let sealed = self.client.execute(&self.fence.seal(guard.token(), "item = $1"), &[&ITEM]).await?;
        self.fence.passed(guard.token(), sealed)?;
        let click = "UPDATE orders SET clicks = clicks + 1 WHERE id = $1";
        if self.client.execute(click, &[&order]).await? == 1 || self.pieces().await? == 0 {
            return Ok(());
        }
        // Both changes are committed together, so a worker that is killed leaves nothing half done.
        let step = self.client.transaction().await?;
        let update = self.fence.update(guard.token(), "pieces = pieces - 1", "item = $1");
        self.fence.passed(guard.token(), step.execute(&update, &[&ITEM]).await?)?;
        step.execute("INSERT INTO orders VALUES ($1, 1)", &[&order]).await?;
        Ok(step.commit().await?)
    }

    /// Changes the stock, unless the fence has seen the token of a later holder.
    async fn write(&self, guard: &Guard, set: &str) -> Result<(), Failure> {
        let rows = self.client.execute(&self.fence.update(guard.token(), set, "item = $1"), &[&ITEM]).await?;
        Ok(self.fence.passed(guard.token(), rows)?)
    }
}
