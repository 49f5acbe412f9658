//! One connection that asks questions, each in a transaction of its own, which writes nothing.

use std::{future::poll_fn, time::Duration};

use tokio_postgres::{
    Client, Row,
    config::Host,
    types::{ToSql, Type},
};

use crate::{
    database::Failed,
    postgres::{
        dial::{Dialed, dial_host},
        error::{Stage, classify},
        server::Server,
        session::check_not_shared,
        stream::Cover,
    },
    runtime,
};

/// Begins a transaction that only reads, with time limits. The limits belong to the transaction, because a pooler may
/// give the next one to another session.
const BEGIN: &str = "BEGIN READ ONLY; SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '5s'; \
    SET LOCAL idle_in_transaction_session_timeout = '5s'";
/// The same, with functions and operators of the system only.
const BEGIN_RESTRICTED: &str = "BEGIN READ ONLY; SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '5s'; \
    SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL search_path = pg_catalog, pg_temp";

/// The parameters of a question, with their types.
pub(super) type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// A connection to one server.
pub(super) struct Asker {
    client: Client,
    /// The number of the process that the other side announced at the login.
    pub(super) announced_process: Option<i32>,
    pub(super) cover: Cover,
}

impl Asker {
    /// Connects with the login of the URL, and without settings: so it also works behind a pooler, and the settings of
    /// the session are the defaults of the user.
    pub(super) async fn dial(
        server: &Server,
        host: &Host,
        port: u16,
        limit: Duration,
    ) -> Result<Self, Failed> {
        let Dialed { client, mut connection, announced_process, cover, .. } =
            dial_host(server, host, port, limit).await?;
        runtime::spawn(async move {
            while let Some(Ok(_)) = poll_fn(|context| connection.poll_message(context)).await {}
        });
        Ok(Self { client, announced_process, cover })
    }

    /// Asks by functions and tables of the system.
    pub(super) async fn ask(&self, text: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Failed> {
        self.in_transaction(BEGIN_RESTRICTED, text, parameters).await
    }

    /// Asks with the search path of the user. The text must name the schema of everything that it uses.
    pub(super) async fn ask_by_user_path(
        &self,
        text: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Failed> {
        self.in_transaction(BEGIN, text, parameters).await
    }

    /// Fails as misconfigured if the pooler between this connection and the server gives one session of the server to
    /// several clients. `process` is the process of the server that served this connection.
    pub(super) async fn check_not_shared(&self, process: i32, second: &Self) -> Result<(), Failed> {
        let checked = check_not_shared((&self.client, process), &second.client).await;
        if checked.is_err() {
            // The check may have left a transaction open. If this fails, the next question fails, too.
            let _ = self.client.batch_execute("ROLLBACK").await;
        }
        checked
    }

    async fn in_transaction(
        &self,
        begin: &str,
        text: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Failed> {
        // After an error of the question the last statement rolls back.
        let (begun, rows, ended) = tokio::join!(
            biased;
            self.client.batch_execute(begin), self.client.query_typed(text, parameters),
            self.client.batch_execute("COMMIT")
        );
        let failed = |error| classify(&error, Stage::BeforeCommit);
        begun.map_err(failed)?;
        let rows = rows.map_err(failed)?;
        ended.map(|()| rows).map_err(failed)
    }
}
