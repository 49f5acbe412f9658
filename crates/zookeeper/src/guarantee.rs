//! The guarantee of an ensemble, by the reports of its servers.

use futures_util::future::join_all;
use leasehold_core::{EngineError, Guarantee, Level};

use crate::{
    client::Client,
    server_look::{Purpose, ServerLook},
};

/// The notes of every guarantee.
const LEASED: &str = "a hold is valid for the timeout of its session, less half a tick and a sixteenth of the timeout, \
    counted from the second-to-last change that a quorum confirmed";
const TICK: &str =
    "a tick (tickTime) is assumed to be at most 3 s, or half of the session's timeout if that is less";
/// The note for a server without an ensemble.
const ONE_SERVER: &str =
    "this is one server: if its disk is lost, all locks are lost, and tokens start again";
/// The note if no server reports its version and mode.
const SILENT: &str = "no server reports its version and mode: allow the command srvr (4lw.commands.whitelist) to \
    see them here";
/// The note if no server tells whether it forces its log.
const HIDDEN_LOG: &str = "no server tells whether its log is forced to the disk (forceSync): allow the command mntr \
    (4lw.commands.whitelist) to see it here";

/// Asks the servers for their reports, and judges the ensemble.
pub(crate) async fn examine(client: &Client) -> Result<Guarantee, EngineError> {
    let look = |endpoint| ServerLook::at(&client.config, endpoint, Purpose::Guarantee);
    let looks = client.config.servers.iter().map(look);
    // A server that cannot be reached is passed over.
    let looks: Vec<ServerLook> = join_all(looks).await.into_iter().filter_map(Result::ok).collect();
    Ok(judge(&looks))
}

/// The guarantee of an ensemble whose servers look like this.
fn judge(looks: &[ServerLook]) -> Guarantee {
    let mut guarantee = Guarantee::new(Level::LeaseBounded, &[LEASED, TICK]);
    let report = looks.iter().find_map(|look| {
        let report = look.srvr.report()?;
        Some((report.version()?, report.get("Mode")?))
    });
    match report {
        Some((version, mode)) => {
            guarantee.note(format!("ZooKeeper {version}, {mode}"));
            if mode == "standalone" {
                guarantee.note(ONE_SERVER);
            }
        }
        None => guarantee.note(SILENT),
    }
    if looks.iter().any(|look| look.forces_log == Some(false)) {
        let risk = "a power cut may lose locks that are held";
        guarantee.lower("forceSync", "no", "yes", risk);
    } else if looks.iter().all(|look| look.forces_log.is_none()) {
        guarantee.note(HIDDEN_LOG);
    }
    if let Some(tick) = looks.iter().filter_map(ServerLook::long_tick).max() {
        let risk = "a holder may rely on its hold after the leader has ended its session";
        guarantee.lower("tickTime", &format!("{tick:?}"), "3s or less", risk);
    }
    guarantee
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Answer;

    fn look(srvr: &str, conf: &str, forces_log: Option<bool>) -> ServerLook {
        let (srvr, conf) = (Answer::read(srvr), Answer::read(conf));
        ServerLook { srvr, mntr: Answer::NotAllowed, conf, timeouts: None, forces_log, certificate_end: None }
    }

    #[test]
    fn reports_are_judged() {
        let alone = "Zookeeper version: 3.8.0-x, built on 2024-02-18\nMode: standalone\n";
        let has = |guarantee: &Guarantee, wanted: &str| guarantee.notes.iter().any(|note| note == wanted);
        let good = judge(&[look(alone, "tickTime=2000\n", Some(true))]);
        assert_eq!(good.level, Level::LeaseBounded, "{good}");
        assert!(has(&good, ONE_SERVER) && !has(&good, HIDDEN_LOG), "{good}");
        assert!(good.to_string().contains("ZooKeeper 3.8.0, standalone"), "{good}");
        let silent = judge(&[]);
        assert!(has(&silent, SILENT) && has(&silent, HIDDEN_LOG), "{silent}");
        for bad in [look(alone, "tickTime=2000\n", Some(false)), look(alone, "tickTime=4000\n", Some(true))] {
            let lowered = judge(&[look(alone, "tickTime=2000\n", Some(true)), bad]);
            assert_eq!((lowered.level, lowered.findings.len()), (Level::BestEffort, 1), "{lowered}");
        }
    }
}
