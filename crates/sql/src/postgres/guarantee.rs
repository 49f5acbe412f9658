//! The guarantee of a PostgreSQL server, as it is configured.

use leasehold_core::{Guarantee, Level};
use tokio_postgres::Row;

use super::rows::column;
use crate::database::{CLOCK_NOTE, Failed};

/// Reads the settings that decide the guarantee, the number of replicas, and how many of them commits never wait for,
/// whatever the settings are. A base backup and a logical subscriber receive the same stream as a replica, but are not
/// counted, because neither can be promoted. A user without the right to see the state of the connections of others
/// reads null as this state, so for such a user base backups count as replicas.
pub(crate) const SETTINGS: &str = "SELECT current_setting('synchronous_commit'), current_setting('fsync'), \
    current_setting('full_page_writes'), replica.count, replica.unawaited FROM (SELECT count(*) AS count, \
    count(*) FILTER (WHERE sent.sync_state IS NULL OR sent.sync_state = 'async') AS unawaited \
    FROM pg_stat_replication AS sent \
    WHERE sent.state IS DISTINCT FROM 'backup' AND NOT EXISTS (SELECT FROM pg_replication_slots AS slot \
    WHERE slot.active_pid = sent.pid AND slot.slot_type = 'logical')) AS replica";

/// Judges the guarantee by the row that [`SETTINGS`] returns.
pub(crate) fn guarantee(row: &Row) -> Result<Guarantee, Failed> {
    let (commit, fsync, pages): (&str, &str, &str) = (column(row, 0)?, column(row, 1)?, column(row, 2)?);
    let (replicas, unawaited): (i64, i64) = (column(row, 3)?, column(row, 4)?);
    let mut guarantee = Guarantee::new(Level::LeaseBounded, &[CLOCK_NOTE]);
    if fsync == "off" {
        guarantee.lower("fsync", fsync, "on", "a crash of the machine may lose locks that are held");
    }
    if commit == "off" {
        guarantee.lower(
            "synchronous_commit",
            commit,
            "on",
            "a crash of the server may lose locks that were just granted",
        );
    }
    if pages == "off" {
        guarantee.lower(
            "full_page_writes",
            pages,
            "on",
            "a crash of the machine may tear pages, and the tables of locks with them",
        );
    }
    // Other values wait for the disk of this server only, or until a replica has received and not yet stored the
    // commit.
    let unawaited = if matches!(commit, "on" | "remote_apply") { unawaited } else { replicas };
    if unawaited > 0 {
        guarantee.lower(
            "the number of replicas for which commits do not wait",
            &unawaited.to_string(),
            "0: all of them in synchronous_standby_names, and synchronous_commit=on",
            "a replica that is promoted may not know of locks that are held",
        );
    }
    Ok(guarantee)
}
