//! Runs every scenario as a newcomer would run it. Each scenario checks its own outcome, and reports it by its exit
//! code.

use std::process::Command;

fn run(program: &str, arguments: &[&str], expected: &[&str]) {
    let output =
        Command::new(program).args(arguments).output().expect("the example was built with this test");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for line in expected {
        assert!(text.contains(line), "expected {line:?} in:\n{text}");
    }
}

/// Runs a scenario on the file engine, and on each kind of server that the test starts. Each of these is a separate
/// test, because the scenarios mostly wait.
macro_rules! everywhere {
    ($scenario:ident, $expected:expr) => {
        mod $scenario {
            const PROGRAM: &str = env!(concat!("CARGO_BIN_EXE_", stringify!($scenario)));

            everywhere!(@ on_files [] $expected);
            everywhere!(@ on_redis ["redis"] $expected);
            everywhere!(@ on_redis_by_sentinels ["redis-sentinel"] $expected);
            everywhere!(@ on_a_redis_cluster ["redis-cluster"] $expected);
            everywhere!(@ on_etcd ["etcd"] $expected);
            everywhere!(@ on_zookeeper ["zookeeper"] $expected);
            everywhere!(@ on_postgres ["postgres"] $expected);
            everywhere!(@ on_mariadb ["mariadb"] $expected);
        }
    };
    (@ $name:ident $arguments:tt $expected:expr) => {
        #[test]
        fn $name() {
            super::run(PROGRAM, &$arguments, &$expected);
        }
    };
}

everywhere!(flash_sale, ["500 of 500 pieces sold to 500 orders, 0 left"]);
everywhere!(prize_draw, ["10 won", "0 prizes left"]);
everywhere!(one_run_per_schedule, ["node 0 killed", "ran on node"]);
everywhere!(quota, ["at most 3 at once"]);
everywhere!(rebuild_cache, ["8 changes"]);

/// The output of the flash sales that have their locks, stock and orders in one database.
const ALL_IN_ONE: [&str; 2] = ["500 of 500 pieces sold, 0 left", "the holder that overslept was refused"];

#[test]
fn flash_sale_with_everything_in_redis() {
    run(env!("CARGO_BIN_EXE_flash_sale_redis"), &[], &ALL_IN_ONE);
}

#[test]
fn flash_sale_with_everything_in_redis_by_sentinels() {
    run(env!("CARGO_BIN_EXE_flash_sale_redis"), &["redis-sentinel"], &ALL_IN_ONE);
}

#[test]
fn flash_sale_with_everything_in_a_redis_cluster() {
    run(env!("CARGO_BIN_EXE_flash_sale_redis"), &["redis-cluster"], &ALL_IN_ONE);
}

#[test]
fn flash_sale_with_everything_in_postgres() {
    run(env!("CARGO_BIN_EXE_flash_sale_postgres"), &[], &ALL_IN_ONE);
}
