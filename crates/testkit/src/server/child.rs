//! A server's process.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// How long a server may take to become ready: far longer than the slowest needs on a busy machine.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How often it is asked.
const LOOK: Duration = Duration::from_millis(5);

/// A server's process. It is killed when this is dropped, and by the kernel when the thread that started it is gone, so
/// that a killed test leaves none behind.
pub(super) struct Server(Child);

impl Server {
    /// Starts `program` and waits until `ready`.
    ///
    /// # Panics
    /// When it cannot be started or does not become ready: a missing server fails the test.
    pub(super) fn start(
        program: &str,
        arguments: &[String],
        environment: &[(&str, String)],
        ready: impl Fn() -> bool,
    ) -> Self {
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", program])
            .args(arguments)
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {program}: {error}: run setup/debian"));
        let mut server = Self(child);
        let limit = Instant::now() + READY_LIMIT;
        while !ready() {
            if let Some(status) = server.0.try_wait().expect("a child can be waited for") {
                panic!("{program} ended at once ({status}): run setup/debian if it is missing");
            }
            assert!(Instant::now() < limit, "{program} is not ready after {READY_LIMIT:?}");
            sleep(LOOK);
        }
        server
    }

    /// Sends a signal to it.
    pub(super) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("our own child can be signalled");
    }

    /// Ends it by this signal and waits until it is gone.
    pub(super) fn end(&mut self, signal: Signal) -> io::Result<()> {
        self.signal(signal);
        self.0.wait().map(drop)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().try_into().expect("process ids are small"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that nobody listens on now.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    listener.local_addr().expect("a bound socket has an address").port()
}
