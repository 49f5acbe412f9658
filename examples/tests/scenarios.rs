//! Every scenario, as a newcomer runs it. Each checks its own outcome and says so by its exit code.

use std::process::Command;

/// On the file engine, and on a server of its own.
const PLACES: [&[&str]; 5] = [&[], &["redis"], &["etcd"], &["postgres"], &["mariadb"]];

fn run(program: &str, place: &[&str], expected: &[&str]) {
    let output = Command::new(program).args(place).output().expect("the example was built with this test");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for line in expected {
        assert!(text.contains(line), "expected {line:?} in:\n{text}");
    }
}

#[test]
fn flash_sale() {
    for place in PLACES {
        run(env!("CARGO_BIN_EXE_flash_sale"), place, &["500 of 500 pieces sold to 500 orders, 0 left"]);
    }
}

#[test]
fn prize_draw() {
    for place in PLACES {
        run(env!("CARGO_BIN_EXE_prize_draw"), place, &["10 won", "0 prizes left"]);
    }
}

#[test]
fn one_run_per_schedule() {
    for place in PLACES {
        run(env!("CARGO_BIN_EXE_one_run_per_schedule"), place, &["node 0 killed", "ran on node"]);
    }
}

#[test]
fn quota() {
    for place in PLACES {
        run(env!("CARGO_BIN_EXE_quota"), place, &["at most 3 at once"]);
    }
}

#[test]
fn rebuild_cache() {
    for place in PLACES {
        run(env!("CARGO_BIN_EXE_rebuild_cache"), place, &["8 changes"]);
    }
}

#[test]
fn flash_sale_with_everything_in_redis() {
    let expected = ["500 of 500 pieces sold, 0 left", "the holder that overslept was refused"];
    run(env!("CARGO_BIN_EXE_flash_sale_redis"), &[], &expected);
}

#[test]
fn flash_sale_with_everything_in_postgres() {
    let expected = ["500 of 500 pieces sold, 0 left", "the holder that overslept was refused"];
    run(env!("CARGO_BIN_EXE_flash_sale_postgres"), &[], &expected);
}
