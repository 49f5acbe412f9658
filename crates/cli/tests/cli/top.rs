//! `leasehold top`, on a pseudo-terminal.

use leasehold_testkit::server::{Proxy, RedisServer};
use nix::sys::signal::Signal;

use crate::{
    fixture::Fixture,
    pty::{Pty, program_on_terminal},
    start::{LEASEHOLD, program},
    tools::{Dir, HOLD, Running, bare, code, finish, one_line, until},
};

const ENTER: &str = "\r";
const ESCAPE: &str = "\u{1b}";
const TAB: &str = "\t";
const DOWN: &str = "\u{1b}[B";
const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const CTRL_Z: &str = "\u{1a}";

/// Starts a holder of a name, whose CMD runs until it is ended.
fn hold(fixture: &Fixture<()>, owner: &str, name: &str) -> Running {
    let args = ["run", "--owner", owner, name, "--", "sh", "-c", HOLD];
    let mut running = Running::start(fixture.leasehold(&args));
    assert_eq!(running.line(), "ready");
    running
}

fn top(url: &str, args: &[&str]) -> Pty {
    Pty::leasehold(&[&["top", "--every", "100ms"], args].concat(), url, &[])
}

/// An operator finds who makes others wait, looks at the details, and breaks the hold.
fn a_stuck_hold_is_found_and_broken(fixture: &Fixture<()>, url: &str) {
    let mut view = top(url, &[]);
    view.until_text("nothing is held or waited for");
    assert!(!view.has_echo());
    let other = hold(fixture, "bob", "another");
    view.until_text("another");
    let stuck = hold(fixture, "alice", "db/stuck");
    let waiter = Running::start(fixture.leasehold(&["run", "--owner", "carol", "db/stuck", "--", "true"]));
    view.until("the blocking row on top", |screen| {
        screen
            .contents()
            .lines()
            .nth(2)
            .is_some_and(|line| line.contains("db/stuck") && line.contains("alice"))
    });
    assert!(view.text().lines().next().unwrap().contains(fixture.engine), "{}", view.text());
    view.press("s");
    view.until("the order of names", |screen| {
        screen.contents().lines().nth(2).is_some_and(|line| line.contains("another"))
    });
    view.press("/stuck");
    view.until("a filter", |screen| !screen.contents().contains("another"));
    view.press(ENTER);
    view.until_text("only what contains \"stuck\"");
    view.press(DOWN);
    view.until_selected("db/stuck");
    view.press(ENTER);
    view.until_text("WAITER");
    view.until_text("carol");
    view.press(ESCAPE);
    view.until_selected("db/stuck");
    let token = fixture.show("db/stuck")["holders"][0]["token"].to_string();
    view.press(CTRL_D);
    view.until_text("Break this hold?");
    view.until_text(&format!("token   {token}, held "));
    // Enter presses Cancel.
    view.press(ENTER);
    view.until("no question", |screen| !screen.contents().contains("Break this hold?"));
    view.press(CTRL_D);
    view.until_text("> [ Cancel ] <");
    view.press(TAB);
    view.press("db/stuck");
    view.until_text("db/stuck_");
    view.press(ENTER);
    view.until_text("> [ Break ] <");
    view.press(ENTER);
    view.until_text(&format!("broken: db/stuck, token {token}"));
    assert_eq!(code(&stuck.wait()), 76, "the holder lost its lock");
    assert_eq!(code(&waiter.output()), 0, "the waiter got it");
    view.press("q");
    assert_eq!(view.end(), 0);
    assert_eq!(code(&other.output()), 0);
}

#[test]
fn on_files() {
    let dir = Dir::new();
    a_stuck_hold_is_found_and_broken(&Fixture::at("file", dir.url(), ()), &dir.url());
}

#[test]
fn on_redis() {
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    a_stuck_hold_is_found_and_broken(&Fixture::at("redis", url.clone(), ()), &url);
}

#[test]
fn hostile_texts_are_shown_with_escapes() {
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    // A foreign holder, whose value is shown as its id.
    server.command(&["SET", "lock:job\u{202e}<img src=x>", "\u{1b}]0;evil\u{7}\u{1b}[2J", "PX", "600000"]);
    let mut view = top(&url, &[]);
    view.until_text("job\\u{202e}<img");
    view.press("j");
    view.until_selected("job");
    view.press(ENTER);
    view.until_text("\\u{1b}]0;evil\\u{7}");
    assert!(!view.text().contains('\u{202e}'), "{}", view.text());
}

#[test]
fn every_way_out_restores_the_terminal() {
    let dir = Dir::new();
    for (key, expected) in [("q", 0), (CTRL_C, 130)] {
        let mut view = top(&dir.url(), &[]);
        view.until_text("nothing is held");
        view.press(key);
        assert_eq!(view.end(), expected, "{key:?}");
    }
    for (signal, expected) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGINT, 130)] {
        let view = top(&dir.url(), &[]);
        view.until_text("nothing is held");
        view.signal(signal);
        assert_eq!(view.end(), expected, "{signal}");
    }
}

