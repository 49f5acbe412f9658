//! A commit without an answer: how a program finds out what became of it.

use leasehold_sql::row_lock;
use leasehold_testkit::server::Proxy;
use sqlx::{PgConnection, PgPool, Postgres, Transaction, postgres::PgPoolOptions};

use crate::{postgres::Rig, until::until};

/// Locks the name, does the work, and stores the token in the row of the work.
async fn work(transaction: &mut Transaction<'_, Postgres>) -> i64 {
    let token = i64::try_from(row_lock(transaction, "n").await.unwrap().token()).unwrap();
    let done = sqlx::query("UPDATE work SET value = $1").bind(token);
    done.execute(&mut **transaction).await.unwrap();
    token
}

async fn value(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar("SELECT value FROM work").fetch_one(connection).await.unwrap()
}

async fn through(proxy: &Proxy) -> PgPool {
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
    PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_row_of_the_work_tells_whether_a_commit_without_an_answer_was_made() {
    for arrives in [true, false] {
        let rig = Rig::start().await;
        let proxy = Proxy::start(rig.server.port());
        let pool = through(&proxy).await;
        let mut transaction = pool.begin().await.unwrap();
        let token = work(&mut transaction).await;
        if arrives {
            proxy.hold_answers();
        } else {
            proxy.hold_requests();
        }
        let commit = tokio::spawn(transaction.commit());
        if arrives {
            until("the commit is answered", || rig.server.query("SELECT value FROM work") == ["1"]);
        } else {
            until("the commit is on its way", || proxy.holds_a_request());
        }
        proxy.drop_connections();
        assert!(commit.await.unwrap().is_err(), "its outcome is unknown");
        // The lock is granted as soon as the server has ended the earlier transaction, so the row is certain.
        let mut again = rig.pool.begin().await.unwrap();
        row_lock(&mut again, "n").await.unwrap();
        assert_eq!(value(&mut again).await == token, arrives, "arrives: {arrives}");
    }
}
