//! Opens a session: connects, refuses servers and poolers on which its locks do not exclude, and sets its limits.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leasehold_core::{Env, Fault};
use tokio_postgres::{Client, Row, types::ToSql};

use super::{
    pinned::{ConnectionLife, Identity, PinnedSession, Prepared, drive, not_pinned, query, query_one},
    statements::{HEARTBEAT, IDENTITY, PIN, SETTINGS},
};
use crate::{
    SessionOptions,
    database::Failed,
    postgres::{
        config::Config,
        dial::dial,
        error::{Stage, classify, pooler_error},
        rows::column,
        server_start::ServerStart,
        tables::replica_error,
    },
    session::{
        guarantee::Path,
        options::{LONGEST_TTL, SERVER_KEEPS},
        server::SessionEvents,
    },
};

/// Settings with which the connection begins, before the others can be set. Only a connection to the server itself
/// passes on the first: without it, a pooler is in between.
const DIALED: &str = "-c leasehold.dialed=on -c statement_timeout=0 -c lock_timeout=0";
/// How many unanswered keepalives end the session.
const KEEPALIVES: u32 = 3;
/// The name of the setting that has the mark of the session.
const MARK: &str = "leasehold.session";

/// A connection of a client, before its session is known to be pinned.
struct Connected {
    client: Client,
    life: Arc<ConnectionLife>,
    /// The own address of a TCP connection.
    local_address: Option<String>,
}

/// Opens a session.
pub(super) async fn open(
    config: &Config,
    options: &SessionOptions,
    env: &Env,
    session: u64,
    events: Weak<dyn SessionEvents>,
) -> Result<PinnedSession, Failed> {
    let (dialed, may_be_pooled) = match connect(config, Some(DIALED)).await {
        Err(failed) if failed.message == pooler_error().message => (connect(config, None).await?, true),
        dialed => (dialed?, false),
    };
    let identity = query_one(&dialed.client, &IDENTITY, &[]);
    let (row, start) = tokio::join!(biased; identity, ServerStart::read(&dialed.client));
    let (server, start) =
        (ServerIdentity::read(&row.map_err(explain_pooler)?)?, start.map_err(explain_pooler)?);
    let is_pooled = may_be_pooled || !server.has_options;
    if is_pooled {
        // Before anything is set: a session that other programs get afterwards is to be as it was.
        let second = connect(config, None).await?;
        check_not_shared((&dialed.client, server.pid), &second.client).await?;
    }
    let mark = format!("{:032x}", env.lineage().get());
    let (names, values) = settings(&mark);
    let values: [&(dyn ToSql + Sync); 2] = [&names, &values];
    let set = query(&dialed.client, &SETTINGS, &values);
    let pin = query_one(&dialed.client, &PIN, &[]);
    let (set, pin, prepared) = tokio::join!(biased; set, pin, Prepared::prepare(&dialed.client));
    set.map_err(|error| explain_pooler(classify(&error, Stage::BeforeCommit)))?;
    let pin = pin.map_err(explain_pooler)?;
    let prepared = prepared.map_err(|error| explain_pooler(classify(&error, Stage::BeforeCommit)))?;
    let identity = Identity { pid: server.pid, mark, lineage: start.lineage };
    let found = [column(&pin, 2)?, column(&pin, 3)?, column(&pin, 4)?, column(&pin, 5)?];
    let has_timeouts = !server.is_tcp || are_wanted_timeouts(found);
    let Connected { client, life, local_address } = dialed;
    let path = path(local_address, server.client_address, is_pooled);
    let session_life = Arc::clone(&life);
    let opened = PinnedSession {
        client,
        prepared,
        identity,
        life,
        address: config.server.address.clone(),
        delay: options.delay,
        delay_left: options.delay.saturating_sub(start.age),
        max_keys: server.max_keys,
        has_timeouts,
        path,
    };
    opened.check_pin(&pin, 0)?;
    session_life.report_to(session, events);
    if session_life.has_ended() {
        return Err(Failed::new(Fault::Retry, "the server closed the connection"));
    }
    Ok(opened)
}

/// Connects, and starts the task that drives the connection.
async fn connect(config: &Config, options: Option<&str>) -> Result<Connected, Failed> {
    let dialed = dial(&config.server, options, config.dial_limit()).await?;
    let life = Arc::default();
    drive(dialed.connection, &life);
    let local_address = dialed.local_address.map(|address| address.to_string());
    Ok(Connected { client: dialed.client, life, local_address })
}

/// What the server says of itself and of the session.
struct ServerIdentity {
    pid: i32,
    /// Whether the options of the connection arrived.
    has_options: bool,
    is_tcp: bool,
    /// The address and the port of this client, as the server sees them.
    client_address: Option<String>,
    /// Half of the locks for which the server has room: new connections fail, too, when its lock table is full.
    max_keys: usize,
}

