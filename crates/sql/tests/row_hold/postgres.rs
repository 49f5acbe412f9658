//! PostgreSQL.

use leasehold_sql::{
    RowEngine,
    postgres::{Config, row_engine},
};
use leasehold_testkit::server::{PgBouncer, PostgresServer};
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

use crate::rig::told_loss;

struct Rig {
    server: PostgresServer,
}

/// Another program.
struct Foreign {
    client: tokio_postgres::Client,
    runtime: Runtime,
}

impl Foreign {
    fn lock(&self, statement: &str) {
        self.runtime.block_on(self.client.batch_execute(&format!("BEGIN; {statement}"))).unwrap();
    }

    fn commit(self) {
        self.runtime.block_on(self.client.batch_execute("COMMIT")).unwrap();
    }
}

impl Rig {
    fn new() -> Self {
        Self::of(PostgresServer::start(&["max_connections=300"]))
    }

    fn of(server: PostgresServer) -> Self {
        for text in [
            "CREATE TABLE xxl_job_lock (lock_name varchar(50) PRIMARY KEY)",
            "INSERT INTO xxl_job_lock VALUES ('schedule_lock')",
            "CREATE TABLE qrtz_locks (sched_name varchar(120), lock_name varchar(40), PRIMARY KEY (sched_name, lock_name))",
            "INSERT INTO qrtz_locks VALUES ('reports', 'TRIGGER_ACCESS'), ('other', 'TRIGGER_ACCESS')",
            "CREATE TABLE strict_lock (name varchar(50) NOT NULL PRIMARY KEY, owner varchar(50) NOT NULL)",
            "CREATE TABLE wide_lock (name varchar(512) NOT NULL PRIMARY KEY)",
        ] {
            server.query(text);
        }
        Self { server }
    }

    fn engine(&self, rows: RowTable) -> RowEngine {
        self.engine_through(self.server.port(), rows)
    }

    fn engine_through(&self, port: u16, rows: RowTable) -> RowEngine {
        let url = format!("//postgres@127.0.0.1:{port}/postgres");
        row_engine(Config::from_url(&url).unwrap(), rows)
    }

    fn foreign(&self) -> Foreign {
        let runtime = Runtime::new().unwrap();
        let (client, connection) =
            runtime.block_on(tokio_postgres::connect(&self.server.url(), NoTls)).unwrap();
        runtime.spawn(connection);
        Foreign { client, runtime }
    }

    fn is_waiting(&self) -> bool {
        self.server.query("SELECT count(*) FROM pg_locks WHERE NOT granted") != ["0"]
    }

    fn end_sessions(&self) {
        self.server.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'",
        );
    }

    fn limit_idle_transactions(&self) {
        for limit in ["idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout"] {
            self.server.query(&format!("ALTER ROLE postgres SET {limit} = '300ms'"));
        }
    }

    /// Whether a transaction of a hold is older than a second.
    fn is_old(&self) -> bool {
        let age = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold' AND state = 'idle in transaction' \
             AND clock_timestamp() - xact_start > interval '1 s'";
        self.server.query(age) == ["1"]
    }

    fn connections(&self) -> usize {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
        self.server.query(count)[0].parse().unwrap()
    }

    fn how_to_end(&self, session: &str) -> String {
        format!("run SELECT pg_terminate_backend({session})")
    }

    const fn shows_holders(&self) -> bool {
        true
    }
}

suite!(Rig);

#[test]
fn a_replica_is_refused() {
    let rig = Rig::of(PostgresServer::start(&[]));
    let replica = rig.server.replica();
    let locks = locks(rig.engine_through(replica.port(), xxl_job()));
    let error = locks.mutex("schedule_lock").blocking().try_acquire().unwrap_err();
    assert!(!error.is_taken() && error.to_string().contains("name the primary"), "{error:?}");
}

/// F60: the lock of a row is not replicated. A fence tells apart the tokens of the two servers.
#[test]
fn a_promoted_replica_locks_a_row_that_its_primary_still_locks() {
    let mut rig = Rig::of(PostgresServer::durable(&[]));
    let replica = rig.server.replica();
    let locks = locks(rig.engine(xxl_job()));
    let guard = acquire(&locks, "schedule_lock");
    replica.promote();
    let promoted = crate::rig::locks(rig.engine_through(replica.port(), xxl_job()));
    let next = acquire(&promoted, "schedule_lock");
    assert!(guard.check() && next.check(), "the old primary serves its clients still");
    assert_ne!(next.token().lineage, guard.token().lineage);
    rig.server.kill();
    wait_for_loss(&guard);
    assert_eq!(told_loss(&guard), Loss::Gone);
    assert!(next.check());
}

/// The server ends all sessions then, loses the unwritten end of its log, and goes on with the same start time.
#[test]
fn tokens_are_told_apart_after_a_crash_of_a_backend() {
    let rig = Rig::new();
    let locks = locks(rig.engine(xxl_job()));
    let guard = acquire(&locks, "schedule_lock");
    let before = guard.token();
    let pid = rig.server.query("SELECT pid FROM pg_stat_activity WHERE application_name = 'leasehold'");
    let pid = nix::unistd::Pid::from_raw(pid[0].parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    wait_for_loss(&guard);
    let mut next = None;
    until("the server answers", || {
        next = locks.mutex("schedule_lock").blocking().try_acquire().ok();
        next.is_some()
    });
    assert_ne!(next.unwrap().token().lineage, before.lineage);
}

#[test]
fn a_row_that_was_never_locked_is_shown_without_a_lock() {
    let rig = Rig::new();
    let engine = rig.engine(xxl_job());
    let name = Name::new("schedule_lock").unwrap();
    let view = Runtime::new().unwrap().block_on(leasehold_core::Inspect::show(&engine, &name)).unwrap();
    assert!(view.holders.is_empty());
    assert_eq!(
        rig.server.query("SELECT xmax FROM xxl_job_lock"),
        ["0"],
        "a lock would be written into the row"
    );
}

#[test]
fn a_pooler_is_refused_in_every_mode() {
    let rig = Rig::new();
    for mode in ["session", "transaction", "statement"] {
        let pooler = PgBouncer::in_mode(rig.server.port(), mode);
        let locks = locks(rig.engine_through(pooler.port(), xxl_job()));
        let error = locks.mutex("schedule_lock").blocking().try_acquire().unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("pooler"), "{mode}: {error:?}");
        // That option is for tables.
        assert!(!error.to_string().contains("listen_url"), "{mode}: {error:?}");
    }
}

#[test]
fn the_rights_on_the_page_suffice() {
    let rig = Rig::new();
    rig.server.query("CREATE ROLE app LOGIN");
    let engine = || {
        let url = format!("//app@127.0.0.1:{}/postgres", rig.server.port());
        row_engine(Config::from_url(&url).unwrap(), xxl_job())
    };
    let denied = locks(engine()).mutex("schedule_lock").blocking().try_acquire().unwrap_err();
    assert!(denied.is_denied(), "{denied:?}");
    rig.server.query("GRANT SELECT, UPDATE ON xxl_job_lock TO app");
    let (holder, other) = (locks(engine()), locks(engine()));
    let guard = acquire(&holder, "schedule_lock");
    assert!(other.mutex("schedule_lock").blocking().try_acquire().unwrap_err().is_taken());
    let looker = engine();
    let name = Name::new("schedule_lock").unwrap();
    let runtime = Runtime::new().unwrap();
    let view = runtime.block_on(leasehold_core::Inspect::show(&looker, &name)).unwrap();
    assert_eq!(view.holders.len(), 1, "{view:?}");
    guard.release_blocking().unwrap();
}
