//! A connection to PostgreSQL, MySQL or MariaDB, for statements that all of them understand. Values are part of the
//! text of a statement, because the scenarios insert only words of their own.

use leasehold::sql::{Dialect, FenceStatement};
use mysql_async::{Conn, Opts, OptsBuilder, prelude::Queryable};
use tokio_postgres::{Client, NoTls, error::SqlState};

use crate::Failure;

/// The errors of MySQL for a row that exists already, and for one that others insert or delete at the same moment.
const ROW_IN_USE: [u16; 2] = [1062, 1213];

/// A connection to a database.
pub enum Sql {
    /// To PostgreSQL.
    Postgres(Client),
    /// To MySQL or MariaDB.
    Mysql(Conn),
}

impl Sql {
    /// Connects to the database of a URL.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn connect(url: &str) -> Result<Self, Failure> {
        if url.starts_with("postgres") {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            return Ok(Self::Postgres(client));
        }
        // A fence counts the rows that it found. Without this option the server counts the rows that changed.
        let options =
            OptsBuilder::from_opts(Opts::from_url(url)?).client_found_rows(true).prefer_socket(false);
        Ok(Self::Mysql(Conn::new(options).await?))
    }

    /// Runs one statement, and returns how many rows it concerns.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn execute(&mut self, statement: &str) -> Result<u64, Failure> {
        match self {
            Self::Postgres(client) => Ok(client.execute(statement, &[]).await?),
            Self::Mysql(conn) => {
                conn.query_drop(statement).await?;
                Ok(conn.affected_rows())
            }
        }
    }

    /// Runs a statement of a fence, and returns how many rows it concerns.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn execute_fenced(&mut self, statement: &FenceStatement) -> Result<u64, Failure> {
        match self {
            Self::Postgres(client) => Ok(client.execute(&statement.text, &[&statement.token]).await?),
            Self::Mysql(conn) => {
                conn.exec_drop(&statement.text, (statement.token,)).await?;
                Ok(conn.affected_rows())
            }
        }
    }

    /// The system of the database.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        match self {
            Self::Postgres(_) => Dialect::Postgres,
            Self::Mysql(_) => Dialect::Mysql,
        }
    }

    /// Inserts a row. Returns false if it is there already.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn inserts(&mut self, statement: &str) -> Result<bool, Failure> {
        match self.execute(statement).await {
            Ok(_) => Ok(true),
            Err(error) if is_in_use(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The number that a query finds.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn number(&mut self, query: &str) -> Result<usize, Failure> {
        let number: i64 = match self {
            Self::Postgres(client) => client.query_one(query, &[]).await?.try_get(0)?,
            Self::Mysql(conn) => conn.query_first(query).await?.ok_or("no row")?,
        };
        Ok(usize::try_from(number)?)
    }
}

fn is_in_use(error: &Failure) -> bool {
    let in_postgres = |error: &tokio_postgres::Error| error.code() == Some(&SqlState::UNIQUE_VIOLATION);
    let in_mysql = |error: &mysql_async::Error| matches!(error, mysql_async::Error::Server(answer) if ROW_IN_USE.contains(&answer.code));
    error.downcast_ref().is_some_and(in_postgres) || error.downcast_ref().is_some_and(in_mysql)
}
