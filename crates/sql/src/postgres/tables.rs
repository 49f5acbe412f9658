//! Finds the tables of a connection, and checks that they are as leasehold makes them and that only their owner can
//! change what they do.
//!
//! A name is looked up in the schemas of the session's `search_path`, where other users may have the right to create
//! functions and operators. A function or operator whose types match better wins over that of the system
//! (<https://www.postgresql.org/docs/16/typeconv-oper.html>,
//! <https://wiki.postgresql.org/wiki/A_Guide_to_CVE-2018-1058>). So the first statement, which finds the schema of the
//! tables, qualifies everything with its schema. After this statement the `search_path` only has the schemas of the
//! system, and the names of the tables are qualified.

use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::{Fault, Lineage};
use tokio_postgres::{
    Error, Row,
    types::{ToSql, Type},
};

use super::{
    MEMO_SCHEMA, SCHEMA,
    config::Config,
    conn::Conn,
    error::{Stage, classify, is_missing_column, pooler_error},
    rows::connection_slots,
    statements::{SLOTS, STATEMENT_COUNT, texts},
};
use crate::{
    connection_slots::ConnectionSlots,
    database::{ColumnsByType, Failed, MissingTables, altered_table, unusable_table},
};

/// The version of the tables.
const VERSION: i32 = 1;
/// Restricts lookup by name to functions, operators and types of the system, for the session.
pub(crate) const RESTRICT_SEARCH_PATH: &str = "SET search_path = pg_catalog, pg_temp";
/// The same for one transaction, behind a pooler.
pub(crate) const RESTRICT_SEARCH_PATH_LOCALLY: &str = "SET LOCAL search_path = pg_catalog, pg_temp";

/// Reads the schema of the tables, the schema in which they would be created, and the lock timeout of the session,
/// which shows whether a pooler has dropped the settings of leasehold.
pub(super) const FIND_SCHEMA: &str = include_str!("sql/find_schema.sql");
/// Reads the version and lineage of the tables, and the identity of the server.
const META: &str = include_str!("sql/meta.sql");
/// Reads the definition of the tables.
const DEFINITIONS: &str = include_str!("sql/definitions.sql");

/// The columns that are read and written, per table of locks.
const COLUMNS: [(&str, ColumnsByType); 3] = [
    ("leasehold_meta", &[("smallint", &["one"]), ("integer", &["version"]), ("text", &["lineage"])]),
    (
        "leasehold_lock",
        &[
            ("text", &["name", "owner"]),
            ("bytea", &["holder"]),
            ("integer", &["tokens", "claims"]),
            ("smallint", &["previous", "ended"]),
            ("bigint", &["token", "since", "expires", "client", "ended_upto", "ended_until"]),
        ],
    ),
    (
        "leasehold_claim",
        &[
            ("text", &["name", "owner"]),
            ("bytea", &["id"]),
            ("integer", &["tokens"]),
            ("smallint", &["stand", "mode", "previous"]),
            ("bigint", &["place", "count", "most", "token", "since", "expires", "claim_time", "place_since"]),
            ("bigint", &["place_expires", "client"]),
        ],
    ),
];
/// The table of memos. Tables that an earlier version of leasehold made lack it.
const MEMO_TABLE: &str = "leasehold_memo";
/// Its columns.
const MEMO_COLUMNS: (&str, ColumnsByType) = (
    MEMO_TABLE,
    &[
        ("text", &["name", "kind", "lineage"]),
        ("bytea", &["id", "print", "content"]),
        ("bigint", &["number", "token", "ends"]),
    ],
);

/// The tables that a connection leads to.
pub(crate) struct Tables {
    /// The lineage of their tokens; `None` on a replica, which is only inspected.
    pub(crate) lineage: Option<Lineage>,
    /// The connection slots of the server when the tables were looked up.
    pub(crate) slots: Option<ConnectionSlots>,
    /// The statements, with the qualified names of these tables.
    pub(crate) texts: [String; STATEMENT_COUNT],
    /// The schema of the tables.
    schema: String,
    /// The role whose tables are trusted as well.
    owner: Option<String>,
    /// Whether the table of memos was found and checked.
    has_memos: AtomicBool,
}

