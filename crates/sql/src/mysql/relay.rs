//! A relay between the driver and the server. The driver connects to the relay, and the relay connects to the server.
//! The relay does two things that the driver has no option for:
//!
//! - It refuses to send the password to a server on another machine without TLS. Such a server can ask for the password
//!   itself, encrypted by a public key that the server sends (`caching_sha2_password`), and the driver would send it to
//!   any server that answers. The relay replaces the request for the password by an error.
//! - It reports at once that the server has closed the connection. The driver notices this at its next request only.

use std::{io, net::SocketAddr};

use leasehold_core::LONGEST_DIAL;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{config::KEEPALIVE, error::ASKS_FOR_PASSWORD};
use crate::runtime;

/// The size of a packet's header: three bytes for the length (little-endian), one for the number of the packet.
const HEADER_LENGTH: usize = 4;
/// The place of the number in the header.
const NUMBER_INDEX: usize = 3;
/// Longer than any packet of a login.
const MAX_LOGIN_PACKET: usize = 64 << 10;
/// The packet by which a server without a cached hash asks for the whole password.
const FULL_AUTHENTICATION: [u8; 2] = [1, 4];
/// The first byte of the packet that accepts the login.
const LOGIN_ACCEPTED: u8 = 0;
/// The first byte of an error packet.
const ERROR_PACKET: u8 = 0xff;
/// The message of the error that the driver receives in place of a request for the password.
const REFUSAL_MESSAGE: &str =
    "it asks for the password in a form that others could read: add ssl-mode=VERIFY_IDENTITY to the URL";

/// What the relay does when the server asks for the password itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Password {
    /// The driver receives an error in place of the request.
    NeverSent,
    /// The request passes: nobody can read the connection, or the server is on this machine.
    Sent,
}

/// A connection through a relay.
#[derive(Clone, Debug)]
pub(crate) struct Relayed {
    /// The port of this side of the connection to the server.
    pub(super) local_port: u16,
    alive: watch::Receiver<()>,
}

impl Relayed {
    /// Waits until one side has closed the connection. Cancel safe.
    pub(super) async fn closed(&mut self) {
        // The relay never sends a value. When it ends, it drops the sender.
        while self.alive.changed().await.is_ok() {}
    }
}

/// Connects to a server, and opens a local port for one connection to it.
pub(super) async fn open(host: &str, port: u16, password: Password) -> io::Result<(SocketAddr, Relayed)> {
    let server = TcpStream::connect((host, port)).await?;
    SockRef::from(&server).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    server.set_nodelay(true)?;
    let local_port = server.local_addr()?.port();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let (alive, receiver) = watch::channel(());
    runtime::spawn(async move {
        if let Some(Ok((driver, _))) = runtime::within(LONGEST_DIAL, listener.accept()).await {
            drop(listener);
            // The error needs no report: both connections are closed here.
            let _ = relay_bytes(driver, server, password).await;
        }
        drop(alive);
    });
    Ok((address, Relayed { local_port, alive: receiver }))
}

/// Relays bytes between the driver and the server until one side ends.
async fn relay_bytes(driver: TcpStream, server: TcpStream, password: Password) -> io::Result<()> {
    driver.set_nodelay(true)?;
    let ((mut from_driver, mut to_driver), (mut from_server, mut to_server)) =
        (driver.into_split(), server.into_split());
    let to_server_copy = async move { copy(&mut from_driver, &mut to_server).await.map(drop) };
    let to_driver_copy = async move {
        if password == Password::NeverSent {
            relay_login(&mut from_server, &mut to_driver).await?;
        }
        copy(&mut from_server, &mut to_driver).await.map(drop)
    };
    // When one side ends, the other has nothing more to send to it.
    tokio::select! { ended = to_server_copy => ended, ended = to_driver_copy => ended }
}

/// Relays packets of the server to the driver until the server accepts or refuses the login. Replaces a request for the
/// password itself by an error, and then fails.
async fn relay_login(
    server: &mut (impl AsyncRead + Unpin),
    driver: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut greeting_passed = false;
    loop {
        let mut packet = vec![0; HEADER_LENGTH];
        server.read_exact(&mut packet).await?;
        let length =
            packet[..NUMBER_INDEX].iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte));
        if length > MAX_LOGIN_PACKET {
            return Err(io::ErrorKind::InvalidData.into());
        }
        packet.resize(HEADER_LENGTH + length, 0);
        server.read_exact(&mut packet[HEADER_LENGTH..]).await?;
        if packet[HEADER_LENGTH..].starts_with(&FULL_AUTHENTICATION) {
            driver.write_all(&refusal(packet[NUMBER_INDEX])).await?;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        driver.write_all(&packet).await?;
        // The first packet is the greeting, whatever its bytes.
        if greeting_passed && matches!(packet.get(HEADER_LENGTH), Some(&(LOGIN_ACCEPTED | ERROR_PACKET))) {
            return Ok(());
        }
        greeting_passed = true;
    }
}

/// The error packet that replaces the packet with this number.
fn refusal(number: u8) -> Vec<u8> {
    let body = [&[ERROR_PACKET][..], &ASKS_FOR_PASSWORD.to_le_bytes(), b"#HY000", REFUSAL_MESSAGE.as_bytes()]
        .concat();
    let length = body.len().to_le_bytes();
    [&length[..NUMBER_INDEX], &[number], &body].concat()
}
