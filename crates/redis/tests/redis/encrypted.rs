//! TLS.

use std::{path::Path, sync::Arc};

use leasehold_core::{Env, Locks};
use leasehold_redis::{Address, Config, RedisEngine, Tls};
use leasehold_testkit::server::RedisServer;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::rig::acquire;

/// Writes an authority, a server's certificate for `localhost`, and a client's.
fn certify(directory: &Path) {
    let write = |name: &str, text: String| std::fs::write(directory.join(name), text).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "an authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    write("ca.pem", authority.pem());
    for (file, name) in [("server", "localhost"), ("client", "client")] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        write(&format!("{file}.pem"), params.signed_by(&key, &authority).unwrap().pem());
        write(&format!("{file}.key"), key.serialize_pem());
    }
}

#[test]
fn an_encrypted_connection_is_verified_both_ways() {
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path());
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (ca, certificate, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
    let port = RedisServer::port_for_tls();
    let server = RedisServer::start(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "yes",
    ]);
    let locks = |host: &str, tls: Tls| {
        let config = Config::new(Address::Tcp { host: host.to_owned(), port }).tls(tls);
        Locks::builder(Arc::new(RedisEngine::new(config, &Env::system()))).build()
    };
    let full = || Tls::system().roots(&ca).identity(file("client.pem"), file("client.key"));
    acquire(&locks("localhost", full()), "a").release_blocking().unwrap();
    for (locks, why) in [
        (
            locks("localhost", Tls::system().identity(file("client.pem"), file("client.key"))),
            "an unknown authority",
        ),
        (locks("127.0.0.1", full()), "another name than the certificate's"),
        (locks("localhost", Tls::system().roots(file("server.key"))), "a file without a certificate"),
        (locks("localhost", Tls::system().roots(file("missing"))), "a file that is not there"),
    ] {
        let error = locks.mutex("a").blocking().acquire().unwrap_err();
        assert!(error.is_misconfigured(), "{why}: {error}");
    }
    let silent =
        locks("localhost", Tls::system().roots(&ca)).mutex("a").blocking().try_acquire().unwrap_err();
    assert!(silent.is_misconfigured(), "without a certificate: {silent}");
    drop(server);
}
