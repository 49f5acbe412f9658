//! The programs that readers copy: each does what its page says.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, ChildStdout, Command, Stdio},
};

use leasehold_testkit::server::{PostgresServer, RedisServer};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// A running program, ended at the latest when it is dropped.
struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The next line that begins like this.
    fn line_with(&mut self, beginning: &str) -> String {
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "the output ended before {beginning:?}");
            if line.starts_with(beginning) {
                return line;
            }
        }
    }

    /// Sends a signal, and returns the rest of the output after the program has ended with success.
    fn end(mut self, signal: Signal) -> String {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        rest
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end, and returns its output.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Posts an order; returns the status code and the body.
fn post(address: &str, path: &str, body: &str) -> (String, String) {
    http(address, "POST", path, body)
}

/// Sends a request, whose answer can be read from the connection.
fn send(address: &str, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = "Host: shop\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8";
    write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    stream
}

/// Sends a request; returns the status code and the body.
fn http(address: &str, method: &str, path: &str, body: &str) -> (String, String) {
    let mut stream = send(address, method, path, body);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
    (status, body)
}

fn url_of(server: &RedisServer) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

#[test]
fn a_repeated_order_on_another_machine_gets_the_first_receipt() {
    let server = RedisServer::start(&[]);
    let url = url_of(&server);
    let start = || Program::start(env!("CARGO_BIN_EXE_orders_service"), &[&url, "127.0.0.1:0"]);
    let mut services = [start(), start()];
    let addresses = services.each_mut().map(|service| service.line_with("listening")[13..].to_owned());
    // The client hangs up: its charge is not cut off.
    let client = send(&addresses[0], "POST", "/orders/16", "card 4");
    services[0].line_with("charging card 4");
    drop(client);
    services[0].line_with("charged card 4");
    // Eight clicks at the same time, on both machines.
    let receipts: Vec<_> = std::thread::scope(|scope| {
        let clicks = addresses.iter().cycle().take(8);
        let clicks = clicks.map(|address| scope.spawn(|| post(address, "/orders/17", "card 1")));
        let clicks: Vec<_> = clicks.collect();
        clicks.into_iter().map(|click| click.join().unwrap()).collect()
    });
    assert!(receipts[0].1.starts_with("receipt "), "{receipts:?}");
    assert!(
        receipts.iter().all(|receipt| *receipt == ("200".to_owned(), receipts[0].1.clone())),
        "{receipts:?}"
    );
    let [first, second] = &addresses;
    assert_eq!(post(first, "/orders/18", "empty").0, "402");
    assert_eq!(post(second, "/orders/18", "card 2").0, "200", "a declined card can be tried again");
    assert_eq!(post(first, "/orders/18", "card 3").0, "422", "the order was paid with another card");
    assert_eq!(post(second, &format!("/orders/{}", "x".repeat(600)), "card 3").0, "400");
    let charged: String = services.map(|service| service.end(Signal::SIGINT)).concat();
    assert_eq!(charged.matches("charged card 1").count(), 1, "{charged}");
}

#[test]
fn a_terminated_leader_hands_over_and_a_killed_one_is_replaced() {
    let server = RedisServer::start(&[]);
    let url = url_of(&server);
    let start = |address| Program::start(env!("CARGO_BIN_EXE_leader_service"), &[&url, address]);
    let mut first = start("one");
    first.line_with("one leads");
    let mut second = start("two");
    assert_eq!(second.line_with("two follows Some"), "two follows Some(\"one\")");
    let rest = first.end(Signal::SIGTERM);
    assert!(rest.ends_with("one has resigned\n"), "{rest}");
    second.line_with("two leads");
    let mut third = start("three");
    third.line_with("three follows");
    drop(second);
    third.line_with("three leads");
    third.end(Signal::SIGINT);
}

#[test]
fn an_api_gets_three_calls_at_a_time() {
    let server = RedisServer::start(&[]);
    let text = output(env!("CARGO_BIN_EXE_outside_api"), &[&url_of(&server)]);
    assert_eq!(text.matches(": sunny").count(), 12, "{text}");
    let most: u32 = text.split("at most ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((1..=3).contains(&most), "{text}");
}

#[test]
fn an_import_without_a_runtime_goes_on_where_the_last_one_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let (url, done) = (format!("file:{}/locks", dir.path().display()), dir.path().join("done"));
    std::fs::write(&done, "0\n1\n").unwrap();
    let run = || output(env!("CARGO_BIN_EXE_blocking_import"), &[&url, done.to_str().unwrap()]);
    assert_eq!(run(), "3 pieces imported\n");
    assert_eq!(run(), "0 pieces imported\n");
    let locks = leasehold::Locks::connect(&url).unwrap();
    let held = locks.mutex("nightly-import").blocking().acquire().unwrap();
    assert_eq!(run(), "another machine imports\n");
    held.release_blocking().unwrap();
}

#[test]
fn a_row_refuses_the_write_of_a_late_holder() {
    let server = PostgresServer::start(&[]);
    let text = output(env!("CARGO_BIN_EXE_transfer_with_fence"), &[&server.url()]);
    assert!(text.contains("sold, 9 left\nsold, 8 left\nthe late holder: refused"), "{text}");
}

#[test]
fn a_job_runs_on_one_machine_and_moves_when_that_one_stops_or_dies() {
    let server = RedisServer::start(&[]);
    let url = url_of(&server);
    let start = |_| {
        let mut service = Program::start(env!("CARGO_BIN_EXE_singleton_job"), &[&url, "127.0.0.1:0"]);
        let address = service.line_with("listening")[13..].to_owned();
        (service, address)
    };
    let runs = |address: &str| http(address, "GET", "/", "") == ("200".to_owned(), "runs the job".to_owned());
    let locks = leasehold::Locks::connect(&url).unwrap();
    let mut services: Vec<_> = (0..3).map(start).collect();
    let mut last_token = 0;
    for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGTERM] {
        let runner = loop {
            if let Some(runner) = services.iter().position(|(_, address)| runs(address)) {
                break runner;
            }
        };
        // The other machines serve requests, and run no job.
        for _ in 0..20 {
            assert!(
                services.iter().enumerate().all(|(place, (_, address))| place == runner || !runs(address))
            );
        }
        let (mut service, _) = services.remove(runner);
        let token = service.line_with("messages sent")[25..].parse().unwrap();
        assert!(token > last_token, "{token} {last_token}");
        last_token = token;
        if signal == Signal::SIGTERM {
            service.end(signal);
            // The lock was released before the end: nobody waits for the lease.
            let view = locks.show_blocking("outbox-job").unwrap();
            assert!(view.holders.iter().all(|holder| holder.token != Some(token)), "{view:?}");
        }
    }
}

