//! `doctor`, on engines that are as they should be and on engines that are not.

use std::{os::unix::fs::PermissionsExt, process::Command};

use leasehold_testkit::server::{EtcdServer, MariadbServer, PostgresServer, RedisServer, ZookeeperServer};
use serde_json::Value;

use crate::{
    start::{LEASEHOLD, program},
    tools::{Dir, bare, code, finish, one_line, stderr, stdout},
    url::of_another_user,
};

/// The findings with this id.
fn findings<'a>(value: &'a Value, id: &str) -> Vec<&'a Value> {
    value["findings"].as_array().unwrap().iter().filter(|found| found["id"] == id).collect()
}

/// The severity of the only finding with this id, and its text with the advice.
#[track_caller]
fn only(value: &Value, id: &str) -> (String, String) {
    let found = findings(value, id);
    assert_eq!(found.len(), 1, "{id}: {value:#}");
    let text = |key: &str| found[0][key].as_str().unwrap().to_owned();
    (text("severity"), format!("{} -> {}", text("found"), text("advice")))
}

/// The finding with this id has this severity, and its text or advice has these words.
#[track_caller]
pub(crate) fn assert_finding(value: &Value, id: &str, severity: &str, words: &str) {
    let (found, text) = only(value, id);
    assert!(found == severity && text.contains(words), "{id}: {found}: {text}");
}

/// The exit code of `doctor --json` and its object.
pub(crate) fn examined(mut command: Command) -> (i32, Value) {
    command.args(["doctor", "--json"]);
    let output = finish(command);
    assert_eq!(stderr(&output), "", "{output:?}");
    assert_eq!(output.stdout.iter().filter(|&&byte| byte == b'\n').count(), 1, "{output:?}");
    (code(&output), serde_json::from_slice(&output.stdout).unwrap())
}

/// The object has the fields that the page promises, of their types, and no others.
#[track_caller]
fn assert_shape(object: &Value) {
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let fields = ["cycles", "engine", "findings", "level", "notes", "raised_by", "servers", "severity"];
    assert_eq!(keys(object), fields, "{object:#}");
    let words = ["good", "unknown", "warning", "broken"];
    let is_severity = |value: &Value| value.as_str().is_some_and(|word| words.contains(&word));
    let is_text_or_null = |value: &Value| value.is_null() || value.is_string();
    let are_texts = |value: &Value| value.as_array().unwrap().iter().all(Value::is_string);
    assert!(object["engine"].is_string() && is_text_or_null(&object["level"]), "{object:#}");
    assert!(is_severity(&object["severity"]), "{object:#}");
    assert!(["notes", "raised_by", "servers"].iter().all(|key| are_texts(&object[key])), "{object:#}");
    for finding in object["findings"].as_array().unwrap() {
        assert_eq!(keys(finding), ["advice", "found", "id", "server", "severity"], "{finding:#}");
        let texts = ["advice", "found", "id"];
        assert!(texts.iter().all(|key| finding[key].is_string()), "{finding:#}");
        assert!(is_severity(&finding["severity"]) && is_text_or_null(&finding["server"]), "{finding:#}");
    }
    if !object["cycles"].is_null() {
        assert_eq!(keys(&object["cycles"]), ["count", "p50_us", "p99_us"], "{object:#}");
    }
}

/// All findings that are not good.
fn bad(value: &Value) -> Vec<&Value> {
    value["findings"].as_array().unwrap().iter().filter(|found| found["severity"] != "good").collect()
}

/// The machine of the tests may have little room, or a file system that a user may not like.
fn of_the_machine(found: &Value) -> bool {
    let id = found["id"].as_str().unwrap();
    ["fs", "space", "inotify"].iter().any(|end| id.ends_with(end))
        || id == "guarantee" && found["found"].as_str().unwrap().contains("overlay")
}

