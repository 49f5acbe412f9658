//! The diagnostics of MySQL and MariaDB: what an operator should know of the server, of the path to it, and of the
//! rights of the user. They use a connection of their own, with the login of the URL, and change nothing.

mod ask;
pub(crate) mod ids;
mod judge;
mod tables;

use leasehold_core::{Diagnostic, Severity};
use tokio::net::lookup_host;

pub(super) use self::judge::split_option;
use self::{
    ask::{Asker, Place},
    judge::{Encrypted, Path},
};
use super::{
    config::Config,
    guarantee::replicas,
    pool::Pool,
    rows::connection_slots,
    server::Server,
    statements::{REPLICAS, SERVER, SESSION, SLOTS},
};
use crate::{database::Failed, diagnose, runtime};

/// What the locks are, for which the server is looked at.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// Rows in tables of leasehold.
    Tables,
    /// Locks of a session (`GET_LOCK`).
    Sessions,
    /// Rows in a table of another program, by its quoted name.
    ForeignTable(String),
    /// Rows in such a table that a transaction keeps locked. Whether rows are created.
    RowHolds(String, bool),
}

/// Reads the clock of the server, in microseconds since 1970.
const CLOCK: &str = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";
/// Reads the cipher of the connection; empty without encryption.
const CIPHER: &str = "SHOW SESSION STATUS LIKE 'Ssl_cipher'";
/// Reads when the certificate of the server expires, as a text of OpenSSL.
#[cfg(feature = "tls")]
const CERTIFICATE_END: &str = "SHOW SESSION STATUS LIKE 'Ssl_server_not_after'";
/// The timeout that the settings of a session set, and that is read back.
const WAIT_TIMEOUT: &str = "60";

/// Looks at every server of the URL, and at the tables of leasehold, by the connections of a client.
///
/// # Errors
/// That of the first server, if no server can be asked.
pub(super) async fn of_tables(pool: &Pool) -> Result<Vec<Diagnostic>, Failed> {
    let mut told = diagnose(pool.config(), &Subject::Tables).await?;
    told.push(diagnose::tables(ids::ID_TABLES, pool.has_tables().await.as_ref()));
    Ok(told)
}

/// Looks at the server of the URL.
///
/// # Errors
/// That of the server, if it cannot be asked.
pub(crate) async fn diagnose(config: &Config, subject: &Subject) -> Result<Vec<Diagnostic>, Failed> {
    let mut asker = Asker::connect(config).await?;
    // The clock is read alone: its answer must not wait for those of other statements.
    let sent = runtime::wall_micros();
    let server_clock = asker.number(CLOCK).await?;
    let clock = diagnose::ClockReading { sent, server: server_clock, received: runtime::wall_micros() };
    let server = Server::read(asker.run(&[SERVER.statements(), REPLICAS.statements()].join("; ")).await?);
    let user = asker.user().await?;
    let path = path(config, &mut asker).await?;
    let slots = asker.run(SLOTS.statements()).await;
    let mut told = vec![
        judge::version(&server),
        judge::role(&server),
        clock.judge(ids::ID_CLOCK),
        judge::cover(
            config.socket.is_some() || is_local(config).await,
            path.encrypted,
            diagnose::micros(clock.received),
        ),
        judge::path(&path),
        judge::replicas(replicas(&server), server.is_on("log_bin"), &user),
        diagnose::connections(ids::ID_CONNECTIONS, slots.ok().and_then(|sets| connection_slots(&sets))),
        or_unknown(ids::ID_TRANSACTIONS, tables::transactions(&mut asker, &user).await),
    ];
    told.extend(server.is_galera().then(|| judge::galera(&server)));
    let (named, rights): (Vec<String>, &[tables::Right]) = match subject {
        Subject::Sessions => return Ok(told),
        Subject::Tables => (tables::of_leasehold(), tables::ALL),
        Subject::ForeignTable(table) => (vec![table.clone()], tables::ALL),
        Subject::RowHolds(table, true) => (vec![table.clone()], tables::TO_CREATE_ROWS),
        Subject::RowHolds(table, false) => (vec![table.clone()], tables::TO_HOLD_ROWS),
    };
    told.extend(tables::look_at(&mut asker, &user, &named, rights).await?);
    Ok(told)
}

/// What is between this process and the server.
async fn path(config: &Config, asker: &mut Asker) -> Result<Path, Failed> {
    let outside = asker.place().await?;
    asker.run("START TRANSACTION").await?;
    let inside = asker.place().await;
    asker.run("ROLLBACK").await?;
    let inside: Place = inside?;
    asker.run(SESSION.statements()).await?;
    let keeps_settings = asker.text("SELECT @@session.wait_timeout").await? == WAIT_TIMEOUT;
    let encrypted = if config.socket.is_none() { encrypted(asker).await? } else { None };
    Ok(Path { outside, inside, keeps_settings, encrypted })
}

/// How the connection is encrypted; `None` if it is not.
async fn encrypted(asker: &mut Asker) -> Result<Option<Encrypted>, Failed> {
    let cipher = asker.pairs(CIPHER).await?;
    if cipher.first().is_none_or(|(_, cipher)| cipher.is_empty()) {
        return Ok(None);
    }
    #[cfg(feature = "tls")]
    let certificate_end = {
        let end = asker.pairs(CERTIFICATE_END).await?;
        end.first().and_then(|(_, end)| leasehold_tls::certificate_end_from_text(end))
    };
    // Only a proxy has encrypted it.
    #[cfg(not(feature = "tls"))]
    let certificate_end = None;
    Ok(Some(Encrypted { certificate_end }))
}

/// Whether the server is on this machine.
async fn is_local(config: &Config) -> bool {
    let addresses = lookup_host((config.endpoint.host.as_str(), config.endpoint.port)).await;
    addresses.is_ok_and(|mut found| found.all(|address| address.ip().to_canonical().is_loopback()))
}

/// The diagnostic, or that it could not be found out.
fn or_unknown(id: &'static str, diagnostic: Result<Diagnostic, Failed>) -> Diagnostic {
    diagnostic.unwrap_or_else(|failed| {
        Diagnostic::new(id, Severity::Unknown, format!("the server did not tell: {failed}"), "")
    })
}
