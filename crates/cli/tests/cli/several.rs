//! Runs of several names: all of them are held, or none.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    start::LEASEHOLD,
    tools::{Dir, HOLD, Running, code, one_line, stderr, stdout, until},
};

/// A run of three names whose CMD holds them until it reads a line.
fn hold_three(dir: &Dir) -> Running {
    let run = ["run", "b", "--and", "c", "--and-shared", "a", "--", "sh", "-c", HOLD];
    let mut running = Running::start(dir.leasehold(&run));
    assert_eq!(running.line(), "ready");
    running
}

#[test]
fn all_names_are_held_while_cmd_runs() {
    let dir = Dir::new();
    let mut running = hold_three(&dir);
    for name in ["a", "b", "c"] {
        assert_eq!(dir.code(&["run", "-n", name, "--", "true"]), 75, "{name}");
    }
    assert_eq!(dir.show("a")["mode"], "shared");
    assert_eq!(dir.code(&["run", "-n", "-s", "a", "--", "true"]), 0, "readers share");
    assert_eq!(dir.code(&["run", "-n", "d", "--and-shared", "a", "--", "true"]), 0);
    running.write("\n");
    assert_eq!(code(&running.wait()), 0);
    assert_eq!(dir.code(&["run", "-n", "c", "--and", "b", "--and", "a", "--", "true"]), 0);
}

#[test]
fn cmd_gets_the_token_of_name_and_all_holds_as_json() {
    let dir = Dir::new();
    let print = "echo $LEASEHOLD_NAME $LEASEHOLD_CLAIM $LEASEHOLD_TOKEN; echo $LEASEHOLD_HOLDS";
    let run = ["run", "--limit", "3", "b", "--and", "c", "--and-shared", "a", "--", "sh", "-c", print];
    dir.call(&["run", "b", "--", "true"]);
    let output = stdout(&dir.call(&run));
    let (first, holds) = output.split_once('\n').unwrap();
    let holds: Vec<Value> = serde_json::from_str(holds).unwrap();
    let field = |key: &str| holds.iter().map(|hold| hold[key].clone()).collect::<Vec<_>>();
    assert_eq!(field("name"), ["a", "b", "c"]);
    assert_eq!(field("mode"), ["shared", "permit", "exclusive"]);
    assert!(field("lineage").iter().all(|lineage| lineage.as_str().unwrap().len() == 32), "{holds:?}");
    let (claim, token) = (holds[1]["id"].as_str().unwrap(), holds[1]["token"].as_u64().unwrap());
    assert_eq!(first, format!("b {claim} {token}"));
    assert!(token > holds[0]["token"].as_u64().unwrap(), "b was held before: {holds:?}");
    // A run of one name does not pass on what an outer run of several names holds.
    let inner = [LEASEHOLD, "run", "--pass-url", "z", "--", "sh", "-c", "echo \"<$LEASEHOLD_HOLDS>\""];
    let outer = ["run", "--pass-url", "x", "--and", "y", "--"];
    assert_eq!(stdout(&dir.call(&[&outer, &inner[..]].concat())), "<>\n");
}

#[test]
fn one_taken_name_frees_the_others() {
    let dir = Dir::new();
    let mut holder = dir.holder(&["--owner", "first"], "b", HOLD);
    for taken in [&["run", "-n", "a", "--and", "b"][..], &["run", "-w", "200ms", "b", "--and", "a"]] {
        let output = dir.call(&[taken, &["--and", "c", "--", "echo", "ran"]].concat());
        assert_eq!((code(&output), stdout(&output).as_str()), (75, ""));
        let message = one_line(&output);
        assert!(message.contains("lock \"b\"") && message.contains("first"), "{message}");
        assert_eq!(dir.code(&["run", "-n", "a", "--and", "c", "--", "true"]), 0, "both are free");
    }
    holder.write("\n");
    assert_eq!(code(&holder.wait()), 0);
}

/// The run holds the first name itself, and waits for the second.
#[test]
fn the_awaited_name_and_its_holder_are_named() {
    let dir = Dir::new();
    let mut holder = dir.holder(&["--owner", "alice"], "b", HOLD);
    let run = ["run", "-v", "--owner", "bob", "a", "--and", "b", "--", "true"];
    let mut waiter = Running::start(dir.leasehold(&run));
    let message = waiter.stderr_line();
    assert!(message.starts_with("leasehold: file lock \"b\": waiting: held by alice for "), "{message}");
    holder.write("\n");
    assert_eq!(code(&holder.wait()), 0);
    assert_eq!(code(&waiter.wait()), 0);
}

#[test]
fn the_waiters_of_each_name_are_counted() {
    let dir = Dir::new();
    let holder = dir.hold("b");
    let _waiter = Running::start(dir.leasehold(&["run", "b", "--", "true"]));
    dir.until_waiters("b", 1);
    let output = dir.call(&["run", "--max-waiting", "1", "a", "--and", "b", "--", "true"]);
    let message = one_line(&output);
    assert_eq!(code(&output), 75, "{message}");
    let expected = "file lock \"b\": not acquired: busy: waiting already: 1, --max-waiting: 1";
    assert!(message.contains(expected), "{message}");
    drop(holder);
}

