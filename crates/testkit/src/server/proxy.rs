//! A proxy that delays what passes through it, and cuts connections while something is under way.

use std::{
    io,
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::spawn,
    time::Duration,
};

use socket2::Socket;

use super::gate::{Gate, Passage, pump};

/// A proxy on this machine in front of a server on loopback.
pub struct Proxy {
    address: ListenAddress,
    shared: Arc<Shared>,
}

/// Where clients come in.
enum ListenAddress {
    Port(u16),
    Socket(PathBuf),
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
    severed: bool,
    closed: bool,
}

struct Connection {
    client: Socket,
    server: Socket,
    requests: Arc<Gate>,
    answers: Arc<Gate>,
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
        Self::serve(ListenAddress::Port(port), server, move || {
            listener.accept().map(|(client, _)| client.into())
        })
    }

    /// Starts one at a unix socket, in front of `server`, a port of this machine.
    ///
    /// # Panics
    /// When the socket cannot be made.
    #[must_use]
    pub fn at_socket(socket: &Path, server: u16) -> Self {
        let listener = UnixListener::bind(socket).expect("a private directory takes a socket");
        let address = ListenAddress::Socket(socket.to_owned());
        Self::serve(address, server, move || listener.accept().map(|(client, _)| client.into()))
    }

    fn serve(
        address: ListenAddress,
        server: u16,
        accept: impl Fn() -> io::Result<Socket> + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared { inner: Mutex::new(Inner { server, ..Inner::default() }) });
        let accepting = Arc::clone(&shared);
        spawn(move || {
            while let Ok(client) = accept() {
                let Inner { closed, server, .. } = *accepting.lock();
                if closed {
                    return;
                }
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) {
                    accepting.connect(client, server.into());
                }
            }
        });
        Self { address, shared }
    }

    /// Where it listens.
    ///
    /// # Panics
    /// When that is a unix socket.
    #[must_use]
    pub const fn port(&self) -> u16 {
        match self.address {
            ListenAddress::Port(port) => port,
            ListenAddress::Socket(_) => panic!("the proxy listens at a unix socket"),
        }
    }

    /// Connections to come go to another server, as after a fail-over.
    pub fn point_to(&self, server: u16) {
        self.shared.lock().server = server;
    }

    /// From now on, what clients of the connections that there are now send is held.
    pub fn hold_requests(&self) {
        self.each(|connection| connection.requests.set(Passage::Held));
    }

    /// Whether something that a client sent is held.
    #[must_use]
    pub fn holds_a_request(&self) -> bool {
        self.shared.lock().connections.iter().any(|connection| connection.requests.holds())
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

    /// As [`lose`](Self::lose), also every connection to come, until [`mend`](Self::mend).
    pub fn sever(&self) {
        self.shared.lock().severed = true;
        self.lose();
    }

    /// Connections to come reach the server again.
    pub fn mend(&self) {
        self.shared.lock().severed = false;
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
                let _ = client.set_linger(Some(Duration::ZERO));
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
    fn connect(&self, client: Socket, server: Socket) {
        // A unix socket has no such thing.
        let _ = (client.set_tcp_nodelay(true), server.set_tcp_nodelay(true));
        let connection = Connection { client, server, requests: Arc::default(), answers: Arc::default() };
        let copies =
            connection.client.try_clone().and_then(|client| Ok((client, connection.server.try_clone()?)));
        if let Ok((client, server)) = copies {
            let (to_server, to_client) = (client.try_clone(), server.try_clone());
            let (requests, answers) = (Arc::clone(&connection.requests), Arc::clone(&connection.answers));
            let mut inner = self.lock();
            // Known before the first byte passes, so that none slips by a cut.
            if inner.severed {
                return;
            }
            inner.made += 1;
            inner.connections.push(connection);
            let delay = inner.delay;
            drop(inner);
            spawn(move || to_server.map(|from| pump(from, server, &requests, Duration::ZERO)));
            spawn(move || to_client.map(|from| pump(from, client, &answers, delay)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
        let _ = match &self.address {
            ListenAddress::Port(port) => TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).map(drop),
            ListenAddress::Socket(path) => UnixStream::connect(path).map(drop),
        };
    }
}