impl ServerIdentity {
    /// Reads the row of [`IDENTITY`]; refuses a replica, and a session that another client uses, too.
    fn read(row: &Row) -> Result<Self, Failed> {
        if column::<bool>(row, 0)? {
            return Err(replica_error());
        }
        if !column::<&str>(row, 2)?.is_empty() {
            return Err(not_pinned());
        }
        Ok(Self {
            pid: column(row, 1)?,
            has_options: column::<&str>(row, 3)? == "on",
            is_tcp: column(row, 4)?,
            client_address: column(row, 6)?,
            max_keys: usize::try_from(column::<i64>(row, 5)? / 2).unwrap_or(0),
        })
    }
}

/// The settings of the session: names and values. Nothing ends the session while its client lives, and the server ends
/// it [`SERVER_KEEPS`] after its client vanished.
fn settings(mark: &str) -> (Vec<&'static str>, Vec<String>) {
    let settings = [
        (MARK, mark.to_owned()),
        ("idle_session_timeout", "0".to_owned()),
        ("idle_in_transaction_session_timeout", "0".to_owned()),
        ("transaction_timeout", "0".to_owned()),
        ("statement_timeout", "0".to_owned()),
        ("lock_timeout", "0".to_owned()),
        ("default_transaction_isolation", "read committed".to_owned()),
        ("default_transaction_deferrable", "off".to_owned()),
        ("plan_cache_mode", "force_generic_plan".to_owned()),
        ("search_path", "pg_catalog, pg_temp".to_owned()),
        ("jit", "off".to_owned()),
    ];
    settings.into_iter().chain(timeouts()).unzip()
}

/// The settings that end the session of a vanished client, and no other session.
fn timeouts() -> [(&'static str, String); 4] {
    let idle = SERVER_KEEPS - LONGEST_TTL;
    let seconds = |time: Duration| time.as_secs().to_string();
    [
        ("tcp_user_timeout", SERVER_KEEPS.as_millis().to_string()),
        ("tcp_keepalives_idle", seconds(idle)),
        ("tcp_keepalives_interval", seconds(idle / KEEPALIVES)),
        ("tcp_keepalives_count", KEEPALIVES.to_string()),
    ]
}

/// Whether these settings, as the server has them, are the [`timeouts`].
fn are_wanted_timeouts(found: [Option<&str>; 4]) -> bool {
    timeouts().iter().zip(found).all(|((_, wanted), found)| found == Some(wanted))
}

/// What is known of the path to the server.
fn path(local: Option<String>, seen: Option<String>, is_pooled: bool) -> Path {
    match (local, seen) {
        (local, seen) if local != seen => Path::SeenAs(seen.unwrap_or_else(|| "a unix socket".to_owned())),
        _ if is_pooled => Path::SeenAs("a connection of a pooler".to_owned()),
        (None, _) => Path::Socket,
        _ => Path::Direct,
    }
}

/// Behind a pooler: fails unless the pooler gives each client a session of its own. While the first client is in a
/// transaction, a second client gets another session of the server. When the transaction has ended, a pooler that
/// shares sessions serves the second client by the session of the first one. `pid` is the process that serves the
/// first client. After an error the first client may be in a transaction.
pub(in crate::postgres) async fn check_not_shared(
    (client, pid): (&Client, i32),
    second: &Client,
) -> Result<(), Failed> {
    let run = async |text: &str| {
        let ran = client.batch_execute(text).await;
        ran.map_err(|error| explain_pooler(classify(&error, Stage::BeforeCommit)))
    };
    run("BEGIN").await?;
    let pid_of = async |client: &Client| -> Result<i32, Failed> {
        column(&query_one(client, &HEARTBEAT, &[]).await.map_err(explain_pooler)?, 0)
    };
    let second_pid = pid_of(second).await?;
    run("COMMIT").await?;
    for _ in 0..3 {
        if pid_of(second).await? != second_pid || second_pid == pid {
            return Err(not_pinned());
        }
    }
    Ok(())
}

/// The error of a pooler, with what this mode needs.
fn explain_pooler(failed: Failed) -> Failed {
    let is_pooler = failed.message == pooler_error().message || failed.message.contains("pool_mode");
    if is_pooler { not_pinned() } else { failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timeout_has_to_be_as_it_was_set() {
        let wanted = timeouts().map(|(_, value)| value);
        let found: [Option<&str>; 4] = std::array::from_fn(|index| Some(&*wanted[index]));
        assert!(are_wanted_timeouts(found));
        for index in 0..found.len() {
            for other in [None, Some("0"), Some("1")] {
                let mut found = found;
                found[index] = other;
                assert!(!are_wanted_timeouts(found), "{found:?}");
            }
        }
    }

    #[test]
    fn a_path_is_direct_only_if_both_sides_see_the_same_address_and_nothing_pools() {
        let address = |port: u16| Some(format!("127.0.0.1:{port}"));
        assert_eq!(path(address(7), address(7), false), Path::Direct);
        assert_eq!(path(None, None, false), Path::Socket);
        for (local, seen, is_pooled) in [
            (address(7), address(8), false),
            (address(7), None, false),
            (None, address(7), false),
            (None, None, true),
            (address(7), address(7), true),
        ] {
            assert!(matches!(path(local, seen, is_pooled), Path::SeenAs(_)));
        }
    }
}