impl Tables {
    /// Finds the tables; creates missing ones if `missing_tables` says so.
    pub(crate) async fn find(
        conn: &Conn,
        config: &Config,
        missing_tables: MissingTables,
    ) -> Result<Option<Self>, Failed> {
        // Behind a pooler one transaction keeps all statements in one session. Elsewhere no transaction is needed.
        let begin = if conn.keeps_session() { "SELECT 1" } else { "BEGIN" };
        let path = if conn.keeps_session() { RESTRICT_SEARCH_PATH } else { RESTRICT_SEARCH_PATH_LOCALLY };
        let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&config.schema, Type::TEXT)];
        let find_schema = conn.query_unprepared(FIND_SCHEMA, &parameters);
        let (begun, schema_rows, path_set) =
            tokio::join!(biased; conn.run(begin), find_schema, conn.run(path));
        let before_commit = |error| classify(&error, Stage::BeforeCommit);
        begun.map_err(before_commit)?;
        let schema_rows = schema_rows.map_err(before_commit)?;
        path_set.map_err(before_commit)?;
        let tables =
            Self::in_schema(conn, schema_rows.first(), config.table_owner.as_deref(), missing_tables).await;
        if !conn.keeps_session() {
            let end = if tables.is_ok() { "COMMIT" } else { "ROLLBACK" };
            conn.run(end).await.map_err(before_commit)?;
        }
        tables
    }

    /// Finds the tables in the schema that `schema_row`, the row of `find_schema.sql`, names.
    async fn in_schema(
        conn: &Conn,
        schema_row: Option<&Row>,
        owner: Option<&str>,
        missing_tables: MissingTables,
    ) -> Result<Option<Self>, Failed> {
        let schema_row = schema_row.ok_or_else(foreign_table)?;
        // The schema that has the tables, and the schema in which they would be created.
        let (existing, default): (Option<&str>, Option<&str>) = (text(schema_row, 0)?, text(schema_row, 1)?);
        if conn.keeps_session() && text(schema_row, 2)? != Some(super::conn::SHOWN_LOCK_TIMEOUT) {
            return Err(pooler_error());
        }
        let Some(schema) = existing.or(default) else {
            return Err(Failed::new(
                Fault::Misconfigured,
                "its tables do not exist, and there is no schema to create them in: name one with schema=",
            ));
        };
        let quoted_schema = quoted(schema);
        if existing.is_none() {
            if missing_tables == MissingTables::Leave {
                return Ok(None);
            }
            let lacks_schema: bool = schema_row.try_get(3).map_err(|_| foreign_table())?;
            create(conn, &quoted_schema, lacks_schema).await?;
        }
        let before_commit = |error| classify(&error, Stage::BeforeCommit);
        let definitions = conn
            .query_unprepared(DEFINITIONS, &[(&schema, Type::TEXT), (&owner, Type::TEXT)])
            .await
            .map_err(before_commit)?;
        let (memos, definitions): (Vec<Row>, Vec<Row>) = definitions.into_iter().partition(is_of_memos);
        // Reading a view would execute code of another user.
        check_trust(&definitions)?;
        let meta = qualify(&quoted_schema, META);
        let (meta, slot_rows) =
            tokio::join!(biased; conn.query_unprepared(&meta, &[]), conn.query_unprepared(SLOTS.text, &[]));
        // A user without the right to read the slots gets `None`.
        let slots = slot_rows.ok().and_then(|rows| connection_slots(rows.first()?, 0).ok());
        let meta = match meta {
            Err(error) if is_missing_column(&error) => None,
            meta => meta.map_err(before_commit)?.into_iter().next(),
        };
        let lineage = lineage(&meta.ok_or_else(foreign_table)?)?;
        if lineage.is_none() && missing_tables == MissingTables::Create {
            return Err(replica_error());
        }
        check_columns(&definitions, &COLUMNS)?;
        let (schema, owner) = (schema.to_owned(), owner.map(str::to_owned));
        // An unusable table of memos stops no lock: other users may have created it. The requests for memos report it.
        let has_memos = AtomicBool::new(check_memos(&memos).unwrap_or(false));
        let texts = texts(|text| qualify(&quoted_schema, text));
        Ok(Some(Self { lineage, slots, texts, schema, owner, has_memos }))
    }

    /// Whether the table of memos exists; creates it if `missing_tables` says so. Must not be called in a transaction.
    pub(crate) async fn find_memos(
        &self,
        conn: &Conn,
        missing_tables: MissingTables,
    ) -> Result<bool, Failed> {
        if self.has_memos.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let mut found = self.look_for_memos(conn).await?;
        if !found && missing_tables == MissingTables::Create {
            let created = create_memos(conn, &quoted(&self.schema)).await;
            if created.is_err() {
                // The transaction that failed.
                conn.run("ROLLBACK").await.map_err(|error| classify(&error, Stage::BeforeCommit))?;
            }
            // Another client, of another user, may have created it at the same time.
            found = self.look_for_memos(conn).await?;
            if !found {
                created?;
            }
        }
        self.has_memos.store(found, Ordering::Relaxed);
        Ok(found)
    }

    /// Whether the table of memos exists. Fails if it is not as leasehold makes it.
    async fn look_for_memos(&self, conn: &Conn) -> Result<bool, Failed> {
        let begin = if conn.keeps_session() { "SELECT 1" } else { "BEGIN" };
        let path = if conn.keeps_session() { RESTRICT_SEARCH_PATH } else { RESTRICT_SEARCH_PATH_LOCALLY };
        let end = if conn.keeps_session() { "SELECT 1" } else { "COMMIT" };
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&self.schema, Type::TEXT), (&self.owner, Type::TEXT)];
        let definitions = conn.query_unprepared(DEFINITIONS, &parameters);
        let (begun, path_set, definitions, ended) =
            tokio::join!(biased; conn.run(begin), conn.run(path), definitions, conn.run(end));
        let definitions = begun.and(path_set).and(definitions).and_then(|rows| ended.map(|()| rows));
        let mut definitions = definitions.map_err(|error| classify(&error, Stage::BeforeCommit))?;
        definitions.retain(is_of_memos);
        check_memos(&definitions)
    }
}

