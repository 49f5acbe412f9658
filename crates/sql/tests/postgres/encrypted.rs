//! TLS.

use std::sync::Arc;

use leasehold_core::{Env, Locks};
use leasehold_sql::{
    Encryption, Tls,
    postgres::{Config, engine},
};
use leasehold_testkit::server::PostgresServer;

use crate::rig::{Rig, acquire};

fn locks(host: &str, port: u16, tls: Tls) -> Locks {
    let url = format!("//anna:secret@{host}:{port}/postgres");
    let config = Config::from_url(&url).unwrap().encryption(Encryption::Required(tls));
    Locks::builder(Arc::new(engine(config, &Env::system()))).build()
}

#[test]
fn an_encrypted_connection_is_verified() {
    let server = PostgresServer::encrypted("anna", "secret");
    let port = server.port();
    let trusting = || Tls::system().roots(server.certificate("ca.pem"));
    let (first, second) = (locks("localhost", port, trusting()), locks("localhost", port, trusting()));
    let guard = acquire(&first, "a");
    let waiting = std::thread::spawn(move || acquire(&second, "a"));
    std::thread::sleep(std::time::Duration::from_millis(100));
    guard.release_blocking().unwrap();
    waiting.join().unwrap().release_blocking().unwrap();
    for (locks, why) in [
        (locks("localhost", port, Tls::system()), "an unknown authority"),
        (locks("127.0.0.1", port, trusting()), "the certificate has another name"),
        (
            locks("localhost", port, Tls::system().roots(server.certificate("server.key"))),
            "the file has no certificate",
        ),
        (locks("localhost", port, Tls::system().roots(server.certificate("missing"))), "no such file"),
    ] {
        let error = locks.mutex("a").blocking().acquire().unwrap_err();
        assert!(error.is_misconfigured(), "{why}: {error}");
    }
}

#[test]
fn a_server_that_does_not_encrypt_is_not_used() {
    let rig = Rig::new();
    let error =
        locks("localhost", rig.server.port(), Tls::system()).mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("TLS"), "{error}");
}
