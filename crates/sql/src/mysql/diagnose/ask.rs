//! One connection that asks questions.

use leasehold_core::{Fault, Instant};
use mysql_async::Row;

use crate::{
    database::Failed,
    mysql::{
        config::Config,
        conn::{Conn, ResultSet},
        error::{Commits, ExecuteError},
    },
};

/// Where a statement was executed: which server, and which of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The host, port and number of the server.
    pub(super) server: String,
    /// The number of the connection on that server.
    pub(super) connection: String,
}

/// A connection to the server.
pub(super) struct Asker(Conn);

impl Asker {
    pub(super) async fn connect(config: &Config) -> Result<Self, Failed> {
        // The connection is used once, so when it answered last does not matter.
        let (conn, _) =
            Conn::within_dial_limit(config, Conn::connect(config, Instant::from_nanos(0))).await?;
        Ok(Self(conn))
    }

    /// Executes statements that change nothing.
    pub(super) async fn run(&mut self, text: &str) -> Result<Vec<ResultSet>, Failed> {
        self.try_run(text).await.map_err(|error| error.classify(Commits::Never))
    }

    /// The same, with the error of the server.
    pub(super) async fn try_run(&mut self, text: &str) -> Result<Vec<ResultSet>, ExecuteError> {
        self.0.execute(text).await
    }

    /// The rows of one statement, with each column as a text; null as an empty one.
    pub(super) async fn texts(&mut self, text: &str) -> Result<Vec<Vec<String>>, Failed> {
        let rows = self.run(text).await?.into_iter().flat_map(|set| set.rows);
        rows.map(|row| columns(&row)).collect()
    }

    /// The rows of one statement with two columns.
    pub(super) async fn pairs(&mut self, text: &str) -> Result<Vec<(String, String)>, Failed> {
        let pair = |row: Vec<String>| {
            let mut columns = row.into_iter();
            (columns.next().unwrap_or_default(), columns.next().unwrap_or_default())
        };
        Ok(self.texts(text).await?.into_iter().map(pair).collect())
    }

    /// The first column of the first row.
    pub(super) async fn text(&mut self, text: &str) -> Result<String, Failed> {
        Ok(self.pairs(text).await?.into_iter().next().map(|(first, _)| first).unwrap_or_default())
    }

    /// The same as a number.
    pub(super) async fn number(&mut self, text: &str) -> Result<i64, Failed> {
        let digits = self.text(text).await?;
        digits.parse().map_err(|_| Failed::new(Fault::Internal, "the server returned no number"))
    }

    /// The user, as a `GRANT` names it.
    pub(super) async fn user(&mut self) -> Result<String, Failed> {
        let user = self.text("SELECT CURRENT_USER()").await?;
        let (name, host) = user.rsplit_once('@').unwrap_or((&user, "%"));
        Ok(format!("`{}`@`{}`", name.replace('`', "``"), host.replace('`', "``")))
    }

    /// Where a statement is executed. A proxy that routes by statement looks at each alone, so this is one statement.
    pub(super) async fn place(&mut self) -> Result<Place, Failed> {
        let (server, connection) = self
            .pairs("SELECT CONCAT_WS(' ', @@hostname, @@port, @@server_id), CONNECTION_ID()")
            .await?
            .into_iter()
            .next()
            .ok_or_else(|| Failed::new(Fault::Internal, "the server returned no row"))?;
        Ok(Place { server, connection })
    }
}

/// The columns of a row as texts.
fn columns(row: &Row) -> Result<Vec<String>, Failed> {
    let text = |index| {
        let value = row.get_opt::<Option<String>, _>(index).and_then(Result::ok);
        let unreadable = || Failed::new(Fault::Internal, "a column of its answer is no text");
        value.map(Option::unwrap_or_default).ok_or_else(unreadable)
    };
    (0..row.len()).map(text).collect()
}
