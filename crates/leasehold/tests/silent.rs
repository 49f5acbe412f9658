//! A server that accepts connections and never answers, like a host behind a firewall that drops packets: every request
//! ends after the connect timeout, on every engine with a server.
#![cfg(all(
    feature = "redis",
    feature = "etcd",
    feature = "zookeeper",
    feature = "postgres",
    feature = "mysql",
    feature = "tls"
))]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::{net::TcpListener, time::Duration};

use leasehold::{Connect, Error, Locks};
use leasehold_testkit::stopwatch::Stopwatch;

/// Far less than the default limit of one attempt.
const TIMEOUT: Duration = Duration::from_millis(600);
/// The latest end of a request: far less than the default, with a margin for a busy machine.
const LATEST: Duration = Duration::from_millis(2500);

/// A URL of each kind, with several servers where the engine allows it.
const URLS: [&str; 9] = [
    "redis://127.0.0.1:1/",
    "rediss://127.0.0.1:1/",
    "etcd://127.0.0.1:1",
    "etcd://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
    "zookeeper://127.0.0.1:1/chroot",
    "zookeeper://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
    "postgres://me@127.0.0.1:1/db",
    "postgres://me@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/db",
    "mysql://me@127.0.0.1:1/db",
];

/// Listeners whose connections are accepted by the kernel and never read, and the URLs with the ports of these
/// listeners.
fn silent() -> (Vec<TcpListener>, Vec<String>) {
    let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let put = |url: &str| {
        let mut url = url.to_owned();
        for (number, listener) in listeners.iter().enumerate() {
            let port = listener.local_addr().unwrap().port();
            url = url.replace(&format!("127.0.0.1:{}", number + 1), &format!("127.0.0.1={port}"));
        }
        url.replace("127.0.0.1=", "127.0.0.1:")
    };
    let urls = URLS.map(put).to_vec();
    (listeners, urls)
}

type Call = fn(&Locks) -> Result<(), Error>;

/// Runs each of `calls` with a client of its own, all at once, because they mostly wait.
fn assert_ends(locks: impl Fn(&str) -> Locks, calls: &[(&str, Call)]) {
    let (_listeners, urls) = silent();
    std::thread::scope(|scope| {
        for url in &urls {
            for (what, call) in calls {
                let locks = locks(url);
                scope.spawn(move || {
                    let watch = Stopwatch::start();
                    let error = call(&locks).unwrap_err();
                    assert!(error.is_unreachable(), "{what} of {url}: {error}");
                    let words = error.to_string();
                    // All servers share the timeout.
                    let shares: &[_] = if url.contains(',') { &["200ms", "600ms"] } else { &["600ms"] };
                    let within = |share: &&str| words.contains(&format!("no answer within {share}"));
                    let is_named = shares.iter().any(within) && words.contains("127.0.0.1");
                    // On a busy machine the whole timeout ends before the share of the last server.
                    assert!(
                        is_named || words.contains("not connected within 600ms"),
                        "{what} of {url}: {words}"
                    );
                    watch.assert_within(LATEST, &format!("{what} of {url}"));
                });
            }
        }
    });
}

#[test]
fn the_url_timeout_ends_every_request() {
    let locks = |url: &str| {
        let separator = if url.contains('?') { '&' } else { '?' };
        Locks::connect(&format!("{url}{separator}connect_timeout=600ms")).unwrap()
    };
    assert_ends(
        locks,
        &[
            ("acquire", |locks| locks.mutex("a").blocking().acquire().map(drop)),
            ("try_acquire", |locks| locks.mutex("a").blocking().try_acquire().map(drop)),
            ("show", |locks| locks.show_blocking("a").map(drop)),
            ("ping", |locks| locks.ping_blocking()),
        ],
    );
}

#[test]
fn the_program_timeout_applies_without_a_url_timeout() {
    let locks = |url: &str| Connect::default().connect_timeout(TIMEOUT).connect(url).unwrap();
    assert_ends(locks, &[("acquire", |locks| locks.mutex("a").blocking().acquire().map(drop))]);
}

/// An observer tries for ever. That does not count as an answer, so the requests beside it end all the same.
#[test]
fn a_request_beside_an_observer_ends() {
    let (listeners, urls) = silent();
    drop(listeners);
    std::thread::scope(|scope| {
        for url in urls {
            scope.spawn(move || {
                let locks = Connect::default().connect_timeout(TIMEOUT).connect(&url).unwrap();
                let mut watch = locks.election("lead").observe().unwrap();
                let observe = async { while watch.changed().await.is_ok() {} };
                let acquire = async {
                    // The observer is at work when the request is made.
                    let early = Box::pin(locks.mutex("a").acquire()).await.unwrap_err();
                    let late = locks.election("b").campaign().await.unwrap_err();
                    assert!(early.is_unreachable() && late.is_unreachable(), "{url}: {early}; {late}");
                };
                let limit = Duration::from_secs(60);
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let both = async {
                    tokio::select! { () = acquire => {}, () = observe => panic!("it ended") }
                };
                runtime.block_on(async { tokio::time::timeout(limit, both).await }).expect("it ends");
            });
        }
    });
}

/// The connections are refused, because the listeners are closed.
#[test]
fn a_ping_reports_a_missing_server() {
    let (listeners, urls) = silent();
    drop(listeners);
    for url in urls {
        let error = Locks::connect(&url).unwrap().ping_blocking().unwrap_err();
        assert!(error.is_unreachable() && error.to_string().contains("127.0.0.1"), "{url}: {error}");
    }
    let here = tempfile::tempdir().unwrap();
    for url in ["memory:".to_owned(), format!("file://{}", here.path().join("none").display())] {
        Locks::connect(&url).unwrap().ping_blocking().unwrap();
    }
    let url = format!("sqlite://{}", here.path().join("locks.db").display());
    Locks::connect(&url).unwrap().ping_blocking().unwrap();
    assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 0, "nothing is created");
}

/// The operator, who knows the network, writes the URL.
#[test]
fn the_url_timeout_overrides_that_of_the_program() {
    let locks = |url: &str| {
        let program = Connect::default().connect_timeout(Duration::from_secs(60));
        program.connect(&format!("{url}?connect_timeout=600ms")).unwrap()
    };
    assert_ends(locks, &[("ping", |locks| locks.ping_blocking())]);
}
