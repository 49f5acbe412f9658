//! Flash sale with its stock and orders in PostgreSQL, MySQL or MariaDB. 8 processes with 25 tasks each sell 500
//! pieces. There are 3,000 orders; 600 of them are repeated clicks. Two workers are killed during the sale. One more
//! holder sleeps for longer than its lease and then tries to write. Exactly 500 pieces are sold, no order counts twice,
//! and the fence in the row of the item refuses the write of the holder that slept.
//!
//! The locks are in the same database, or on any other engine (`--url`): the fence accepts the tokens of all of them.
//! The stock is in a database that the program starts, or in yours (`--stock`); the program needs the permission to
//! create the tables `stock`, `orders` and `article_lock` in it.
//!
//! With `--textbook` the lock is a row that the holder inserts and deletes. The row of a killed holder stays.

use std::{process::ExitCode, rc::Rc, time::Duration};

use leasehold::{Guard, SqlFence, Token};
use leasehold_examples::{
    Data, Failure, Floor, Overlap, Protection, Scenario, Slow, Sql, TextbookPlace, WorkerLocks, check,
    failures, is_fenced, run, wait_until,
};
use tokio::{runtime::Runtime, sync::Mutex};

const PIECES: usize = 500;
const ORDERS: usize = 3000;
const REPEATS: usize = 600;
const WORKERS: usize = 8;
const TASKS: usize = 25;
const ITEM: &str = "item-4711";
const THE_ITEM: &str = "item = 'item-4711'";
const LEFT: &str = "SELECT pieces FROM stock WHERE item = 'item-4711'";
const SOLD: &str = "SELECT count(*) FROM orders";
/// How many desks a worker has. Each desk has one connection for stock and orders, which its clerks (tasks) share.
const DESKS: usize = 2;
/// The lease of the holder that sleeps. etcd and ZooKeeper have no shorter leases.
const SHORT_LEASE: Duration = Duration::from_secs(2);
/// How often a clerk tries to insert the article's row after another worker was killed, before it gives up; and how
/// long it sleeps between two tries.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(50);
/// With the article's lock, the holder that finds so few pieces is killed in its section.
const LEFT_AT_KILL: usize = PIECES * 4 / 5;

fn main() -> ExitCode {
    let data = Data::Server { option: "--stock", kinds: &["postgres", "mariadb", "mysql"] };
    run(&Scenario { data, textbook: TextbookPlace::Data }, boss, worker)
}

fn boss(floor: &Floor) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shop = runtime.block_on(Shop::open(floor))?;
    runtime.block_on(shop.create_tables())?;
    let sleeper = sleeper(floor, &runtime)?;
    let mut workers: Vec<_> = (0..WORKERS).map(|number| floor.start(number)).collect::<Result<_, _>>()?;
    if floor.protection == Protection::Textbook {
        wait_until("a worker that stops in its section", || Ok(floor.file("in-section").exists()))?;
        let holder = usize::try_from(floor.number("in-section")?)?;
        workers[holder].kill()?;
        floor.replace("killed", "")?;
        println!("worker {holder} killed in its section");
    } else {
        for (killed, sold) in [(0, PIECES / 5), (1, PIECES / 2)] {
            wait_until("sales", || Ok(runtime.block_on(shop.number(SOLD))? >= sold))?;
            workers[killed].kill()?;
            println!("worker {killed} killed");
        }
    }
    if let Some(sleeper) = sleeper {
        let late = runtime.block_on(shop.update(sleeper.token(), "pieces = 1000000"));
        check(late.as_ref().is_err_and(is_fenced), format!("a holder that overslept wrote: {late:?}"))?;
        println!("the holder that overslept was refused");
    }
    check(failures(workers)? == 0, "a worker failed")?;
    report(floor, &runtime, &shop)
}

fn report(floor: &Floor, runtime: &Runtime, shop: &Shop) -> Result<(), Failure> {
    let sold = runtime.block_on(shop.number(SOLD))?;
    let repeats = runtime.block_on(shop.number("SELECT count(*) FROM orders WHERE clicks > 1"))?;
    let (left, given_up) = (runtime.block_on(shop.number(LEFT))?, floor.lines("given-up.log")?.len());
    println!("{sold} of {PIECES} pieces sold, {left} left, {repeats} orders clicked twice");
    if floor.protection != Protection::WithoutLock {
        floor.judge(given_up, "orders given up because a killed worker holds the lock")?;
    }
    if floor.protection == Protection::Textbook {
        return Ok(());
    }
    floor.judge(sold.saturating_sub(PIECES), "orders that got a piece that was sold already")?;
    check(floor.protection != Protection::Leasehold || (sold == PIECES && left == 0), "the shelves are wrong")
}

/// A holder that sleeps for longer than its lease. `None` without a fence, and on lock files, which have no leases.
fn sleeper(floor: &Floor, runtime: &Runtime) -> Result<Option<Guard>, Failure> {
    if floor.protection != Protection::Leasehold || floor.is_on("file") {
        return Ok(None);
    }
    let request = floor.locks()?.mutex(ITEM).ttl(SHORT_LEASE).renew(false);
    Ok(Some(runtime.block_on(request.acquire())?))
}

