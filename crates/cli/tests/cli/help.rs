//! Help, version and completions.

use crate::{
    start::{LEASEHOLD, program},
    tools::{bare, code, finish, stderr, stdout},
};

fn printed(args: &[&str]) -> String {
    let output = finish(bare(args));
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""), "{args:?}");
    stdout(&output)
}

#[test]
fn help_and_version_exit_0() {
    assert_eq!(printed(&["--version"]), format!("leasehold {}\n", env!("CARGO_PKG_VERSION")));
    let commands =
        ["run", "elect", "leader", "once", "list", "show", "break", "doctor", "serve", "watch", "top"];
    for command in commands.into_iter().chain(["completions"]) {
        assert!(printed(&["--help"]).contains(command));
        assert!(printed(&[command, "--help"]).contains("Usage: leasehold"), "{command}");
    }
}

#[test]
fn help_of_run_states_the_pitfalls() {
    for option in ["-h", "--help"] {
        let text = printed(&["run", option]).split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "different users do not exclude each other without a shared directory",
            "set-uid",
            "became another user (sudo)",
            "as under flock, unless -o",
            "Examples:",
            "LEASEHOLD_URL_FILE",
            "--at-least",
            "76 the lock was lost",
        ] {
            assert!(text.contains(words), "{option}: {words}");
        }
    }
}

#[test]
fn help_of_elect_leader_and_once_has_examples_and_exit_codes() {
    for (command, words) in [
        ("elect", &["the next candidate leads at once", "(76)", "a smaller one"][..]),
        ("leader", &["1 nobody leads", "vacant", "unsure", "(141: its reader has gone)"]),
        (
            "once",
            &["at least one time, not exactly one time", "LEASEHOLD_PREVIOUS", "64 KiB", "75 another run"],
        ),
    ] {
        let text = printed(&[command, "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
        for words in ["Examples:", "78", &format!("leasehold {command} ")].iter().chain(words) {
            assert!(text.contains(words), "{command}: {words}");
        }
    }
}

#[test]
fn completions_contain_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let text = printed(&["completions", shell]);
        assert!(text.contains("max-hold") && text.contains("completions"), "{shell}");
        assert!(text.contains("show-result") && text.contains("follow"), "{shell}");
    }
    assert_eq!(code(&finish(bare(&["completions", "tcsh"]))), 64);
}

#[test]
fn bash_loads_its_completions() {
    let mut command = program("bash");
    command.args(["-c", &format!("source <({LEASEHOLD} completions bash) && complete -p leasehold")]);
    let output = finish(command);
    assert_eq!(code(&output), 0, "{output:?}");
}
