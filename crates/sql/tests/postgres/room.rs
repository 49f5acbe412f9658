//! A full disk: the tables are on a file system of their own.

use std::{
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use leasehold_core::{Answer, Claim, Engine, Fault, How, Mode, Released};
use leasehold_testkit::server::{PostgresServer, psql};

use crate::rig::{Rig, release_of};

const TEST: &str = "room::a_full_disk_is_refused_and_holds_stay";
const INNER: &str = "LEASEHOLD_TEST_ROOM";

/// More claims than fit into the file system.
const MOST: usize = 20_000;

/// The directory of a small file system in a private mount namespace. Outside of that namespace this function runs the
/// test again inside of it, and returns `None`.
fn small() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os(INNER) {
        return Some(dir.into());
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=1m none \"$0\" && exec \"$@\"";
    let mut again = Command::new("unshare");
    again.args(["--mount", "sh", "-c", script]).arg(dir.path()).arg(std::env::current_exe().unwrap());
    let output = again.args(["--exact", TEST]).env(INNER, dir.path()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("running 1 test"), "this test needs mount namespaces: run it as root: {text}");
    assert!(output.status.success(), "{text}");
    None
}

/// A server whose tables are in that directory.
fn rig_in(dir: &Path) -> Rig {
    // Autovacuum would free the space of rows that did not fit.
    let rig = Rig::of(PostgresServer::start(&["autovacuum=off"]));
    let data = rig.server.query("SHOW data_directory").remove(0);
    let owner = std::fs::metadata(data).unwrap();
    chown(dir, Some(owner.uid()), Some(owner.gid())).unwrap();
    rig.server.query(&format!("CREATE TABLESPACE small LOCATION '{}'", dir.display()));
    rig.server.query("ALTER DATABASE postgres SET default_tablespace = small");
    rig
}

/// A claim that lasts longer than the test.
fn claim(rig: &Rig, name: &str) -> Claim {
    let ttl = Duration::from_secs(600);
    Claim { ttl, claim_time: ttl, ..rig.claim(name) }
}

#[test]
fn a_full_disk_is_refused_and_holds_stay() {
    let Some(dir) = small() else { return };
    let rig = rig_in(&dir);
    let (one, other) = (rig.engine(), rig.engine());
    let held = claim(&rig, "held");
    let taken = |answer| matches!(answer, Ok(Answer::Held(_)));
    assert!(taken(rig.run(one.claim(&held, How::Create))));
    rig.server.query("CREATE TABLE junk (a text)");
    let fill = "INSERT INTO junk SELECT repeat('x', 1000) FROM generate_series(1, 10000)";
    let output = psql(rig.server.port(), &["-c", fill]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("No space left on device"), "{error}");

    // The fast path fails when the first page is full; a transaction needs the first page of another table.
    let mut others = Vec::new();
    let refused = loop {
        let claim = claim(&rig, &format!("other{}", others.len()));
        match rig.run(one.claim(&claim, How::Create)) {
            Ok(Answer::Held(_)) if others.len() < MOST => others.push(claim),
            answer => break answer.unwrap_err(),
        }
    };
    let shared = Claim { mode: Mode::Shared, ..claim(&rig, "shared") };
    for error in [refused, rig.run(other.claim(&shared, How::Create)).unwrap_err()] {
        assert_eq!(error.fault, Fault::Refused, "{error:?}");
        assert!(error.message.contains("No space left on device"), "{error:?}");
    }

    let late = Claim { may_queue: false, ..claim(&rig, "held") };
    let answer = rig.run(other.claim(&late, How::Create));
    assert!(matches!(answer, Ok(Answer::Taken(_))), "{answer:?}");
    for claim in others.iter().chain([&held]) {
        let released = rig.run(one.release(&release_of(claim))).remove(0);
        assert!(matches!(released, Released::Freed), "{}: {released:?}", claim.name);
    }
    assert!(taken(rig.run(other.claim(&late, How::Create))), "an existing row needs no space");

    rig.server.query("DROP TABLE junk");
    assert!(taken(rig.run(other.claim(&shared, How::Create))));
    for number in 0..2 * others.len() {
        let claim = claim(&rig, &format!("more{number}"));
        assert!(taken(rig.run(one.claim(&claim, How::Create))), "{}", claim.name);
    }
}
