//! Which claims are woken, by which event, and that no other claim is.

use super::{helper::Helper, *};
use crate::Notification;

/// The time limit of a wake-up: far longer than a wake-up takes on a busy machine, so only a hang exceeds it.
const WAKE_UP_LIMIT: Duration = Duration::from_secs(60);

/// Runs `body` in a runtime like the keeper's.
pub(super) fn run<T>(body: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(body)
}

/// Asks after each signal until `waiter` holds.
pub(super) async fn wait_until_held(engine: &FileEngine, waiter: &Claim) -> Grant {
    let woken = async {
        loop {
            for notification in engine.notifications().await {
                assert!(
                    matches!(&notification, Notification::Recheck { id, .. } if *id == waiter.id),
                    "{notification:?}"
                );
            }
            if let Ok(Answer::Held(grant)) = engine.claim(waiter, How::Ask).await {
                return grant;
            }
        }
    };
    tokio::time::timeout(WAKE_UP_LIMIT, woken).await.expect("the waiter was never woken")
}

/// An engine with an exclusive hold, another with a waiter, and the two claims.
fn holder_and_waiter(scratch: &Scratch, mode: Mode) -> (FileEngine, FileEngine, Claim, Claim) {
    let (holder, waiter) = (scratch.engine(), scratch.engine());
    let (first, second) = (claim("job", Mode::Exclusive), claim("job", mode));
    held(create(&holder, &first));
    waiting(create(&waiter, &second));
    (holder, waiter, first, second)
}

/// The path of the wake pipe of an engine.
fn wake_pipe_of(engine: &FileEngine) -> PathBuf {
    engine
        .dir
        .path
        .join(format!(".bells/{:032x}", u128::from_be_bytes(engine.listener.wake_pipe(&engine.dir))))
}

#[test]
fn a_release_signals_the_head_of_the_queue() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let scratch = Scratch::new();
        let (holder, waiter, first, second) = holder_and_waiter(&scratch, mode);
        release_claim(&holder, &first);
        run(wait_until_held(&waiter, &second));
    }
}

#[test]
fn a_released_permit_signals_and_a_granted_one_signals_the_next() {
    let scratch = Scratch::new();
    let (holder, waiter) = (scratch.engine(), scratch.engine());
    let both_permits = claim("quota", Mode::Permits { count: 2, limit: 2 });
    held(create(&holder, &both_permits));
    let (second, third) = (claim("quota", PERMIT), claim("quota", PERMIT));
    waiting(create(&waiter, &second));
    let last = scratch.engine();
    waiting(create(&last, &third));
    release_claim(&holder, &both_permits);
    run(wait_until_held(&waiter, &second));
    run(wait_until_held(&last, &third));
}

#[test]
fn a_killed_holder_signals_by_its_death() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    for round in 0..5 {
        let mut helper = Helper::start(&scratch.dir());
        assert!(helper.request("claim job exclusive").starts_with("held"));
        let waiter = claim("job", Mode::Exclusive);
        waiting(create(&engine, &waiter));
        helper.kill();
        assert_eq!(run(wait_until_held(&engine, &waiter)).previous, Previous::Lapsed, "round {round}");
        release_claim(&engine, &waiter);
    }
}

#[test]
fn a_foreign_flock_signals_by_its_end() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let mut flock = program("flock");
    flock.arg(scratch.lock_file("job")).args(["sh", "-c", "echo; read x"]);
    let mut flock =
        flock.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(flock.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let waiter = claim("job", Mode::Exclusive);
    waiting(create(&engine, &waiter));
    drop(flock.stdin.take());
    run(wait_until_held(&engine, &waiter));
    flock.wait().unwrap();
}

#[test]
fn a_waiter_that_gives_up_hands_its_signal_on() {
    let scratch = Scratch::new();
    let (holder, waiter, first, second) = holder_and_waiter(&scratch, Mode::Exclusive);
    let (last, third) = (scratch.engine(), claim("job", Mode::Exclusive));
    waiting(create(&last, &third));
    release_claim(&holder, &first);
    release_claim(&waiter, &second);
    run(wait_until_held(&last, &third));
}

