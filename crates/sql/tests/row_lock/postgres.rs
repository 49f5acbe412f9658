//! PostgreSQL by way of `sqlx`.

use leasehold_sql::Dialect;
use leasehold_testkit::server::PostgresServer;
use sqlx::{PgPool, postgres::PgPoolOptions};

pub(crate) struct Rig {
    pub(crate) server: PostgresServer,
    pub(crate) pool: PgPool,
    /// The time limit for a lock.
    pub(crate) limit: &'static str,
    pub(crate) begin_snapshot: &'static str,
    /// The number of the session, and the statement that ends it.
    pub(crate) session: &'static str,
    pub(crate) end_session: &'static str,
    /// Words of a statement of standard SQL that sets the level of a session, and what this server has in their place.
    pub(crate) session_level: (&'static str, &'static str),
    /// The statement that inserts 1002 ended records of `once_in`.
    pub(crate) many_ended: &'static str,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        let server = PostgresServer::start(&[]);
        server.query(&RowLock::from("n").schema(Dialect::Postgres));
        server.query("CREATE TABLE work AS SELECT 0::bigint AS value");
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port());
        Self {
            server,
            pool: PgPoolOptions::new().max_connections(5).connect(&url).await.unwrap(),
            limit: "SELECT current_setting('lock_timeout')",
            begin_snapshot: "BEGIN ISOLATION LEVEL REPEATABLE READ",
            session: "SELECT pg_backend_pid()::bigint",
            end_session: "SELECT pg_terminate_backend(SESSION)",
            session_level: ("", ""),
            many_ended: "INSERT INTO leasehold_once SELECT 'old ' || number, number, NULL, '' FROM generate_series(1, 1002) AS number",
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.server.query("SELECT count(*) FROM pg_locks WHERE NOT granted") != ["0"]
    }
}

suite!(Rig, Dialect::Postgres);

#[tokio::test]
async fn a_transaction_that_has_written_locks_only_on_request() {
    let rig = Rig::start().await;
    let mut transaction = rig.pool.begin().await.unwrap();
    sqlx::query("SELECT value FROM work").execute(&mut *transaction).await.unwrap();
    row_lock(&mut transaction, "a").await.unwrap();
    for lock in [RowLock::from("b"), RowLock::from("b").no_wait(), RowLock::from("b").skip_locked()] {
        let error = row_lock(&mut transaction, lock).await.unwrap_err();
        assert_eq!(error.kind(), RowLockErrorKind::NotFirst, "{error}");
    }
    assert_eq!(row_lock(&mut transaction, RowLock::from("b").after_writes()).await.unwrap().token(), 1);
    transaction.commit().await.unwrap();
    assert_eq!(rig.server.query("SELECT name FROM leasehold_row_locks ORDER BY name"), ["a", "b"]);
}

#[tokio::test]
async fn two_transactions_that_wait_for_each_other_are_a_conflict() {
    let rig = Rig::start().await;
    let (mut one, mut other) = (rig.pool.begin().await.unwrap(), rig.pool.begin().await.unwrap());
    row_lock(&mut one, "a").await.unwrap();
    row_lock(&mut other, "b").await.unwrap();
    let (first, second) = tokio::join!(
        async {
            let result = row_lock(&mut one, RowLock::from("b").after_writes()).await;
            one.rollback().await.unwrap();
            result
        },
        async {
            let result = row_lock(&mut other, RowLock::from("a").after_writes()).await;
            other.rollback().await.unwrap();
            result
        }
    );
    let error = [first, second].into_iter().find_map(Result::err).expect("the server ends one of them");
    assert!(error.is_retryable() && error.kind() == RowLockErrorKind::Conflict, "{error}");
}

#[tokio::test]
async fn the_rights_on_the_page_suffice() {
    let rig = Rig::start().await;
    rig.server.query("CREATE ROLE app LOGIN");
    let url = format!("postgres://app@127.0.0.1:{}/postgres", rig.server.port());
    let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let denied = row_lock(&mut transaction, "n").await.unwrap_err();
    assert_eq!(denied.kind(), RowLockErrorKind::Denied, "{denied}");
    let rights = "SELECT, INSERT and UPDATE on leasehold_row_locks";
    assert!(denied.to_string().ends_with(rights), "{denied}");
    transaction.rollback().await.unwrap();
    rig.server.query("GRANT SELECT, INSERT, UPDATE ON leasehold_row_locks TO app");
    for lock in [RowLock::from("n"), RowLock::from("n").no_wait(), RowLock::from(["n", "m"]).skip_locked()] {
        let mut transaction = pool.begin().await.unwrap();
        row_lock(&mut transaction, lock).await.unwrap();
        transaction.commit().await.unwrap();
    }
}
