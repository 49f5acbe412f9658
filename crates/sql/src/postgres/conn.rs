//! One connection to a server: its session settings, its prepared statements, and its notifications.

use std::{
    future::poll_fn,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Fault, Lineage};
use tokio::{sync::OnceCell, time::Instant};
use tokio_postgres::{
    AsyncMessage, Client, Error, Row, Statement,
    types::{ToSql, Type},
};

use super::{
    config::Config,
    dial::{Link, dial},
    error::{At, sort},
    notification_handler::NotificationHandler,
    server::Server,
    statements::{COUNT, Sql},
    tables::Tables,
};
use crate::{
    database::{Absent, Failed},
    runtime,
    slots::Slots,
};

/// How long the server behind a pooler counts as known; after that it is checked again.
const RECOGNISED: Duration = Duration::from_secs(3);
/// How the server shows the lock timeout set by [`LIMITS`]: another value means that a pooler has dropped the
/// settings.
pub(crate) const LOCK_LIMIT: &str = "200ms";
/// The settings of [`LIMITS`], for one transaction.
const BEGIN_SHORT: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '200ms'; \
    SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL statement_timeout = '5s'; \
    SET LOCAL search_path = pg_catalog, pg_temp";
/// Settings of the session. The timeouts bound how long a statement of ours runs on the server. A prepared statement
/// is planned once, by the keys: not again at each execution, and not for the small tables that it met first.
const LIMITS: &str = "-c statement_timeout=5s -c lock_timeout=200ms -c idle_in_transaction_session_timeout=5s \
    -c default_transaction_isolation=read\\ committed -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off";

/// One connection. Dropping it closes it, and the server rolls back what was not committed.
pub(crate) struct Conn {
    client: Client,
    prepared: [OnceCell<Statement>; COUNT],
    /// Whether the session keeps its state: behind a pooler the next statement may run in another session.
    keeps_session: bool,
    /// The tables to which the connection leads, and since when they are known. `None` where there are none, or on a
    /// connection that only listens.
    tables: Option<Tables>,
    known_at: Instant,
    subscription: Arc<Subscription>,
}

/// The state of a subscription, shared with its listener.
#[derive(Default)]
pub(crate) struct Subscription {
    listens: AtomicBool,
    ended: AtomicBool,
}

impl Subscription {
    /// Whether notifications arrive at present.
    pub(crate) fn listens(&self) -> bool {
        self.listens.load(Ordering::Acquire) && !self.ended.load(Ordering::Acquire)
    }
}

impl Conn {
    /// Connects, and finds or creates the tables.
    pub(crate) async fn open(
        config: &Config,
        absent: Absent,
        handler: Weak<dyn NotificationHandler>,
    ) -> Result<Self, Failed> {
        let dialing = async {
            let mut conn = Self::dial(config, &config.server, config.listen.is_none(), handler).await?;
            conn.recognise(config, absent).await?;
            Ok(conn)
        };
        runtime::within(config.dial_limit(), dialing).await.unwrap_or_else(|| Err(late(config)))
    }

    /// Connects to the `server` itself, past a pooler, only for notifications.
    pub(crate) async fn open_direct(
        config: &Config,
        server: &Server,
        handler: Weak<dyn NotificationHandler>,
    ) -> Result<Self, Failed> {
        let dialing = Self::dial(config, server, true, handler);
        runtime::within(config.dial_limit(), dialing).await.unwrap_or_else(|| Err(late(config)))
    }

    /// Subscribes to the notifications of this channel.
    pub(crate) async fn listen(&self, config: &Config, channel: &str) -> Result<Arc<Subscription>, Failed> {
        let listen = format!("LISTEN {channel}");
        self.run(&listen).await.map_err(|error| config.with_address(sort(&error, At::Before)))?;
        self.subscription.listens.store(true, Ordering::Release);
        Ok(Arc::clone(&self.subscription))
    }

    /// Ends the subscription.
    pub(crate) async fn unlisten(&self) -> Result<(), Failed> {
        self.subscription.listens.store(false, Ordering::Release);
        self.run("UNLISTEN *").await.map_err(|error| sort(&error, At::Before))
    }

    pub(crate) fn listens(&self) -> bool {
        self.subscription.listens()
    }

    /// The end of this connection will not be reported to the listener.
    pub(crate) fn suppress_report(&self) {
        self.subscription.listens.store(false, Ordering::Release);
    }

    async fn dial(
        config: &Config,
        server: &Server,
        direct: bool,
        handler: Weak<dyn NotificationHandler>,
    ) -> Result<Self, Failed> {
        let dialed = dial(server, direct.then_some(LIMITS), config.dial_limit()).await;
        let (client, link) = dialed.map_err(|failed| config.with_address(failed))?;
        let end_report = EndReport { handler, subscription: Arc::default() };
        let subscription = Arc::clone(&end_report.subscription);
        runtime::spawn(drive(link, end_report));
        Ok(Self::of(client, direct, subscription))
    }

