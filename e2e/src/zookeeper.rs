//! ZooKeeper: one server, or an ensemble of three.

mod alone;
mod ensemble;

use std::collections::BTreeMap;

use leasehold_core::Guarantee;

pub use alone::One;
pub use ensemble::{ENSEMBLE, Ensemble};

/// The longest time in milliseconds for which a client is stopped: longer than the clients' sessions of two seconds.
const MAX_STOP: u64 = 3500;
/// The longest time in milliseconds for which a proxy holds messages.
const MAX_HOLD_BACK: u64 = 2500;

/// Whether nothing lowers the guarantee but the setting of these servers, which do not wait for their disks. A server
/// that is stopped does not tell it.
fn is_unforced(guarantee: &Guarantee) -> bool {
    guarantee.findings.iter().all(|finding| finding.what == "forceSync")
}

/// The sessions and ephemeral nodes in the output of the server's command `dump`. They must not remain after a round.
fn leftovers(dump: &str) -> BTreeMap<String, u64> {
    let nodes = dump.lines().map(str::trim).filter(|line| line.starts_with('/'));
    let mut leftovers: BTreeMap<String, u64> = nodes.map(|path| (format!("node {path}"), 1)).collect();
    let sets = dump.lines().skip_while(|line| !line.starts_with("Session Sets"));
    let sessions = sets.take_while(|line| !line.starts_with("ephemeral nodes dump"));
    let sessions = sessions.filter(|line| line.trim_start().starts_with("0x")).count();
    leftovers.insert("sessions".to_owned(), sessions as u64);
    leftovers
}
