//! Connections to a table of another program in PostgreSQL.
//!
//! Every request is a transaction that sets its own limits, so that it works in the same way behind a pooler. No
//! statement stays prepared.

use std::future::poll_fn;

use futures_util::future::join_all;
use leasehold_core::{BoxFuture, Contact, Diagnostic, Env, Fault, Guarantee, Lineage};
use tokio_postgres::{
    Client as Driver, Error, Row,
    types::{ToSql, Type},
};

use super::{
    ForeignTableEngine,
    client::Client,
    columns::{self, Column},
    ddl::{create_table, missing_table},
    format::{Format, quoted},
    guarantee::add_layout,
    options::{ForeignTable, Layout},
    store::{Access, Connection, Connector, Dialect, Rows, Statement, Step},
};
use crate::{
    database::{Failed, misconfigured, replica_guarantee},
    diagnose::table_of_program,
    postgres::{
        Config,
        diagnose::{Subject, diagnose, ids},
        dial,
        error::{Stage, classify},
        guarantee::{SETTINGS, guarantee},
        tables::replica_error,
    },
    runtime,
};

/// The settings of a transaction. The timeouts bound how long a request runs on the server, and how long a client that
/// vanishes in the middle keeps a row locked.
const LIMITS: &str = "SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '5s'; \
    SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL search_path = pg_catalog, pg_temp";
/// ShedLock's times are UTC, also in a column with a time zone.
const IN_UTC: &str = "; SET LOCAL TimeZone = 'UTC'";
/// Finds the table by the `search_path` of the session, which may be any; so everything here is qualified. Out: schema,
/// kind, persistence, oid.
const FIND: &str = "SELECT n.nspname::pg_catalog.text, c.relkind::pg_catalog.text, \
    c.relpersistence::pg_catalog.text, c.oid::pg_catalog.text \
    FROM pg_catalog.pg_class AS c, pg_catalog.pg_namespace AS n \
    WHERE n.oid OPERATOR(pg_catalog.=) c.relnamespace \
    AND c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)::pg_catalog.oid";
/// Reads the columns of a table: name, type, whether an insert must give it a value, room, whether it is unique, digits
/// of a fraction of a second (none: all).
const COLUMNS: &str = "SELECT a.attname::text, format_type(a.atttypid, NULL), \
    (a.attnotnull AND NOT a.atthasdef AND a.attidentity = '')::text, \
    CASE WHEN a.atttypid IN ('varchar'::regtype, 'bpchar'::regtype) AND a.atttypmod > 4 THEN (a.atttypmod - 4)::text END, \
    EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid \
        AND i.indimmediate AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)::text, \
    CASE WHEN a.atttypid IN ('timestamp'::regtype, 'timestamptz'::regtype) AND a.atttypmod >= 0 THEN a.atttypmod::text END \
    FROM pg_attribute AS a WHERE a.attrelid = $1::text::oid AND a.attnum > 0 AND NOT a.attisdropped";
/// Identifies the server: system identifier, whether it is a replica, newest segment of the log, encoding of its texts.
const SERVER: &str = "SELECT (SELECT system_identifier::text FROM pg_control_system()), pg_is_in_recovery()::text, \
    CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_lsn()) END, \
    current_setting('server_encoding')";
/// The number of digits of the timeline at the start of the name of a log segment.
const TIMELINE_DIGITS: usize = 8;

/// The engine on a table of another program in a PostgreSQL database. This function does not connect to it; the first
/// request does.
pub(crate) fn engine(config: Config, table: ForeignTable, env: &Env) -> ForeignTableEngine {
    let contact = Contact::default();
    let connections = config.connections;
    let connector = PostgresConnector { config, table: table.clone(), contact: contact.clone() };
    ForeignTableEngine::of(Client::new(Box::new(connector), env, connections), "postgres", &table, contact)
}

struct PostgresConnector {
    config: Config,
    table: ForeignTable,
    contact: Contact,
}

impl Connector for PostgresConnector {
    fn open(&self, access: Access) -> BoxFuture<'_, Result<Box<dyn Connection>, Failed>> {
        Box::pin(async move {
            let conn = dial::within_dial_limit(&self.config, self.connect(access)).await?;
            Ok(Box::new(conn) as Box<dyn Connection>)
        })
    }

    fn contact(&self) -> &Contact {
        &self.contact
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, Failed>> {
        let subject = Subject::ForeignTable(self.address());
        Box::pin(async move {
            let mut told = diagnose(&self.config, &subject).await?;
            told.push(table_of_program(ids::ID_TABLES, self.open(Access::Look).await.map(drop)));
            Ok(told)
        })
    }
}

