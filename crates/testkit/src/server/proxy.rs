//! A proxy that delays and holds bytes, and cuts connections while requests are in flight.

use std::{
    io,
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
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

/// How a connection ends for its client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionEnd {
    Close,
    Reset,
}

/// The address for clients.
enum ListenAddress {
    Port(u16),
    Socket(PathBuf),
}

/// What the proxy shares with its threads.
#[derive(Default)]
struct Shared {
    state: Mutex<ProxyState>,
    request_bytes: AtomicU64,
    answer_bytes: AtomicU64,
}

/// The state of a proxy.
#[derive(Default)]
struct ProxyState {
    /// The port that new connections lead to.
    server: u16,
    connections: Vec<Connection>,
    /// The number of connections so far.
    connections_made: usize,
    /// The delay of the answers of new connections.
    delay: Duration,
    /// Every new connection is cut.
    blocked: bool,
    /// The proxy is being dropped.
    closed: bool,
}

/// The connection of a client through the proxy, with a gate for each direction.
struct Connection {
    client: Socket,
    server: Socket,
    requests: Arc<Gate>,
    answers: Arc<Gate>,
}

impl Proxy {
    /// Starts a proxy in front of port `server` of this machine.
    ///
    /// # Panics
    /// If loopback has no free port.
    #[must_use]
    pub fn start(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        Self::serve(ListenAddress::Port(port), server, move || {
            listener.accept().map(|(client, _)| client.into())
        })
    }

    /// Starts a proxy at a unix socket, in front of port `server` of this machine.
    ///
    /// # Panics
    /// If the socket cannot be created.
    #[must_use]
    pub fn at_socket(socket: &Path, server: u16) -> Self {
        let listener = UnixListener::bind(socket).expect("a private directory takes a socket");
        let address = ListenAddress::Socket(socket.to_owned());
        Self::serve(address, server, move || listener.accept().map(|(client, _)| client.into()))
    }

