//! What a MySQL or MariaDB promises, as it is configured.

use leasehold_core::{Guarantee, Level};

use super::server::Server;
use crate::database::CLOCK;

const FLUSH: &str = "innodb_flush_log_at_trx_commit";
const DOUBLEWRITE: &str = "innodb_doublewrite";
const SYNC_LOG: &str = "sync_binlog";

pub(super) fn guarantee(server: &Server) -> Guarantee {
    let mut judged = Guarantee::new(Level::LeaseBounded, &[CLOCK]);
    let found = |setting: &str| server.get(setting).unwrap_or("not known").to_owned();
    // MariaDB's 3 waits for the disk, too.
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
    let logs = server.is_on("log_bin");
    if logs && server.get(SYNC_LOG) != Some("1") {
        let risk = "after a crash of the machine, locks that were just granted may be undone";
        judged.lower(SYNC_LOG, &found(SYNC_LOG), "1", risk);
    }
    match replicas(server) {
        Some(0) => {}
        Some(some) => {
            let (what, wanted) = ("the number of replicas", "0");
            let risk = if is_awaited(server) {
                "they are waited for up to a time limit only, and one that is promoted after that may not know of locks that are held"
            } else {
                "they are not waited for, and one that is promoted may not know of locks that are held"
            };
            judged.lower(what, &some.to_string(), wanted, risk);
        }
        None if logs => judged.note(
            "whether replicas follow is not to be seen here: one that is promoted may not know of locks that are held",
        ),
        None => {}
    }
    if server.is_galera() {
        judged.note(
            "Galera: what two nodes do to one name at once is decided at commit, and the one that was second tries again: let all \
             clients use one node",
        );
    }
    judged
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
