//! Runs inside runs that wait for one another, and what only looks like it.

use leasehold_testkit::server::{PostgresServer, RedisServer};
use serde_json::Value;

use crate::{
    fixture::Fixture,
    start::LEASEHOLD,
    tools::{Dir, HOLD, Running, bare, code, finish, one_line, stdout, until},
};

/// Begins when the test says so, and then runs a second run inside the first.
const INSIDE: &str = "echo ready; read line; exec \"$@\"";

/// A run that holds `outer`, and in which a run of `inner` begins when a line is written to it.
fn inside<S>(fixture: &Fixture<S>, outer: &str, inner: &str) -> Running {
    inside_of(fixture, &["--renew-every", "2s", outer], &["run", inner, "--", "echo", "ran"])
}

/// As [`inside`], with these options and the name of the outer run, and the arguments of the command inside of it. A
/// run gives up after the leases of its cycle were renewed, so the tests renew them more often than the default does.
fn inside_of<S>(fixture: &Fixture<S>, outer: &[&str], inner: &[&str]) -> Running {
    let args = [&["run", "--pass-url"], outer, &["--", "sh", "-c", INSIDE, "sh", LEASEHOLD], inner].concat();
    let mut running = Running::start(fixture.leasehold(&args));
    assert_eq!(running.line(), "ready");
    running
}

/// As [`inside`], with a code of its own for a run that is not granted its name in time.
fn with_own_code<S>(fixture: &Fixture<S>, outer: &str, inner: &str) -> Running {
    let args = ["run", "-E", "9", inner, "--", "echo", "ran"];
    inside_of(fixture, &["--renew-every", "2s", outer], &args)
}

fn waiters<S>(fixture: &Fixture<S>, name: &str) -> usize {
    fixture.show(name)["waiters"].as_array().unwrap().len()
}

fn until_waiter<S>(fixture: &Fixture<S>, name: &str) {
    until("a waiter", || waiters(fixture, name) == 1);
}

fn redis() -> Fixture<RedisServer> {
    let server = RedisServer::start(&[]);
    Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), server)
}

/// Each of these runs holds one name and waits for that of the next one. The one that began to wait last gives up with
/// the whole cycle, and the others go on.
fn the_last_to_wait_gives_up<S>(fixture: &Fixture<S>, names: &[&str]) {
    let next = |index: usize| names[(index + 1) % names.len()];
    let runs: Vec<_> =
        names.iter().enumerate().map(|(index, name)| with_own_code(fixture, name, next(index))).collect();
    let runs: Vec<_> = runs
        .into_iter()
        .enumerate()
        .map(|(index, mut run)| {
            run.write("\n");
            // The last one may have given up before anyone sees it wait.
            if index + 1 < names.len() {
                until_waiter(fixture, next(index));
            }
            run
        })
        .collect();
    let mut ended: Vec<_> = runs.into_iter().map(Running::wait).collect();
    let last = ended.pop().unwrap();
    // Another try would end in the same way, so -E does not apply.
    assert_eq!((code(&last), stdout(&last).as_str()), (64, ""), "{}: {last:?}", fixture.engine);
    let message = one_line(&last);
    let lock = format!("leasehold: {} lock {:?}: not acquired: deadlock: ", fixture.engine, names[0]);
    assert!(message.starts_with(&lock), "{message}");
    for name in names {
        assert!(message.contains(&format!("for {} lock {name:?}, which", fixture.engine)), "{message}");
    }
    for run in ended {
        assert_eq!((code(&run), stdout(&run).as_str()), (0, "ran\n"), "{}: {run:?}", fixture.engine);
    }
}

#[test]
fn of_two_runs_inside_runs_that_wait_for_each_other_one_gives_up() {
    let dir = Dir::new();
    the_last_to_wait_gives_up(&Fixture::at("file", dir.url(), ()), &["a", "b"]);
    the_last_to_wait_gives_up(&redis(), &["a", "b"]);
    let server = PostgresServer::durable(&[]);
    the_last_to_wait_gives_up(&Fixture::at("postgres", server.url(), ()), &["a", "b"]);
}

#[test]
fn of_three_runs_inside_runs_that_wait_for_one_another_one_gives_up() {
    let dir = Dir::new();
    the_last_to_wait_gives_up(&Fixture::at("file", dir.url(), ()), &["a", "b", "c"]);
    the_last_to_wait_gives_up(&redis(), &["a", "b", "c"]);
}

/// These engines do not tell how long a claim has waited, so any of the two may give up.
#[test]
fn one_of_two_gives_up_also_where_nobody_knows_who_waited_first() {
    one_gives_up(&crate::etcd::Fixture::new());
    one_gives_up(&crate::zookeeper::Fixture::new());
}

fn one_gives_up<S>(fixture: &Fixture<S>) {
    let mut runs = [inside(fixture, "a", "b"), inside(fixture, "b", "a")];
    runs.iter_mut().for_each(|run| run.write("\n"));
    let mut ended: Vec<_> =
        runs.into_iter().map(|run| run.wait()).map(|run| (code(&run), stdout(&run))).collect();
    ended.sort_unstable();
    assert_eq!(ended, [(0, "ran\n".to_owned()), (64, String::new())], "{}", fixture.engine);
}

