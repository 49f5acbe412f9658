//! Connects to a server, or to one of several: sockets, TLS and the login of the driver.

use std::{io, pin::pin, sync::atomic::Ordering, time::Duration};

use futures_util::future::{Either, select};
use leasehold_core::Fault;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::{
    Client, Connection, SimpleQueryMessage,
    config::{Host, SslMode, SslNegotiation},
};

#[cfg(feature = "tls")]
use super::tls::{by_tls, encrypted};
use super::{
    error::{At, sort},
    messages::Login,
    passfile,
    server::Server,
    stream::{Followed, NoEncryption, Stream},
};
use crate::{Encryption, database::Failed, runtime};

/// After how much silence TCP checks whether the other side still exists.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The connection of the driver.
pub(crate) type Link = Connection<Followed, Followed>;

/// Connects to the first host that serves, within this time; the host that served last is tried first. Each host has
/// an equal share of the time, plus an equal share of what earlier hosts have left of theirs.
pub(crate) async fn dial(
    server: &Server,
    options: Option<&str>,
    limit: Duration,
) -> Result<(Client, Link), Failed> {
    let hosts: Vec<_> = server.all().collect();
    let number = |hosts| u32::try_from(hosts).unwrap_or(u32::MAX);
    let (begun, equal, mut left) = (runtime::now(), limit / number(hosts.len()).max(1), hosts.len());
    let first = server.served.load(Ordering::Relaxed);
    let mut last = Failed::new(Fault::Misconfigured, "no host is named");
    for at in (first..hosts.len()).chain(0..first) {
        let Some(&(host, port)) = hosts.get(at) else { continue };
        let share = equal.max(limit.saturating_sub(begun.elapsed()) / number(left));
        left = left.saturating_sub(1).max(1);
        let late = || Err(Failed::new(Fault::Retry, format!("no answer within {share:.0?}")));
        match runtime::within(share, serves(server, host, port, options)).await.unwrap_or_else(late) {
            Ok(served) => {
                server.served.store(at, Ordering::Relaxed);
                return Ok(served);
            }
            // The error of a host that was reached is more useful than that of one that was not.
            Err(failed) if failed.fault == Fault::Retry && last.fault == Fault::Full => {}
            Err(failed) if matches!(failed.fault, Fault::Retry | Fault::Full) => last = failed,
            // After a refusal by one host the password is not sent to the next one.
            Err(failed) => return Err(failed),
        }
    }
    Err(last)
}

/// Connects to one host; fails if that is read-only.
async fn serves(
    server: &Server,
    host: &Host,
    port: u16,
    options: Option<&str>,
) -> Result<(Client, Link), Failed> {
    let mut driver = server.driver.clone();
    if let Some(password) = &server.password {
        driver.password(password.read().await?.as_str());
    } else if let Some(password) = passfile::password(server, host, port)? {
        driver.password(password);
    }
    let stream = connect(server, host, port).await?;
    driver.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    if let Some(options) = options {
        let own = server.driver.get_options();
        driver.options(own.map_or_else(|| options.to_owned(), |own| format!("{own} {options}")));
    }
    let failed = |error| sort(&error, At::Dial);
    let (client, mut link) = driver.connect_raw(stream, NoEncryption).await.map_err(failed)?;
    if server.writes {
        let asked = pin!(client.simple_query("SHOW transaction_read_only"));
        let reply = match select(asked, &mut link).await {
            Either::Left((reply, _)) => reply.map_err(failed)?,
            Either::Right(_) => return Err(Failed::new(Fault::Retry, "it closed the connection")),
        };
        let only = |reply: &SimpleQueryMessage| matches!(reply, SimpleQueryMessage::Row(row) if row.get(0) == Some("on"));
        if reply.iter().any(only) {
            return Err(Failed::new(Fault::Retry, "it is read-only, as a replica is: name the primary"));
        }
    }
    Ok((client, link))
}

async fn connect(server: &Server, host: &Host, port: u16) -> Result<Followed, Failed> {
    let name = match host {
        Host::Tcp(name) => name,
        Host::Unix(directory) => {
            let stream = UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await;
            return Ok(plain(stream.map_err(|error| unconnected(&error))?, true));
        }
    };
    let (stream, near) = tcp(name, port).await.map_err(|error| unconnected(&error))?;
    match &server.encryption {
        Encryption::Off => Ok(plain(stream, near)),
        #[cfg(feature = "tls")]
        Encryption::Required(tls) => match encrypted(tls, name, stream).await? {
            Ok(stream) => Ok(secured(stream, true)),
            Err(_) => Err(by_tls("server does not support TLS")),
        },
        #[cfg(feature = "tls")]
        Encryption::Preferred(tls) => match encrypted(tls, name, stream).await {
            Ok(Ok(stream)) => Ok(secured(stream, near)),
            Ok(Err(stream)) => Ok(plain(stream, near)),
            // The two sides have no TLS version or cipher in common, or the local TLS configuration is unusable.
            Err(failed) if failed.fault == Fault::Misconfigured => {
                tls.check().map_err(|error| by_tls(&error.to_string()))?;
                tracing::debug!("{} is connected to without TLS: {}", server.address, failed.message);
                let (stream, near) = tcp(name, port).await.map_err(|error| unconnected(&error))?;
                Ok(plain(stream, near))
            }
            Err(failed) => Err(failed),
        },
    }
}

/// Connects; returns whether the server is on this machine.
async fn tcp(name: &str, port: u16) -> io::Result<(TcpStream, bool)> {
    let stream = TcpStream::connect((name, port)).await?;
    // Notices a host that vanished without closing. The time limit of a request is shorter, but does not end idle
    // connections.
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3).with_retries(3);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    stream.set_nodelay(true)?;
    let near = stream.peer_addr()?.ip().to_canonical().is_loopback();
    Ok((stream, near))
}

fn unconnected(error: &io::Error) -> Failed {
    Failed::new(Fault::Retry, format!("error connecting to server: {error}"))
}

fn plain(stream: impl Stream + 'static, near: bool) -> Followed {
    Followed::new(Box::new(stream), if near { Login::Cleartext } else { Login::Scram }, None)
}

/// A server is trusted if it is on this machine, or if its connection is as secure as the URL requires. A URL that
/// only prefers encryption does not allow any server that answers to receive the password.
#[cfg(feature = "tls")]
fn secured(stream: leasehold_tls::TlsStream<TcpStream>, trusted: bool) -> Followed {
    let end_point = leasehold_tls::end_point(&stream);
    Followed::new(Box::new(stream), if trusted { Login::Cleartext } else { Login::Md5 }, end_point)
}
