//! Finds the tables of a connection, and checks that they are as leasehold makes them and that only their owner can
//! change what they do.
//!
//! A name is looked up in the schemas of the session's `search_path`, where other users may be allowed to create
//! functions and operators; one with a better match wins over that of the system
//! (<https://www.postgresql.org/docs/16/typeconv-oper.html>,
//! <https://wiki.postgresql.org/wiki/A_Guide_to_CVE-2018-1058>). So the first statement qualifies everything with its
//! schema, and finds the schema of the tables. After it the `search_path` only has the schemas of the system, and the
//! names of the tables are qualified.

use leasehold_core::{Fault, Lineage};
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use super::{
    config::Config,
    conn::Conn,
    error::{Stage, classify, is_no_column, pooler},
    rows::slots,
    statements::{SLOTS, STATEMENT_COUNT, texts},
};
use crate::{
    database::{Absent, Columns, Failed, altered, wrong},
    slots::Slots,
};

/// The version of the tables.
const VERSION: i32 = 1;
/// The statements that create the tables.
const SCHEMA: &str = include_str!("sql/schema.sql");
/// Restricts lookup by name to functions, operators and types of the system, for the session.
pub(crate) const OWN_PATH: &str = "SET search_path = pg_catalog, pg_temp";
/// The same for one transaction, behind a pooler.
pub(crate) const OWN_PATH_ONCE: &str = "SET LOCAL search_path = pg_catalog, pg_temp";

/// Reads the schema of the tables, the schema in which they would be created, and one of our settings, to detect a
/// pooler that drops the settings.
const FIND_SCHEMA: &str = include_str!("sql/find_schema.sql");
/// Reads the version and lineage of the tables, and for the identity of the server.
const META: &str = include_str!("sql/meta.sql");
/// Reads the definition of the tables.
const DEFINITIONS: &str = include_str!("sql/definitions.sql");