#[test]
fn a_good_directory_is_all_good_and_keeps_one_lock_file() {
    let dir = Dir::new();
    for state in ["not there yet", "there"] {
        let (code, value) = examined(dir.leasehold(&[]));
        let bad = bad(&value);
        assert!(bad.iter().all(|found| of_the_machine(found)), "{state}: {bad:#?}");
        assert_eq!(code, i32::from(!bad.is_empty()), "{state}");
        assert_eq!(value["engine"], "file");
        assert_finding(&value, "url", "good", "by LEASEHOLD_URL");
        assert_finding(&value, "lock", "good", "\"leasehold/doctor\"");
        assert_finding(&value, "show", "good", "who holds");
        assert_finding(&value, "break", "good", "asks `leasehold run` to stop");
        assert_finding(&value, "ttl", "good", "end with their process");
        assert_finding(&value, "latency", "good", "no limit, because holds do not lapse");
        let cycles = &value["cycles"];
        assert!(
            cycles["count"].as_u64().unwrap() > 0 && cycles["p50_us"].as_u64() <= cycles["p99_us"].as_u64()
        );
    }
    assert_finding(&examined(dir.leasehold(&[])).1, "file-leftovers", "good", "lock files of 1 names");
    assert_eq!(stdout(&dir.call(&["list"])), "");
}

#[test]
fn the_text_has_a_line_for_each_finding_and_the_level_at_the_end() {
    let dir = Dir::new();
    // The first one finds no directory.
    assert_eq!(dir.code(&["run", "x", "--", "true"]), 0);
    let (_, value) = examined(dir.leasehold(&[]));
    let output = dir.call(&["doctor"]);
    assert_eq!(stderr(&output), "");
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().collect();
    let severities = ["good", "unknown", "warning", "broken"];
    let (last, findings) = lines.split_last().unwrap();
    assert!(findings.iter().all(|line| severities.iter().any(|word| line.starts_with(word))), "{text}");
    assert_eq!(findings.len(), value["findings"].as_array().unwrap().len(), "{text}");
    let rank = |line: &&str| severities.iter().position(|word| line.starts_with(word));
    assert!(findings.is_sorted_by_key(|line| std::cmp::Reverse(rank(line))), "the worst first: {text}");
    let level = value["level"].as_str().unwrap();
    assert!(last.starts_with("level ") && last.contains(level), "{last}");
}

#[test]
fn a_url_that_nobody_gave_is_a_warning() {
    // On a machine with a URL file of its own a URL is given.
    if std::path::Path::new("/etc/leasehold/url").exists() {
        return assert_finding(&examined(bare(&[])).1, "url", "good", "/etc/leasehold/url");
    }
    let mut command = bare(&[]);
    if nix::unistd::geteuid().is_root() {
        // In a mount namespace of its own, so that the machine is not changed.
        command = program("unshare");
        command.args(["--mount", "sh", "-c", "mount -t tmpfs none /var/lib && exec \"$@\"", "sh", LEASEHOLD]);
    }
    let (code, value) = examined(command);
    assert_eq!(code, 1);
    assert_finding(&value, "url", "warning", "LEASEHOLD_URL");
    // As on every file system that is empty after a reboot.
    if nix::unistd::geteuid().is_root() {
        assert_finding(&value, "file-fs", "warning", "tmpfs");
    }
}

#[test]
fn wrong_urls_and_arguments_have_their_usual_codes() {
    let dir = Dir::new();
    for (args, expected) in [
        (&["doctor", "--url", "nosql://h"][..], 78),
        (&["doctor", "--url", "memory:"], 78),
        (&["doctor", "--url", "redis://h:port", "--url", "file:/x"], 78),
        (&["doctor", "--scratch", ""], 64),
        (&["doctor", "--ttl", "5"], 64),
        (&["doctor", "x"], 64),
    ] {
        let output = finish(dir.leasehold(args));
        assert_eq!((code(&output), stdout(&output).as_str()), (expected, ""), "{args:?}: {output:?}");
        one_line(&output);
    }
    let twice = dir.call(&["list", "--url", "file:/x", "--url", "file:/y"]);
    assert!(
        code(&twice) == 64 && one_line(&twice).contains("only doctor and serve take several"),
        "{twice:?}"
    );
}

