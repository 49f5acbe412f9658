//! `list`, `show`, `break`.

use serde_json::Value;

use crate::{
    start::program,
    tools::{Dir, HOLD, Running, bare, code, finish, one_line, stderr, stdout, until},
};

fn keys(value: &Value) -> Vec<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

fn sorted(keys: &[&str]) -> Vec<String> {
    let mut keys: Vec<_> = keys.iter().map(|&key| key.to_owned()).collect();
    keys.sort();
    keys
}

#[test]
fn a_free_name_is_shown_as_free() {
    let dir = Dir::new();
    let value = dir.show("x");
    assert_eq!(
        keys(&value),
        sorted(&[
            "name",
            "engine",
            "key",
            "mode",
            "limit",
            "guarantee",
            "findings",
            "lineage",
            "holders",
            "waiters",
            "problem",
            "note",
            "notes"
        ])
    );
    assert_eq!(
        (&value["name"], &value["engine"], &value["guarantee"]),
        (&"x".into(), &"file".into(), &"exact".into())
    );
    for absent in ["mode", "limit", "problem", "note"] {
        assert_eq!(value[absent], Value::Null, "{absent}");
    }
    assert_eq!(value["key"], format!("{}/x.lock", dir.locks().display()));
    assert_eq!(
        (value["holders"].clone(), value["waiters"].clone()),
        (Value::Array(vec![]), Value::Array(vec![]))
    );
    let output = dir.call(&["show", "x"]);
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""));
    assert!(stdout(&output).contains("mode    free"), "{output:?}");
}

#[test]
fn a_held_name_is_shown_with_holder_and_waiter() {
    let dir = Dir::new();
    let script = "echo ready; echo $LEASEHOLD_LINEAGE; read line; true";
    let mut holder = dir.holder(&["--owner", "me"], "x", script);
    let lineage = holder.line();
    let waiting = Running::start(dir.leasehold(&["run", "--owner", "you", "x", "--", "true"]));
    dir.until_waiters("x", 1);
    let value = dir.show("x");
    assert_eq!(value["mode"], "exclusive");
    assert_eq!(value["lineage"].as_str(), Some(&*lineage));
    let holding = &value["holders"][0];
    let fields = ["id", "owner", "token", "held_ms", "remaining_ms", "foreign", "mode", "actor"];
    let state = ["broken", "ttl_ms", "since_renewal_ms", "overdue_ms", "pid", "process_state", "remarks"];
    assert_eq!(keys(holding), sorted(&[&fields[..], &state].concat()));
    assert!(
        holding["mode"] == "exclusive" && holding["actor"].as_str().is_some_and(|actor| actor.len() == 16)
    );
    assert_eq!(
        (&holding["owner"], &holding["token"], &holding["foreign"]),
        (&"me".into(), &1.into(), &false.into())
    );
    assert!(holding["held_ms"].is_u64() && holding["remaining_ms"].is_null() && holding["id"].is_string());
    let waiter = &value["waiters"][0];
    assert_eq!(keys(waiter), sorted(&["id", "owner", "waiting_ms", "mode", "actor"]));
    assert!(waiter["owner"] == "you" && waiter["waiting_ms"].is_u64());
    let text = stdout(&dir.call(&["show", "x"]));
    assert!(
        text.contains("HOLDER") && text.contains("me") && text.contains("WAITER") && text.contains("you"),
        "{text}"
    );
    assert_eq!([code(&holder.output()), code(&waiting.output())], [0, 0]);
}

#[test]
fn modes_and_limits_are_shown() {
    let dir = Dir::new();
    let _shared = dir.holder(&["-s"], "s", HOLD);
    let _permit = dir.holder(&["--limit", "3"], "p", HOLD);
    assert_eq!(dir.show("s")["mode"], "shared");
    assert_eq!((&dir.show("p")["mode"], &dir.show("p")["limit"]), (&"permit".into(), &3.into()));
}

#[test]
fn a_foreign_holder_is_shown_as_such() {
    let dir = Dir::new();
    assert_eq!(dir.code(&["run", "x", "--", "true"]), 0);
    let mut command = program("flock");
    command.args([dir.show("x")["key"].as_str().unwrap(), "sh", "-c", HOLD]);
    let mut foreign = Running::start(command);
    assert_eq!(foreign.line(), "ready");
    let value = dir.show("x");
    let holding = &value["holders"][0];
    assert_eq!((&holding["foreign"], &holding["token"]), (&true.into(), &Value::Null));
    assert_eq!(code(&foreign.output()), 0);
}

