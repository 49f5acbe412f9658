//! The command on a Redis server: leases, losses, and errors of the server.

use std::time::{Duration, Instant};

use leasehold_testkit::{
    server::{Proxy, RedisServer},
    stopwatch::Stopwatch,
};

use crate::{
    shared,
    tools::{Dir, HOLD, Running, bare, code, finish, one_line, stderr, stdout, until},
};

/// A server, and the command that uses it.
type Fixture = crate::fixture::Fixture<RedisServer>;

impl Fixture {
    fn new() -> Self {
        Self::start(&[])
    }

    /// Starts `redis-server` with these arguments.
    fn start(arguments: &[&str]) -> Self {
        let server = RedisServer::start(arguments);
        Self::at("redis", format!("redis://127.0.0.1:{}", server.port()), server)
    }
}

#[test]
fn processes_exclude_each_other_and_are_shown() {
    shared::processes_exclude_each_other_and_are_shown(&Fixture::new(), "lock:job", "best effort");
}

/// The user `locker` of redis.acl may not read the settings of the server.
#[test]
fn a_user_without_info_rights_sees_the_rest() {
    let fixture = Fixture::new();
    let rule: Vec<_> = "ACL SETUSER default -info -config".split(' ').collect();
    let _holder = fixture.holder(&["--owner", "first"], HOLD);
    fixture.server.command(&rule);
    let shown = fixture.call(&["show", "job"]);
    assert_eq!(code(&shown), 0, "{shown:?}");
    assert!(stdout(&shown).contains("redis (guarantee not known)") && stdout(&shown).contains("first"));
    for args in [["show", "--json", "job"], ["list", "--json", "job"]] {
        let output = fixture.call(&args);
        assert_eq!(code(&output), 0, "{output:?}");
        assert!(one_line(&output).contains("the guarantee is not known: redis engine"), "{output:?}");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&value["guarantee"], &value["holders"][0]["owner"]),
            (&serde_json::Value::Null, &"first".into())
        );
    }
}

/// Until the hold is renewed it is not known whether the server has kept its data, and the server refuses the renewal
/// for a while.
#[test]
fn a_server_restarted_with_its_data_ends_no_command() {
    let mut fixture = Fixture::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let proxy = Proxy::start(fixture.server.port());
    let mut command = bare(&["run", "--ttl", "30s", "job", "--", "sh", "-c", HOLD]);
    command.env("LEASEHOLD_URL", format!("redis://127.0.0.1:{}", proxy.port()));
    let mut holder = Running::start(command);
    assert_eq!(holder.line(), "ready");
    proxy.block();
    fixture.server.kill();
    fixture.server.restart();
    let refuse = |least: &str| fixture.server.command(&["CONFIG", "SET", "min-replicas-to-write", least]);
    refuse("1");
    proxy.unblock();
    let refused = || fixture.server.command(&["INFO", "errorstats"]).join(" ").contains("NOREPLICAS");
    until("its renewal was refused", || holder.has_ended() || refused());
    // The command checks its deadline each second.
    let begin = Instant::now();
    until("it checked its deadline", || holder.has_ended() || begin.elapsed() > Duration::from_secs(2));
    refuse("0");
    let ended = holder.output();
    assert_eq!(code(&ended), 0, "{ended:?}");
}

/// Such data must not control the terminal or fill the memory of `show` and `list`.
#[test]
fn foreign_data_is_shown_cut_and_escaped() {
    let fixture = Fixture::new();
    let _holder = fixture.holder(&["--owner", "first"], HOLD);
    let write = r"local text = '\27]0;evil\7' .. string.char(0xc2, 0x9b) .. string.rep('x', 40000000)
        redis.call('SET', KEYS[1], text)
        redis.call('SET', 'lock:\226\128\174evil', 'x')";
    fixture.server.command(&["EVAL", write, "1", "lock:big"]);
    for args in [&["list"][..], &["list", "--json"], &["show", "big"], &["show", "--json", "big"]] {
        let output = fixture.call(args);
        assert_eq!(code(&output), 0, "{output:?}");
        let message = stdout(&output);
        let acted_on = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!message.contains(acted_on) && message.len() < 4096, "{args:?}: {message:?}");
        assert!(message.contains("big") && (args[0] == "show" || message.contains("first")), "{message}");
        // The table of `list` does not contain it.
        if args.len() > 1 {
            assert!(message.contains("]0;evil") && message.contains("xxx…"), "{message}");
        }
    }
}

