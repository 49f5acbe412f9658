//! The tables: whether they exist, are ours, have this version, and belong to the current boot of the machine.

use leasehold_core::{Clock, Fault, Lineage, lock_state::ENDED_LIFE};
use rusqlite::{Connection, params};

use super::{
    boot_id::boot_id,
    definitions::Definitions,
    error::{Stage, before_commit, classify, code},
};
use crate::{
    database::Failed,
    row::{duration_micros, micros},
    runtime::wall_micros,
};

/// The version of the tables.
const VERSION: i64 = 1;

/// Reads what identifies the tables.
const META: &str = "SELECT version, lineage, boot FROM leasehold_meta";

/// What identifies the tables of a file.
pub(super) struct FoundTables {
    lineage: Lineage,
    /// The boot from which the times in the tables are counted.
    boot: String,
    /// Whether the table of memos exists.
    has_memos: bool,
}

/// Creates missing tables, and returns their lineage. Writes only what has to be written.
pub(super) fn prepare(connection: &Connection, clock: &dyn Clock) -> Result<Lineage, Failed> {
    let boot = boot_id()?;
    if let Some(found) = find_tables(connection)?
        && found.boot == boot
        && found.has_memos
    {
        return Ok(found.lineage);
    }
    connection.execute_batch("BEGIN IMMEDIATE").map_err(before_commit)?;
    let lineage = create(connection, &boot, micros(clock.now()));
    let end = if lineage.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(|error| classify(&error, Stage::Commit))?;
    lineage
}

/// The lineage of the tables, if they exist and are of the current boot: a hold of an earlier boot has ended.
pub(super) fn of_this_boot(connection: &Connection) -> Result<Option<Lineage>, Failed> {
    let boot = boot_id()?;
    Ok(find_tables(connection)?.filter(|found| found.boot == boot).map(|found| found.lineage))
}

/// The lineage and boot of the tables, if they exist; fails if they cannot be used.
pub(super) fn find_tables(connection: &Connection) -> Result<Option<FoundTables>, Failed> {
    let definitions = Definitions::read(connection).map_err(before_commit)?;
    if !definitions.any_exist() {
        return Ok(None);
    }
    definitions.check_trust()?;
    if !definitions.has_meta() {
        definitions.check_statements()?;
    }
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(1)?, row.get::<_, String>(2)?));
    // The version first: another version may have other columns.
    let version: i64 = connection
        .query_row("SELECT version FROM leasehold_meta", [], |row| row.get(0))
        .map_err(|error| table_error(&error))?;
    if version != VERSION {
        return Err(Failed::new(
            Fault::Misconfigured,
            format!(
                "its tables have version {version} and this leasehold knows version {VERSION}: use the same version of leasehold \
                 everywhere, or another file"
            ),
        ));
    }
    definitions.check_statements()?;
    let (lineage, boot) = connection.query_row(META, [], read).map_err(|error| table_error(&error))?;
    let lineage = u128::from_str_radix(&lineage, 16).map_err(|_| not_ours("its lineage is no number"))?;
    Ok(Some(FoundTables { lineage: Lineage::new(lineage), boot, has_memos: definitions.has_memos() }))
}

/// Fails if the tables are no longer those of this lineage: another process could have changed them to a newer version,
/// or created them again.
pub(super) fn check_same(connection: &Connection, lineage: Lineage) -> Result<(), Failed> {
    let mut statement = connection.prepare_cached(META).map_err(|error| table_error(&error))?;
    let (version, stored): (i64, String) =
        statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(|error| table_error(&error))?;
    if version == VERSION && u128::from_str_radix(&stored, 16).is_ok_and(|stored| stored == lineage.get()) {
        return Ok(());
    }
    Err(not_ours("it was created again meanwhile"))
}

/// Creates missing tables within a transaction, and removes locks of an earlier boot.
fn create(connection: &Connection, boot: &str, now: i64) -> Result<Lineage, Failed> {
    // Another process may have created them meanwhile, in any version.
    if find_tables(connection)?.is_none_or(|found| !found.has_memos) {
        connection.execute_batch(super::SCHEMA).map_err(|error| table_error(&error))?;
    }
    let found = find_tables(connection)?.ok_or_else(|| not_ours("it is no table"))?;
    if found.boot != boot {
        forget(connection, boot, now).map_err(before_commit)?;
    }
    Ok(found.lineage)
}

/// Removes holders and waiters of an earlier boot: their processes are gone, and their times mean nothing now.
fn forget(connection: &Connection, boot: &str, now: i64) -> Result<(), rusqlite::Error> {
    // See `previous_code`.
    const LAPSED: i16 = 2;
    let until = now.saturating_add(duration_micros(ENDED_LIFE));
    connection.execute("DELETE FROM leasehold_claim", [])?;
    connection.execute(
        "UPDATE leasehold_lock SET ended = CASE WHEN holder IS NULL AND claims = 0 THEN ended ELSE ?1 END, ended_upto = token, \
         ended_until = ?2, holder = NULL, claims = 0",
        params![LAPSED, until],
    )?;
    // Memos outlive the boot: from now on their ends count from this boot. If the time of day was set back meanwhile, a
    // memo is kept for longer, for its whole time from now on at most.
    connection.execute(
        "UPDATE leasehold_memo SET ends = ?1 + max(0, min(keep, day_ends - ?2))",
        params![now, wall_micros()],
    )?;
    connection.execute("UPDATE leasehold_meta SET boot = ?1", [boot])?;
    Ok(())
}

/// Classifies an error about tables that have our names.
pub(super) fn table_error(error: &rusqlite::Error) -> Failed {
    let failed = classify(error, Stage::BeforeCommit);
    match code(error) {
        Some(rusqlite::ErrorCode::Unknown) | None => not_ours(&failed.message),
        Some(_) => failed,
    }
}

/// The error for tables with our names that leasehold did not make.
fn not_ours(why: &str) -> Failed {
    Failed::new(
        Fault::Misconfigured,
        format!("one of its tables named leasehold_* was not made by leasehold ({why}): use another file"),
    )
}
