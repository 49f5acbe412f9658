//! Connections to a table of another program in MySQL and MariaDB.

use std::sync::Arc;

use leasehold_core::{BoxFuture, Clock, Contact, Diagnostic, Env, Fault, Guarantee, Lineage};
use mysql_async::Row;

use super::{
    ForeignTableEngine,
    client::Client,
    columns::{self, Column},
    ddl::{create_table, missing_table},
    format::{Format, quoted},
    guarantee::add_layout,
    options::{ForeignTable, Layout},
    store::{Access, Connection, Connector, Dialect, Rows, Step},
};
use crate::{
    database::{Failed, misconfigured, replica_guarantee},
    diagnose::table_of_program,
    mysql::{
        Config,
        conn::{Conn, ResultSet},
        diagnose::{Subject, diagnose, ids},
        error::{Commits, ExecuteError},
        first_second,
        guarantee::guarantee,
        server::Server,
        statements::{REPLICAS, SERVER, SESSION},
        text::text_literal,
    },
};

/// The zone of the other programs, whose sessions have the default of the server: a `TIMESTAMP` means another time in
/// another zone.
const ZONE_OF_OTHERS: &str = "SET SESSION time_zone = DEFAULT";
/// Begins a transaction that the server ends if its client vanishes: MariaDB by a setting of the session, MySQL by its
/// timeout for silent connections.
const BEGIN: [&str; 2] = ["SET SESSION wait_timeout = 5", "BEGIN"];
/// Begins a transaction that only reads.
const BEGIN_READING: &str = "START TRANSACTION READ ONLY";
/// `ER_DUP_ENTRY`: a row with this key is there.
const DUPLICATE_KEY: u16 = 1062;
/// `ER_TRUNCATED_WRONG_VALUE`: a value is no time of its column.
const NO_SUCH_TIME: u16 = 1292;
/// What follows the end of a transaction.
const AFTER_END: &str = "SET SESSION wait_timeout = 60";

/// The engine on a table of another program in a MySQL or MariaDB database. This function does not connect to it; the
/// first request does.
pub(crate) fn engine(config: Config, table: ForeignTable, env: &Env) -> ForeignTableEngine {
    let (contact, clock) = (Contact::default(), Arc::clone(&env.clock));
    let connections = config.connections;
    let connector = MysqlConnector { config, table: table.clone(), clock, contact: contact.clone() };
    ForeignTableEngine::of(Client::new(Box::new(connector), env, connections), "mysql", &table, contact)
}

struct MysqlConnector {
    config: Config,
    table: ForeignTable,
    clock: Arc<dyn Clock>,
    contact: Contact,
}

impl Connector for MysqlConnector {
    fn open(&self, access: Access) -> BoxFuture<'_, Result<Box<dyn Connection>, Failed>> {
        Box::pin(async move {
            let conn = Conn::within_dial_limit(&self.config, self.connect(access)).await?;
            Ok(Box::new(conn) as Box<dyn Connection>)
        })
    }

    fn contact(&self) -> &Contact {
        &self.contact
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, Failed>> {
        let name = quoted(Dialect::Mysql, self.table.table_name(Dialect::Mysql));
        Box::pin(async move {
            let mut told = diagnose(&self.config, &Subject::ForeignTable(name)).await?;
            told.push(table_of_program(ids::ID_TABLES, self.open(Access::Look).await.map(drop)));
            Ok(told)
        })
    }
}

