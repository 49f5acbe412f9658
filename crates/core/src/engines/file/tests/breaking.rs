//! Breaking a hold as an operator.

use super::{helper::Helper, *};
use crate::{Broken, Fault, Inspect, Loss};

fn break_hold(engine: &FileEngine, text: &str, token: u64) -> Result<Broken, EngineError> {
    pollster::block_on(engine.break_hold(&name(text), token, false))
}

#[test]
fn a_holder_that_stops_on_request_is_signalled_once_and_its_end_is_reported() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    for mode_word in ["exclusive", "shared"] {
        let mut helper = Helper::start(&scratch.dir());
        assert!(helper.request(&format!("claim {mode_word} {mode_word}")).starts_with("held 1"));
        // The helper ends by SIGTERM as soon as it is continued.
        helper.signal(nix::sys::signal::Signal::SIGSTOP);
        for _ in 0..2 {
            let error = break_hold(&engine, mode_word, 1).unwrap_err();
            assert_eq!(error.fault, Fault::Retry);
            assert!(error.message.contains(&format!("pid {}", helper.pid())), "{error}");
        }
        helper.signal(nix::sys::signal::Signal::SIGCONT);
        helper.child.wait().unwrap();
        assert_eq!(break_hold(&engine, mode_word, 1).unwrap(), Broken::Done);
        assert_eq!(break_hold(&engine, mode_word, 1).unwrap(), Broken::NotHeld);
        assert_eq!(held(create(&engine, &claim(mode_word, Mode::Exclusive))).previous, Previous::Broken);
    }
}

#[test]
fn any_other_holder_is_denied_with_its_pid() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let first = Claim { tokens: 10, ..claim("job", Mode::Exclusive) };
    let token = held(create(&engine, &first)).token;
    for number in [1, 10] {
        let error = break_hold(&engine, "job", number).unwrap_err();
        assert_eq!(error.fault, Fault::Denied);
        assert!(error.message.contains(&format!("pid {}", std::process::id())), "{error}");
    }
    assert!(matches!(renew(&engine, &first, token), Renewed::Extended { .. }));
}

#[test]
fn nothing_held_or_another_token_is_not_held() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    assert_eq!(break_hold(&engine, "job", 1).unwrap(), Broken::NotHeld);
    let first = Claim { tokens: 10, stops_on_term: true, ..claim("job", Mode::Exclusive) };
    held(create(&engine, &first));
    for number in [0, 11, u64::MAX] {
        assert_eq!(break_hold(&engine, "job", number).unwrap(), Broken::NotHeld);
    }
    release_claim(&engine, &first);
    assert_eq!(break_hold(&engine, "job", 1).unwrap(), Broken::NotHeld);
}

#[test]
fn a_break_is_reported_to_the_holder_and_to_the_next_one() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    for mode in [Mode::Exclusive, PERMIT] {
        let text = mode.word();
        let first = claim(text, mode);
        let token = held(create(&engine, &first)).token;
        let slot = u32::from(mode == PERMIT);
        let offset =
            super::super::table::layout::record_offset(slot) + super::super::table::record::BROKEN_AT;
        let state_file = std::fs::File::options().write(true).open(scratch.state_file(text)).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&state_file, &token.number.to_le_bytes(), offset).unwrap();
        assert!(matches!(renew(&engine, &first, token), Renewed::Lost(Loss::Broken)));
        release_claim(&engine, &first);
        let next = claim(text, mode);
        assert_eq!(held(create(&engine, &next)).previous, Previous::Broken);
        release_claim(&engine, &next);
        assert_eq!(held(create(&engine, &claim(text, mode))).previous, Previous::Clean);
    }
}

/// Any user who can write to a shared directory could have written the pid of any process into a record. If root then
/// breaks that hold, SIGTERM must not go to this process.
#[test]
fn only_a_process_with_the_kernel_lock_is_asked_to_stop() {
    use std::os::unix::fs::FileExt;

    use super::super::{
        kernel::proc::Process,
        table::layout::{RECORD_SIZE, record_offset},
        table::record::Record,
    };

    let scratch = Scratch::new();
    let engine = scratch.engine();
    let first = Claim { stops_on_term: true, ..claim("job", PERMIT) };
    let token = held(create(&engine, &first)).token;
    let mut other_process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let state_file = std::fs::File::options().read(true).write(true).open(scratch.state_file("job")).unwrap();
    let mut bytes = [0; RECORD_SIZE];
    state_file.read_exact_at(&mut bytes, record_offset(1)).unwrap();
    let record = Record::from_bytes(&bytes).unwrap().unwrap();
    let forged = Record { process: Process::of(other_process.id()), ..record };
    assert!(forged.process.is_running());
    state_file.write_all_at(&forged.to_bytes(), record_offset(1)).unwrap();
    let error = break_hold(&engine, "job", token.number).unwrap_err();
    assert_eq!(error.fault, Fault::Denied, "{error}");
    assert!(error.message.contains("the kernel shows no lock"), "{error}");
    assert_eq!(other_process.try_wait().unwrap(), None, "it was asked to stop");
    other_process.kill().unwrap();
    other_process.wait().unwrap();
}
