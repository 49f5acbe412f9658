//! Looks at the server of `listen_url=`, on which clients behind a pooler listen for their grants.

use std::collections::HashSet;

use leasehold_core::{Diagnostic, Severity};

use super::{address, ask::Asker, facts::Facts, ids};
use crate::{
    client::within_request_timeout,
    database::Failed,
    postgres::{config::Config, server::Server},
};

/// What follows when notifications do not arrive.
const RISK: &str = "until then waiting clients poll, and find their grants late";

/// Looks at each server of the `listen_url`. `primaries` are the servers to which the pooler leads.
pub(super) async fn diagnose(
    config: &Config,
    listen: &Server,
    primaries: &HashSet<String>,
) -> Vec<Diagnostic> {
    let mut told = Vec::new();
    for (host, port) in listen.hosts_with_ports() {
        let looked = async {
            let asker = Asker::dial(listen, host, port, config.dial_limit()).await?;
            within_request_timeout(Facts::read(&asker)).await
        };
        told.push(judge(looked.await.as_ref(), primaries).of_server(address(host, port)));
    }
    told
}

/// Judges whether notifications of the primary can arrive there.
fn judge(facts: Result<&Facts, &Failed>, primaries: &HashSet<String>) -> Diagnostic {
    let warning = |found: String, advice: &str| {
        Diagnostic::new(ids::ID_LISTEN_URL, Severity::Warning, found, format!("{advice}: {RISK}"))
    };
    match facts {
        Err(failed) => warning(
            format!("the server of listen_url cannot be used: {failed}"),
            "name a server that this machine reaches",
        ),
        Ok(facts) if facts.announced_process != Some(facts.process) => warning(
            "listen_url leads to a pooler, too: notifications do not pass through it".to_owned(),
            "name the server itself",
        ),
        Ok(facts) if facts.in_recovery => warning(
            "listen_url leads to a replica, which sends no notifications".to_owned(),
            "name the primary",
        ),
        Ok(facts) if !primaries.contains(&facts.identity) => warning(
            "listen_url leads to another server than the URL".to_owned(),
            "name the server behind the pooler",
        ),
        Ok(_) => Diagnostic::good(ids::ID_LISTEN_URL, "listen_url leads to the server behind the pooler"),
    }
}
