//! The files of memos: what is removed and what stays, foreign files, and processes that are killed.

use std::time::SystemTime;

use super::{helper::Helper, *};
use crate::{
    Fault, HoldAfter, MemoKind, MemoVersion, MemoWrite, Memos, NewMemo, Written,
    engines::file::memo::{
        layout::{Moment, encode},
        store::{MemoDir, Through},
    },
};

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn memo(bytes: &str) -> NewMemo {
    NewMemo::new(MemoKind::ONCE, bytes, SECOND * 60).unwrap()
}

/// Writes a memo under a hold, which goes on.
pub(super) fn write(
    engine: &FileEngine,
    claim: &Claim,
    grant: &Grant,
    number: u64,
    memo: NewMemo,
) -> Result<Written, EngineError> {
    let (version, token) = (MemoVersion { id: claim.id, number }, grant.token);
    let (name, after) = (claim.name.clone(), HoldAfter::Keep);
    pollster::block_on(engine.write(&MemoWrite { name, version, hold_token: token, token, memo, after }))
}

/// The bytes of the memo of a name, and whether its hold goes on.
fn read(engine: &FileEngine, text: &str) -> Option<(Vec<u8>, bool)> {
    pollster::block_on(engine.read(&name(text))).unwrap().map(|memo| (memo.bytes, memo.is_held))
}

/// Writes so many memos that the sweep looks at every file of the directory twice.
fn sweep(engine: &FileEngine) {
    let sweeper = claim("sweeper", Mode::Exclusive);
    let grant = held(create(engine, &sweeper));
    for number in 1..10 {
        assert_eq!(write(engine, &sweeper, &grant, number, memo("")).unwrap(), Written::Done);
    }
    release_claim(engine, &sweeper);
}

/// The writer may be stopped between the write and the release.
#[test]
fn a_memo_that_is_written_with_the_release_is_not_seen_under_the_hold() {
    let scratch = Scratch::new();
    let (engine, other) = (scratch.engine(), scratch.engine());
    let holder = claim("n", Mode::Exclusive);
    let grant = held(create(&engine, &holder));
    assert_eq!(write(&engine, &holder, &grant, 1, memo("leads")).unwrap(), Written::Done);
    assert_eq!(read(&other, "n"), Some((b"leads".to_vec(), true)));
    let (version, token) = (MemoVersion { id: holder.id, number: 2 }, grant.token);
    let (name, after) = (holder.name.clone(), HoldAfter::Release);
    let last = MemoWrite { name, version, hold_token: token, token, memo: memo("resigns"), after };
    let moment = Moment {
        boot_id: engine.boot_id,
        since_boot: engine.env.clock.now(),
        time_of_day: Duration::from_secs(1),
    };
    std::fs::write(scratch.dir().join(".state/n.memo"), encode(&last, moment)).unwrap();
    assert_eq!(read(&other, "n"), Some((b"resigns".to_vec(), false)), "the holder has not released yet");
    assert!(matches!(
        create(&other, &claim("n", Mode::Exclusive)),
        Ok(Answer::Waiting(_) | Answer::Taken(_))
    ));
    release_claim(&engine, &holder);
}

#[test]
fn the_file_of_an_ended_memo_is_removed_after_its_hold() {
    let scratch = Scratch::new();
    scratch.engine();
    let (clock, env) = env_with_manual_clock();
    let engine = FileEngine::open(Some(scratch.dir()), env).unwrap();
    // A plain name, an escaped one, and one that is hashed.
    let names = ["n".to_owned(), "a/b".to_owned(), "x".repeat(251)];
    let claims = names.each_ref().map(|text| claim(text, Mode::Exclusive));
    for claim in &claims {
        let grant = held(create(&engine, claim));
        let short = NewMemo::new(MemoKind::ONCE, "short", SECOND).unwrap();
        assert_eq!(write(&engine, claim, &grant, 5, short).unwrap(), Written::Done);
    }
    let memo_files = || {
        let files = std::fs::read_dir(scratch.dir().join(".state")).unwrap();
        let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        files.filter(|file| file.ends_with(".memo") && file != "sweeper.memo").count()
    };
    assert_eq!(memo_files(), 3);
    clock.advance(SECOND);
    assert_eq!(read(&engine, "n"), None);
    sweep(&engine);
    assert_eq!(memo_files(), 3, "the number of a memo counts under its hold");
    // Another engine sees these holds by their marks.
    sweep(&scratch.engine());
    assert_eq!(memo_files(), 3);
    claims.iter().for_each(|claim| release_claim(&engine, claim));
    sweep(&engine);
    assert_eq!(memo_files(), 0);
}

