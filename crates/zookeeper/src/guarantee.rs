//! What an ensemble promises, by what its servers say of themselves.

use std::time::Duration;

use leasehold_core::{EngineError, Guarantee, Level};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{client::Client, config::Config, runtime, stream};

/// How long a server is asked what it is.
const ASK_LIMIT: Duration = Duration::from_secs(1);
/// More is not read of what it says.
const MOST_SAID: u64 = 16 * 1024;

const LEASED: &str = "a holder believes in its session until half a tick and a sixteenth of its timeout before the server may end it, \
    counted from the last but one change that a quorum confirmed";
const TICK: &str = "a tick (tickTime) is taken to be at most three seconds, or half of the session's timeout if that is less";
const ONE_SERVER: &str = "it is one server: if its disk is lost, so is what it knew, and tokens begin anew";
const SILENT: &str = "no server says what it is: allow the word srvr (4lw.commands.whitelist) to see its version and mode here";

/// What a server says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct ServerReport {
    version: Option<String>,
    mode: Option<String>,
}

pub(crate) async fn look(client: &Client) -> Result<Guarantee, EngineError> {
    let mut said = ServerReport::default();
    for endpoint in &client.config.servers {
        if let Some(Some(facts)) = runtime::within(ASK_LIMIT, ask(&client.config, endpoint)).await {
            said = facts;
            break;
        }
    }
    Ok(judge(&said))
}

/// <https://zookeeper.apache.org/doc/r3.8.0/zookeeperAdmin.html#sc_4lw>
async fn ask(config: &Config, endpoint: &leasehold_core::Endpoint) -> Option<ServerReport> {
    let (read, mut write) = stream::open(config, endpoint).await.ok()?;
    write.write_all(b"srvr").await.ok()?;
    write.flush().await.ok()?;
    let mut said = String::new();
    read.take(MOST_SAID).read_to_string(&mut said).await.ok()?;
    let facts = read_facts(&said);
    (facts.mode.is_some()).then_some(facts)
}

fn read_facts(said: &str) -> ServerReport {
    let line = |start: &str| said.lines().find_map(|line| line.strip_prefix(start)).map(str::trim);
    let version = line("Zookeeper version:").and_then(|version| version.split([',', '-']).next());
    ServerReport { version: version.map(str::to_owned), mode: line("Mode:").map(str::to_owned) }
}

fn judge(facts: &ServerReport) -> Guarantee {
    let mut guarantee = Guarantee::new(Level::LeaseBounded, &[LEASED, TICK]);
    match (&facts.version, facts.mode.as_deref()) {
        (Some(version), Some(mode)) => {
            guarantee.note(format!("ZooKeeper {version}, {mode}"));
            if mode == "standalone" {
                guarantee.note(ONE_SERVER);
            }
        }
        _ => guarantee.note(SILENT),
    }
    guarantee
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_report_is_parsed() {
        let said = "Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2024-02-18 23:51 UTC\nLatency min/avg/max: 0/0.0/0\nMode: standalone\nNode count: 5\n";
        let facts = read_facts(said);
        assert_eq!((facts.version.as_deref(), facts.mode.as_deref()), (Some("3.8.0"), Some("standalone")));
        assert!(judge(&facts).notes.iter().any(|note| note == ONE_SERVER));
        assert!(judge(&ServerReport::default()).notes.iter().any(|note| note == SILENT));
        assert_eq!(
            read_facts("srvr is not executed because it is not in the whitelist."),
            ServerReport::default()
        );
    }
}
