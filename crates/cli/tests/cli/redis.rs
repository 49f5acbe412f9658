//! The command on a Redis server: leases, losses, and what a server can say.

use std::time::{Duration, Instant};

use leasehold_testkit::{
    server::{Proxy, RedisServer},
    stopwatch::Stopwatch,
};

use crate::{
    alike,
    tools::{HOLD, Running, bare, code, finish, one_line, stdout, until},
};

/// A server, and the command on it.
type Site = crate::site::Site<RedisServer>;

impl Site {
    fn new() -> Self {
        Self::start(&[])
    }

    /// With more arguments of `redis-server`.
    fn start(arguments: &[&str]) -> Self {
        let server = RedisServer::start(arguments);
        Self::at("redis", format!("redis://127.0.0.1:{}", server.port()), server)
    }
}

#[test]
fn processes_exclude_each_other_and_are_shown() {
    alike::processes_exclude_each_other_and_are_shown(&Site::new(), "lock:job", "best effort");
}

/// The locker of redis.acl may not ask for the settings of the server.
#[test]
fn who_may_not_judge_the_server_sees_the_rest() {
    let site = Site::new();
    let rule: Vec<_> = "ACL SETUSER default -info -config".split(' ').collect();
    let _holder = site.holder(&["--owner", "first"], HOLD);
    site.server.command(&rule);
    let shown = site.call(&["show", "job"]);
    assert_eq!(code(&shown), 0, "{shown:?}");
    assert!(stdout(&shown).contains("redis (guarantee not known)") && stdout(&shown).contains("first"));
    for look in [["show", "--json", "job"], ["list", "--json", "job"]] {
        let output = site.call(&look);
        assert_eq!(code(&output), 0, "{output:?}");
        assert!(one_line(&output).contains("the guarantee is not known: redis engine"), "{output:?}");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&value["guarantee"], &value["holders"][0]["owner"]),
            (&serde_json::Value::Null, &"first".into())
        );
    }
}

/// Nobody knows whether it has its data until it was asked for the hold, which it refuses for a while.
#[test]
fn a_server_that_was_started_anew_with_its_data_ends_no_command() {
    let mut site = Site::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let proxy = Proxy::start(site.server.port());
    let mut command = bare(&["run", "--ttl", "30s", "job", "--", "sh", "-c", HOLD]);
    command.env("LEASEHOLD_URL", format!("redis://127.0.0.1:{}", proxy.port()));
    let mut holder = Running::start(command);
    assert_eq!(holder.line(), "ready");
    proxy.sever();
    site.server.kill();
    site.server.restart();
    let refuse = |least: &str| site.server.command(&["CONFIG", "SET", "min-replicas-to-write", least]);
    refuse("1");
    proxy.mend();
    let refused = || site.server.command(&["INFO", "errorstats"]).join(" ").contains("NOREPLICAS");
    until("its renewal was refused", || holder.has_ended() || refused());
    // The command looks at its deadline each second.
    let begin = Instant::now();
    until("it looked", || holder.has_ended() || begin.elapsed() > Duration::from_secs(2));
    refuse("0");
    let ended = holder.output();
    assert_eq!(code(&ended), 0, "{ended:?}");
}

/// Neither takes the terminal nor the memory of who looks.
#[test]
fn what_another_program_wrote_is_shown_cut_and_escaped() {
    let site = Site::new();
    let _holder = site.holder(&["--owner", "first"], HOLD);
    let write = r"local text = '\27]0;evil\7' .. string.char(0xc2, 0x9b) .. string.rep('x', 40000000)
        redis.call('SET', KEYS[1], text)
        redis.call('SET', 'lock:\226\128\174evil', 'x')";
    site.server.command(&["EVAL", write, "1", "lock:big"]);
    for look in [&["list"][..], &["list", "--json"], &["show", "big"], &["show", "--json", "big"]] {
        let output = site.call(look);
        assert_eq!(code(&output), 0, "{output:?}");
        let said = stdout(&output);
        let acted_on = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!said.contains(acted_on) && said.len() < 4096, "{look:?}: {said:?}");
        assert!(said.contains("big") && (look[0] == "show" || said.contains("first")), "{said}");
        // A list for people has no room for it.
        if look.len() > 1 {
            assert!(said.contains("]0;evil") && said.contains("xxx…"), "{said}");
        }
    }
}

