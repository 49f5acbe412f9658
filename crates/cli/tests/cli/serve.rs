//! `leasehold serve`: from the command line to the page and back.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::Command,
};

use leasehold_testkit::server::{Prometheus, RedisServer};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::tools::{Dir, HOLD, PATIENCE, Running, bare, code, finish, one_line, until};

const TOKEN: &str = "break-canary-0123456789abcdef";

/// A page that is served.
struct Page {
    running: Running,
    address: String,
}

impl Page {
    fn start(mut command: Command, options: &[&str]) -> Self {
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(options);
        let mut running = Running::start(command);
        let line = running.line();
        let address = line.strip_prefix("http://").and_then(|rest| rest.strip_suffix('/'));
        let address = address.unwrap_or_else(|| panic!("no address: {line:?}")).to_owned();
        Self { running, address }
    }

    fn send(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (address, length) = (&self.address, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\
             Authorization: Bearer {TOKEN}\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n"
        );
        stream.write_all((head + body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn until_shown(&self, path: &str, text: &str) {
        until(text, || self.send("GET", path, "").contains(text));
    }
}

fn with_break(dir: &Dir) -> [String; 4] {
    let tokens = dir.file("tokens", &format!("ada {TOKEN}\n"), 0o600).display().to_string();
    let audit = dir.path().join("audit").display().to_string();
    ["--break-tokens".into(), tokens, "--audit".into(), audit]
}

#[test]
fn a_page_shows_several_engines_and_ends_by_a_signal() {
    let (dir, redis) = (Dir::new(), RedisServer::start(&[]));
    let options = with_break(&dir);
    let redis_url = format!("redis://127.0.0.1:{}", redis.port());
    let engine = format!("orders={redis_url}");
    let url = dir.url();
    let options =
        [&["--engine", &*engine, "--url", &*url][..], &options.each_ref().map(|word| &**word)].concat();
    let mut page = Page::start(bare(&[]), &options);
    let _file = dir.hold("on-file");
    let mut command = bare(&["run", "on-redis", "--", "sh", "-c", HOLD]);
    command.env("LEASEHOLD_URL", redis_url);
    let mut on_redis = Running::start(command);
    assert_eq!(on_redis.line(), "ready");
    page.until_shown("/", ">on-file</a></th><td>file<");
    page.until_shown("/", ">on-redis</a></th><td>orders<");
    page.until_shown("/engines", "<strong>exact</strong>");
    page.until_shown("/metrics", "leasehold_holders{engine=\"redis\",location=\"orders\"} 1");
    page.running.signal(Signal::SIGTERM);
    let output = page.running.wait();
    assert_eq!((code(&output), output.stderr.len()), (0, 0), "{output:?}");
    assert_eq!(code(&on_redis.output()), 0);
}

#[test]
fn a_break_by_the_page_asks_a_holder_of_a_file_lock_to_stop() {
    let dir = Dir::new();
    let options = with_break(&dir);
    let options = [&["--allow-break"][..], &options.each_ref().map(|word| &**word)].concat();
    let page = Page::start(dir.leasehold(&[]), &options);
    let script = "trap 'echo got-term; exit 0' TERM; echo ready; while :; do read line; done";
    let holder = dir.holder(&["--ttl", "1h"], "x", script);
    page.until_shown("/", ">x<");
    let token = &dir.show("x")["holders"][0]["token"];
    let answer = page.send("POST", "/break", &format!("engine=file&name=x&token={token}&reason=it+hangs"));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("The hold has ended."), "{answer}");
    assert_eq!(code(&holder.wait()), 76);
    assert!(dir.show("x")["holders"].as_array().unwrap().is_empty());
    let audit = fs::read_to_string(dir.path().join("audit")).unwrap();
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let words = lines.iter().map(|line| [&line["event"], &line["outcome"], &line["who"], &line["reason"]]);
    let expected = [
        [&"intent".into(), &Value::Null, &"ada".into(), &"it hangs".into()],
        [&"outcome".into(), &"broken".into(), &"ada".into(), &"it hangs".into()],
    ];
    assert_eq!(words.collect::<Vec<_>>(), expected);
    assert!(!audit.contains("canary"), "{audit}");
}

#[test]
fn what_would_be_open_to_others_is_refused() {
    let dir = Dir::new();
    let open = dir.file("open", &format!("{TOKEN}\n"), 0o644).display().to_string();
    let private = dir.file("private", &format!("{TOKEN}\n"), 0o600).display().to_string();
    let (missing, audit) = (dir.path().join("none/audit"), dir.path().join("audit"));
    let (missing, audit) = (missing.display().to_string(), audit.display().to_string());
    for (options, expected, word) in [
        (&["--listen", "0.0.0.0:0"][..], 64, "--tls-cert"),
        (&["--allow-break"], 64, "--audit"),
        (&["--allow-break", "--audit", &audit], 64, "--break-tokens"),
        (&["--view-tokens", &open], 78, "chmod 600"),
        (&["--allow-break", "--break-tokens", &private, "--audit", &missing], 78, "none/audit"),
        (&["--engine", "redis://:url-canary@h"], 64, "LABEL=URL"),
        (&["--engine", "a=@/nonexistent/url"], 78, "/nonexistent/url"),
        (&["--proxy-user-header", "X-User"], 64, "--proxy-peer"),
    ] {
        let mut command = dir.leasehold(&["serve", "--listen", "127.0.0.1:0"]);
        if options[0] == "--listen" {
            command = dir.leasehold(&["serve"]);
        }
        command.args(options);
        let output = finish(command);
        assert_eq!(code(&output), expected, "{options:?}: {output:?}");
        let message = one_line(&output);
        assert!(message.contains(word) && !message.contains("canary"), "{options:?}: {message}");
    }
    assert_eq!(fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn an_address_in_use_is_reported() {
    let dir = Dir::new();
    let page = Page::start(dir.leasehold(&[]), &[]);
    let mut command = dir.leasehold(&["serve", "--listen", &page.address]);
    command.env_remove("LEASEHOLD_NO_URL");
    let output = finish(command);
    assert_eq!(code(&output), 69);
    assert!(one_line(&output).contains(&page.address));
}

#[test]
fn a_prometheus_scrapes_the_page() {
    let dir = Dir::new();
    let rules = dir.file("rules.yml", "groups: []\n", 0o600);
    let page = Page::start(dir.leasehold(&[]), &["--metrics-names", "x*"]);
    let _holds = [dir.hold("x1"), dir.hold("other")];
    let port = page.address.rsplit(':').next().unwrap().parse().unwrap();
    let mut prometheus = Prometheus::start(port, &rules);
    let held = prometheus.await_result("leasehold_holders{engine=\"file\"} == 2");
    assert_eq!(held[0].0["location"], "file");
    let since = prometheus.await_result("leasehold_lock_held_since_timestamp_seconds");
    let names: Vec<_> = since.iter().map(|(labels, _)| &labels["name"]).collect();
    assert_eq!(names, ["x1"], "only the names of the pattern");
}