impl MysqlConnector {
    async fn connect(&self, access: Access) -> Result<MysqlConnection, Failed> {
        let (mut conn, _) = Conn::connect(&self.config, self.clock.now()).await?;
        let zone = match self.table.layout {
            Layout::Shedlock | Layout::Liquibase => ZONE_OF_OTHERS,
            _ => "DO 0",
        };
        let text = [SESSION.statements(), zone, SERVER.statements()].join("; ");
        let server = Server::read(run(&mut conn, &text).await?);
        let is_replica = server.check_writable().is_err();
        if access == Access::Lock {
            server.check_writable()?;
            if server.is_galera() {
                return Err(misconfigured(
                    "it is a node of a Galera cluster, whose nodes mint tokens in no common order: use the tables of \
                     leasehold (no layout=)",
                ));
            }
            first_second::wait_until_over(&mut conn, &server).await?;
        }
        let name = self.table.table_name(Dialect::Mysql);
        let mut columns = read_columns(&mut conn, name).await?;
        if columns.is_empty() && access == Access::Lock && self.table.create {
            let statement = create_table(&self.table, Dialect::Mysql, &quoted(Dialect::Mysql, name));
            let statement = statement.replacen("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1);
            run(&mut conn, &statement).await.map_err(|failed| {
                let fault = if failed.fault == Fault::Denied { Fault::Misconfigured } else { failed.fault };
                Failed::new(
                    fault,
                    format!("its table {name} does not exist, and creating it failed: {failed}"),
                )
            })?;
            columns = read_columns(&mut conn, name).await?;
        }
        if columns.is_empty() {
            return Err(missing_table(&self.table, Dialect::Mysql));
        }
        let columns = columns::find(&self.table, name, &columns)?;
        let format = Format::new(Dialect::Mysql, &self.table, quoted(Dialect::Mysql, name), &columns);
        Ok(MysqlConnection { conn, format, lineage: Lineage::new(server.identity()), is_replica })
    }
}

/// The columns of a table of InnoDB; none if it does not exist.
async fn read_columns(conn: &mut Conn, name: &str) -> Result<Vec<Column>, Failed> {
    let name_literal = text_literal(name);
    let own = "TABLE_SCHEMA = DATABASE() AND TABLE_NAME =";
    let sets = run(
        conn,
        &format!(
            "SELECT ENGINE FROM information_schema.TABLES WHERE {own} {name_literal}; \
             SELECT COLUMN_NAME, LOWER(DATA_TYPE), IS_NULLABLE = 'NO' AND COLUMN_DEFAULT IS NULL AND EXTRA NOT LIKE \
             '%auto_increment%' AND EXTRA NOT LIKE '%GENERATED%', EXTRA LIKE '%auto_increment%', CHARACTER_MAXIMUM_LENGTH, \
             DATETIME_PRECISION \
             FROM information_schema.COLUMNS WHERE {own} {name_literal}; \
             SELECT MAX(COLUMN_NAME) FROM information_schema.STATISTICS WHERE {own} {name_literal} AND NON_UNIQUE = 0 \
             GROUP BY INDEX_NAME HAVING COUNT(*) = 1 AND MAX(SUB_PART) IS NULL"
        ),
    )
    .await?;
    let mut sets = sets.into_iter().map(|set| texts(&set));
    let mut next = || sets.next().unwrap_or_else(|| Ok(Vec::new()));
    let (engine, rows, unique) = (next()?, next()?, next()?);
    match engine.first().and_then(|row| row.first().cloned()) {
        None => return Ok(Vec::new()),
        Some(engine) if engine.as_deref() != Some("InnoDB") => {
            return Err(misconfigured(&format!(
                "its table {name} is not a table of InnoDB, so it has no transactions: change its engine"
            )));
        }
        Some(_) => {}
    }
    let column = |row: &Vec<Option<String>>| {
        let text = |index: usize| row.get(index).cloned().flatten().unwrap_or_default();
        Column {
            name: text(0),
            kind: text(1),
            needs_value: text(2) == "1",
            numbers_rows: text(3) == "1",
            room: text(4).parse().ok(),
            digits: text(5).parse().ok(),
            unique: unique.iter().any(|index| index.first().cloned().flatten() == Some(text(0))),
        }
    };
    Ok(rows.iter().map(column).collect())
}

/// One connection.
struct MysqlConnection {
    conn: Conn,
    format: Format,
    lineage: Lineage,
    is_replica: bool,
}

impl Connection for MysqlConnection {
    fn run<'a>(&'a mut self, steps: &'a [Step]) -> BoxFuture<'a, Result<Vec<Rows>, Failed>> {
        Box::pin(async move {
            let (mut statements, mut of_runs, mut commits) = (Vec::new(), Vec::new(), Commits::Never);
            for step in steps {
                match step {
                    Step::Begin => statements.extend(BEGIN.map(str::to_owned)),
                    Step::BeginReading => statements.push(BEGIN_READING.to_owned()),
                    Step::Run(statement) => {
                        of_runs.push(statements.len());
                        statements.push(statement.text(|_, value| text_literal(value)));
                    }
                    Step::Commit => {
                        commits = Commits::At(statements.len());
                        statements.extend(["COMMIT", AFTER_END].map(str::to_owned));
                    }
                    Step::Rollback => statements.extend(["ROLLBACK", AFTER_END].map(str::to_owned)),
                }
            }
            let sets = match self.conn.execute(&statements.join("; ")).await {
                // Only an insert of a claim fails so: the row is taken.
                Err(ExecuteError::ServerError { code: DUPLICATE_KEY, .. })
                    if matches!(commits, Commits::Never) =>
                {
                    return Ok(Vec::new());
                }
                executed => executed.map_err(|error| classify(&error, commits))?,
            };
            let rows = |index: usize| sets.get(index).map_or_else(|| Ok(Vec::new()), texts);
            of_runs.into_iter().map(rows).collect()
        })
    }

    fn format(&self) -> &Format {
        &self.format
    }

    fn lineage(&self, _: &str) -> Lineage {
        self.lineage
    }

    fn shown_lineage(&self) -> Option<Lineage> {
        (!self.is_replica).then_some(self.lineage)
    }

    fn is_closed(&self) -> bool {
        self.conn.is_closed()
    }

    fn guarantee(&mut self) -> BoxFuture<'_, Result<Guarantee, Failed>> {
        Box::pin(async move {
            if self.is_replica {
                return Ok(replica_guarantee("read_only or innodb_read_only", "ON", "OFF"));
            }
            let queries = [&SERVER, &REPLICAS].map(|sql| sql.statements()).join("; ");
            let mut guarantee = guarantee(&Server::read(run(&mut self.conn, &queries).await?));
            add_layout(&mut guarantee, &self.format);
            Ok(guarantee)
        })
    }
}

/// Executes statements that commit nothing that matters.
async fn run(conn: &mut Conn, text: &str) -> Result<Vec<ResultSet>, Failed> {
    conn.execute(text).await.map_err(|error| error.classify(Commits::Never))
}

/// The error of statements that commit as `commits` says.
fn classify(error: &ExecuteError, commits: Commits) -> Failed {
    let failed = error.classify(commits);
    match error {
        ExecuteError::ServerError { code: NO_SUCH_TIME, .. } if failed.fault != Fault::Unknown => {
            misconfigured(
                "its TIMESTAMP columns take no time now, because UTC is now in the hour that the zone of the server leaves \
             out: give the table DATETIME columns, or the server a zone without daylight saving",
            )
        }
        _ => failed,
    }
}

/// The columns of all rows, which are texts.
fn texts(set: &ResultSet) -> Result<Rows, Failed> {
    let text = |row: &Row, index: usize| {
        row.get_opt::<Option<String>, _>(index)
            .and_then(Result::ok)
            .ok_or_else(|| Failed::new(Fault::Internal, "a column of its answer is no text"))
    };
    let row = |row: &Row| (0..row.len()).map(|index| text(row, index)).collect();
    set.rows.iter().map(row).collect()
}
