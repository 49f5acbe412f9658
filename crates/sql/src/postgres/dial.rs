//! Connects to a server, or to one of several: sockets, TLS and the login of the driver.

use std::{io, net::SocketAddr, pin::pin, sync::atomic::Ordering, time::Duration};

use futures_util::future::{Either, select};
use leasehold_core::Fault;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio_postgres::{
    Client, Connection, SimpleQueryMessage,
    config::{Host, SslMode, SslNegotiation},
};

#[cfg(feature = "tls")]
use super::tls::{TlsAnswer, encrypted, tls_error};
use super::{
    config::Config,
    error::{Stage, classify},
    messages::LoginMethod,
    passfile,
    server::Server,
    stream::{CheckedStream, Cover, NoEncryption, Stream},
};
use crate::{Encryption, database::Failed, runtime};

/// After how much silence TCP checks whether the other side still exists.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The connection of the driver.
pub(crate) type DriverConnection = Connection<CheckedStream, CheckedStream>;

/// A connection that was made.
pub(crate) struct Dialed {
    pub(crate) client: Client,
    pub(crate) connection: DriverConnection,
    /// The own address of a TCP connection.
    pub(crate) local_address: Option<SocketAddr>,
    /// The number of the process that serves the session, as it was announced at the login. A pooler announces a number
    /// of its own.
    pub(crate) announced_process: Option<i32>,
    /// How the bytes of the connection travel.
    pub(crate) cover: Cover,
}

/// Connects and sets up a connection within the time limit for that. Adds the address of the server to an error.
pub(crate) async fn within_dial_limit<T>(
    config: &Config,
    connecting: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    let limit = config.dial_limit();
    let timed_out = || Err(Failed::new(Fault::Retry, format!("no answer within {limit:?}")));
    runtime::within(limit, connecting)
        .await
        .unwrap_or_else(timed_out)
        .map_err(|failed| config.with_address(failed))
}

/// Connects to the first usable host within the time limit; the host that was used last is tried first. Each host gets
/// an equal share of the time. Time that a host does not need is divided among the hosts that are tried after it. A
/// host that refuses the login ends the attempt, so that the password is not sent to a further host.
pub(crate) async fn dial(server: &Server, options: Option<&str>, limit: Duration) -> Result<Dialed, Failed> {
    let hosts: Vec<_> = server.hosts_with_ports().collect();
    let count = |hosts| u32::try_from(hosts).unwrap_or(u32::MAX);
    let (start, equal_share, mut hosts_left) =
        (runtime::now(), limit / count(hosts.len()).max(1), hosts.len());
    let first_tried = server.last_served_host.load(Ordering::Relaxed);
    let mut last_error = Failed::new(Fault::Misconfigured, "no host is named");
    for index in (first_tried..hosts.len()).chain(0..first_tried) {
        let Some(&(host, port)) = hosts.get(index) else { continue };
        let share = equal_share.max(limit.saturating_sub(start.elapsed()) / count(hosts_left));
        hosts_left = hosts_left.saturating_sub(1).max(1);
        let timed_out = || Err(Failed::new(Fault::Retry, format!("no answer within {share:.0?}")));
        match runtime::within(share, connect_to_host(server, host, port, options))
            .await
            .unwrap_or_else(timed_out)
        {
            Ok(connected) => {
                server.last_served_host.store(index, Ordering::Relaxed);
                return Ok(connected);
            }
            // The error of a host that was reached is more useful than that of one that was not.
            Err(failed) if failed.fault == Fault::Retry && last_error.fault == Fault::Full => {}
            Err(failed) if matches!(failed.fault, Fault::Retry | Fault::Full) => last_error = failed,
            // After a refusal by one host the password is not sent to the next one.
            Err(failed) => return Err(failed),
        }
    }
    Err(last_error)
}

/// Connects to one host within the time limit, also to a host that is read-only.
pub(crate) async fn dial_host(
    server: &Server,
    host: &Host,
    port: u16,
    limit: Duration,
) -> Result<Dialed, Failed> {
    let any = Server { needs_writable: false, ..server.clone() };
    let timed_out = || Err(Failed::new(Fault::Retry, format!("no answer within {limit:.0?}")));
    runtime::within(limit, connect_to_host(&any, host, port, None)).await.unwrap_or_else(timed_out)
}

