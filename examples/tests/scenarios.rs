//! Every scenario, as a newcomer runs it. Each checks its own outcome and says so by its exit code.

use std::process::Command;

fn run(program: &str, place: &[&str], expected: &[&str]) {
    let output = Command::new(program).args(place).output().expect("the example was built with this test");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for line in expected {
        assert!(text.contains(line), "expected {line:?} in:\n{text}");
    }
}

/// On the file engine, and on a server of its own: a test each, for they wait for most of their time.
macro_rules! everywhere {
    ($scenario:ident, $expected:expr) => {
        mod $scenario {
            const PROGRAM: &str = env!(concat!("CARGO_BIN_EXE_", stringify!($scenario)));

            everywhere!(@ on_files [] $expected);
            everywhere!(@ on_redis ["redis"] $expected);
            everywhere!(@ on_etcd ["etcd"] $expected);
            everywhere!(@ on_postgres ["postgres"] $expected);
            everywhere!(@ on_mariadb ["mariadb"] $expected);
        }
    };
    (@ $name:ident $place:tt $expected:expr) => {
        #[test]
        fn $name() {
            super::run(PROGRAM, &$place, &$expected);
        }
    };
}

everywhere!(flash_sale, ["500 of 500 pieces sold to 500 orders, 0 left"]);
everywhere!(prize_draw, ["10 won", "0 prizes left"]);
everywhere!(one_run_per_schedule, ["node 0 killed", "ran on node"]);
everywhere!(quota, ["at most 3 at once"]);
everywhere!(rebuild_cache, ["8 changes"]);

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
