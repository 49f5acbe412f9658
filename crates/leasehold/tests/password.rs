//! The password changes on the server and in its file, and the client reconnects with the new one.
#![cfg(all(
    feature = "redis",
    feature = "etcd",
    feature = "zookeeper",
    feature = "postgres",
    feature = "mysql"
))]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use leasehold::{Connect, Locks, Password};
use leasehold_testkit::server::{
    EtcdServer, MariadbServer, PostgresServer, Proxy, RedisServer, ZookeeperServer,
};

/// The time limit of every wait. It does not measure speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A password file that is removed at the end of the test.
struct File(PathBuf);

impl File {
    fn new(engine: &str) -> Self {
        let path = std::env::temp_dir().join(format!("leasehold-{engine}-{}", std::process::id()));
        fs::write(&path, "hunter2-old\n").unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn acquire(locks: &Locks, name: &str) {
    locks.mutex(name).blocking().acquire_within(PATIENCE).unwrap().release_blocking().unwrap();
}

/// The client works with the old password until `change` changes it on the server, is refused, and works again once the
/// file has the new password.
fn reconnects(engine: &str, port: u16, url: impl Fn(u16, &Path) -> String, change: impl FnOnce()) {
    let (proxy, file) = (Proxy::start(port), File::new(engine));
    let locks = Locks::connect(&url(proxy.port(), &file.0)).unwrap();
    acquire(&locks, "before");
    change();
    proxy.drop_connections();
    let limit = Instant::now() + PATIENCE;
    loop {
        // First the old connection fails, then the old password.
        let error = match locks.mutex("between").blocking().try_acquire() {
            Err(error) => error,
            Ok(_) => panic!("{engine} takes the old password"),
        };
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        let ping = locks.ping_blocking();
        if error.is_denied() && ping.as_ref().is_err_and(leasehold::Error::is_denied) {
            break;
        }
        assert!(Instant::now() < limit, "{engine}: {error}; {ping:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::write(&file.0, "hunter2-new\n").unwrap();
    proxy.drop_connections();
    while let Err(error) = locks.mutex("after").blocking().acquire_within(PATIENCE) {
        assert!(Instant::now() < limit, "{engine}: {error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    locks.ping_blocking().unwrap();
    assert!(!format!("{locks:?}").contains("hunter2"), "{locks:?}");
}

#[test]
fn a_redis_client_reconnects_with_the_new_password() {
    let server = RedisServer::start(&["--requirepass", "hunter2-old"]);
    let url = |port, file: &Path| format!("redis://127.0.0.1:{port}?password_file={}", file.display());
    reconnects("redis", server.port(), url, || {
        let operator = ["--no-auth-warning", "-a", "hunter2-old"];
        server.command(&[&operator[..], &["CONFIG", "SET", "requirepass", "hunter2-new"]].concat());
    });
}

#[test]
fn an_etcd_client_reconnects_with_the_new_password() {
    let mut server = EtcdServer::start(&["--bcrypt-cost=4"]);
    server.require_logins("correct-horse");
    let user = |password: &str| {
        server.command(&["user", "add", &format!("locker:{password}")]);
        server.command(&["user", "grant-role", "locker", "root"]);
    };
    user("hunter2-old");
    let url = |port, file: &Path| format!("etcd://locker@127.0.0.1:{port}?password_file={}", file.display());
    reconnects("etcd", server.port(), url, || {
        server.command(&["user", "delete", "locker"]);
        user("hunter2-new");
    });
}

/// In ZooKeeper the password is a part of the identity: nodes of the old password still belong to it.
#[test]
fn a_zookeeper_client_reconnects_with_the_new_password() {
    let server = ZookeeperServer::start(&[]);
    server.command_as_super("create /locks\naddauth digest locker:hunter2-old\nsetAcl /locks auth::cdrwa");
    let url =
        |port, file: &Path| format!("zookeeper://locker@127.0.0.1:{port}?password_file={}", file.display());
    reconnects("zookeeper", server.port(), url, || {
        server.command_as_super("addauth digest locker:hunter2-new\nsetAcl /locks auth::cdrwa");
    });
}

#[test]
fn a_postgres_client_reconnects_with_the_new_password() {
    let server = PostgresServer::start(&[]);
    server.query("CREATE ROLE locker LOGIN SUPERUSER PASSWORD 'hunter2-old'");
    let rules = server.query("SHOW hba_file").remove(0);
    let known = fs::read_to_string(&rules).unwrap();
    fs::write(&rules, format!("host all locker 127.0.0.1/32 scram-sha-256\n{known}")).unwrap();
    server.query("SELECT pg_reload_conf()");
    let url = |port, file: &Path| {
        format!("postgres://locker@127.0.0.1:{port}/postgres?password_file={}", file.display())
    };
    reconnects("postgres", server.port(), url, || {
        server.query("ALTER ROLE locker PASSWORD 'hunter2-new'");
    });
}

#[test]
fn a_mysql_client_reconnects_with_the_new_password() {
    let server = MariadbServer::start(&[]);
    server.query("CREATE USER locker@'%' IDENTIFIED BY 'hunter2-old'");
    server.query("GRANT ALL ON locks.* TO locker@'%'");
    let url =
        |port, file: &Path| format!("mysql://locker@127.0.0.1:{port}/locks?password_file={}", file.display());
    reconnects("mysql", server.port(), url, || {
        server.query("SET PASSWORD FOR locker@'%' = PASSWORD('hunter2-new')");
    });
}

#[test]
fn a_callback_is_asked_at_each_connection() {
    let server = RedisServer::start(&["--requirepass", "hunter2-old"]);
    let proxy = Proxy::start(server.port());
    let changed = Arc::new(AtomicBool::new(false));
    let is_changed = Arc::clone(&changed);
    let password = Password::callback(move || {
        let word = if is_changed.load(Ordering::Relaxed) { "hunter2-new" } else { "hunter2-old" };
        std::future::ready(Ok::<_, std::io::Error>(word.to_owned()))
    });
    let connect = Connect::default().password(password);
    assert!(!format!("{connect:?}").contains("hunter2"));
    let locks = connect.connect(&format!("redis://127.0.0.1:{}", proxy.port())).unwrap();
    acquire(&locks, "before");
    let operator = ["--no-auth-warning", "-a", "hunter2-old"];
    server.command(&[&operator[..], &["CONFIG", "SET", "requirepass", "hunter2-new"]].concat());
    changed.store(true, Ordering::Relaxed);
    proxy.drop_connections();
    acquire(&locks, "after");
}

#[test]
fn two_passwords_are_refused_and_some_urls_have_none() {
    let refused = |connect: Connect, url: &str| {
        let error = connect.connect(url).unwrap_err();
        assert!(error.is_misconfigured() && !error.to_string().contains("hunter2"), "{url}: {error}");
        error.to_string()
    };
    let given = || Connect::default().password("hunter2");
    for url in [
        "redis://:hunter2@h",
        "etcd://u:hunter2@h",
        "zookeeper://u:hunter2@h",
        "postgres://u:hunter2@h/d",
        "mysql://u:hunter2@h/d",
    ] {
        assert!(refused(given(), url).contains("twice"));
        assert!(refused(Connect::default(), &format!("{url}?password_file=/x")).contains("twice"));
    }
    for url in ["etcd://h", "zookeeper://h"] {
        assert!(refused(given(), url).contains("no user"));
    }
    for url in ["memory:", "file:", "sqlite:///x.db"] {
        assert!(refused(given(), url).contains("have none"));
    }
}
