//! Names on Redis that many want.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use leasehold::Locks;
use leasehold_testkit::server::RedisServer;

use crate::{
    Failure, child,
    contest::{Contest, quantile},
    handover::{handovers, now},
};

const TASKS: usize = 32;
/// How long one measurement of a contended name takes.
const SLICE: Duration = Duration::from_millis(500);
const CROWD: usize = 10_000;

/// From before the release in one process to the grant in the other, beside a bare message from one process to another.
pub(crate) fn handover() -> Result<(), Failure> {
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    for (unit, at) in [("us, p50", 0.5), ("us, p99", 0.99)] {
        Contest::new(unit)
            .rounds(11)
            .way("bare PUBLISH -> message", || published(server.port(), at))
            .way("leasehold", || handovers("leasehold", &url, at))
            .run()?;
    }
    Ok(())
}

fn published(port: u16, at: f64) -> Result<f64, Failure> {
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
    Ok(quantile(&mut times, at))
}

/// The other process: when each message came.
pub(crate) fn hear(port: &str) -> Result<(), Failure> {
    let mut server = Bare::connect(port.parse()?)?;
    server.ask(&["SUBSCRIBE", "bench"])?;
    let mut times = Vec::new();
    while times.len() < 100 {
        // Each message is three strings.
        if server.line()? == "message" {
            (0..4).try_for_each(|_| server.line().map(drop))?;
            times.push(now()?);
        }
    }
    times.iter().for_each(|time| println!("{time}"));
    Ok(())
}

/// How often a second two processes together get through sections on one name.
pub(crate) fn contended() -> Result<(), Failure> {
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    let both = |way: &str| -> Result<f64, Failure> {
        let children = [child::start(&["contend", way, &url])?, child::start(&["contend", way, &url])?];
        let mut sum = 0.0;
        for child in children {
            sum += child::output(child)?.trim().parse::<f64>()?;
        }
        Ok(sum)
    };
    Contest::new("sections/s")
        .rounds(7)
        .way("rslock", || both("rslock"))
        .way("leasehold", || both("leasehold"))
        .run()
}

pub(crate) fn contend(way: &str, url: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = Arc::new(AtomicU64::new(0));
    let peer = (way == "rslock").then(|| runtime.block_on(async { rslock::LockManager::new(vec![url]) }));
    let locks = Locks::connect(url)?;
    let begin = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (done, peer, request) = (Arc::clone(&done), peer.clone(), locks.mutex("contended"));
            runtime.spawn(async move {
                while begin.elapsed() < SLICE {
                    match &peer {
                        Some(peer) => {
                            // It gives up after some tries; then it is asked again.
                            if let Ok(lock) = peer.lock("contended-rslock", Duration::from_secs(30)).await {
                                done.fetch_add(1, Relaxed);
                                peer.unlock(&lock).await;
                            }
                        }
                        None => {
                            let guard = request.acquire().await?;
                            done.fetch_add(1, Relaxed);
                            drop(guard);
                        }
                    }
                }
                Ok::<_, Failure>(())
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task)??;
    }
    println!("{}", done.load(Relaxed) as f64 / begin.elapsed().as_secs_f64());
    Ok(())
}

/// The server's commands for each hand-over between processes, with few and with many tasks that wait in each.
pub(crate) fn crowds() -> Result<(), Failure> {
    for tasks in [10, 100, 1000, CROWD] {
        let server = RedisServer::start(&[]);
        let url = format!("redis://127.0.0.1:{}?tasks={tasks}", server.port());
        let children = (0..4).map(|_| child::start(&["crowd", &url])).collect::<Result<Vec<_>, _>>()?;
        let mut sections = 0;
        for child in children {
            sections += child::output(child)?.trim().parse::<u64>()?;
        }
        let stats = server.command(&["INFO", "commandstats"]);
        let calls = |name: &str| -> u64 {
            let line = stats.iter().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
            line.and_then(|line| line.split(',').next()).and_then(|calls| calls.parse().ok()).unwrap_or(0)
        };
        let (scripts, pushes) = (calls("evalsha"), calls("publish"));
        println!(
            "  4 processes with {tasks:6} tasks each: {sections} sections, {pushes} hand-overs between processes, {:.2} calls each",
            scripts as f64 / pushes as f64
        );
    }
    Ok(())
}

pub(crate) fn crowd(url: &str) -> Result<(), Failure> {
    let (url, tasks) = url.split_once("?tasks=").ok_or("no number of tasks")?;
    let tasks: usize = tasks.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = Locks::connect(url)?;
    let sections = runtime.block_on(async {
        let requests: Vec<_> = (0..tasks)
            .map(|_| {
                let request = locks.mutex("crowd");
                tokio::spawn(async move {
                    for _ in 0..(CROWD / 10 / tasks).max(1) {
                        drop(request.acquire().await?);
                    }
                    Ok::<_, leasehold::Error>((CROWD / 10 / tasks).max(1))
                })
            })
            .collect();
        let mut sections = 0;
        for request in requests {
            sections += request.await??;
        }
        Ok::<_, Failure>(sections)
    })?;
    println!("{sections}");
    Ok(())
}

/// A connection without a library.
struct Bare(BufReader<TcpStream>);

impl Bare {
    fn connect(port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// The last line of the answer.
    fn ask(&mut self, words: &[&str]) -> Result<String, Failure> {
        let mut text = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| text += &format!("${}\r\n{word}\r\n", word.len()));
        self.0.get_mut().write_all(text.as_bytes())?;
        let mut line = self.line()?;
        let lines =
            match (line.as_bytes().first(), line.get(1..).and_then(|count| count.parse::<usize>().ok())) {
                // Each string of a list stands on a line after that of its length; numbers and words on one.
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
