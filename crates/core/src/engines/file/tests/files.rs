//! The files themselves: replaced, removed, left open, left behind.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::{Inspect, Loss};

/// How many files at or below `dir` this process has open.
fn count_open_files(dir: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    links
        .filter(|link| {
            std::fs::read_link(link.as_ref().unwrap().path()).is_ok_and(|target| target.starts_with(dir))
        })
        .count()
}

#[test]
fn a_removed_or_replaced_lock_file_is_reported_to_its_holder() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    type Change = fn(&Path);
    let changes: [(&str, Change); 3] = [
        ("removed", |file| std::fs::remove_file(file).unwrap()),
        ("replaced", |file| {
            std::fs::write(file.with_extension("new"), "").unwrap();
            std::fs::rename(file.with_extension("new"), file).unwrap();
        }),
        ("moved", |file| std::fs::rename(file, file.with_extension("old")).unwrap()),
    ];
    for (text, change) in changes {
        let first = claim(text, Mode::Exclusive);
        let token = held(create(&engine, &first)).token;
        assert!(matches!(renew(&engine, &first, token), Renewed::Extended { ttl: None, .. }));
        change(&scratch.lock_file(text));
        assert!(matches!(renew(&engine, &first, token), Renewed::Lost(Loss::Replaced)), "{text}");
        // Other claims use the new file; the release of the old holder does not affect their hold.
        let second = claim(text, Mode::Exclusive);
        let next = held(create(&engine, &second)).token;
        assert!(next > token);
        release_claim(&engine, &first);
        assert!(matches!(renew(&engine, &second, next), Renewed::Extended { .. }), "{text}");
        taken(create(&engine, &try_claim(text, Mode::Exclusive)));
    }
}

#[test]
fn a_waiter_of_a_removed_file_is_gone() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let waiter = claim("job", Mode::Exclusive);
    held(create(&engine, &claim("job", Mode::Exclusive)));
    waiting(create(&engine, &waiter));
    std::fs::remove_file(scratch.lock_file("job")).unwrap();
    assert!(matches!(ask(&engine, &waiter), Ok(Answer::Gone)));
    assert!(matches!(release(&engine, &waiter), Released::NotThere));
}

#[test]
fn a_removed_state_file_starts_a_new_lineage() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let first = claim("job", Mode::Exclusive);
    let token = held(create(&engine, &first)).token;
    std::fs::remove_file(scratch.state_file("job")).unwrap();
    assert!(matches!(renew(&engine, &first, token), Renewed::Lost(Loss::Replaced)));
    taken(create(&engine, &try_claim("job", Mode::Exclusive)));
    release_claim(&engine, &first);
    let next = held(create(&engine, &claim("job", Mode::Exclusive))).token;
    assert_eq!(next.partial_cmp(&token), None, "tokens of two lineages are not compared");
}

#[test]
fn in_a_long_queue_only_the_first_two_use_inotify() {
    let scratch = Scratch::new();
    let engines: Vec<FileEngine> = (0..10).map(|_| scratch.engine()).collect();
    for engine in &engines {
        create(engine, &claim("job", Mode::Exclusive)).unwrap();
    }
    assert_eq!(engines.iter().filter(|engine| engine.listener.watches_files()).count(), 2);
    assert_eq!(std::fs::read_dir(scratch.wake_pipe_dir()).unwrap().count(), 9);
}

#[test]
fn ended_claims_and_engines_leave_nothing_open() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let open_at_rest = count_open_files(&scratch.dir());
    for round in 0..50 {
        for mode in [Mode::Exclusive, Mode::Shared, PERMIT] {
            let text = format!("{}-{round}", mode.word());
            let (first, second) =
                (claim(&text, mode), claim(&text, if mode == PERMIT { mode } else { Mode::Exclusive }));
            held(create(&engine, &first));
            create(&engine, &second).unwrap();
            assert!(matches!(
                create(&engine, &try_claim(&text, second.mode)),
                Ok(Answer::Taken(_) | Answer::Held(_))
            ));
            release_claim(&engine, &second);
            release_claim(&engine, &first);
        }
    }
    let wake_pipe = 2; // the pipe and its directory
    let (state_files, idle_files) = (64, 32);
    assert!(
        count_open_files(&scratch.dir()) <= open_at_rest + wake_pipe + state_files + idle_files,
        "few files stay open"
    );
    assert_eq!(std::fs::read_dir(scratch.wake_pipe_dir()).unwrap().count(), 1);
    simulate_kill(engine);
    assert_eq!(count_open_files(&scratch.dir()), 0);
    assert_eq!(std::fs::read_dir(scratch.wake_pipe_dir()).unwrap().count(), 0);
}

#[test]
fn a_lock_file_stays_open_for_the_next_hold_and_is_free_meanwhile() {
    let scratch = Scratch::new();
    let (engine, other) = (scratch.engine(), scratch.engine());
    let hold_and_release = || {
        let first = claim("job", Mode::Exclusive);
        held(create(&engine, &first));
        release_claim(&engine, &first);
    };
    hold_and_release();
    let open_before = count_open_files(&scratch.dir());
    hold_and_release();
    assert_eq!(count_open_files(&scratch.dir()), open_before);
    assert!(flock_gets(&scratch.lock_file("job"), "-x"));
    let second = claim("job", Mode::Exclusive);
    held(create(&other, &second));
    taken(create(&engine, &try_claim("job", Mode::Exclusive)));
    release_claim(&other, &second);
    // The next claim locks the file that exists by then.
    hold_and_release();
    std::fs::rename(scratch.lock_file("job"), scratch.lock_file("old")).unwrap();
    let third = claim("job", Mode::Exclusive);
    held(create(&engine, &third));
    assert!(!flock_gets(&scratch.lock_file("job"), "-x"));
    taken(create(&other, &try_claim("job", Mode::Exclusive)));
}

