//! The four-letter words, by which a server reports its state to anybody
//! (<https://zookeeper.apache.org/doc/r3.8.0/zookeeperAdmin.html#sc_4lw>). Without rights and without a session.

use std::{collections::HashMap, time::Duration};

use leasehold_core::{Endpoint, EngineError, Fault};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    config::Config,
    runtime,
    stream::{self, Opened},
};

/// The time limit for one report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest report that is read, in bytes.
const MAX_REPORT_BYTES: u64 = 64 * 1024;

/// The answer to a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Report(Report),
    /// The word is not in `4lw.commands.whitelist` of the server.
    NotAllowed,
    /// The server has no quorum.
    NotServing,
}

/// The values of a report, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report(HashMap<String, String>);

/// Asks a server.
///
/// # Errors
/// If the server cannot be reached, or does not answer in time.
pub(crate) async fn ask(config: &Config, endpoint: &Endpoint, word: &str) -> Result<Answer, EngineError> {
    Ok(ask_and_read_certificate(config, endpoint, word).await?.0)
}

/// The same, with the moment after which the certificate of the server is no longer valid, since 1970; `None` without
/// TLS, or if it cannot be read.
pub(crate) async fn ask_and_read_certificate(
    config: &Config,
    endpoint: &Endpoint,
    word: &str,
) -> Result<(Answer, Option<Duration>), EngineError> {
    let asked = async {
        let Opened { halves: (read, mut write), certificate_end } = stream::open(config, endpoint).await?;
        let mut text = Vec::new();
        let exchange = async {
            write.write_all(word.as_bytes()).await?;
            write.flush().await?;
            read.take(MAX_REPORT_BYTES).read_to_end(&mut text).await
        };
        exchange.await.map_err(|error| endpoint.unreachable(&error))?;
        Ok((Answer::read(&String::from_utf8_lossy(&text)), certificate_end))
    };
    let timed_out = || Err(EngineError::new(Fault::Retry, format!("{endpoint} gives no report in time")));
    runtime::within(REPORT_TIMEOUT, asked).await.unwrap_or_else(timed_out)
}

impl Answer {
    /// Reads the text of an answer. A refusal and an empty answer have no values, and must not read as zeros.
    pub(crate) fn read(text: &str) -> Self {
        if text.contains("not currently serving requests") {
            return Self::NotServing;
        }
        let report = Report::read(text);
        if text.contains("not in the whitelist") || report.0.is_empty() {
            return Self::NotAllowed;
        }
        Self::Report(report)
    }

    /// The report, if there is one.
    pub(crate) fn report(&self) -> Option<&Report> {
        match self {
            Self::Report(report) => Some(report),
            Self::NotAllowed | Self::NotServing => None,
        }
    }
}

impl Report {
    /// Reads lines of the form `name: value`, `name=value` or `name<tab>value`.
    fn read(text: &str) -> Self {
        let pair = |line: &str| {
            let (name, value) =
                line.split_once('\t').or_else(|| line.split_once(": ")).or_else(|| line.split_once('='))?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        };
        Self(text.lines().filter_map(pair).collect())
    }

    /// The value with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value as a whole number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        let value = self.get(name)?;
        value.parse().ok().or_else(|| u64::from_str_radix(value.strip_prefix("0x")?, 16).ok())
    }

    /// A value in milliseconds.
    pub(crate) fn millis(&self, name: &str) -> Option<Duration> {
        self.number(name).map(Duration::from_millis)
    }

    /// The version of the server, without what follows its numbers.
    pub(crate) fn version(&self) -> Option<&str> {
        self.get("Zookeeper version").and_then(|version| version.split([',', '-']).next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_all_forms_are_read() {
        let text = "Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2024-02-18 23:51 UTC\n\
            Zxid: 0x12\nMode: standalone\n";
        let answer = Answer::read(text);
        let srvr = answer.report().unwrap();
        assert_eq!(
            (srvr.version(), srvr.get("Mode"), srvr.number("Zxid")),
            (Some("3.8.0"), Some("standalone"), Some(18))
        );
        let mntr = Answer::read("zk_version\t3.8.0\nzk_cnt_fsynctime\t5\nzk_avg_latency\t0.5\n");
        assert_eq!(mntr.report().unwrap().number("zk_cnt_fsynctime"), Some(5));
        assert_eq!(mntr.report().unwrap().number("zk_avg_latency"), None);
        let conf = Answer::read("clientPort=2181\ntickTime=2000\n");
        assert_eq!(conf.report().unwrap().millis("tickTime"), Some(Duration::from_secs(2)));
    }

    /// A refusal read as zeros would say that a server never syncs, or has no requests.
    #[test]
    fn a_refusal_is_no_report() {
        for text in ["mntr is not executed because it is not in the whitelist.\n", ""] {
            assert_eq!(Answer::read(text), Answer::NotAllowed, "{text}");
        }
        let no_quorum = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(Answer::read(no_quorum), Answer::NotServing);
    }
}
