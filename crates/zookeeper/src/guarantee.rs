//! The guarantee of an ensemble, by the reports of its servers.

use std::time::Duration;

use leasehold_core::{EngineError, Guarantee, Level};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{client::Client, config::Config, runtime, stream};

/// The time limit for the report of one server.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest report that is read, in bytes.
const MAX_REPORT_BYTES: u64 = 16 * 1024;

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

/// The version and the mode that a server reports.
#[derive(Debug, Default, PartialEq, Eq)]
struct ServerReport {
    version: Option<String>,
    mode: Option<String>,
}

/// Asks the servers for a report, until one gives it, and judges the ensemble.
pub(crate) async fn examine(client: &Client) -> Result<Guarantee, EngineError> {
    let mut report = ServerReport::default();
    for endpoint in &client.config.servers {
        // Both a server that is too slow and one that gives no report are passed over.
        let answer =
            runtime::within(REPORT_TIMEOUT, ask_for_report(&client.config, endpoint)).await.flatten();
        if let Some(answer) = answer {
            report = answer;
            break;
        }
    }
    Ok(judge(&report))
}

/// Asks a server for its report (<https://zookeeper.apache.org/doc/r3.8.0/zookeeperAdmin.html#sc_4lw>). `None` if the
/// server gives no report.
async fn ask_for_report(config: &Config, endpoint: &leasehold_core::Endpoint) -> Option<ServerReport> {
    let (read, mut write) = stream::open(config, endpoint).await.ok()?;
    write.write_all(b"srvr").await.ok()?;
    write.flush().await.ok()?;
    let mut text = String::new();
    read.take(MAX_REPORT_BYTES).read_to_string(&mut text).await.ok()?;
    let report = parse_report(&text);
    (report.mode.is_some()).then_some(report)
}

/// Parses the text of the command `srvr`.
fn parse_report(text: &str) -> ServerReport {
    let field = |start: &str| text.lines().find_map(|line| line.strip_prefix(start)).map(str::trim);
    let version = field("Zookeeper version:").and_then(|version| version.split([',', '-']).next());
    ServerReport { version: version.map(str::to_owned), mode: field("Mode:").map(str::to_owned) }
}

/// The guarantee of an ensemble with this report.
fn judge(report: &ServerReport) -> Guarantee {
    let mut guarantee = Guarantee::new(Level::LeaseBounded, &[LEASED, TICK]);
    match (&report.version, report.mode.as_deref()) {
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
        let text = "Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2024-02-18 23:51 UTC\n\
            Latency min/avg/max: 0/0.0/0\nMode: standalone\nNode count: 5\n";
        let report = parse_report(text);
        assert_eq!((report.version.as_deref(), report.mode.as_deref()), (Some("3.8.0"), Some("standalone")));
        assert!(judge(&report).notes.iter().any(|note| note == ONE_SERVER));
        assert!(judge(&ServerReport::default()).notes.iter().any(|note| note == SILENT));
        assert_eq!(
            parse_report("srvr is not executed because it is not in the whitelist."),
            ServerReport::default()
        );
    }
}
