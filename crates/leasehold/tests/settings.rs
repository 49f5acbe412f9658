//! Locks on the server of a client or a pool of the program, on real servers.
#![cfg(all(
    feature = "tokio-postgres",
    feature = "sqlx-postgres",
    feature = "sqlx-mysql",
    feature = "sqlx-sqlite",
    feature = "mysql_async",
    feature = "redis-client"
))]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::{fs, sync::LazyLock, time::Duration};

use leasehold::{Connect, Locks};
use leasehold_testkit::server::{MariadbServer, PostgresServer, RedisServer};
use tokio::runtime::Runtime;

/// The time limit of every wait. It does not measure speed.
const PATIENCE: Duration = Duration::from_secs(60);
/// A login with characters that a URL must escape.
const USER: &str = "me/you:#";
const SECRET: &str = "hunter2 @:/?#%w";

/// The runtime of the program's own clients.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// Both are locks of the same server, and neither shows the password.
fn are_the_same(one: &Locks, other: &Locks) {
    let guard = one.mutex("n").blocking().acquire_within(PATIENCE).unwrap();
    assert!(other.mutex("n").blocking().try_acquire().unwrap_err().is_taken());
    guard.release_blocking().unwrap();
    assert!(!format!("{one:?}").contains("hunter2"), "{one:?}");
}

/// A server that accepts the user only with the password.
fn postgres() -> PostgresServer {
    let server = PostgresServer::start(&[]);
    server.query(&format!("CREATE ROLE \"{USER}\" LOGIN SUPERUSER PASSWORD '{SECRET}'"));
    let rules = server.query("SHOW hba_file").remove(0);
    let known = fs::read_to_string(&rules).unwrap();
    fs::write(&rules, format!("host all \"{USER}\" 127.0.0.1/32 scram-sha-256\n{known}")).unwrap();
    server.query("SELECT pg_reload_conf()");
    server
}

/// The locks have connections of their own: they work while the program uses every connection of its pool.
#[test]
fn a_pool_of_sqlx_keeps_its_connections() {
    use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
    let server = postgres();
    let by_url = Locks::connect(&server.url()).unwrap();
    let options = PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(server.port())
        .username(USER)
        .password(SECRET)
        .database("postgres")
        .application_name("the program");
    let pool = RUNTIME.block_on(PgPoolOptions::new().max_connections(1).connect_with(options)).unwrap();
    let taken = RUNTIME.block_on(pool.acquire()).unwrap();
    let locks = Connect::default().max_connections(3).connect_like(&pool).unwrap();
    are_the_same(&locks, &by_url);
    assert_eq!(pool.size(), 1);
    let _context = RUNTIME.enter();
    let query = format!(
        "SELECT count(*) BETWEEN 2 AND 4 FROM pg_stat_activity WHERE usename = '{USER}' AND application_name = 'the program'"
    );
    assert_eq!(server.query(&query), ["t"]);
    drop(taken);
}

/// `deadpool_postgres` has its configuration, and `bb8_postgres` is given one.
#[test]
fn a_configuration_of_tokio_postgres_and_of_its_pools_connects() {
    let server = postgres();
    let by_url = Locks::connect(&server.url()).unwrap();
    let mut settings = deadpool_postgres::Config::new();
    settings.host = Some("127.0.0.1".to_owned());
    settings.port = Some(server.port());
    settings.user = Some(USER.to_owned());
    settings.password = Some(SECRET.to_owned());
    settings.dbname = Some("postgres".to_owned());
    let pool = settings.create_pool(Some(deadpool_postgres::Runtime::Tokio1), tokio_postgres::NoTls).unwrap();
    let config = settings.get_pg_config().unwrap();
    RUNTIME.block_on(async { pool.get().await.unwrap().batch_execute("SELECT 1").await.unwrap() });
    are_the_same(&Locks::connect_like(&config).unwrap(), &by_url);

    let manager = bb8_postgres::PostgresConnectionManager::new(config.clone(), tokio_postgres::NoTls);
    let pool = RUNTIME.block_on(bb8_postgres::bb8::Pool::builder().max_size(1).build(manager)).unwrap();
    RUNTIME.block_on(async { pool.get().await.unwrap().batch_execute("SELECT 1").await.unwrap() });
    // The tables in a schema of their own are other locks.
    let schema = Connect::default().schema("locks \"of\" x").connect_like(&config).unwrap();
    let guard = schema.mutex("n").blocking().acquire_within(PATIENCE).unwrap();
    are_the_same(&Locks::connect_like(&config).unwrap(), &by_url);
    guard.release_blocking().unwrap();
}

