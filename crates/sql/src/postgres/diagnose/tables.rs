//! Looks at the tables, sessions and replicas of a server.

use std::time::Duration;

use leasehold_core::{Diagnostic, Severity};
use tokio_postgres::{Row, types::Type};

use super::{ask::Asker, facts::Facts, ids};
use crate::{
    database::Failed,
    diagnose::{self, OldTransaction, TableLock, TableRights, micros, oldest_transaction, table_lock},
    postgres::{
        config::Config,
        rows::{column, connection_slots},
        statements::SLOTS,
        tables::{FIND_SCHEMA, quoted},
    },
};

/// The tables that locks need, and the rights on them.
const TABLES: [(&str, &[&str]); 3] =
    [("leasehold_meta", &["SELECT"]), ("leasehold_lock", ALL_RIGHTS), ("leasehold_claim", ALL_RIGHTS)];
const ALL_RIGHTS: &[&str] = &["SELECT", "INSERT", "UPDATE", "DELETE"];
/// The table of memos, which is created later.
const MEMO_TABLE: &str = "leasehold_memo";

/// The number of a table that the search path of the user finds, or null. Everything here is qualified.
const FIND: &str = "SELECT pg_catalog.to_regclass($1)::pg_catalog.oid::pg_catalog.int8";
/// The table with this number: its name, and the rights of the user on it, in the order of [`ALL_RIGHTS`].
const RIGHTS: &str = "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), \
    has_table_privilege(c.oid, 'SELECT'), has_table_privilege(c.oid, 'INSERT'), \
    has_table_privilege(c.oid, 'UPDATE'), has_table_privilege(c.oid, 'DELETE') \
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid::int8 = $1";
/// Whether the user may create tables in a schema, or the schema itself if it does not exist.
const MAY_CREATE: &str = "SELECT CASE WHEN $2 THEN has_database_privilege(current_database(), 'CREATE') \
    ELSE has_schema_privilege($1, 'CREATE') END";
/// Locks of other sessions on these tables: table, session, program, whether it excludes writers, and the age of its
/// transaction in microseconds, which is null if the user may not see it.
const LOCKS: &str = "SELECT c.relname::text, l.pid, coalesce(a.application_name, ''), \
    l.mode NOT IN ('RowShareLock', 'RowExclusiveLock'), \
    (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::int8 \
    FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid \
    WHERE l.locktype = 'relation' AND l.granted AND l.pid <> pg_backend_pid() AND c.oid::int8 = ANY ($1) \
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.mode IN \
    ('RowShareLock', 'RowExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')";
/// The oldest transaction of another session, and the oldest prepared one: session, program, age in microseconds.
const TRANSACTIONS: &str = "(SELECT pid, coalesce(application_name, ''), \
    (extract(epoch FROM clock_timestamp() - xact_start) * 1000000)::int8 AS age FROM pg_stat_activity \
    WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend' \
    ORDER BY xact_start LIMIT 1) \
    UNION ALL (SELECT NULL, '', (extract(epoch FROM clock_timestamp() - prepared) * 1000000)::int8 \
    FROM pg_prepared_xacts ORDER BY prepared LIMIT 1) ORDER BY age DESC";
/// Those who receive the log: program, address, state, whether commits wait for it, and the kind of its slot.
const REPLICAS: &str = "SELECT coalesce(sent.application_name, ''), \
    coalesce(host(sent.client_addr), 'a local socket'), \
    sent.state, sent.sync_state, slot.slot_type FROM pg_stat_replication AS sent \
    LEFT JOIN pg_replication_slots AS slot ON slot.active_pid = sent.pid ORDER BY sent.pid";
/// How many locks there are, and for how many the server has room.
const LOCK_ROOM: &str = "SELECT (SELECT count(*) FROM pg_locks), current_setting('max_locks_per_transaction')::int8 \
    * (current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8)";

/// How many connections are free.
pub(super) async fn connections(asker: &Asker) -> Result<Diagnostic, Failed> {
    let rows = asker.ask(SLOTS.text, &[]).await?;
    let slots = rows.first().and_then(|row| connection_slots(row, 0).ok());
    Ok(diagnose::connections(ids::ID_CONNECTIONS, slots))
}

/// The oldest transaction.
pub(super) async fn transactions(asker: &Asker, facts: &Facts) -> Result<Diagnostic, Failed> {
    let rows = asker.ask(TRANSACTIONS, &[]).await?;
    let read = |row: &Row| -> Result<OldTransaction, Failed> {
        let pid: Option<i32> = column(row, 0)?;
        let who = pid.map_or_else(|| Ok("a prepared transaction".to_owned()), |pid| who(pid, row, 1))?;
        Ok(OldTransaction { who, age: micros(column(row, 2)?) })
    };
    let oldest = rows.first().map(read).transpose()?;
    Ok(oldest_transaction(ids::ID_TRANSACTIONS, oldest.as_ref(), facts.grant_to_see()))
}

