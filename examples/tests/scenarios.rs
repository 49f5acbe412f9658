//! Runs every scenario as a newcomer would run it. Each scenario checks its own outcome, and reports it by its exit
//! code. Without a lock, and with the lock of an article, it must show what goes wrong.

mod recipes;

use std::process::Command;

/// Runs a scenario. Returns its output, which must contain these texts.
fn run(program: &str, line: &str, expected: &[&str]) -> String {
    let output = Command::new(program)
        .args(line.split_whitespace())
        .output()
        .expect("the example was built with this test");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in expected {
        assert!(text.contains(part), "expected {part:?} in:\n{text}");
    }
    text
}

/// Runs a scenario, and checks in its output how often this went wrong: never with leasehold, otherwise at least once.
fn judge(program: &str, line: &str, expected: &[&str], wrong: &str) {
    let text = run(program, line, expected);
    let words = match line {
        line if line.contains("--without-lock") => "without a lock: ",
        line if line.contains("--textbook") => "with the article's lock: ",
        _ => "with leasehold: ",
    };
    let beginning = format!("{words}{wrong}: ");
    let verdicts = text.lines().filter_map(|verdict| verdict.strip_prefix(&beginning));
    let counts: Vec<usize> = verdicts.map(|count| count.parse().expect("a count")).collect();
    let [count] = counts[..] else { panic!("expected one count of {wrong:?} in:\n{text}") };
    assert_eq!(count == 0, words == "with leasehold: ", "{text}");
}

/// Runs a scenario with each of these command lines. Each is a separate test, because the scenarios mostly wait.
macro_rules! scenario {
    ($scenario:ident, $expected:expr, $wrong:expr, $($name:ident $line:literal)+) => {
        mod $scenario {
            #[allow(clippy::wildcard_imports, reason = "the constants of the caller")]
            use super::*;

            const PROGRAM: &str = env!(concat!("CARGO_BIN_EXE_", stringify!($scenario)));
            $(
                #[test]
                fn $name() {
                    super::judge(PROGRAM, $line, &$expected, $wrong);
                }
            )+
        }
    };
}

/// The same on lock files, and on each kind of server that the test starts; and without a lock, and with the article's
/// lock.
macro_rules! everywhere {
    ($scenario:ident, $expected:expr, $wrong:expr, $($name:ident $line:literal)*) => {
        scenario!($scenario, $expected, $wrong,
            on_files ""
            on_redis "--url redis"
            on_redis_by_sentinels "--url redis-sentinel"
            on_a_redis_cluster "--url redis-cluster"
            on_etcd "--url etcd"
            on_zookeeper "--url zookeeper"
            on_postgres "--url postgres"
            on_mariadb "--url mariadb"
            $($name $line)*
        );
    };
}

/// What goes wrong.
const SOLD_TWICE: &str = "orders that got a piece that was sold already";
const NO_PRIZE: &str = "winners without a prize";
const RUN_AGAIN: &str = "runs of a tick that had run already";
const JOB_RUN_AGAIN: &str = "runs of a job that had run already";
const SENT_AGAIN: &str = "messages sent again";
const BEYOND: &str = "calls beyond the quota";
const BUILT_AGAIN: &str = "rebuilds of a page that was built already";
const GIVEN_UP: &str = "orders given up because a killed worker holds the lock";

/// The output of the flash sales with their stock behind a fence.
const FENCED: [&str; 2] = ["500 of 500 pieces sold, 0 left", "the holder that overslept was refused"];

everywhere!(flash_sale, ["500 of 500 pieces sold to 500 orders, 0 left"], SOLD_TWICE,);
everywhere!(prize_draw, ["10 won", "0 prizes left"], NO_PRIZE,
    with_the_pot_in_redis "--pot redis"
    with_the_pot_in_redis_under_a_lock_on_etcd "--pot redis --url etcd"
    with_the_pot_in_redis_under_a_lock_on_zookeeper "--pot redis --url zookeeper"
    with_the_pot_in_redis_under_a_lock_on_postgres "--pot redis --url postgres"
    with_the_pot_in_redis_under_a_lock_on_mariadb "--pot redis --url mariadb"
);
everywhere!(one_run_per_schedule, ["node 0 killed", "ran on node"], RUN_AGAIN,);
everywhere!(quota, ["at most 3 at once"], BEYOND,);
everywhere!(rebuild_cache, ["8 changes"], BUILT_AGAIN,);
scenario!(flash_sale_redis, FENCED, SOLD_TWICE,
    with_locks_in_the_same_redis ""
    with_locks_in_the_same_redis_by_sentinels "--url redis-sentinel"
    with_locks_in_the_same_redis_cluster "--url redis-cluster"
    with_locks_on_etcd "--url etcd"
    with_locks_on_zookeeper "--url zookeeper"
    with_locks_on_postgres "--url postgres"
    with_locks_on_mariadb "--url mariadb"
);
scenario!(flash_sale_sql, FENCED, SOLD_TWICE,
    with_everything_in_postgres ""
    with_everything_in_mariadb "--stock mariadb"
    with_locks_on_redis "--url redis"
    with_locks_on_etcd "--url etcd --stock mariadb"
    with_locks_on_zookeeper "--url zookeeper"
    with_locks_on_mariadb_and_the_stock_in_postgres "--url mariadb --stock postgres"
);