#[test]
fn show_gives_the_reasons_for_the_level() {
    let fixture = Fixture::new();
    let shown = fixture.call(&["show", "job"]);
    let shown = stdout(&shown);
    assert!(shown.contains("(best effort)"), "{shown}");
    assert!(shown.contains("\nfinding  ") && shown.contains(", wanted "), "{shown}");
    let level = fixture.show("job");
    assert_eq!(level["guarantee"], "best effort");
    assert!(level["findings"][0]["wanted"].is_string(), "{level}");
    let holder = fixture.holder(&[], HOLD);
    let refused = fixture.call(&["run", "-n", "job", "--", "true"]);
    assert_eq!(code(&refused), 75);
    assert!(one_line(&refused).contains(": held by "), "{refused:?}");
    assert_eq!(code(&holder.output()), 0);
}

/// A grant is pushed to the waiter, and then the server refuses writes for a while. The command waits for the end of
/// it.
#[test]
fn a_server_that_refuses_to_confirm_a_grant_is_waited_out() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port());
    let holder = fixture.holder(&[], HOLD);
    let mut command = bare(&["run", "-vvv", "-w", "60s", "job", "--", "echo", "mine"]);
    command.env("LEASEHOLD_URL", format!("redis://127.0.0.1:{}", proxy.port()));
    let mut waiter = Running::start(command);
    until("a waiter", || fixture.show("job")["waiters"].as_array().unwrap().len() == 1);
    proxy.hold_requests();
    assert_eq!(code(&holder.output()), 0);
    until("a grant", || {
        let message = waiter.stderr_line();
        assert!(!message.is_empty(), "it has ended");
        message.contains("granted")
    });
    let refuse = |least: &str| fixture.server.command(&["CONFIG", "SET", "min-replicas-to-write", least]);
    refuse("1");
    proxy.release_held();
    until("it was refused", || {
        waiter.has_ended() || fixture.server.command(&["INFO", "errorstats"]).join(" ").contains("NOREPLICAS")
    });
    refuse("0");
    let ended = waiter.output();
    assert_eq!((code(&ended), stdout(&ended).as_str()), (0, "mine\n"), "{ended:?}");
}

/// A pushed grant lasts two seconds until it is confirmed. Its confirmation, and the renewal by the keeper, which
/// confirms it too, do not reach the server for half of this time.
#[test]
fn a_command_starts_with_a_full_lease_after_a_wait() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port());
    let holder = fixture.holder(&[], HOLD);
    let script = format!("redis-cli -p {} PTTL lock:job", fixture.server.port());
    let mut command = bare(&["run", "job", "--", "sh", "-c", &script]);
    command.env("LEASEHOLD_URL", format!("redis://127.0.0.1:{}", proxy.port()));
    let mut waiter = Running::start(command);
    until("a waiter", || fixture.show("job")["waiters"].as_array().unwrap().len() == 1);
    proxy.hold_requests();
    assert_eq!(code(&holder.output()), 0);
    let watch = Stopwatch::start();
    until("the time has passed", || waiter.has_ended() || watch.given() > Duration::from_secs(1));
    proxy.release_held();
    let left: u64 = stdout(&waiter.output()).trim().parse().unwrap();
    assert!(left > 2_000, "{left} ms of 30 s");
}

#[test]
fn a_broken_lock_ends_its_command_and_frees_the_name() {
    shared::a_broken_lock_ends_its_command_and_frees_the_name(&Fixture::new(), &[]);
}

#[test]
fn a_lock_deleted_on_the_server_is_lost_with_76() {
    shared::a_lost_lock_ends_its_command_with_76(&Fixture::new(), "1s", |server| {
        server.command(&["FLUSHALL"]);
    });
}

#[test]
fn a_killed_server_ends_the_command_before_its_lease() {
    let mut fixture = Fixture::new();
    let script = "trap 'echo got-term' TERM; echo ready; while :; do sleep 0.05; done";
    let mut holder = fixture.holder(&["--ttl", "4s", "--grace", "2s"], script);
    let watch = Stopwatch::start();
    fixture.server.kill();
    assert_eq!(holder.line(), "got-term");
    watch.assert_within(Duration::from_secs(4), "TERM at the deadline less the grace");
    let ended = holder.wait();
    assert_eq!(code(&ended), 76, "it did not stop by itself, so it was killed: {ended:?}");
}

#[test]
fn the_lock_of_a_killed_holder_is_free_when_its_lease_has_run_out() {
    shared::the_lock_of_a_killed_holder_is_free_after_its_ttl(&Fixture::new(), "2s");
}

