//! Sells pieces of an item: the decision takes longer than a transaction should, so it runs under a lock, and the row
//! itself refuses the write of a holder that was overtaken (sqlx, PostgreSQL).
//!
//! `transfer_with_fence postgres://app@127.0.0.1/shop`

use std::time::Duration;

use leasehold::{Guard, Locks, SqlFence, sql::Fenced};
use sqlx::{AssertSqlSafe, PgPool};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("usage: transfer_with_fence URL")?;
    let (pool, locks) = (PgPool::connect(&url).await?, Locks::connect(&url)?);
    sqlx::query("CREATE TABLE IF NOT EXISTS fenced_stock (item text PRIMARY KEY, pieces int, fence bigint)")
        .execute(&pool)
        .await?;
    sqlx::query("INSERT INTO fenced_stock VALUES ('4711', 10, 0) ON CONFLICT DO NOTHING")
        .execute(&pool)
        .await?;
    let item = locks.mutex("item-4711");
    let sold = item.run(async |guard| sell(&pool, guard).await).await??;
    println!("sold, {sold} left");
    // A holder that went on without noticing that its time was over:
    let late = item.acquire().await?;
    locks.break_hold("item-4711", late.token().number, true).await?;
    let sold = item.run(async |guard| sell(&pool, guard).await).await??;
    println!("sold, {sold} left");
    if let Err(error) = sell(&pool, &late).await {
        println!("the late holder: {error}");
    }
    Ok(())
}

/// One piece less, in one transaction. Returns how many are left.
async fn sell(pool: &PgPool, guard: &Guard) -> Result<i32, Failure> {
    // The decision: a payment, for instance.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let stock = SqlFence::new("fenced_stock", "fence")?;
    let mut tx = pool.begin().await?;
    let update = stock.update(guard.token(), "pieces = pieces - 1", "item = $2");
    let changed =
        sqlx::query(AssertSqlSafe(update.text)).bind(update.token).bind("4711").execute(&mut *tx).await?;
    if changed.rows_affected() == 0 {
        let seen = sqlx::query_scalar(AssertSqlSafe(stock.seen("item = $1")));
        let seen = seen.bind("4711").fetch_optional(&mut *tx).await?;
        return Err(match stock.judge(guard.token(), seen) {
            Fenced::Overtaken { seen } => format!("refused, the row has seen token {seen}").into(),
            _ => "no such item".into(),
        });
    }
    let left = sqlx::query_scalar("SELECT pieces FROM fenced_stock WHERE item = $1").bind("4711");
    let left = left.fetch_one(&mut *tx).await?;
    tx.commit().await?;
    Ok(left)
}
