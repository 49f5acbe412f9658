//! Users with the least rights, and users without any.

use std::{
    io::Write,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use leasehold_core::{Env, Locks, MemoKind, NewMemo};
use leasehold_testkit::suite;
use leasehold_zookeeper::{Config, Layout, ZookeeperEngine};

use crate::rig::{PATIENCE, Rig, acquire, local};

/// The script of docs/engines/zookeeper.md that gives the least rights.
const ACL_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engines/zookeeper-acl.sh");
/// The user who locks, and the user who only looks: name and password.
const LOCKER: (&str, &str) = ("leasehold", "battery'staple\\n");
const VIEWER: (&str, &str) = ("leasehold-viewer", "$HOME-hunter2");

/// A server with those rights. The clients log in as the locker.
pub(crate) fn with_users() -> Rig {
    with_rights(&["/locks"])
}

/// A server with the rights that the script gives for these arguments.
fn with_rights(arguments: &[&str]) -> Rig {
    let mut rig = Rig::new();
    let mut script = Command::new("sh");
    script
        .arg(ACL_SCRIPT)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut script = script.spawn().unwrap();
    writeln!(script.stdin.take().unwrap(), "{}\n{}", LOCKER.1, VIEWER.1).unwrap();
    let output = script.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (stdout, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let words: Vec<&str> =
        stdout.split_whitespace().map(|word| if word == "\"\"" { "" } else { word }).collect();
    rig.server.command(&words);
    let readers = stderr.trim().strip_prefix("# ?acl=").unwrap();
    rig.config = rig.config.clone().login(LOCKER.0, LOCKER.1).acl(readers).unwrap();
    rig
}

fn locks_of(config: Config) -> Locks {
    Locks::builder(Arc::new(ZookeeperEngine::new(config, &Env::system()))).build()
}

#[test]
fn the_zookeeper_engine_conforms_with_the_rights_of_a_locker() {
    let rig = with_users();
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 80, "{report}");
}

#[test]
fn the_plain_layout_conforms_with_the_rights_of_a_locker() {
    let mut rig = with_users();
    rig.config = rig.config.layout(Layout::Plain);
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 45, "{report}");
}

/// `path=`: the administrator creates the directory, and the users have no right outside of it.
#[test]
fn a_locker_needs_rights_in_the_directory_of_a_lock_only() {
    let mut rig = with_rights(&["/orders", "lock"]);
    rig.server.command_as_super("setAcl / world:anyone:");
    rig.config = rig.config.path("/orders").unwrap();
    let (locks, operator) = (rig.locks(), rig.locks());
    let viewer = locks_of(rig.config.clone().login(VIEWER.0, VIEWER.1));
    let guard = acquire(&locks, "orders");
    assert!(operator.mutex("orders").blocking().try_acquire().unwrap_err().is_taken());
    assert_eq!(rig.run(viewer.list("")).unwrap()[0].holders[0].token, Some(guard.token().number));
    assert!(viewer.mutex("orders").blocking().try_acquire().unwrap_err().is_taken(), "it may look");
    assert!(rig.run(viewer.break_hold("orders", guard.token().number, true)).unwrap_err().is_denied());
    let waiting = operator.mutex("orders").blocking();
    let waiter = std::thread::spawn(move || waiting.acquire_within(PATIENCE).unwrap());
    rig.until("it waits", || rig.nodes().len() == 2);
    rig.run(operator.break_hold("orders", guard.token().number, false)).unwrap();
    rig.run(guard.lost());
    drop(guard);
    waiter.join().unwrap().release_blocking().unwrap();
    assert!(viewer.mutex("orders").blocking().try_acquire().unwrap_err().is_denied());
}