#[test]
fn list_prints_the_names_in_use_by_prefix() {
    let dir = Dir::new();
    let output = dir.call(&["list"]);
    assert_eq!((code(&output), stdout(&output).as_str()), (0, ""));
    assert_eq!(dir.code(&["run", "gone", "--", "true"]), 0);
    let _holders = [dir.hold("a/1"), dir.hold("a/2"), dir.hold("b")];
    let names = |args: &[&str]| -> Vec<String> {
        let output = dir.call(&[&["list", "--json"], args].concat());
        assert_eq!(code(&output), 0);
        let lines = stdout(&output);
        let values = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        values.map(|value| value["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["a/1", "a/2", "b"]);
    assert_eq!(names(&["a/"]), ["a/1", "a/2"]);
    assert_eq!(names(&["c"]), [""; 0]);
    let text = stdout(&dir.call(&["list", "b"]));
    let lines: Vec<_> = text.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("NAME  MODE") && lines[1].starts_with("b     exclusive"),
        "{text}"
    );
}

#[test]
fn break_asks_the_holder_and_waits_for_its_end() {
    let dir = Dir::new();
    let script = "trap 'echo got-term; exit 0' TERM; echo ready; while :; do read line; done";
    let running = dir.holder(&["--ttl", "1h"], "x", script);
    let output = dir.call(&["break", "x", "--token", "1"]);
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""));
    assert_eq!(stdout(&output), "ended: x, token 1: the name is free\n");
    assert!(dir.show("x")["holders"].as_array().unwrap().is_empty());
    let output = running.wait();
    assert_eq!((code(&output), stdout(&output).as_str()), (76, "got-term\n"), "TERM is sent once");
    assert!(one_line(&output).contains("broke"));
}

#[test]
fn break_waits_for_the_grace_of_a_cmd_that_ignores_term() {
    let dir = Dir::new();
    let script = "trap '' TERM; echo ready; while :; do read line; done";
    let running = dir.holder(&["--grace", "300ms"], "x", script);
    assert_eq!(dir.code(&["break", "x", "--token", "1"]), 0);
    assert_eq!(code(&running.wait()), 76);
}

#[test]
fn break_of_nothing_or_another_token_is_1() {
    let dir = Dir::new();
    for token in ["1", "7"] {
        let output = dir.call(&["break", "x", "--token", token]);
        assert_eq!(code(&output), 1);
        assert!(one_line(&output).contains(&format!("token {token}")));
    }
    let mut running = dir.hold("x");
    assert_eq!(dir.code(&["break", "x", "--token", "999999"]), 1);
    assert!(!running.has_ended());
}

#[test]
fn break_of_a_foreign_holder_is_refused() {
    let dir = Dir::new();
    assert_eq!(dir.code(&["run", "x", "--", "true"]), 0);
    let key = dir.show("x")["key"].as_str().unwrap().to_owned();
    let mut command = program("flock");
    command.args([&key, "sh", "-c", HOLD]);
    let mut foreign = Running::start(command);
    assert_eq!(foreign.line(), "ready");
    let refused = dir.call(&["break", "x", "--token", "1"]);
    assert_eq!(code(&refused), 1, "a foreign holder has no token: {refused:?}");
    let message = one_line(&refused);
    assert!(message.contains("not by leasehold, and so it has no token: end that process"), "{message}");
    assert!(message.contains("(pid "), "{message}");
    until("still held", || !foreign.has_ended());
}

/// Without a URL the locks are files of this user, which an operator of another engine takes for an answer.
#[test]
fn what_is_shown_without_a_url_is_told() {
    // On a machine with a URL file of its own a URL is always given.
    if std::path::Path::new("/etc/leasehold/url").exists() {
        return;
    }
    let dir = Dir::new();
    for args in [&["list"][..], &["list", "--json"], &["show", "x"], &["show", "--json", "x"]] {
        let output = finish(bare(args));
        assert_eq!(code(&output), 0, "{output:?}");
        let told = stderr(&output);
        assert!(told.contains("no URL is given: these are the locks of files of this user"), "{told}");
        assert!(told.contains(", in /"), "it names the directory: {told}");
        assert!(!stdout(&output).contains("no URL"), "{output:?}");
    }
    let mut watch = Running::start(bare(&["watch"]));
    assert!(watch.stderr_line().contains("no URL is given"));
    // With a URL nothing is told about it.
    assert_eq!(stderr(&dir.call(&["show", "x"])), "");
    let empty = dir.call(&["list", "deploy/"]);
    assert_eq!((code(&empty), stdout(&empty).as_str()), (0, ""));
    let message = one_line(&empty);
    assert!(
        message.contains("file: no name that begins with \"deploy/\" is held or waited for"),
        "{message}"
    );
    assert_eq!(stderr(&dir.call(&["list", "--json"])), "", "programs read an empty list");
    let holder = dir.hold("deploy/x");
    assert_eq!(stderr(&dir.call(&["list", "deploy/"])), "");
    drop(holder);
}

