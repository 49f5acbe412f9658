//! Users and passwords that are given anew for each connection, and change while locks are held.
#![cfg(all(feature = "redis", feature = "etcd", feature = "postgres", feature = "mysql"))]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::{
    fs, io,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use leasehold::{Connect, Credentials};
use leasehold_testkit::server::{MariadbServer, PostgresServer, Proxy, RedisServer};
use tracing_subscriber::fmt::MakeWriter;

/// The time limit of every wait. It does not measure speed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The logins before and after the change.
const OLD: (&str, &str) = ("olduser", "hunter2-old");
const NEW: (&str, &str) = ("newuser", "hunter2-new");

/// Everything that was written to the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// The log of this process, at the finest level.
static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone());
    tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
    log
});

/// The client logs in as the old user and holds a lock. `change` creates the new user, and locks the old one out. The
/// next connection logs in as the new user, and the lock is still held. `users` returns who is logged in.
fn hold_survives_a_new_user(port: u16, url: &str, change: impl FnOnce(), users: impl Fn() -> Vec<String>) {
    let log = Log::clone(&LOG);
    let proxy = Proxy::start(port);
    let current = Arc::new(Mutex::new(OLD));
    let login = Arc::clone(&current);
    let connect = Connect::default().credentials(move || {
        let (user, password) = *login.lock().unwrap();
        std::future::ready(Ok::<_, io::Error>(Credentials::new(user, password)))
    });
    assert!(!format!("{connect:?}").contains("hunter2"));
    let locks = connect.connect(&url.replace("PORT", &proxy.port().to_string())).unwrap();
    let guard = locks.mutex("held").blocking().acquire_within(PATIENCE).unwrap();
    assert!(users().contains(&OLD.0.to_owned()), "{:?}", users());
    change();
    *current.lock().unwrap() = NEW;
    proxy.drop_connections();
    locks.mutex("other").blocking().acquire_within(PATIENCE).unwrap().release_blocking().unwrap();
    assert!(users().contains(&NEW.0.to_owned()), "{:?}", users());
    assert!(guard.check());
    guard.confirm_blocking().unwrap();
    guard.release_blocking().unwrap();
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("held"), "nothing was logged");
    assert!(!log.contains("hunter2"), "a password was logged");
}

#[test]
fn a_new_user_of_postgres_logs_in() {
    let server = PostgresServer::start(&[]);
    let create = |(user, password): (&str, &str)| {
        server.query(&format!("CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{password}'"));
    };
    create(OLD);
    let rules = server.query("SHOW hba_file").remove(0);
    let known = fs::read_to_string(&rules).unwrap();
    fs::write(&rules, format!("host all {},{} 127.0.0.1/32 scram-sha-256\n{known}", OLD.0, NEW.0)).unwrap();
    server.query("SELECT pg_reload_conf()");
    let change = || {
        create(NEW);
        server.query(&format!("ALTER ROLE {} NOLOGIN", OLD.0));
    };
    let users = || server.query("SELECT usename FROM pg_stat_activity WHERE application_name = 'leasehold'");
    // The user of the function replaces the user of the URL.
    hold_survives_a_new_user(server.port(), "postgres://nobody@127.0.0.1:PORT/postgres", change, users);
}

#[test]
fn a_new_user_of_mysql_logs_in() {
    let server = MariadbServer::start(&[]);
    let create = |(user, password): (&str, &str)| {
        server.query(&format!("CREATE USER {user}@'%' IDENTIFIED BY '{password}'"));
        server.query(&format!("GRANT ALL ON locks.* TO {user}@'%'"));
    };
    create(OLD);
    let change = || {
        create(NEW);
        server.query(&format!("DROP USER {}@'%'", OLD.0));
    };
    let users = || server.query("SELECT user FROM information_schema.processlist");
    hold_survives_a_new_user(server.port(), "mysql://127.0.0.1:PORT/locks", change, users);
}

#[test]
fn a_new_user_of_redis_logs_in() {
    let server = RedisServer::start(&[]);
    let create = |(user, password): (&str, &str)| {
        server.command(&["ACL", "SETUSER", user, "on", &format!(">{password}"), "~*", "&*", "+@all"]);
    };
    create(OLD);
    let change = || {
        create(NEW);
        server.command(&["ACL", "SETUSER", OLD.0, "off"]);
    };
    let users = || {
        let clients = server.command(&["CLIENT", "LIST"]);
        let words = clients.iter().flat_map(|line| line.split_whitespace());
        words.filter_map(|word| word.strip_prefix("user=")).map(str::to_owned).collect()
    };
    hold_survives_a_new_user(server.port(), "redis://127.0.0.1:PORT", change, users);
}

#[test]
fn engines_whose_user_is_in_the_url_refuse_credentials() {
    let given = || {
        Connect::default()
            .credentials(|| std::future::ready(Ok::<_, io::Error>(Credentials::new("a", "hunter2"))))
    };
    for url in ["etcd://u@h", "zookeeper://u@h", "memory:", "sqlite:///a.db", "postgres://u:hunter2@h/d"] {
        let error = given().connect(url).unwrap_err();
        assert!(error.is_misconfigured() && !error.to_string().contains("hunter2"), "{url}: {error}");
    }
}
