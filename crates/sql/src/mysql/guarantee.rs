//! The guarantee of a MySQL or MariaDB server, as it is configured.

use leasehold_core::{Guarantee, Level};

use super::server::Server;
use crate::database::CLOCK;

/// The settings that decide whether commits are on disk.
const FLUSH: &str = "innodb_flush_log_at_trx_commit";
const DOUBLEWRITE: &str = "innodb_doublewrite";
const SYNC_LOG: &str = "sync_binlog";
const GROUP: &str = "group_replication_group_name";

/// Judges the guarantee by the variables and status values of a server.
pub(super) fn guarantee(server: &Server) -> Guarantee {
    let mut judged = Guarantee::new(Level::LeaseBounded, &[CLOCK]);
    let found = |setting: &str| server.get(setting).unwrap_or("not known").to_owned();
    // With 3, which only MariaDB has, a commit also waits until its data is on disk.
    if !matches!(server.get(FLUSH), Some("1" | "3")) {
        judged.lower(FLUSH, &found(FLUSH), "1", "a crash may lose locks that were just granted");
    }
    if matches!(server.get(DOUBLEWRITE), Some("OFF" | "0" | "DETECT_ONLY")) {
        judged.lower(
            DOUBLEWRITE,
            &found(DOUBLEWRITE),
            "ON",
            "a crash of the machine may tear pages, and the tables of locks with them",
        );
    }
    let writes_binlog = server.is_on("log_bin");
    if writes_binlog && server.get(SYNC_LOG) != Some("1") {
        let risk = "after a crash of the machine, locks that were just granted may be undone";
        judged.lower(SYNC_LOG, &found(SYNC_LOG), "1", risk);
    }
    match replicas(server) {
        Some(0) => {}
        Some(count) => {
            let (what, wanted) = ("the number of replicas", "0");
            let risk = if commits_wait_for_replica(server) {
                "commits wait for them only up to a time limit, and a replica that is promoted after that may not know of locks that are held"
            } else {
                "commits do not wait for them, and a replica that is promoted may not know of locks that are held"
            };
            judged.lower(what, &count.to_string(), wanted, risk);
        }
        None if writes_binlog => judged.note(
            "only a user with the right PROCESS sees whether there are replicas: one that is promoted may not know of locks that are held",
        ),
        None => {}
    }
    if let Some(group) = server.get(GROUP).filter(|group| !group.is_empty()) {
        let risk = "a member of the group that takes over may not have applied the latest grants";
        judged.lower(GROUP, group, "none", risk);
    }
    if server.is_galera() {
        judged.note(
            "Galera: when two nodes change one name at once, the second fails at its commit and tries again: let all clients use one node",
        );
    }
    judged
}

/// How many replicas receive the log of this server, where that is known.
fn replicas(server: &Server) -> Option<u64> {
    let counted = |name| server.get(name)?.parse().ok();
    counted("slaves_connected").or_else(|| {
        let visible: u64 = counted("binlog_dumps")?;
        // For a user that cannot see all connections, zero visible replicas prove nothing.
        (visible > 0 || counted("sees_processes") == Some(1)).then_some(visible)
    })
}

/// Whether a replica has received each commit before other clients see the commit.
fn commits_wait_for_replica(server: &Server) -> bool {
    let first_known =
        |one: &str, other: &str| server.get(one).or_else(|| server.get(other)).map(str::to_owned);
    let on = server.is_on("rpl_semi_sync_master_status") || server.is_on("rpl_semi_sync_source_status");
    let point = first_known("rpl_semi_sync_master_wait_point", "rpl_semi_sync_source_wait_point");
    on && point.as_deref() == Some("AFTER_SYNC")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The level and the text of the guarantee, with all other settings as recommended.
    fn judged(settings: &[(&str, &str)]) -> (Level, String) {
        let durable = [(FLUSH, "1"), (DOUBLEWRITE, "ON"), ("log_bin", "ON"), (SYNC_LOG, "1")];
        let guarantee = guarantee(&Server::of(&[&durable, settings].concat()));
        (guarantee.level, guarantee.to_string())
    }

    #[test]
    fn zero_visible_replicas_count_only_with_the_right_to_see_them() {
        let counted = |visible, sees| judged(&[("binlog_dumps", visible), ("sees_processes", sees)]);
        let (level, notes) = counted("0", "0");
        assert!(level == Level::LeaseBounded && notes.contains("the right PROCESS"), "{notes}");
        let (level, notes) = counted("0", "1");
        assert!(level == Level::LeaseBounded && !notes.contains("replica"), "{notes}");
        for sees in ["0", "1"] {
            let (level, notes) = counted("1", sees);
            assert!(level == Level::BestEffort && notes.contains("do not wait for them"), "{notes}");
        }
        // MariaDB reports the number itself.
        let (level, notes) =
            judged(&[("slaves_connected", "0"), ("binlog_dumps", "0"), ("sees_processes", "0")]);
        assert!(level == Level::LeaseBounded && !notes.contains("replica"), "{notes}");
    }

    #[test]
    fn group_membership_lowers_the_guarantee() {
        assert_eq!(judged(&[(GROUP, ""), ("slaves_connected", "0")]).0, Level::LeaseBounded);
        let (level, notes) = judged(&[(GROUP, "3e11fa47"), ("slaves_connected", "0")]);
        assert!(level == Level::BestEffort && notes.contains(GROUP), "{notes}");
    }
}