#[test]
fn pools_of_mysql_connect() {
    use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions, MySqlSslMode};
    let server = MariadbServer::start(&[]);
    server.query(&format!("CREATE USER '{USER}'@'%' IDENTIFIED BY '{SECRET}'"));
    server.query("CREATE DATABASE app");
    for database in ["app", "locks"] {
        server.query(&format!("GRANT ALL ON {database}.* TO '{USER}'@'%'"));
    }
    let by_url = Locks::connect(&format!("mysql:{}", server.url().trim_start_matches("mysql:"))).unwrap();
    let options = MySqlConnectOptions::new()
        .host("127.0.0.1")
        .port(server.port())
        .username(USER)
        .password(SECRET)
        .ssl_mode(MySqlSslMode::Preferred)
        .database("app");
    let pool = RUNTIME.block_on(MySqlPoolOptions::new().max_connections(1).connect_with(options)).unwrap();
    let taken = RUNTIME.block_on(pool.acquire()).unwrap();
    // The tables are in another database than those of the program.
    let locks = Connect::default().schema("locks").max_connections(2).connect_like(&pool).unwrap();
    are_the_same(&locks, &by_url);
    assert_eq!(pool.size(), 1);
    let _context = RUNTIME.enter();
    drop(taken);

    let opts = mysql_async::OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(server.port())
        .user(Some(USER))
        .pass(Some(SECRET));
    let opts = mysql_async::Opts::from(opts);
    are_the_same(&Connect::default().schema("locks").connect_like(&opts).unwrap(), &by_url);
    let error = Locks::connect_like(&opts).unwrap_err();
    assert!(error.is_misconfigured() && !error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn a_pool_of_sqlite_opens_the_same_file() {
    use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a b%20c?.db");
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let pool = RUNTIME.block_on(SqlitePoolOptions::new().max_connections(1).connect_with(options)).unwrap();
    let by_url = format!("sqlite://{}/a b%2520c%3F.db", dir.path().display());
    are_the_same(&Locks::connect_like(&pool).unwrap(), &Locks::connect(&by_url).unwrap());
    let prefixed = Connect::default().prefix("mine:").connect_like(&pool).unwrap();
    let guard = prefixed.mutex("n").blocking().acquire_within(PATIENCE).unwrap();
    assert_eq!(Locks::connect(&by_url).unwrap().list_blocking("").unwrap()[0].name.as_str(), "mine:n");
    guard.release_blocking().unwrap();
}

#[test]
fn a_client_of_redis_connects() {
    let server = RedisServer::start(&[]);
    server.command(&["ACL", "SETUSER", USER, "on", &format!(">{SECRET}"), "~*", "&*", "+@all"]);
    let escape = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let url = format!("redis://{}:{}@127.0.0.1:{}/3", escape(USER), escape(SECRET), server.port());
    let client = redis::Client::open(url).unwrap();
    let by_url = Locks::connect(&format!("redis://127.0.0.1:{}/3", server.port())).unwrap();
    are_the_same(&Locks::connect_like(&client).unwrap(), &by_url);
}

/// A value that cannot be, and an option that an engine does not have, are errors that name the option.
#[test]
fn wrong_options_are_named() {
    for (url, named) in [
        ("postgres://u:hunter2@h/d?max_connections=2", "max_connections is too small: 3"),
        ("postgres://u:hunter2@h/d?max_connections=x", "max_connections is wrong"),
        ("postgres://u:hunter2@h/d?max_connections=-1", "max_connections is wrong"),
        ("mysql://u:hunter2@h/d?max_connections=1", "max_connections is too small: 2"),
        ("mysql://u:hunter2@h/d?max_connections=", "max_connections is wrong"),
        ("postgres://u:hunter2@h/d?schema=", "schema of the tables is empty"),
        ("mysql://u:hunter2@h/d?schema=", "the database of the tables is empty"),
        ("postgres://u:hunter2@h/d?prefix=a%0Ab", "prefix of names"),
        ("mysql://u:hunter2@h/d?prefix=a%0Ab", "prefix of names"),
        ("sqlite:///a.db?prefix=a%0Ab", "prefix of names"),
        ("sqlite:///a.db?max_connections=3", "\"max_connections\" is unknown to sqlite"),
        ("redis://u:hunter2@h?schema=a", "\"schema\" is unknown to redis"),
        ("memory:?prefix=a", "\"prefix\" is unknown to memory"),
    ] {
        let error = Locks::connect(url).unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains(named), "{url}: {error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    let given = || Connect::default().max_connections(3).schema("s").prefix("p:");
    given().connect("postgres://h/d").unwrap();
    given().connect("mysql://h").unwrap();
    // The URL has precedence.
    let error = given().connect("postgres://h/d?max_connections=1").unwrap_err();
    assert!(error.to_string().contains("too small"), "{error}");
    for (connect, url, named) in [
        (Connect::default().max_connections(3), "redis://h", "Connect::max_connections"),
        (Connect::default().schema("s"), "sqlite:///a.db", "Connect::schema"),
        (Connect::default().prefix("p"), "memory:", "Connect::prefix"),
    ] {
        let error = connect.connect(url).unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains(named), "{url}: {error}");
    }
    Connect::default().prefix("p:").connect("redis://h").unwrap();
}
