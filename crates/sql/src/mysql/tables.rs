//! Finds the tables of a connection, identifies them and their server, and creates missing ones.

use leasehold_core::{Fault, Lineage};

use super::{
    MEMO_SCHEMA, SCHEMA,
    conn::Conn,
    database::SLOTS_STATEMENTS,
    definitions::Definitions,
    error::{Commits, ExecuteError},
    rows::connection_slots,
    server::Server,
    statements::{DEFINITIONS, META, SERVER, SESSION, SLOTS},
};
use crate::{
    connection_slots::ConnectionSlots,
    database::{Failed, MissingTables},
};

/// The version of the tables.
const VERSION: i32 = 1;
/// The advice to a user who has no right to create tables.
const REMEDY: &str = "let a user who may create tables run the output of `leasehold schema`";

/// The tables that a new connection leads to.
pub(super) struct FoundTables {
    pub(super) lineage: Lineage,
    /// Whether the server is read-only: then the tables are only inspected.
    pub(super) is_replica: bool,
    /// Whether the table of memos was found and checked.
    pub(super) has_memos: bool,
    /// Whether the server ends abandoned transactions.
    pub(super) ends_idle_transactions: bool,
    /// The connection slots of the server when the connection was opened.
    pub(super) slots: Option<ConnectionSlots>,
}

/// Sets up the connection, and finds the tables; creates missing tables if `missing_tables` says so. `None` if there
/// are no tables and none are to be created.
pub(super) async fn find_tables(
    conn: &mut Conn,
    missing_tables: MissingTables,
) -> Result<Option<FoundTables>, Failed> {
    let text = [&SESSION, &SERVER, &DEFINITIONS, &SLOTS].map(|sql| sql.statements()).join("; ");
    let mut sets =
        conn.execute(&text).await.map_err(|execute_error| execute_error.classify(Commits::Never))?;
    let slots = connection_slots(&sets.split_off(sets.len().saturating_sub(SLOTS_STATEMENTS)));
    let mut definitions =
        Definitions::read(&sets.split_off(sets.len().saturating_sub(Definitions::STATEMENTS)))?;
    let server = Server::read(sets);
    let is_replica = match (server.check_writable(), missing_tables) {
        (Err(failed), MissingTables::Create) => return Err(failed),
        (writable, _) => writable.is_err(),
    };
    if !definitions.has_meta() {
        // Reads the table, so that a user without the right to see it gets an error that says so.
        match conn.execute(META.statements()).await {
            Err(execute_error)
                if execute_error.is_missing_table() && missing_tables == MissingTables::Leave =>
            {
                return Ok(None);
            }
            Err(execute_error) if execute_error.is_missing_table() => create(conn).await?,
            Err(execute_error) => return Err(classify_table_error(&execute_error)),
            Ok(_) => {}
        }
        let sets = conn
            .execute(DEFINITIONS.statements())
            .await
            .map_err(|execute_error| execute_error.classify(Commits::Never))?;
        definitions = Definitions::read(&sets)?;
    }
    let memos = definitions.take_memos();
    // Reading a view would execute code of another user.
    definitions.check_trust()?;
    let mut meta = meta_row(conn).await?;
    if meta.is_none() {
        // The client that creates the tables has not inserted the row yet, or was killed before it could.
        definitions.check_columns()?;
        if missing_tables == MissingTables::Leave {
            return Ok(None);
        }
        create(conn).await?;
        meta = meta_row(conn).await?;
    }
    let meta = meta.ok_or_else(foreign)?;
    let (version, lineage) = mysql_async::from_row_opt::<(i32, String)>(meta).map_err(|_| foreign())?;
    if version != VERSION {
        return Err(Failed::new(
            Fault::Misconfigured,
            format!(
                "its tables have version {version} and this leasehold knows version {VERSION}: use the same version of leasehold \
                 everywhere"
            ),
        ));
    }
    definitions.check_columns()?;
    let tables = u128::from_str_radix(&lineage, 16).map_err(|_| foreign())?;
    let lineage = Lineage::new(tables ^ server.identity());
    Ok(Some(FoundTables {
        lineage,
        is_replica,
        // An unusable table of memos stops no lock: other users may have created it. The requests for memos report it.
        has_memos: memos.check_memos().unwrap_or(false),
        ends_idle_transactions: server.ends_idle_transactions(),
        slots,
    }))
}

/// Whether the table of memos exists; creates it if `missing_tables` says so. Must not be called in a transaction.
pub(super) async fn find_memos(conn: &mut Conn, missing_tables: MissingTables) -> Result<bool, Failed> {
    let found = look_for_memos(conn).await?;
    if found || missing_tables == MissingTables::Leave {
        return Ok(found);
    }
    // Without the other tables: the rights to lock do not suffice to create them again.
    let created = conn.execute(MEMO_SCHEMA).await.map(drop);
    // Another client, of another user, may have created it at the same time.
    if look_for_memos(conn).await? {
        return Ok(true);
    }
    let what = "its table leasehold_memo does not exist, and creating it";
    created.map_err(|execute_error| creation_error(what, &execute_error)).map(|()| false)
}

/// Whether the table of memos exists. Fails if it is not as leasehold makes it.
async fn look_for_memos(conn: &mut Conn) -> Result<bool, Failed> {
    let sets = conn.execute(DEFINITIONS.statements()).await;
    let sets = sets.map_err(|execute_error| execute_error.classify(Commits::Never))?;
    Definitions::read(&sets)?.take_memos().check_memos()
}

/// The row that identifies the tables.
async fn meta_row(conn: &mut Conn) -> Result<Option<mysql_async::Row>, Failed> {
    let sets = conn
        .execute(META.statements())
        .await
        .map_err(|execute_error| classify_table_error(&execute_error))?;
    Ok(sets.into_iter().flat_map(|set| set.rows).next())
}

/// Creates the tables. Several clients can do so at the same time: each statement does nothing if another client has
/// already executed the same statement.
async fn create(conn: &mut Conn) -> Result<(), Failed> {
    let what = "its tables do not exist, and creating them";
    conn.execute(SCHEMA).await.map(drop).map_err(|execute_error| creation_error(what, &execute_error))
}

/// The error for tables that could not be created.
fn creation_error(what: &str, execute_error: &ExecuteError) -> Failed {
    let failed = execute_error.classify(Commits::Never);
    let fault = if failed.fault == Fault::Denied { Fault::Misconfigured } else { failed.fault };
    Failed::new(fault, format!("{what} failed: {failed}; {REMEDY}"))
}

/// The error for a failed read of `leasehold_meta`.
fn classify_table_error(execute_error: &ExecuteError) -> Failed {
    if execute_error.is_missing_column() {
        return foreign();
    }
    let failed = execute_error.classify(Commits::Never);
    if execute_error.is_table_denied() {
        // The server does not tell a user without rights whether the table exists.
        let message = format!("{failed}; if its tables do not exist, {REMEDY}");
        return Failed::new(failed.fault, message);
    }
    failed
}

/// The error for a table `leasehold_meta` that another program made.
fn foreign() -> Failed {
    Failed::new(Fault::Misconfigured, "its table leasehold_meta was not made by leasehold")
}
