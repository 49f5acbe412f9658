//! Acquire and release of free names on Redis: leasehold, the crate that others use, and a bare socket that sends the same
//! commands, encoded before, in batches.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::{Connect, Keeper, Locks};
use leasehold_testkit::server::RedisServer;
use tokio::runtime::Runtime;

use crate::{Failure, contest::Contest};

const TASKS: usize = 256;
/// How long one measurement takes, about.
const SLICE: Duration = Duration::from_millis(150);
const ROUNDS: usize = 15;

pub(crate) fn bench() -> Result<(), Failure> {
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let own = Locks::connect(&url)?;
    let ridden = Connect::default().keeper(Keeper::on(runtime.handle().clone())).connect(&url)?;
    let peer = Arc::new(runtime.block_on(async { rslock::LockManager::new(vec![url.clone()]) }));
    for tasks in [TASKS, 1] {
        println!("  {tasks} tasks, a name each");
        let mut raw = Raw::new(server.port(), tasks)?;
        Contest::new("pairs/s")
            .rounds(ROUNDS)
            .way("bare socket, the same scripts, in batches", || raw.pairs())
            .way("rslock", || rslock_pairs(&runtime, &peer, tasks))
            .way("leasehold", || pairs(&runtime, &own, tasks))
            .way("leasehold, keeper on the tasks' runtime", || pairs(&runtime, &ridden, tasks))
            .run()?;
    }
    Ok(())
}

/// Acquires and releases in `tasks` tasks for a while.
fn pairs(runtime: &Runtime, locks: &Locks, tasks: usize) -> Result<f64, Failure> {
    let locks = locks.clone();
    per_second(runtime, tasks, move |task| {
        let request = locks.mutex(&format!("bench-{task}"));
        move || {
            let acquire = request.acquire();
            async move { Ok(acquire.await?.release().await?) }
        }
    })
}

fn rslock_pairs(runtime: &Runtime, peer: &Arc<rslock::LockManager>, tasks: usize) -> Result<f64, Failure> {
    let peer = Arc::clone(peer);
    per_second(runtime, tasks, move |task| {
        let (peer, name) = (Arc::clone(&peer), format!("rslock-{task}"));
        move || {
            let (peer, name) = (Arc::clone(&peer), name.clone());
            async move {
                let lock = peer
                    .lock(name.as_str(), Duration::from_secs(30))
                    .await
                    .map_err(|error| format!("{error:?}"))?;
                peer.unlock(&lock).await;
                Ok(())
            }
        }
    })
}

/// How often a second all tasks together get through what `make` makes for each.
fn per_second<M, F>(runtime: &Runtime, tasks: usize, make: impl Fn(usize) -> M) -> Result<f64, Failure>
where
    M: Fn() -> F + Send + 'static,
    F: Future<Output = Result<(), Failure>> + Send,
{
    let begin = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let once = make(task);
            runtime.spawn(async move {
                let mut done = 0_u32;
                while begin.elapsed() < SLICE {
                    once().await?;
                    done += 1;
                }
                Ok::<_, Failure>(done)
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += runtime.block_on(task)??;
    }
    Ok(f64::from(done) / begin.elapsed().as_secs_f64())
}

/// A bare connection.
struct Raw {
    stream: BufReader<TcpStream>,
    claims: Vec<u8>,
    releases: Vec<u8>,
    tasks: usize,
}

impl Raw {
    fn new(port: u16, tasks: usize) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let mut raw =
            Self { stream: BufReader::new(stream), claims: Vec::new(), releases: Vec::new(), tasks };
        let (claim, release) = (raw.load(CLAIM)?, raw.load(RELEASE)?);
        for task in 0..tasks {
            let (lock, id) = (format!("lock:raw-{task}"), format!("{task:032x}"));
            let side = format!("leasehold:{{raw-{task}}}");
            let channel = format!("leasehold:news:{id}");
            let arguments = [
                "EVALSHA",
                &claim,
                "1",
                &lock,
                &side,
                &id,
                "create",
                "x",
                "1",
                "0",
                "30000",
                "2000",
                "30000",
                "1",
                "64",
                &channel,
                "user@host:12345",
                "0",
            ];
            encode(&mut raw.claims, &arguments);
            encode(&mut raw.releases, &["EVALSHA", &release, "1", &lock, &side, &id, "", "c", "0", "0"]);
        }
        Ok(raw)
    }

    fn load(&mut self, script: &str) -> Result<String, Failure> {
        let mut command = Vec::new();
        encode(&mut command, &["SCRIPT", "LOAD", script]);
        self.stream.get_mut().write_all(&command)?;
        self.line()?;
        Ok(self.line()?)
    }

    fn pairs(&mut self) -> Result<f64, Failure> {
        let begin = Instant::now();
        let mut done = 0;
        while begin.elapsed() < SLICE {
            self.stream.get_mut().write_all(&self.claims)?;
            self.replies()?;
            self.stream.get_mut().write_all(&self.releases)?;
            self.replies()?;
            done += self.tasks;
        }
        Ok(done as f64 / begin.elapsed().as_secs_f64())
    }

    fn replies(&mut self) -> Result<(), Failure> {
        (0..self.tasks).try_for_each(|_| self.reply())
    }

    fn reply(&mut self) -> Result<(), Failure> {
        let line = self.line()?;
        let length = || line[1..].parse::<usize>();
        match line.as_bytes().first() {
            Some(b'*') => (0..length()?).try_for_each(|_| self.reply()),
            Some(b'$') => {
                let mut text = vec![0; length()? + 2];
                Ok(self.stream.read_exact(&mut text)?)
            }
            Some(b':') => Ok(()),
            _ => Err(format!("the server said {line:?}").into()),
        }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

const CLAIM: &str = concat!(
    include_str!("../../crates/redis/src/lua/quick_claim.lua"),
    include_str!("../../crates/redis/src/lua/name.lua"),
    include_str!("../../crates/redis/src/lua/claim.lua")
);
const RELEASE: &str = concat!(
    include_str!("../../crates/redis/src/lua/quick_release.lua"),
    include_str!("../../crates/redis/src/lua/name.lua"),
    include_str!("../../crates/redis/src/lua/release.lua")
);

fn encode(into: &mut Vec<u8>, words: &[&str]) {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        let _ = write!(text, "${}\r\n{word}\r\n", word.len());
    }
    into.extend_from_slice(text.as_bytes());
}
