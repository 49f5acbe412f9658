//! Encryption by a configuration of the caller's.
#![cfg(all(feature = "redis", feature = "tls"))]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::Arc;

use leasehold::{
    Connect, Error, Locks, Tls,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};
use leasehold_testkit::server::RedisServer;

/// Shows the server its client's certificate, and trusts these authorities.
fn tls(server: &RedisServer, trusted: RootCertStore) -> Tls {
    let certificate = CertificateDer::from_pem_file(server.certificate("client.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(server.certificate("client.key")).unwrap();
    let config = ClientConfig::builder().with_root_certificates(trusted);
    Tls::with(Arc::new(config.with_client_auth_cert(vec![certificate], key).unwrap()))
}

fn connect(tls: Tls, url: &str) -> Result<Locks, Error> {
    Connect::default().tls(tls).connect(url)
}

#[test]
fn a_configuration_of_the_caller_decides_who_is_trusted() {
    let server = RedisServer::encrypted();
    let url = format!("rediss://localhost:{}", server.tls_port());
    let mut trusted = RootCertStore::empty();
    trusted.add(CertificateDer::from_pem_file(server.certificate("ca.pem")).unwrap()).unwrap();
    let locks = connect(tls(&server, trusted), &url).unwrap();
    locks.mutex("a").blocking().acquire().unwrap().release_blocking().unwrap();
    let nobody = connect(tls(&server, RootCertStore::empty()), &url).unwrap();
    let error = nobody.mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("certificate"), "{error}");
}

#[test]
fn a_configuration_is_refused_beside_options_and_where_nothing_is_encrypted() {
    for (url, word) in [
        ("rediss://h?ca=/ca.pem", "ca, cert and key"),
        ("rediss://h?cert=/c.pem&key=/k.pem", "ca, cert and key"),
        ("redis://h", "redis URLs are not encrypted"),
        ("redis+unix:///run/redis.sock", "not encrypted"),
        ("file:", "not encrypted"),
    ] {
        let error = connect(Tls::system(), url).unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains(word), "{url}: {error}");
    }
}
