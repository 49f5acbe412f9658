//! Poolers: only one that gives each client a session of its own can be used.

use leasehold_core::{Env, Inspect, Level, Locks};
use leasehold_sql::postgres::{Config, SessionOptions, session_engine};
use leasehold_testkit::server::PgBouncer;
use tokio_postgres::{Client, Connection, NoTls, SimpleQueryMessage, Socket, tls::NoTlsStream};

use super::rig::{SessionRig, at_once, engine_of};
use crate::rig::{PATIENCE, acquire};

fn locks_behind(pooler: &PgBouncer) -> Locks {
    Locks::builder(engine_of("postgres", pooler.port(), at_once())).build()
}

async fn connect(
    pooler: &PgBouncer,
) -> Result<(Client, Connection<Socket, NoTlsStream>), tokio_postgres::Error> {
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(pooler.port()).user("postgres").dbname("postgres").connect(NoTls).await
}

/// F55: an unlock in another session than the lock would free nothing, and two clients in one session would both hold.
#[test]
fn poolers_that_share_sessions_are_refused() {
    let rig = SessionRig::new();
    for mode in ["transaction", "statement"] {
        let pooler = PgBouncer::in_mode(rig.server.port(), mode);
        for _ in 0..3 {
            let error = locks_behind(&pooler).mutex("a").blocking().acquire_within(PATIENCE).unwrap_err();
            let says_why = error.is_misconfigured() && error.to_string().contains("pool_mode = session");
            assert!(says_why, "{mode}: {error}");
        }
        // Other programs get the sessions that the pooler shared.
        for _ in 0..3 {
            let (client, connection) = rig.run(connect(&pooler)).unwrap();
            let shown = rig.run(async {
                tokio::select! {
                    shown = client.simple_query("SHOW search_path") => shown.unwrap(),
                    ended = connection => panic!("the pooler closed the connection: {ended:?}"),
                }
            });
            let value = shown.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            assert_eq!(value, Some("\"$user\", public"), "{mode}");
        }
    }
    assert_eq!(rig.advisory_locks(), [""; 0]);
}

#[test]
fn a_pooler_that_gives_each_client_a_session_is_used() {
    let rig = SessionRig::new();
    let pooler = PgBouncer::in_mode(rig.server.port(), "session");
    let (first, direct) = (locks_behind(&pooler), rig.locks());
    let guard = acquire(&first, "a");
    assert!(direct.mutex("a").blocking().try_acquire().is_err_and(|error| error.is_taken()));
    rig.run(guard.confirm()).unwrap();
    guard.release_blocking().unwrap();
    acquire(&direct, "a").release_blocking().unwrap();
}

/// Two unix sockets have no addresses: a pooler between them is told by the options that it does not pass on. Of a
/// socket alone it is not known whether a proxy is behind it, and the guarantee says so.
#[test]
fn the_guarantee_tells_a_pooler_between_two_sockets() {
    let rig = SessionRig::new();
    let pooler = PgBouncer::by_socket(&rig.server);
    let guarantee = |directory: &std::path::Path, port: u16| {
        let parameters = [("host", directory.display().to_string()), ("port", port.to_string())];
        let config = Config::with_parameters("//postgres@/postgres", &parameters).unwrap();
        let engine = session_engine(config, SessionOptions::default(), &Env::system());
        rig.run(engine.guarantee()).unwrap()
    };
    let pooled = guarantee(pooler.socket_directory(), pooler.port());
    assert_eq!(pooled.level, Level::BestEffort, "{pooled}");
    assert!(pooled.to_string().contains("a connection of a pooler"), "{pooled}");
    let direct = guarantee(&rig.server.socket_directory(), rig.server.port());
    assert_eq!(direct.level, Level::LeaseBounded, "{direct}");
    assert!(direct.to_string().contains("a unix socket does not show"), "{direct}");
}
