//! Names are compared byte by byte, and rows of unused names are deleted.

use leasehold_core::Guard;

use crate::rig::{Rig, acquire};

/// F62.
#[test]
fn similar_names_are_different_locks() {
    let rig = Rig::new();
    let locks = rig.locks();
    let long = "x".repeat(511);
    let mut names: Vec<String> =
        ["a", "A", "a ", " a", "ä", "a\u{308}", "Ä", "%", "_", "a/b", "a.b", "a'b", "a\\b", "a\"b", "$1"]
            .map(str::to_owned)
            .into();
    names.extend([format!("{long}a"), format!("{long}A"), "é".repeat(256), "e\u{301}".repeat(170)]);
    let guards: Vec<Guard> = names.iter().map(|name| acquire(&locks, name)).collect();
    assert!(guards.iter().all(Guard::check));
    for name in &names {
        assert!(rig.locks().mutex(name.as_str()).blocking().try_acquire().unwrap_err().is_taken(), "{name}");
        assert_eq!(rig.show(name).holders.len(), 1, "{name}");
    }
    let listed = rig.run(rig.locks().list("a")).unwrap();
    let mut expected: Vec<&String> = names.iter().filter(|name| name.starts_with('a')).collect();
    expected.sort();
    let listed: Vec<String> = listed.iter().map(|view| view.name.as_str().to_owned()).collect();
    assert_eq!(listed.iter().collect::<Vec<_>>(), expected);
    drop(guards);
}

/// Rows of names that were unused for an hour are deleted, and tokens still grow.
#[test]
fn unused_rows_are_deleted_and_tokens_still_grow() {
    let rig = Rig::new();
    let token = {
        let locks = rig.locks();
        let guard = acquire(&locks, "old");
        let token = guard.token();
        guard.release_blocking().unwrap();
        token
    };
    rig.server.query(
        "INSERT INTO leasehold_lock (name, token) SELECT 'unused' || n, 1 FROM generate_series(1, 2500) AS n",
    );
    // A client sweeps a while after its first claim.
    let locks = rig.locks();
    acquire(&locks, "b").release_blocking().unwrap();
    crate::rig::until("unused rows are deleted", || {
        rig.server.query("SELECT count(*) < 1600 FROM leasehold_lock WHERE name LIKE 'unused%'") == ["t"]
    });
    assert_eq!(
        rig.server.query("SELECT count(*) FROM leasehold_lock WHERE name = 'old'"),
        ["1"],
        "the name was just used"
    );
    rig.server.query("DELETE FROM leasehold_lock WHERE name = 'old'");
    let next = acquire(&locks, "old");
    assert!(next.token().number > token.number && next.token().lineage == token.lineage);
    next.release_blocking().unwrap();
}

/// A killed process leaves rows of its holds and queue entries: other clients end them.
#[test]
fn leftovers_of_dead_clients_are_ended() {
    let rig = Rig::new();
    let engine = rig.engine();
    let short = |name: &str| leasehold_core::Claim {
        ttl: std::time::Duration::from_millis(200),
        claim_time: std::time::Duration::from_millis(200),
        ..rig.claim(name)
    };
    rig.run(async {
        use leasehold_core::{Engine, How};
        let _ = engine.claim(&short("a"), How::Create).await;
        let shared = leasehold_core::Claim { mode: leasehold_core::Mode::Shared, ..short("b") };
        let _ = engine.claim(&shared, How::Create).await;
    });
    drop(engine);
    let locks = rig.locks();
    acquire(&locks, "c").release_blocking().unwrap();
    crate::rig::until("nothing is left", || rig.remaining_rows().is_empty());
}