#[test]
fn a_loss_names_the_lost_name() {
    for (ttl, script) in [("1s", "echo ready; exec sleep 1000"), ("1h", "echo ready; read line; exit 0")] {
        let dir = Dir::new();
        let run = ["run", "--ttl", ttl, "a", "--and", "b", "--and", "c", "--", "sh", "-c", script];
        let mut running = Running::start(dir.leasehold(&run));
        assert_eq!(running.line(), "ready");
        crate::loss::replace(&dir, "b");
        if script.contains("read") {
            running.write("\n");
        }
        let output = running.wait();
        let message = one_line(&output);
        assert_eq!(code(&output), 76, "{message}");
        assert!(message.starts_with("leasehold: file lock \"b\": lost while "), "{message}");
    }
}

/// Every hold of the largest run reaches CMD, and the runs inside it know every name.
#[test]
fn the_largest_run_passes_every_hold_on() {
    let dir = Dir::new();
    let names: Vec<String> = (0..128).map(|number| format!("{number:0>512}")).collect();
    let others = names[1..].iter().flat_map(|name| ["--and", name]);
    let print = "echo \"$LEASEHOLD_OUTER\" | wc -l; echo \"$LEASEHOLD_HOLDS\" | grep -o '\"name\"' | wc -l; \
        \"$0\" run \"$1\" -- true";
    let script = ["--", "sh", "-c", print, LEASEHOLD, &names[127]];
    let run = ["run", "--pass-url", &names[0]].into_iter().chain(others).chain(script);
    let output = dir.call(&run.collect::<Vec<_>>());
    let printed = stdout(&output);
    let counts: Vec<&str> = printed.split_whitespace().collect();
    assert_eq!(counts, ["127", "128"], "NAME has variables of its own beside those of the others");
    let message = stderr(&output);
    assert_eq!(code(&output), 64, "{message}");
    assert!(message.contains(&format!("lock {:?}: already held by an outer", names[127])), "{message}");
}

#[test]
fn a_signal_during_the_wait_leaves_no_name() {
    let dir = Dir::new();
    let holder = dir.hold("b");
    let mut waiter = Running::start(dir.leasehold(&["run", "a", "--and", "b", "--", "true"]));
    dir.until_waiters("b", 1);
    assert_eq!(dir.code(&["run", "-n", "a", "--", "true"]), 75, "the first name is held meanwhile");
    waiter.signal(Signal::SIGTERM);
    assert_eq!(code(&waiter.wait()), 143);
    until("a is free", || dir.code(&["run", "-n", "a", "--", "true"]) == 0);
    assert!(dir.show("b")["waiters"].as_array().unwrap().is_empty());
    drop(holder);
}

/// F74.
#[test]
fn runs_of_the_same_names_in_any_order_all_end() {
    let dir = Dir::new();
    let orders = [["a", "b"], ["b", "a"], ["c", "a"], ["b", "c"]];
    let start = |[first, second]: [&str; 2]| {
        let loops = "for i in 1 2 3 4 5; do \"$0\" run \"$1\" --and \"$2\" -- true || exit; done";
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", loops, LEASEHOLD, first, second]).env("LEASEHOLD_URL", dir.url());
        Running::start(shell)
    };
    for running in orders.map(start) {
        let output = running.wait();
        assert_eq!((code(&output), stderr(&output).as_str()), (0, ""));
    }
}

#[test]
fn a_run_inside_the_run_knows_every_name_of_it() {
    let dir = Dir::new();
    for name in ["a", "b"] {
        let outer = ["run", "--pass-url", "a", "--and", "b", "--"];
        let inner = [LEASEHOLD, "run", "--and", name, "z", "--", "true"];
        let output = dir.call(&[&outer, &inner[..]].concat());
        let message = one_line(&output);
        assert_eq!(code(&output), 64, "{message}");
        assert!(message.contains(&format!("lock {name:?}: already held by an outer")), "{message}");
    }
}

#[test]
fn what_cmd_leaves_behind_keeps_every_name() {
    let dir = Dir::new();
    let script = "exec 3<&0; sh -c 'echo ready; read line <&3' & true";
    let mut running = Running::start(dir.leasehold(&["run", "a", "--and", "b", "--", "sh", "-c", script]));
    assert_eq!(running.line(), "ready");
    for name in ["a", "b"] {
        assert_eq!(dir.code(&["run", "-n", name, "--", "true"]), 75, "{name}");
    }
}

#[test]
fn wrong_names_are_refused() {
    let dir = Dir::new();
    for (args, text) in [
        (&["run", "a", "--and", ""][..], "the name is empty"),
        (&["run", "--limit", "2", "a", "--and", "a"], "given twice"),
        (&["run", "--nested", "ok", "a", "--and", "b"], "--nested ok is for a run of one name"),
    ] {
        let output = dir.call(&[args, &["--", "true"]].concat());
        let message = one_line(&output);
        assert!(code(&output) == 64 && message.contains(text), "{message}");
    }
}
