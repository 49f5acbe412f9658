//! The tables: which ones they are, of which server, and that they are there.

use leasehold_core::{Fault, Lineage};
use mysql_async::Row;

use super::{
    SCHEMA,
    conn::Conn,
    error::{Broke, Commits},
    server::Server,
    statements::{META, SERVER, SESSION},
};
use crate::database::Failed;

/// The version of the tables.
const VERSION: i32 = 1;
const MAKE: &str = "let somebody who may run what `leasehold schema` prints";

/// What a new connection leads to.
pub(super) struct Known {
    pub(super) lineage: Lineage,
    /// Whether the server ends transactions that nobody goes on with.
    pub(super) watched: bool,
}

/// Sets the connection up, and makes the tables if they are not there.
pub(super) async fn known(conn: &mut Conn) -> Result<Known, Failed> {
    let text = format!("{}; {}; {}", SESSION.bare(), SERVER.bare(), META.bare());
    let (server, found) = match conn.say(&text).await {
        Err(broke) if broke.is_no_table() => (server(conn).await?, None),
        Ok(mut sets) => {
            let meta = sets.pop().and_then(|set| set.rows.into_iter().next());
            let server = Server::read(sets.split_off(sets.len().saturating_sub(2)));
            server.writable()?;
            (server, meta)
        }
        Err(broke) => return Err(other(&broke)),
    };
    let found = match found {
        Some(found) => found,
        None => made(conn).await?,
    };
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
    let tables = u128::from_str_radix(&lineage, 16).map_err(|_| foreign())?;
    Ok(Known { lineage: Lineage::new(tables ^ server.identity()), watched: server.ends_idle_transactions() })
}

async fn server(conn: &mut Conn) -> Result<Server, Failed> {
    let sets = conn.say(SERVER.bare()).await.map_err(|broke| broke.sort(Commits::Never))?;
    let server = Server::read(sets);
    server.writable()?;
    Ok(server)
}

/// Makes the tables. Several clients may do so at once: each statement does nothing where another was first.
async fn made(conn: &mut Conn) -> Result<Row, Failed> {
    conn.say(SCHEMA).await.map_err(|broke| {
        let failed = broke.sort(Commits::Never);
        let fault = if failed.fault == Fault::Denied { Fault::Misconfigured } else { failed.fault };
        Failed::new(fault, format!("its tables are not there, and making them failed: {failed}; {MAKE}"))
    })?;
    let sets = conn.say(META.bare()).await.map_err(|broke| other(&broke))?;
    sets.into_iter().flat_map(|set| set.rows).next().ok_or_else(foreign)
}

fn other(broke: &Broke) -> Failed {
    if broke.is_no_column() {
        return foreign();
    }
    let failed = broke.sort(Commits::Never);
    if broke.is_hidden() {
        // Who may see nothing is not told whether there is anything.
        let message = format!("{failed}; if its tables are not there, {MAKE}");
        return Failed::new(failed.fault, message);
    }
    failed
}

fn foreign() -> Failed {
    Failed::new(Fault::Misconfigured, "its table leasehold_meta was not made by leasehold")
}
