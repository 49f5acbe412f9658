//! To which servers the password is sent: R27.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, mpsc},
    time::Duration,
};

use leasehold_core::{Env, Locks};
use leasehold_sql::{
    Encryption, Tls, Verify,
    postgres::{Config, engine},
};
use leasehold_testkit::server::{FakeConnection, FakeServer, PostgresServer, non_loopback_address};

use crate::rig::{PATIENCE, acquire};

/// The request of a client that wants TLS.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const CLEARTEXT: &[u8] = b"R\0\0\0\x08\0\0\0\x03";
/// The time limit at a server that accepts no login.
const SHORT: Duration = Duration::from_millis(100);
const MD5: &[u8] = b"R\0\0\0\x0c\0\0\0\x05salt";

fn locks(host: IpAddr, port: u16, encryption: Encryption) -> Locks {
    let config = Config::from_url(&format!("//anna:hunter2@{host}:{port}/postgres")).unwrap();
    Locks::builder(Arc::new(engine(config.encryption(encryption), &Env::system()))).build()
}

fn preferred() -> Encryption {
    Encryption::Preferred(Tls::system().verify(Verify::Nothing))
}

/// A server without TLS that asks every client for the password in this form.
fn ask_for_password(
    connection: &mut FakeConnection,
    asks: &[u8],
    sender: &mpsc::Sender<Vec<u8>>,
) -> io::Result<()> {
    let mut head = connection.receive_exactly(8)?;
    if head == TLS_REQUEST {
        connection.send(b"N")?;
        head = connection.receive_exactly(8)?;
    }
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    connection.receive_exactly(length - head.len())?;
    connection.send(asks)?;
    let received = connection.receive_all()?;
    sender.send(received).map_err(io::Error::other)
}

/// What such a server at this address receives, and the error of the client.
fn connect_to_asking_server(
    host: IpAddr,
    asks: &'static [u8],
    encryption: Encryption,
    limit: Duration,
) -> (Vec<u8>, leasehold_core::Error) {
    let (sender, receiver) = mpsc::channel();
    let fake_server = FakeServer::at(host, move |connection| ask_for_password(connection, asks, &sender));
    let locks = locks(host, fake_server.port(), encryption);
    let error = locks.mutex("a").blocking().acquire_within(limit).unwrap_err();
    (receiver.recv_timeout(PATIENCE).unwrap(), error)
}

#[test]
fn a_remote_server_without_tls_gets_no_password() {
    for asks in [CLEARTEXT, MD5] {
        for encryption in [Encryption::Off, preferred()] {
            let (received, error) =
                connect_to_asking_server(non_loopback_address(), asks, encryption, PATIENCE);
            assert_eq!(received, b"", "{error}");
            let message = error.to_string();
            assert!(
                error.is_misconfigured() && message.contains("asks for the") && !message.contains("hunter2"),
                "{message}"
            );
        }
    }
}

/// No other machine can listen on a connection within this machine, and the local proxies of hosted databases ask in
/// this form.
#[test]
fn a_local_server_gets_the_password_as_it_asks() {
    for encryption in [Encryption::Off, preferred()] {
        let (received, _) =
            connect_to_asking_server(Ipv4Addr::LOCALHOST.into(), CLEARTEXT, encryption, SHORT);
        assert_eq!(received, b"p\0\0\0\x0chunter2\0");
    }
}

#[test]
fn a_tls_server_is_used_as_the_mode_says() {
    let server = PostgresServer::encrypted("anna", "hunter2");
    let tls = |verify| Tls::system().roots(server.certificate("ca.pem")).verify(verify);
    let unknown = Tls::system().roots(PostgresServer::encrypted("anna", "hunter2").certificate("ca.pem"));
    let locks_with = |encryption| locks(Ipv4Addr::LOCALHOST.into(), server.port(), encryption);
    for encryption in [
        preferred(),
        Encryption::Required(Tls::system().verify(Verify::Nothing)),
        // The certificate has another name.
        Encryption::Required(tls(Verify::Authority)),
    ] {
        acquire(&locks_with(encryption), "a").release_blocking().unwrap();
    }
    for encryption in [
        Encryption::Required(tls(Verify::Full)),
        Encryption::Required(unknown.clone().verify(Verify::Authority)),
        Encryption::Off,
    ] {
        let error = locks_with(encryption.clone()).mutex("a").blocking().acquire().unwrap_err();
        assert!(error.is_misconfigured() || error.is_denied(), "{encryption:?}: {error}");
    }
    let missing = Encryption::Preferred(Tls::system().roots("/missing").verify(Verify::Authority));
    let error = locks_with(missing).mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("/missing"), "{error}");
}

#[test]
fn a_login_is_bound_to_the_certificate_if_the_url_requires_it() {
    let server = PostgresServer::encrypted("anna", "hunter2");
    let locks = |encryption| {
        let rest = format!("//anna:hunter2@127.0.0.1:{}/postgres", server.port());
        let config = Config::with_parameters(&rest, &[("channel_binding", "require".to_owned())]).unwrap();
        Locks::builder(Arc::new(engine(config.encryption(encryption), &Env::system()))).build()
    };
    acquire(&locks(preferred()), "a").release_blocking().unwrap();
    let (sender, receiver) = mpsc::channel();
    let fake_server = FakeServer::start(move |connection| ask_for_password(connection, CLEARTEXT, &sender));
    let rest = format!("//anna:hunter2@127.0.0.1:{}/postgres", fake_server.port());
    let config = Config::with_parameters(&rest, &[("channel_binding", "require".to_owned())]).unwrap();
    let locks = Locks::builder(Arc::new(engine(config, &Env::system()))).build();
    let error = locks.mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_denied(), "{error}");
    assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), b"");
}