impl PostgresConnector {
    async fn connect(&self, access: Access) -> Result<PostgresConnection, Failed> {
        let dial::Dialed { client: driver, connection: mut driver_connection, .. } =
            dial::dial(&self.config.server, None, self.config.dial_limit()).await?;
        runtime::spawn(async move {
            while let Some(Ok(_)) = poll_fn(|context| driver_connection.poll_message(context)).await {}
        });
        let (name, address) = (self.table.table_name(Dialect::Postgres), self.address());
        let mut found = query(&driver, FIND, &[&address]).await?;
        if found.is_empty() && access == Access::Lock && self.table.create {
            self.create(&driver, &address).await?;
            found = query(&driver, FIND, &[&address]).await?;
        }
        let [schema, kind, persistence, oid] = &found.first().ok_or_else(|| self.missing())?[..] else {
            return Err(self.missing());
        };
        check_kind(name, kind.as_deref(), persistence.as_deref())?;
        let (begin, oid) = (format!("BEGIN READ ONLY; {LIMITS}"), oid.clone().unwrap_or_default());
        let oid_parameters = [&oid];
        let (begun, columns, server, ended) = tokio::join!(
            biased;
            driver.batch_execute(&begin), query(&driver, COLUMNS, &oid_parameters), query(&driver, SERVER, &[]),
            driver.batch_execute("COMMIT")
        );
        begun.and(ended).map_err(|error| classify(&error, Stage::BeforeCommit))?;
        let columns: Vec<Column> = columns?.iter().map(|row| column(row)).collect();
        let columns = columns::find(&self.table, name, &columns)?;
        let schema = quoted(Dialect::Postgres, schema.as_deref().unwrap_or_default());
        let qualified = format!("{schema}.{}", quoted(Dialect::Postgres, name));
        let format = Format::new(Dialect::Postgres, &self.table, qualified, &columns);
        PostgresConnection::new(driver, format, &server?, access)
    }

    /// The quoted name of the table, with its schema if the URL names one.
    fn address(&self) -> String {
        let schema = self.config.schema.as_ref().map(|schema| quoted(Dialect::Postgres, schema) + ".");
        schema.unwrap_or_default() + &quoted(Dialect::Postgres, self.table.table_name(Dialect::Postgres))
    }

    /// Creates the table. Several clients can do so at the same time: the loser finds the table of the winner.
    async fn create(&self, driver: &Driver, address: &str) -> Result<(), Failed> {
        let statement = create_table(&self.table, Dialect::Postgres, address);
        let statement = statement.replacen("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1);
        match driver.batch_execute(&statement).await {
            // Two clients that create one table at the same moment collide in the catalog.
            Err(error) if error.code() == Some(&tokio_postgres::error::SqlState::UNIQUE_VIOLATION) => Ok(()),
            Err(error) => {
                let failed = classify(&error, Stage::BeforeCommit);
                let fault = if failed.fault == Fault::Denied { Fault::Misconfigured } else { failed.fault };
                let name = self.table.table_name(Dialect::Postgres);
                Err(Failed::new(
                    fault,
                    format!("its table {name} does not exist, and creating it failed: {failed}"),
                ))
            }
            Ok(()) => Ok(()),
        }
    }

    fn missing(&self) -> Failed {
        missing_table(&self.table, Dialect::Postgres)
    }
}

/// Refuses what is no table, and tables that a restart empties or that other sessions do not see.
fn check_kind(name: &str, kind: Option<&str>, persistence: Option<&str>) -> Result<(), Failed> {
    if kind != Some("r") {
        return Err(misconfigured(&format!("its table {name} is a view, or a partitioned or foreign table")));
    }
    if persistence != Some("p") {
        return Err(misconfigured(&format!(
            "its table {name} is temporary or unlogged: a crash empties it, and its writes are in no log, by which \
             tokens grow: use ALTER TABLE ... SET LOGGED"
        )));
    }
    Ok(())
}

fn column(row: &[Option<String>]) -> Column {
    let text = |index: usize| row.get(index).cloned().flatten();
    let is = |index: usize| text(index).as_deref() == Some("true");
    Column {
        name: text(0).unwrap_or_default(),
        kind: text(1).unwrap_or_default(),
        needs_value: is(2),
        numbers_rows: false,
        room: text(3).and_then(|digits| digits.parse().ok()),
        unique: is(4),
        digits: text(5).and_then(|digits| digits.parse().ok()),
    }
}

/// One connection.
struct PostgresConnection {
    driver: Driver,
    format: Format,
    /// The system identifier of the server.
    system: u64,
    /// The newest segment of the log when the connection was made; `None` on a replica.
    segment: Option<String>,
}

impl PostgresConnection {
    fn new(driver: Driver, format: Format, server: &Rows, access: Access) -> Result<Self, Failed> {
        let text = |index: usize| {
            server.first().and_then(|row| row.get(index).cloned().flatten()).unwrap_or_default()
        };
        let is_replica = text(1) == "true";
        if is_replica && access == Access::Lock {
            return Err(replica_error());
        }
        let encoding = text(3);
        if encoding != "UTF8" {
            return Err(misconfigured(&format!(
                "its encoding is {encoding}, which cannot hold every name: use a database with the encoding UTF8"
            )));
        }
        let system = text(0).parse().unwrap_or(0);
        Ok(Self { driver, format, system, segment: (!is_replica).then(|| text(2)) })
    }