/// The lease of the first run is not renewed, as if its host had crashed. The end of the lease ends the cycle.
#[test]
fn a_cycle_that_ends_with_a_lease_makes_no_run_give_up() {
    let fixture = redis();
    let mut ends =
        inside_of(&fixture, &["-q", "--no-renew", "--ttl", "8s", "a"], &["run", "b", "--", "echo", "ran"]);
    let mut healthy = inside(&fixture, "b", "a");
    ends.write("\n");
    until_waiter(&fixture, "b");
    healthy.write("\n");
    let (ended, healthy) = (ends.wait(), healthy.wait());
    assert_eq!((code(&healthy), stdout(&healthy).as_str()), (0, "ran\n"), "{healthy:?}");
    assert_eq!((code(&ended), stdout(&ended).as_str()), (76, ""), "{ended:?}");
}

#[test]
fn an_acquire_inside_a_run_that_closes_a_cycle_gives_up() {
    let fixture = redis();
    let mut first = inside(&fixture, "a", "b");
    let mut acquires =
        inside_of(&fixture, &["--renew-every", "2s", "b"], &["acquire", "--wait", "30s", "-E", "9", "a"]);
    first.write("\n");
    until_waiter(&fixture, "b");
    acquires.write("\n");
    let (acquires, first) = (acquires.wait(), first.wait());
    assert_eq!((code(&acquires), stdout(&acquires).as_str()), (64, ""), "{acquires:?}");
    assert!(one_line(&acquires).contains("not acquired: deadlock: "), "{acquires:?}");
    assert_eq!((code(&first), stdout(&first).as_str()), (0, "ran\n"), "{first:?}");
}

