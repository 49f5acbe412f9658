//! Planted files, and state files with damage of all kinds.

use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::prelude::*;

use super::*;
use crate::{ErrorKind, Fault};

fn refused(engine: &FileEngine, text: &str) -> EngineError {
    create(engine, &claim(text, Mode::Exclusive)).expect_err("it must be refused")
}

#[test]
fn a_symbolic_link_in_place_of_a_file_is_not_followed() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    held(create(&engine, &claim("first", Mode::Exclusive)));
    let victim = scratch.0.join("victim");
    std::fs::write(&victim, "").unwrap();
    symlink(&victim, scratch.lock_file("lock")).unwrap();
    symlink(&victim, scratch.state_file("state")).unwrap();
    for text in ["lock", "state"] {
        let error = refused(&engine, text);
        assert_eq!(error.fault, Fault::Denied);
        assert!(error.message.contains("symbolic link") && error.message.contains(text), "{error}");
    }
    assert_eq!(std::fs::metadata(&victim).unwrap().len(), 0);
}

#[test]
fn a_hard_link_in_place_of_a_file_is_not_written() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    held(create(&engine, &claim("first", Mode::Exclusive)));
    let victim = scratch.0.join("victim");
    std::fs::write(&victim, "").unwrap();
    std::fs::hard_link(&victim, scratch.lock_file("lock")).unwrap();
    std::fs::hard_link(&victim, scratch.state_file("state")).unwrap();
    for text in ["lock", "state"] {
        let error = refused(&engine, text);
        assert_eq!(error.fault, Fault::Misconfigured);
        assert!(error.message.contains("hard links"), "{error}");
    }
    assert_eq!(std::fs::metadata(&victim).unwrap().len(), 0);
}

#[test]
fn other_than_a_regular_file_is_refused_without_waiting() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    nix::unistd::mkfifo(&scratch.lock_file("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::create_dir(scratch.lock_file("directory")).unwrap();
    for text in ["fifo", "directory"] {
        assert_eq!(refused(&engine, text).fault, Fault::Misconfigured, "{text}");
    }
}

/// A list reads a name that is too long for a file name from the state file of that name. It must not wait if a pipe is
/// in the place of this file.
#[test]
fn a_list_does_not_wait_for_a_pipe_named_as_a_state_file() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    held(create(&engine, &claim("first", Mode::Exclusive)));
    let hashed = format!("%h{}", "0".repeat(64));
    std::fs::write(scratch.lock_file(&hashed), "").unwrap();
    nix::unistd::mkfifo(&scratch.state_file(&hashed), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let views = pollster::block_on(crate::Inspect::list(&engine, "")).unwrap();
        let _ = sender.send(views.iter().map(|view| view.name.to_string()).collect::<Vec<_>>());
    });
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)).unwrap(), ["first"]);
}

#[test]
fn a_list_names_what_it_cannot_read() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    for text in ["bad", "good"] {
        held(create(&engine, &claim(text, Mode::Exclusive)));
    }
    std::fs::write(scratch.state_file("bad"), "nothing of ours".repeat(1000)).unwrap();
    // Another engine, which has not read the state file before.
    let views = pollster::block_on(crate::Inspect::list(&scratch.engine(), "")).unwrap();
    let unreadable: Vec<_> =
        views.iter().map(|view| (view.name.as_str(), view.holders.len(), view.problem.is_some())).collect();
    assert_eq!(unreadable, [("bad", 0, true), ("good", 1, false)]);
}

