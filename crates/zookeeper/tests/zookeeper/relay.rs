//! Stands between a client and the server, and stops one request on its way, with everything behind it on the same
//! connection.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread::spawn,
};

use crate::rig::PATIENCE;

/// A relay. It ends with its connections and with the test.
pub(crate) struct Relay {
    pub(crate) port: u16,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The request that contains these bytes is stopped.
    stop_at: Option<Vec<u8>>,
    is_stopped: bool,
}

impl Relay {
    /// A relay to the server at this port.
    pub(crate) fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (port, gate) = (listener.local_addr().unwrap().port(), Arc::<Gate>::default());
        let shared_gate = Arc::clone(&gate);
        spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let (mut answers, mut client_side) =
                    (server.try_clone().unwrap(), client.try_clone().unwrap());
                spawn(move || io::copy(&mut answers, &mut client_side));
                let gate = Arc::clone(&shared_gate);
                spawn(move || gate.pass_requests(client, server));
            }
        });
        Self { port, gate }
    }

    /// Stops the next request that contains these bytes.
    pub(crate) fn stop_at(&self, bytes: Vec<u8>) {
        self.gate.state.lock().unwrap().stop_at = Some(bytes);
    }

    /// Blocks, when it is called, until that request is stopped.
    pub(crate) fn stopped(&self) -> impl FnOnce() + Send + 'static {
        let gate = Arc::clone(&self.gate);
        move || {
            let state = gate.state.lock().unwrap();
            let waited = gate.changed.wait_timeout_while(state, PATIENCE, |state| !state.is_stopped);
            assert!(waited.unwrap().0.is_stopped, "no such request came");
        }
    }

    /// Passes on the stopped request.
    pub(crate) fn go_on(&self) {
        self.gate.state.lock().unwrap().is_stopped = false;
        self.gate.changed.notify_all();
    }
}

impl Gate {
    fn pass_requests(&self, mut client: TcpStream, mut server: TcpStream) -> io::Result<()> {
        loop {
            let mut length = [0; 4];
            client.read_exact(&mut length)?;
            let mut message = vec![0; u32::from_be_bytes(length) as usize];
            client.read_exact(&mut message)?;
            let mut state = self.state.lock().unwrap();
            let stops = |bytes: &Vec<u8>| message.windows(bytes.len()).any(|window| window == bytes);
            if state.stop_at.as_ref().is_some_and(stops) {
                (state.stop_at, state.is_stopped) = (None, true);
                self.changed.notify_all();
                while state.is_stopped {
                    state = self.changed.wait(state).unwrap();
                }
            }
            drop(state);
            server.write_all(&[&length[..], &message].concat())?;
        }
    }
}
