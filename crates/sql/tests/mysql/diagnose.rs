//! What `diagnose` tells of good and of misconfigured servers.

use leasehold_core::{Diagnostic, Env, Inspect, Level, Severity};
use leasehold_sql::{
    Encryption, ForeignTable, Layout, RowTable, Tls,
    mysql::{
        Config, GRANTS, SCHEMA, SessionOptions, engine, foreign_table_engine, row_engine, session_engine,
    },
};
use leasehold_testkit::server::MariadbServer;
use mysql_async::prelude::Queryable;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::rig::{Rig, USER, as_user, claim, claim_and_hold, engine_at, is_mysql};

/// The password of the user `locker`, which nothing may show.
const CANARY: &str = "p@ss/word";

/// What an engine tells.
async fn told(engine: &dyn Inspect) -> Vec<Diagnostic> {
    let told = engine.diagnose().await.unwrap();
    for diagnostic in &told {
        let text = format!("{diagnostic:?}");
        assert!(!text.contains(CANARY) && !text.contains("p%40ss"), "{text}");
        assert!(!diagnostic.found.is_empty() && !diagnostic.found.contains('\n'), "{text}");
    }
    told
}

/// Checks the severity of the only diagnostic with this id, and that its texts contain a word.
fn assert_told(told: &[Diagnostic], id: &str, severity: Severity, word: &str) {
    let found: Vec<_> = told.iter().filter(|diagnostic| diagnostic.id == id).collect();
    let [diagnostic] = found[..] else { panic!("{id}: {told:?}") };
    assert_eq!(diagnostic.severity, severity, "{diagnostic:?}");
    let text = format!("{} {}", diagnostic.found, diagnostic.advice);
    assert!(text.contains(word), "{diagnostic:?}");
}

#[tokio::test]
async fn a_good_server_has_only_good_diagnostics_and_stays_as_it_was() {
    let rig = Rig::of(MariadbServer::durable(&[]));
    let empty = told(&*rig.engine()).await;
    assert_told(&empty, "mysql-tables", Severity::Good, "do not exist");
    assert_eq!(rig.server.query("SHOW TABLES"), [""; 0], "nothing was created");
    claim_and_hold(&*rig.engine(), &claim("a")).await;
    let good = told(&*rig.engine()).await;
    for id in [
        "mysql-version",
        "mysql-role",
        "mysql-clock",
        "mysql-tls",
        "mysql-proxy",
        "mysql-replicas",
        "mysql-connections",
        "mysql-transactions",
        "mysql-rights",
        "mysql-table-locks",
        "mysql-tables",
    ] {
        assert_told(&good, id, Severity::Good, "");
    }
    assert!(good.iter().all(|diagnostic| diagnostic.severity == Severity::Good), "{good:?}");
}

#[tokio::test]
async fn the_end_of_the_certificate_is_told() {
    let server = MariadbServer::encrypted();
    let tls = Tls::system().roots(server.certificate("ca.pem"));
    let config = Config::from_url(&format!("//root@localhost:{}/locks", server.port())).unwrap();
    let found = told(&engine(config.encryption(Encryption::Required(tls)), &Env::system())).await;
    assert_told(&found, "mysql-tls", Severity::Good, "the certificate of the server expires in ");
}

#[tokio::test]
async fn settings_that_harm_locks_are_told() {
    let rig = Rig::of(MariadbServer::durable(&[]));
    claim_and_hold(&*rig.engine(), &claim("a")).await;
    rig.server.query("SET GLOBAL read_only = 1");
    let found = told(&*rig.engine()).await;
    assert_told(&found, "mysql-role", Severity::Broken, "name the primary");
    let rig = Rig::of(MariadbServer::durable(&["--innodb-flush-method=nosync"]));
    let guarantee = rig.engine().guarantee().await.unwrap();
    assert_eq!(guarantee.level, Level::BestEffort, "{guarantee}");
    assert!(guarantee.findings.iter().any(|finding| finding.what == "innodb_flush_method"), "{guarantee}");
}

