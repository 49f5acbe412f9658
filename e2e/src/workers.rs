//! The client processes of a round, and the faults of processes.

use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::sleep,
    time::Duration,
};

use leasehold_testkit::{
    history::{Event, History, Recorder, What},
    stopwatch::Stopwatch,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{Failure, client::ClientArguments, world::Setting};

/// How long a client may take to end after the time of the round is up, by the stopwatch. It is enough for the longest
/// section and `Locks::close`.
const END_LIMIT: Duration = Duration::from_secs(60);

/// The client processes of a round. Dropping this value kills the processes that are still alive.
pub struct Workers {
    program: PathBuf,
    recorder: Arc<Recorder>,
    members: Vec<Member>,
    /// The history files of all clients so far, including killed clients.
    histories: Vec<PathBuf>,
}

/// A running client.
struct Member {
    arguments: ClientArguments,
    process: Child,
}

impl Workers {
    /// Starts a client of this role for each URL.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn start(setting: &Setting, role: &str, urls: Vec<String>) -> Result<Self, Failure> {
        let mut workers = Self {
            program: setting.program.clone(),
            recorder: Arc::clone(&setting.recorder),
            members: Vec::new(),
            histories: Vec::new(),
        };
        for (url, client) in urls.into_iter().zip(0..) {
            let arguments = ClientArguments {
                role: role.to_owned(),
                url,
                run: setting.seed,
                seed: setting.seed.wrapping_mul(1_000_003).wrapping_add(client),
                until: setting.until(),
                history: setting.dir.join(format!("client-{client}")),
                results: setting.dir.clone(),
            };
            let process = workers.launch(&arguments)?;
            workers.members.push(Member { arguments, process });
        }
        Ok(workers)
    }

    /// Starts a client process, with a new history file.
    fn launch(&mut self, arguments: &ClientArguments) -> std::io::Result<Child> {
        let history = arguments.history.with_extension(format!("{}.jsonl", self.histories.len()));
        let arguments = ClientArguments { history: history.clone(), ..arguments.clone() };
        // The file is created here, because the client may be killed before it creates the file.
        File::create(&history)?;
        self.histories.push(history);
        // The kernel kills the client when the thread that started it ends, so that a killed round leaves no process.
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.program)
            .args(arguments.args())
            .stdin(Stdio::null())
            .spawn()
    }

    /// Stops a process (SIGSTOP).
    pub fn stop(&mut self, client: usize) {
        let victim = self.members[client].process.id();
        self.recorder.note(What::Stop { victim });
        signal(victim, Signal::SIGSTOP);
    }

    /// Lets a stopped process continue.
    pub fn resume(&mut self, client: usize) {
        let victim = self.members[client].process.id();
        signal(victim, Signal::SIGCONT);
        self.recorder.note(What::Cont { victim });
    }

    /// Kills a process.
    pub fn kill(&mut self, client: usize) {
        let process = &mut self.members[client].process;
        self.recorder.note(What::Crash { victim: process.id() });
        let _ = process.kill();
        let _ = process.wait();
    }

    /// Starts a new process in the place of one that was killed.
    ///
    /// # Panics
    /// When the system cannot start a process.
    pub fn replace(&mut self, client: usize) {
        let mut arguments = self.members[client].arguments.clone();
        arguments.seed = arguments.seed.wrapping_add(self.histories.len() as u64 * 1000);
        self.members[client].process =
            self.launch(&arguments).expect("the system has room for one more process");
        self.members[client].arguments = arguments;
    }

    /// Waits until all clients have ended, and returns the events that they recorded.
    ///
    /// # Errors
    /// When a client hangs or fails.
    pub fn join(&mut self) -> Result<Vec<Event>, Failure> {
        let watch = Stopwatch::start();
        for Member { process, .. } in &mut self.members {
            loop {
                match process.try_wait()? {
                    Some(status) if status.success() => break,
                    Some(status) => return Err(format!("client {} ended with {status}", process.id()).into()),
                    None if watch.given() > END_LIMIT => {
                        return Err(format!("client {} hangs", process.id()).into());
                    }
                    None => sleep(Duration::from_millis(10)),
                }
            }
        }
        Ok(History::merge(&self.histories)?.events().to_vec())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for Member { process, .. } in &mut self.members {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Sends a signal to a process.
fn signal(process: u32, signal: Signal) {
    // The process may have ended. Then the signal has no effect: the process was not reaped yet, so its id belongs to
    // no other process.
    let _ = kill(Pid::from_raw(process as i32), signal);
}
