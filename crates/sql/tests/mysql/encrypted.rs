//! TLS.

use std::sync::Arc;

use leasehold_core::{Env, Locks};
use leasehold_sql::{
    Encryption, Tls,
    mysql::{Config, engine},
};
use leasehold_testkit::server::MariadbServer;

use crate::rig::PATIENCE;

fn locks(host: &str, port: u16, tls: Option<Tls>) -> Locks {
    let config = Config::from_url(&format!("//root@{host}:{port}/locks")).unwrap();
    let config = config.encryption(tls.map_or(Encryption::Off, Encryption::Required));
    Locks::builder(Arc::new(engine(config, &Env::system()))).build()
}

#[test]
fn an_encrypted_connection_is_verified() {
    let server = MariadbServer::encrypted();
    let port = server.port();
    let trusting = || Tls::system().roots(server.certificate("ca.pem"));
    let first = locks("localhost", port, Some(trusting()));
    first.mutex("a").blocking().acquire_within(PATIENCE).unwrap().release_blocking().unwrap();
    // MariaDB gives no further reason.
    let plain = locks("localhost", port, None).mutex("a").blocking().acquire().unwrap_err();
    assert!(plain.is_denied() || plain.is_misconfigured(), "{plain}");
    for (locks, why) in [
        (locks("localhost", port, Some(Tls::system())), "an unknown authority"),
        (locks("127.0.0.1", port, Some(trusting())), "the certificate has another name"),
        (
            locks("localhost", port, Some(Tls::system().roots(server.certificate("server.key")))),
            "the file has no certificate",
        ),
        (locks("localhost", port, Some(Tls::system().roots(server.certificate("missing")))), "no such file"),
    ] {
        let error = locks.mutex("a").blocking().acquire().unwrap_err();
        assert!(error.is_misconfigured(), "{why}: {error}");
    }
}

#[test]
fn a_server_that_does_not_encrypt_is_not_used() {
    let server = MariadbServer::unencrypted(&[]);
    let error =
        locks("localhost", server.port(), Some(Tls::system())).mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("TLS"), "{error}");
}