#[test]
fn ctrl_z_returns_to_the_shell_and_fg_to_the_view() {
    let dir = Dir::new();
    let mut shell = program_on_terminal("bash");
    shell.args(["--norc", "--noprofile", "-i"]).env("LEASEHOLD_URL", dir.url()).env("PS1", "prompt-");
    let mut view = Pty::start(shell);
    view.until_text("prompt-");
    view.press(&format!("{} top --every 100ms; echo code-$?\n", LEASEHOLD));
    view.until_text("nothing is held");
    view.press(CTRL_Z);
    view.until_text("Stopped");
    assert!(!view.look(vt100::Screen::alternate_screen));
    view.press("fg\n");
    view.until("the view again", |screen| {
        screen.alternate_screen() && screen.contents().contains("nothing is held")
    });
    view.press("q");
    // The view discards what is typed before its end.
    view.until("the prompt", |screen| screen.contents().trim_end().ends_with("prompt-"));
    view.press("exit\n");
    view.end();
}

/// The data of a server that is away stay on the screen, with their age.
#[test]
fn an_outage_shows_old_data_as_stale() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(server.port());
    let fixture = Fixture::at("redis", format!("redis://127.0.0.1:{}", server.port()), ());
    let holder = hold(&fixture, "alice", "job");
    let mut view = top(&format!("redis://127.0.0.1:{}?connect_timeout=1s", proxy.port()), &[]);
    view.until_text("alice");
    assert!(!view.text().contains("STALE"));
    proxy.block();
    view.until_text("STALE, age ");
    view.until_text("redis engine");
    assert_eq!(view.rows("alice").len(), 1, "{}", view.text());
    proxy.unblock();
    view.until("fresh data", |screen| !screen.contents().contains("STALE"));
    view.press("q");
    assert_eq!(view.end(), 0);
    assert_eq!(code(&holder.output()), 0);
}

#[test]
fn readonly_breaks_nothing() {
    let dir = Dir::new();
    let holder = dir.hold("x");
    // A break of this view has no reason, so it cannot be recorded.
    let recorded = [("LEASEHOLD_AUDIT_FILE", "/nonexistent/audit")];
    for (options, variables) in [(&["--readonly"][..], &[][..]), (&[], &recorded)] {
        let args = [&["top", "--every", "100ms"], options].concat();
        let mut view = Pty::leasehold(&args, &dir.url(), variables);
        view.until("a row", |screen| screen.contents().lines().any(|line| line.starts_with("  x ")));
        view.press("j");
        view.until_selected("x");
        view.press(CTRL_D);
        view.until_text("no hold is broken: --readonly is given, or LEASEHOLD_AUDIT_FILE is set");
        view.press("q");
        assert_eq!(view.end(), 0);
    }
    assert_eq!(code(&holder.output()), 0);
}

#[test]
fn no_color_has_no_colours() {
    let dir = Dir::new();
    let holder = dir.hold("x");
    let waiter = Running::start(dir.leasehold(&["run", "x", "--", "true"]));
    dir.until_waiters("x", 1);
    let has_colour = |screen: &vt100::Screen| {
        let cells = (0..24).flat_map(|row| (0..80).map(move |column| (row, column)));
        cells
            .filter_map(|(row, column)| screen.cell(row, column))
            .any(|cell| cell.fgcolor() != vt100::Color::Default)
    };
    let coloured = top(&dir.url(), &[]);
    coloured.until("a row in colour", has_colour);
    let plain = Pty::leasehold(&["top"], &dir.url(), &[("NO_COLOR", "1")]);
    plain.until("a row", |screen| screen.contents().lines().any(|line| line.starts_with("  x ")));
    assert!(!plain.look(has_colour));
    assert_eq!([code(&holder.output()), code(&waiter.output())], [0, 0]);
}

#[test]
fn without_a_terminal_watch_is_named() {
    let dir = Dir::new();
    for (term, words) in [("xterm", "there is none"), ("dumb", "`dumb`"), ("", "TERM is not set")] {
        let mut command = dir.leasehold(&["top"]);
        command.env("TERM", term);
        let output = finish(command);
        assert_eq!(code(&output), 64, "{output:?}");
        let message = one_line(&output);
        assert!(message.contains(words) && message.contains("`leasehold watch`"), "{message}");
    }
    assert!(!dir.locks().exists(), "it created nothing");
}

/// What is wrong at first contact is a message, and not a screen that is gone at once.
#[test]
fn an_error_at_first_contact_is_a_message() {
    let view = Pty::leasehold(&["top"], "redis://:canary@127.0.0.1:1", &[]);
    view.until_text("leasehold: redis engine");
    assert!(!view.text().contains("canary"), "{}", view.text());
    assert_eq!(view.end(), 69);
    assert_eq!(code(&finish(bare(&["top", "--every", "1ms"]))), 64);
}

/// When the window of the terminal is closed, no process stays behind.
#[test]
fn the_end_of_the_terminal_ends_the_view() {
    let dir = Dir::new();
    let mut command = program("script");
    command.args(["-qec", &format!("stty rows 24 cols 80; trap '' HUP; {} top", LEASEHOLD), "/dev/null"]);
    command.env("LEASEHOLD_URL", dir.url()).env("SHELL", "/bin/sh").env("TERM", "xterm");
    let mut script = Running::start(command);
    // One word: spaces are not sent to an empty screen.
    script.read_until("nothing");
    let pid = process_of(&dir.url());
    script.signal(Signal::SIGKILL);
    until("its end", || !crate::tools::is_running(pid));
}

/// The process of `leasehold top` whose environment has this URL.
fn process_of(url: &str) -> i32 {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let read = |pid: i32, file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let mut pids = pids.filter(|&pid| {
        has(&read(pid, "environ"), url) && read(pid, "cmdline").ends_with(b"leasehold\0top\0")
    });
    pids.next().unwrap()
}
