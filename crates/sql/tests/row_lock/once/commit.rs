//! A commit without an answer: the same call in a new transaction tells what became of it.

use leasehold_sql::{Dialect, OnceIn, OnceInTable, once_in};
use leasehold_testkit::server::Proxy;
use sqlx::postgres::PgPoolOptions;

use crate::{postgres::Rig, until::until};

#[tokio::test(flavor = "multi_thread")]
async fn the_next_call_tells_whether_a_commit_without_an_answer_was_made() {
    for arrives in [true, false] {
        let rig = Rig::start().await;
        rig.server.query(&OnceInTable::default().schema(Dialect::Postgres));
        let proxy = Proxy::start(rig.server.port());
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
        let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
        let mut transaction = pool.begin().await.unwrap();
        let OnceIn::Run(mut turn) = once_in(&mut transaction, "n").await.unwrap() else { panic!() };
        sqlx::query("UPDATE work SET value = value + 1").execute(&mut **turn).await.unwrap();
        turn.done("receipt").await.unwrap();
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
        // The call waits until the server has ended the first transaction.
        let mut again = rig.pool.begin().await.unwrap();
        let found = once_in(&mut again, "n").await.unwrap();
        assert_eq!(matches!(found, OnceIn::Done(result) if result == b"receipt"), arrives);
        assert_eq!(rig.server.query("SELECT value FROM work") == ["1"], arrives);
    }
}
