//! TLS.

use std::{path::PathBuf, sync::Arc};

use leasehold_core::{Env, Locks, Place};
use leasehold_redis::{Address, Config, RedisEngine, Tls};
use leasehold_testkit::server::RedisServer;

use crate::rig::acquire;

#[test]
fn an_encrypted_connection_is_verified_both_ways() {
    let server = RedisServer::encrypted();
    let file = |name: &str| -> PathBuf { server.certificate(name) };
    let locks = |host: &str, tls: Tls| {
        let config =
            Config::new(Address::Tcp(Place { host: host.to_owned(), port: server.tls_port() })).tls(tls);
        Locks::builder(Arc::new(RedisEngine::new(config, &Env::system()))).build()
    };
    let client = || Tls::system().identity(file("client.pem"), file("client.key"));
    let full = || client().roots(file("ca.pem"));
    acquire(&locks("localhost", full()), "a").release_blocking().unwrap();
    for (locks, why) in [
        (locks("localhost", client()), "an unknown authority"),
        (locks("127.0.0.1", full()), "another name than the certificate's"),
        (locks("localhost", Tls::system().roots(file("server.key"))), "a file without a certificate"),
        (locks("localhost", Tls::system().roots(file("missing"))), "a file that is not there"),
    ] {
        let error = locks.mutex("a").blocking().acquire().unwrap_err();
        assert!(error.is_misconfigured(), "{why}: {error}");
    }
    let silent = locks("localhost", Tls::system().roots(file("ca.pem")));
    let error = silent.mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.is_misconfigured(), "without a certificate: {error}");
}
