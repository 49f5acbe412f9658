//! TLS by a configuration of the caller, and by the options of a URL.
#![cfg(all(feature = "redis", feature = "etcd", feature = "zookeeper", feature = "tls"))]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::{path::Path, sync::Arc, time::Duration};

use leasehold::{
    Connect, Error, Locks, Tls,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};
use leasehold_testkit::server::{EtcdServer, RedisServer, ZookeeperServer};

/// The time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Presents this client certificate, whose key is in the same directory, and trusts these authorities.
fn tls(client: &Path, trusted: RootCertStore) -> Tls {
    let certificate = CertificateDer::from_pem_file(client).unwrap();
    let key = PrivateKeyDer::from_pem_file(client.with_extension("key")).unwrap();
    let config = ClientConfig::builder().with_root_certificates(trusted);
    Tls::with(Arc::new(config.with_client_auth_cert(vec![certificate], key).unwrap()))
}

fn connect(tls: Tls, url: &str) -> Result<Locks, Error> {
    Connect::default().tls(tls).connect(url)
}

fn lock(locks: &Locks) -> Result<(), Error> {
    locks.mutex("a").blocking().acquire()?.release_blocking()
}

/// Checks that a lock is acquired if the authority is trusted, and refused otherwise.
fn is_decided_by_the_configuration(url: &str, authority: &Path, client: &Path) {
    let mut trusted = RootCertStore::empty();
    trusted.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    lock(&connect(tls(client, trusted), url).unwrap()).unwrap();
    let error = lock(&connect(tls(client, RootCertStore::empty()), url).unwrap()).unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("certificate"), "{error}");
}

#[test]
fn redis_clients_use_the_configuration_of_the_caller() {
    let server = RedisServer::encrypted();
    let url = format!("rediss://localhost:{}", server.tls_port());
    is_decided_by_the_configuration(&url, &server.certificate("ca.pem"), &server.certificate("client.pem"));
}

#[test]
fn etcd_clients_use_the_configuration_of_the_caller() {
    let server = EtcdServer::encrypted();
    is_decided_by_the_configuration(
        &server.url(),
        &server.certificate("ca.pem"),
        &server.certificate("client.pem"),
    );
}

#[test]
fn zookeeper_clients_use_the_configuration_of_the_caller() {
    let server = ZookeeperServer::encrypted();
    is_decided_by_the_configuration(
        &server.url(),
        &server.certificate("ca.pem"),
        &server.certificate("client.pem"),
    );
}

#[test]
fn zookeeper_accepts_the_files_of_the_url() {
    let server = ZookeeperServer::encrypted();
    let file = |name| server.certificate(name).display().to_string();
    let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    lock(&Locks::connect(&format!("{}?ca={ca}&cert={cert}&key={key}", server.url())).unwrap()).unwrap();
    let error = lock(&Locks::connect(&format!("{}?ca={ca}", server.url())).unwrap()).unwrap_err();
    assert!(
        error.is_misconfigured() && error.to_string().contains("by TLS"),
        "without a certificate: {error}"
    );
}

#[test]
fn etcd_accepts_only_the_files_of_the_url() {
    let (server, other) = (EtcdServer::encrypted(), EtcdServer::encrypted());
    let url = |authority: &EtcdServer, client: Option<&EtcdServer>| {
        let file = |of: &EtcdServer, name| of.certificate(name).display().to_string();
        let identity =
            client.map(|of| format!("&cert={}&key={}", file(of, "client.pem"), file(of, "client.key")));
        format!("{}?ca={}{}", server.url(), file(authority, "ca.pem"), identity.unwrap_or_default())
    };
    let right = url(&server, Some(&server));
    lock(&Locks::connect(&right).unwrap()).unwrap();
    let elsewhere = right.replace("localhost", "127.0.0.1");
    for (url, words) in [
        (url(&other, Some(&server)), "invalid peer certificate"),
        (server.url(), "certificate"),
        (elsewhere, "not valid for name"),
        (url(&server, None), "by TLS: received fatal alert: BadCertificate"),
        (url(&server, Some(&other)), "by TLS: received fatal alert: BadCertificate"),
    ] {
        let error = lock(&Locks::connect(&url).unwrap()).unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains(words), "{url}: {error}");
    }
    let plain = format!("etcd://localhost:{}?connect_timeout=500ms", server.port());
    let error = lock(&Locks::connect(&plain).unwrap()).unwrap_err();
    assert!(error.is_unreachable(), "nothing is sent without encryption: {error}");
}

