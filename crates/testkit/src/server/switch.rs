//! A proxy through which a program reaches several servers, each by a way that can be shut.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::spawn,
    time::Duration,
};

use super::gate::{Gate, pump};

/// How long a request may be.
const REQUEST: usize = 8;
/// How one is answered that is granted, and one that is not.
const GRANTED: [u8; 8] = [0, 0x5a, 0, 0, 0, 0, 0, 0];
const REFUSED: [u8; 8] = [0, 0x5b, 0, 0, 0, 0, 0, 0];

/// A proxy that is told by its caller where to (SOCKS, version 4): whatever address a program learns, none leads past it.
pub(super) struct Switch {
    /// Where it listens.
    pub(super) port: u16,
    closed: Arc<AtomicBool>,
}

/// The way to a server, a port of this machine. What comes to a gate that holds it waits, also who wants to connect.
pub(super) type Route = (u16, Arc<Gate>);

impl Switch {
    /// Starts one.
    pub(super) fn start(routes: Vec<Route>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let closed = Arc::new(AtomicBool::new(false));
        let (routes, is_closed) = (Arc::new(routes), Arc::clone(&closed));
        spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if is_closed.load(Ordering::SeqCst) {
                    return;
                }
                let routes = Arc::clone(&routes);
                spawn(move || connect(client, &routes));
            }
        });
        Self { port, closed }
    }
}

fn connect(mut client: TcpStream, routes: &[Route]) -> io::Result<()> {
    let wanted = wanted(&mut client)?;
    let Some((port, gate)) = routes.iter().find(|(port, _)| *port == wanted) else {
        return client.write_all(&REFUSED);
    };
    if !gate.pass() {
        return Ok(());
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, *port)) else {
        return client.write_all(&REFUSED);
    };
    client.write_all(&GRANTED)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from, to, back) = (server.try_clone()?, client.try_clone()?, Arc::clone(gate));
    spawn(move || pump(from.into(), to.into(), &back, Duration::ZERO));
    pump(client.into(), server.into(), gate, Duration::ZERO);
    Ok(())
}

/// The port that the client asks for. The address is this machine's.
fn wanted(client: &mut TcpStream) -> io::Result<u16> {
    let mut request = [0; REQUEST];
    client.read_exact(&mut request)?;
    // Its user's name, up to a zero.
    let mut byte = [1];
    while byte != [0] {
        client.read_exact(&mut byte)?;
    }
    let [_, _, high, low, ..] = request;
    Ok(u16::from_be_bytes([high, low]))
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
    }
}
