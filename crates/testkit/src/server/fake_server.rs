//! A fake server that sends arbitrary answers, also such as no real server sends.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{JoinHandle, spawn},
};

/// The limit of endless answers on one connection: more than any client accepts.
const MOST: usize = 256 << 20;

/// The answers of a fake server, the same on each connection.
#[derive(Clone, Debug, Default)]
pub struct FakeAnswers {
    /// Sent one by one, each after something was received from the client.
    pub answers: Vec<Vec<u8>>,
    /// Sent repeatedly after the last answer, until the client closes the connection.
    pub endless: Vec<u8>,
}

/// A fake server with one thread for each connection. It listens on loopback unless an address is given.
pub struct FakeServer {
    address: SocketAddr,
    inner: Arc<Inner>,
    listener_thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Inner {
    closed: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    accepted: AtomicUsize,
    ended: AtomicUsize,
    taken: AtomicUsize,
}

/// One connection of a fake server.
pub struct FakeConnection {
    stream: TcpStream,
    inner: Arc<Inner>,
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

    /// Starts a server that calls `converse` for each connection. When it returns, also with an error, the connection
    /// is closed.
    ///
    /// # Panics
    /// If loopback has no free port.
    #[must_use]
    pub fn start(converse: impl Fn(&mut FakeConnection) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), converse)
    }

    /// The same, on this address of this machine.
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
        let (inner, converse) = (Arc::new(Inner::default()), Arc::new(converse));
        let own = Arc::clone(&inner);
        let listener_thread = spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if own.closed.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(copy) = stream.try_clone() else { continue };
                lock_of(&own.connections).push(copy);
                own.accepted.fetch_add(1, Ordering::SeqCst);
                let (converse, inner) = (Arc::clone(&converse), Arc::clone(&own));
                let connection_thread = spawn(move || {
                    let mut connection = FakeConnection { stream, inner, sent: 0 };
                    // After any error, the client must see the end of the connection.
                    let _ = converse(&mut connection);
                    let _ = connection.stream.shutdown(Shutdown::Both);
                    connection.inner.ended.fetch_add(1, Ordering::SeqCst);
                });
                lock_of(&own.threads).push(connection_thread);
            }
        });
        Self { address, inner, listener_thread: Some(listener_thread) }
    }

    /// The port that it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// The number of accepted connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.inner.accepted.load(Ordering::SeqCst)
    }

    /// The number of connections that have ended.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.inner.ended.load(Ordering::SeqCst)
    }

    /// The largest number of bytes that a client took on one connection, including the kernel's buffers.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.inner.taken.load(Ordering::SeqCst)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.inner.closed.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for the next connection.
        let _ = TcpStream::connect(self.address);
        let listener_thread = self.listener_thread.take().into_iter();
        listener_thread.for_each(|thread| drop(thread.join()));
        for connection in lock_of(&self.inner.connections).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        let threads = std::mem::take(&mut *lock_of(&self.inner.threads));
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
        while !answers.endless.is_empty() && self.sent < MOST {
            self.send(&answers.endless)?;
        }
        while self.receive()? > 0 {}
        Ok(())
    }

    /// Waits for bytes from the client. Returns how many came; 0: the client closed the connection.
    ///
    /// # Errors
    /// If the connection broke.
    pub fn receive(&mut self) -> io::Result<usize> {
        self.stream.read(&mut [0; 16 * 1024])
    }

    /// Waits for this many bytes from the client.
    ///
    /// # Errors
    /// If the client closed the connection before.
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
            self.inner.taken.fetch_max(self.sent, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// An address of this machine that is not loopback, so that another machine could use it.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn non_loopback_address() -> IpAddr {
    let routes =
        std::fs::read_to_string("/proc/net/fib_trie").expect("Linux lists the addresses of the machine");
    let lines: Vec<_> = routes.lines().map(str::trim).collect();
    let of = |pair: &[&str]| match pair {
        [address, kind] if kind.ends_with("host LOCAL") => address.strip_prefix("|-- ")?.parse().ok(),
        _ => None,
    };
    let outer = |ip: &Ipv4Addr| !ip.is_loopback() && !ip.is_link_local();
    let found = lines.windows(2).filter_map(of).find(outer);
    found.expect("this machine has no address but loopback: give it one, on an interface of any kind").into()
}

fn lock_of<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