/// Connects to one host; fails if the host is read-only and the URL needs a primary.
async fn connect_to_host(
    server: &Server,
    host: &Host,
    port: u16,
    options: Option<&str>,
) -> Result<Dialed, Failed> {
    let mut driver_config = server.driver_config.clone();
    if let Some(password) = &server.password {
        let (user, password) = password.read_login().await?;
        if let Some(user) = user {
            driver_config.user(user);
        }
        driver_config.password(password.as_str());
    } else if let Some(password) = passfile::password(server, host, port)? {
        driver_config.password(password);
    }
    let stream = open_stream(server, host, port).await?;
    let (local_address, cover, process) = (stream.local_address, stream.cover, stream.announced_process());
    driver_config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    if let Some(options) = options {
        let url_options = server.driver_config.get_options();
        driver_config.options(
            url_options.map_or_else(|| options.to_owned(), |url_options| format!("{url_options} {options}")),
        );
    }
    let login_failed = |error| classify(&error, Stage::Dial);
    let (client, mut driver_connection) =
        driver_config.connect_raw(stream, NoEncryption).await.map_err(login_failed)?;
    if server.needs_writable {
        let query = pin!(client.simple_query("SHOW transaction_read_only"));
        let reply = match select(query, &mut driver_connection).await {
            Either::Left((reply, _)) => reply.map_err(login_failed)?,
            Either::Right(_) => return Err(Failed::new(Fault::Retry, "it closed the connection")),
        };
        let is_read_only = |reply: &SimpleQueryMessage| matches!(reply, SimpleQueryMessage::Row(row) if row.get(0) == Some("on"));
        if reply.iter().any(is_read_only) {
            return Err(Failed::new(Fault::Retry, "it is read-only, as a replica is: name the primary"));
        }
    }
    let announced_process = process.get().copied();
    Ok(Dialed { client, connection: driver_connection, local_address, announced_process, cover })
}

/// Opens the stream to one host, encrypted as the URL says.
async fn open_stream(server: &Server, host: &Host, port: u16) -> Result<CheckedStream, Failed> {
    let name = match host {
        Host::Tcp(name) => name,
        #[cfg(unix)]
        Host::Unix(directory) => {
            let stream = tokio::net::UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await;
            return Ok(plain_stream(stream.map_err(|error| connect_failed(&error))?, true));
        }
    };
    let (stream, is_local) = tcp(name, port).await.map_err(|error| connect_failed(&error))?;
    let local_address = stream.local_addr().ok();
    let mut opened = match &server.encryption {
        Encryption::Off => plain_stream(stream, is_local),
        #[cfg(feature = "tls")]
        Encryption::Required(tls) => match encrypted(tls, name, stream).await? {
            TlsAnswer::Encrypted(stream) => encrypted_stream(stream, true),
            TlsAnswer::Unsupported(_) => return Err(tls_error("server does not support TLS")),
        },
        #[cfg(feature = "tls")]
        Encryption::Preferred(tls) => match encrypted(tls, name, stream).await {
            Ok(TlsAnswer::Encrypted(stream)) => encrypted_stream(stream, is_local),
            Ok(TlsAnswer::Unsupported(stream)) => plain_stream(stream, is_local),
            // Either the two sides have no TLS version or cipher in common, or the local TLS configuration is unusable.
            // Only an unusable local configuration is an error here.
            Err(failed) if failed.fault == Fault::Misconfigured => {
                tls.check().map_err(|error| tls_error(&error.to_string()))?;
                tracing::debug!("{} is connected to without TLS: {}", server.address, failed.message);
                let (stream, is_local) = tcp(name, port).await.map_err(|error| connect_failed(&error))?;
                let local_address = stream.local_addr().ok();
                let mut plain = plain_stream(stream, is_local);
                plain.local_address = local_address;
                return Ok(plain);
            }
            Err(failed) => return Err(failed),
        },
    };
    opened.local_address = local_address;
    Ok(opened)
}

/// Connects; returns whether the server is on this machine.
async fn tcp(name: &str, port: u16) -> io::Result<(TcpStream, bool)> {
    let stream = TcpStream::connect((name, port)).await?;
    // Keepalives notice a host that vanished without closing its connections. The time limit of a request notices such
    // a host sooner, but not on an idle connection.
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3).with_retries(3);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    stream.set_nodelay(true)?;
    let is_local = stream.peer_addr()?.ip().to_canonical().is_loopback();
    Ok((stream, is_local))
}

/// The error for a failed connection attempt.
fn connect_failed(error: &io::Error) -> Failed {
    Failed::new(Fault::Retry, format!("error connecting to server: {error}"))
}

/// A stream that is not encrypted, on which the password is sent only to a server on this machine.
fn plain_stream(stream: impl Stream + 'static, is_local: bool) -> CheckedStream {
    let (weakest, cover) =
        if is_local { (LoginMethod::Cleartext, Cover::Local) } else { (LoginMethod::Scram, Cover::Clear) };
    let mut plain = CheckedStream::new(Box::new(stream), weakest, None);
    plain.cover = cover;
    plain
}

/// An encrypted stream. The password is sent in cleartext only to a `trusted` server: one on this machine, or one whose
/// connection is as secure as the URL requires. A URL that only prefers encryption trusts no server on another machine.
#[cfg(feature = "tls")]
fn encrypted_stream(stream: leasehold_tls::TlsStream<TcpStream>, trusted: bool) -> CheckedStream {
    let end_point = leasehold_tls::channel_binding(&stream);
    let certificate_end = leasehold_tls::certificate_end(&stream);
    let weakest = if trusted { LoginMethod::Cleartext } else { LoginMethod::Md5 };
    let mut encrypted = CheckedStream::new(Box::new(stream), weakest, end_point);
    encrypted.cover = Cover::Encrypted { certificate_end };
    encrypted
}