#[tokio::test]
async fn missing_rights_are_told_with_the_grants_that_give_them() {
    let rig = Rig::of(MariadbServer::start(&["--log-bin"]));
    rig.server.query(SCHEMA);
    rig.server.query(USER);
    rig.server.query("GRANT SELECT ON locks.* TO locker@'%'");
    let locker = engine_at(&as_user(&rig));
    let viewer = told(&*locker).await;
    let grant = "GRANT INSERT, UPDATE, DELETE ON leasehold_claim TO `locker`@`%`";
    assert_told(&viewer, "mysql-rights", Severity::Broken, grant);
    assert_told(&viewer, "mysql-transactions", Severity::Unknown, "GRANT PROCESS ON *.* TO `locker`@`%`");
    rig.server.query("REVOKE SELECT ON locks.* FROM locker@'%'");
    rig.server.query(GRANTS);
    let found = told(&*engine_at(&as_user(&rig))).await;
    assert_told(&found, "mysql-rights", Severity::Good, "");
    assert_told(&found, "mysql-tables", Severity::Good, "");
    if is_mysql() {
        assert_told(&found, "mysql-replicas", Severity::Unknown, "GRANT PROCESS");
    }
    rig.server.query("GRANT PROCESS ON *.* TO locker@'%'");
    let found = told(&*engine_at(&as_user(&rig))).await;
    assert_told(&found, "mysql-transactions", Severity::Good, "");
    assert_told(&found, "mysql-replicas", Severity::Good, "");
    rig.server.query("UPDATE leasehold_meta SET version = 2");
    assert_told(&told(&*rig.engine()).await, "mysql-tables", Severity::Broken, "version 2");
}

#[tokio::test]
async fn the_lock_of_a_table_by_another_program_is_told() {
    let rig = Rig::new();
    claim_and_hold(&*rig.engine(), &claim("a")).await;
    let mut other = mysql_async::Conn::from_url(rig.server.url()).await.unwrap();
    for lock in ["LOCK TABLES leasehold_claim WRITE", "LOCK TABLES leasehold_claim READ"] {
        other.query_drop(lock).await.unwrap();
        let locked = told(&*rig.engine()).await;
        assert_told(&locked, "mysql-table-locks", Severity::Warning, "leasehold_claim");
    }
    other.query_drop("UNLOCK TABLES").await.unwrap();
    assert_told(&told(&*rig.engine()).await, "mysql-table-locks", Severity::Good, "");
    other.disconnect().await.unwrap();
}

#[tokio::test]
async fn a_clock_that_is_off_is_told() {
    let rig = Rig::of(MariadbServer::with_clock());
    for (seconds, severity, word) in [
        (3600, Severity::Warning, "ahead of"),
        (-3600, Severity::Warning, "behind"),
        (0, Severity::Good, "differs"),
    ] {
        rig.server.set_clock(seconds);
        assert_told(&told(&*rig.engine()).await, "mysql-clock", severity, word);
    }
}

#[tokio::test]
async fn a_user_whose_connections_are_used_up_is_told() {
    let rig = Rig::new();
    rig.server.query("CREATE USER few@'%' WITH MAX_USER_CONNECTIONS 1; GRANT SELECT ON locks.* TO few@'%'");
    let url = format!("//few@127.0.0.1:{}/locks", rig.server.port());
    let found = told(&*engine_at(&url)).await;
    assert_told(&found, "mysql-connections", Severity::Broken, "0 of 1 connections are free");
}