#[test]
fn a_viewer_lists_and_shows_only() {
    let rig = with_users();
    let viewer = locks_of(rig.config.clone().login(VIEWER.0, VIEWER.1));
    let (guard, permit) =
        (acquire(&rig.locks(), "held"), rig.locks().semaphore("p", 2).blocking().acquire().unwrap());
    let token = guard.token().number;
    let shown = rig.run(viewer.show("held")).unwrap();
    assert_eq!(shown.holders[0].token, Some(token));
    assert_eq!(rig.run(viewer.list("")).unwrap().len(), 2);
    rig.run(viewer.guarantee()).unwrap();
    for name in ["free", "held"] {
        let error = viewer.mutex(name).blocking().acquire_within(PATIENCE).unwrap_err();
        assert!(error.is_denied(), "{name}: {error}");
    }
    assert!(rig.run(viewer.break_hold("held", token, false)).unwrap_err().is_denied());
    assert!(rig.run(viewer.break_hold("held", token, true)).unwrap_err().is_denied());
    assert!(guard.check() && permit.check());
    guard.release_blocking().unwrap();
    permit.release_blocking().unwrap();
}

/// A reader of a memo learns the time of the server by a change of the directory of all memos.
#[test]
fn a_viewer_reads_memos_and_a_stranger_does_not() {
    let rig = with_users();
    let memo = |bytes: &str| NewMemo::new(MemoKind::ONCE, bytes, Duration::from_secs(600)).unwrap();
    let viewer = locks_of(rig.config.clone().login(VIEWER.0, VIEWER.1));
    assert_eq!(viewer.read_memo_blocking("a").unwrap(), None, "nobody wrote a memo");
    let guard = acquire(&rig.locks(), "a");
    guard.write_memo_blocking(memo("first")).unwrap();
    let mut follower = viewer.follow_memo("a").unwrap();
    assert!(follower.changed_blocking().unwrap().unwrap().is_held);
    guard.release_with_memo_blocking(memo("last")).unwrap();
    let read = std::iter::repeat_with(|| follower.changed_blocking().unwrap().unwrap());
    assert_eq!(read.into_iter().find(|memo| !memo.is_held).unwrap().bytes, b"last");
    let stranger = locks_of(Config::new(vec![local(rig.server.port())]));
    assert!(stranger.read_memo_blocking("a").unwrap_err().is_denied());
}

/// A name that this login has no right to read is reported as such, and all other names are shown.
#[test]
fn a_hidden_name_hides_no_other_name() {
    let rig = with_users();
    let hiding_locks = locks_of(Config::new(vec![local(rig.server.port())]).login(LOCKER.0, LOCKER.1));
    let (_hidden, held) = (acquire(&hiding_locks, "hidden"), acquire(&rig.locks(), "held"));
    rig.server.command_as_super(
        "create /locks/held/_c_00000000-0000-0000-0000-000000000001-lock-0000000007 me \
         digest:nobody:AAAAAAAAAAAAAAAAAAAAAAAAAAA=:r",
    );
    let viewer = locks_of(rig.config.clone().login(VIEWER.0, VIEWER.1));
    let views = rig.run(viewer.list("")).unwrap();
    let [of_held, of_hidden] = &views[..] else { panic!("{views:?}") };
    assert_eq!(of_held.holders[0].token, Some(held.token().number));
    assert_eq!(of_held.waiters[0].owner, "not readable with this login");
    let problem = of_hidden.problem.as_ref().unwrap();
    assert!(
        of_hidden.name.as_str() == "hidden" && problem.contains("docs/engines/zookeeper.md"),
        "{problem}"
    );
    assert!(rig.run(viewer.show("hidden")).unwrap_err().is_denied());
}

#[test]
fn a_wrong_or_missing_password_is_refused_and_not_shown() {
    let rig = with_users();
    let guard = acquire(&rig.locks(), "held");
    let anonymous = Config::new(vec![local(rig.server.port())]);
    for config in [anonymous.clone().login(LOCKER.0, "hunter2"), anonymous] {
        let locks = locks_of(config);
        for name in ["held", "free"] {
            let error = locks.mutex(name).blocking().try_acquire().unwrap_err();
            assert!(error.is_denied(), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert!(rig.run(locks.show("held")).unwrap_err().is_denied());
    }
    guard.release_blocking().unwrap();
}