#[test]
fn what_a_dead_writer_left_is_removed_after_a_minute() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    sweep(&engine);
    let [old, young] = ["1", "2"].map(|id| scratch.dir().join(format!(".state/.memo-{id}")));
    std::fs::write(&young, "half").unwrap();
    let file = std::fs::File::create(&old).unwrap();
    file.set_modified(SystemTime::now() - SECOND * 120).unwrap();
    sweep(&engine);
    assert!(!old.exists() && young.exists());
}

#[test]
fn a_foreign_memo_file_is_refused_and_stays() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let claim = claim("n", Mode::Exclusive);
    let grant = held(create(&engine, &claim));
    let file = scratch.dir().join(".state/n.memo");
    for content in ["", "not a memo", "LHMEMO1\n"] {
        std::fs::write(&file, content).unwrap();
        let refused = [
            pollster::block_on(engine.read(&claim.name)).map(drop).unwrap_err(),
            write(&engine, &claim, &grant, 1, memo("x")).map(drop).unwrap_err(),
        ];
        for error in refused {
            assert!(error.fault == Fault::Misconfigured && error.message.contains("n.memo"), "{error:?}");
        }
        sweep(&engine);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
    }
    release_claim(&engine, &claim);
}

#[test]
fn a_process_killed_between_the_write_and_the_release_leaves_the_whole_memo() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let mut helper = Helper::start(&scratch.dir());
    assert!(helper.request("claim n exclusive").starts_with("held"));
    assert_eq!(helper.request("write-memo whole"), "Ok(Done)");
    assert_eq!(read(&engine, "n"), Some((b"whole".to_vec(), true)));
    helper.kill();
    assert_eq!(read(&engine, "n"), Some((b"whole".to_vec(), false)));
    let next = claim("n", Mode::Exclusive);
    let grant = held(create(&engine, &next));
    assert_eq!(grant.previous, Previous::Lapsed);
    assert_eq!(write(&engine, &next, &grant, 1, memo("next")).unwrap(), Written::Done);
    assert_eq!(read(&engine, "n"), Some((b"next".to_vec(), true)));
    release_claim(&engine, &next);
}

#[test]
fn the_gate_lets_writers_through_together_and_a_remover_alone() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    sweep(&engine);
    let memo_dir = MemoDir::open(&engine.dir, Access::Existing).unwrap().unwrap();
    let pass = |through| memo_dir.pass_gate(through).unwrap();
    let writers = [pass(Through::Writer).unwrap(), pass(Through::Writer).unwrap()];
    assert!(pass(Through::Remover).is_none());
    // A process that another thread starts has a copy of the descriptor for a while.
    let copy = writers[0].0.try_clone().unwrap();
    drop(writers);
    let remover = pass(Through::Remover).expect("a copy of the descriptor does not keep the gate closed");
    assert!(pass(Through::Writer).is_none() && pass(Through::Remover).is_none());
    drop((remover, copy));
    assert!(pass(Through::Writer).is_some());
}

#[test]
fn the_time_of_a_memo_counts_from_the_end_of_its_write() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    sweep(&engine);
    let memo_dir = MemoDir::open(&engine.dir, Access::Existing).unwrap().unwrap();
    let id = ClaimId([7; 16]);
    let new = scratch.dir().join(format!(".state/.memo-{id}"));
    let sizes = std::cell::RefCell::new(Vec::new());
    let encode = || {
        sizes.borrow_mut().push(new.metadata().map_or(0, |stat| stat.len()));
        vec![sizes.borrow().len() as u8; 1000]
    };
    memo_dir.replace(c"n.memo", id, encode).unwrap();
    assert_eq!(*sizes.borrow(), [0, 1000], "before the write, and after it");
    let stored = std::fs::read(scratch.dir().join(".state/n.memo")).unwrap();
    assert_eq!((stored.len(), stored[0], stored[999]), (1000, 2, 1), "the header is of the second moment");
}
