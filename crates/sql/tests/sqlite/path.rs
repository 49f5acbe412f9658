//! Unusable paths: each is refused with the reason and a remedy.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use leasehold_core::{Env, Fault, Inspect};
use leasehold_sql::sqlite::engine;

use crate::{
    client::{Client, claim},
    helper::{Helper, NOBODY, am_root},
    rig::Rig,
    until::until,
};

/// Asserts that the path is refused with this fault, and that the message has the path and these words.
#[track_caller]
fn assert_refused(path: &Path, fault: Fault, words: &[&str]) {
    let (found, message) = Client::new(path).refusal();
    assert_eq!(found, fault, "{message}");
    for word in words.iter().chain(&[path.to_str().unwrap()]) {
        assert!(message.contains(word), "{word:?} is missing: {message}");
    }
}

#[test]
fn a_relative_path_is_refused() {
    let error = engine(Path::new("locks.db"), &Env::system()).unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("sqlite:///path"), "{error}");
}

#[test]
fn a_missing_directory_is_refused() {
    let rig = Rig::new();
    assert_refused(&rig.dir().join("no/locks.db"), Fault::Misconfigured, &["does not exist", "create it"]);
}

#[test]
fn a_directory_is_refused() {
    let rig = Rig::new();
    fs::create_dir(rig.path()).unwrap();
    assert_refused(&rig.path(), Fault::Misconfigured, &["a directory"]);
    assert_refused(Path::new("/"), Fault::Misconfigured, &["a directory"]);
}

#[test]
fn a_device_is_refused() {
    assert_refused(Path::new("/dev/null"), Fault::Misconfigured, &["no regular file"]);
}

#[test]
fn a_foreign_file_is_refused_unchanged() {
    let rig = Rig::new();
    let text = "the diary of somebody else\n".repeat(500);
    fs::write(rig.path(), &text).unwrap();
    assert_refused(&rig.path(), Fault::Misconfigured, &["not a database", "give the path of"]);
    assert_eq!(fs::read_to_string(rig.path()).unwrap(), text);
}

#[test]
fn a_file_with_hard_links_is_refused() {
    let rig = Rig::new();
    rig.execute("CREATE TABLE things (thing)");
    fs::hard_link(rig.path(), rig.dir().join("other.db")).unwrap();
    assert_refused(&rig.path(), Fault::Misconfigured, &["2 names"]);
}

#[test]
fn files_of_another_user_need_write_rights() {
    assert!(am_root(), "becoming another user needs root: run this test as root");
    let rig = Rig::new();
    rig.execute("CREATE TABLE things (thing)");
    let mode = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(rig.dir(), 0o777);
    mode(&rig.path(), 0o644);
    let claim_as_nobody = || Helper::start_as(&NOBODY, &rig.path()).ask("claim job");
    let denied = claim_as_nobody();
    assert!(
        denied.contains("Denied") && denied.contains("may not write") && denied.contains("locks.db"),
        "{denied}"
    );
    mode(&rig.path(), 0o666);
    mode(rig.dir(), 0o755);
    let denied = claim_as_nobody();
    assert!(denied.contains("Denied") && denied.contains("beside it"), "{denied}");
    mode(rig.dir(), 0o777);
    assert_eq!(claim_as_nobody(), "held");
}

#[test]
fn a_symbolic_link_leads_to_the_same_locks() {
    let rig = Rig::new();
    let link = rig.dir().join("link.db");
    std::os::unix::fs::symlink(rig.path(), &link).unwrap();
    let (one, other) = (Client::new(&rig.path()), Client::new(&link));
    one.hold(&claim("job"));
    other.enqueue(&claim("job"));
}

#[test]
fn special_characters_in_a_path_work() {
    let rig = Rig::new();
    let path = rig.dir().join("a b?mode=memory#%41';--.db");
    let (one, other) = (Client::new(&path), Client::new(&path));
    one.hold(&claim("job"));
    other.enqueue(&claim("job"));
    assert!(path.exists());
}

#[test]
fn a_look_creates_nothing() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    assert!(client.show("job").unwrap().holders.is_empty());
    assert_eq!(fs::read_dir(rig.dir()).unwrap().count(), 0);
    client.hold(&claim("job"));
    assert_eq!(client.show("job").unwrap().holders.len(), 1);
}

#[test]
fn a_look_leaves_a_foreign_file_unchanged() {
    let rig = Rig::new();
    rig.execute("CREATE TABLE things (thing); INSERT INTO things VALUES ('mine')");
    let before = fs::read(rig.path()).unwrap();
    let client = Client::new(&rig.path());
    for _ in 0..2 {
        assert!(client.show("job").unwrap().holders.is_empty());
        assert!(client.runtime.block_on(client.engine.list("")).unwrap().is_empty());
        client.runtime.block_on(client.engine.guarantee()).unwrap();
        assert_eq!(fs::read(rig.path()).unwrap(), before);
        assert_eq!(fs::read_dir(rig.dir()).unwrap().count(), 1);
    }
    client.hold(&claim("job"));
    assert_eq!(client.show("job").unwrap().holders.len(), 1);
    assert_eq!(rig.query("SELECT count(*) FROM things"), ["Integer(1)"]);
}

/// A user who may only read sees the holds, also while no other process uses the file, and creates no files.
#[test]
fn a_look_needs_no_right_to_write() {
    assert!(am_root(), "becoming another user needs root: run this test as root");
    let rig = Rig::new();
    let path = rig.dir().join("a b?mode=memory#%41';--.db");
    let mode = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(rig.dir(), 0o755);
    let files = || fs::read_dir(rig.dir()).unwrap().count();
    let client = Client::new(&path);
    client.hold(&claim("job"));
    let mut reader = Helper::start_as(&NOBODY, &path);
    assert_eq!((reader.ask("show job"), files()), ("1 of 1".into(), 3), "its log is in use");
    client.hold(&claim("other"));
    assert_eq!(reader.ask("show job"), "1 of 2");
    let denied = reader.ask("claim third");
    assert!(denied.contains("Denied") && denied.contains("may not write"), "{denied}");
    drop(client);
    // The thread of the dropped client closes the file soon after.
    until("the log is gone", || files() == 1);
    assert_eq!((reader.ask("show job"), files()), ("1 of 2".into(), 1), "no other process uses it");
    assert_eq!(reader.ask("show free"), "0 of 2");
    Client::new(&path).hold(&claim("third"));
    assert_eq!(reader.ask("show third"), "1 of 3");
    mode(&path, 0o600);
    let denied = reader.ask("show job");
    assert!(denied.contains("Denied") && denied.contains("may not read"), "{denied}");
}