/// The one who breaks a hold of a stopped process is told how it goes on.
#[test]
fn the_break_of_a_stopped_process_says_that_it_is_stopped() {
    let dir = Dir::new();
    let mut holder = dir.hold("x");
    holder.freeze();
    let token = dir.show("x")["holders"][0]["token"].to_string();
    let refused = dir.call(&["break", "x", "--token", &token]);
    assert_eq!(code(&refused), 69, "{refused:?}");
    let message = one_line(&refused);
    assert!(message.contains("is stopped (state T)") && message.contains("`kill -CONT "), "{message}");
    holder.thaw();
    until("the name is free", || dir.show("x")["mode"].is_null());
}

fn audit_lines(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_break_is_recorded_before_and_after() {
    let dir = Dir::new();
    let (path, mut holder) = (dir.path().join("audit"), dir.hold("x"));
    let file = path.to_str().unwrap();
    let token = dir.show("x")["holders"][0]["token"].to_string();
    let break_ = |more: &[&str]| dir.call(&[&["break", "x", "--token", &token], more].concat());
    // Each of the two needs the other, and nothing is broken without.
    for (more, what) in [
        (&["--audit-file", file][..], "say why by --reason"),
        (&["--reason", "it hangs"], "give --audit-file or LEASEHOLD_AUDIT_FILE"),
        (&["--audit-file", file, "--reason", " "], "at most 500 characters"),
    ] {
        let output = break_(more);
        assert_eq!(code(&output), 64, "{output:?}");
        assert!(one_line(&output).contains(what), "{output:?}");
    }
    let nowhere = break_(&["--reason", "r", "--audit-file", dir.path().to_str().unwrap()]);
    assert_eq!(code(&nowhere), 78, "{nowhere:?}");
    assert!(one_line(&nowhere).ends_with(": nothing was broken\n"), "{nowhere:?}");
    assert!(!holder.has_ended() && audit_lines(&path).is_empty());
    let mut by_variable = dir.leasehold(&["break", "x", "--token", &token, "--reason", " it\nhangs "]);
    by_variable.env("LEASEHOLD_AUDIT_FILE", &path);
    assert_eq!(code(&finish(by_variable)), 0);
    assert_eq!(code(&holder.wait()), 76);
    let lines = audit_lines(&path);
    let [intent, outcome] = &lines[..] else { panic!("{lines:?}") };
    for line in [intent, outcome] {
        for (key, value) in
            [("known_by", "system"), ("engine", "file"), ("name", "x"), ("reason", "it\nhangs")]
        {
            assert_eq!(line[key], value, "{line}");
        }
        assert_eq!((line["token"].to_string(), &line["force"]), (token.clone(), &false.into()));
        assert!(line["who"].as_str().unwrap().contains('@') && line["address"].is_null(), "{line}");
        assert!(line["time"].as_str().unwrap().ends_with('Z') && line["id"] == intent["id"], "{line}");
    }
    assert_eq!((&intent["event"], intent["holder"]["token"].to_string()), (&"intent".into(), token.clone()));
    assert_eq!((&outcome["event"], &outcome["outcome"]), (&"outcome".into(), &"broken".into()));
    assert_eq!((&outcome["holders_after"], &outcome["error"]), (&Value::Array(Vec::new()), &Value::Null));
    // Nothing is held any more.
    let again = break_(&["--audit-file", file, "--reason", "r"]);
    assert_eq!(code(&again), 1, "{again:?}");
    let lines = audit_lines(&path);
    assert_eq!((lines.len(), &lines[3]["outcome"]), (4, &"not held".into()), "{lines:?}");
    assert!(lines[2]["holder"].is_null() && lines[2]["id"] != lines[0]["id"], "{lines:?}");
}

#[test]
fn a_break_that_is_not_recorded_is_none() {
    let dir = Dir::new();
    let mut holder = dir.hold("x");
    let token = dir.show("x")["holders"][0]["token"].to_string();
    // It can be opened, and no line can be added.
    let path = dir.file("audit", "{}\n", 0o600);
    let limited = format!(
        "ulimit -f 0; trap '' XFSZ; exec \"$0\" break x --token {token} --reason r --audit-file {}",
        path.display()
    );
    let mut command = program("sh");
    command.args(["-c", &limited, crate::start::LEASEHOLD]).env("LEASEHOLD_URL", dir.url());
    let output = finish(command);
    assert_eq!(code(&output), 69, "{output:?}");
    let message = one_line(&output);
    assert!(message.contains("the audit file ") && message.ends_with(": nothing was broken\n"), "{message}");
    assert!(!holder.has_ended());
}

#[test]
fn invalid_names_are_64_everywhere() {
    let dir = Dir::new();
    for args in [
        &["show", ""][..],
        &["show", "a\nb"],
        &["break", "", "--token", "1"],
        &["break", "x", "--token", "-1"],
    ] {
        let output = dir.call(args);
        assert_eq!(code(&output), 64, "{args:?}");
        one_line(&output);
    }
}