/// Two of three nodes are encrypted; the URL sets it for each node.
#[test]
fn each_redlock_node_has_its_own_encryption() {
    let first = RedisServer::encrypted();
    let (second, plain) = (first.encrypted_with_same_certificate(), RedisServer::start(&[]));
    let file = |name| first.certificate(name).display().to_string();
    let (ca, own) = (file("ca.pem"), format!("cert={}&key={}", file("client.pem"), file("client.key")));
    let url = |of_tls: &str, options: &str| {
        let (one, two, three) = (first.tls_port(), second.tls_port(), plain.port());
        let nodes = format!("{of_tls}localhost:{one},{of_tls}localhost:{two},localhost:{three}");
        format!("redlock://{nodes}?max_ttl=1s{options}")
    };
    let lock = |url: &str| Locks::connect(url).unwrap().mutex("a").ttl(Duration::from_secs(1)).blocking();
    let right = url("rediss://", &format!("&ca={ca}&{own}"));
    // New nodes have no vote for some seconds.
    let guard = lock(&right).acquire_within(PATIENCE).unwrap();
    // The nodes outside of the deciding majority have the lock a little later.
    let limit = std::time::Instant::now() + PATIENCE;
    while [&first, &second, &plain].iter().any(|node| node.command(&["EXISTS", "lock:a"]) != ["1"]) {
        assert!(std::time::Instant::now() < limit, "a node was not reached");
    }
    guard.release_blocking().unwrap();
    for (url, words) in [
        (url("rediss://", &format!("&ca={ca}")), "ertificate"),
        (url("rediss://", ""), "ertificate"),
        (url("", ""), "write rediss://"),
    ] {
        let error = lock(&url).try_acquire().unwrap_err();
        assert!(error.to_string().contains(words), "{url}: {error}");
    }
}

/// `openssl req -x509` creates such certificates by default.
#[test]
fn an_authority_as_server_certificate_is_explained() {
    let server = RedisServer::encrypted_with_authority_certificate();
    let url =
        format!("rediss://localhost:{}?ca={}", server.tls_port(), server.certificate("ca.pem").display());
    let error = lock(&Locks::connect(&url).unwrap()).unwrap_err();
    let message = error.to_string();
    assert!(error.is_misconfigured() && message.contains("CA:FALSE"), "{message}");
    assert!(!message.contains("Other("), "the explanation replaces the name: {message}");
}

#[test]
fn tls_on_the_wrong_port_is_explained() {
    let (redis, etcd, zookeeper) =
        (RedisServer::encrypted(), EtcdServer::encrypted(), ZookeeperServer::encrypted());
    let plain = (RedisServer::start(&[]), EtcdServer::start(&[]), ZookeeperServer::start(&[]));
    let port_of = |url: String| url.rsplit_once(':').unwrap().1.to_owned();
    let hint = "does the server speak TLS on this port?";
    for (url, words) in [
        (format!("redis://localhost:{}", redis.tls_port()), "write rediss://"),
        (format!("etcd://localhost:{}", port_of(etcd.url())), "write etcds://"),
        (format!("zookeeper://localhost:{}", port_of(zookeeper.url())), "write zookeepers://"),
        (format!("rediss://localhost:{}", plain.0.port()), hint),
        (plain.1.url().replace("etcd://", "etcds://"), hint),
        (plain.2.url().replace("zookeeper://", "zookeepers://"), hint),
    ] {
        let error = Locks::connect(&url).unwrap().mutex("a").blocking().try_acquire().unwrap_err();
        assert!(error.to_string().contains(words), "{url}: {error}");
    }
}

#[test]
fn a_configuration_is_refused_with_options_or_without_encryption() {
    for (url, word) in [
        ("rediss://h?ca=/ca.pem", "ca, cert and key"),
        ("rediss://h?cert=/c.pem&key=/k.pem", "ca, cert and key"),
        ("etcds://h?ca=/ca.pem", "ca, cert and key"),
        ("zookeepers://h?ca=/ca.pem", "ca, cert and key"),
        ("zookeeper://h", "write rediss or etcds or zookeepers"),
        ("redis://h", "redis URLs are not encrypted"),
        ("etcd://h", "etcd URLs are not encrypted"),
        ("redis+unix:///run/redis.sock", "not encrypted"),
        ("file:", "not encrypted"),
    ] {
        let error = connect(Tls::system(), url).unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains(word), "{url}: {error}");
    }
}
