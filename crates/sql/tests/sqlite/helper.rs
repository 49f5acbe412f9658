//! Other processes: this test binary, run again, which executes requests from its standard input.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use leasehold_core::{Answer, Claim, EngineError, Grant, Keeper, Locks};

use crate::client::{Client, claim};

const PATH: &str = "LEASEHOLD_TEST_HELPER_PATH";
const REPLY_MARK: &str = "helper says ";
pub(crate) const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// A process with an engine of its own; killed when dropped.
pub(crate) struct Helper {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Helper {
    pub(crate) fn start(path: &Path) -> Self {
        Self::start_as(&[], path)
    }

    /// The same, started by `prefix`: a command that runs the command given after it.
    pub(crate) fn start_as(prefix: &[&str], path: &Path) -> Self {
        let exe = std::env::current_exe().unwrap();
        let own =
            [exe.to_str().unwrap(), "--exact", "helper::serve_requests", "--nocapture", "--test-threads=1"];
        let words = [prefix, &own].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env(PATH, path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// Sends a request and returns the reply.
    pub(crate) fn ask(&mut self, request: &str) -> String {
        self.send(request);
        self.receive()
    }

    pub(crate) fn send(&mut self, request: &str) {
        writeln!(self.input, "{request}").unwrap();
    }

    pub(crate) fn receive(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the helper ended");
            if let Some((_, reply)) = line.split_once(REPLY_MARK) {
                return reply.trim_end().to_owned();
            }
        }
    }

    /// SIGKILL; returns when the process is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn am_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn reply_with(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{REPLY_MARK}{text}").unwrap();
    out.flush().unwrap();
}

fn describe(answer: Result<Answer, EngineError>) -> String {
    match answer {
        Ok(Answer::Held(_)) => "held".into(),
        Ok(Answer::Waiting(_)) => "waiting".into(),
        Ok(Answer::Taken(_)) => "taken".into(),
        Ok(Answer::Gone) => "gone".into(),
        Err(error) => format!("{error:?}"),
    }
}

/// Runs in the other process. In a normal test run it does nothing.
#[test]
fn serve_requests() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let client = Client::new(Path::new(&path));
    let mut held: HashMap<String, (Claim, Grant)> = HashMap::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        reply_with(&match words[..] {
            ["claim", name] => claim_and_remember(&client, claim(name), &mut held),
            ["brief", name] => {
                let ttl = Duration::from_secs(1);
                claim_and_remember(&client, Claim { ttl, claim_time: ttl, ..claim(name) }, &mut held)
            }
            ["release", name] => {
                let (claim, grant) = held.remove(name).unwrap();
                format!("{:?}", client.release(&claim, &grant))
            }
            ["show", name] => match client.show(name) {
                Ok(view) => format!("{} of {}", view.holders.len(), client.list().len()),
                Err(error) => format!("{error:?}"),
            },
            ["many", prefix] => (0..)
                .map(|number| claim_and_remember(&client, claim(&format!("{prefix}{number}")), &mut held))
                .find(|reply| reply != "held")
                .unwrap(),
            ["remove", path] => format!("{:?}", std::fs::remove_file(path)),
            ["churn", tasks, round] => churn(&client, tasks.parse().unwrap(), round),
            _ => format!("unknown request: {line:?}"),
        });
    }
}

fn claim_and_remember(client: &Client, claim: Claim, held: &mut HashMap<String, (Claim, Grant)>) -> String {
    let answer = client.create(&claim);
    if let Ok(Answer::Held(grant)) = &answer {
        held.insert(claim.name.as_str().to_owned(), (claim, grant.clone()));
    }
    describe(answer)
}

/// Acquires and releases in this many tasks, without end; replies once there were ten cycles per task.
fn churn(client: &Client, tasks: usize, round: &str) -> String {
    let engine = Arc::clone(&client.engine);
    let locks = Locks::builder(engine).keeper(Keeper::on(client.runtime.handle().clone())).build();
    let (tx, rx) = std::sync::mpsc::channel();
    for task in 0..tasks {
        let (locks, tx, round) = (locks.clone(), tx.clone(), round.to_owned());
        client.runtime.spawn(async move {
            let request = locks.mutex(format!("churn-{round}-{}", task % 3));
            loop {
                request.acquire().await.unwrap().release().await.unwrap();
                let _ = tx.send(task);
            }
        });
    }
    assert_eq!(rx.iter().take(10 * tasks).count(), 10 * tasks);
    "churning".into()
}