/// Who receives the log of the server, and which of them is a replica that could be promoted.
pub(super) async fn replicas(asker: &Asker, facts: &Facts) -> Result<Diagnostic, Failed> {
    let id = ids::ID_REPLICAS;
    let (mut receivers, mut hidden) = (Vec::new(), 0);
    for row in asker.ask(REPLICAS, &[]).await? {
        let (program, address): (&str, &str) = (column(&row, 0)?, column(&row, 1)?);
        let (state, sync, slot): (Option<&str>, Option<&str>, Option<&str>) =
            (column(&row, 2)?, column(&row, 3)?, column(&row, 4)?);
        let kind = match (state, sync, slot) {
            (_, _, Some("logical")) => "a logical subscriber, which is no replica",
            (Some("backup"), ..) => "a base backup, which is no replica",
            (None, ..) => {
                hidden += 1;
                continue;
            }
            (_, Some("sync" | "quorum"), _) => "a replica for which commits wait",
            (_, Some("potential"), _) => "a replica for which commits wait if another one fails",
            _ => "a replica for which commits do not wait",
        };
        receivers.push(format!("{program} at {address} ({kind})"));
    }
    if let (1.., Some(grant)) = (hidden, facts.grant_to_see()) {
        let found =
            format!("{hidden} programs receive the log, and the user may not see whether they are replicas");
        return Ok(Diagnostic::new(
            id,
            Severity::Unknown,
            found,
            format!("{grant}: until then they count as replicas"),
        ));
    }
    if receivers.is_empty() {
        return Ok(Diagnostic::good(id, "no replica receives the log of this server"));
    }
    // The guarantee tells the risk of a replica for which commits do not wait.
    Ok(Diagnostic::good(id, format!("the log is received by {}", receivers.join(", "))))
}

/// Whether the lock table of the server has room for the locks of sessions.
pub(super) async fn lock_room(asker: &Asker) -> Result<Diagnostic, Failed> {
    let rows = asker.ask(LOCK_ROOM, &[]).await?;
    let Some(row) = rows.first() else { return Ok(room(0, 0)) };
    Ok(room(column(row, 0)?, column(row, 1)?))
}

/// Judges the room for locks.
fn room(used: i64, all: i64) -> Diagnostic {
    let (id, found) = (ids::ID_LOCK_ROOM, format!("{used} of {all} locks of the server are in use"));
    if used.saturating_mul(2) < all {
        return Diagnostic::good(id, found);
    }
    let advice =
        "set max_locks_per_transaction higher: when the lock table is full, every program's statements fail";
    Diagnostic::new(id, Severity::Warning, found, advice)
}

/// The rights on the tables of leasehold, and the locks of other programs on them.
pub(super) async fn of_leasehold(
    config: &Config,
    asker: &Asker,
    facts: &Facts,
) -> Result<Vec<Diagnostic>, Failed> {
    let found = asker.ask_by_user_path(FIND_SCHEMA, &[(&config.schema, Type::TEXT)]).await?;
    let Some(row) = found.first() else { return Ok(Vec::new()) };
    let Some(schema) = column::<Option<String>>(row, 0)? else {
        return Ok(vec![right_to_create(asker, facts, row).await?]);
    };
    let (mut rights, mut numbers) = (Vec::new(), Vec::new());
    for (table, wanted) in TABLES {
        let address = format!("{}.{table}", quoted(&schema));
        match table_number(asker, &address).await? {
            Some(number) => {
                numbers.push(number);
                rights.extend(rights_on(asker, number, wanted).await?);
            }
            None => rights.push(TableRights { table: address, missing: wanted.to_vec() }),
        }
    }
    let address = format!("{}.{MEMO_TABLE}", quoted(&schema));
    let memos = match table_number(asker, &address).await? {
        Some(number) => {
            numbers.push(number);
            let lacking = rights_on(asker, number, ALL_RIGHTS).await?;
            memo_rights(&facts.user, lacking.as_ref())
        }
        None => missing_memos(),
    };
    Ok(vec![
        diagnose::rights(ids::ID_RIGHTS, &facts.user, &rights),
        memos,
        locks(asker, &numbers, true).await?,
    ])
}