/// The name of a schema as an identifier.
pub(super) fn quoted(schema: &str) -> String {
    format!("\"{}\"", schema.replace('"', "\"\""))
}

/// Whether this is the definition of the table of memos.
fn is_of_memos(definition: &Row) -> bool {
    text(definition, 0).is_ok_and(|table| table == Some(MEMO_TABLE))
}

/// Whether the table of memos exists, by its definition. Fails if it is not as leasehold makes it.
fn check_memos(definition: &[Row]) -> Result<bool, Failed> {
    if definition.is_empty() {
        return Ok(false);
    }
    check_trust(definition)?;
    check_columns(definition, &[MEMO_COLUMNS])?;
    Ok(true)
}

/// Qualifies the names of the tables in a statement by the schema. The name of the schema can itself contain the name
/// of a table, so each name of a table is first replaced by a placeholder.
fn qualify(quoted_schema: &str, text: &str) -> String {
    let tables = || COLUMNS.iter().chain([&MEMO_COLUMNS]).map(|(table, _)| *table).zip('\u{1}'..);
    let with_placeholders = tables()
        .fold(text.to_owned(), |text, (table, placeholder)| text.replace(table, &placeholder.to_string()));
    tables().fold(with_placeholders, |text, (table, placeholder)| {
        text.replace(placeholder, &format!("{quoted_schema}.{table}"))
    })
}

/// The error for a table `leasehold_meta` that another program made.
fn foreign_table() -> Failed {
    Failed::new(Fault::Misconfigured, "its table leasehold_meta was not made by leasehold")
}

/// The error for a replica where a primary was expected.
pub(crate) fn replica_error() -> Failed {
    Failed::new(Fault::Retry, "it is a replica, which is read-only: name the primary")
}

/// The text in a column of the tables that leasehold made.
fn text(row: &Row, index: usize) -> Result<Option<&str>, Failed> {
    row.try_get(index).map_err(|_| foreign_table())
}

/// The number of the advisory lock under which clients create the tables.
const CREATION_LOCK: u32 = 7_810_210;

/// Creates the tables. Several clients can do so at the same time: each waits up to 2.5 s for the others, which is
/// longer than the lock timeout of the session. Creates the schema of the URL too if it does not exist: only then,
/// because the server asks for the right to create schemas even if there is nothing to create.
async fn create(conn: &Conn, quoted_schema: &str, lacks_schema: bool) -> Result<(), Failed> {
    let create_schema =
        if lacks_schema { format!("CREATE SCHEMA IF NOT EXISTS {quoted_schema};") } else { String::new() };
    let tables = qualify(quoted_schema, SCHEMA);
    let (begin, end) = if conn.keeps_session() { ("BEGIN;", "COMMIT;") } else { ("", "") };
    let text = format!(
        "{begin} SET LOCAL lock_timeout = '2500ms'; SELECT pg_advisory_xact_lock({CREATION_LOCK}); {create_schema} {tables} {end}"
    );
    conn.run(&text)
        .await
        .map_err(|error| creation_error("its tables do not exist, and creating them", &error))
}

/// Creates the table of memos, in a transaction. Several clients can do so at the same time. The rights to lock do not
/// suffice to create the other tables again.
async fn create_memos(conn: &Conn, quoted_schema: &str) -> Result<(), Failed> {
    let table = qualify(quoted_schema, MEMO_SCHEMA);
    let text = format!(
        "BEGIN; {RESTRICT_SEARCH_PATH_LOCALLY}; SET LOCAL lock_timeout = '2500ms'; \
         SELECT pg_advisory_xact_lock({CREATION_LOCK}); {table} COMMIT"
    );
    let what = format!("its table {MEMO_TABLE} does not exist, and creating it");
    conn.run(&text).await.map_err(|error| creation_error(&what, &error))
}

