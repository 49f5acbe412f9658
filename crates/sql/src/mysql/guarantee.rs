//! What a MySQL or MariaDB promises, as it is configured.

use leasehold_core::{Guarantee, Level};

use super::server::Server;

pub(super) fn guarantee(server: &Server) -> Guarantee {
    let mut notes = vec![
        "set the clock of the database forward and leases end early: holders are told at their next renewal",
    ];
    let mut level = Level::LeaseBounded;
    let mut weak = |note| {
        level = Level::BestEffort;
        notes.push(note);
    };
    // MariaDB's 3 waits for the disk, too.
    if !matches!(server.get("innodb_flush_log_at_trx_commit"), Some("1" | "3")) {
        weak("innodb_flush_log_at_trx_commit is not 1: a crash may lose locks that were just granted");
    }
    if matches!(server.get("innodb_doublewrite"), Some("OFF" | "0" | "DETECT_ONLY")) {
        weak(
            "innodb_doublewrite is off: a crash of the machine may tear pages, and the tables of locks with them",
        );
    }
    let logs = server.is_on("log_bin");
    if logs && server.get("sync_binlog") != Some("1") {
        weak(
            "sync_binlog is not 1: after a crash of the machine, locks that were just granted may be undone",
        );
    }
    match replicas(server) {
        Some(0) => {}
        Some(_) if is_awaited(server) => weak(
            "replicas are waited for before a lock is granted, but only up to a time limit: one that is promoted after that may not \
             know of locks that are held",
        ),
        Some(_) => weak(
            "replicas follow without being waited for: one that is promoted may not know of locks that are held",
        ),
        None if logs => notes.push(
            "whether replicas follow is not to be seen here: one that is promoted may not know of locks that are held",
        ),
        None => {}
    }
    if server.is_galera() {
        notes.push(
            "Galera: what two nodes do to one name at once is decided at commit, and the one that was second tries again: let all \
             clients use one node",
        );
    }
    Guarantee::new(level, &notes)
}

/// How many servers are sent what this one logs, where that is told.
fn replicas(server: &Server) -> Option<u64> {
    server.get("slaves_connected")?.parse().ok()
}

/// Whether what is committed was received by a replica before others see it.
fn is_awaited(server: &Server) -> bool {
    let of = |one: &str, other: &str| server.get(one).or_else(|| server.get(other)).map(str::to_owned);
    let on = server.is_on("rpl_semi_sync_master_status") || server.is_on("rpl_semi_sync_source_status");
    let point = of("rpl_semi_sync_master_wait_point", "rpl_semi_sync_source_wait_point");
    on && point.as_deref() == Some("AFTER_SYNC")
}
