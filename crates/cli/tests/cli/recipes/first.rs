//! The commands of the first pages that a newcomer reads.

use super::{page::snippet, site::Site};
use crate::tools::code;

const README: &str = include_str!("../../../../../README.md");
const PACKAGE: &str = include_str!("../../../README.md");
const QUICK_START: &str = include_str!("../../../../../docs/quick-start.md");
const TTL: &str = include_str!("../../../../../docs/choosing-a-ttl.md");

/// Runs each command of a snippet that ends by itself. Returns their exit codes, each with its command.
fn run_each(site: &Site, snippet: &str) -> Vec<(i32, String)> {
    let commands = snippet.lines().filter_map(|line| line.strip_prefix("$ leasehold "));
    // These go on until somebody ends them, or look at the machine of the reader.
    let ending =
        commands.filter(|command| !["serve", "top", "doctor"].iter().any(|word| command.starts_with(word)));
    ending
        .map(|command| (code(&site.run(&["sh"], &format!("leasehold {command}"))), command.to_owned()))
        .collect()
}

#[test]
fn the_commands_of_the_first_pages() {
    let programs = ["report.sh", "call.sh", "read.sh", "migrate.sh", "scheduler"];
    let pages = [
        (README, "builds and installs `leasehold` with all engines"),
        (PACKAGE, "# leasehold-cli"),
        (QUICK_START, "On a fleet, write the URL into"),
        (TTL, "## In the shell"),
    ];
    for (page, words) in pages {
        let site = Site::with_leases(&programs);
        let run = run_each(&site, snippet(page, words, "console"));
        let is_expected = |(code, command): &(i32, String)| match command.split(' ').next() {
            // Nobody leads any more.
            Some("leader") => *code == 1,
            _ => *code == 0,
        };
        assert!(!run.is_empty() && run.iter().all(is_expected), "{run:?}");
        assert!(!site.log().is_empty(), "no program ran: {run:?}");
    }
}