/// F01: stopped for three times its ttl, then continued, while another command holds the lock.
#[test]
fn a_holder_stopped_past_its_ttl_ends_only_its_own_command() {
    let fixture = Fixture::new();
    let mut stopped = fixture.holder(&["--ttl", "1s"], "echo ready; exec sleep 1000");
    stopped.freeze();
    let begin = Instant::now();
    let next = fixture.holder(&["-w", "5m"], HOLD);
    until("three times the ttl", || begin.elapsed() > Duration::from_secs(3));
    stopped.thaw();
    assert_eq!(code(&stopped.wait()), 76);
    assert_eq!(
        fixture.show("job")["holders"].as_array().unwrap().len(),
        1,
        "the late release touched nothing"
    );
    assert_eq!(code(&next.output()), 0);
}

#[test]
fn at_least_keeps_the_name_taken_after_the_command() {
    let fixture = Fixture::new();
    assert_eq!(code(&fixture.call(&["run", "--at-least", "1h", "job", "--", "true"])), 0);
    assert_eq!(code(&fixture.call(&["run", "-n", "job", "--", "true"])), 75);
    assert_eq!(fixture.show("job")["holders"][0]["owner"], "kept");
}

#[test]
fn the_server_error_decides_the_exit_code_and_shows_no_password() {
    let fixture = Fixture::start(&["--requirepass", "hunter2-right"]);
    let at = |login: &str, args: &[&str]| {
        let mut command = bare(args);
        command.env("LEASEHOLD_URL", format!("redis://{login}127.0.0.1:{}", fixture.server.port()));
        finish(command)
    };
    let run = ["run", "job", "--", "true"];
    assert_eq!(code(&at(":hunter2-right@", &run)), 0);
    for (login, wanted) in [("", 77), (":hunter2-wrong@", 77)] {
        let output = at(login, &run);
        assert_eq!(code(&output), wanted, "{output:?}");
        assert!(!one_line(&output).contains("hunter2"), "{output:?}");
    }
    let plain = |args: &[&str]| at(":hunter2-right@", args);
    let auth = ["--no-auth-warning", "-a", "hunter2-right"];
    fixture.server.command(&[&auth[..], &["LPUSH", "lock:list", "x"]].concat());
    // It may be the lock of another program, so the command waits; but the key may never end, so the result is 78.
    assert_eq!(code(&plain(&["run", "-n", "list", "--", "true"])), 78);
    assert_eq!(code(&plain(&["run", "-w", "1s", "list", "--", "true"])), 78);
    fixture.server.command(&[&auth[..], &["SET", "lock:theirs", "x"]].concat());
    assert_eq!(code(&plain(&["run", "-n", "theirs", "--", "true"])), 75);
    assert!(stdout(&plain(&["show", "theirs"])).contains("foreign"));
    let mut inner =
        bare(&["run", "job", "--", "sh", "-c", "tr '\\0' ' ' </proc/$PPID/cmdline; cat /proc/self/cmdline"]);
    inner.env("LEASEHOLD_URL", format!("redis://:hunter2-right@127.0.0.1:{}", fixture.server.port()));
    assert!(!stdout(&finish(inner)).contains("hunter2"), "no command line contains it");
}

/// A server that is read-only or lacks replicas for a while: a waiter keeps its queue entry.
#[test]
fn a_server_that_refuses_for_a_while_ends_no_wait() {
    let fixture = Fixture::new();
    let holder = fixture.holder(&["--ttl", "24h"], HOLD);
    let mut waiter =
        Running::start(fixture.leasehold(&["run", "-w", "10m", "job", "--", "sh", "-c", "echo mine"]));
    until("a waiter", || fixture.show("job")["waiters"].as_array().unwrap().len() == 1);
    fixture.server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refused =
        || fixture.server.command(&["INFO", "errorstats"]).iter().any(|line| line.contains("NOREPLICAS"));
    until("its claim was refused", refused);
    fixture.server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert!(!waiter.has_ended());
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(stdout(&waiter.output()), "mine\n");
}

#[test]
fn a_loss_by_time_names_the_option() {
    let fixture = Fixture::new();
    for (options, why) in
        [(&["--max-hold", "1s"][..], "--max-hold ended"), (&["--ttl", "1s", "--no-renew"], "--no-renew")]
    {
        let output = fixture.call(&[&["run"], options, &["job", "--", "sleep", "1000"]].concat());
        assert_eq!(code(&output), 76);
        let messages = stderr(&output);
        let message = messages.lines().last().unwrap();
        assert!(message.contains(why) && !message.contains("acknowledged"), "{message}");
    }
}

