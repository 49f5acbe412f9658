//! A fake server that sends arbitrary answers, including answers that no real server sends.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{JoinHandle, spawn},
};

/// The limit of the bytes of endless answers on one connection: more than any client accepts.
const MAX_ENDLESS_BYTES: usize = 256 << 20;

/// The answers of a fake server. They are the same on each connection.
#[derive(Clone, Debug, Default)]
pub struct FakeAnswers {
    /// Sent one by one. The server sends each of them after it has received something from the client.
    pub answers: Vec<Vec<u8>>,
    /// Sent repeatedly after the last answer, until the client closes the connection.
    pub endless: Vec<u8>,
}

/// A fake server with one thread for each connection. It listens on loopback unless an address is given.
pub struct FakeServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener_thread: Option<JoinHandle<()>>,
}

/// What the server shares with its threads.
#[derive(Default)]
struct Shared {
    /// The server is being dropped.
    closed: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The number of accepted connections, and of those that have ended.
    accepted: AtomicUsize,
    ended: AtomicUsize,
    /// The largest number of bytes that were sent on one connection.
    sent_most: AtomicUsize,
}

/// One connection of a fake server.
pub struct FakeConnection {
    stream: TcpStream,
    shared: Arc<Shared>,
    /// The number of bytes sent.
    sent: usize,
}

impl FakeServer {
    /// Starts a server that sends these answers on each connection.
    ///
    /// # Panics
    /// If loopback has no free port.
    #[must_use]
    pub fn answering(answers: FakeAnswers) -> Self {
        Self::start(move |connection| connection.send_answers(&answers))
    }

    /// Starts a server that calls `converse` for each connection. When `converse` returns, with or without an error,
    /// the connection is closed.
    ///
    /// # Panics
    /// If loopback has no free port.
    #[must_use]
    pub fn start(converse: impl Fn(&mut FakeConnection) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), converse)
    }

    /// Starts a server like [`start`](Self::start), on this address of this machine.
    ///
    /// # Panics
    /// If the address has no free port.
    #[must_use]
    pub fn at(
        address: IpAddr,
        converse: impl Fn(&mut FakeConnection) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((address, 0)).expect("an address has free ports");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (shared, converse) = (Arc::new(Shared::default()), Arc::new(converse));
        let shared_with_listener = Arc::clone(&shared);
        let listener_thread = spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if shared_with_listener.closed.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(copy) = stream.try_clone() else { continue };
                lock_mutex(&shared_with_listener.connections).push(copy);
                shared_with_listener.accepted.fetch_add(1, Ordering::SeqCst);
                let (converse, shared) = (Arc::clone(&converse), Arc::clone(&shared_with_listener));
                let connection_thread = spawn(move || {
                    let mut connection = FakeConnection { stream, shared, sent: 0 };
                    // After any error, the client must see the end of the connection.
                    let _ = converse(&mut connection);
                    let _ = connection.stream.shutdown(Shutdown::Both);
                    connection.shared.ended.fetch_add(1, Ordering::SeqCst);
                });
                lock_mutex(&shared_with_listener.threads).push(connection_thread);
            }
        });
        Self { address, shared, listener_thread: Some(listener_thread) }
    }

    /// The port on which the fake server listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// The number of accepted connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// The number of connections that have ended.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.shared.ended.load(Ordering::SeqCst)
    }

    /// The largest number of bytes that a client accepted on one connection, including the kernel's buffers.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.shared.sent_most.load(Ordering::SeqCst)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for the next connection.
        let _ = TcpStream::connect(self.address);
        let listener_thread = self.listener_thread.take().into_iter();
        listener_thread.for_each(|thread| drop(thread.join()));
        for connection in lock_mutex(&self.shared.connections).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        let threads = std::mem::take(&mut *lock_mutex(&self.shared.threads));
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl FakeConnection {
    /// Sends the answers, and then reads until the client closes the connection.
    ///
    /// # Errors
    /// If the client closed the connection.
    pub fn send_answers(&mut self, answers: &FakeAnswers) -> io::Result<()> {
        for answer in &answers.answers {
            self.receive()?;
            self.send(answer)?;
        }
        while !answers.endless.is_empty() && self.sent < MAX_ENDLESS_BYTES {
            self.send(&answers.endless)?;
        }
        while self.receive()? > 0 {}
        Ok(())
    }

    /// Waits for bytes from the client. Returns the number of bytes that came; 0: the client closed the connection.
    ///
    /// # Errors
    /// If the connection broke.
    pub fn receive(&mut self) -> io::Result<usize> {
        self.stream.read(&mut [0; 16 * 1024])
    }

    /// Waits for this many bytes from the client.
    ///
    /// # Errors
    /// If the client closes the connection before it has sent this many bytes.
    pub fn receive_exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut received = vec![0; length];
        self.stream.read_exact(&mut received)?;
        Ok(received)
    }

    /// Reads until the client closes the connection, and returns all bytes.
    ///
    /// # Errors
    /// If the connection broke.
    pub fn receive_all(&mut self) -> io::Result<Vec<u8>> {
        let mut received = Vec::new();
        self.stream.read_to_end(&mut received).map(|_| received)
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// If the client closed the connection.
    pub fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = self.stream.write(bytes)?;
            bytes = &bytes[sent..];
            self.sent += sent;
            self.shared.sent_most.fetch_max(self.sent, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// An address of this machine that is not loopback, so that another machine could use it.
///
/// # Panics
/// If there is no such address.
#[must_use]
pub fn non_loopback_address() -> IpAddr {
    let routes =
        std::fs::read_to_string("/proc/net/fib_trie").expect("Linux lists the addresses of the machine");
    let lines: Vec<_> = routes.lines().map(str::trim).collect();
    let local_address = |pair: &[&str]| match pair {
        [address, kind] if kind.ends_with("host LOCAL") => address.strip_prefix("|-- ")?.parse().ok(),
        _ => None,
    };
    let is_usable = |ip: &Ipv4Addr| !ip.is_loopback() && !ip.is_link_local();
    let found = lines.windows(2).filter_map(local_address).find(is_usable);
    found.expect("this machine has no address but loopback: give it one, on an interface of any kind").into()
}

/// Locks a mutex, even if another thread panicked while it held the lock.
fn lock_mutex<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
