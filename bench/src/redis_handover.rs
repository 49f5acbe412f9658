//! Two processes acquire one lock on Redis in turns. Measures the time from the sending of the release in one process
//! to the grant in the other. This time is compared with that of a bare message from one process to another.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::Duration,
};

use leasehold_core::Env;
use leasehold_redis::{Config, RedisEngine};
use leasehold_testkit::server::RedisServer;

use crate::{
    Failure, child,
    comparison::{Comparison, quantile},
    handover::{handover_time, now},
    stamped::{Turns, take_turns},
};

const TURNS: usize = 100;
/// How long a process holds the lock: long enough that the other process waits for it when the hold ends.
const HOLD: Duration = Duration::from_millis(1);
/// How long a process pauses after a release: long enough that the grant has arrived at the other process.
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) fn bench() -> Result<(), Failure> {
    let server = RedisServer::start(&[]);
    for (unit, fraction) in [("us, p50", 0.5), ("us, p99", 0.99)] {
        Comparison::new(unit)
            .rounds(11)
            .candidate("bare PUBLISH -> message", || publish_time(server.port(), fraction))
            .candidate("leasehold, from the release that leaves", || {
                handovers("thread", "sent", server.port(), fraction)
            })
            .candidate("the same, keeper on the caller's runtime", || {
                handovers("on_runtime", "sent", server.port(), fraction)
            })
            .candidate("leasehold, from before the drop", || {
                handovers("thread", "dropped", server.port(), fraction)
            })
            .run()?;
    }
    Ok(())
}

/// The quantile at `fraction` of the times between release and grant, in microseconds.
fn handovers(keeper: &str, release_point: &str, port: u16, fraction: f64) -> Result<f64, Failure> {
    let start = || child::start(&["redis-handover", keeper, release_point, &port.to_string()]);
    handover_time([start()?, start()?], TURNS, fraction)
}

/// Acquires and releases the lock repeatedly. Prints when each hold was granted, and when its release began or was
/// sent.
pub(crate) fn child(keeper: &str, release_point: &str, port: &str) -> Result<(), Failure> {
    let env = Env::system();
    let engine = RedisEngine::new(Config::from_url("redis", &format!("//127.0.0.1:{port}"))?, &env);
    take_turns(engine, keeper, release_point, Turns { count: TURNS, hold: HOLD, pause: PAUSE })
}

fn publish_time(port: u16, fraction: f64) -> Result<f64, Failure> {
    let listener = child::start(&["published", &port.to_string()])?;
    let mut server = Bare::connect(port)?;
    while server.ask(&["PUBSUB", "NUMSUB", "bench"])? != ":1" {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut sent = Vec::new();
    for number in 0..100 {
        std::thread::sleep(Duration::from_millis(2));
        sent.push(now()?);
        server.ask(&["PUBLISH", "bench", &number.to_string()])?;
    }
    let mut times = Vec::new();
    for (line, sent) in child::output(listener)?.lines().zip(sent) {
        times.push(line.parse::<u64>()?.saturating_sub(sent) as f64 / 1000.0);
    }
    Ok(quantile(&mut times, fraction))
}

/// The process that subscribes to the bare messages. Prints when each message arrived.
pub(crate) fn print_arrivals(port: &str) -> Result<(), Failure> {
    let mut server = Bare::connect(port.parse()?)?;
    server.ask(&["SUBSCRIBE", "bench"])?;
    let mut times = Vec::new();
    while times.len() < 100 {
        // Each message consists of three strings.
        if server.line()? == "message" {
            (0..4).try_for_each(|_| server.line().map(drop))?;
            times.push(now()?);
        }
    }
    times.iter().for_each(|time| println!("{time}"));
    Ok(())
}

/// A connection without a client library.
struct Bare(BufReader<TcpStream>);

impl Bare {
    fn connect(port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command, and returns the last line of the answer.
    fn ask(&mut self, words: &[&str]) -> Result<String, Failure> {
        let mut text = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| text += &format!("${}\r\n{word}\r\n", word.len()));
        self.0.get_mut().write_all(text.as_bytes())?;
        let mut line = self.line()?;
        let lines =
            match (line.as_bytes().first(), line.get(1..).and_then(|count| count.parse::<usize>().ok())) {
                // Each string of a list takes two lines: its length, and the string. A number or a plain word takes one
                // line.
                (Some(b'*'), Some(2)) => 3,
                (Some(b'*'), Some(3)) => 5,
                (Some(b'$'), Some(_)) => 1,
                _ => 0,
            };
        for _ in 0..lines {
            line = self.line()?;
        }
        Ok(line)
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}
