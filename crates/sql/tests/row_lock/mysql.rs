//! MariaDB or MySQL by way of `sqlx`.

use leasehold_sql::Dialect;
use leasehold_testkit::server::MariadbServer;
use sqlx::{MySqlPool, mysql::MySqlPoolOptions};

pub(crate) struct Rig {
    pub(crate) server: MariadbServer,
    pub(crate) pool: MySqlPool,
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
        Self::of(MariadbServer::start(&[])).await
    }

    async fn of(server: MariadbServer) -> Self {
        server.query(&RowLock::from("n").schema(Dialect::Mysql));
        server.query("CREATE TABLE work (value bigint NOT NULL) ENGINE = InnoDB");
        server.query("INSERT INTO work VALUES (0)");
        Self {
            pool: MySqlPoolOptions::new().max_connections(5).connect(&server.url()).await.unwrap(),
            server,
            limit: "SELECT CAST(@@innodb_lock_wait_timeout AS CHAR)",
            // REPEATABLE READ is the level of the server.
            begin_snapshot: "BEGIN",
            session: "SELECT CAST(CONNECTION_ID() AS SIGNED)",
            end_session: "KILL SESSION",
            session_level: ("SESSION CHARACTERISTICS AS TRANSACTION", "SESSION TRANSACTION"),
            many_ended: "INSERT INTO leasehold_once WITH RECURSIVE numbers AS (SELECT 1 AS number UNION ALL SELECT number + 1 FROM numbers WHERE number < 501) SELECT CONCAT(half, number), number, NULL, '' FROM numbers, (SELECT 'one ' AS half UNION SELECT 'two ') AS halves",
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.server.transactions("trx_state = 'LOCK WAIT'") > 0
    }
}

suite!(Rig, Dialect::Mysql);

/// How often a transaction has waited for another one since the server started.
fn waits(rig: &Rig) -> Vec<String> {
    rig.server.query("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'")
}

#[tokio::test]
async fn a_name_that_a_call_returns_is_locked_even_if_the_server_rolls_back_at_a_timeout() {
    let rig = Rig::of(MariadbServer::start(&["--innodb-rollback-on-timeout=ON"])).await;
    let mut transaction = rig.pool.begin().await.unwrap();
    row_lock(&mut transaction, "a").await.unwrap();
    transaction.commit().await.unwrap();
    let mut creator = rig.pool.begin().await.unwrap();
    row_lock(&mut creator, "b").await.unwrap();
    let mut other = rig.pool.begin().await.unwrap();
    let rolled_back = row_lock(&mut other, RowLock::from(["a", "b"]).skip_locked()).await.unwrap_err();
    assert_eq!(rolled_back.kind(), RowLockErrorKind::Conflict, "{rolled_back}");
    other.rollback().await.unwrap();
    // Without a timeout such a server locks as others do.
    let mut other = rig.pool.begin().await.unwrap();
    assert_eq!(
        row_lock(&mut other, RowLock::from(["a", "c"]).skip_locked()).await.unwrap().iter().count(),
        2
    );
}

#[tokio::test]
async fn a_call_that_does_not_wait_locks_no_gap_between_names() {
    for name in ["a", "z"] {
        for (first, second) in [
            (RowLock::from("m").no_wait(), RowLock::from(name).no_wait()),
            (RowLock::from("m").skip_locked(), RowLock::from(name).skip_locked()),
            (RowLock::from("m").no_wait(), RowLock::from(name)),
        ] {
            let rig = Rig::start().await;
            let (mut one, mut other) = (rig.pool.begin().await.unwrap(), rig.pool.begin().await.unwrap());
            row_lock(&mut one, first).await.unwrap();
            row_lock(&mut other, second).await.unwrap();
            assert_eq!(waits(&rig), ["Innodb_row_lock_waits|0"], "{name}");
        }
    }
}

#[tokio::test]
async fn a_call_that_does_not_wait_ends_at_the_first_name_that_it_cannot_have() {
    let rig = Rig::start().await;
    let mut transaction = rig.pool.begin().await.unwrap();
    row_lock(&mut transaction, "x").await.unwrap();
    transaction.commit().await.unwrap();
    let mut holder = rig.pool.begin().await.unwrap();
    row_lock(&mut holder, ["a", "b", "c", "x"]).await.unwrap();
    for (names, waited) in [(&["a", "b", "c", "x"][..], 0), (&["a", "b", "c"], 1)] {
        let mut other = rig.pool.begin().await.unwrap();
        let taken = row_lock(&mut other, RowLock::from(names).no_wait()).await.unwrap_err();
        assert_eq!(taken.kind(), RowLockErrorKind::Taken, "{taken}");
        assert_eq!(waits(&rig), [format!("Innodb_row_lock_waits|{waited}")]);
    }
}

#[tokio::test]
async fn every_isolation_level_reads_what_was_committed_before() {
    let rig = Rig::start().await;
    for (level, value) in [("READ COMMITTED", 1), ("REPEATABLE READ", 2), ("SERIALIZABLE", 3)] {
        // A level for one transaction, which no variable shows.
        let mut connection = rig.pool.acquire().await.unwrap();
        let set = format!("SET TRANSACTION ISOLATION LEVEL {level}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(set.as_str())).execute(&mut *connection).await.unwrap();
        let mut transaction = sqlx::Connection::begin(&mut *connection).await.unwrap();
        row_lock(&mut transaction, "n").await.unwrap();
        let read: i64 =
            sqlx::query_scalar("SELECT value FROM work").fetch_one(&mut *transaction).await.unwrap();
        assert_eq!(read + 1, value, "{level}");
        sqlx::query("UPDATE work SET value = ?").bind(value).execute(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap();
    }
}

#[tokio::test]
async fn the_rights_on_the_page_suffice() {
    let rig = Rig::start().await;
    rig.server.query("CREATE USER app@'%'");
    rig.server.query("GRANT SELECT ON work TO app@'%'");
    let url = format!("mysql://app@127.0.0.1:{}/locks", rig.server.port());
    let pool = MySqlPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let denied = row_lock(&mut transaction, "n").await.unwrap_err();
    assert_eq!(denied.kind(), RowLockErrorKind::Denied, "{denied}");
    transaction.rollback().await.unwrap();
    rig.server.query("GRANT SELECT, INSERT, UPDATE ON leasehold_row_locks TO app@'%'");
    for lock in [RowLock::from("n"), RowLock::from("n").no_wait(), RowLock::from(["n", "m"]).skip_locked()] {
        let mut transaction = pool.begin().await.unwrap();
        row_lock(&mut transaction, lock).await.unwrap();
        transaction.commit().await.unwrap();
    }
}
