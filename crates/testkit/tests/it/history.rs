//! Recording to files and reading them.

use std::{fs, io::Write, path::PathBuf};

use leasehold_core::{Lineage, Mode, Token};
use leasehold_testkit::{
    check::{Terms, check},
    history::{BadHistory, Granted, History, Recorder, What, now_nanos},
};

/// A file that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::remove_file(&path).ok();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

fn granted(number: u64) -> Granted {
    Granted {
        token: Token { lineage: Lineage::new(5), number },
        ttl_nanos: Some(1_000_000_000),
        watched: false,
        fixed: false,
    }
}

fn one_hold(recorder: &Recorder, token: u64) {
    let active_hold =
        recorder.attempt(1, "a", Mode::Exclusive, Some(0)).granted(granted(token), || Some(900_000_000));
    assert!(active_hold.check(|| true, || Some(900_000_000)));
    active_hold.releasing(None).freed();
}

#[test]
fn recorded_files_are_read_back_in_order() {
    let (one, other) = (Scratch::new("one"), Scratch::new("other"));
    let first = Recorder::to_file(3, &one.0).unwrap();
    one_hold(&first, 1);
    let second = Recorder::to_file(3, &other.0).unwrap();
    second.note(What::NemesisBegin { kind: "kill".into() });
    second.note(What::NemesisEnd { kind: "kill".into() });
    let history = History::merge([&other.0, &one.0]).unwrap();
    assert_eq!(history.events().len(), 7);
    assert!(history.events().is_sorted_by_key(|event| event.t));
    assert!(matches!(history.events()[6].what, What::NemesisEnd { .. }));
    let again: Vec<_> = history.events().iter().map(|event| serde_json::to_string(event).unwrap()).collect();
    let written = fs::read_to_string(&one.0).unwrap();
    assert_eq!(again[..5].join("\n") + "\n", written);
}

#[test]
fn field_names_are_stable() {
    let recorder = Recorder::in_memory(3, 7);
    one_hold(&recorder, 1);
    let mut event = recorder.events()[1].clone();
    event.t = 5;
    if let What::AcqOk { deadline, .. } = &mut event.what {
        *deadline = Some(9);
    }
    let line = serde_json::to_string(&event).unwrap();
    let expected = concat!(
        r#"{"run":3,"proc":7,"seq":1,"t":5,"task":1,"lock":"a","attempt":30064771073,"ev":"acq_ok","token":1,"#,
        r#""lineage":"00000000000000000000000000000005","deadline":9,"ttl":1000000000}"#
    );
    assert_eq!(line, expected);
}

#[test]
fn a_torn_last_line_is_dropped_and_other_bad_lines_are_errors() {
    let scratch = Scratch::new("torn");
    let recorder = Recorder::to_file(3, &scratch.0).unwrap();
    one_hold(&recorder, 1);
    let mut file = fs::OpenOptions::new().append(true).open(&scratch.0).unwrap();
    file.write_all(br#"{"run":3,"proc":"#).unwrap();
    assert_eq!(History::merge([&scratch.0]).unwrap().events().len(), 5);
    file.write_all(b"\n").unwrap();
    let error = History::merge([&scratch.0]).unwrap_err();
    assert!(matches!(error, BadHistory::Line { line: 6, .. }), "{error}");
}

#[test]
fn runs_are_not_mixed() {
    let scratch = Scratch::new("mixed");
    one_hold(&Recorder::to_file(3, &scratch.0).unwrap(), 1);
    one_hold(&Recorder::to_file(4, &scratch.0).unwrap(), 2);
    assert!(matches!(History::merge([&scratch.0]).unwrap_err(), BadHistory::Mixed(3, 4)));
    assert!(matches!(History::merge(["/nowhere/at/all"]).unwrap_err(), BadHistory::Io { .. }));
}

#[test]
fn timestamps_never_lengthen_an_active_hold() {
    let recorder = Recorder::in_memory(1, 1);
    let attempt = recorder.attempt(1, "a", Mode::Exclusive, None);
    let before = now_nanos();
    let mut read_at = 0;
    let active_hold = attempt.granted(granted(1), || {
        read_at = now_nanos();
        Some(1_000)
    });
    active_hold.releasing(None).freed();
    let events = recorder.events();
    let What::AcqOk { deadline: Some(deadline), .. } = events[1].what else { panic!("{events:?}") };
    assert!(
        (before + 1_000..=read_at + 1_000).contains(&deadline),
        "the deadline is not after the one that was read"
    );
    assert!(events[1].t >= read_at, "the begin is stamped after the acquire");
}

#[test]
fn tasks_of_a_process_record_together() {
    let recorder = Recorder::in_memory(1, 1);
    let turn = std::sync::Mutex::new(0);
    std::thread::scope(|scope| {
        for task in 0..4 {
            let (recorder, turn) = (&recorder, &turn);
            scope.spawn(move || {
                for _ in 0..100 {
                    let attempt = recorder.attempt(task, "a", Mode::Exclusive, None);
                    let mut token = turn.lock().unwrap();
                    *token += 1;
                    let leaving = attempt.granted(granted(*token), || None).releasing(None);
                    drop(token);
                    leaving.freed();
                }
            });
        }
    });
    let mut terms = Terms::default();
    // The lock of this test is a mutex of std, which wakes its waiters with any delay.
    terms.wake = std::time::Duration::from_secs(60);
    let report = check(&recorder.history(), &terms);
    assert!(report.holds(), "{report}");
    assert_eq!(report.verdicts[1].checked, 400, "{report}");
}
