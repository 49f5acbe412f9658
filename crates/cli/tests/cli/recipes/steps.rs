//! The snippets of docs/across-steps.md.

use super::{
    page::{after, items, snippet},
    site::Site,
};
use crate::tools::{code, stderr};

const PAGE: &str = include_str!("../../../../../docs/across-steps.md");
const STEPS: [&str; 2] = ["migrate.sh", "deploy.sh"];

fn handle_is_gone(site: &Site) {
    for file in [".handle", "handle"] {
        assert!(!site.path().join(file).exists(), "{file} is left");
    }
}

#[test]
fn four_commands_hold_a_name_as_a_lease() {
    let site = Site::with_leases(&[]);
    let commands = snippet(PAGE, "# Locks across steps", "sh");
    site.succeed(commands);
    site.is_free("deploy");
    // The middle of the snippet, with the name held.
    let (before, after) = commands.split_once("leasehold check").unwrap();
    let taken = "leasehold run -n deploy -- true; [ $? = 75 ] || exit 1";
    let output = site.run(&["sh"], &format!("{before}\n{taken}\nleasehold check{after}"));
    assert_eq!(code(&output), 0, "{output:?}");
}

/// Files have no leases, so the page says what to add there.
#[test]
fn four_commands_hold_a_name_for_a_process_on_files() {
    let site = Site::on_files(&[]);
    let commands = snippet(PAGE, "# Locks across steps", "sh");
    let refused = site.run(&["sh", "-e"], commands);
    assert_eq!(code(&refused), 64, "{refused:?}");
    assert!(stderr(&refused).contains("--while-pid"), "{refused:?}");
    assert!(PAGE.contains("add `--while-pid $$`"));
    site.succeed(&commands.replace("--wait 1h", "--wait 1h --while-pid $$"));
    site.is_free("deploy");
}

#[test]
fn a_job_of_gitlab() {
    let snippet = snippet(PAGE, "## GitLab", "yaml");
    let (script, after) = (items(snippet, "script").join("\n"), items(snippet, "after_script").join("\n"));
    let site = Site::on_files(&STEPS);
    site.succeed(&script);
    assert_eq!(site.log(), "migrate.sh \ndeploy.sh \n");
    handle_is_gone(&site);
    site.succeed(&after);
    // After a failure the shell of the script has ended, and the name with it.
    site.let_fail("deploy.sh");
    assert_eq!(code(&site.run(&["bash", "-eo", "pipefail"], &script)), 1);
    site.is_free("deploy");
    let after = site.run(&["bash", "-eo", "pipefail"], &after);
    assert_eq!(code(&after), 76, "{after:?}");
    handle_is_gone(&site);
}

#[test]
fn a_stage_of_jenkins() {
    let snippet = snippet(PAGE, "## Jenkins", "groovy");
    let steps: Vec<_> = snippet.split("sh '").skip(1).map(|rest| rest.split_once('\'').unwrap().0).collect();
    let [steps @ .., always] = &steps[..] else { panic!("no steps in:\n{snippet}") };
    assert!(snippet.contains(&format!("post {{ always {{ sh '{always}' }} }}")));
    let site = Site::with_leases(&STEPS);
    for fails in [false, true] {
        if fails {
            site.let_fail("deploy.sh");
        }
        // A stage ends at its first failure, and `post` comes in each case.
        let failed = steps.iter().any(|step| code(&site.run(&["sh", "-xe"], step)) != 0);
        assert_eq!(failed, fails);
        let always = site.run(&["sh", "-xe"], always);
        assert_eq!(code(&always), 0, "{always:?}");
        handle_is_gone(&site);
        site.is_free("deploy");
    }
    assert_eq!(site.log(), "migrate.sh \ndeploy.sh \n".repeat(2));
}

#[test]
fn a_job_of_github() {
    let snippet = snippet(PAGE, "## GitHub runners", "yaml");
    let runs = snippet.lines().filter_map(|line| line.split_once("run: ")).map(|(_, run)| run);
    let runs: Vec<_> = runs.collect();
    let [runs @ .., always] = &runs[..] else { panic!("no steps in:\n{snippet}") };
    assert!(snippet.contains("- if: always()"));
    for fails in [false, true] {
        let site = Site::on_files(&STEPS);
        if fails {
            site.let_fail("deploy.sh");
        }
        // The process of the job, which runs each step in a shell of its own.
        let mut job = String::from("failed=0\n");
        for (index, run) in runs.iter().enumerate() {
            let step = format!("step-{index}.sh");
            std::fs::write(site.path().join(&step), run).unwrap();
            job.push_str(&format!("[ $failed = 1 ] || bash -e {step} || failed=1\n"));
        }
        std::fs::write(site.path().join("always.sh"), always).unwrap();
        // The release frees the name while the job still lives.
        job.push_str(
            "bash -e always.sh || exit 9\nleasehold run --wait 60s deploy -- true || exit 8\nexit $failed",
        );
        let output = site.run(&["sh"], &job);
        assert_eq!(code(&output), i32::from(fails), "{output:?}");
        assert_eq!(site.log(), "migrate.sh \ndeploy.sh \n");
        handle_is_gone(&site);
    }
}

#[test]
fn a_unit_of_systemd() {
    let snippet = snippet(PAGE, "## systemd", "ini");
    let site = Site::with_leases(&["report"]);
    let unit = site.here(snippet).replace("/run/report/", &format!("{}/", site.path().display()));
    let [before] = after(&unit, "ExecStartPre=")[..] else { panic!("{unit}") };
    let [start] = after(&unit, "ExecStart=")[..] else { panic!("{unit}") };
    let [stop] = after(&unit, "ExecStopPost=-")[..] else { panic!("{unit}") };
    // While another has the name, the start fails, and its clean-up frees nothing.
    site.succeed("leasehold acquire report --ttl 1h --handle-file other");
    let codes = [before, stop].map(|command| code(&site.run(&["sh"], command)));
    assert_eq!(codes, [75, 64]);
    site.succeed("leasehold check --handle-file other && leasehold release --handle-file other");
    site.succeed(before);
    site.succeed(start);
    site.succeed(stop);
    handle_is_gone(&site);
    site.is_free("report");
}

#[test]
fn a_wrapper_of_terraform() {
    let script = snippet(PAGE, "## Terraform wrappers", "sh");
    let site = Site::on_files(&["terraform"]);
    std::fs::write(site.path().join("wrapper"), script).unwrap();
    for (answer, expected) in [("yes\n", 0), ("no\n", 1)] {
        let mut wrapper = site.start(&["sh"], "exec sh wrapper prod");
        wrapper.read_until("apply? ");
        let taken = site.run(&["sh"], "leasehold run -n terraform/prod -- true");
        assert_eq!(code(&taken), 75, "{taken:?}");
        wrapper.write(answer);
        let output = wrapper.output();
        assert_eq!(code(&output), expected, "{output:?}");
        site.is_free("terraform/prod");
    }
    let plan = "terraform -chdir=prod plan -out=plan\n";
    assert_eq!(site.log(), format!("{plan}terraform -chdir=prod apply plan\n{plan}"));
}
