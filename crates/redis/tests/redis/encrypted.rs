//! Encrypted connections (TLS).

use std::{path::PathBuf, sync::Arc};

use leasehold_core::{Endpoint, Env, Locks};
use leasehold_redis::{Address, AddressMap, Config, RedisEngine, Sentinels, Tls};
use leasehold_testkit::server::{
    RedisCluster, RedisClusterOptions, RedisFailover, RedisSentinelOptions, RedisSentinels, RedisServer,
};

use crate::{
    rig::{PATIENCE, acquire, local},
    sentinel_rig::{late_failover, locks_of},
};

#[test]
fn an_encrypted_connection_is_verified_both_ways() {
    let server = RedisServer::encrypted();
    let file = |name: &str| -> PathBuf { server.certificate(name) };
    let locks = |host: &str, tls: Tls| {
        let config =
            Config::new(Address::Tcp(Endpoint { host: host.to_owned(), port: server.tls_port() })).tls(tls);
        Locks::builder(Arc::new(RedisEngine::new(config, &Env::system()))).build()
    };
    let client = || Tls::system().identity(file("client.pem"), file("client.key"));
    let full = || client().roots(file("ca.pem"));
    acquire(&locks("localhost", full()), "a").release_blocking().unwrap();
    for (locks, reason) in [
        (locks("localhost", client()), "an unknown authority"),
        (locks("127.0.0.1", full()), "another name than the certificate's"),
        (locks("localhost", Tls::system().roots(file("server.key"))), "a file without a certificate"),
        (locks("localhost", Tls::system().roots(file("missing"))), "a missing file"),
    ] {
        let error = locks.mutex("a").blocking().acquire().unwrap_err();
        assert!(error.is_misconfigured(), "{reason}: {error}");
    }
    let without_identity = locks("localhost", Tls::system().roots(file("ca.pem")));
    let error = without_identity.mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.is_misconfigured(), "without a certificate: {error}");
}

fn localhost(port: u16) -> Endpoint {
    Endpoint { host: "localhost".to_owned(), port }
}

/// Asserts that a connection with each configuration fails because of a certificate; the text says what is wrong.
fn assert_refused(configs: Vec<(Config, &str)>) {
    for (config, reason) in configs {
        let error = locks_of(config).mutex("a").blocking().acquire_within(PATIENCE).unwrap_err();
        assert!(error.is_misconfigured(), "{reason}: {error}");
        let text = error.to_string().to_lowercase();
        assert!(text.contains("certificate"), "{reason}: {text}");
    }
}

/// Nodes announce their TLS ports to clients that use TLS.
#[test]
fn a_cluster_can_be_reached_by_tls_only() {
    let options = RedisClusterOptions { tls: true, ..RedisClusterOptions::default() };
    let mut cluster = RedisCluster::start_with(options);
    let file = |cluster: &RedisCluster, name: &str| cluster.certificate(name);
    let client = Tls::system().identity(file(&cluster, "client.pem"), file(&cluster, "client.key"));
    let full = client.clone().roots(file(&cluster, "ca.pem"));
    let seed = cluster.tls_ports()[0];
    let config = |tls: Tls| Config::cluster(vec![localhost(seed)]).tls(tls);
    // Nodes announce an address, but their certificates contain a host name.
    let map = AddressMap::parse("127.0.0.1=localhost").unwrap();
    let locks = locks_of(config(full.clone()).map(map.clone()));
    let all = |prefix: &str| {
        for number in 0..20 {
            acquire(&locks, &format!("{prefix}{number}")).release_blocking().unwrap();
        }
    };
    all("a");
    let (held, other) = (acquire(&locks, "w"), locks_of(config(full.clone()).map(map.clone())));
    let waits = std::thread::spawn(move || acquire(&other, "w").release_blocking());
    cluster.wait_until_stable();
    cluster.failover(3, RedisFailover::Plain).unwrap();
    all("b");
    held.release_blocking().unwrap();
    waits.join().unwrap().unwrap();
    let without_identity = Tls::system().roots(file(&cluster, "ca.pem"));
    assert_refused(vec![
        (config(client).map(map.clone()), "an unknown authority"),
        (config(without_identity).map(map), "without a certificate"),
        (Config::cluster(vec![local(seed)]).tls(full.clone()), "another name than the certificate's"),
    ]);
    let plain = Config::cluster(vec![localhost(cluster.ports()[0])]).tls(full);
    let error = locks_of(plain).mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.to_string().contains("does the server speak TLS on this port?"), "{error}");
    let error = locks_of(Config::cluster(vec![localhost(seed)])).mutex("a").blocking().try_acquire();
    assert!(error.as_ref().unwrap_err().to_string().contains("rediss+cluster://"), "{error:?}");
}

/// The Sentinels may use TLS and the servers not, or the other way round.
#[test]
fn sentinels_and_servers_use_tls_independently() {
    let still = RedisSentinelOptions { down_after: std::time::Duration::from_secs(120), ..late_failover() };
    let group = RedisSentinels::start_with(RedisSentinelOptions { tls: true, ..still });
    let file = |name: &str| group.certificate(name);
    let client = Tls::system().identity(file("client.pem"), file("client.key"));
    let full = client.clone().roots(file("ca.pem"));
    let (nodes, sentinels) = group.tls_ports();
    let pairs = group.ports().into_iter().zip(nodes);
    let pairs: Vec<_> = pairs.map(|(port, tls)| format!("127.0.0.1:{port}=localhost:{tls}")).collect();
    let map = AddressMap::parse(&pairs.join(",")).unwrap();
    let of = |ports: &[u16]| {
        let endpoints = ports.iter().map(|&port| localhost(port)).collect();
        Config::sentinels(Sentinels::new(endpoints, group.name()))
    };
    let (encrypted, plain) = (|| of(sentinels), || of(&group.sentinel_ports()));
    for config in [
        encrypted().sentinel_tls(full.clone()).tls(full.clone()).map(map.clone()),
        encrypted().sentinel_tls(full.clone()),
        plain().tls(full.clone()).map(map.clone()),
    ] {
        acquire(&locks_of(config), "a").release_blocking().unwrap();
    }
    let without_identity = Tls::system().roots(file("ca.pem"));
    assert_refused(vec![
        (encrypted().sentinel_tls(client.clone()), "Sentinels of an unknown authority"),
        (encrypted().sentinel_tls(without_identity.clone()), "Sentinels that want a certificate"),
        (plain().tls(client).map(map.clone()), "servers of an unknown authority"),
        (plain().tls(without_identity).map(map), "servers that want a certificate"),
    ]);
    let error = locks_of(plain().sentinel_tls(full)).mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.to_string().contains("does the server speak TLS on this port?"), "{error}");
    let error = locks_of(encrypted()).mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.to_string().contains("rediss+sentinel://"), "{error}");
}