#[test]
fn a_look_gives_the_reasons_of_the_level() {
    let site = Site::new();
    let shown = site.call(&["show", "job"]);
    let shown = stdout(&shown);
    assert!(shown.contains("(best effort)"), "{shown}");
    assert!(shown.contains("\nfinding  ") && shown.contains(", wanted "), "{shown}");
    let level = site.show("job");
    assert_eq!(level["guarantee"], "best effort");
    assert!(level["findings"][0]["wanted"].is_string(), "{level}");
    let holder = site.holder(&[], HOLD);
    let refused = site.call(&["run", "-n", "job", "--", "true"]);
    assert_eq!(code(&refused), 75);
    assert!(one_line(&refused).contains(": held by "), "{refused:?}");
    assert_eq!(code(&holder.output()), 0);
}

/// A grant is pushed to who waits, and then the server takes no writes for a while: whatever that is called, it is waited out.
#[test]
fn a_server_that_refuses_to_confirm_a_grant_is_waited_out() {
    let site = Site::new();
    let proxy = Proxy::start(site.server.port());
    let holder = site.holder(&[], HOLD);
    let mut command = bare(&["run", "-vvv", "-w", "60s", "job", "--", "echo", "mine"]);
    command.env("LEASEHOLD_URL", format!("redis://127.0.0.1:{}", proxy.port()));
    let mut waiter = Running::start(command);
    until("a waiter", || site.show("job")["waiters"].as_array().unwrap().len() == 1);
    proxy.hold_requests();
    assert_eq!(code(&holder.output()), 0);
    until("a grant", || {
        let said = waiter.complaint();
        assert!(!said.is_empty(), "it has ended");
        said.contains("granted")
    });
    let refuse = |least: &str| site.server.command(&["CONFIG", "SET", "min-replicas-to-write", least]);
    refuse("1");
    proxy.let_go();
    until("it was refused", || {
        waiter.has_ended() || site.server.command(&["INFO", "errorstats"]).join(" ").contains("NOREPLICAS")
    });
    refuse("0");
    let ended = waiter.output();
    assert_eq!((code(&ended), stdout(&ended).as_str()), (0, "mine\n"), "{ended:?}");
}

/// What is pushed to a waiting claim is a grant for two seconds.
#[test]
fn a_command_starts_under_a_whole_lease_also_after_a_wait() {
    let site = Site::new();
    let holder = site.holder(&[], HOLD);
    let script = format!("redis-cli -p {} PTTL lock:job", site.server.port());
    let waiter = Running::start(site.leasehold(&["run", "job", "--", "sh", "-c", &script]));
    until("a waiter", || site.show("job")["waiters"].as_array().unwrap().len() == 1);
    assert_eq!(code(&holder.output()), 0);
    let left: u64 = stdout(&waiter.output()).trim().parse().unwrap();
    assert!(left > 2_000, "{left} ms of 30 s");
}

#[test]
fn a_broken_lock_ends_its_command_and_frees_the_name() {
    alike::a_broken_lock_ends_its_command_and_frees_the_name(&Site::new(), &[]);
}

#[test]
fn a_lock_that_the_server_forgot_is_lost_with_76() {
    alike::a_lost_lock_ends_its_command_with_76(&Site::new(), "1s", |server| {
        server.command(&["FLUSHALL"]);
    });
}

#[test]
fn without_a_server_the_command_is_told_before_the_lease_ends_and_killed_by_then() {
    let mut site = Site::new();
    let script = "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done";
    let mut holder = site.holder(&["--ttl", "4s", "--grace", "2s"], script);
    let watch = Stopwatch::start();
    site.server.kill();
    assert_eq!(holder.line(), "told");
    watch.assert_within(Duration::from_secs(4), "TERM at the deadline less the grace");
    let ended = holder.wait();
    assert_eq!(code(&ended), 76, "it did not stop by itself, so it was killed: {ended:?}");
}

#[test]
fn the_lock_of_a_killed_holder_is_free_when_its_lease_has_run_out() {
    alike::the_lock_of_a_killed_holder_is_free_after_its_ttl(&Site::new(), "2s");
}

/// F01: stopped for three times its ttl, then continued, beside a program that got the lock meanwhile.
#[test]
fn a_holder_that_was_stopped_for_too_long_ends_its_command_and_harms_nobody() {
    let site = Site::new();
    let mut stopped = site.holder(&["--ttl", "1s"], "echo ready; exec sleep 1000");
    stopped.freeze();
    let begin = Instant::now();
    let next = site.holder(&["-w", "5m"], HOLD);
    until("three times the ttl", || begin.elapsed() > Duration::from_secs(3));
    stopped.thaw();
    assert_eq!(code(&stopped.wait()), 76);
    assert_eq!(site.show("job")["holders"].as_array().unwrap().len(), 1, "the late release touched nothing");
    assert_eq!(code(&next.output()), 0);
}

