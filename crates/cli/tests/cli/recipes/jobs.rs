//! The snippets that run one program: docs/recipes and docs/kubernetes.md.

use super::{
    page::{after, snippet},
    site::Site,
};
use crate::tools::{code, stderr, stdout};

const CRON: &str = include_str!("../../../../../docs/recipes/cron.md");
const CI: &str = include_str!("../../../../../docs/recipes/ci-job.md");
const SYSTEMD: &str = include_str!("../../../../../docs/recipes/systemd-timer.md");
const KUBERNETES: &str = include_str!("../../../../../docs/kubernetes.md");

/// The command of the only entry in a snippet for `/etc/cron.d`, as cron starts it.
fn entry(site: &Site, words: &str) -> String {
    let [command] = after(snippet(CRON, words, "text"), "*/10 * * * * app ")[..] else { panic!("{words}") };
    assert!(!command.contains('%'), "cron makes a new line of it");
    site.here(command)
}

#[test]
fn a_job_of_cron_runs_once_for_each_tick() {
    let site = Site::on_files(&["report"]);
    let command = entry(&site, "# cron: one run per tick");
    let runs = [site.run(&["sh"], &command), site.run(&["sh"], &command)];
    assert_eq!(runs.each_ref().map(code), [0, 75], "{runs:?}");
    // Nothing is printed, so cron sends no mail.
    assert!(runs.iter().all(|run| run.stdout.is_empty() && run.stderr.is_empty()), "{runs:?}");
    assert_eq!(site.log(), "report \n");
}

#[test]
fn a_job_of_cron_waits() {
    let site = Site::on_files(&["report"]);
    site.succeed(&entry(&site, "## To wait instead"));
    assert_eq!(site.log(), "report \n");
}

#[test]
fn a_job_of_cron_that_hangs_is_ended() {
    let site = Site::on_files(&["report"]);
    site.let_hang("report");
    let command = entry(&site, "## A job that hangs");
    assert!(command.contains("--max-hold 30m"), "{command}");
    let output = site.run(&["sh"], &command.replace("30m", "1s"));
    assert_eq!(code(&output), 76, "{output:?}");
    assert!(stderr(&output).contains("max-hold"), "{output:?}");
    assert_eq!(site.log(), "report \n");
    site.is_free("report");
}

/// The page shows what two runs in a shell print.
#[test]
fn two_runs_in_a_shell() {
    let site = Site::on_files(&[]);
    let session = snippet(CRON, "## Which lock file", "console");
    let printed: String =
        session.lines().filter(|line| !line.starts_with("$ ")).map(|line| format!("{line}\n")).collect();
    let output = site.run(&["sh"], &after(session, "$ ").join("\n"));
    assert_eq!((stdout(&output), stderr(&output)), (printed, String::new()));
}

#[test]
fn a_job_of_a_runner_deploys() {
    let site = Site::on_files(&["deploy.sh"]);
    let gitlab = snippet(CI, "## Where the lock is stored", "yaml");
    let github = snippet(CI, "Do not write the exit code 75", "yaml");
    let commands =
        [snippet(CI, "# CI job", "sh"), after(gitlab, "- leasehold ")[0], after(github, "- run: ")[0]];
    assert!(commands[2].starts_with("exec "));
    site.succeed(commands[0]);
    site.succeed(&format!("leasehold {}", commands[1]));
    site.succeed(commands[2]);
    assert_eq!(site.log(), "deploy.sh \n".repeat(3));
    // Without a URL nothing is deployed.
    let output = site.run(&["sh"], &format!("unset LEASEHOLD_URL; {}", commands[2]));
    assert_eq!(code(&output), 78, "{output:?}");
}

#[test]
fn a_unit_of_systemd_runs_once_for_each_tick() {
    let site = Site::on_files(&["report", "billing"]);
    let unit = site.here(snippet(SYSTEMD, "# systemd: one run per tick", "ini"));
    assert!(unit.contains("\nSuccessExitStatus=75\n"));
    let [start] = after(&unit, "ExecStart=")[..] else { panic!("{unit}") };
    let start =
        start.replace("/var/lib/report-locks", &site.path().join("report-locks").display().to_string());
    let codes = [0, 1].map(|_| code(&site.run(&["sh"], &start)));
    assert_eq!(codes, [0, 75]);
    let unit = site.here(snippet(SYSTEMD, "## A service on one of several hosts", "ini"));
    let [start] = after(&unit, "ExecStart=")[..] else { panic!("{unit}") };
    site.succeed(start);
    assert_eq!(site.log(), "report \nbilling \n");
}

#[test]
fn the_commands_of_pods() {
    let site = Site::on_files(&["report", "billing", "migrate"]);
    let commands: Vec<_> =
        KUBERNETES.lines().filter_map(|line| line.split_once("command: [leasehold, ")).collect();
    let commands: Vec<_> = commands
        .iter()
        .map(|(_, words)| words.trim_end_matches(']').replace('"', "").replace(", ", " "))
        .collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in &commands {
        site.succeed(&site.here(&format!("leasehold {command}")));
    }
    assert_eq!(site.log(), "report \nbilling \nmigrate \n");
    // The second pod of a tick does nothing, and succeeds.
    site.succeed(&site.here(&format!("leasehold {}", commands[0])));
    assert_eq!(site.log(), "report \nbilling \nmigrate \n");
    let output = site
        .run(&["sh"], &format!("unset LEASEHOLD_URL; {}", site.here(&format!("leasehold {}", commands[0]))));
    assert_eq!(code(&output), 78, "{output:?}");
}
