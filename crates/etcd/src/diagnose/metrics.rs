//! The page of metrics of a member, at the address of the URL. A member with `--listen-metrics-urls` shows it at
//! another address.

use std::time::Duration;

use leasehold_core::Endpoint;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{config::Config, runtime, stream};

/// The most bytes of the page that are read: the pages of etcd have about 100 kB.
const MAX_PAGE_BYTES: u64 = 1 << 20;
/// How long to wait for the page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// The request. After the answer to HTTP/1.0 the server closes the connection.
const REQUEST: &[u8] = b"GET /metrics HTTP/1.0\r\nHost: etcd\r\n\r\n";

/// The metrics that are judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Metrics {
    /// How often the member has waited until its log was on disk, since it was started.
    pub(super) log_syncs: Option<u64>,
    /// Of those, how many took at most so many seconds.
    pub(super) log_syncs_within: Vec<(f64, u64)>,
    /// How often the member has written its database, since it was started.
    pub(super) database_commits: Option<u64>,
    /// The limit of the size of the database file.
    pub(super) quota: Option<u64>,
}

/// Reads the page. `None` if the member shows none, or not in time.
pub(super) async fn read(config: &Config, member: &Endpoint) -> Option<Metrics> {
    let page = async {
        let mut bytes = stream::open(config, member, &[]).await.ok()?.bytes;
        bytes.write_all(REQUEST).await.ok()?;
        let mut page = Vec::new();
        bytes.take(MAX_PAGE_BYTES).read_to_end(&mut page).await.ok()?;
        Some(page)
    };
    let page = runtime::within(PAGE_TIMEOUT, page).await??;
    let page = String::from_utf8_lossy(&page);
    let (head, body) = page.split_once("\r\n\r\n")?;
    let is_found = head.split(' ').nth(1) == Some("200");
    is_found.then(|| Metrics::parse(body))
}

impl Metrics {
    /// Reads the lines `name value` and `name{label="value"} value`.
    pub(super) fn parse(page: &str) -> Self {
        let mut metrics = Self::default();
        for (series, value) in page.lines().filter_map(|line| line.rsplit_once(' ')) {
            // Large numbers have an exponent.
            let Some(number) = value.parse::<f64>().ok().filter(|number| *number >= 0.0) else { continue };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked to be no less than 0"
            )]
            let count = number as u64;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            match name {
                "etcd_disk_wal_fsync_duration_seconds_count" => metrics.log_syncs = Some(count),
                "etcd_disk_wal_fsync_duration_seconds_bucket" => {
                    let limit = labels.strip_prefix("le=\"").and_then(|rest| rest.split('"').next());
                    if let Some(limit) = limit.and_then(|limit| limit.parse::<f64>().ok()) {
                        metrics.log_syncs_within.push((limit, count));
                    }
                }
                "etcd_disk_backend_commit_duration_seconds_count" => metrics.database_commits = Some(count),
                "etcd_server_quota_backend_bytes" => metrics.quota = Some(count),
                _ => {}
            }
        }
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_that_count_are_read() {
        let page = "# HELP etcd_disk_wal_fsync_duration_seconds The latency\n\
            etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.001\"} 5\n\
            etcd_disk_wal_fsync_duration_seconds_bucket{le=\"+Inf\"} 11\n\
            etcd_disk_wal_fsync_duration_seconds_count 11\n\
            etcd_disk_backend_commit_duration_seconds_count 4\n\
            etcd_server_quota_backend_bytes 2.147483648e+09\n\
            etcd_disk_wal_fsync_duration_seconds_count{a=\"b\"} x\nnonsense\n";
        let expected = Metrics {
            log_syncs: Some(11),
            log_syncs_within: vec![(0.001, 5), (f64::INFINITY, 11)],
            database_commits: Some(4),
            quota: Some(2_147_483_648),
        };
        assert_eq!(Metrics::parse(page), expected);
        assert_eq!(Metrics::parse(""), Metrics::default());
    }
}
