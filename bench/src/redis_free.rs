//! Acquire and release of free names on Redis: by leasehold, by the crate `rslock`, and by a bare socket. The bare
//! socket sends the same commands as leasehold, in batches; the batches are encoded before the measurement.

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

use crate::{
    Failure,
    comparison::Comparison,
    pairs::{pairs, per_second},
};

const TASKS: usize = 256;
/// The approximate length of one measurement.
const MEASUREMENT_TIME: Duration = Duration::from_millis(150);
const ROUNDS: usize = 15;

pub(crate) fn bench() -> Result<(), Failure> {
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks_on_thread = Locks::connect(&url)?;
    let locks_on_runtime = Connect::default().keeper(Keeper::on(runtime.handle().clone())).connect(&url)?;
    let rslock_manager = Arc::new(runtime.block_on(async { rslock::LockManager::new(vec![url.clone()]) }));
    let mut socket = BareSocket::new(server.port(), TASKS)?;
    println!("  {TASKS} tasks of one thread, a name each");
    Comparison::new("pairs/s")
        .rounds(ROUNDS)
        .candidate("bare socket, the same scripts, in batches", || socket.pairs())
        .candidate("rslock", || rslock_pairs(&runtime, &rslock_manager, TASKS))
        .candidate("leasehold", || pairs(&runtime, MEASUREMENT_TIME, TASKS, &locks_on_thread))
        .candidate("leasehold, keeper on the tasks' runtime", || {
            pairs(&runtime, MEASUREMENT_TIME, TASKS, &locks_on_runtime)
        })
        .run()?;
    println!("  1 task");
    let client = runtime.block_on(BareClient::new(&url))?;
    let micros_per_pair = |pairs: Result<f64, Failure>| pairs.map(|pairs| 1e6 / pairs);
    Comparison::new("us a pair")
        .rounds(ROUNDS)
        .candidate("bare client, the same scripts", || micros_per_pair(client.pairs(&runtime)))
        .candidate("rslock", || micros_per_pair(rslock_pairs(&runtime, &rslock_manager, 1)))
        .candidate("leasehold", || micros_per_pair(pairs(&runtime, MEASUREMENT_TIME, 1, &locks_on_thread)))
        .candidate("leasehold, keeper on the task's runtime", || {
            micros_per_pair(pairs(&runtime, MEASUREMENT_TIME, 1, &locks_on_runtime))
        })
        .run()
}

/// A bare client: it uses the client library that leasehold uses, without leasehold.
#[derive(Clone)]
struct BareClient {
    connection: redis::aio::MultiplexedConnection,
    claim: Arc<str>,
    release: Arc<str>,
}

impl BareClient {
    async fn new(url: &str) -> Result<Self, Failure> {
        let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        let load = |script| redis::cmd("SCRIPT").arg("LOAD").arg(script).to_owned();
        let claim: String = load(CLAIM).query_async(&mut connection).await?;
        let release: String = load(RELEASE).query_async(&mut connection).await?;
        Ok(Self { connection, claim: claim.into(), release: release.into() })
    }

    fn pairs(&self, runtime: &Runtime) -> Result<f64, Failure> {
        per_second(runtime, MEASUREMENT_TIME, 1, |_| {
            let client = self.clone();
            move || client.clone().pair()
        })
    }

    async fn pair(mut self) -> Result<(), Failure> {
        let id = "00000000000000000000000000000001";
        let batch = |script: &str| redis::cmd("EVALSHA").arg(&[script, "1", COUNTER_KEY]).to_owned();
        let claim =
            batch(&self.claim).arg(&["1", "", CLAIM_PARAMETERS, &format!("ABCD{id}lock:client")]).to_owned();
        let claimed: String = claim.query_async(&mut self.connection).await?;
        let token = claimed.split(' ').nth(1).ok_or("no token")?;
        let release = batch(&self.release).arg(format!("ABCD{id}.{token} lock:client")).to_owned();
        let freed: String = release.query_async(&mut self.connection).await?;
        if freed == "0 1" { Ok(()) } else { Err(freed.into()) }
    }
}

pub(crate) fn rslock_pairs(
    runtime: &Runtime,
    rslock_manager: &Arc<rslock::LockManager>,
    tasks: usize,
) -> Result<f64, Failure> {
    let rslock_manager = Arc::clone(rslock_manager);
    per_second(runtime, MEASUREMENT_TIME, tasks, move |task| {
        let (rslock_manager, name) = (Arc::clone(&rslock_manager), format!("rslock-{task}"));
        move || {
            let (rslock_manager, name) = (Arc::clone(&rslock_manager), name.clone());
            async move {
                let lock = rslock_manager
                    .lock(name.as_str(), Duration::from_secs(30))
                    .await
                    .map_err(|error| format!("{error:?}"))?;
                rslock_manager.unlock(&lock).await;
                Ok(())
            }
        }
    })
}

