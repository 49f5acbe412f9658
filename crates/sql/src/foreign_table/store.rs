//! What the algorithm asks of a database: connections that execute a few steps in one round trip.

use leasehold_core::{BoxFuture, Contact, Diagnostic, Guarantee, Lineage};

use super::format::Format;
use crate::database::Failed;

/// The kind of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Postgres,
    Mysql,
}

/// A statement, with a `?` in place of each value. All values are texts. A `?` in a quoted name is part of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    pub(crate) values: Vec<String>,
}

impl Statement {
    pub(crate) fn new(sql: impl Into<String>, values: impl IntoIterator<Item = String>) -> Self {
        Self { sql: sql.into(), values: values.into_iter().collect() }
    }

    /// The text, with each `?` replaced by what `placed` makes of its number and value.
    pub(crate) fn text(&self, placed: impl Fn(usize, &str) -> String) -> String {
        let (mut text, mut quote, mut values) = (String::new(), None, self.values.iter().enumerate());
        for c in self.sql.chars() {
            match c {
                '?' if quote.is_none() => {
                    let (index, value) = values.next().map_or((0, ""), |(index, value)| (index, value));
                    text += &placed(index, value);
                    continue;
                }
                // A quote in a quoted name is doubled, so it ends the name and begins it again.
                c if quote == Some(c) => quote = None,
                '"' | '`' | '\'' if quote.is_none() => quote = Some(c),
                _ => {}
            }
            text.push(c);
        }
        text
    }
}

/// One step of a request.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Begins a transaction that may write, at READ COMMITTED, so that each statement sees what was committed before it
    /// began. It has time limits, also for a client that vanishes in the middle.
    Begin,
    /// Begins a transaction that only reads; works on a replica.
    BeginReading,
    /// A statement. Its rows belong to the result of the request.
    Run(Statement),
    Commit,
    Rollback,
}

/// The rows of one statement: the columns as texts.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

/// One connection. Dropping it closes it, and the server rolls back what was not committed.
pub(crate) trait Connection: Send {
    /// Executes steps in one round trip, in order; after an error none of the later steps has an effect. Returns the
    /// rows of each [`Step::Run`].
    ///
    /// # Errors
    /// [`Fault::Unknown`](leasehold_core::Fault::Unknown) only if the steps contain a commit, which was possibly
    /// executed. After an error the connection must be dropped.
    fn run<'a>(&'a mut self, steps: &'a [Step]) -> BoxFuture<'a, Result<Vec<Rows>, Failed>>;

    /// How the table stores locks.
    fn format(&self) -> &Format;

    /// The lineage of the tokens that this connection mints, from the column [`Format::server`] of an answer.
    fn lineage(&self, server: &str) -> Lineage;

    /// The lineage for operators; `None` on a replica.
    fn shown_lineage(&self) -> Option<Lineage>;

    fn is_closed(&self) -> bool;

    /// The guarantee of the server, as it is configured.
    fn guarantee(&mut self) -> BoxFuture<'_, Result<Guarantee, Failed>>;
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Locks: a missing table is created if the URL says so, and a read-only server is refused.
    Lock,
    /// Only looks: nothing is created, and the server may be a replica.
    Look,
}

/// Makes connections.
pub(crate) trait Connector: Send + Sync + 'static {
    /// Connects, and finds the table.
    fn open(&self, access: Access) -> BoxFuture<'_, Result<Box<dyn Connection>, Failed>>;

    fn contact(&self) -> &Contact;

    /// What an operator should know of the server and the table beside the guarantee. Changes nothing.
    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, Failed>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_take_the_places_of_the_question_marks_in_order() {
        let statement = Statement::new("a = ? AND b = ?", ["x?".to_owned(), "y".to_owned()]);
        assert_eq!(statement.text(|index, _| format!("${}", index + 1)), "a = $1 AND b = $2");
        assert_eq!(statement.text(|_, value| format!("'{value}'")), "a = 'x?' AND b = 'y'");
        let statement = Statement::new("`a?``?` = ? AND \"`?\" = ?", ["x".to_owned(), "y".to_owned()]);
        assert_eq!(statement.text(|_, value| value.to_owned()), "`a?``?` = x AND \"`?\" = y");
    }
}