/// A waiter that has no wake pipe, because none could be created, notices the end of a hold by the close of the lock
/// file.
#[test]
fn a_lock_file_with_waiters_is_closed() {
    let scratch = Scratch::new();
    let (engine, other) = (scratch.engine(), scratch.engine());
    let (first, second) = (claim("job", Mode::Exclusive), claim("job", Mode::Exclusive));
    held(create(&engine, &first));
    waiting(create(&other, &second));
    let file = scratch.lock_file("job");
    assert_eq!(count_open_files(&file), 2);
    release_claim(&engine, &first);
    assert_eq!(count_open_files(&file), 1);
}

#[test]
fn open_idle_lock_files_are_bounded() {
    let scratch = Scratch::new();
    let mut helper = helper::Helper::start_as(&["prlimit", "--nofile=60"], &scratch.dir());
    assert_eq!(helper.request("use 200"), "used");
}

#[test]
fn the_wake_pipe_of_a_killed_process_is_swept_and_a_live_one_is_not() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    held(create(&engine, &claim("job", Mode::Exclusive)));
    let count_wake_pipes = || std::fs::read_dir(scratch.wake_pipe_dir()).unwrap().count();
    let mut killed = helper::Helper::start(&scratch.dir());
    killed.request("claim job exclusive");
    let mut live = helper::Helper::start(&scratch.dir());
    live.request("claim job exclusive");
    assert_eq!(count_wake_pipes(), 2);
    killed.kill();
    waiting(create(&engine, &claim("job", Mode::Exclusive)));
    assert_eq!(count_wake_pipes(), 2, "one was swept, and this engine made one");
}

#[test]
fn files_are_private_or_shared_with_a_group() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let scratch = Scratch::new();
    let engine = scratch.engine();
    held(create(&engine, &claim("job", Mode::Exclusive)));
    waiting(create(&engine, &claim("job", Mode::Exclusive)));
    assert_eq!(mode(&scratch.dir()), 0o700);
    assert_eq!(mode(&scratch.lock_file("job")), 0o600);
    assert_eq!(mode(&scratch.state_file("job")), 0o600);
    let shared = Scratch::new();
    std::fs::create_dir(shared.dir()).unwrap();
    std::fs::set_permissions(shared.dir(), PermissionsExt::from_mode(0o2770)).unwrap();
    let engine = shared.engine();
    held(create(&engine, &claim("job", Mode::Exclusive)));
    waiting(create(&engine, &claim("job", Mode::Exclusive)));
    assert_eq!(mode(&shared.lock_file("job")), 0o660);
    assert_eq!(mode(&shared.state_file("job")), 0o660);
    assert_eq!(mode(&shared.dir().join(".state")) & 0o777, 0o770);
    let wake_pipe = std::fs::read_dir(shared.wake_pipe_dir()).unwrap().next().unwrap().unwrap();
    assert_eq!(mode(&wake_pipe.path()), 0o660);
}

/// Everything below a directory, with its owner.
fn files_with_owners(dir: &Path) -> Vec<(PathBuf, u32)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        use std::os::unix::fs::MetadataExt;
        let meta = entry.metadata().unwrap();
        all.push((entry.path(), meta.uid()));
        if meta.is_dir() {
            all.extend(files_with_owners(&entry.path()));
        }
    }
    all
}

#[test]
fn inspecting_creates_nothing() {
    let scratch = Scratch::new();
    let inspect_all = || {
        let engine = FileEngine::open(Some(scratch.dir()), Env::system()).unwrap();
        assert!(pollster::block_on(engine.list("")).unwrap().is_empty());
        assert!(pollster::block_on(engine.show(&name("job"))).unwrap().holders.is_empty());
        pollster::block_on(engine.guarantee()).unwrap();
    };
    inspect_all();
    assert!(!scratch.dir().exists(), "the directory was not there");
    std::fs::create_dir(scratch.dir()).unwrap();
    std::fs::set_permissions(scratch.dir(), PermissionsExt::from_mode(0o700)).unwrap();
    inspect_all();
    assert_eq!(files_with_owners(&scratch.dir()), []);
}

/// Files that root created in an application's directory must not lock the application out.
#[test]
fn root_creates_files_with_the_owner_of_the_directory() {
    const USER: u32 = 65534;
    assert!(
        nix::unistd::Uid::effective().is_root(),
        "making files of another user needs root: run this test as root"
    );
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.dir()).unwrap();
    std::fs::set_permissions(scratch.dir(), PermissionsExt::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(scratch.dir(), Some(USER), Some(USER)).unwrap();
    let (engine, other) = (scratch.engine(), scratch.engine());
    let (first, second) = (claim("job", Mode::Exclusive), claim("job", Mode::Exclusive));
    held(create(&engine, &first));
    waiting(create(&other, &second));
    let all = files_with_owners(&scratch.dir());
    assert!(all.len() >= 5, "a lock file, a state file, a wake pipe, and their directories: {all:?}");
    assert!(all.iter().all(|(_, owner)| *owner == USER), "{all:?}");
    release_claim(&engine, &first);
    held(ask(&other, &second));
}
