//! The views of operators.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::{
    super::{guarantee::guarantee, kernel::OVERLAY},
    helper::Helper,
    *,
};
use crate::{Inspect, Level, View};

fn show(engine: &FileEngine, text: &str) -> View {
    pollster::block_on(engine.show(&name(text))).unwrap()
}

/// The view of a name. Repeats the call until the view has this many holders, because `/proc/locks` is torn when other
/// programs, like the tests beside this one, lock files while it is read.
fn show_holders(engine: &FileEngine, text: &str, holders: usize) -> View {
    let mut views = (0..1000).map(|_| show(engine, text));
    views.find(|view| view.holders.len() == holders).unwrap_or_else(|| show(engine, text))
}

fn list(engine: &FileEngine, prefix: &str) -> Vec<String> {
    pollster::block_on(engine.list(prefix)).unwrap().iter().map(|view| view.name.to_string()).collect()
}

#[test]
fn a_free_name_is_shown_with_its_path() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let view = show(&engine, "job");
    assert!(view.mode.is_none() && view.holders.is_empty() && view.waiters.is_empty());
    assert_eq!(view.key, scratch.lock_file("job").display().to_string());
    assert!(!scratch.lock_file("job").exists(), "looking creates nothing");
}

#[test]
fn holders_and_waiters_are_shown_in_order() {
    let scratch = Scratch::new();
    let (engine, inspector) = (scratch.engine(), scratch.engine());
    let holder = claim("job", Mode::Exclusive);
    held(create(&engine, &holder));
    let queue = [claim("job", Mode::Shared), claim("job", Mode::Exclusive)];
    queue.iter().for_each(|waiter| assert!(waiting(create(&engine, waiter)).ahead.is_some()));
    let view = show(&inspector, "job");
    assert_eq!(view.mode, Some(Mode::Exclusive));
    let [seen] = &view.holders[..] else { panic!("{view:?}") };
    assert_eq!(
        (&seen.id, seen.owner.as_str(), seen.token, seen.foreign),
        (&holder.id.to_string(), "tester", Some(1), false)
    );
    assert!(seen.held.is_some() && seen.remaining.is_none());
    assert_eq!(
        view.waiters.iter().map(|waiter| &waiter.id).collect::<Vec<_>>(),
        [&queue[0].id.to_string(), &queue[1].id.to_string()]
    );
    release_claim(&engine, &holder);
    held(ask(&engine, &queue[0]));
    let view = show(&inspector, "job");
    assert_eq!((view.mode, view.holders.len(), view.waiters.len()), (Some(Mode::Shared), 1, 1));
}

#[test]
fn permits_add_up() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    for count in [1, 2] {
        held(create(&engine, &claim("quota", Mode::Permits { count, limit: 9 })));
    }
    let view = show_holders(&engine, "quota", 2);
    assert_eq!((view.mode, view.holders.len()), (Some(Mode::Permits { count: 3, limit: 9 }), 2));
}

#[test]
fn dead_claims_are_not_shown() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let mut helpers = [Helper::start(&scratch.dir()), Helper::start(&scratch.dir())];
    helpers[0].request("claim job exclusive");
    helpers[1].request("claim job exclusive");
    assert_eq!((show(&engine, "job").holders.len(), show(&engine, "job").waiters.len()), (1, 1));
    helpers.iter_mut().for_each(Helper::kill);
    assert!(show(&engine, "job").mode.is_none() && list(&engine, "").is_empty());
}

#[test]
fn a_flock_of_another_program_is_a_foreign_holder() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let file = std::fs::File::create(scratch.lock_file("job")).unwrap();
    file.lock().unwrap();
    let view = show_holders(&engine, "job", 1);
    let [seen] = &view.holders[..] else { panic!("{view:?}") };
    assert_eq!(
        (seen.foreign, seen.token, seen.id.clone()),
        (true, None, format!("pid {}", std::process::id()))
    );
    assert_eq!(view.mode, Some(Mode::Exclusive));
    assert!((0..1000).any(|_| list(&engine, "") == ["job"]));
    file.unlock().unwrap();
    file.lock_shared().unwrap();
    held(create(&engine, &claim("job", Mode::Shared)));
    let view = show_holders(&engine, "job", 2);
    assert_eq!(
        (view.mode, view.holders.iter().map(|holder| holder.foreign).collect::<Vec<_>>()),
        (Some(Mode::Shared), vec![false, true])
    );
}

#[test]
fn names_in_use_are_listed_by_prefix() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let long = format!("a/{}", "x".repeat(400));
    for text in ["b", "a/1", &long, "a/0"] {
        held(create(&engine, &claim(text, Mode::Exclusive)));
    }
    let free = claim("a/free", Mode::Exclusive);
    held(create(&engine, &free));
    release_claim(&engine, &free);
    std::fs::write(scratch.dir().join("README"), "").unwrap();
    assert_eq!(list(&engine, ""), ["a/0", "a/1", &long, "b"]);
    assert_eq!(list(&engine, "a/"), ["a/0", "a/1", &long]);
    assert_eq!(list(&engine, "c"), [""; 0]);
}