/// The columns that are read and written, per table.
const COLUMNS: [(&str, Columns); 3] = [
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

/// The tables that a connection leads to.
pub(crate) struct Tables {
    /// The lineage of their tokens; `None` on a replica, which is only inspected.
    pub(crate) lineage: Option<Lineage>,
    /// How many connections the server had left.
    pub(crate) slots: Option<Slots>,
    /// The statements, with the qualified names of these tables.
    pub(crate) texts: [String; STATEMENT_COUNT],
}

impl Tables {
    /// Finds the tables; creates missing ones if `absent` says so.
    pub(crate) async fn find(conn: &Conn, config: &Config, absent: Absent) -> Result<Option<Self>, Failed> {
        let begin = if conn.keeps_session() { "SELECT 1" } else { "BEGIN" };
        let path = if conn.keeps_session() { OWN_PATH } else { OWN_PATH_ONCE };
        let given: [(&(dyn ToSql + Sync), Type); 1] = [(&config.schema, Type::TEXT)];
        let (begun, found, path_set) =
            tokio::join!(biased; conn.run(begin), conn.ask(FIND_SCHEMA, &given), conn.run(path));
        let before = |error| classify(&error, Stage::Before);
        begun.map_err(before)?;
        let found = found.map_err(before)?;
        path_set.map_err(before)?;
        let tables = Self::in_schema(conn, found.first(), config.table_owner.as_deref(), absent).await;
        if !conn.keeps_session() {
            let end = if tables.is_ok() { "COMMIT" } else { "ROLLBACK" };
            conn.run(end).await.map_err(before)?;
        }
        tables
    }

    /// Finds the tables in the schema that `found` names, the row of `find_schema.sql`.
    async fn in_schema(
        conn: &Conn,
        found: Option<&Row>,
        owner: Option<&str>,
        absent: Absent,
    ) -> Result<Option<Self>, Failed> {
        let found = found.ok_or_else(foreign)?;
        // The schema that has the tables, and the schema in which they would be created.
        let (existing, default): (Option<&str>, Option<&str>) = (text(found, 0)?, text(found, 1)?);
        if conn.keeps_session() && text(found, 2)? != Some(super::conn::LOCK_LIMIT) {
            return Err(pooler());
        }
        let Some(schema) = existing.or(default) else {
            return Err(Failed::new(
                Fault::Misconfigured,
                "its tables do not exist, and there is no schema to create them in: name one with schema=",
            ));
        };
        let quoted = format!("\"{}\"", schema.replace('"', "\"\""));
        if existing.is_none() {
            if absent == Absent::Leave {
                return Ok(None);
            }
            create(conn, &quoted).await?;
        }
        let before = |error| classify(&error, Stage::Before);
        let definitions =
            conn.ask(DEFINITIONS, &[(&schema, Type::TEXT), (&owner, Type::TEXT)]).await.map_err(before)?;
        // Reading a view would execute code of another user.
        check_trust(&definitions)?;
        let meta = qualify(&quoted, META);
        let (meta, slot_rows) = tokio::join!(biased; conn.ask(&meta, &[]), conn.ask(SLOTS.text, &[]));
        // A user without the right to read the slots gets `None`.
        let slots = slot_rows.ok().and_then(|rows| slots(rows.first()?).ok());
        let meta = match meta {
            Err(error) if is_no_column(&error) => None,
            meta => meta.map_err(before)?.into_iter().next(),
        };
        let lineage = lineage(&meta.ok_or_else(foreign)?)?;
        if lineage.is_none() && absent == Absent::Create {
            return Err(replica());
        }
        check_columns(&definitions)?;
        Ok(Some(Self { lineage, slots, texts: texts(|text| qualify(&quoted, text)) }))
    }
}

/// Qualifies the names of the tables in a statement by the schema. The schema may itself have the name of a table, so
/// each name is first replaced by a placeholder.
fn qualify(quoted: &str, text: &str) -> String {
    let tables = || COLUMNS.iter().map(|(table, _)| *table).zip('\u{1}'..);
    let with_placeholders = tables()
        .fold(text.to_owned(), |text, (table, placeholder)| text.replace(table, &placeholder.to_string()));
    tables().fold(with_placeholders, |text, (table, placeholder)| {
        text.replace(placeholder, &format!("{quoted}.{table}"))
    })
}

/// The error for a table `leasehold_meta` that another program made.
fn foreign() -> Failed {
    Failed::new(Fault::Misconfigured, "its table leasehold_meta was not made by leasehold")
}

/// The error for a replica where a primary was expected.
pub(crate) fn replica() -> Failed {
    Failed::new(Fault::Retry, "it is a replica, which is read-only: name the primary")
}

/// The text in a column of the tables that leasehold made.
fn text(row: &Row, at: usize) -> Result<Option<&str>, Failed> {
    row.try_get(at).map_err(|_| foreign())
}

/// The number of the advisory lock under which clients create the tables.
const CREATION_LOCK: u32 = 7_810_210;

/// Creates the tables. Several clients may do so at once; they wait for each other for longer than for a row.
async fn create(conn: &Conn, quoted: &str) -> Result<(), Failed> {
    let schema = qualify(quoted, SCHEMA);
    let (begin, end) = if conn.keeps_session() { ("BEGIN;", "COMMIT;") } else { ("", "") };
    let text = format!(
        "{begin} SET LOCAL lock_timeout = '2500ms'; SELECT pg_advisory_xact_lock({CREATION_LOCK}); {schema} {end}"
    );
    conn.run(&text).await.map_err(|error| {
        let failed = classify(&error, Stage::Before);
        let fault = if failed.fault == Fault::Denied { Fault::Misconfigured } else { failed.fault };
        Failed::new(
            fault,
            format!(
                "its tables do not exist, and creating them failed: {failed}; let a user who may create tables run the output of `leasehold schema`"
            ),
        )
    })
}

/// Checks that the tables do only what leasehold writes to them, whatever rights other users of this database have.
fn check_trust(definitions: &[Row]) -> Result<(), Failed> {
    for row in definitions {
        let table = text(row, 0)?.unwrap_or_default();
        let flag = |at| row.try_get::<_, bool>(at).map_err(|_| foreign());
        if !flag(1)? {
            return Err(wrong(
                table,
                "was not made by leasehold: it is a view, or a partitioned or foreign table",
            ));
        }
        if !flag(3)? {
            let owner = text(row, 2)?.unwrap_or_default();
            return Err(wrong(
                table,
                format!(
                    "belongs to {owner}, who owns neither its schema nor the database and could change what it does: give it to the \
                     owner of one of them, or add table_owner={owner} to the URL"
                ),
            ));
        }
        if let Some(what) = text(row, 4)? {
            return Err(wrong(table, format!("has {what}, which would run with our rights: drop it")));
        }
    }
    Ok(())
}

/// Checks that the tables have exactly the columns that are read and written.
fn check_columns(definitions: &[Row]) -> Result<(), Failed> {
    for (table, columns) in COLUMNS {
        let is_it = |row: &&Row| text(row, 0).is_ok_and(|name| name == Some(table));
        let Some(row) = definitions.iter().find(is_it) else {
            return Err(wrong(table, "does not exist: run the output of `leasehold schema`"));
        };
        let mut has: Vec<&str> = row.try_get(5).map_err(|_| foreign())?;
        for (kind, names) in columns {
            for name in *names {
                let column = has.iter().position(|has| *has == format!("{name} {kind}"));
                has.swap_remove(
                    column.ok_or_else(|| altered(table, format!("its column {name} must be a {kind}")))?,
                );
            }
        }
        if let Some(more) = has.first() {
            return Err(altered(table, format!("its column {more} is not one of leasehold's")));
        }
    }
    Ok(())
}

/// The number of digits of the timeline at the start of the name of a log segment.
const TIMELINE_DIGITS: usize = 8;

/// The lineage, from the row of `meta.sql`; `None` on a replica, which does not know the newest segment of its log.
fn lineage(meta: &Row) -> Result<Option<Lineage>, Failed> {
    let (Ok(version), Ok(lineage)) = (meta.try_get::<_, i32>(0), meta.try_get::<_, &str>(1)) else {
        return Err(foreign());
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
    let is_replica: bool = meta.try_get(4).map_err(|_| foreign())?;
    let encoding = text(meta, 5)?.unwrap_or_default();
    if encoding != "UTF8" {
        return Err(Failed::new(
            Fault::Misconfigured,
            format!(
                "its encoding is {encoding}, which cannot hold every name: use a database with the encoding UTF8"
            ),
        ));
    }
    let tables = u128::from_str_radix(lineage, 16).map_err(|_| foreign())?;
    // Another server with a copy of the tables, or this server after a promotion and a return, has a new lineage: it
    // consists of the id of the tables, of the server, and of the timeline (the first 8 digits of a log segment's
    // name).
    let server = u128::from(system.parse::<u64>().unwrap_or(0)) << 32
        | u128::from(u32::from_str_radix(timeline.get(..TIMELINE_DIGITS).unwrap_or("0"), 16).unwrap_or(0));
    Ok((!is_replica).then(|| Lineage::new(tables ^ server)))
}
