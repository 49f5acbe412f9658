//! What `diagnose` tells of good and of misconfigured servers.

use std::sync::Arc;

use leasehold_core::{Diagnostic, Env, Inspect, Level, Severity};
use leasehold_testkit::server::{ZookeeperEnsemble, ZookeeperServer};
use leasehold_zookeeper::{Config, ZookeeperEngine};

use crate::{
    rig::{Rig, acquire, local},
    rights::with_users,
};

/// A password in the configuration, which nothing may show.
const CANARY: &str = "canary-hunter2";

fn engine(config: Config) -> Arc<ZookeeperEngine> {
    Arc::new(ZookeeperEngine::new(config, &Env::system()))
}

/// What a client with a login tells.
fn told(rig: &Rig) -> Vec<Diagnostic> {
    let client = engine(rig.config.clone().login("somebody", CANARY));
    let told = rig.run(client.diagnose()).unwrap();
    for diagnostic in &told {
        let text = format!("{diagnostic:?}");
        assert!(!text.contains(CANARY), "{text}");
        assert!(!diagnostic.found.is_empty() && !diagnostic.found.contains('\n'), "{text}");
        assert!(diagnostic.severity == Severity::Good || !diagnostic.advice.is_empty(), "{text}");
    }
    told
}

/// Checks the severity of the only diagnostic with this id, and that its texts contain a word.
fn assert_told(told: &[Diagnostic], id: &str, severity: Severity, word: &str) {
    let found: Vec<_> = told.iter().filter(|diagnostic| diagnostic.id == id).collect();
    let [diagnostic] = found[..] else { panic!("{id}: {told:?}") };
    assert_eq!(diagnostic.severity, severity, "{diagnostic:?}");
    let text = format!("{} {}", diagnostic.found, diagnostic.advice);
    assert!(text.contains(word), "{diagnostic:?}");
}

/// The level and the settings that lower it.
fn guarantee(rig: &Rig) -> (Level, Vec<String>) {
    let client = rig.engine();
    let guarantee = rig.run(client.guarantee()).unwrap();
    (guarantee.level, guarantee.findings.into_iter().map(|finding| finding.what).collect())
}

#[test]
fn a_good_server_has_only_good_diagnostics_and_stays_as_it_was() {
    let rig = Rig::of(ZookeeperServer::durable(&[]));
    let nodes = |rig: &Rig| {
        let report = rig.server.four_letter_command("mntr");
        report.lines().find_map(|line| line.strip_prefix("zk_znode_count").map(str::to_owned)).unwrap()
    };
    let before = nodes(&rig);
    let good = told(&rig);
    for id in [
        "zookeeper-server",
        "zookeeper-force-sync",
        "zookeeper-tick",
        "zookeeper-timeouts",
        "zookeeper-load",
        "zookeeper-tls",
        "zookeeper-login",
        "zookeeper-quorum",
        "zookeeper-rights",
    ] {
        assert_told(&good, id, Severity::Good, "");
    }
    assert!(good.iter().all(|diagnostic| diagnostic.severity == Severity::Good), "{good:?}");
    assert_eq!(good[0].server, Some(format!("127.0.0.1:{}", rig.server.port())));
    assert_eq!(guarantee(&rig), (Level::LeaseBounded, Vec::new()));
    assert_eq!(nodes(&rig), before, "nothing was created");
    rig.until("no session is left", || rig.sessions() == 0);
    // Programs may ask for the guarantee often: it makes no session where the reports answer everything.
    let changes = |rig: &Rig| {
        let report = rig.server.four_letter_command("srvr");
        report.lines().find_map(|line| line.strip_prefix("Zxid: ").map(str::to_owned)).unwrap()
    };
    let before = changes(&rig);
    assert_eq!(guarantee(&rig), (Level::LeaseBounded, Vec::new()));
    assert_eq!(changes(&rig), before);
}

#[test]
fn settings_that_harm_locks_are_told() {
    let rig = Rig::with(&["maxSessionTimeout=20000"]);
    let found = told(&rig);
    assert_told(&found, "zookeeper-force-sync", Severity::Warning, "remove forceSync=no");
    assert_told(&found, "zookeeper-timeouts", Severity::Warning, "maxSessionTimeout");
    assert_eq!(guarantee(&rig), (Level::BestEffort, vec!["forceSync".to_owned()]));
    let rig = Rig::of(ZookeeperServer::durable(&["tickTime=4000"]));
    assert_told(&told(&rig), "zookeeper-tick", Severity::Warning, "tickTime is 4s");
    assert_eq!(guarantee(&rig), (Level::BestEffort, vec!["tickTime".to_owned()]));
}