#[test]
fn a_kept_name_stays_taken_after_its_command() {
    let site = Site::new();
    assert_eq!(code(&site.call(&["run", "--at-least", "1h", "job", "--", "true"])), 0);
    assert_eq!(code(&site.call(&["run", "-n", "job", "--", "true"])), 75);
    assert_eq!(site.show("job")["holders"][0]["owner"], "kept");
}

#[test]
fn what_the_server_says_decides_the_exit_code_and_no_password_is_shown() {
    let site = Site::start(&["--requirepass", "hunter2-right"]);
    let at = |login: &str, args: &[&str]| {
        let mut command = bare(args);
        command.env("LEASEHOLD_URL", format!("redis://{login}127.0.0.1:{}", site.server.port()));
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
    site.server.command(&[&auth[..], &["LPUSH", "lock:list", "x"]].concat());
    // It may be the lock of another program, and is waited for; but nobody knows that it ever ends.
    assert_eq!(code(&plain(&["run", "-n", "list", "--", "true"])), 78);
    assert_eq!(code(&plain(&["run", "-w", "1s", "list", "--", "true"])), 78);
    site.server.command(&[&auth[..], &["SET", "lock:theirs", "x"]].concat());
    assert_eq!(code(&plain(&["run", "-n", "theirs", "--", "true"])), 75);
    assert!(stdout(&plain(&["show", "theirs"])).contains("foreign"));
    let mut inner =
        bare(&["run", "job", "--", "sh", "-c", "tr '\\0' ' ' </proc/$PPID/cmdline; cat /proc/self/cmdline"]);
    inner.env("LEASEHOLD_URL", format!("redis://:hunter2-right@127.0.0.1:{}", site.server.port()));
    assert!(!stdout(&finish(inner)).contains("hunter2"), "it stands in no command line");
}

/// A server that is read-only or lacks its replicas for a while: who stands in line stands there still.
#[test]
fn a_server_that_refuses_for_a_while_ends_no_wait() {
    let site = Site::new();
    let holder = site.holder(&["--ttl", "24h"], HOLD);
    let mut waiter =
        Running::start(site.leasehold(&["run", "-w", "10m", "job", "--", "sh", "-c", "echo mine"]));
    until("a waiter", || site.show("job")["waiters"].as_array().unwrap().len() == 1);
    site.server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refused =
        || site.server.command(&["INFO", "errorstats"]).iter().any(|line| line.contains("NOREPLICAS"));
    until("its claim was refused", refused);
    site.server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert!(!waiter.has_ended());
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(stdout(&waiter.output()), "mine\n");
}

#[test]
fn what_ended_a_hold_by_its_time_is_told() {
    let site = Site::new();
    for (options, why) in
        [(&["--max-hold", "1s"][..], "--max-hold ended"), (&["--ttl", "1s", "--no-renew"], "--no-renew")]
    {
        let output = site.call(&[&["run"], options, &["job", "--", "sleep", "1000"]].concat());
        assert_eq!(code(&output), 76);
        let said = one_line(&output);
        assert!(said.contains(why) && !said.contains("acknowledged"), "{said}");
    }
}

/// Else nobody learns what to mend.
#[test]
fn who_loses_the_lock_because_its_renewals_are_refused_is_told_why() {
    let site = Site::new();
    site.server.command(&["ACL", "SETUSER", "anna", "on", ">hunter2", "~*", "&*", "+@all"]);
    let url = format!("redis://anna:hunter2@127.0.0.1:{}", site.server.port());
    let args = ["run", "--url", &url, "--ttl", "2s", "job", "--", "sh", "-c", "echo ready; exec sleep 1000"];
    let mut running = Running::start(site.leasehold(&args));
    assert_eq!(running.line(), "ready");
    site.server.command(&["ACL", "SETUSER", "anna", "-eval", "-evalsha"]);
    let output = running.wait();
    assert_eq!(code(&output), 76);
    let said = one_line(&output);
    assert!(said.contains("redis lock \"job\": lost") && said.contains("NOPERM"), "{said}");
    assert!(said.contains("docs/engines/redis.md") && !said.contains("hunter2"), "{said}");
}
