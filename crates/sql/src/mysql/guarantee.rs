//! The guarantee of a MySQL or MariaDB server, as it is configured.

use leasehold_core::{Guarantee, Level};

use super::{diagnose::split_option, server::Server};
use crate::database::CLOCK_NOTE;

/// The settings that decide whether commits are on disk.
const FLUSH: &str = "innodb_flush_log_at_trx_commit";
const DOUBLEWRITE: &str = "innodb_doublewrite";
const SYNC_LOG: &str = "sync_binlog";
const FLUSH_METHOD: &str = "innodb_flush_method";
const GROUP: &str = "group_replication_group_name";

/// Judges the guarantee by the variables and status values of a server.
pub(crate) fn guarantee(server: &Server) -> Guarantee {
    let mut guarantee = Guarantee::new(Level::LeaseBounded, &[CLOCK_NOTE]);
    let value_of = |setting: &str| server.get(setting).unwrap_or("not known").to_owned();
    // With 3, which only MariaDB has, a commit also waits until its data is on disk.
    if !matches!(server.get(FLUSH), Some("1" | "3")) {
        guarantee.lower(FLUSH, &value_of(FLUSH), "1", "a crash may lose locks that were just granted");
    }
    if matches!(server.get(DOUBLEWRITE), Some("OFF" | "0" | "DETECT_ONLY")) {
        guarantee.lower(
            DOUBLEWRITE,
            &value_of(DOUBLEWRITE),
            "ON",
            "a crash of the machine may tear pages, and the tables of locks with them",
        );
    }
    // This method, for tests of speed, never waits for the disk.
    if server.get(FLUSH_METHOD).is_some_and(|method| method.eq_ignore_ascii_case("nosync")) {
        let risk = "a crash of the machine may lose locks that are held";
        guarantee.lower(FLUSH_METHOD, &value_of(FLUSH_METHOD), "O_DIRECT", risk);
    }
    let writes_binlog = server.is_on("log_bin");
    if writes_binlog && server.get(SYNC_LOG) != Some("1") {
        let risk = "after a crash of the machine, locks that were just granted may be undone";
        guarantee.lower(SYNC_LOG, &value_of(SYNC_LOG), "1", risk);
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
            guarantee.lower(what, &count.to_string(), wanted, risk);
        }
        None if writes_binlog => guarantee.note(
            "only a user with the right PROCESS sees whether there are replicas: one that is promoted may not know of locks that are held",
        ),
        None => {}
    }
    if let Some(group) = server.get(GROUP).filter(|group| !group.is_empty()) {
        let risk = "a member of the group that takes over may not have applied the latest grants";
        guarantee.lower(GROUP, group, "none", risk);
    }
    if let Some(option) = split_option(server) {
        let risk = "two parts of a cluster that lost each other both accept writes, and grant the same names";
        guarantee.lower(option, "true", "false", risk);
    }
    if server.is_galera() {
        guarantee.note(
            "Galera: when two nodes change one name at once, the second fails at its commit and tries again: let all clients use one node",
        );
    }
    guarantee
}

/// How many replicas receive the log of this server, where that is known.
pub(super) fn replicas(server: &Server) -> Option<u64> {
    let count_of = |name| server.get(name)?.parse().ok();
    count_of("slaves_connected").or_else(|| {
        let visible: u64 = count_of("binlog_dumps")?;
        // For a user that cannot see all connections, zero visible replicas prove nothing.
        (visible > 0 || count_of("sees_processes") == Some(1)).then_some(visible)
    })
}

/// Whether a replica has received each commit before other clients see the commit.
fn commits_wait_for_replica(server: &Server) -> bool {
    let value_of_either = |old_name: &str, new_name: &str| {
        server.get(old_name).or_else(|| server.get(new_name)).map(str::to_owned)
    };
    let is_semi_sync =
        server.is_on("rpl_semi_sync_master_status") || server.is_on("rpl_semi_sync_source_status");
    let wait_point = value_of_either("rpl_semi_sync_master_wait_point", "rpl_semi_sync_source_wait_point");
    is_semi_sync && wait_point.as_deref() == Some("AFTER_SYNC")
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
        let judged_with_replicas =
            |visible, sees| judged(&[("binlog_dumps", visible), ("sees_processes", sees)]);
        let (level, notes) = judged_with_replicas("0", "0");
        assert!(level == Level::LeaseBounded && notes.contains("the right PROCESS"), "{notes}");
        let (level, notes) = judged_with_replicas("0", "1");
        assert!(level == Level::LeaseBounded && !notes.contains("replica"), "{notes}");
        for sees in ["0", "1"] {
            let (level, notes) = judged_with_replicas("1", sees);
            assert!(level == Level::BestEffort && notes.contains("do not wait for them"), "{notes}");
        }
        // MariaDB itself reports the number of replicas.
        let (level, notes) =
            judged(&[("slaves_connected", "0"), ("binlog_dumps", "0"), ("sees_processes", "0")]);
        assert!(level == Level::LeaseBounded && !notes.contains("replica"), "{notes}");
    }

    #[test]
    fn settings_that_lose_or_split_lower_the_guarantee() {
        let alone = ("slaves_connected", "0");
        for (setting, value) in
            [(FLUSH_METHOD, "nosync"), ("wsrep_provider_options", "gcs.x = 1; pc.ignore_sb = true")]
        {
            let (level, notes) = judged(&[alone, (setting, value)]);
            assert_eq!(level, Level::BestEffort, "{setting}: {notes}");
        }
        for (setting, value) in
            [(FLUSH_METHOD, "O_DIRECT"), ("wsrep_provider_options", "pc.ignore_sb = false")]
        {
            assert_eq!(judged(&[alone, (setting, value)]).0, Level::LeaseBounded, "{setting}");
        }
    }

    #[test]
    fn group_membership_lowers_the_guarantee() {
        assert_eq!(judged(&[(GROUP, ""), ("slaves_connected", "0")]).0, Level::LeaseBounded);
        let (level, notes) = judged(&[(GROUP, "3e11fa47"), ("slaves_connected", "0")]);
        assert!(level == Level::BestEffort && notes.contains(GROUP), "{notes}");
    }
}
