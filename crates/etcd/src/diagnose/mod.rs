//! What an operator should know about the members, beside what the [guarantee](crate::guarantee) finds. Reads only, on
//! connections of its own, because a client is connected to one member only. `docs/doctor.md` explains each id.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Diagnostic, EngineError, Fault, Severity};

use crate::{client::Client, runtime};

mod access;
mod data;
mod disk;
mod member;
mod members;
mod metrics;
mod report;
mod space;

use report::MemberReport;

const MEMBER_ID: &str = "etcd-member";

/// How long to wait for the report of one member, with its page of metrics.
const REPORT_TIMEOUT: Duration = Duration::from_secs(4);

/// A member of the URL that answered, and its report.
type Answered = (String, MemberReport);

/// The diagnostics about every member of the URL.
pub(crate) async fn diagnose(client: &Client) -> Result<Vec<Diagnostic>, EngineError> {
    let config = &client.link.dialer().config;
    let reads = config.members.iter().map(async |member| {
        let report = runtime::within(REPORT_TIMEOUT, MemberReport::read(config, member)).await;
        let timed_out = || {
            let message = format!("{member} did not answer within {REPORT_TIMEOUT:?}");
            Err(EngineError::new(Fault::Retry, message))
        };
        (member.to_string(), report.unwrap_or_else(timed_out))
    });
    let (mut answered, mut away) = (Vec::new(), Vec::new());
    for (address, report) in join_all(reads).await {
        match report {
            Ok(report) => answered.push((address, report)),
            Err(error) => away.push((address, error)),
        }
    }
    if answered.is_empty() {
        let no_member = || EngineError::new(Fault::Retry, "the URL names no member");
        return Err(away.into_iter().next().map_or_else(no_member, |(_, error)| error));
    }
    let mut all = Vec::new();
    for (address, error) in away {
        all.push(judge_away(&error).of_server(address));
    }
    let now = runtime::time_of_day();
    for (address, report) in &answered {
        let about_member = member::judge(report)
            .into_iter()
            .chain(space::judge(report))
            .chain(disk::judge(report))
            .chain(access::judge_certificate(report, config.is_encrypted(), now));
        all.extend(about_member.map(|found| found.of_server(address)));
    }
    all.extend(members::judge(&answered, config.members.len()));
    all.extend(access::judge(&answered, config));
    all.extend(data::judge(&answered).await);
    if config.members.len() == 1 {
        all.iter_mut().for_each(|found| found.server = None);
    }
    Ok(all)
}

/// The diagnostic about a member that cannot be asked, while others can.
fn judge_away(error: &EngineError) -> Diagnostic {
    Diagnostic::new(
        MEMBER_ID,
        Severity::Warning,
        format!("the member cannot be asked: {}", error.message),
        "start the member, or replace it: without a majority of the members nobody gets a lock",
    )
}