#[test]
fn when_the_head_is_killed_the_second_is_woken() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let first = claim("job", Mode::Exclusive);
    held(create(&engine, &first));
    let mut helper = Helper::start(&scratch.dir());
    assert_eq!(helper.request("claim job exclusive"), "waiting 0");
    let third = claim("job", Mode::Exclusive);
    let last = scratch.engine();
    waiting(create(&last, &third));
    release_claim(&engine, &first);
    helper.kill();
    run(wait_until_held(&last, &third));
}

#[test]
fn a_release_wakes_the_first_two_waiters_only() {
    let scratch = Scratch::new();
    let (holder, waiter, first, _) = holder_and_waiter(&scratch, Mode::Exclusive);
    let crowd: Vec<_> = (0..4).map(|_| (scratch.engine(), claim("job", Mode::Exclusive))).collect();
    crowd.iter().for_each(|(engine, claim)| assert!(waiting(create(engine, claim)).ahead.is_some()));
    run(async {
        // The events that the arrival of the crowd itself caused are over when nothing comes for a while.
        let quiet_time = Duration::from_millis(200);
        for (engine, _) in &crowd {
            while tokio::time::timeout(quiet_time, engine.notifications()).await.is_ok() {}
        }
        release_claim(&holder, &first);
        tokio::time::timeout(WAKE_UP_LIMIT, waiter.notifications()).await.unwrap();
        for (engine, _) in &crowd[1..] {
            assert!(
                tokio::time::timeout(quiet_time, engine.notifications()).await.is_err(),
                "woken without need"
            );
        }
    });
}

#[test]
fn of_many_names_only_the_signalled_one_is_rechecked() {
    let scratch = Scratch::new();
    let (holder, waiter) = (scratch.engine(), scratch.engine());
    let names: Vec<String> = (0..20).map(|n| format!("job{n}")).collect();
    let first: Vec<Claim> = names.iter().map(|text| claim(text, Mode::Exclusive)).collect();
    let second: Vec<Claim> = names.iter().map(|text| claim(text, Mode::Exclusive)).collect();
    first.iter().for_each(|claim| assert_eq!(held(create(&holder, claim)).tokens, 1));
    second.iter().for_each(|claim| assert!(waiting(create(&waiter, claim)).ahead.is_some()));
    release_claim(&holder, &first[7]);
    run(wait_until_held(&waiter, &second[7]));
}

#[test]
fn without_inotify_a_timer_notices_the_end_of_a_killed_holder() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    engine.listener.no_inotify.store(true, Ordering::Relaxed);
    let mut helper = Helper::start(&scratch.dir());
    assert!(helper.request("claim job exclusive").starts_with("held"));
    let waiter = claim("job", Mode::Exclusive);
    waiting(create(&engine, &waiter));
    helper.kill();
    run(wait_until_held(&engine, &waiter));
}

#[test]
fn the_wake_pipe_alone_wakes_a_waiter() {
    let scratch = Scratch::new();
    // On a clock that does not advance nothing is ever due.
    let (_clock, env) = env_with_manual_clock();
    let (holder, waiter) = (scratch.engine(), FileEngine::open(Some(scratch.dir()), env).unwrap());
    waiter.listener.no_inotify.store(true, Ordering::Relaxed);
    let (first, second) = (claim("job", Mode::Exclusive), claim("job", Mode::Exclusive));
    held(create(&holder, &first));
    waiting(create(&waiter, &second));
    release_claim(&holder, &first);
    run(wait_until_held(&waiter, &second));
}

#[test]
fn without_a_wake_pipe_waiters_notice_a_release() {
    for no_inotify in [false, true] {
        let scratch = Scratch::new();
        let (holder, waiter) = (scratch.engine(), scratch.engine());
        std::fs::write(scratch.wake_pipe_dir(), "a file instead of a directory").unwrap();
        waiter.listener.no_inotify.store(no_inotify, Ordering::Relaxed);
        let (first, second) = (claim("job", Mode::Exclusive), claim("job", Mode::Exclusive));
        held(create(&holder, &first));
        waiting(create(&waiter, &second));
        assert_eq!((waiter.listener.has_wake_pipe(), waiter.listener.watches_files()), (false, !no_inotify));
        release_claim(&holder, &first);
        run(wait_until_held(&waiter, &second));
    }
}

