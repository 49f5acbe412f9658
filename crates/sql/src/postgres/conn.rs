//! One connection to a server.

use std::{future::poll_fn, sync::Weak, time::Duration};

use leasehold_core::{Fault, Lineage};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::OnceCell,
    time::Instant,
};
use tokio_postgres::{
    AsyncMessage, Client, Connection, Error, NoTls, Row, Statement,
    types::{ToSql, Type},
};

use super::{
    config::Config,
    error::{At, is_no_column, is_no_table, pooler, sort},
    hears::Hears,
    statements::{COUNT, Sql},
};
use crate::{database::Failed, door};

/// For how long it is not asked again behind a pooler which server answers there.
const RECOGNISED: Duration = Duration::from_secs(3);
/// As the server shows what [`LIMITS`] sets: where it is not so, somebody stands between who drops it.
const LOCK_LIMIT: &str = "200ms";
/// What [`LIMITS`] says, for one transaction.
const BEGIN_SHORT: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '200ms'; \
    SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL statement_timeout = '5s'";
/// How long connecting may take.
const DIAL_LIMIT: Duration = Duration::from_secs(3);
/// The version of the tables.
const VERSION: i32 = 1;
const SCHEMA: &str = include_str!("sql/schema.sql");
/// Limits of the session: nothing of ours is under way on the server for longer. And what is prepared is planned once, by the keys: not
/// anew each time, and not as for the small tables that it met first.
const LIMITS: &str = "-c statement_timeout=5s -c lock_timeout=200ms -c idle_in_transaction_session_timeout=5s \
    -c default_transaction_isolation=read\\ committed -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off";

/// One connection. Dropping it closes it, and the server undoes what was not committed.
pub(crate) struct Conn {
    client: Client,
    prepared: [OnceCell<Statement>; COUNT],
    /// Whether statements can be kept: behind a pooler the next one may go to another session.
    keeps: bool,
    /// Which tables it leads to, and since when that is known.
    pub(crate) lineage: Lineage,
    known_at: Instant,
}

impl Conn {
    /// Connects, and makes the tables if they are not there.
    pub(crate) async fn open(config: &Config) -> Result<Self, Failed> {
        let dialing = async {
            let mut conn = Self::dial(config, config.listen.is_none(), None).await?;
            conn.recognise().await?;
            Ok(conn)
        };
        door::within(DIAL_LIMIT, dialing).await.unwrap_or_else(|| Err(late(config)))
    }

    /// Connects, and hears what is told on this channel.
    pub(crate) async fn listen(
        config: &Config,
        channel: &str,
        hears: Weak<dyn Hears>,
    ) -> Result<Self, Failed> {
        let dialing = async {
            let conn = Self::dial(config, true, Some(hears)).await?;
            let listen = format!("LISTEN {channel}");
            conn.client.batch_execute(&listen).await.map_err(|error| config.say(sort(&error, At::Before)))?;
            Ok(conn)
        };
        door::within(DIAL_LIMIT, dialing).await.unwrap_or_else(|| Err(late(config)))
    }

    async fn dial(config: &Config, direct: bool, hears: Option<Weak<dyn Hears>>) -> Result<Self, Failed> {
        let place =
            if hears.is_some() { config.listen.as_ref().unwrap_or(&config.server) } else { &config.server };
        let mut server = place.clone();
        if direct {
            server.options(LIMITS);
        }
        let failed = |error: Error| config.say(sort(&error, At::Dial));
        #[cfg(feature = "tls")]
        if let Some(tls) = &config.tls {
            server.ssl_mode(tokio_postgres::config::SslMode::Require);
            let (client, connection) =
                server.connect(super::tls::Encrypt(tls.clone())).await.map_err(failed)?;
            door::spawn(drive(connection, hears));
            return Ok(Self::of(client, direct));
        }
        let (client, connection) = server.connect(NoTls).await.map_err(failed)?;
        door::spawn(drive(connection, hears));
        Ok(Self::of(client, direct))
    }

    fn of(client: Client, keeps: bool) -> Self {
        let (prepared, lineage, known_at) = (Default::default(), Lineage::new(0), door::now());
        Self { client, prepared, keeps, lineage, known_at }
    }

    /// Whether another server may answer on it by now than when it was recognised.
    pub(crate) fn may_differ(&self) -> bool {
        !self.keeps && door::now().duration_since(self.known_at) > RECOGNISED
    }

    /// Finds out which tables it leads to; makes them if they are not there.
    pub(crate) async fn recognise(&mut self) -> Result<(), Failed> {
        self.lineage = self.known().await?;
        self.known_at = door::now();
        Ok(())
    }

