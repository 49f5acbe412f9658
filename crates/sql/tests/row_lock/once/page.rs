//! The example of the page on locks of rows.

use std::time::Duration;

use leasehold_sql::{Dialect, OnceIn, OnceInTable, once_in};

use crate::postgres::Rig;

async fn order(pool: &sqlx::PgPool, key: &str, item: i64) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut transaction = pool.begin().await?;
    let week = Duration::from_secs(7 * 24 * 3600);
    match once_in(&mut transaction, key).keep(week).await? {
        OnceIn::Done(receipt) => Ok(receipt),
        OnceIn::Run(mut turn) => {
            // The turn is the transaction, too.
            sqlx::query("INSERT INTO orders (item) VALUES ($1)").bind(item).execute(&mut **turn).await?;
            turn.done("receipt").await?;
            transaction.commit().await?;
            Ok(b"receipt".to_vec())
        }
    }
}

#[tokio::test]
async fn an_order_that_is_sent_twice_is_one_order() {
    let rig = Rig::start().await;
    rig.server.query(&OnceInTable::default().schema(Dialect::Postgres));
    rig.server.query("CREATE TABLE orders (item bigint)");
    for _click in 0..2 {
        assert_eq!(order(&rig.pool, "order-17", 4711).await.unwrap(), b"receipt");
    }
    assert_eq!(rig.server.query("SELECT item FROM orders"), ["4711"]);
}