#[test]
fn one_reader_builds_a_page_and_a_late_page_is_refused() {
    let (cache, data) = (RedisServer::start(&[]), PostgresServer::start(&[]));
    let text = output(env!("CARGO_BIN_EXE_cache_rebuild"), &[&url_of(&cache), &data.url()]);
    assert_eq!(text, "20 readers, pages built: 1\nthe late page is refused\nitem 4711 costs 20\n");
}

#[test]
fn a_worker_that_is_told_to_stop_ends_its_jobs_and_leaves_no_lock() {
    let server = RedisServer::start(&[]);
    let url = url_of(&server);
    let mut worker = Program::start(env!("CARGO_BIN_EXE_graceful_shutdown"), &[&url]);
    let mut text = String::new();
    // The job that never ends, and one that has just begun.
    while !text.contains("begun: customer-8") {
        text += &(worker.line() + "\n");
    }
    text += &worker.end(Signal::SIGTERM);
    let (_, after) = text.split_once("stopping\n").unwrap();
    assert!(after.ends_with("cancelled: 1\nstopped, locks not released: 0\n"), "{text}");
    assert!(after.contains("done: customer-8"), "a job under way ends: {text}");
    let locks = leasehold::Locks::connect(&url).unwrap();
    for begun in text.lines().filter_map(|line| line.strip_prefix("begun: ")) {
        assert!(begun == "customer-3" || text.contains(&format!("done: {begun}\n")), "{text}");
        drop(locks.mutex(begun).blocking().try_acquire().unwrap());
    }
}
