//! A healthy job on a healthy engine is never ended, with any `--ttl`, `--grace` and limits of the server.

use std::time::Duration;

use leasehold_testkit::lease_retries::with_retries;

use crate::{
    tools::{bare, code, finish},
    zookeeper::Fixture,
};

/// The duration of a job, in seconds: longer than the shortest leases and than the first renewal interval of most.
const JOB: &str = "12";

/// The session limits of a server: the tick and the longest session, in milliseconds.
const LIMITS: [(u32, u32); 5] =
    [(500, 5_000), (500, 10_000), (500, 60_000), (2_000, 40_000), (2_000, 60_000)];

const OPTIONS: [&[&str]; 7] = [
    &[],
    &["--ttl", "2s"],
    &["--ttl", "4s"],
    &["--ttl", "5s", "--grace", "1h"],
    &["--ttl", "6s"],
    &["--ttl", "90s", "--grace", "30s"],
    &["--ttl", "24h", "--grace", "0s"],
];

#[test]
fn no_session_limit_of_zookeeper_ends_a_healthy_job() {
    std::thread::scope(|scope| {
        for (tick, longest) in LIMITS {
            scope.spawn(move || {
                let tick_line = format!("tickTime={tick}");
                let limit_line = format!("maxSessionTimeout={longest}");
                let shortest_line = format!("minSessionTimeout={}", tick * 2);
                let fixture = Fixture::start(&[&tick_line, &limit_line, &shortest_line]);
                run_all(&fixture, tick * 2, longest);
            });
        }
    });
}

fn run_all(fixture: &Fixture, shortest: u32, longest: u32) {
    std::thread::scope(|scope| {
        for (number, options) in OPTIONS.into_iter().enumerate() {
            scope.spawn(move || {
                let what = format!("{options:?} with sessions from {shortest} to {longest} ms");
                let name = format!("job {number}");
                with_retries(Duration::from_millis(shortest.into()), &what, || {
                    let args = [&["run"], options, &[&*name, "--", "sleep", JOB]].concat();
                    let mut command = bare(&args);
                    command.env("LEASEHOLD_URL", fixture.server.url());
                    let output = finish(command);
                    eprintln!("{what}: {output:?}");
                    code(&output) == 0
                });
            });
        }
    });
}
