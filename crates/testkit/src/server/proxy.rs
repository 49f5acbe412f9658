//! A proxy that delays what passes through it, and cuts connections while something is under way.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{sleep, spawn},
    time::Duration,
};

/// A TCP proxy on loopback in front of a server on loopback.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Where connections to come go.
    server: u16,
    connections: Vec<Connection>,
    made: usize,
    delay: Duration,
    closed: bool,
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
    requests: Arc<Gate>,
    answers: Arc<Gate>,
}

/// Lets bytes pass, or not.
#[derive(Default)]
struct Gate {
    passage: Mutex<Passage>,
    changed: Condvar,
}

/// What happens to bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Passage {
    #[default]
    Open,
    /// They wait.
    Held,
    /// They vanish, and the connection with them.
    Lost,
}

impl Proxy {
    /// Starts one in front of `server`, a port of this machine.
    ///
    /// # Panics
    /// When loopback has no port left.
    #[must_use]
    pub fn start(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let shared = Arc::new(Shared { inner: Mutex::new(Inner { server, ..Inner::default() }) });
        let accepting = Arc::clone(&shared);
        spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Inner { closed, server, .. } = *accepting.lock();
                if closed {
                    return;
                }
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) {
                    accepting.connect(client, server);
                }
            }
        });
        Self { port, shared }
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Connections to come go to another server, as after a fail-over.
    pub fn point_to(&self, server: u16) {
        self.shared.lock().server = server;
    }

    /// From now on, what clients of the connections that there are now send is held.
    pub fn hold_requests(&self) {
        self.each(|connection| connection.requests.set(Passage::Held));
    }

    /// From now on, what the server says on the connections that there are now is held.
    pub fn hold_answers(&self) {
        self.each(|connection| connection.answers.set(Passage::Held));
    }

    /// From now on, what the server says on the newest connection is held.
    pub fn hold_newest_answers(&self) {
        if let Some(connection) = self.shared.lock().connections.last() {
            connection.answers.set(Passage::Held);
        }
    }

    /// Answers of connections to come are late by this time.
    pub fn delay(&self, time: Duration) {
        self.shared.lock().delay = time;
    }

    /// Cuts all connections to clients. What is held on its way to the server still goes there, once let go.
    pub fn cut_clients(&self) {
        self.each(|connection| drop(connection.client.shutdown(Shutdown::Both)));
    }

    /// Lets go what is held.
    pub fn let_go(&self) {
        self.each(|connection| {
            connection.requests.set(Passage::Open);
            connection.answers.set(Passage::Open);
        });
    }

    /// Cuts all connections on both sides. What is held on its way is lost.
    pub fn lose(&self) {
        self.end_all(false);
    }

    /// As [`lose`](Self::lose), by a reset: clients are told of an error, not of an end.
    pub fn reset(&self) {
        self.end_all(true);
    }

    /// How many connections were made through it so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.lock().made
    }

    fn end_all(&self, reset: bool) {
        for Connection { client, server, requests, answers } in self.shared.lock().connections.drain(..) {
            requests.set(Passage::Lost);
            answers.set(Passage::Lost);
            if reset {
                // Closed with this, a connection ends by a reset, once its pumps have let go of it.
                let _ = socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO));
            }
            // Wakes the pumps, which say nothing more to either side.
            let _ = (client.shutdown(Shutdown::Read), server.shutdown(Shutdown::Read));
        }
    }

    fn each(&self, act: impl Fn(&Connection)) {
        self.shared.lock().connections.iter().for_each(act);
    }
}

impl Shared {
    fn connect(&self, client: TcpStream, server: TcpStream) {
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let connection = Connection { client, server, requests: Arc::default(), answers: Arc::default() };
        let copies =
            connection.client.try_clone().and_then(|client| Ok((client, connection.server.try_clone()?)));
        if let Ok((client, server)) = copies {
            let (to_server, to_client) = (client.try_clone(), server.try_clone());
            let (requests, answers) = (Arc::clone(&connection.requests), Arc::clone(&connection.answers));
            let delay = self.lock().delay;
            spawn(move || to_server.map(|from| pump(from, server, &requests, Duration::ZERO)));
            spawn(move || to_client.map(|from| pump(from, client, &answers, delay)));
            let mut inner = self.lock();
            inner.made += 1;
            inner.connections.push(connection);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies until the end of `from`, then ends `to`.
fn pump(mut from: TcpStream, mut to: TcpStream, gate: &Gate, delay: Duration) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if !gate.pass() {
            return;
        }
        sleep(delay);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    if gate.pass() {
        let _ = to.shutdown(Shutdown::Write);
    }
}

impl Gate {
    fn set(&self, passage: Passage) {
        *self.lock() = passage;
        self.changed.notify_all();
    }

    /// Waits while bytes are held; whether they pass then.
    fn pass(&self) -> bool {
        let mut passage = self.lock();
        while *passage == Passage::Held {
            passage = self.changed.wait(passage).unwrap_or_else(PoisonError::into_inner);
        }
        *passage == Passage::Open
    }

    fn lock(&self) -> MutexGuard<'_, Passage> {
        self.passage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.let_go();
        self.shared.lock().closed = true;
        self.each(|connection| {
            let _ = (connection.client.shutdown(Shutdown::Both), connection.server.shutdown(Shutdown::Both));
        });
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}