    /// Whether what was set for the session lasts.
    pub(crate) const fn keeps(&self) -> bool {
        self.keeps
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Prepares these statements, if that was not done. Before a transaction whose statements are sent in one go: one that had to be
    /// prepared first would leave after those behind it, after its `COMMIT` even.
    pub(crate) async fn prepare(&self, statements: &[&Sql]) -> Result<(), Error> {
        if self.keeps {
            let all = statements.iter().map(|sql| self.prepared(sql));
            futures_util::future::try_join_all(all).await?;
        }
        Ok(())
    }

    async fn prepared(&self, sql: &Sql) -> Result<&Statement, Error> {
        let prepare = || self.client.prepare_typed(sql.text, sql.types);
        self.prepared[sql.at].get_or_try_init(prepare).await
    }

    /// Rows of one statement.
    pub(crate) async fn query(&self, sql: &Sql, given: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        if !self.keeps {
            let typed: Vec<(&(dyn ToSql + Sync), Type)> =
                given.iter().copied().zip(sql.types.iter().cloned()).collect();
            return self.client.query_typed(sql.text, &typed).await;
        }
        let statement = self.prepared(sql).await?;
        self.client.query(statement, given).await
    }

    /// One statement by itself. Nothing that was set for a session limits it behind a pooler: there a transaction does.
    pub(crate) async fn alone(&self, sql: &Sql, given: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        if self.keeps {
            return self.query(sql, given).await;
        }
        let (begun, rows, ended) =
            tokio::join!(biased; self.run(BEGIN_SHORT), self.query(sql, given), self.run("COMMIT"));
        begun?;
        let rows = rows?;
        ended.map(|()| rows)
    }

    /// One row of settings.
    pub(crate) async fn settings(&self, text: &str) -> Result<Row, Error> {
        self.client.query_typed_one(text, &[]).await
    }

    /// Text without parameters, as it stands.
    pub(crate) async fn run(&self, text: &str) -> Result<(), Error> {
        self.client.batch_execute(text).await
    }

    async fn known(&self) -> Result<Lineage, Failed> {
        let found = match self.meta().await {
            Err(error) if is_no_table(&error) => {
                self.make().await?;
                self.meta().await
            }
            found => found,
        };
        let foreign =
            || Failed::new(Fault::Misconfigured, "its table leasehold_meta was not made by leasehold");
        let row = match found {
            Err(error) if is_no_column(&error) => None,
            found => found.map_err(|error| sort(&error, At::Before))?,
        };
        let row = row.ok_or_else(foreign)?;
        let (Ok(version), Ok(lineage)) = (row.try_get::<_, i32>(0), row.try_get::<_, &str>(1)) else {
            return Err(foreign());
        };
        let (system, timeline, follows): (&str, &str, bool) = (row.get(2), row.get(3), row.get(4));
        if self.keeps && row.get::<_, &str>(5) != LOCK_LIMIT {
            return Err(pooler());
        }
        if version != VERSION {
            return Err(Failed::new(
                Fault::Misconfigured,
                format!(
                    "its tables have version {version} and this leasehold knows version {VERSION}: use the same version of \
                     leasehold everywhere"
                ),
            ));
        }
        if follows {
            return Err(Failed::new(Fault::Retry, "it is a replica, which is only read: name the primary"));
        }
        let tables = u128::from_str_radix(lineage, 16).map_err(|_| foreign())?;
        // Another server with a copy of the tables, or this one after another was promoted and came back, counts anew.
        let server = u128::from(system.parse::<u64>().unwrap_or(0)) << 32
            | u128::from(u32::from_str_radix(timeline.get(..8).unwrap_or("0"), 16).unwrap_or(0));
        Ok(Lineage::new(tables ^ server))
    }

    async fn meta(&self) -> Result<Option<Row>, Error> {
        let rows = self.client.query_typed(
            "SELECT version, lineage, (SELECT system_identifier::text FROM pg_control_system()), \
             CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_lsn()) END, pg_is_in_recovery(), \
             current_setting('lock_timeout') \
             FROM leasehold_meta",
            &[],
        );
        Ok(rows.await?.into_iter().next())
    }

    /// Makes the tables. Several clients may do so at once.
    async fn make(&self) -> Result<(), Failed> {
        let text = format!("BEGIN; SELECT pg_advisory_xact_lock(7810210); {SCHEMA} COMMIT;");
        self.client.batch_execute(&text).await.map_err(|error| {
            let failed = sort(&error, At::Before);
            let fault = if failed.fault == Fault::Denied { Fault::Misconfigured } else { failed.fault };
            Failed::new(
                fault,
                format!(
                    "its tables are not there, and making them failed: {failed}; let somebody who may run what `leasehold schema` prints"
                ),
            )
        })
    }
}

/// Reads and writes until the connection ends.
async fn drive<S, T>(mut connection: Connection<S, T>, hears: Option<Weak<dyn Hears>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let (AsyncMessage::Notification(said), Some(hears)) = (message, &hears) {
            let Some(hears) = hears.upgrade() else { return };
            hears.heard(said.payload());
        }
    }
    if let Some(hears) = hears.and_then(|hears| hears.upgrade()) {
        hears.deaf();
    }
}

fn late(config: &Config) -> Failed {
    config.say(Failed::new(Fault::Retry, format!("no answer within {DIAL_LIMIT:?}")))
}
