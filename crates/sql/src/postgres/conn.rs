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
    dial::{Dialed, DriverConnection, dial},
    error::{Stage, classify},
    notification_handler::NotificationHandler,
    server::Server,
    statements::{STATEMENT_COUNT, Sql},
    tables::Tables,
};
use crate::{
    connection_slots::ConnectionSlots,
    database::{Failed, MissingTables},
    runtime,
};

/// How long the tables behind a pooler count as known; after that time they are looked up again, because the pooler may
/// have switched to another server.
const TABLES_KNOWN_FOR: Duration = Duration::from_secs(3);
/// How the server shows the lock timeout that [`SESSION_OPTIONS`] sets. If the server shows another value, a pooler has
/// dropped these settings.
pub(crate) const SHOWN_LOCK_TIMEOUT: &str = "200ms";
/// Begins a transaction with the settings of [`SESSION_OPTIONS`], for a session behind a pooler.
const BEGIN_WITH_LIMITS: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '200ms'; \
    SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL statement_timeout = '5s'; \
    SET LOCAL search_path = pg_catalog, pg_temp";
/// Settings of the session. The timeouts bound how long one of our statements runs on the server. The planner settings
/// give a prepared statement one plan, which uses the keys of the tables. So the statement is not planned again at each
/// execution, and its plan does not depend on the sizes of the tables.
const SESSION_OPTIONS: &str = "-c statement_timeout=5s -c lock_timeout=200ms -c idle_in_transaction_session_timeout=5s \
    -c default_transaction_isolation=read\\ committed -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off";

/// One connection. Dropping it closes it, and the server rolls back what was not committed.
pub(crate) struct Conn {
    client: Client,
    /// The prepared statements, by [`Sql::index`].
    prepared: [OnceCell<Statement>; STATEMENT_COUNT],
    /// Whether the session keeps its state: behind a pooler the next statement may run in another session.
    keeps_session: bool,
    /// The tables to which the connection leads; `None` where there are none, or on a connection that only listens.
    tables: Option<Tables>,
    /// When the tables were looked up.
    tables_found_at: Instant,
    subscription: Arc<Subscription>,
}