#[test]
fn foreign_content_and_other_layouts_are_refused_and_unchanged() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    held(create(&engine, &claim("good", Mode::Exclusive)));
    let good = std::fs::read(scratch.state_file("good")).unwrap();
    let mut newer = good.clone();
    newer[6] = 2;
    let cases: [(&str, &[u8], &str); 5] = [
        ("text", b"hello", "something else"),
        ("zeros", &[0; 100], "something else"),
        ("long", &[b'x'; 5000], "something else"),
        ("newer", &newer, "layout version 2"),
        ("other", &good, "another name, \"good\""),
    ];
    for (text, content, word) in cases {
        std::fs::write(scratch.state_file(text), content).unwrap();
        for mode in [Mode::Exclusive, Mode::Shared, PERMIT] {
            let error = create(&engine, &claim(text, mode)).unwrap_err();
            assert_eq!(error.fault, Fault::Misconfigured);
            assert!(error.message.contains(word) && error.message.contains(text), "{error}");
        }
        assert_eq!(std::fs::read(scratch.state_file(text)).unwrap(), content, "nothing was written");
    }
    std::fs::write(scratch.state_file("blank"), [0; 1024]).unwrap();
    assert_eq!(
        held(create(&engine, &claim("blank", Mode::Exclusive))).token.number,
        1,
        "a power cut left this"
    );
}

#[test]
fn unsafe_directories_are_refused() {
    let scratch = Scratch::new();
    let refused = |dir: PathBuf| FileEngine::open(Some(dir), Env::system()).unwrap_err();
    std::fs::create_dir(scratch.0.join("real")).unwrap();
    symlink(scratch.0.join("real"), scratch.0.join("link")).unwrap();
    std::fs::write(scratch.0.join("file"), "").unwrap();
    std::fs::create_dir(scratch.0.join("open")).unwrap();
    std::fs::set_permissions(scratch.0.join("open"), PermissionsExt::from_mode(0o1777)).unwrap();
    for (dir, kind, word) in [
        (PathBuf::from("locks"), ErrorKind::Misconfigured, "relative"),
        (scratch.0.join("link"), ErrorKind::Denied, "symbolic link"),
        (scratch.0.join("link/"), ErrorKind::Denied, "symbolic link"),
        (scratch.0.join("file"), ErrorKind::Misconfigured, "not a directory"),
        (scratch.0.join("open"), ErrorKind::Denied, "all users"),
    ] {
        let error = refused(dir);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    let claim_in = |dir: PathBuf| {
        let engine = FileEngine::open(Some(dir), Env::system()).unwrap();
        create(&engine, &claim("job", Mode::Exclusive))
    };
    let error = claim_in("/proc/leasehold".into()).unwrap_err();
    assert!(error.fault == Fault::Misconfigured && error.message.contains("/proc/leasehold"), "{error}");
    // Missing parents are created.
    held(claim_in(scratch.0.join("a/b/c")));
}

#[test]
fn names_that_look_like_paths_stay_in_the_directory() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let long = "é".repeat(256);
    for text in ["../x", "..", ".", "/etc/passwd", ".state", ".bells", "a/b", "a", "%h", "x\\y", &long] {
        held(create(&engine, &claim(text, Mode::Exclusive)));
        taken(create(&engine, &try_claim(text, Mode::Exclusive)));
    }
    let outside: Vec<_> =
        std::fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(outside, ["locks"]);
    assert_eq!(std::fs::read_dir(scratch.dir()).unwrap().count(), 11 + 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// Any damage to the bytes of a state file gives an answer, never a panic, a hang, or two holders.
    #[test]
    fn a_damaged_state_file_never_grants_twice(changes in prop::collection::vec((0..2048_usize, any::<u8>()), 1..30), new_len in 0..3000_u64) {
        let scratch = Scratch::new();
        let engine = scratch.engine();
        let first = claim("job", Mode::Exclusive);
        held(create(&engine, &first));
        waiting(create(&engine, &claim("job", Mode::Exclusive)));
        waiting(create(&engine, &claim("job", Mode::Shared)));
        let mut bytes = std::fs::read(scratch.state_file("job")).unwrap();
        for (offset, byte) in changes {
            if let Some(old) = bytes.get_mut(offset) {
                *old = byte;
            }
        }
        bytes.truncate(new_len as usize);
        std::fs::write(scratch.state_file("job"), bytes).unwrap();
        for mode in [Mode::Exclusive, Mode::Shared, PERMIT] {
            for may_queue in [false, true] {
                let answer = create(&engine, &Claim { may_queue, ..claim("job", mode) });
                prop_assert!(!matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
            }
        }
        let _ = pollster::block_on(crate::Inspect::list(&engine, ""));
        release_claim(&engine, &first);
    }
}
