//! Who is told the password: R27.

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
use leasehold_testkit::server::{Liar, MariadbServer, Talk, outer_address};

use crate::{
    liar::{greeting_by, packet},
    rig::{PATIENCE, is_mysql},
};

fn locks(host: IpAddr, port: u16, encryption: Encryption) -> Locks {
    let config = Config::from_url(&format!("//anna:hunter2@{host}:{port}/locks")).unwrap();
    Locks::builder(Arc::new(engine(config.encryption(encryption), &Env::system()))).build()
}

fn preferred() -> Encryption {
    Encryption::Preferred(Tls::system().verify(Verify::Nothing))
}

/// One without TLS that asks everybody for the whole password.
fn asking(talk: &mut Talk, heard: &mpsc::Sender<Vec<u8>>) -> io::Result<()> {
    talk.say(&greeting_by("caching_sha2_password"))?;
    // A client that wants TLS hangs up here.
    let head = talk.hear_exactly(4)?;
    talk.hear_exactly(usize::from(head[0]))?;
    talk.say(&packet(2, &[1, 4]))?;
    let told = talk.hear_out()?;
    heard.send(told).map_err(io::Error::other)
}

/// What a server at this address is told, and the error.
fn told(host: IpAddr, encryption: Encryption, limit: Duration) -> (Vec<u8>, leasehold_core::Error) {
    let (heard, hears) = mpsc::channel();
    let liar = Liar::at(host, move |talk| asking(talk, &heard));
    let locks = locks(host, liar.port(), encryption);
    let error = locks.mutex("a").blocking().acquire_within(limit).unwrap_err();
    // A client that waits for the key hangs up when it is dropped.
    drop(locks);
    (hears.recv_timeout(PATIENCE).unwrap(), error)
}

#[test]
fn a_remote_server_without_tls_is_not_asked_for_its_key() {
    for encryption in [Encryption::Off, preferred()] {
        let (told, error) = told(outer_address(), encryption, PATIENCE);
        assert_eq!(told, b"", "{error}");
        let said = error.to_string();
        assert!(error.is_misconfigured() && said.contains("ssl-mode") && !said.contains("hunter2"), "{said}");
    }
}

/// Nobody is between there.
#[test]
fn a_local_server_is_asked_for_its_key() {
    let (told, _) = told(Ipv4Addr::LOCALHOST.into(), Encryption::Off, Duration::from_millis(100));
    assert_eq!(told, packet(3, &[2]));
}

/// One that asks for the password by a plugin, when it has heard the login.
fn asking_by(plugin: &str, talk: &mut Talk) -> io::Result<()> {
    talk.say(&greeting_by("mysql_native_password"))?;
    let head = talk.hear_exactly(4)?;
    talk.hear_exactly(usize::from(head[0]))?;
    talk.say(&packet(2, &[b"\xfe", plugin.as_bytes(), b"\0"].concat()))?;
    talk.hear_out().map(drop)
}

/// No better the next time, so it is not waited for.
#[test]
fn an_unknown_password_plugin_is_named() {
    for plugin in ["mysql_clear_password", "mysql_old_password", "dialog"] {
        let liar = Liar::at(Ipv4Addr::LOCALHOST.into(), move |talk| asking_by(plugin, talk));
        let locks = locks(Ipv4Addr::LOCALHOST.into(), liar.port(), Encryption::Off);
        let error = locks.mutex("a").blocking().acquire_within(PATIENCE).unwrap_err();
        let said = error.to_string();
        assert!(error.is_misconfigured() && said.contains(plugin) && !said.contains("hunter2"), "{said}");
    }
}

/// A user `anna`, who may do anything.
fn user(server: &MariadbServer) {
    server.says("CREATE USER anna IDENTIFIED BY 'hunter2'; GRANT ALL ON *.* TO anna");
}

#[test]
fn a_remote_server_that_does_not_ask_for_the_password_is_used() {
    let server = MariadbServer::unencrypted(&["--bind-address=*"]);
    user(&server);
    if is_mysql() {
        // It wants all of the password once, and remembers it then.
        let told = locks(outer_address(), server.port(), Encryption::Off).mutex("a").blocking().acquire();
        assert!(told.unwrap_err().to_string().contains("ssl-mode"), "nobody is told");
        let near = locks(Ipv4Addr::LOCALHOST.into(), server.port(), Encryption::Off);
        near.mutex("a").blocking().acquire_within(PATIENCE).unwrap().release_blocking().unwrap();
    }
    for encryption in [Encryption::Off, preferred()] {
        let locks = locks(outer_address(), server.port(), encryption);
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
    let at = |encryption| locks(Ipv4Addr::LOCALHOST.into(), server.port(), encryption);
    for encryption in [
        preferred(),
        Encryption::Required(Tls::system().verify(Verify::Nothing)),
        // The certificate is of another name.
        Encryption::Required(tls(Verify::Authority)),
    ] {
        at(encryption).mutex("a").blocking().acquire_within(PATIENCE).unwrap().release_blocking().unwrap();
    }
    for encryption in [Encryption::Required(tls(Verify::Full)), Encryption::Off] {
        let error = at(encryption.clone()).mutex("a").blocking().acquire().unwrap_err();
        assert!(error.is_misconfigured() || error.is_denied(), "{encryption:?}: {error}");
    }
    let missing = Encryption::Preferred(Tls::system().roots("/missing").verify(Verify::Authority));
    let error = at(missing).mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("/missing"), "{error}");
}

#[test]
fn a_server_is_reached_by_its_socket() {
    let server = MariadbServer::start(&[]);
    let socket = server.certificate("socket").display().to_string();
    let config = Config::with_socket("//root@/locks", Some(&socket)).unwrap().encryption(preferred());
    let locks = Locks::builder(Arc::new(engine(config, &Env::system()))).build();
    locks.mutex("a").blocking().acquire_within(PATIENCE).unwrap().release_blocking().unwrap();
    let config = Config::with_socket("//u:hunter2@nowhere/locks", Some("/nowhere")).unwrap();
    let locks = Locks::builder(Arc::new(engine(config, &Env::system()))).build();
    let error = locks.mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.to_string().contains("cannot connect to /nowhere: "), "{error}");
}