#[test]
fn several_urls_are_examined_in_their_order() {
    let dir = Dir::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let missing = format!("redis://127.0.0.1:{port}?connect_timeout=300ms");
    let (file, sqlite) = (dir.url(), format!("sqlite://{}/locks.db", dir.path().display()));
    let args = ["doctor", "--json", "--url", &missing, "--url", &file, "--url", &sqlite];
    let output = finish(bare(&args));
    assert_eq!(code(&output), 2, "{output:?}");
    let objects: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        objects.iter().map(|object| &object["engine"]).collect::<Vec<_>>(),
        ["redis", "file", "sqlite"]
    );
    assert_eq!(objects[0]["level"], Value::Null);
    // The other questions would fail for the same reason, after the same wait.
    assert_finding(&objects[0], "reach", "broken", "check the host");
    assert_finding(&objects[1], "waits", "good", "no deadlock at this engine");
    assert_finding(&objects[2], "waits", "good", "over the engines so far");
    // The shape is the same whether an engine was reached or not.
    for object in &objects {
        assert_shape(object);
    }
    assert_eq!(objects[0]["findings"].as_array().unwrap().len(), 2);
    assert!(objects[1..].iter().all(|object| object["severity"] != "broken"), "{objects:#?}");
    let text = stdout(&finish(bare(&["doctor", "--url", &file, "--url", &sqlite])));
    assert_eq!(text.split("\n\n").count(), 2, "{text}");
    let with_password = missing.replace("://", "://:canary@");
    let text = stdout(&finish(bare(&["doctor", "--url", &with_password, "--url", &sqlite])));
    assert!(text.starts_with(&format!("{missing} (URL 1 of 2)\n")), "{text}");
    assert!(text.contains(&format!("\n\n{sqlite} (URL 2 of 2)\n")) && !text.contains("canary"), "{text}");
    let text = stdout(&finish(bare(&["doctor", "--url", &sqlite])));
    assert!(!text.contains("(URL "), "one URL needs no heading: {text}");
}

/// Limits that are inherited, and so given by a shell.
#[test]
fn few_open_files_are_a_warning_and_too_few_are_broken() {
    let dir = Dir::new();
    let limited = |limit: u32| {
        let mut command = program("sh");
        command.env("LEASEHOLD_URL", dir.url());
        command.args(["-c", &format!("ulimit -n {limit} && exec \"$@\""), "sh", LEASEHOLD]);
        examined(command)
    };
    let (code, value) = limited(64);
    assert_eq!(code, 1);
    assert_finding(&value, "file-open-files", "warning", "only 64 open files");
    assert_finding(&value, "lock", "good", "");
    let (code, value) = limited(10);
    assert_eq!(code, 2, "{value:#}");
    assert_finding(&value, "lock", "broken", "ulimit -n");
    assert!(stdout(&dir.call(&["list"])).is_empty());
}

#[test]
fn a_file_system_that_is_read_only_or_full_is_broken() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = Dir::new();
    let path = dir.path().display();
    let mounted = |options: &str, then: &str, url: &str| {
        let mut command = program("unshare");
        command.env("LEASEHOLD_URL", url);
        let script = format!("mount -t tmpfs -o {options} none {path} && cd {path} && {then} && exec \"$@\"");
        command.args(["--mount", "sh", "-c", &script, "sh", LEASEHOLD]);
        examined(command)
    };
    let sqlite = format!("sqlite://{path}/locks.db");
    for (engine, url) in [("file", dir.url()), ("sqlite", sqlite)] {
        let (code, value) = mounted("size=1m", "mkdir -m 700 locks && mount -o remount,ro .", &url);
        assert_eq!(code, 2, "{value:#}");
        assert_finding(&value, &format!("{engine}-mount"), "broken", "read-only");
        let told_by = if engine == "file" { "lock" } else { "sqlite-right" };
        assert_finding(&value, told_by, "broken", "read-only");
        assert!(value["level"].is_null() || value["severity"] == "broken");
        let (code, value) = mounted("size=1m", "mkdir -m 700 locks", &url);
        assert_eq!(code, 1, "{value:#}");
        assert_finding(&value, &format!("{engine}-space"), "warning", "MiB");
        let (code, value) = mounted("nr_inodes=2", "true", &url);
        assert_eq!(code, 2, "{value:#}");
        assert_finding(&value, &format!("{engine}-space"), "broken", "inodes");
    }
}