/// A connection without a client library. It puts up to [`BATCH`] names into one call of a script, as leasehold does.
struct BareSocket {
    stream: BufReader<TcpStream>,
    batches: Vec<BatchedCall>,
}

struct BatchedCall {
    names: usize,
    claim: Vec<u8>,
    release: Vec<u8>,
    /// The offsets of the tokens in the encoded release. All tokens have the same length.
    token_offsets: Vec<usize>,
}

const BATCH: usize = 32;
/// The parameters of a claim, equal to those of the claims that leasehold makes in [`pairs`].
const CLAIM_PARAMETERS: &str = "=30000 8 leasehold:news:00000000000000000000000000000001 user@host:12345";
const COUNTER_KEY: &str = "leasehold:{}tlock:";
const TOKEN: &str = "0000000000000000";

impl BareSocket {
    fn new(port: u16, tasks: usize) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let mut socket = Self { stream: BufReader::new(stream), batches: Vec::new() };
        let (claim, release) = (socket.load(CLAIM)?, socket.load(RELEASE)?);
        let names: Vec<usize> = (0..tasks).collect();
        for names in names.chunks(BATCH) {
            let head = |sha: &str| ["EVALSHA", sha, "1", COUNTER_KEY].map(str::to_owned).to_vec();
            let (mut claims, mut releases) = (head(&claim), head(&release));
            claims.extend(["1", "", CLAIM_PARAMETERS].map(str::to_owned));
            for name in names {
                let (tag, id) = (format!("{name:04}"), format!("{name:032x}"));
                claims.push(format!("{tag}{id}lock:raw-{name}"));
                releases.push(format!("{tag}{id}.{TOKEN} lock:raw-{name}"));
            }
            let (claim, release) = (encode(&claims), encode(&releases));
            let text = String::from_utf8_lossy(&release).into_owned();
            let token_offsets = text.match_indices(&format!(".{TOKEN} ")).map(|(at, _)| at + 1).collect();
            socket.batches.push(BatchedCall { names: names.len(), claim, release, token_offsets });
        }
        Ok(socket)
    }

    fn load(&mut self, script: &str) -> Result<String, Failure> {
        self.reply(&["SCRIPT", "LOAD", script])?;
        self.line()
    }

    /// The first line of the answer to a command.
    fn reply(&mut self, command: &[&str]) -> Result<String, Failure> {
        let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        self.stream.get_mut().write_all(&encode(&command))?;
        self.line()
    }

    fn pairs(&mut self) -> Result<f64, Failure> {
        let begin = Instant::now();
        let mut completed = 0;
        let mut batches = std::mem::take(&mut self.batches);
        while begin.elapsed() < MEASUREMENT_TIME {
            for batch in &batches {
                self.stream.get_mut().write_all(&batch.claim)?;
            }
            for batch in &mut batches {
                let reply = self.answers(batch.names)?;
                for (&offset, token) in batch.token_offsets.iter().zip(&reply) {
                    // If the counter has run ahead of the clock, the script makes fewer tokens than the claim asked
                    // for. Then it puts a minus sign before the token in the answer.
                    let token = token.trim_start_matches('-').as_bytes();
                    // If a token would be ahead of the server's clock, the script gives none, and the name is not
                    // acquired.
                    if token.len() == TOKEN.len() {
                        batch
                            .release
                            .get_mut(offset..offset + TOKEN.len())
                            .ok_or("too short")?
                            .copy_from_slice(token);
                    }
                }
            }
            for batch in &batches {
                self.stream.get_mut().write_all(&batch.release)?;
            }
            for batch in &batches {
                completed += self.answers(batch.names)?.iter().filter(|word| *word == "1").count();
            }
        }
        self.batches = batches;
        Ok(completed as f64 / begin.elapsed().as_secs_f64())
    }

    /// The words of one answer: one word for each name. The server's time, which comes first, is left out.
    fn answers(&mut self, names: usize) -> Result<Vec<String>, Failure> {
        let length = self.line()?;
        let length: usize =
            length.strip_prefix('$').ok_or_else(|| format!("the server answered {length:?}"))?.parse()?;
        let mut text = vec![0; length + 2];
        self.stream.read_exact(&mut text)?;
        let words: Vec<String> =
            String::from_utf8(text)?.split_ascii_whitespace().skip(1).map(str::to_owned).collect();
        if words.len() == names { Ok(words) } else { Err(format!("{words:?}").into()) }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

macro_rules! script {
    ($($file:literal),+) => { concat!($(include_str!(concat!("../../crates/redis/src/lua/", $file, ".lua"))),+) };
}

const CLAIM: &str = script!("claim_lone", "claim_free_head", "claim_free");
const RELEASE: &str = script!("release_free");

fn encode(words: &[String]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        let _ = write!(text, "${}\r\n{word}\r\n", word.len());
    }
    text.into_bytes()
}
