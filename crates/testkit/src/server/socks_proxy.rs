//! A proxy by which a program reaches several servers, each over a route that can be blocked.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::spawn,
    time::Duration,
};

use super::gate::{Gate, pump};

/// The length of the fixed part of a request. The name of the user follows it.
const REQUEST_BYTES: usize = 8;
/// The answers to a granted and to a refused request.
const GRANTED: [u8; 8] = [0, 0x5a, 0, 0, 0, 0, 0, 0];
const REFUSED: [u8; 8] = [0, 0x5b, 0, 0, 0, 0, 0, 0];

/// A SOCKS proxy (version 4). In each request the caller names the port to connect to. So the proxy also carries
/// connections to addresses that a program learns while it runs.
pub(super) struct SocksProxy {
    /// The port that it listens on.
    pub(super) port: u16,
    closed: Arc<AtomicBool>,
}

/// The route to a server: the server's port on this machine, and the gate of the route. While the gate holds bytes, new
/// connections wait too.
pub(super) type Route = (u16, Arc<Gate>);

impl SocksProxy {
    /// Starts a proxy.
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
    let target_port = read_target_port(&mut client)?;
    let Some((port, gate)) = routes.iter().find(|(port, _)| *port == target_port) else {
        return client.write_all(&REFUSED);
    };
    if !gate.wait_to_pass() {
        return Ok(());
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, *port)) else {
        return client.write_all(&REFUSED);
    };
    client.write_all(&GRANTED)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from, to, reply_gate) = (server.try_clone()?, client.try_clone()?, Arc::clone(gate));
    spawn(move || pump(from.into(), to.into(), &reply_gate, Duration::ZERO, &AtomicU64::new(0)));
    pump(client.into(), server.into(), gate, Duration::ZERO, &AtomicU64::new(0));
    Ok(())
}

/// The port that the client asks for. The address is ignored, because it is always this machine's.
fn read_target_port(client: &mut TcpStream) -> io::Result<u16> {
    let mut request = [0; REQUEST_BYTES];
    client.read_exact(&mut request)?;
    // The name of the user, which ends with a zero byte.
    let mut byte = [1];
    while byte != [0] {
        client.read_exact(&mut byte)?;
    }
    let [_, _, high, low, ..] = request;
    Ok(u16::from_be_bytes([high, low]))
}

impl Drop for SocksProxy {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
    }
}
