//! The tables: whether they exist, are ours, have this version, and belong to the current boot of the machine.

use leasehold_core::{Clock, Fault, Lineage, lock_state::ENDED_LIFE};
use rusqlite::{Connection, params};

use super::{
    boot::boot,
    definitions::Definitions,
    error::{At, before, code, sort},
};
use crate::{
    database::Failed,
    row::{micros, micros_in},
};

/// The version of the tables.
const VERSION: i64 = 1;

const META: &str = "SELECT version, lineage, boot FROM leasehold_meta";

pub(super) struct Known {
    lineage: Lineage,
    boot: String,
}

/// Creates missing tables, and returns their lineage. Writes only what has to be written.
pub(super) fn ready(connection: &Connection, clock: &dyn Clock) -> Result<Lineage, Failed> {
    let boot = boot()?;
    if let Some(known) = known(connection)?
        && known.boot == boot
    {
        return Ok(known.lineage);
    }
    connection.execute_batch("BEGIN IMMEDIATE").map_err(before)?;
    let known = create(connection, &boot, micros(clock.now()));
    let end = if known.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(|error| sort(&error, At::Commit))?;
    known
}

/// Their lineage, if they exist and are of the current boot: no hold from an earlier boot exists any more.
pub(super) fn of_this_boot(connection: &Connection) -> Result<Option<Lineage>, Failed> {
    let boot = boot()?;
    Ok(known(connection)?.filter(|known| known.boot == boot).map(|known| known.lineage))
}

/// Their lineage and boot, if they exist.
pub(super) fn known(connection: &Connection) -> Result<Option<Known>, Failed> {
    let definitions = Definitions::read(connection).map_err(before)?;
    if !definitions.is_there() {
        return Ok(None);
    }
    definitions.check_trust()?;
    if !definitions.has_meta() {
        definitions.check_words()?;
    }
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(1)?, row.get::<_, String>(2)?));
    // The version first: another version may have other columns.
    let version: i64 = connection
        .query_row("SELECT version FROM leasehold_meta", [], |row| row.get(0))
        .map_err(|error| foreign(&error))?;
    if version != VERSION {
        return Err(Failed::new(
            Fault::Misconfigured,
            format!(
                "its tables have version {version} and this leasehold knows version {VERSION}: use the same version of leasehold \
                 everywhere, or another file"
            ),
        ));
    }
    definitions.check_words()?;
    let (lineage, boot) = connection.query_row(META, [], read).map_err(|error| foreign(&error))?;
    let lineage = u128::from_str_radix(&lineage, 16).map_err(|_| not_ours("its lineage is no number"))?;
    Ok(Some(Known { lineage: Lineage::new(lineage), boot }))
}

/// Whether the tables are still the same: they may have a newer version by now, or have been created again.
pub(super) fn is_of(connection: &Connection, lineage: Lineage) -> Result<(), Failed> {
    let mut look = connection.prepare_cached(META).map_err(|error| foreign(&error))?;
    let (version, stored): (i64, String) =
        look.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(|error| foreign(&error))?;
    if version == VERSION && u128::from_str_radix(&stored, 16).is_ok_and(|stored| stored == lineage.get()) {
        return Ok(());
    }
    Err(not_ours("it was created again meanwhile"))
}

fn create(connection: &Connection, boot: &str, now: i64) -> Result<Lineage, Failed> {
    // Another process may have created them meanwhile, in any version.
    if known(connection)?.is_none() {
        connection.execute_batch(super::SCHEMA).map_err(|error| foreign(&error))?;
    }
    let known = known(connection)?.ok_or_else(|| not_ours("it is no table"))?;
    if known.boot != boot {
        forget(connection, boot, now).map_err(before)?;
    }
    Ok(known.lineage)
}

/// Removes holders and waiters of an earlier boot: they are gone, and their times mean nothing now.
fn forget(connection: &Connection, boot: &str, now: i64) -> Result<(), rusqlite::Error> {
    const LAPSED: i16 = 2;
    let until = now.saturating_add(micros_in(ENDED_LIFE));
    connection.execute("DELETE FROM leasehold_claim", [])?;
    connection.execute(
        "UPDATE leasehold_lock SET ended = CASE WHEN holder IS NULL AND claims = 0 THEN ended ELSE ?1 END, ended_upto = token, \
         ended_until = ?2, holder = NULL, claims = 0",
        params![LAPSED, until],
    )?;
    connection.execute("UPDATE leasehold_meta SET boot = ?1", [boot])?;
    Ok(())
}

/// Sorts an error about tables that have our names.
pub(super) fn foreign(error: &rusqlite::Error) -> Failed {
    let failed = sort(error, At::Before);
    match code(error) {
        Some(rusqlite::ErrorCode::Unknown) | None => not_ours(&failed.message),
        Some(_) => failed,
    }
}

fn not_ours(why: &str) -> Failed {
    Failed::new(
        Fault::Misconfigured,
        format!("one of its tables named leasehold_* was not made by leasehold ({why}): use another file"),
    )
}