/// A container's own layer.
#[test]
fn an_overlay_lowers_the_level() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = Dir::new();
    let path = dir.path().display();
    for url in [dir.url(), format!("sqlite://{path}/locks.db")] {
        let mut command = program("unshare");
        command.env("LEASEHOLD_URL", url);
        // On a file system of its own, because an overlay cannot have an overlay as its upper layer.
        let script = format!(
            "mount -t tmpfs none {path} && cd {path} && mkdir low up work && \
             mount -t overlay -o lowerdir=low,upperdir=up,workdir=work none {path} && exec \"$@\""
        );
        command.args(["--mount", "sh", "-c", &script, "sh", LEASEHOLD]);
        let (code, value) = examined(command);
        assert_eq!((code, &value["level"]), (1, &"best effort".into()), "{value:#}");
        assert_finding(&value, "guarantee", "warning", "is overlay: ");
        assert!(value["raised_by"][0].as_str().unwrap().ends_with("that of a volume"), "{value:#}");
    }
}

#[test]
fn a_directory_of_another_user_is_broken() {
    let dir = Dir::new();
    let (command, path) = of_another_user(&dir);
    let (code, value) = examined(command);
    assert_eq!((code, &value["engine"]), (2, &"file".into()), "{value:#}");
    assert_finding(&value, "reach", "broken", path.to_str().unwrap());
}

#[test]
fn a_damaged_name_is_found() {
    let dir = Dir::new();
    let holder = dir.hold("x");
    std::fs::write(dir.locks().join(".state/x.lock"), "something else, of another program").unwrap();
    let (code, value) = examined(dir.leasehold(&[]));
    assert_eq!(code, 1, "{value:#}");
    assert_finding(&value, "list", "warning", "1 names cannot be read");
    drop(holder);
}

#[test]
fn a_good_database_is_all_good_and_keeps_no_name() {
    let dir = Dir::new();
    let url = format!("sqlite://{}/locks.db", dir.path().display());
    for tables in ["has no tables of leasehold yet", "has the tables of this version"] {
        let (code, value) = examined(bare(&["--url", &url]));
        let bad = bad(&value);
        assert!(bad.iter().all(|found| of_the_machine(found)), "{bad:#?}");
        assert_eq!(code, i32::from(!bad.is_empty()));
        assert_finding(&value, "sqlite-tables", "good", tables);
        assert_finding(&value, "lock", "good", "\"leasehold/doctor/");
        assert_finding(&value, "break", "good", "may break");
        assert_finding(&value, "ttl", "good", "ten times");
        assert_finding(&value, "latency", "good", "a ttl of 30s allows 3.0s");
    }
    let listed = finish(bare(&["--url", &url, "list"]));
    assert_eq!(stdout(&listed), "");
    assert!(one_line(&listed).contains("sqlite: no name is held or waited for"), "{listed:?}");
}