    /// The text of a step without parameters; `None` for a statement.
    fn control(&self, step: &Step) -> Option<String> {
        let zone = if self.format.layout == Layout::Shedlock { IN_UTC } else { "" };
        match step {
            Step::Begin => Some(format!("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {LIMITS}{zone}")),
            Step::BeginReading => {
                Some(format!("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; {LIMITS}{zone}"))
            }
            Step::Commit => Some("COMMIT".to_owned()),
            Step::Rollback => Some("ROLLBACK".to_owned()),
            Step::Run(_) => None,
        }
    }

    /// Sends one step. The messages of all steps are sent in the order in which their futures are polled first.
    async fn send(&self, step: &Step) -> Result<Option<Rows>, Error> {
        if let Some(text) = self.control(step) {
            return self.driver.batch_execute(&text).await.map(|()| None);
        }
        let Step::Run(statement) = step else { return Ok(None) };
        run_statement(&self.driver, statement).await.map(Some)
    }
}

impl Connection for PostgresConnection {
    fn run<'a>(&'a mut self, steps: &'a [Step]) -> BoxFuture<'a, Result<Vec<Rows>, Failed>> {
        Box::pin(async move {
            let commits = steps.iter().any(|step| matches!(step, Step::Commit));
            let stage = if commits { Stage::Commit } else { Stage::BeforeCommit };
            let mut results = Vec::with_capacity(steps.len());
            for result in join_all(steps.iter().map(|step| self.send(step))).await {
                results.extend(result.map_err(|error| classify(&error, stage))?);
            }
            Ok(results)
        })
    }

    fn format(&self) -> &Format {
        &self.format
    }

    fn lineage(&self, server: &str) -> Lineage {
        let timeline = u32::from_str_radix(server.get(..TIMELINE_DIGITS).unwrap_or("0"), 16).unwrap_or(0);
        Lineage::new(u128::from(self.system) << 32 | u128::from(timeline))
    }

    fn shown_lineage(&self) -> Option<Lineage> {
        self.segment.as_deref().map(|segment| self.lineage(segment))
    }

    fn is_closed(&self) -> bool {
        self.driver.is_closed()
    }

    fn guarantee(&mut self) -> BoxFuture<'_, Result<Guarantee, Failed>> {
        Box::pin(async move {
            if self.segment.is_none() {
                return Ok(replica_guarantee("in_recovery", "on", "off"));
            }
            let begin = format!("BEGIN READ ONLY; {LIMITS}");
            let (begun, row, ended) = tokio::join!(
                biased;
                self.driver.batch_execute(&begin), self.driver.query_typed_one(SETTINGS, &[]),
                self.driver.batch_execute("COMMIT")
            );
            let failed = |error: Error| classify(&error, Stage::BeforeCommit);
            begun.and(ended).map_err(failed)?;
            let mut guarantee = guarantee(&row.map_err(failed)?)?;
            add_layout(&mut guarantee, &self.format);
            Ok(guarantee)
        })
    }
}

async fn query(driver: &Driver, sql: &str, values: &[&String]) -> Result<Rows, Failed> {
    let parameters: Vec<(&(dyn ToSql + Sync), Type)> =
        values.iter().map(|value| (*value as &(dyn ToSql + Sync), Type::TEXT)).collect();
    let rows = driver.query_typed(sql, &parameters).await;
    texts(&rows.map_err(|error| classify(&error, Stage::BeforeCommit))?)
        .map_err(|error| classify(&error, Stage::BeforeCommit))
}

async fn run_statement(driver: &Driver, statement: &Statement) -> Result<Rows, Error> {
    let sql = statement.text(|index, _| format!("${}", index + 1));
    let parameters: Vec<(&(dyn ToSql + Sync), Type)> =
        statement.values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::TEXT)).collect();
    texts(&driver.query_typed(&sql, &parameters).await?)
}

/// The columns of all rows, which are texts.
fn texts(rows: &[Row]) -> Result<Rows, Error> {
    let row = |row: &Row| (0..row.len()).map(|index| row.try_get(index)).collect();
    rows.iter().map(row).collect()
}
