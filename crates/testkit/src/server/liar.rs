//! A server that lies: it says what no real server says.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
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

/// A server on loopback, each of whose connections is a thread.
pub struct Liar {
    port: u16,
    inside: Arc<Inside>,
    listens: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Inside {
    closed: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    met: AtomicUsize,
    ended: AtomicUsize,
    taken: AtomicUsize,
}

/// One connection of a liar.
pub struct Talk {
    stream: TcpStream,
    inside: Arc<Inside>,
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
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let (inside, converse) = (Arc::new(Inside::default()), Arc::new(converse));
        let own = Arc::clone(&inside);
        let listens = spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if own.closed.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(copy) = stream.try_clone() else { continue };
                lock_of(&own.connections).push(copy);
                own.met.fetch_add(1, Ordering::SeqCst);
                let (converse, inside) = (Arc::clone(&converse), Arc::clone(&own));
                let talks = spawn(move || {
                    let mut talk = Talk { stream, inside, sent: 0 };
                    // Whatever broke, the client is to hear that it is over.
                    let _ = converse(&mut talk);
                    let _ = talk.stream.shutdown(Shutdown::Both);
                    talk.inside.ended.fetch_add(1, Ordering::SeqCst);
                });
                lock_of(&own.threads).push(talks);
            }
        });
        Self { port, inside, listens: Some(listens) }
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// How many connections were made.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.inside.met.load(Ordering::SeqCst)
    }

    /// How many of them have ended.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.inside.ended.load(Ordering::SeqCst)
    }

    /// The most bytes that a client took on one connection, with what the kernel keeps for it.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.inside.taken.load(Ordering::SeqCst)
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.inside.closed.store(true, Ordering::SeqCst);
        // Wakes whoever waits for the next connection.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        let listens = self.listens.take().into_iter();
        listens.for_each(|thread| drop(thread.join()));
        for connection in lock_of(&self.inside.connections).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        let threads = std::mem::take(&mut *lock_of(&self.inside.threads));
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
        let mut heard = vec![0; length];
        self.stream.read_exact(&mut heard)?;
        Ok(heard)
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
            self.inside.taken.fetch_max(self.sent, Ordering::SeqCst);
        }
        Ok(())
    }
}

fn lock_of<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
