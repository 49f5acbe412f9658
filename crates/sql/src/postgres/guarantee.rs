//! The guarantee of a PostgreSQL server, as it is configured.

use leasehold_core::{Guarantee, Level};
use tokio_postgres::Row;

use super::rows::column;
use crate::database::{CLOCK_NOTE, Failed};

/// Reads the settings that decide the guarantee, and the number of replicas. A base backup and a logical subscriber
/// receive the same stream as a replica, but are not counted, because neither can be promoted. A user without the right
/// to see the state of the connections of others reads null as this state, so for such a user base backups count as
/// replicas.
pub(crate) const SETTINGS: &str = "SELECT current_setting('synchronous_commit'), current_setting('fsync'), \
    current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication AS sent \
    WHERE sent.state IS DISTINCT FROM 'backup' AND NOT EXISTS (SELECT FROM pg_replication_slots AS slot \
    WHERE slot.active_pid = sent.pid AND slot.slot_type = 'logical'))";

/// Judges the guarantee by the row that [`SETTINGS`] returns.
pub(crate) fn guarantee(row: &Row) -> Result<Guarantee, Failed> {
    let (commit, fsync, standby): (&str, &str, &str) = (column(row, 0)?, column(row, 1)?, column(row, 2)?);
    let replicas: i64 = column(row, 3)?;
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
    if replicas > 0 && (standby.is_empty() || !matches!(commit, "on" | "remote_apply")) {
        guarantee.lower(
            "the number of replicas for which commits do not wait",
            &replicas.to_string(),
            "0, or synchronous_standby_names and synchronous_commit=on",
            "a replica that is promoted may not know of locks that are held",
        );
    }
    Ok(guarantee)
}
