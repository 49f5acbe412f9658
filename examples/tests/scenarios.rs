//! Every scenario, as a newcomer runs it. Each checks its own outcome and says so by its exit code.

use std::process::Command;

fn run(program: &str, expected: &[&str]) {
    let output = Command::new(program).output().expect("the example was built with this test");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for line in expected {
        assert!(text.contains(line), "expected {line:?} in:\n{text}");
    }
}

#[test]
fn flash_sale() {
    run(env!("CARGO_BIN_EXE_flash_sale"), &["500 of 500 pieces sold to 500 orders, 0 left"]);
}

#[test]
fn prize_draw() {
    run(env!("CARGO_BIN_EXE_prize_draw"), &["10 won", "0 prizes left"]);
}

#[test]
fn one_run_per_schedule() {
    run(env!("CARGO_BIN_EXE_one_run_per_schedule"), &["node 0 killed", "ran on node"]);
}

#[test]
fn quota() {
    run(env!("CARGO_BIN_EXE_quota"), &["at most 3 at once"]);
}