    fn of(client: Client, keeps_session: bool, subscription: Arc<Subscription>) -> Self {
        Self {
            client,
            prepared: Default::default(),
            keeps_session,
            tables: None,
            known_at: runtime::now(),
            subscription,
        }
    }

    /// Whether another server may answer on this connection by now than at the last check.
    pub(crate) fn may_differ(&self) -> bool {
        !self.keeps_session && runtime::now().duration_since(self.known_at) > RECOGNISED
    }

    /// Finds out which tables the connection leads to.
    pub(crate) async fn recognise(&mut self, config: &Config, absent: Absent) -> Result<(), Failed> {
        self.tables = Tables::find(self, config, absent).await?;
        self.known_at = runtime::now();
        Ok(())
    }

    pub(crate) const fn has_tables(&self) -> bool {
        self.tables.is_some()
    }

    /// The lineage of the tables that the connection leads to.
    pub(crate) fn lineage(&self) -> Lineage {
        self.tables.as_ref().and_then(|tables| tables.lineage).unwrap_or(Lineage::new(0))
    }

    /// Whether the tables are those of a replica.
    pub(crate) fn is_replica(&self) -> bool {
        self.tables.as_ref().is_some_and(|tables| tables.lineage.is_none())
    }

    /// Whether names can be locked in the tables.
    pub(crate) fn can_lock(&self) -> bool {
        self.has_tables() && !self.is_replica()
    }

    /// How many connections the server had left at the last check.
    pub(crate) fn slots(&self) -> Option<Slots> {
        self.tables.as_ref()?.slots
    }

    fn text(&self, sql: &Sql) -> &str {
        self.tables.as_ref().map_or("", |tables| &tables.texts[sql.at])
    }

    /// Whether the session keeps its settings.
    pub(crate) const fn keeps_session(&self) -> bool {
        self.keeps_session
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Prepares those of these statements that are not prepared yet. Required before a transaction whose statements
    /// are sent in one go: a statement that has to be prepared first would be sent after the later ones, even after
    /// their `COMMIT`.
    pub(crate) async fn prepare(&self, statements: &[&Sql]) -> Result<(), Error> {
        if self.keeps_session {
            let all = statements.iter().map(|sql| self.prepared(sql));
            futures_util::future::try_join_all(all).await?;
        }
        Ok(())
    }

    async fn prepared(&self, sql: &Sql) -> Result<&Statement, Error> {
        let prepare = || self.client.prepare_typed(self.text(sql), sql.types);
        self.prepared[sql.at].get_or_try_init(prepare).await
    }

    /// Executes one statement and returns its rows.
    pub(crate) async fn query(&self, sql: &Sql, given: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        if !self.keeps_session {
            let typed: Vec<(&(dyn ToSql + Sync), Type)> =
                given.iter().copied().zip(sql.types.iter().cloned()).collect();
            return self.client.query_typed(self.text(sql), &typed).await;
        }
        let statement = self.prepared(sql).await?;
        self.client.query(statement, given).await
    }

    /// Executes one statement outside of a transaction. Behind a pooler the settings of the session do not apply, so
    /// there a transaction sets the limits.
    pub(crate) async fn alone(&self, sql: &Sql, given: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        if self.keeps_session {
            return self.query(sql, given).await;
        }
        let (begun, rows, ended) =
            tokio::join!(biased; self.run(BEGIN_SHORT), self.query(sql, given), self.run("COMMIT"));
        begun?;
        let rows = rows?;
        ended.map(|()| rows)
    }

    /// Reads one row of settings.
    pub(crate) async fn settings(&self, text: &str) -> Result<Row, Error> {
        let begin = if self.keeps_session { "SELECT 1" } else { BEGIN_SHORT };
        let end = if self.keeps_session { "SELECT 1" } else { "COMMIT" };
        let (begun, row, ended) =
            tokio::join!(biased; self.run(begin), self.client.query_typed_one(text, &[]), self.run(end));
        begun?;
        let row = row?;
        ended.map(|()| row)
    }

    /// Executes text with parameters of these types, without keeping it prepared.
    pub(crate) async fn ask(
        &self,
        text: &str,
        given: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        self.client.query_typed(text, given).await
    }

    /// Executes text without parameters.
    pub(crate) async fn run(&self, text: &str) -> Result<(), Error> {
        self.client.batch_execute(text).await
    }
}

/// Reads and writes until the connection ends.
async fn drive(mut connection: Link, end_report: EndReport) {
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(notification) = message {
            let Some(handler) = end_report.handler.upgrade() else { return };
            handler.notified(notification.payload());
        }
    }
}

/// Reports the end of the connection to the listener, however it ends.
struct EndReport {
    handler: Weak<dyn NotificationHandler>,
    subscription: Arc<Subscription>,
}

impl Drop for EndReport {
    fn drop(&mut self) {
        let listened = self.subscription.listens();
        self.subscription.ended.store(true, Ordering::Release);
        if let Some(handler) = self.handler.upgrade().filter(|_| listened) {
            handler.stopped();
        }
    }
}

fn late(config: &Config) -> Failed {
    config.with_address(Failed::new(Fault::Retry, format!("no answer within {:?}", config.dial_limit())))
}
