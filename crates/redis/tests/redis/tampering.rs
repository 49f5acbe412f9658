//! Programs that overwrite our lock keys, delete them or change their time without comparing the value: the holder is
//! told at its next renewal.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{
    Answer, Engine, ErrorKind, Event, Guard, Hold, How, Locks, Loss, Mode, Observe, Renewed, Request,
    TimeChange, TimeLeft,
};
use leasehold_redis::Layout;
use leasehold_testkit::claims;

use crate::rig::{PATIENCE, Rig};

/// A ttl that outlasts a test.
const TTL: Duration = Duration::from_secs(60);

/// Records the changes of time that are reported.
#[derive(Default)]
struct Changes(Mutex<Vec<TimeChange>>);

impl Observe for Changes {
    fn event(&self, event: &Event<'_>) {
        if let Event::TimeChanged { name, change, .. } = event {
            assert_eq!(name.as_str(), "a");
            self.0.lock().unwrap().push(*change);
        }
    }
}

impl Changes {
    fn take(&self) -> Vec<TimeChange> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Rig {
    /// A client, and what it reports.
    fn observed(&self) -> (Locks, Arc<Changes>) {
        let changes = Arc::<Changes>::default();
        (Locks::builder(self.engine()).observe(changes.clone()).build(), changes)
    }

    /// The remaining time of the lock key in ms; -1 without an expiry.
    fn pttl(&self) -> i64 {
        self.command(&["PTTL", "lock:a"]).parse().unwrap()
    }
}

/// Requests of every mode.
fn requests(locks: &Locks) -> [Request; 3] {
    [locks.mutex("a"), locks.rw("a").read(), locks.semaphore("a", 2)]
}

fn held(request: Request) -> Guard {
    request.ttl(TTL).blocking().try_acquire().unwrap()
}

/// What the Python renewal does (`SET key own EX n` after a `GET`), and what a `DEL` without compare leads to.
#[test]
fn a_holder_whose_key_has_another_value_is_told_so() {
    let rig = Rig::new();
    let overwrite: [&[&[&str]]; 4] = [
        &[&["SET", "lock:a", "1600000000.25"]],
        &[&["SET", "lock:a", "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "EX", "60"]],
        &[&["DEL", "lock:a"], &["SET", "lock:a", "theirs", "NX", "PX", "60000"]],
        &[&["DEL", "lock:a"], &["LPUSH", "lock:a", "x"]],
    ];
    for commands in overwrite {
        for request in requests(&rig.locks()) {
            let guard = held(request);
            commands.iter().for_each(|command| drop(rig.command(command)));
            let before = rig.command(&["DUMP", "lock:a"]);
            let error = rig.run(guard.confirm()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Lost(Loss::Overwritten), "{commands:?}");
            assert!(error.to_string().contains("overwrote the key without comparing"), "{error}");
            assert!(!guard.check());
            assert!(rig.locks().mutex("a").blocking().try_acquire().is_err(), "it is theirs");
            assert_eq!(guard.release_blocking().unwrap_err().kind(), ErrorKind::Lost(Loss::Overwritten));
            assert_eq!(rig.command(&["DUMP", "lock:a"]), before, "left as it was");
            rig.command(&["DEL", "lock:a"]);
        }
    }
}

#[test]
fn a_holder_whose_key_ended_early_is_told_so() {
    let rig = Rig::new();
    for end in [["DEL", "lock:a"].as_slice(), &["PEXPIRE", "lock:a", "1"]] {
        for request in requests(&rig.locks()) {
            let guard = held(request);
            rig.command(end);
            rig.until("the key is gone", || rig.pttl() == -2);
            let error = rig.run(guard.confirm()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Lost(Loss::EndedEarly), "{end:?}");
            assert!(error.to_string().contains("its key is gone"), "{error}");
            held(rig.locks().mutex("a")).release_blocking().unwrap();
        }
    }
}

/// A server that lost all data, and a claim of ours that took the name meanwhile, are no programs that do not compare.
#[test]
fn other_causes_of_a_loss_are_reported_as_gone() {
    let rig = Rig::new();
    let guard = held(rig.locks().mutex("a"));
    rig.command(&["FLUSHALL"]);
    assert_eq!(rig.run(guard.confirm()).unwrap_err().kind(), ErrorKind::Lost(Loss::Gone));
    let guard = held(rig.locks().mutex("a"));
    rig.command(&["DEL", "lock:a"]);
    let next = held(rig.locks().mutex("a"));
    assert_eq!(rig.run(guard.confirm()).unwrap_err().kind(), ErrorKind::Lost(Loss::Gone));
    rig.run(next.confirm()).unwrap();
}

/// A value of ours whose record was evicted is no value of another program.
#[test]
fn a_hold_without_its_record_is_gone() {
    let rig = Rig::new();
    let delete_record = || {
        let record = rig.command(&["KEYS", "leasehold:*clock:a"]);
        assert_eq!(rig.command(&["DEL", &record]), "1");
    };
    for value in ["shared.1b4e28ba2fa111d2883f0016d3cca427", "kept.7", ""] {
        for request in requests(&rig.locks()) {
            let guard = held(request);
            delete_record();
            let is_shared = rig.command(&["GET", "lock:a"]).starts_with("shared.");
            match value {
                // The value of the hold itself.
                "" if !is_shared => {
                    guard.release_blocking().unwrap();
                    continue;
                }
                "" => {}
                value => drop(rig.command(&["SET", "lock:a", value, "PX", "60000"])),
            }
            let error = rig.run(guard.confirm()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Lost(Loss::Gone), "{value:?}");
            rig.command(&["DEL", "lock:a"]);
        }
    }
}

/// The Java renewal (`EXPIRE` without compare), and a program that calls `PERSIST`. A renewal sets a time anew that is
/// too short, or missing; the holder is told once for each change.
#[test]
fn a_holder_whose_time_was_changed_is_told_and_the_renewal_corrects_it() {
    let rig = Rig::new();
    let (locks, changes) = rig.observed();
    for (index, request) in requests(&locks).into_iter().enumerate() {
        let guard = held(request);
        rig.run(guard.confirm()).unwrap();
        assert_eq!((guard.trouble(), changes.take()), (None, vec![]), "{index}");
        for (command, change, word) in [
            (["PEXPIRE", "lock:a", "20000"].as_slice(), TimeChange::Shortened, "was too short"),
            (&["PERSIST", "lock:a"], TimeChange::Removed, "had no expiry"),
            (&["PEXPIRE", "lock:a", "600000"], TimeChange::Lengthened, "is longer than its ttl"),
        ] {
            for _ in 0..2 {
                rig.command(command);
                rig.run(guard.confirm()).unwrap();
                let trouble = guard.trouble().unwrap();
                assert!(trouble.contains(word) && guard.check(), "{index}: {trouble}");
                let (left, longest) =
                    (rig.pttl(), if change == TimeChange::Lengthened { 600_000 } else { 60_000 });
                assert!((30_000..=longest).contains(&left), "{index}, {word}: {left}");
            }
            assert_eq!(changes.take(), [change], "{index}: once");
        }
        // As the time of a hold that was never touched.
        rig.command(&["PEXPIRE", "lock:a", "59000"]);
        rig.run(guard.confirm()).unwrap();
        assert_eq!((guard.trouble(), changes.take()), (None, vec![]), "{index}");
        guard.release_blocking().unwrap();
    }
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

/// As above for an exclusive hold in the layout of Redisson. The time of shared holds there is that of Redisson's
/// readers too, and is not compared.
#[test]
fn the_time_of_a_hash_of_redisson_is_compared_too() {
    let mut rig = Rig::new();
    rig.config = rig.config.layout(Layout::Redisson).unwrap();
    let (locks, changes) = rig.observed();
    let guard = held(locks.mutex("a"));
    rig.command(&["EXPIRE", "lock:a", "20"]);
    rig.run(guard.confirm()).unwrap();
    assert_eq!(changes.take(), [TimeChange::Shortened]);
    guard.release_blocking().unwrap();
    let guard = held(locks.rw("a").read());
    rig.command(&["EXPIRE", "lock:a", "20"]);
    rig.run(guard.confirm()).unwrap();
    assert_eq!((guard.trouble(), changes.take()), (None, vec![]));
}

/// The renewals in the background report a change and a loss without a call of the holder.
#[test]
fn a_renewal_in_the_background_tells_the_holder() {
    let rig = Rig::new();
    let (locks, changes) = rig.observed();
    let request = locks.mutex("a").ttl(Duration::from_secs(3)).blocking();
    let guard = request.try_acquire().unwrap();
    rig.command(&["PERSIST", "lock:a"]);
    rig.until("the change is reported", || !changes.0.lock().unwrap().is_empty());
    assert!(changes.take() == [TimeChange::Removed] && rig.pttl() > 0);
    rig.command(&["SET", "lock:a", "theirs", "PX", "60000"]);
    let loss = rig.run(async { tokio::time::timeout(PATIENCE, guard.lost()).await }).unwrap();
    assert!(matches!(loss, Loss::Overwritten), "{loss:?}");
}

/// In both layouts, the lock of shared holds lasts as long as the longest of them, also after the renewal of a shorter
/// one has set a removed expiry anew.
#[test]
fn a_removed_expiry_of_shared_holds_is_set_to_the_longest_of_them() {
    let (plain, mut redisson) = (Rig::new(), Rig::new());
    redisson.config = redisson.config.layout(Layout::Redisson).unwrap();
    for (rig, compares) in [(plain, true), (redisson, false)] {
        for shared in 1..3 {
            removed_expiry_of_shared_holds(&rig, shared, compares);
        }
    }
}

/// As above, for the kind of request with this index. `compares`: the layout compares the time of shared holds.
fn removed_expiry_of_shared_holds(rig: &Rig, kind: usize, compares: bool) {
    let request = |locks: &Locks| requests(locks).into_iter().nth(kind).unwrap();
    let long = held(request(&rig.locks()));
    let (locks, changes) = rig.observed();
    let short = request(&locks).ttl(Duration::from_secs(20)).blocking().try_acquire().unwrap();
    rig.run(short.confirm()).unwrap();
    assert_eq!(changes.take(), [], "the time of the longer hold is no change");
    rig.command(&["PERSIST", "lock:a"]);
    rig.run(short.confirm()).unwrap();
    let expected = [TimeChange::Removed];
    assert_eq!(changes.take(), &expected[..usize::from(compares)]);
    assert!((30_000..=60_000).contains(&rig.pttl()), "{}", rig.pttl());
    assert!(long.check());
    drop((long, short));
    rig.until("the name is free", || rig.pttl() == -2);
}

/// The engine reports what it measured, for holds of the short and of the full script.
#[test]
fn a_renewal_answers_the_time_that_was_left() {
    let rig = Rig::new();
    let engine = rig.engine();
    for mode in [Mode::Exclusive, Mode::Shared] {
        let claim = leasehold_core::Claim { mode, ..claims::exclusive("a", TTL) };
        let left = rig.run(async {
            let Ok(Answer::Held(grant)) = engine.claim(&claim, How::Create).await else {
                panic!("it is free")
            };
            let hold = Hold { id: claim.id, name: claim.name.clone(), mode, token: grant.token, ttl: TTL };
            engine.renew(&[hold]).await
        });
        let [Renewed::Extended { left: TimeLeft::For(left), .. }] = left[..] else { panic!("{left:?}") };
        assert!(left <= TTL && left > TTL / 2, "{left:?}");
        rig.command(&["DEL", "lock:a"]);
    }
}