/// How many requests for lists of keys the server has had. A look at all names makes two.
fn scans(fixture: &Fixture<RedisServer>) -> u64 {
    let stats = fixture.server.command(&["INFO", "commandstats"]).join("\n");
    let calls = stats.split("cmdstat_scan:calls=").nth(1);
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

/// Waits until a waiting run has looked at all names at least three times.
fn until_it_has_looked(fixture: &Fixture<RedisServer>) {
    let before = scans(fixture);
    until("three looks", || scans(fixture) >= before + 6);
}

#[test]
fn a_chain_of_waits_goes_on() {
    let fixture = redis();
    let mut last = fixture.holder(&[], "echo ready; read line; true");
    let mut inner = inside(&fixture, "a", "job");
    let waits_for_a = Running::start(fixture.leasehold(&["run", "a", "--", "echo", "ran"]));
    until_waiter(&fixture, "a");
    inner.write("\n");
    until_waiter(&fixture, "job");
    until_it_has_looked(&fixture);
    last.write("\n");
    for run in [inner, waits_for_a] {
        let run = run.wait();
        assert_eq!((code(&run), stdout(&run).as_str()), (0, "ran\n"), "{run:?}");
    }
    drop(last);
}

/// Who holds `a` waits for both of them, but neither waits for what the other one waits for.
#[test]
fn two_runs_beside_each_other_inside_one_run_are_two_tasks() {
    let fixture = redis();
    let script = "exec 3<&0; leasehold() { \"$0\" \"$@\"; }; \
         leasehold run b -- sh -c 'echo ready; read line' <&3 & \
         leasehold run -w 50s b -- echo ran; wait";
    let args = ["run", "--pass-url", "a", "--", "sh", "-c", script, LEASEHOLD];
    let mut outer = Running::start(fixture.leasehold(&args));
    // Either of the two is granted the name first.
    let first = outer.line();
    let waits_for_a = Running::start(fixture.leasehold(&["run", "a", "--", "echo", "ran"]));
    until_waiter(&fixture, "a");
    if first == "ready" {
        until_it_has_looked(&fixture);
    }
    outer.write("\n");
    let (outer, other) = (outer.wait(), waits_for_a.wait());
    assert_eq!((code(&outer), code(&other)), (0, 0), "{outer:?} {other:?}");
    assert!([first, stdout(&outer)].concat().contains("ran"), "{outer:?}");
}

#[test]
fn each_run_is_a_task_that_names_the_run_around_it() {
    let dir = Dir::new();
    let print = "echo ${LEASEHOLD_ACTOR:-none}";
    let call = |outer: Option<&str>| {
        let mut command = dir.leasehold(&["run", "x", "--", "sh", "-c", print]);
        outer.map(|outer| command.env("LEASEHOLD_ACTOR", outer));
        stdout(&finish(command)).trim().to_owned()
    };
    let outermost = call(None);
    assert_eq!(outermost.len(), 16, "{outermost}");
    assert_ne!(outermost, call(None), "each run is a task of its own");
    assert!(call(Some(&outermost)).ends_with(&format!("/{outermost}")));
    assert_eq!(call(Some("")).len(), 16);
}

/// The findings of `doctor` at these URLs about waits: their ids with text and advice.
fn waits_found(urls: &[&str]) -> Vec<(String, String)> {
    let urls: Vec<_> = urls.iter().flat_map(|url| ["--url", url]).collect();
    let output = finish(bare(&[&["doctor", "--json"], urls.as_slice()].concat()));
    let text = |value: &Value, key: &str| value[key].as_str().unwrap().to_owned();
    let examinations: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let findings = examinations.iter().flat_map(|examined| examined["findings"].as_array().unwrap());
    let findings = findings.map(|found| (text(found, "id"), text(found, "found") + &text(found, "advice")));
    findings.filter(|(id, _)| id.starts_with("waits")).collect()
}

/// No run sees both engines, so none gives up. Doctor sees the cycle from both, and its advice ends it.
#[test]
fn a_cycle_over_two_engines_is_found_by_doctor_and_ended_by_its_advice() {
    let (dir, redis) = (Dir::new(), redis());
    let files = Fixture::at("file", dir.url(), ());
    let (redis_url, file_url) = (format!("redis://127.0.0.1:{}", redis.server.port()), dir.url());
    let mut holds_file = inside_of(&files, &["a"], &["run", "--url", &redis_url, "b", "--", "echo", "ran"]);
    let mut holds_redis = inside_of(&redis, &["b"], &["run", "--url", &file_url, "a", "--", "echo", "ran"]);
    holds_file.write("\n");
    until_waiter(&redis, "b");
    holds_redis.write("\n");
    until_waiter(&files, "a");
    let alone = waits_found(&[&file_url]);
    assert_eq!(alone[0].0, "waits", "one engine alone shows a chain: {alone:?}");
    let found = waits_found(&[&file_url, &redis_url]);
    assert_eq!([&*found[0].0, &*found[1].0], ["waits", "waits-deadlock"], "{found:?}");
    let text = &found[1].1;
    assert!(text.contains("for redis lock \"b\"") && text.contains("for file lock \"a\""), "{text}");
    // Two clocks measure which of the holds is the youngest.
    let line = |url: &str, name: &str, shown: Value| {
        format!("--url {url} break --token {} -- {name}", shown["holders"][0]["token"])
    };
    let (break_a, break_b) = (line(&file_url, "a", files.show("a")), line(&redis_url, "b", redis.show("b")));
    let is_b = text.contains(&format!("leasehold {break_b};"));
    assert!(is_b || text.contains(&format!("leasehold {break_a};")), "{text}");
    // The reader pastes the line into a shell without a URL.
    let line = if is_b { break_b } else { break_a };
    assert_eq!(code(&finish(bare(&line.split(' ').collect::<Vec<_>>()))), 0);
    let (broken, freed) = if is_b { (holds_redis, holds_file) } else { (holds_file, holds_redis) };
    assert_eq!(code(&broken.wait()), 76);
    let freed = freed.wait();
    assert_eq!((code(&freed), stdout(&freed).as_str()), (0, "ran\n"), "{freed:?}");
}

#[test]
fn a_deadlock_of_one_engine_is_found_by_doctor_while_it_lasts() {
    let dir = Dir::new();
    let files = Fixture::at("file", dir.url(), ());
    // A run that is not told by an actor that another run waits for it does not give up.
    let script = "echo ready; read line; LEASEHOLD_OUTER= LEASEHOLD_NAME= exec \"$@\"";
    let run = |outer, inner| {
        let args = [
            "run",
            "--pass-url",
            outer,
            "--",
            "sh",
            "-c",
            script,
            "sh",
            LEASEHOLD,
            "run",
            inner,
            "--",
            "true",
        ];
        let mut running = Running::start(files.leasehold(&args));
        assert_eq!(running.line(), "ready");
        running
    };
    let (mut one, mut other) = (run("a", "b"), run("b", "a"));
    one.write("\n");
    other.write("\n");
    until_waiter(&files, "a");
    until_waiter(&files, "b");
    let found = waits_found(&[&dir.url()]);
    assert_eq!(found[0].0, "waits-deadlock", "{found:?}");
    let line = format!(": leasehold --url {} break --token ", dir.url());
    assert!(found[0].1.contains(&line), "the URL of the option: {found:?}");
    // A reader of the same shell has the variable.
    let here = stdout(&dir.call(&["doctor"]));
    assert!(here.contains(": leasehold break --token "), "{here}");
    drop(one);
    assert_eq!(code(&other.wait()), 0);
    assert_eq!(waits_found(&[&dir.url()])[0].0, "waits");
}

/// Curator shows the data of a node as the id of the participant.
#[test]
fn a_participant_of_a_latch_shows_its_owner_alone() {
    let fixture = crate::zookeeper::Fixture::new();
    let call = |args: &[&str]| fixture.leasehold_with("?layout=latch", args);
    let mut holder = Running::start(call(&["run", "--owner", "me", "job", "--", "sh", "-c", HOLD]));
    assert_eq!(holder.line(), "ready");
    let shown = stdout(&finish(call(&["show", "--json", "job"])));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["holders"][0]["owner"], &shown["holders"][0]["actor"]), (&"me".into(), &Value::Null));
    assert_eq!(code(&holder.output()), 0);
}
