//! A file that is replaced, deleted or emptied while it is in use.

use std::fs;

use leasehold_core::{Loss, Released, Renewed};

use crate::{
    client::{Client, claim},
    helper::Helper,
    rig::Rig,
};

fn remove(rig: &Rig) {
    for entry in fs::read_dir(rig.dir()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

/// Holders in the old file are notified of the loss; all clients use the new file, whether they used the old one or
/// not.
fn all_clients_use_the_new_file(rig: &Rig, replace: impl FnOnce()) {
    let (old, other) = (Client::new(&rig.path()), Client::new(&rig.path()));
    let job = claim("job");
    let grant = old.hold(&job);
    other.enqueue(&claim("job"));
    replace();
    let newcomer = Client::new(&rig.path());
    let next = claim("job");
    let new = newcomer.hold(&next);
    assert_ne!(new.token.lineage, grant.token.lineage);
    let renewed = old.renew(&job, &grant);
    assert!(matches!(renewed, Renewed::Lost(Loss::Replaced)), "{renewed:?}");
    assert!(matches!(old.release(&job, &grant), Released::NotThere));
    for client in [&old, &other] {
        client.enqueue(&claim("job"));
    }
    assert!(matches!(newcomer.renew(&next, &new), Renewed::Extended { .. }));
    assert_eq!(rig.query("PRAGMA integrity_check"), [r#"Text("ok")"#]);
}

#[test]
fn a_deleted_file_is_noticed() {
    let rig = Rig::new();
    all_clients_use_the_new_file(&rig, || remove(&rig));
}

#[test]
fn a_moved_file_is_noticed() {
    let rig = Rig::new();
    all_clients_use_the_new_file(&rig, || fs::rename(rig.path(), rig.dir().join("old.db")).unwrap());
}

#[test]
fn a_replaced_file_is_noticed() {
    let (rig, spare) = (Rig::new(), Rig::new());
    Client::new(&spare.path()).hold(&claim("another"));
    spare.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    all_clients_use_the_new_file(&rig, || {
        remove(&rig);
        fs::copy(spare.path(), rig.path()).map(drop).unwrap();
    });
}

#[test]
fn dropped_tables_are_noticed() {
    let rig = Rig::new();
    all_clients_use_the_new_file(&rig, || {
        rig.execute("DROP TABLE leasehold_claim; DROP TABLE leasehold_lock; DROP TABLE leasehold_memo; DROP TABLE leasehold_meta");
    });
}

#[test]
fn a_deleted_log_is_noticed() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    let mut other = Helper::start(&rig.path());
    let job = claim("job");
    let grant = client.hold(&job);
    assert_eq!(other.ask("claim another"), "held");
    for ending in ["-wal", "-shm"] {
        fs::remove_file(format!("{}{ending}", rig.path().display())).unwrap();
    }
    // A new process finds only what was moved from the log into the file: here nothing. So no client may rely on its
    // old holds.
    let mut newcomer = Helper::start(&rig.path());
    assert_eq!(newcomer.ask("claim next"), "held");
    assert_eq!(newcomer.ask("claim job"), "held");
    assert!(matches!(client.renew(&job, &grant), Renewed::Lost(_)));
    assert_eq!(other.ask("claim next"), "waiting");
    client.enqueue(&claim("next"));
}
