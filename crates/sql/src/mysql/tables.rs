//! Finds the tables of a connection, identifies them and their server, and creates missing ones.

use leasehold_core::{Fault, Lineage};

use super::{
    SCHEMA,
    conn::Conn,
    database::SLOTS_ASKED,
    definitions::Definitions,
    error::{Broke, Commits},
    rows::slots,
    server::Server,
    statements::{DEFINITIONS, META, SERVER, SESSION, SLOTS},
};
use crate::{
    database::{Absent, Failed},
    slots::Slots,
};

/// The version of the tables.
const VERSION: i32 = 1;
const REMEDY: &str = "let a user who may create tables run the output of `leasehold schema`";

/// The tables that a new connection leads to.
pub(super) struct Known {
    pub(super) lineage: Lineage,
    /// Whether the server is read-only: then the tables are only inspected.
    pub(super) is_replica: bool,
    /// Whether the server ends abandoned transactions.
    pub(super) ends_idle_transactions: bool,
    /// How many connections the server had left.
    pub(super) slots: Option<Slots>,
}

/// Sets the connection up, and finds the tables; creates missing ones if `absent` says so.
pub(super) async fn known(conn: &mut Conn, absent: Absent) -> Result<Option<Known>, Failed> {
    let text = [&SESSION, &SERVER, &DEFINITIONS, &SLOTS].map(|sql| sql.bare()).join("; ");
    let mut sets = conn.execute(&text).await.map_err(|broke| broke.sort(Commits::Never))?;
    let slots = slots(&sets.split_off(sets.len().saturating_sub(SLOTS_ASKED)));
    let mut definitions = Definitions::read(&sets.split_off(sets.len().saturating_sub(Definitions::ASKED)))?;
    let server = Server::read(sets);
    let is_replica = match (server.writable(), absent) {
        (Err(failed), Absent::Create) => return Err(failed),
        (writable, _) => writable.is_err(),
    };
    if !definitions.is_there() {
        // A user without the right to see the table gets an error that says so.
        match conn.execute(META.bare()).await {
            Err(broke) if broke.is_no_table() && absent == Absent::Leave => return Ok(None),
            Err(broke) if broke.is_no_table() => create(conn).await?,
            Err(broke) => return Err(other(&broke)),
            Ok(_) => {}
        }
        let sets = conn.execute(DEFINITIONS.bare()).await.map_err(|broke| broke.sort(Commits::Never))?;
        definitions = Definitions::read(&sets)?;
    }
    // Reading a view would execute code of another user.
    definitions.check_trust()?;
    let mut found = row(conn).await?;
    if found.is_none() {
        // The client that creates the tables has not inserted their row yet, or was killed before.
        definitions.check_columns()?;
        if absent == Absent::Leave {
            return Ok(None);
        }
        create(conn).await?;
        found = row(conn).await?;
    }
    let found = found.ok_or_else(foreign)?;
    let (version, lineage) = mysql_async::from_row_opt::<(i32, String)>(found).map_err(|_| foreign())?;
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
    Ok(Some(Known { lineage, is_replica, ends_idle_transactions: server.ends_idle_transactions(), slots }))
}

/// The row that identifies the tables.
async fn row(conn: &mut Conn) -> Result<Option<mysql_async::Row>, Failed> {
    let found = conn.execute(META.bare()).await.map_err(|broke| other(&broke))?;
    Ok(found.into_iter().flat_map(|set| set.rows).next())
}

/// Creates the tables. Several clients may do so at once: each statement does nothing where another client was first.
async fn create(conn: &mut Conn) -> Result<(), Failed> {
    conn.execute(SCHEMA).await.map(drop).map_err(|broke| {
        let failed = broke.sort(Commits::Never);
        let fault = if failed.fault == Fault::Denied { Fault::Misconfigured } else { failed.fault };
        Failed::new(fault, format!("its tables do not exist, and creating them failed: {failed}; {REMEDY}"))
    })
}

fn other(broke: &Broke) -> Failed {
    if broke.is_no_column() {
        return foreign();
    }
    let failed = broke.sort(Commits::Never);
    if broke.is_hidden() {
        // The server does not tell a user without rights whether the table exists.
        let message = format!("{failed}; if its tables do not exist, {REMEDY}");
        return Failed::new(failed.fault, message);
    }
    failed
}

fn foreign() -> Failed {
    Failed::new(Fault::Misconfigured, "its table leasehold_meta was not made by leasehold")
}