#[test]
fn inspecting_takes_no_lock() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let holder = claim("job", Mode::Shared);
    held(create(&engine, &holder));
    std::thread::scope(|scope| {
        let inspector = scope.spawn(|| (0..500).for_each(|_| drop(show(&engine, "job"))));
        while !inspector.is_finished() {
            let reader = try_claim("job", Mode::Shared);
            held(create(&engine, &reader));
            release_claim(&engine, &reader);
        }
    });
}

/// A clock of a claim between its flock and its record. When it is read, it waits until an inspector has looked often
/// or has ended its look.
struct SlowGrant {
    looks: Arc<AtomicUsize>,
    has_flock: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
}

impl crate::Clock for SlowGrant {
    fn now(&self) -> crate::Instant {
        self.has_flock.store(true, Ordering::SeqCst);
        while self.looks.load(Ordering::SeqCst) < 20 && !self.has_ended.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Env::system().clock.now()
    }
}

/// A clock that counts the looks of an inspector, which reads it once in each.
struct Looks(Arc<AtomicUsize>);

impl crate::Clock for Looks {
    fn now(&self) -> crate::Instant {
        self.0.fetch_add(1, Ordering::SeqCst);
        Env::system().clock.now()
    }
}

#[test]
fn a_hold_of_ours_is_not_called_foreign_before_its_record_is_written() {
    let scratch = Scratch::new();
    let [has_flock, has_ended] = [false, false].map(|is_so| Arc::new(AtomicBool::new(is_so)));
    let looks = Arc::new(AtomicUsize::new(0));
    let engine = |clock| FileEngine::open(Some(scratch.dir()), Env { clock, ..Env::system() }).unwrap();
    let shared = (Arc::clone(&looks), Arc::clone(&has_flock), Arc::clone(&has_ended));
    let claimant = engine(Arc::new(SlowGrant { looks: shared.0, has_flock: shared.1, has_ended: shared.2 }));
    let inspector = engine(Arc::new(Looks(Arc::clone(&looks))));
    let hold = claim("job", Mode::Exclusive);
    let view = std::thread::scope(|scope| {
        let granted = scope.spawn(|| held(create(&claimant, &hold)));
        while !has_flock.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let view = show(&inspector, "job");
        has_ended.store(true, Ordering::SeqCst);
        granted.join().unwrap();
        view
    });
    let [seen] = &view.holders[..] else { panic!("{view:?}") };
    assert_eq!((seen.foreign, &seen.id), (false, &hold.id.to_string()), "{looks:?}");
}

#[test]
fn the_guarantee_is_exact_and_names_its_limits() {
    let scratch = Scratch::new();
    let guarantee = pollster::block_on(scratch.engine().guarantee()).unwrap();
    assert_eq!(guarantee.level, Level::Exact);
    assert!(guarantee.notes.iter().any(|note| note.contains("flock(1)")));
    assert!(guarantee.notes.iter().any(|note| note.contains(scratch.dir().to_str().unwrap())));
}

#[test]
fn a_container_layer_is_best_effort() {
    let scratch = Scratch::new();
    let guarantee_on = |fs| guarantee(&scratch.dir(), None, Some(fs));
    assert_eq!(guarantee_on(0xEF53).level, Level::Exact);
    let guarantee = guarantee_on(OVERLAY);
    assert_eq!(guarantee.level, Level::BestEffort);
    assert!(guarantee.findings[0].to_string().contains("is overlay, wanted that of a volume"));
}

/// A name whose lock file is a directory, a symbolic link or a hard link can never be claimed: it must not be shown as
/// free.
#[test]
fn a_foreign_file_is_not_shown_as_a_free_name() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    held(create(&engine, &claim("good", Mode::Exclusive)));
    std::fs::create_dir(scratch.lock_file("directory")).unwrap();
    std::os::unix::fs::symlink("/dev/null", scratch.lock_file("link")).unwrap();
    std::fs::write(scratch.lock_file("twice"), "").unwrap();
    std::fs::hard_link(scratch.lock_file("twice"), scratch.lock_file("again")).unwrap();
    for text in ["again", "directory", "link", "twice"] {
        let refused = create(&engine, &claim(text, Mode::Exclusive)).unwrap_err();
        let seen = pollster::block_on(engine.show(&name(text))).unwrap_err();
        assert_eq!((seen.fault, seen.message), (refused.fault, refused.message));
    }
    let listed = pollster::block_on(engine.list("")).unwrap();
    let bad: Vec<_> =
        listed.iter().filter(|view| view.problem.is_some()).map(|view| view.name.as_str()).collect();
    assert_eq!(bad, ["again", "directory", "link", "twice"]);
    assert!(listed.len() == 5 && listed.iter().any(|view| view.name.as_str() == "good"));
}