scenario!(singleton_worker, ["the active worker killed", "60 of 60 messages sent"], SENT_AGAIN, on_postgres "");
scenario!(job_scheduler, ["worker 0 killed", "40 of 40 jobs run"], JOB_RUN_AGAIN, on_postgres "");

mod on_files_without_a_lease {
    #[test]
    fn no_holder_can_oversleep() {
        let program = env!("CARGO_BIN_EXE_flash_sale_redis");
        super::judge(
            program,
            "--url file --stock redis",
            &["500 of 500 pieces sold, 0 left"],
            super::SOLD_TWICE,
        );
    }
}

/// Without a lock, and with the lock of an article. Here a scenario succeeds only if something went wrong.
mod what_goes_wrong {
    use super::{
        BEYOND, BUILT_AGAIN, GIVEN_UP, JOB_RUN_AGAIN, NO_PRIZE, RUN_AGAIN, SENT_AGAIN, SOLD_TWICE, judge,
    };

    macro_rules! wrong {
        ($($name:ident: $program:literal $line:literal $wrong:ident)+) => {
            $(
                #[test]
                fn $name() {
                    judge(env!(concat!("CARGO_BIN_EXE_", $program)), $line, &[], $wrong);
                }
            )+
        };
    }

    wrong! {
        flash_sale_without_a_lock: "flash_sale" "--without-lock" SOLD_TWICE
        flash_sale_under_a_lock_that_expires: "flash_sale" "--textbook" SOLD_TWICE
        flash_sale_redis_without_a_lock: "flash_sale_redis" "--without-lock" SOLD_TWICE
        flash_sale_redis_under_a_lock_that_another_deletes: "flash_sale_redis" "--textbook" SOLD_TWICE
        flash_sale_postgres_without_a_lock: "flash_sale_sql" "--without-lock" SOLD_TWICE
        flash_sale_mariadb_without_a_lock: "flash_sale_sql" "--without-lock --stock mariadb" SOLD_TWICE
        flash_sale_postgres_under_a_row_that_stays: "flash_sale_sql" "--textbook" GIVEN_UP
        flash_sale_mariadb_under_a_row_that_stays: "flash_sale_sql" "--textbook --stock mariadb" GIVEN_UP
        job_scheduler_without_a_lock: "job_scheduler" "--without-lock" JOB_RUN_AGAIN
        job_scheduler_under_a_lock_that_ends_with_its_statement: "job_scheduler" "--textbook" JOB_RUN_AGAIN
        singleton_worker_without_a_lock: "singleton_worker" "--without-lock" SENT_AGAIN
        singleton_worker_under_a_lock_that_ends_with_its_statement: "singleton_worker" "--textbook" SENT_AGAIN
        prize_draw_without_a_lock: "prize_draw" "--without-lock" NO_PRIZE
        prize_draw_in_redis_without_a_lock: "prize_draw" "--without-lock --pot redis" NO_PRIZE
        prize_draw_under_a_lock_with_one_owner: "prize_draw" "--textbook" NO_PRIZE
        prize_draw_in_redis_under_a_lock_with_one_owner: "prize_draw" "--textbook --pot redis" NO_PRIZE
        one_run_per_schedule_without_a_lock: "one_run_per_schedule" "--without-lock" RUN_AGAIN
        one_run_per_schedule_under_a_lock_that_is_free_again: "one_run_per_schedule" "--textbook" RUN_AGAIN
        quota_without_permits: "quota" "--without-lock" BEYOND
        quota_with_permits_that_expire: "quota" "--textbook" BEYOND
        rebuild_cache_without_a_lock: "rebuild_cache" "--without-lock" BUILT_AGAIN
        rebuild_cache_under_the_lock_that_readers_share: "rebuild_cache" "--textbook" BUILT_AGAIN
        rebuild_cache_under_the_shared_lock_on_redis: "rebuild_cache" "--textbook --url redis" BUILT_AGAIN
    }
}

#[test]
fn a_line_without_a_meaning_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_quota")).arg("--lock").output().expect("it was built");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && text.contains("--lock is unknown. The options: --url WHERE"),
        "{text}"
    );
}