/// The error for tables that could not be created.
fn creation_error(what: &str, error: &Error) -> Failed {
    let failed = classify(error, Stage::BeforeCommit);
    let fault = if failed.fault == Fault::Denied { Fault::Misconfigured } else { failed.fault };
    Failed::new(
        fault,
        format!(
            "{what} failed: {failed}; let a user who may create tables run the output of `leasehold schema`"
        ),
    )
}

/// Checks that the tables do only what leasehold writes to them, whatever rights other users of this database have.
fn check_trust(definitions: &[Row]) -> Result<(), Failed> {
    for row in definitions {
        let table = text(row, 0)?.unwrap_or_default();
        let boolean = |index| row.try_get::<_, bool>(index).map_err(|_| foreign_table());
        let is_plain_table = boolean(1)?;
        if !is_plain_table {
            return Err(unusable_table(
                table,
                "was not made by leasehold: it is a view, or a partitioned or foreign table",
            ));
        }
        let is_owner_trusted = boolean(3)?;
        if !is_owner_trusted {
            let owner = text(row, 2)?.unwrap_or_default();
            return Err(unusable_table(
                table,
                format!(
                    "belongs to {owner}, who owns neither its schema nor the database and could change what it does: give it to the \
                     owner of one of them, or add table_owner={owner} to the URL"
                ),
            ));
        }
        if let Some(executed_code) = text(row, 4)? {
            return Err(unusable_table(
                table,
                format!("has {executed_code}, which would run with our rights: drop it"),
            ));
        }
    }
    Ok(())
}

/// Checks that the tables have exactly these columns, which are read and written.
fn check_columns(definitions: &[Row], tables: &[(&str, ColumnsByType)]) -> Result<(), Failed> {
    for &(table, columns) in tables {
        let is_this_table = |row: &&Row| text(row, 0).is_ok_and(|name| name == Some(table));
        let Some(row) = definitions.iter().find(is_this_table) else {
            return Err(unusable_table(table, "does not exist: run the output of `leasehold schema`"));
        };
        let mut actual_columns: Vec<&str> = row.try_get(5).map_err(|_| foreign_table())?;
        for (kind, names) in columns {
            for name in *names {
                let column = actual_columns.iter().position(|column| *column == format!("{name} {kind}"));
                actual_columns
                    .swap_remove(column.ok_or_else(|| {
                        altered_table(table, format!("its column {name} must be a {kind}"))
                    })?);
            }
        }
        if let Some(extra) = actual_columns.first() {
            return Err(altered_table(table, format!("its column {extra} is not one of leasehold's")));
        }
    }
    Ok(())
}

/// The number of digits of the timeline at the start of the name of a log segment.
const TIMELINE_DIGITS: usize = 8;

/// The lineage, from the row of `meta.sql`; `None` on a replica, which does not know the newest segment of its log.
fn lineage(meta: &Row) -> Result<Option<Lineage>, Failed> {
    let (Ok(version), Ok(lineage)) = (meta.try_get::<_, i32>(0), meta.try_get::<_, &str>(1)) else {
        return Err(foreign_table());
    };
    if version != VERSION {
        return Err(Failed::new(
            Fault::Misconfigured,
            format!(
                "its tables have version {version} and this leasehold knows version {VERSION}: use the same version of leasehold \
                 everywhere"
            ),
        ));
    }
    let (system, timeline) = (text(meta, 2)?.unwrap_or_default(), text(meta, 3)?.unwrap_or_default());
    let is_replica: bool = meta.try_get(4).map_err(|_| foreign_table())?;
    let encoding = text(meta, 5)?.unwrap_or_default();
    if encoding != "UTF8" {
        return Err(Failed::new(
            Fault::Misconfigured,
            format!(
                "its encoding is {encoding}, which cannot hold every name: use a database with the encoding UTF8"
            ),
        ));
    }
    let tables = u128::from_str_radix(lineage, 16).map_err(|_| foreign_table())?;
    // The lineage consists of the id of the tables, the id of the server, and the timeline (the first 8 digits of a log
    // segment's name), which is new after each promotion. So another server with a copy of the tables has another
    // lineage, and a promoted server has a new one.
    let server = u128::from(system.parse::<u64>().unwrap_or(0)) << 32
        | u128::from(u32::from_str_radix(timeline.get(..TIMELINE_DIGITS).unwrap_or("0"), 16).unwrap_or(0));
    Ok((!is_replica).then(|| Lineage::new(tables ^ server)))
}