#[test]
fn words_that_are_not_allowed_are_named() {
    let rig = Rig::of(ZookeeperServer::durable(&["4lw.commands.whitelist=srvr"]));
    let found = told(&rig);
    assert_told(&found, "zookeeper-server", Severity::Good, "standalone");
    assert_told(&found, "zookeeper-force-sync", Severity::Unknown, "mntr");
    assert_told(&found, "zookeeper-load", Severity::Unknown, "add mntr to 4lw.commands.whitelist");
    // Without the word `conf` the shortest timeout shows that the tick is short enough.
    assert_told(&found, "zookeeper-tick", Severity::Good, "shortest timeout of a session is 1s");
    assert_eq!(guarantee(&rig).0, Level::LeaseBounded);
}

#[test]
fn a_login_without_rights_is_told() {
    let rig = with_users();
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    assert_told(&told(&rig), "zookeeper-rights", Severity::Broken, "rights cdrwa");
    let client = rig.engine();
    let found = rig.run(client.diagnose()).unwrap();
    assert_told(&found, "zookeeper-rights", Severity::Good, "");
}

#[test]
fn every_server_of_an_ensemble_is_looked_at() {
    let mut ensemble = ZookeeperEnsemble::start();
    let config = Config::new(ensemble.ports().map(local).to_vec());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let look = || runtime.block_on(engine(config.clone()).diagnose());
    let in_sync = |wanted: &str| {
        (0..1000).any(|_| {
            let told = look().unwrap();
            let quorum = told.iter().find(|diagnostic| diagnostic.id == "zookeeper-quorum").unwrap();
            quorum.found.contains(wanted)
        })
    };
    assert!(in_sync("3 of 3 servers are in sync"));
    let told = look().unwrap();
    assert_told(&told, "zookeeper-quorum", Severity::Good, "");
    let servers: Vec<_> = told.iter().filter(|diagnostic| diagnostic.id == "zookeeper-server").collect();
    assert_eq!(servers.len(), 3, "{servers:?}");
    assert_eq!(servers.iter().filter(|server| server.found.contains("leader")).count(), 1, "{servers:?}");
    let follower = (ensemble.leader() + 1) % 3;
    ensemble.kill(follower);
    assert!(in_sync("2 of 3 servers are in sync"));
    let told = look().unwrap();
    assert_told(&told, "zookeeper-quorum", Severity::Warning, "start the others");
    let lost = told.iter().find(|diagnostic| diagnostic.server == Some(config_address(&ensemble, follower)));
    let lost = lost.unwrap();
    assert!(lost.id == "zookeeper-server" && lost.severity == Severity::Warning, "{lost:?}");
    for node in (0..3).filter(|node| *node != follower) {
        ensemble.kill(node);
    }
    assert!(look().unwrap_err().message.contains("cannot connect"));
}

/// The address of a server, as the diagnostics name it.
fn config_address(ensemble: &ZookeeperEnsemble, node: usize) -> String {
    format!("127.0.0.1:{}", ensemble.ports()[node])
}

#[cfg(feature = "tls")]
#[test]
fn the_end_of_the_certificate_is_told() {
    use leasehold_core::Endpoint;
    use leasehold_zookeeper::Tls;

    let server = ZookeeperServer::encrypted();
    let (host, port) =
        server.url().strip_prefix("zookeepers://").unwrap().split_once(':').map(owned).unwrap();
    let tls = Tls::system()
        .roots(server.certificate("ca.pem"))
        .identity(server.certificate("client.pem"), server.certificate("client.key"));
    let client = engine(Config::new(vec![Endpoint { host, port }]).tls(tls));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // The first handshakes of a new server can take longer than the limit of a look.
    let look = || runtime.block_on(client.diagnose());
    let told = (0..20).find_map(|_| look().ok()).unwrap_or_else(|| look().unwrap());
    assert_told(&told, "zookeeper-tls", Severity::Good, "the certificate of the server expires in ");
}

/// A host and its port.
#[cfg(feature = "tls")]
fn owned((host, port): (&str, &str)) -> (String, u16) {
    (host.to_owned(), port.parse().unwrap())
}