/// Each warning is printed once, before CMD starts. On the file engine, whose holds end with their process, there is no
/// warning.
#[test]
fn options_that_often_do_harm_are_warned_about() {
    let fixture = Fixture::new();
    let dir = Dir::new();
    for (options, warnings) in [
        (&["--ttl", "900ms"][..], &["--ttl 900ms is short"][..]),
        (
            &["--ttl", "60s", "--no-renew"],
            &["with --no-renew, CMD is ended before the lease of 1m00s has passed"],
        ),
        (&["--ttl", "900ms", "--no-renew"], &["is short", "with --no-renew"]),
        (&["--ttl", "900ms", "--no-renew", "-q"], &[]),
        (&["--ttl", "1s"], &[]),
    ] {
        let args = [&["run"], options, &["job", "--", "true"]].concat();
        let output = fixture.call(&args);
        assert_eq!(code(&output), 0, "{output:?}");
        let lines: Vec<String> = stderr(&output).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), warnings.len(), "{lines:?}");
        for (line, warning) in lines.iter().zip(warnings) {
            let begin = "leasehold: redis lock \"job\": warning: ";
            assert!(line.starts_with(begin) && line.contains(warning), "{line}");
        }
        assert_eq!(stderr(&dir.call(&args)), "");
    }
}

#[test]
fn a_holder_with_the_same_owner_text_is_pointed_out() {
    let fixture = Fixture::new();
    let holder = fixture.holder(&["--owner", "worker"], HOLD);
    for (owner, is_same) in [("worker", true), ("worker 2", false)] {
        let output = fixture.call(&["run", "-n", "--owner", owner, "job", "--", "true"]);
        assert_eq!(code(&output), 75);
        let message = one_line(&output);
        assert_eq!(message.contains("(with the same --owner text as this run)"), is_same, "{message}");
    }
    assert_eq!(code(&holder.output()), 0);
}

/// Otherwise the user does not learn what to repair.
#[test]
fn a_refused_renewal_is_reported_with_its_reason() {
    let fixture = Fixture::new();
    fixture.server.command(&["ACL", "SETUSER", "anna", "on", ">hunter2", "~*", "&*", "+@all"]);
    let url = format!("redis://anna:hunter2@127.0.0.1:{}", fixture.server.port());
    let args = ["run", "--url", &url, "--ttl", "2s", "job", "--", "sh", "-c", "echo ready; exec sleep 1000"];
    let mut running = Running::start(fixture.leasehold(&args));
    assert_eq!(running.line(), "ready");
    fixture.server.command(&["ACL", "SETUSER", "anna", "-eval", "-evalsha"]);
    let output = running.wait();
    assert_eq!(code(&output), 76);
    let message = one_line(&output);
    assert!(message.contains("redis lock \"job\": lost") && message.contains("NOPERM"), "{message}");
    assert!(message.contains("docs/engines/redis.md") && !message.contains("hunter2"), "{message}");
}

/// A key without expiry whose value is a time in the past: `show` says why it is taken and what to do, and the option
/// lets the next run take it over.
#[test]
fn a_time_in_the_past_is_explained_and_taken_over() {
    let fixture = Fixture::new();
    fixture.server.command(&["SET", "lock:job", "1600000000.5"]);
    let shown = stdout(&fixture.call(&["show", "job"]));
    let notes: Vec<_> =
        shown.lines().filter(|line| line.contains("its value is a time that passed")).collect();
    assert!(
        matches!(notes[..], [note] if note.starts_with("note ") && note.contains("If it is dead, delete the key")),
        "{shown}"
    );
    let json: serde_json::Value =
        serde_json::from_slice(&fixture.call(&["show", "--json", "job"]).stdout).unwrap();
    assert!(json["note"].as_str().unwrap().contains("put stale_deadline=reclaim"), "{json}");
    assert_eq!(code(&fixture.call(&["run", "-n", "job", "--", "true"])), 75);
    let url = format!("redis://127.0.0.1:{}?stale_deadline=reclaim", fixture.server.port());
    let output = fixture.call(&["run", "--url", &url, "-n", "job", "--", "true"]);
    assert_eq!(code(&output), 0, "{output:?}");
}

/// Each change of the key by a program that does not compare is reported by one line. A change of the time ends
/// nothing.
#[test]
fn changes_of_the_key_by_other_programs_are_told() {
    let fixture = Fixture::new();
    let mut holder = fixture.holder(&["--ttl", "3s"], HOLD);
    let command = |words: &[&str]| fixture.server.command(words).concat();
    command(&["PERSIST", "lock:job"]);
    until("a renewal set the expiry anew", || command(&["PTTL", "lock:job"]) != "-1");
    command(&["SET", "lock:job", "theirs", "EX", "60"]);
    until("it ends CMD", || holder.has_ended());
    let output = holder.output();
    assert_eq!(code(&output), 76, "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    let lines = |word: &str| text.lines().filter(|line| line.contains(word)).count();
    assert_eq!(
        [lines("this hold had no expiry"), lines("another program's value is under its key")],
        [1, 1],
        "{text}"
    );
    assert_eq!(command(&["GET", "lock:job"]), "theirs");
}
