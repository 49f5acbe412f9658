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
    mysql::{Config, engine},
};
use leasehold_testkit::server::{FakeConnection, FakeServer, MariadbServer, non_loopback_address};

use crate::{
    fake_server::{greeting_by, packet},
    rig::{PATIENCE, is_mysql},
};

fn locks(host: IpAddr, port: u16, encryption: Encryption) -> Locks {
    let config = Config::from_url(&format!("//anna:hunter2@{host}:{port}/locks")).unwrap();
    Locks::builder(Arc::new(engine(config.encryption(encryption), &Env::system()))).build()
}

fn preferred() -> Encryption {
    Encryption::Preferred(Tls::system().verify(Verify::Nothing))
}

/// A server without TLS that asks every client for the whole password.
fn ask_for_password(connection: &mut FakeConnection, sender: &mpsc::Sender<Vec<u8>>) -> io::Result<()> {
    connection.send(&greeting_by("caching_sha2_password"))?;
    // A client that wants TLS closes the connection here.
    let head = connection.receive_exactly(4)?;
    connection.receive_exactly(usize::from(head[0]))?;
    connection.send(&packet(2, &[1, 4]))?;
    let received = connection.receive_all()?;
    sender.send(received).map_err(io::Error::other)
}

/// What such a server at this address receives, and the error of the client.
fn connect_to_asking_server(
    host: IpAddr,
    encryption: Encryption,
    limit: Duration,
) -> (Vec<u8>, leasehold_core::Error) {
    let (sender, receiver) = mpsc::channel();
    let fake_server = FakeServer::at(host, move |connection| ask_for_password(connection, &sender));
    let locks = locks(host, fake_server.port(), encryption);
    let error = locks.mutex("a").blocking().acquire_within(limit).unwrap_err();
    // A client that waits for the key closes the connection when it is dropped.
    drop(locks);
    (receiver.recv_timeout(PATIENCE).unwrap(), error)
}

#[test]
fn a_remote_server_without_tls_is_not_asked_for_its_key() {
    for encryption in [Encryption::Off, preferred()] {
        let (received, error) = connect_to_asking_server(non_loopback_address(), encryption, PATIENCE);
        assert_eq!(received, b"", "{error}");
        let message = error.to_string();
        assert!(
            error.is_misconfigured() && message.contains("ssl-mode") && !message.contains("hunter2"),
            "{message}"
        );
    }
}

/// No other machine can listen on a connection within this machine.
#[test]
fn a_local_server_is_asked_for_its_key() {
    let (received, _) =
        connect_to_asking_server(Ipv4Addr::LOCALHOST.into(), Encryption::Off, Duration::from_millis(100));
    assert_eq!(received, packet(3, &[2]));
}

/// A server that asks for the password by a plugin once it has received the login.
fn ask_by_plugin(plugin: &str, connection: &mut FakeConnection) -> io::Result<()> {
    connection.send(&greeting_by("mysql_native_password"))?;
    let head = connection.receive_exactly(4)?;
    connection.receive_exactly(usize::from(head[0]))?;
    connection.send(&packet(2, &[b"\xfe", plugin.as_bytes(), b"\0"].concat()))?;
    connection.receive_all().map(drop)
}

/// A retry would not help, so the claim fails at once.
#[test]
fn an_unknown_password_plugin_is_named() {
    for plugin in ["mysql_clear_password", "mysql_old_password", "dialog"] {
        let fake_server =
            FakeServer::at(Ipv4Addr::LOCALHOST.into(), move |connection| ask_by_plugin(plugin, connection));
        let locks = locks(Ipv4Addr::LOCALHOST.into(), fake_server.port(), Encryption::Off);
        let error = locks.mutex("a").blocking().acquire_within(PATIENCE).unwrap_err();
        let message = error.to_string();
        assert!(
            error.is_misconfigured() && message.contains(plugin) && !message.contains("hunter2"),
            "{message}"
        );
    }
}

/// A user `anna`, who may do anything.
fn user(server: &MariadbServer) {
    server.query("CREATE USER anna IDENTIFIED BY 'hunter2'; GRANT ALL ON *.* TO anna");
}

#[test]
fn a_remote_server_that_does_not_ask_for_the_password_is_used() {
    let server = MariadbServer::unencrypted(&["--bind-address=*"]);
    user(&server);
    if is_mysql() {
        // MySQL asks for the whole password once, and then caches its hash.
        let refused =
            locks(non_loopback_address(), server.port(), Encryption::Off).mutex("a").blocking().acquire();
        assert!(refused.unwrap_err().to_string().contains("ssl-mode"), "the password is not sent");
        let near = locks(Ipv4Addr::LOCALHOST.into(), server.port(), Encryption::Off);
        near.mutex("a").blocking().acquire_within(PATIENCE).unwrap().release_blocking().unwrap();
    }
    for encryption in [Encryption::Off, preferred()] {
        let locks = locks(non_loopback_address(), server.port(), encryption);
        for _ in 0..2 {
            locks.mutex("a").blocking().acquire_within(PATIENCE).unwrap().release_blocking().unwrap();
        }
    }
}

#[test]
fn a_tls_server_is_used_as_the_mode_says() {
    let server = MariadbServer::encrypted();
    user(&server);
    let tls = |verify| Tls::system().roots(server.certificate("ca.pem")).verify(verify);
    let locks_with = |encryption| locks(Ipv4Addr::LOCALHOST.into(), server.port(), encryption);
    for encryption in [
        preferred(),
        Encryption::Required(Tls::system().verify(Verify::Nothing)),
        // The certificate has another name.
        Encryption::Required(tls(Verify::Authority)),
    ] {
        locks_with(encryption)
            .mutex("a")
            .blocking()
            .acquire_within(PATIENCE)
            .unwrap()
            .release_blocking()
            .unwrap();
    }
    for encryption in [Encryption::Required(tls(Verify::Full)), Encryption::Off] {
        let error = locks_with(encryption.clone()).mutex("a").blocking().acquire().unwrap_err();
        assert!(error.is_misconfigured() || error.is_denied(), "{encryption:?}: {error}");
    }
    let missing = Encryption::Preferred(Tls::system().roots("/missing").verify(Verify::Authority));
    let error = locks_with(missing).mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("/missing"), "{error}");
}

#[test]
fn a_server_is_reached_by_its_socket() {
    let server = MariadbServer::start(&[]);
    let socket = server.certificate("socket").display().to_string();
    let config = Config::with_socket("//root@/locks", Some(&socket), None).unwrap().encryption(preferred());
    let locks = Locks::builder(Arc::new(engine(config, &Env::system()))).build();
    locks.mutex("a").blocking().acquire_within(PATIENCE).unwrap().release_blocking().unwrap();
    let config = Config::with_socket("//u:hunter2@nowhere/locks", Some("/nowhere"), None).unwrap();
    let locks = Locks::builder(Arc::new(engine(config, &Env::system()))).build();
    let error = locks.mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.to_string().contains("cannot connect to /nowhere: "), "{error}");
}