fn worker(floor: &Floor) -> Result<(), Failure> {
    let me = floor.worker.unwrap_or_default();
    let overlap = Overlap::begin(floor, Slow::BeforeWrite)?;
    let locks = match floor.protection {
        Protection::Leasehold => WorkerLocks::Leasehold(floor.locks()?),
        Protection::WithoutLock | Protection::Textbook => WorkerLocks::None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let mut clerks = Vec::new();
        for desk in 0..DESKS {
            let shop = Rc::new(Shop::open(floor).await?);
            for task in (desk..TASKS).step_by(DESKS) {
                let (locks, shop, overlap) = (locks.clone(), Rc::clone(&shop), overlap.clone());
                clerks.push(tokio::task::spawn_local(async move {
                    let mut has_given_up = false;
                    for order in orders().skip(me).step_by(WORKERS).skip(task).step_by(TASKS) {
                        if shop.floor.protection == Protection::Textbook {
                            has_given_up = has_given_up || !shop.sell_under_row(&order).await?;
                            if has_given_up {
                                shop.floor.append("given-up.log", &order)?;
                            }
                        } else {
                            let hold = locks.acquire(ITEM).await?;
                            shop.sell(hold.token(), &order, &overlap).await?;
                            hold.release().await?;
                        }
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

/// What the clerks of one desk share: a connection to the stock and the orders, and the fence in the row of the item.
struct Shop {
    sql: Mutex<Sql>,
    fence: SqlFence,
    floor: Floor,
}

impl Shop {
    async fn open(floor: &Floor) -> Result<Self, Failure> {
        let sql = Sql::connect(floor.data_url()?).await?;
        let fence = SqlFence::new("stock", "fence")?.dialect(sql.dialect());
        Ok(Self { sql: Mutex::new(sql), fence, floor: floor.clone() })
    }

    async fn create_tables(&self) -> Result<(), Failure> {
        let mut sql = self.sql.lock().await;
        for statement in [
            "DROP TABLE IF EXISTS stock, orders, article_lock",
            "CREATE TABLE stock (item varchar(20) PRIMARY KEY, pieces bigint NOT NULL)",
            &self.fence.column(),
            &format!("INSERT INTO stock (item, pieces) VALUES ('{ITEM}', {PIECES})"),
            "CREATE TABLE orders (id varchar(20) NOT NULL, clicks bigint NOT NULL)",
            // Not unique, because without a lock two clicks may both count as the first.
            "CREATE INDEX orders_by_id ON orders (id)",
            "CREATE TABLE article_lock (name varchar(20) PRIMARY KEY)",
        ] {
            sql.execute(statement).await?;
        }
        Ok(())
    }

    async fn number(&self, query: &str) -> Result<usize, Failure> {
        self.sql.lock().await.number(query).await
    }

    /// Handles one order, under the lock. Without a token there is no fence.
    async fn sell(&self, token: Option<Token>, order: &str, overlap: &Overlap) -> Result<(), Failure> {
        if let Some(token) = token {
            // This update seals: from here on no earlier holder of the lock can change the data that is read next.
            let sealed = self.sql.lock().await.execute_fenced(&self.fence.seal(token, THE_ITEM)).await?;
            self.fence.passed(token, sealed)?;
        }
        if self.is_sold(order).await? {
            return Ok(());
        }
        let left = self.number(LEFT).await?;
        if left > 0 {
            overlap.before_write().await?;
            self.take_piece(token, left, order).await?;
        }
        Ok(())
    }

    /// Whether the order is a repeated click. Counts the click.
    async fn is_sold(&self, order: &str) -> Result<bool, Failure> {
        let click = format!("UPDATE orders SET clicks = clicks + 1 WHERE id = '{order}'");
        Ok(self.sql.lock().await.execute(&click).await? > 0)
    }

    /// Both changes are committed together, so a worker that is killed leaves nothing half done.
    async fn take_piece(&self, token: Option<Token>, left: usize, order: &str) -> Result<(), Failure> {
        let mut sql = self.sql.lock().await;
        sql.execute("BEGIN").await?;
        let set = format!("pieces = {}", left - 1);
        match token {
            Some(token) => {
                let rows = sql.execute_fenced(&self.fence.update(token, &set, THE_ITEM)).await?;
                self.fence.passed(token, rows)?;
            }
            None => drop(sql.execute(&format!("UPDATE stock SET {set} WHERE {THE_ITEM}")).await?),
        }
        sql.execute(&format!("INSERT INTO orders (id, clicks) VALUES ('{order}', 1)")).await?;
        sql.execute("COMMIT").await.map(drop)
    }

    /// Changes the stock, unless the fence has seen the token of a later holder.
    async fn update(&self, token: Token, set: &str) -> Result<(), Failure> {
        let update = self.fence.update(token, set, THE_ITEM);
        let rows = self.sql.lock().await.execute_fenced(&update).await?;
        Ok(self.fence.passed(token, rows)?)
    }

    /// Handles one order under the article's lock: whoever inserts the row has the lock, and frees it by deleting the
    /// row. The row tells neither since when nor by whom the lock is held, so nobody else can free it. Returns whether
    /// the order was handled.
    async fn sell_under_row(&self, order: &str) -> Result<bool, Failure> {
        let mut tries = 0;
        let insert = format!("INSERT INTO article_lock (name) VALUES ('{ITEM}')");
        while !self.sql.lock().await.inserts(&insert).await? {
            tries += usize::from(self.floor.file("killed").exists());
            if tries == TRIES {
                return Ok(false);
            }
            tokio::time::sleep(PAUSE).await;
        }
        let left = self.number(LEFT).await?;
        if left == LEFT_AT_KILL {
            self.floor.replace("in-section", &self.floor.worker.unwrap_or_default().to_string())?;
            std::thread::park();
        }
        if !self.is_sold(order).await? && left > 0 {
            self.take_piece(None, left, order).await?;
        }
        self.sql.lock().await.execute(&format!("DELETE FROM article_lock WHERE name = '{ITEM}'")).await?;
        Ok(true)
    }
}
