//! A server that lies: it says what no real server says.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{JoinHandle, spawn},
};

/// So much of an endless lie is sent on one connection: more than any client is to take.
const MOST: usize = 256 << 20;

/// What a liar says on each connection.
#[derive(Clone, Debug, Default)]
pub struct Lie {
    /// Sent one by one, each after something was heard from the client.
    pub answers: Vec<Vec<u8>>,
    /// Sent again and again after the last answer, until the client hangs up.
    pub endless: Vec<u8>,
}

/// A server, on loopback unless another address is named, each of whose connections is a thread.
pub struct Liar {
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

/// One connection of a liar.
pub struct Talk {
    stream: TcpStream,
    inner: Arc<Inner>,
    sent: usize,
}

impl Liar {
    /// Tells this lie to everybody.
    ///
    /// # Panics
    /// When loopback has no port left.
    #[must_use]
    pub fn telling(lie: Lie) -> Self {
        Self::start(move |talk| talk.tell(&lie))
    }

    /// Has this conversation with everybody. An error, or its end, closes the connection.
    ///
    /// # Panics
    /// When loopback has no port left.
    #[must_use]
    pub fn start(converse: impl Fn(&mut Talk) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), converse)
    }

    /// The same, on this address of this machine.
    ///
    /// # Panics
    /// When the address has no port left.
    #[must_use]
    pub fn at(
        address: IpAddr,
        converse: impl Fn(&mut Talk) -> io::Result<()> + Send + Sync + 'static,
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
                let talk_thread = spawn(move || {
                    let mut talk = Talk { stream, inner, sent: 0 };
                    // Whatever broke, the client is to hear that it is over.
                    let _ = converse(&mut talk);
                    let _ = talk.stream.shutdown(Shutdown::Both);
                    talk.inner.ended.fetch_add(1, Ordering::SeqCst);
                });
                lock_of(&own.threads).push(talk_thread);
            }
        });
        Self { address, inner, listener_thread: Some(listener_thread) }
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections were made.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.inner.accepted.load(Ordering::SeqCst)
    }

    /// How many of them have ended.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.inner.ended.load(Ordering::SeqCst)
    }

    /// The most bytes that a client took on one connection, with what the kernel keeps for it.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.inner.taken.load(Ordering::SeqCst)
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.inner.closed.store(true, Ordering::SeqCst);
        // Wakes whoever waits for the next connection.
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

impl Talk {
    /// Tells a lie, and then listens until the client hangs up.
    ///
    /// # Errors
    /// The client hung up.
    pub fn tell(&mut self, lie: &Lie) -> io::Result<()> {
        for answer in &lie.answers {
            self.hear()?;
            self.say(answer)?;
        }
        while !lie.endless.is_empty() && self.sent < MOST {
            self.say(&lie.endless)?;
        }
        while self.hear()? > 0 {}
        Ok(())
    }

    /// Waits for something from the client; says how much came, 0 if it has hung up.
    ///
    /// # Errors
    /// The connection broke.
    pub fn hear(&mut self) -> io::Result<usize> {
        self.stream.read(&mut [0; 16 * 1024])
    }

    /// Waits for so many bytes from the client.
    ///
    /// # Errors
    /// The client hung up before.
    pub fn hear_exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut received = vec![0; length];
        self.stream.read_exact(&mut received)?;
        Ok(received)
    }

    /// Waits until the client hangs up; what it said until then.
    ///
    /// # Errors
    /// The connection broke.
    pub fn hear_out(&mut self) -> io::Result<Vec<u8>> {
        let mut received = Vec::new();
        self.stream.read_to_end(&mut received).map(|_| received)
    }

    /// Says something.
    ///
    /// # Errors
    /// The client hung up.
    pub fn say(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = self.stream.write(bytes)?;
            bytes = &bytes[sent..];
            self.sent += sent;
            self.inner.taken.fetch_max(self.sent, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// An address of this machine that another could use as well.
///
/// # Panics
/// When it has none but loopback.
#[must_use]
pub fn outer_address() -> IpAddr {
    let routes = std::fs::read_to_string("/proc/net/fib_trie").expect("the system tells its addresses");
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
