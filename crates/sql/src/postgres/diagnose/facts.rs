//! What a server says of itself and of the user.

use leasehold_core::Fault;

use super::ask::Asker;
use crate::{database::Failed, diagnose::ClockReading, postgres::rows::column, runtime};

/// Reads the facts. A user may see the numbers of all sessions, and what other users do only with the rights of
/// `pg_read_all_stats`. Settings that a version does not have are null.
const FACTS: &str = "SELECT current_setting('server_version'), current_setting('server_version_num')::int4, \
    pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on', pg_backend_pid(), \
    (extract(epoch FROM clock_timestamp()) * 1000000)::int8, quote_ident(current_user), \
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), \
    (SELECT setting::int8 FROM pg_settings WHERE name = 'idle_session_timeout'), \
    concat((SELECT system_identifier FROM pg_control_system()), ' ', \
        (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8), \
    current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on'";

/// The facts of one server.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) version: String,
    pub(super) version_number: i32,
    pub(super) in_recovery: bool,
    /// Whether transactions only read unless they say otherwise.
    pub(super) reads_only: bool,
    /// The process that served the request.
    pub(super) process: i32,
    /// The process that was announced at the login.
    pub(super) announced_process: Option<i32>,
    pub(super) clock: ClockReading,
    /// The user, as a `GRANT` names it.
    pub(super) user: String,
    /// Whether the user may see what the sessions of other users do.
    pub(super) sees_others: bool,
    /// After how many milliseconds the server ends an idle session; zero: never.
    pub(super) idle_session_millis: Option<i64>,
    /// Distinguishes the server from others, and from its earlier starts.
    pub(super) identity: String,
    pub(super) has_autovacuum: bool,
}

impl Facts {
    pub(super) async fn read(asker: &Asker) -> Result<Self, Failed> {
        let sent = runtime::wall_micros();
        let rows = asker.ask(FACTS, &[]).await?;
        let received = runtime::wall_micros();
        let row = rows.first().ok_or_else(|| Failed::new(Fault::Internal, "the server returned no row"))?;
        let text = |index| column::<&str>(row, index).map(str::to_owned);
        Ok(Self {
            version: text(0)?,
            version_number: column(row, 1)?,
            in_recovery: column(row, 2)?,
            reads_only: column(row, 3)?,
            process: column(row, 4)?,
            announced_process: asker.announced_process,
            clock: ClockReading { sent, server: column(row, 5)?, received },
            user: text(6)?,
            sees_others: column(row, 7)?,
            idle_session_millis: column(row, 8)?,
            identity: text(9)?,
            has_autovacuum: column(row, 10)?,
        })
    }

    /// How the user gets the right to see what the sessions of others do; `None` if it has that right.
    pub(super) fn grant_to_see(&self) -> Option<String> {
        (!self.sees_others).then(|| format!("let a superuser run: GRANT pg_read_all_stats TO {}", self.user))
    }
}
