//! Looks at the tables and transactions of a server.

use std::time::Duration;

use leasehold_core::{Diagnostic, Severity};

use super::{ask::Asker, ids};
use crate::{
    database::Failed,
    diagnose::{OldTransaction, TableRights, oldest_transaction, rights},
    mysql::error::{Commits, ExecuteError},
};

/// The time limit for the lock of a table, in seconds: another session that keeps it longer is told.
const LOCK_LIMIT: &str =
    "SET SESSION lock_wait_timeout = 1, SESSION innodb_lock_wait_timeout = 1, SESSION autocommit = 1";
/// The oldest transaction: session, user, its age in seconds. The times of
/// InnoDB are in the zone of the system.
const TRANSACTIONS: &str = "SELECT trx.trx_mysql_thread_id, COALESCE(process.user, '?'), \
    TIMESTAMPDIFF(SECOND, trx.trx_started, NOW()) FROM information_schema.innodb_trx AS trx \
    LEFT JOIN information_schema.processlist AS process ON process.id = trx.trx_mysql_thread_id \
    WHERE trx.trx_mysql_thread_id <> CONNECTION_ID() ORDER BY trx.trx_started LIMIT 1";

/// A right on a table, and a statement that needs it. The server explains the statement and does not execute it.
pub(super) struct Right {
    name: &'static str,
    /// The statement, with `?` in place of the table.
    statement: &'static str,
}

const SELECT: Right = Right { name: "SELECT", statement: "EXPLAIN SELECT 1 FROM ? WHERE 1 = 0" };
const INSERT: Right = Right { name: "INSERT", statement: "EXPLAIN INSERT INTO ? VALUES ()" };
const UPDATE: Right = Right { name: "UPDATE", statement: "EXPLAIN UPDATE ? SET name = '' WHERE 1 = 0" };
const DELETE: Right = Right { name: "DELETE", statement: "EXPLAIN DELETE FROM ? WHERE 1 = 0" };
/// All rights that locks in tables need.
pub(super) const ALL: &[Right] = &[SELECT, INSERT, UPDATE, DELETE];
/// The rights to hold rows that exist.
pub(super) const TO_HOLD_ROWS: &[Right] = &[SELECT, UPDATE];
/// The rights to hold rows, and to create them.
pub(super) const TO_CREATE_ROWS: &[Right] = &[SELECT, UPDATE, INSERT];

/// The tables of leasehold on which all rights are needed. To read `leasehold_meta` is tried when tables are looked up.
pub(super) fn of_leasehold() -> Vec<String> {
    ["leasehold_lock", "leasehold_claim"].map(str::to_owned).to_vec()
}

/// The oldest transaction of another session.
pub(super) async fn transactions(asker: &mut Asker, user: &str) -> Result<Diagnostic, Failed> {
    let id = ids::ID_TRANSACTIONS;
    asker.run("SET SESSION time_zone = 'SYSTEM'").await?;
    let rows = match asker.try_run(TRANSACTIONS).await {
        Ok(_) => asker.texts(TRANSACTIONS).await?,
        Err(ExecuteError::ServerError { .. }) => {
            let grant = format!("let an administrator run: GRANT PROCESS ON *.* TO {user}");
            return Ok(oldest_transaction(id, None, Some(grant)));
        }
        Err(error) => return Err(error.classify(Commits::Never)),
    };
    let oldest = rows.first().map(|row| {
        let text = |index: usize| row.get(index).map_or("", String::as_str);
        OldTransaction {
            who: format!("the session with id {} of {}", text(0), text(1)),
            age: Duration::from_secs(text(2).parse().unwrap_or(0)),
        }
    });
    Ok(oldest_transaction(id, oldest.as_ref(), None))
}

/// The rights on these tables, and whether another session keeps one of them locked.
pub(super) async fn look_at(
    asker: &mut Asker,
    user: &str,
    tables: &[String],
    wanted: &[Right],
) -> Result<Vec<Diagnostic>, Failed> {
    asker.run(LOCK_LIMIT).await?;
    let (mut lacking, mut locked) = (Vec::new(), None);
    for table in tables {
        // Locks no row, and waits for the lock of a table as a claim does. It needs no more rights than a claim.
        let tried = asker.try_run(&format!("SELECT 1 FROM {table} WHERE 1 = 0 FOR UPDATE")).await;
        match tried {
            Err(error) if error.is_missing_table() => return Ok(Vec::new()),
            Err(error) if error.is_lock_timeout() => {
                locked.get_or_insert(table);
                continue;
            }
            _ => {}
        }
        let mut missing = Vec::new();
        for right in wanted {
            let explained = asker.try_run(&right.statement.replace('?', table)).await;
            missing.extend(explained.is_err_and(|error| error.is_table_denied()).then_some(right.name));
        }
        lacking.push(TableRights { table: table.clone(), missing });
    }
    let mut told = vec![match locked {
        None => Diagnostic::good(ids::ID_TABLE_LOCKS, "no other session keeps the tables of locks locked"),
        Some(table) => Diagnostic::new(
            ids::ID_TABLE_LOCKS,
            Severity::Warning,
            format!("another session keeps the table {table} locked for more than a second"),
            "find it by SHOW FULL PROCESSLIST, and end it: renewals fail while it lasts, so holds are lost when it lasts \
             longer than their ttl",
        ),
    }];
    if locked.is_none() {
        told.push(rights(ids::ID_RIGHTS, user, &lacking));
    }
    Ok(told)
}