#[test]
fn an_unused_inotify_instance_is_closed_and_reopened() {
    let scratch = Scratch::new();
    let (clock, env) = env_with_manual_clock();
    let (holder, waiter) = (scratch.engine(), FileEngine::open(Some(scratch.dir()), env).unwrap());
    for _ in 0..2 {
        let (first, second) = (claim("job", Mode::Exclusive), claim("job", Mode::Exclusive));
        held(create(&holder, &first));
        waiting(create(&waiter, &second));
        let listen = || {
            run(async {
                tokio::time::timeout(Duration::from_millis(50), waiter.notifications()).await.is_ok()
            })
        };
        clock.advance(Duration::from_secs(3600));
        listen();
        assert!(waiter.listener.watches_files(), "while a claim waits near the head");
        release_claim(&holder, &first);
        while !matches!(ask(&waiter, &second), Ok(Answer::Held(_))) {}
        release_claim(&waiter, &second);
        clock.advance(Duration::from_secs(3600));
        while listen() {}
        assert!(!waiter.listener.watches_files());
    }
}

#[test]
fn a_file_planted_as_a_wake_pipe_is_not_written() {
    let scratch = Scratch::new();
    let (holder, waiter, first, _) = holder_and_waiter(&scratch, Mode::Exclusive);
    let wake_pipe = wake_pipe_of(&waiter);
    std::fs::remove_file(&wake_pipe).unwrap();
    std::fs::write(&wake_pipe, "precious").unwrap();
    release_claim(&holder, &first);
    assert_eq!(std::fs::read_to_string(&wake_pipe).unwrap(), "precious");
}

#[test]
fn a_wake_pipe_without_a_reader_blocks_no_release() {
    let scratch = Scratch::new();
    let (holder, waiter, first, second) = holder_and_waiter(&scratch, Mode::Exclusive);
    let wake_pipe = wake_pipe_of(&waiter);
    let mut wake_pipe = std::os::unix::fs::OpenOptionsExt::custom_flags(
        std::fs::File::options().read(true).write(true),
        libc::O_NONBLOCK,
    )
    .open(wake_pipe)
    .unwrap();
    while std::io::Write::write(&mut wake_pipe, &[1; 4096]).is_ok() {}
    release_claim(&holder, &first);
    run(wait_until_held(&waiter, &second));
}

#[test]
fn notifications_survive_a_dropped_future_and_another_runtime() {
    let scratch = Scratch::new();
    let (holder, waiter, first, second) = holder_and_waiter(&scratch, Mode::Exclusive);
    run(async {
        for _ in 0..20 {
            let _ = tokio::time::timeout(Duration::from_millis(1), waiter.notifications()).await;
        }
    });
    release_claim(&holder, &first);
    run(wait_until_held(&waiter, &second));
}

#[test]
fn an_overflow_of_events_asks_for_all() {
    let scratch = Scratch::new();
    let (_holder, waiter, _first, second) = holder_and_waiter(&scratch, Mode::Exclusive);
    let limit: usize =
        std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    let lock_file = scratch.lock_file("job");
    // The kernel merges equal events in a row, but not two kinds in turn.
    for _ in 0..limit / 2 + 10 {
        drop(std::fs::File::open(&lock_file).unwrap());
        drop(std::fs::File::options().write(true).open(&lock_file).unwrap());
    }
    run(async {
        let overflow = async {
            while !waiter
                .notifications()
                .await
                .iter()
                .any(|notification| matches!(notification, Notification::AskAll))
            {}
        };
        tokio::time::timeout(WAKE_UP_LIMIT, overflow).await.expect("an overflow went unnoticed");
    });
    waiting(ask(&waiter, &second));
}