    /// Starts a proxy whose clients `accept` returns.
    fn serve(
        address: ListenAddress,
        server: u16,
        accept: impl Fn() -> io::Result<Socket> + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        shared.lock().server = server;
        let shared_with_thread = Arc::clone(&shared);
        spawn(move || {
            while let Ok(client) = accept() {
                let ProxyState { closed, server, .. } = *shared_with_thread.lock();
                if closed {
                    return;
                }
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) {
                    shared_with_thread.connect(client, server.into());
                }
            }
        });
        Self { address, shared }
    }

    /// The port on which the proxy listens.
    ///
    /// # Panics
    /// If the proxy listens at a unix socket.
    #[must_use]
    pub const fn port(&self) -> u16 {
        match self.address {
            ListenAddress::Port(port) => port,
            ListenAddress::Socket(_) => panic!("the proxy listens at a unix socket"),
        }
    }

    /// Leads new connections to another server, as after a fail-over. Current connections stay.
    pub fn point_to(&self, server: u16) {
        self.shared.lock().server = server;
    }

    /// Holds the requests of all current connections from now on.
    pub fn hold_requests(&self) {
        self.each(|connection| connection.requests.set(Passage::Held));
    }

    /// Whether a request is held now.
    #[must_use]
    pub fn holds_a_request(&self) -> bool {
        self.shared.lock().connections.iter().any(|connection| connection.requests.is_holding())
    }

    /// Holds the answers of all current connections from now on.
    pub fn hold_answers(&self) {
        self.each(|connection| connection.answers.set(Passage::Held));
    }

    /// Holds the answers of the newest connection from now on.
    pub fn hold_newest_answers(&self) {
        if let Some(connection) = self.shared.lock().connections.last() {
            connection.answers.set(Passage::Held);
        }
    }

    /// Delays the answers of new connections by this time.
    pub fn delay(&self, time: Duration) {
        self.shared.lock().delay = time;
    }

    /// Closes all connections on the client's side only. Held requests still reach the server after `release_held`.
    pub fn cut_clients(&self) {
        self.each(|connection| drop(connection.client.shutdown(Shutdown::Both)));
    }

    /// Passes on the held answers, and holds no answers of the current connections from now on.
    pub fn release_answers(&self) {
        self.each(|connection| connection.answers.set(Passage::Open));
    }

    /// Passes on everything that is held, and holds nothing of the current connections from now on.
    pub fn release_held(&self) {
        self.each(|connection| {
            connection.requests.set(Passage::Open);
            connection.answers.set(Passage::Open);
        });
    }

    /// Cuts all connections on both sides. Everything that is held is lost.
    pub fn drop_connections(&self) {
        self.end_all(ConnectionEnd::Close);
    }

    /// Like [`drop_connections`](Self::drop_connections), but with a reset: clients get an error in place of an end of
    /// the stream.
    pub fn reset(&self) {
        self.end_all(ConnectionEnd::Reset);
    }

    /// Like [`drop_connections`](Self::drop_connections). Also cuts every new connection until
    /// [`unblock`](Self::unblock).
    pub fn block(&self) {
        self.shared.lock().blocked = true;
        self.drop_connections();
    }

    /// Lets new connections reach the server again.
    pub fn unblock(&self) {
        self.shared.lock().blocked = false;
    }

    /// The number of connections so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.lock().connections_made
    }

    /// The bytes that have passed so far: of requests, and of answers.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        let Shared { request_bytes, answer_bytes, .. } = &*self.shared;
        (request_bytes.load(Ordering::SeqCst), answer_bytes.load(Ordering::SeqCst))
    }

    /// Ends all connections on both sides, in the way that `end` says.
    fn end_all(&self, end: ConnectionEnd) {
        for Connection { client, server, requests, answers } in self.shared.lock().connections.drain(..) {
            requests.set(Passage::Lost);
            answers.set(Passage::Lost);
            if end == ConnectionEnd::Reset {
                // With this option the client gets a reset as soon as both pumps have closed the connection.
                let _ = client.set_linger(Some(Duration::ZERO));
            }
            // This wakes the pumps, which then send nothing more.
            let _ = (client.shutdown(Shutdown::Read), server.shutdown(Shutdown::Read));
        }
    }

    /// Calls `act` for each connection.
    fn each(&self, act: impl Fn(&Connection)) {
        self.shared.lock().connections.iter().for_each(act);
    }
}

impl Shared {
    /// Starts to pass bytes between a client and a server.
    fn connect(self: &Arc<Self>, client: Socket, server: Socket) {
        // A unix socket does not have this option.
        let _ = (client.set_tcp_nodelay(true), server.set_tcp_nodelay(true));
        let connection = Connection { client, server, requests: Arc::default(), answers: Arc::default() };
        let copies =
            connection.client.try_clone().and_then(|client| Ok((client, connection.server.try_clone()?)));
        if let Ok((client, server)) = copies {
            let (to_server, to_client) = (client.try_clone(), server.try_clone());
            let (requests, answers) = (Arc::clone(&connection.requests), Arc::clone(&connection.answers));
            let mut state = self.lock();
            // The connection is registered before the first byte passes, so that no connection escapes a cut.
            if state.blocked {
                return;
            }
            state.connections_made += 1;
            state.connections.push(connection);
            let delay = state.delay;
            drop(state);
            let (shared, shared_with_answers) = (Arc::clone(self), Arc::clone(self));
            spawn(move || {
                to_server.map(|from| pump(from, server, &requests, Duration::ZERO, &shared.request_bytes))
            });
            spawn(move || {
                to_client.map(|from| pump(from, client, &answers, delay, &shared_with_answers.answer_bytes))
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.release_held();
        self.shared.lock().closed = true;
        self.each(|connection| {
            let _ = (connection.client.shutdown(Shutdown::Both), connection.server.shutdown(Shutdown::Both));
        });
        // Wakes the accepting thread.
        let _ = match &self.address {
            ListenAddress::Port(port) => TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).map(drop),
            ListenAddress::Socket(path) => UnixStream::connect(path).map(drop),
        };
    }
}