/// The state of a subscription, shared with its listener.
#[derive(Default)]
pub(crate) struct Subscription {
    /// Whether the connection has a subscription.
    listens: AtomicBool,
    /// Whether the connection ended.
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
        missing_tables: MissingTables,
        handler: Weak<dyn NotificationHandler>,
    ) -> Result<Self, Failed> {
        let connecting = async {
            let mut conn = Self::dial(config, &config.server, config.listen.is_none(), handler).await?;
            conn.find_tables(config, missing_tables).await?;
            Ok(conn)
        };
        runtime::within(config.dial_limit(), connecting).await.unwrap_or_else(|| Err(timed_out(config)))
    }

    /// Connects to the `server` itself, past a pooler, only for notifications.
    pub(crate) async fn open_direct(
        config: &Config,
        server: &Server,
        handler: Weak<dyn NotificationHandler>,
    ) -> Result<Self, Failed> {
        let connecting = Self::dial(config, server, true, handler);
        runtime::within(config.dial_limit(), connecting).await.unwrap_or_else(|| Err(timed_out(config)))
    }

    /// Subscribes this connection to the notifications of the channel.
    pub(crate) async fn listen(&self, config: &Config, channel: &str) -> Result<Arc<Subscription>, Failed> {
        let listen = format!("LISTEN {channel}");
        self.run(&listen)
            .await
            .map_err(|error| config.with_address(classify(&error, Stage::BeforeCommit)))?;
        self.subscription.listens.store(true, Ordering::Release);
        Ok(Arc::clone(&self.subscription))
    }

    /// Ends the subscription.
    pub(crate) async fn unlisten(&self) -> Result<(), Failed> {
        self.subscription.listens.store(false, Ordering::Release);
        self.run("UNLISTEN *").await.map_err(|error| classify(&error, Stage::BeforeCommit))
    }

    /// Whether this connection receives notifications at present.
    pub(crate) fn listens(&self) -> bool {
        self.subscription.listens()
    }

    /// Suppresses the report of the end of this connection to the listener.
    pub(crate) fn suppress_report(&self) {
        self.subscription.listens.store(false, Ordering::Release);
    }

    /// Connects, and starts the task that drives the connection. `direct` says that no pooler is in between: then the
    /// session keeps its state, and gets [`SESSION_OPTIONS`].
    async fn dial(
        config: &Config,
        server: &Server,
        direct: bool,
        handler: Weak<dyn NotificationHandler>,
    ) -> Result<Self, Failed> {
        let dialed = dial(server, direct.then_some(SESSION_OPTIONS), config.dial_limit()).await;
        let Dialed { client, connection, .. } = dialed.map_err(|failed| config.with_address(failed))?;
        let end_report = EndReport { handler, subscription: Arc::default() };
        let subscription = Arc::clone(&end_report.subscription);
        runtime::spawn(drive(connection, end_report));
        Ok(Self::of(client, direct, subscription))
    }

    fn of(client: Client, keeps_session: bool, subscription: Arc<Subscription>) -> Self {
        Self {
            client,
            prepared: Default::default(),
            keeps_session,
            tables: None,
            tables_found_at: runtime::now(),
            subscription,
        }
    }

    /// Whether a pooler may lead this connection to another server than the one at which its tables were looked up.
    pub(crate) fn may_lead_elsewhere(&self) -> bool {
        !self.keeps_session && runtime::now().duration_since(self.tables_found_at) > TABLES_KNOWN_FOR
    }

    /// Looks up the tables that the connection leads to.
    pub(crate) async fn find_tables(
        &mut self,
        config: &Config,
        missing_tables: MissingTables,
    ) -> Result<(), Failed> {
        self.tables = Tables::find(self, config, missing_tables).await?;
        self.tables_found_at = runtime::now();
        Ok(())
    }

    /// Whether the table of memos exists; creates it if `missing_tables` says so.
    pub(crate) async fn find_memos(&self, missing_tables: MissingTables) -> Result<bool, Failed> {
        match &self.tables {
            Some(tables) => tables.find_memos(self, missing_tables).await,
            None => Ok(false),
        }
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

    /// The connection slots of the server at the last check.
    pub(crate) fn connection_slots(&self) -> Option<ConnectionSlots> {
        self.tables.as_ref()?.slots
    }

    /// The text of a statement, with the qualified names of the tables.
    fn text(&self, sql: &Sql) -> &str {
        self.tables.as_ref().map_or("", |tables| &tables.texts[sql.index])
    }

    /// Whether the session keeps its settings.
    pub(crate) const fn keeps_session(&self) -> bool {
        self.keeps_session
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Prepares each of these statements that is not prepared yet. The caller must call this before a transaction whose
    /// statements are sent together: a statement that has to be prepared first would be sent after the later
    /// statements, even after their `COMMIT`. Does nothing behind a pooler, where no statement stays prepared.
    pub(crate) async fn prepare(&self, statements: &[&Sql]) -> Result<(), Error> {
        if self.keeps_session {
            let all_prepared = statements.iter().map(|sql| self.prepared(sql));
            futures_util::future::try_join_all(all_prepared).await?;
        }
        Ok(())
    }

    /// The prepared statement; prepares it at the first use.
    async fn prepared(&self, sql: &Sql) -> Result<&Statement, Error> {
        let prepare = || self.client.prepare_typed(self.text(sql), sql.types);
        self.prepared[sql.index].get_or_try_init(prepare).await
    }

    /// Executes one statement and returns its rows.
    pub(crate) async fn query(
        &self,
        sql: &Sql,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        if !self.keeps_session {
            let typed: Vec<(&(dyn ToSql + Sync), Type)> =
                parameters.iter().copied().zip(sql.types.iter().cloned()).collect();
            return self.client.query_typed(self.text(sql), &typed).await;
        }
        let statement = self.prepared(sql).await?;
        self.client.query(statement, parameters).await
    }

    /// Executes one statement that is not part of a larger transaction. Behind a pooler the settings of the session do
    /// not apply, so there a transaction of its own sets the limits.
    pub(crate) async fn query_standalone(
        &self,
        sql: &Sql,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        if self.keeps_session {
            return self.query(sql, parameters).await;
        }
        let (begin, query, commit) =
            (self.run(BEGIN_WITH_LIMITS), self.query(sql, parameters), self.run("COMMIT"));
        let (begun, rows, committed) = tokio::join!(biased; begin, query, commit);
        begun?;
        let rows = rows?;
        committed.map(|()| rows)
    }

    /// Reads one row of settings.
    pub(crate) async fn settings(&self, text: &str) -> Result<Row, Error> {
        // Behind a pooler a transaction sets the limits. Elsewhere no transaction is needed.
        let begin = if self.keeps_session { "SELECT 1" } else { BEGIN_WITH_LIMITS };
        let end = if self.keeps_session { "SELECT 1" } else { "COMMIT" };
        let (begun, row, committed) =
            tokio::join!(biased; self.run(begin), self.client.query_typed_one(text, &[]), self.run(end));
        begun?;
        let row = row?;
        committed.map(|()| row)
    }

    /// Executes text with parameters of these types, without keeping it prepared.
    pub(crate) async fn query_unprepared(
        &self,
        text: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        self.client.query_typed(text, parameters).await
    }

    /// Executes text without parameters.
    pub(crate) async fn run(&self, text: &str) -> Result<(), Error> {
        self.client.batch_execute(text).await
    }
}

/// Drives the connection until it ends: reads, writes, and passes notifications on.
async fn drive(mut driver_connection: DriverConnection, end_report: EndReport) {
    while let Some(Ok(message)) = poll_fn(|context| driver_connection.poll_message(context)).await {
        if let AsyncMessage::Notification(notification) = message {
            let Some(handler) = end_report.handler.upgrade() else { return };
            handler.handle_notification(notification.payload());
        }
    }
}

/// Reports the end of the connection to the listener when dropped, however the connection ends.
struct EndReport {
    handler: Weak<dyn NotificationHandler>,
    subscription: Arc<Subscription>,
}

impl Drop for EndReport {
    fn drop(&mut self) {
        let listened = self.subscription.listens();
        self.subscription.ended.store(true, Ordering::Release);
        if let Some(handler) = self.handler.upgrade().filter(|_| listened) {
            handler.handle_end();
        }
    }
}

/// The error for a server that did not answer in time.
fn timed_out(config: &Config) -> Failed {
    config.with_address(Failed::new(Fault::Retry, format!("no answer within {:?}", config.dial_limit())))
}