#[test]
fn a_database_with_foreign_settings_is_found() {
    let dir = Dir::new();
    let path = dir.path().join("locks.db");
    let url = format!("sqlite://{}", path.display());
    let examined = || examined(bare(&["--url", &url]));
    assert_eq!(code(&finish(bare(&["--url", &url, "run", "x", "--", "true"]))), 0);
    let execute = |statement: &str| {
        let script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); \
            c.execute(sys.argv[2]); c.close()";
        let mut command = program("python3");
        command.args(["-c", script]).arg(&path).arg(statement);
        assert_eq!(code(&finish(command)), 0, "{statement}");
    };
    execute("PRAGMA journal_mode = DELETE");
    let (code, value) = examined();
    assert_eq!(code, 1, "{value:#}");
    assert_finding(&value, "sqlite-journal", "warning", "took the write-ahead log off");
    assert_finding(&examined().1, "sqlite-journal", "good", "");
    execute("UPDATE leasehold_meta SET version = 9");
    let (code, value) = examined();
    assert_eq!(code, 2, "{value:#}");
    assert_finding(&value, "sqlite-tables", "broken", "version 9");
    // That no request succeeds only follows from it.
    let of_database = bad(&value).into_iter().filter(|found| !of_the_machine(found));
    assert_eq!(of_database.count(), 1, "{value:#}");
}

#[test]
fn a_database_that_may_not_be_written_is_broken() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = Dir::new();
    let path = dir.path().join("locks.db");
    let url = format!("sqlite://{}", path.display());
    assert_eq!(code(&finish(bare(&["--url", &url, "run", "x", "--", "true"]))), 0);
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    let leasehold = dir.path().join("leasehold");
    assert!(program("cp").arg(LEASEHOLD).arg(&leasehold).status().unwrap().success());
    let mut command = program("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(leasehold).args(["--url", &url]);
    let (code, value) = examined(command);
    assert_eq!(code, 2, "{value:#}");
    assert_finding(&value, "sqlite-right", "broken", "locks can be shown only");
    assert_finding(&value, "sqlite-right", "broken", "may not write");
    assert!(findings(&value, "lock").is_empty() && findings(&value, "reach").is_empty(), "{value:#}");
}

#[test]
fn a_server_with_weak_settings_is_examined_and_keeps_no_name() {
    let server = RedisServer::start(&["--requirepass", "canary-d41d8cd9"]);
    let address = format!("127.0.0.1:{}", server.port());
    let url = format!("redis://:canary-d41d8cd9@{address}");
    let (code, value) = examined(bare(&["--url", &url]));
    assert_eq!((code, &value["level"]), (1, &"best effort".into()), "{value:#}");
    assert!(!findings(&value, "guarantee").is_empty() && !value["raised_by"].as_array().unwrap().is_empty());
    assert_finding(&value, "url", "good", "by --url");
    assert_finding(&value, "lock", "good", "\"leasehold/doctor/");
    assert_finding(&value, "break", "good", "may break");
    assert_eq!(stdout(&finish(bare(&["--url", &url, "list"]))), "");
    let text = stdout(&finish(bare(&["--url", &url, "doctor"])));
    assert!(text.contains("it rises with ") && text.starts_with("warning  "), "{text}");
    assert_eq!(value["findings"][0]["severity"], value["severity"], "{value:#}");
    // The right password, a wrong one, and none.
    for login in [":canary-d41d8cd9@", ":canary-d41d8cd8@", ""] {
        for options in [&["doctor"][..], &["doctor", "--json"]] {
            let output = finish(bare(&[&["--url", &format!("redis://{login}{address}")], options].concat()));
            let printed = format!("{}{}", stdout(&output), stderr(&output));
            assert!(!printed.contains("canary"), "{printed}");
            assert_eq!(crate::tools::code(&output), if login.contains("cd9") { 1 } else { 2 }, "{printed}");
        }
    }
}

