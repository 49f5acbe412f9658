//! The process of a server.

use std::{
    fs::{self, File},
    io,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use crate::limits::raise_open_files;

/// How long a server may take to become ready: far longer than the slowest server needs on a busy machine.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// The interval between two checks whether a server is ready.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// The ports of servers. Linux uses the ports from 32768 on for outgoing connections.
const PORTS: Range<u16> = 12_000..32_000;
/// The environment variable with the number of this test program, from 0 to 7, if several test programs run in
/// parallel. Each number has its own range of ports.
const PORT_RANGE_VARIABLE: &str = "LEASEHOLD_TEST_SLOT";
/// The number of ranges of ports for test programs that run in parallel.
const PORT_RANGES: u16 = 8;
/// The counter from which the next port is computed. It begins with a random number in each process.
static NEXT_PORT: OnceLock<AtomicU32> = OnceLock::new();

/// The process of a server. Dropping this value kills the process. The kernel also kills the process when the thread
/// that started it ends, so a killed test leaves no server running.
pub(super) struct Server {
    child: Child,
    program: String,
    /// The file of its standard error.
    stderr: PathBuf,
}

impl Server {
    /// Starts `program` in `directory`.
    ///
    /// # Panics
    /// If the program cannot be started. So a missing server fails the test.
    pub(super) fn start(
        program: &str,
        directory: &Path,
        arguments: &[String],
        environment: &[(&str, String)],
    ) -> Self {
        raise_open_files();
        let stderr = directory.join("stderr");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", program])
            .args(arguments)
            .current_dir(directory)
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&stderr).expect("a private directory takes a file"))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {program}: {error}: run setup/debian"));
        Self { child, program: program.to_owned(), stderr }
    }

    /// Waits until `ready` returns true.
    ///
    /// # Panics
    /// If the server is not ready in time, or the process ends.
    pub(super) fn wait_until(&mut self, ready: impl Fn() -> bool) {
        let deadline = Instant::now() + READY_LIMIT;
        while !ready() {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                panic!("{} ended at once ({status}): {}", self.program, self.stderr());
            }
            let timed_out = Instant::now() > deadline;
            assert!(!timed_out, "{} is not ready after {READY_LIMIT:?}: {}", self.program, self.stderr());
            sleep(CHECK_INTERVAL);
        }
    }

    /// What the process wrote to standard error, or why the file with it cannot be read.
    fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_else(|error| error.to_string())
    }

    /// Sends a signal to the process. If the signal is SIGSTOP, returns only when the process is paused.
    pub(super) fn signal(&self, signal: Signal) {
        crate::signal(self.child.id(), signal);
    }

    /// Sends this signal and waits until the process has ended.
    pub(super) fn end(&mut self, signal: Signal) -> io::Result<()> {
        self.signal(signal);
        self.child.wait().map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that is free now and stays free until its server starts or restarts: the port is outside the system's range
/// for outgoing connections, and this function does not return it again soon.
pub(super) fn free_port() -> u16 {
    let next =
        NEXT_PORT.get_or_init(|| AtomicU32::new(getrandom::u32().expect("the system gives randomness")));
    let ports = port_range(std::env::var(PORT_RANGE_VARIABLE).ok().as_deref());
    let width = u32::from(ports.end - ports.start);
    let next_port = |_| {
        let offset = next.fetch_add(1, Ordering::Relaxed) % width;
        ports.start + u16::try_from(offset).expect("the width of ports is one")
    };
    let is_free = |&port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    (0..width).map(next_port).find(is_free).expect("loopback has free ports")
}

/// The ports for the test program with this number. `None`: no other test program runs in parallel, so these are all
/// ports.
fn port_range(range_number: Option<&str>) -> Range<u16> {
    let Some(range_number) = range_number.and_then(|number| number.parse::<u16>().ok()) else { return PORTS };
    let width = (PORTS.end - PORTS.start) / PORT_RANGES;
    let start = PORTS.start + range_number % PORT_RANGES * width;
    start..start + width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_programs_use_different_ports() {
        assert_eq!(port_range(None), PORTS);
        assert_eq!(port_range(Some("nonsense")), PORTS);
        let ranges: Vec<_> = (0..PORT_RANGES).map(|number| port_range(Some(&number.to_string()))).collect();
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start && pair[0].len() > 2_000));
        assert!(ranges[0].start >= PORTS.start && ranges.last().unwrap().end <= PORTS.end);
    }
}
