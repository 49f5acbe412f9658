//! A relay between the driver and a server on another machine without TLS. Such a server may ask for the password,
//! encrypted by a public key that it sends itself (`caching_sha2_password`), and the driver, which has no option
//! against it, would send the password to any server that answers. So the driver connects to the relay, and the relay
//! to the server; it replaces such a request by an error.

use std::{io, net::SocketAddr};

use leasehold_core::LONGEST_DIAL;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
};

use super::{config::KEEPALIVE, error::ASKS_FOR_PASSWORD};
use crate::runtime;

/// The size of a packet's header: three bytes for the length, one for the number.
const HEAD: usize = 4;
/// Longer than any packet of a login.
const LONGEST_LOGIN: usize = 64 << 10;
/// The request of a server that has no cached hash: it asks for the whole password.
const WHOLE_PASSWORD: [u8; 2] = [1, 4];
const OK: u8 = 0;
const ERROR: u8 = 0xff;
const REFUSAL: &str =
    "it asks for the password in a form that others could read: add ssl-mode=VERIFY_IDENTITY to the URL";

/// Connects to a server, and opens a local port for one connection to it.
pub(super) async fn open(server: (&str, u16)) -> io::Result<SocketAddr> {
    let server = TcpStream::connect(server).await?;
    SockRef::from(&server).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    server.set_nodelay(true)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    runtime::spawn(async move {
        if let Some(Ok((driver, _))) = runtime::within(LONGEST_DIAL, listener.accept()).await {
            drop(listener);
            // The error needs no report: both connections are closed here.
            let _ = pass(driver, server).await;
        }
    });
    Ok(address)
}

async fn pass(driver: TcpStream, server: TcpStream) -> io::Result<()> {
    driver.set_nodelay(true)?;
    let ((mut from_driver, mut to_driver), (mut from_server, mut to_server)) =
        (driver.into_split(), server.into_split());
    let asks = async move { copy(&mut from_driver, &mut to_server).await.map(drop) };
    let answers = async move {
        login(&mut from_server, &mut to_driver).await?;
        copy(&mut from_server, &mut to_driver).await.map(drop)
    };
    // When one side ends, the other has nothing more to send to it.
    tokio::select! { ended = asks => ended, ended = answers => ended }
}

/// Passes on the packets of a server until it accepts or refuses the login.
async fn login(
    server: &mut (impl AsyncRead + Unpin),
    driver: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut greeted = false;
    loop {
        let mut packet = vec![0; HEAD];
        server.read_exact(&mut packet).await?;
        let length = usize::from(packet[0]) | usize::from(packet[1]) << 8 | usize::from(packet[2]) << 16;
        if length > LONGEST_LOGIN {
            return Err(io::ErrorKind::InvalidData.into());
        }
        packet.resize(HEAD + length, 0);
        server.read_exact(&mut packet[HEAD..]).await?;
        if packet[HEAD..].starts_with(&WHOLE_PASSWORD) {
            driver.write_all(&refusal(packet[3])).await?;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        driver.write_all(&packet).await?;
        // The first packet is the greeting, whatever its bytes.
        if greeted && matches!(packet.get(HEAD), Some(&(OK | ERROR))) {
            return Ok(());
        }
        greeted = true;
    }
}

/// The error in place of the packet with this number.
fn refusal(number: u8) -> Vec<u8> {
    let body = [&[ERROR][..], &ASKS_FOR_PASSWORD.to_le_bytes(), b"#HY000", REFUSAL.as_bytes()].concat();
    let length = body.len().to_le_bytes();
    [&length[..3], &[number], &body].concat()
}
