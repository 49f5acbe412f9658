//! What locks of sessions promise on a MySQL or MariaDB server.

use std::time::Duration;

use leasehold_core::{Guarantee, Level};

use super::super::{guarantee::replicas, server::Server};
use crate::session::guarantee::{Path, judge_delay};

/// What an operator's end of a session means.
const END_NOTE: &str = "an operator who ends a session alone (KILL CONNECTION) frees its names at once: its holder is told over its connection, and until then, for at most 15s, two processes may rely on one hold";
/// What the tokens depend on.
const TOKEN_NOTE: &str = "tokens are from UUID_SHORT(): they grow on one server, also over a restart, unless its clock was set back before the restart";

/// What is known of the session beside the variables of the server.
pub(super) struct Judged {
    pub(super) delay: Duration,
    pub(super) path: Path,
}

/// Judges the guarantee by the variables and status values of a server.
pub(super) fn guarantee(server: &Server, judged: &Judged) -> Guarantee {
    let mut guarantee = Guarantee::new(Level::LeaseBounded, &[END_NOTE, TOKEN_NOTE]);
    judge_delay(judged.delay, &mut guarantee);
    judged.path.judge("a proxy or NAT", &mut guarantee);
    match replicas(server) {
        Some(0) => {}
        Some(count) => guarantee.lower(
            "the number of replicas",
            &count.to_string(),
            "0",
            "locks of sessions are not replicated: a replica that is promoted grants names that are held",
        ),
        None => guarantee.note(
            "only a user with the right PROCESS sees whether there are replicas: one that is promoted grants names that are held",
        ),
    }
    if let Some(group) = server.get("group_replication_group_name").filter(|group| !group.is_empty()) {
        let risk = "locks of sessions are not replicated: a member of the group that takes over grants names that are held";
        guarantee.lower("group_replication_group_name", group, "none", risk);
    }
    guarantee
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::options::LONGEST_TTL;

    #[test]
    fn replicas_proxies_and_short_delays_lower_the_guarantee() {
        let judged = |values: &[(&str, &str)], seconds, seen_as: Option<&str>| {
            let path = seen_as.map_or(Path::Direct, |address| Path::SeenAs(address.to_owned()));
            let judged = Judged { delay: Duration::from_secs(seconds), path };
            guarantee(&Server::of(values), &judged)
        };
        let alone = [("slaves_connected", "0")];
        assert_eq!(judged(&alone, 15, None).level, Level::LeaseBounded);
        for (lowered, found) in [
            (judged(&[("slaves_connected", "1")], 15, None), "replica"),
            (judged(&[alone[0], ("group_replication_group_name", "3e11")], 15, None), "member"),
            (judged(&alone, 14, None), "delay is 14s"),
            (judged(&alone, 15, Some("proxy:7")), "proxy:7"),
        ] {
            assert!(lowered.level == Level::BestEffort && lowered.to_string().contains(found), "{lowered}");
        }
        assert!(judged(&[], 15, None).to_string().contains("the right PROCESS"));
        let socket = Judged { delay: LONGEST_TTL, path: Path::Socket };
        assert!(guarantee(&Server::of(&alone), &socket).to_string().contains("behind it"));
    }
}