/// Whether the user may create the tables, which do not exist, by the row of `find_schema.sql`.
async fn right_to_create(asker: &Asker, facts: &Facts, row: &Row) -> Result<Diagnostic, Failed> {
    let (schema, lacks_schema): (Option<&str>, bool) = (column(row, 1)?, column(row, 3)?);
    let rows = match schema {
        Some(schema) => asker.ask(MAY_CREATE, &[(&schema, Type::TEXT), (&lacks_schema, Type::BOOL)]).await?,
        None => Vec::new(),
    };
    let may_create = rows.first().map(|row| column(row, 0)).transpose()?.unwrap_or(false);
    if may_create {
        return Ok(Diagnostic::good(
            ids::ID_RIGHTS,
            "the user may create the tables, which do not exist yet",
        ));
    }
    let advice = "let a user who may create tables run the output of `leasehold schema`, and grant this user the rights on \
                  them";
    let found = format!("the tables do not exist, and the user {} may not create them", facts.user);
    Ok(Diagnostic::new(ids::ID_RIGHTS, Severity::Broken, found, advice))
}

/// The rights on the table of another program, and the locks of others on it. `rows_matter`: whether the lock of a row
/// by another program delays locks, and is not a lock itself.
pub(super) async fn of_program(
    asker: &Asker,
    facts: &Facts,
    table: &str,
    wanted: &[&'static str],
    rows_matter: bool,
) -> Result<Vec<Diagnostic>, Failed> {
    // The engine itself tells that the table does not exist.
    let Some(number) = table_number(asker, table).await? else { return Ok(Vec::new()) };
    let rights: Vec<_> = rights_on(asker, number, wanted).await?.into_iter().collect();
    Ok(vec![
        diagnose::rights(ids::ID_RIGHTS, &facts.user, &rights),
        locks(asker, &[number], rows_matter).await?,
    ])
}

/// The number of a table, if there is one.
async fn table_number(asker: &Asker, address: &str) -> Result<Option<i64>, Failed> {
    let rows = asker.ask_by_user_path(FIND, &[(&address, Type::TEXT)]).await?;
    rows.first().map(|row| column(row, 0)).transpose().map(Option::flatten)
}

/// Which of the wanted rights the user lacks on a table; `None` if the table was dropped meanwhile.
async fn rights_on(
    asker: &Asker,
    number: i64,
    wanted: &[&'static str],
) -> Result<Option<TableRights>, Failed> {
    let rows = asker.ask(RIGHTS, &[(&number, Type::INT8)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let mut missing = Vec::new();
    for (index, right) in ALL_RIGHTS.iter().enumerate() {
        if wanted.contains(right) && !column::<bool>(row, index + 1)? {
            missing.push(*right);
        }
    }
    Ok(Some(TableRights { table: column::<&str>(row, 0)?.to_owned(), missing }))
}

/// Whether the user can use memos: locks need none.
fn memo_rights(user: &str, lacking: Option<&TableRights>) -> Diagnostic {
    let id = ids::ID_MEMOS;
    let Some(lacking) = lacking.filter(|table| !table.missing.is_empty()) else {
        return Diagnostic::good(id, "the user has the rights on the table of memos");
    };
    let rights = lacking.missing.join(", ");
    Diagnostic::new(
        id,
        Severity::Warning,
        format!(
            "the user lacks the right {rights} on {}: once, elections, schedules and latches need it",
            lacking.table
        ),
        format!("let the owner of the table run: GRANT {rights} ON {} TO {user}", lacking.table),
    )
}

/// The table of memos does not exist.
fn missing_memos() -> Diagnostic {
    let advice = "let a user who may create tables run the output of `leasehold schema`, \
                  if the first user of memos may not";
    Diagnostic::new(
        ids::ID_MEMOS,
        Severity::Good,
        "the table of memos does not exist: the first memo creates it",
        advice,
    )
}

/// The locks of other programs on these tables.
async fn locks(asker: &Asker, numbers: &[i64], rows_matter: bool) -> Result<Diagnostic, Failed> {
    let mut locks = Vec::new();
    for row in asker.ask(LOCKS, &[(&numbers, Type::INT8_ARRAY)]).await? {
        let is_whole: bool = column(&row, 3)?;
        let age: Option<Duration> = column::<Option<i64>>(&row, 4)?.map(micros);
        if is_whole || rows_matter {
            let (table, who) = (column::<&str>(&row, 0)?.to_owned(), who(column(&row, 1)?, &row, 2)?);
            locks.push(TableLock { table, who, is_whole, age });
        }
    }
    Ok(table_lock(ids::ID_TABLE_LOCKS, &locks, "end it, or that session with pg_terminate_backend"))
}

/// A session with its program, as far as the user may see it.
fn who(pid: i32, row: &Row, program: usize) -> Result<String, Failed> {
    Ok(match column::<&str>(row, program)? {
        "" => format!("the session with pid {pid}"),
        program => format!("the session with pid {pid} of {program}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_table_that_is_half_full_is_told() {
        for (used, severity) in [(49, Severity::Good), (50, Severity::Warning), (200, Severity::Warning)] {
            assert_eq!(room(used, 100).severity, severity, "{used}");
        }
    }
}