/// A user of the page on Redis, which may use the names with one prefix alone.
#[test]
fn a_user_without_rights_is_told_which() {
    let rules = include_str!("../../../../docs/engines/redis.acl");
    let rule = rules.lines().find_map(|line| line.strip_prefix("user team-a ")).unwrap();
    let server = RedisServer::start(&[]);
    let rule = format!("ACL SETUSER team-a {}", rule.replace("CHANGE-ME", "canary"));
    server.command(&rule.split(' ').collect::<Vec<_>>());
    let url = format!("redis://team-a:canary@127.0.0.1:{}", server.port());
    let (code, value) = examined(bare(&["--url", &format!("{url}?prefix=team-a:")]));
    assert_eq!((code, &value["level"]), (1, &Value::Null), "{value:#}");
    assert_finding(&value, "lock", "good", "");
    assert_finding(&value, "break", "good", "may break");
    assert_finding(&value, "guarantee", "unknown", "count on best effort");
    assert_finding(&value, "list", "warning", "names cannot be listed");
    let (code, value) = examined(bare(&["--url", &url]));
    assert_eq!(code, 2, "{value:#}");
    assert_finding(&value, "lock", "broken", "--scratch NAME");
    assert!(!value.to_string().contains("canary"), "{value:#}");
}

/// As a second doctor on the file engine finds it.
#[test]
fn a_test_name_that_is_taken_tells_nothing() {
    let dir = Dir::new();
    let _holder = dir.hold("taken");
    let output = dir.call(&["doctor", "--json", "--scratch", "taken"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((crate::tools::code(&output), &value["cycles"]), (1, &Value::Null), "{value:#}");
    assert_finding(&value, "lock", "unknown", "run doctor again");
}

/// Runs doctor, which finds that this user can lock, show, list and `break` as it says.
fn assert_usable(url: &str, engine: &str, breaking: &str) -> Value {
    let (code, value) = examined(bare(&["--url", url]));
    assert!(code < 2 && value["engine"] == engine, "{value:#}");
    for (id, words) in [
        ("reach", "answers"),
        ("lock", "\"leasehold/doctor/"),
        ("show", "who holds"),
        ("break", breaking),
        ("list", ": 0 are held"),
        ("latency", "the slowest request took "),
        ("latency", "and a ttl of 30s allows 3.0s"),
        ("waits", "no deadlock at this engine"),
    ] {
        assert_finding(&value, id, "good", words);
    }
    let listed = finish(bare(&["--url", url, "list"]));
    assert_eq!((crate::tools::code(&listed), stdout(&listed).as_str()), (0, ""), "{listed:?}");
    value
}

#[test]
fn redis_keeps_no_lock_key() {
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    assert_usable(&url, "redis", "may break");
    assert_usable(&format!("{url}?layout=redisson"), "redis", "may break");
    // The records of ended claims expire.
    for key in server.command(&["KEYS", "*"]).iter().filter(|key| key.contains("doctor/")) {
        assert!(key.starts_with("leasehold:{"), "{key}");
        let left: i64 = server.command(&["PTTL", key]).concat().trim().parse().unwrap();
        assert!(left >= 0 || left == -2, "{key}: {left}");
    }
}

#[test]
fn etcd_is_usable() {
    let server = EtcdServer::start(&[]);
    assert_usable(&server.url(), "etcd", "may break");
}

#[test]
fn zookeeper_is_usable() {
    let server = ZookeeperServer::start(&[]);
    assert_usable(&server.url(), "zookeeper", "may break");
    assert_usable(&format!("{}?layout=latch", server.url()), "zookeeper", "may break");
}

#[test]
fn postgres_is_usable_also_without_tables() {
    let server = PostgresServer::durable(&[]);
    assert_usable(&server.url(), "postgres", "may break");
    assert_usable(&format!("{}?hold=session&delay=0s", server.url()), "postgres", "cannot be broken");
}

#[test]
fn mysql_is_usable_also_without_tables() {
    // Without these settings it does not list the locks of sessions.
    let settings =
        ["--performance-schema=ON", "--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON"];
    let server = MariadbServer::durable(&settings);
    assert_usable(&server.url(), "mysql", "may break");
    assert_usable(&format!("{}?hold=session&delay=0s", server.url()), "mysql", "cannot be broken");
}