#[tokio::test]
async fn sessions_rows_and_tables_of_other_programs_are_looked_at() {
    let rig = Rig::new();
    rig.server.query(USER);
    let config = || Config::from_url(&format!("//root@127.0.0.1:{}/locks", rig.server.port())).unwrap();
    let poor = || Config::from_url(&as_user(&rig)).unwrap();
    let sessions = session_engine(config(), SessionOptions::default(), &Env::system());
    assert_told(&told(&sessions).await, "mysql-proxy", Severity::Good, "one session");
    rig.server.query("CREATE TABLE xxl_job_lock (lock_name varchar(50) PRIMARY KEY)");
    rig.server.query("GRANT SELECT ON xxl_job_lock TO locker@'%'");
    let rows = |config| row_engine(config, RowTable::new("xxl_job_lock", "lock_name").unwrap());
    assert_told(&told(&rows(config())).await, "mysql-rights", Severity::Good, "");
    assert_told(
        &told(&rows(poor())).await,
        "mysql-rights",
        Severity::Broken,
        "GRANT UPDATE ON `xxl_job_lock`",
    );
    let foreign = |config| foreign_table_engine(config, ForeignTable::new(Layout::Shedlock), &Env::system());
    assert_told(&told(&foreign(config())).await, "mysql-tables", Severity::Broken, "shedlock");
    rig.server.query(
        "CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp(3) NOT NULL, \
         locked_at timestamp(3) NOT NULL, locked_by varchar(255) NOT NULL)",
    );
    rig.server.query("GRANT SELECT ON shedlock TO locker@'%'");
    let found = told(&foreign(config())).await;
    assert_told(&found, "mysql-tables", Severity::Good, "");
    assert_told(&found, "mysql-rights", Severity::Good, "");
    let poor = told(&foreign(poor())).await;
    assert_told(&poor, "mysql-rights", Severity::Broken, "GRANT INSERT, UPDATE, DELETE ON `shedlock`");
}

/// The size of a packet's header; its first three bytes are the length of the body.
const HEADER: usize = 4;

async fn packet(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut packet = vec![0; HEADER];
    from.read_exact(&mut packet).await.ok()?;
    let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]) as usize;
    packet.resize(HEADER + length, 0);
    from.read_exact(&mut packet[HEADER..]).await.ok()?;
    Some(packet)
}

/// Serves one client as a proxy that splits reads and writes: it sends statements that read, outside of a transaction,
/// to the server on the port `reader`, and all others to the one on `writer`. The user has no password, so the login of
/// the client is good for both.
async fn split(mut client: TcpStream, reader: u16, writer: u16) -> Option<()> {
    let mut servers = [
        TcpStream::connect(("127.0.0.1", writer)).await.ok()?,
        TcpStream::connect(("127.0.0.1", reader)).await.ok()?,
    ];
    let greeting = packet(&mut servers[0]).await?;
    packet(&mut servers[1]).await?;
    client.write_all(&greeting).await.ok()?;
    let login = packet(&mut client).await?;
    for server in &mut servers {
        server.write_all(&login).await.ok()?;
    }
    packet(&mut servers[1]).await?;
    let (mut answers, mut reads, mut in_transaction) = ([0; 4096], [0; 4096], false);
    let [primary, replica] = &mut servers;
    loop {
        tokio::select! {
            request = packet(&mut client) => {
                let request = request?;
                let text = String::from_utf8_lossy(&request[HEADER + 1..]).into_owned();
                let is_read = text.starts_with("SELECT") && !in_transaction;
                in_transaction = (in_transaction || text.starts_with("START")) && !text.starts_with("ROLLBACK");
                let server = if is_read { &mut *replica } else { &mut *primary };
                server.write_all(&request).await.ok()?;
            }
            read = primary.read(&mut answers) => match read.ok()? {
                0 => return None,
                count => client.write_all(&answers[..count]).await.ok()?,
            },
            read = replica.read(&mut reads) => match read.ok()? {
                0 => return None,
                count => client.write_all(&reads[..count]).await.ok()?,
            },
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_splits_reads_and_writes_is_told() {
    let (rig, replica) = (Rig::new(), MariadbServer::start(&[]));
    claim_and_hold(&*rig.engine(), &claim("a")).await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (writer, reader) = (rig.server.port(), replica.port());
    let proxy = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(split(client, reader, writer));
        }
    });
    let config = Config::from_url(&format!("//root@127.0.0.1:{port}/locks")).unwrap();
    let found = told(&engine(config, &Env::system())).await;
    assert_told(&found, "mysql-proxy", Severity::Broken, &format!(" {reader} "));
    assert_told(&found, "mysql-proxy", Severity::Broken, &format!(" {writer} "));
    proxy.abort();
}
