//! Cycles, and what only looks like one.

use std::time::{Duration, Instant};

use leasehold::{Actor, HolderView, Locks, Mode, Name, Owner, View, WaiterView};

use super::*;
use crate::Reached;

const PERMITS: fn(u32) -> Mode = |count| Mode::Permits { count, limit: 2 };

fn actor(id: u64) -> Option<Actor> {
    Some(format!("{id:016x}").parse().unwrap())
}

fn child(id: u64, parent: u64) -> Option<Actor> {
    Some(format!("{id:016x}/{parent:016x}").parse().unwrap())
}

/// The reader has the same environment.
fn here(_: &str) -> Reached {
    Reached::AsHere
}

/// A name whose claims have the ids of their tasks and the name: `h` holds, `w` waits.
#[derive(Clone)]
struct Lock(View);

impl Lock {
    fn new(name: &str) -> Self {
        Self(View::free(Name::new(name).unwrap(), name.to_owned()))
    }

    fn held(mut self, mode: Mode, actor: Option<Actor>) -> Self {
        let number = self.0.holders.len() as u64;
        let id = format!("h{number}-{actor:?}");
        let mut holder = HolderView::new(id, owner(actor)).token(Some(7 + number));
        // An actor with a larger id began later.
        let held = actor.map(|actor| Duration::from_secs(1000 - actor.id()));
        (holder, holder.actor) = (holder.clone().times(held, Some(Duration::from_secs(9))), actor);
        self.0.add_holder(mode, holder);
        self
    }

    fn waits(self, mode: Mode, actor: Option<Actor>) -> Self {
        self.waits_as("w", Some(mode), actor)
    }

    fn waits_as(mut self, word: &str, mode: Option<Mode>, actor: Option<Actor>) -> Self {
        let id = format!("{word}{}-{actor:?}", self.0.waiters.len());
        let mut waiter = WaiterView::new(id, owner(actor), Some(Duration::from_secs(3)));
        (waiter.mode, waiter.actor) = (mode, actor);
        self.0.waiters.push(waiter);
        self
    }
}

fn owner(actor: Option<Actor>) -> String {
    actor.map_or_else(|| "nobody".to_owned(), |actor| format!("t{}", actor.id()))
}

fn views<const N: usize>(locks: [Lock; N]) -> Vec<View> {
    locks.map(|lock| lock.0).into()
}

fn look(views: &[View]) -> Look<'_> {
    Look { engine: "redis", fifo: true, views }
}

/// The deadlocks of two equal looks.
fn deadlocks(looks: &[Look<'_>]) -> Vec<Deadlock> {
    let only_deadlocks = |finding| match finding {
        Finding::Deadlock(deadlock) => Some(deadlock),
        Finding::LongWait(_) => None,
    };
    report(looks, looks, MIN_APART).into_iter().filter_map(only_deadlocks).collect()
}

/// Who waits for whom in a cycle.
fn words(deadlock: &Deadlock) -> Vec<String> {
    let word = |block: &Block| {
        let Block { waiter, blocker } = block;
        format!("{} {} {}", waiter.owner, waiter.name, blocker.owner)
    };
    let mut words: Vec<_> = deadlock.blocks.iter().map(word).collect();
    words.sort_unstable();
    words
}

use Mode::{Exclusive as X, Shared as S};

fn two_tasks() -> Vec<View> {
    views([
        Lock::new("a").held(X, actor(1)).waits(X, actor(2)),
        Lock::new("b").held(X, actor(2)).waits(X, actor(1)),
    ])
}

#[test]
fn two_tasks_that_wait_for_each_other_are_told_with_the_line_that_ends_it() {
    let all = two_tasks();
    let found = deadlocks(&[look(&all)]);
    assert_eq!(found.len(), 1);
    assert_eq!(words(&found[0]), ["t1 b t2", "t2 a t1"]);
    assert_eq!(found[0].victim().unwrap().name, "b", "the hold of the task that began last");
    assert!(found[0].contains(1) && found[0].contains(2) && !found[0].contains(3));
    let text = found[0].to_string();
    assert!(
        text.starts_with("deadlock: ") && text.contains(r#"t1 has waited 3 s for redis lock "b""#),
        "{text}"
    );
    assert!(text.contains("which t2 has held for 16 min 38 s (token 7)"), "{text}");
    assert!(found[0].advice(&here).contains("leasehold break --token 7 -- b;"), "{}", found[0].advice(&here));
}

#[test]
fn the_last_to_wait_is_the_same_for_everyone() {
    let mut all = two_tasks();
    let last = |all: &[View]| deadlocks(&[look(all)])[0].last_to_wait().unwrap().owner.clone();
    all[0].waiters[0].waiting = Some(Duration::from_secs(9));
    assert_eq!(last(&all), "t1");
    all[0].waiters[0].waiting = Some(Duration::from_secs(1));
    assert_eq!(last(&all), "t2");
    all.iter_mut().for_each(|view| view.waiters[0].waiting = None);
    let one = last(&all);
    all.reverse();
    assert_eq!(last(&all), one, "no times are known");
}

#[test]
fn runs_inside_runs_are_one_cycle_over_their_parents() {
    let all = views([
        Lock::new("a").held(X, actor(1)).waits(X, child(22, 20)),
        Lock::new("b").held(X, child(20, 2)).waits(X, child(11, 1)),
        Lock::new("c").held(X, actor(2)),
    ]);
    let found = deadlocks(&[look(&all)]);
    assert_eq!(found.len(), 1);
    assert_eq!(words(&found[0]), ["t11 b t20", "t22 a t1"]);
    assert!(found[0].to_string().contains("t11 (inside t1) has waited"), "{}", found[0]);
    assert_eq!(found[0].behind, 1, "the run outside of the cycle");
}

#[test]
fn a_cycle_over_three_tasks_and_two_engines_is_one() {
    let redis = views([Lock::new("a").held(X, actor(1)).waits(X, actor(3))]);
    let etcd = views([
        Lock::new("a").held(X, actor(2)).waits(X, actor(1)),
        Lock::new("b").held(X, actor(3)).waits(X, actor(2)).waits(X, actor(9)).waits(X, None),
    ]);
    let looks = [look(&redis), Look { engine: "etcd", fifo: true, views: &etcd }];
    let found = deadlocks(&looks);
    assert_eq!(found.len(), 1);
    assert_eq!(words(&found[0]), ["t1 a t2", "t2 b t3", "t3 a t1"]);
    assert_eq!(found[0].behind, 2);
    assert!(found[0].to_string().contains("; 2 more tasks wait behind them: "), "{}", found[0]);
    assert!(deadlocks(&looks[1..]).is_empty(), "one engine alone shows a chain");
}

#[test]
fn a_reader_behind_a_writer_waits_for_the_writer() {
    let lock = Lock::new("a").held(S, actor(1)).waits(X, actor(2)).waits(S, child(11, 1));
    let all = views([lock.clone()]);
    assert_eq!(words(&deadlocks(&[look(&all)])[0]), ["t11 a t2", "t2 a t1"]);
    let unordered = Look { fifo: false, ..look(&all) };
    assert!(deadlocks(&[unordered]).is_empty(), "a reader may be granted the name before the writer");
    // The engine does not tell for what its claims wait: the first one cannot be a reader.
    let lock =
        Lock::new("a").held(S, actor(1)).waits_as("w", None, actor(2)).waits_as("w", None, child(11, 1));
    assert_eq!(deadlocks(&[look(&views([lock]))]).len(), 1);
}

#[test]
fn permits_wait_for_enough_of_the_holders() {
    // Each task has one of two permits of `a` and waits for another one.
    let knot = Lock::new("a")
        .held(PERMITS(1), actor(1))
        .held(PERMITS(1), actor(2))
        .waits(PERMITS(1), actor(1))
        .waits(PERMITS(1), actor(2));
    assert!(!deadlocks(&[look(&views([knot]))]).is_empty());
    // Task 3 will give its permit back, and that is enough for one of them.
    let lock = |wanted| {
        Lock::new("a").held(PERMITS(1), actor(1)).held(PERMITS(1), actor(3)).waits(PERMITS(wanted), actor(1))
    };
    assert!(deadlocks(&[look(&views([lock(1)]))]).is_empty());
    assert_eq!(words(&deadlocks(&[look(&views([lock(2)]))])[0]), ["t1 a t1"], "it needs both");
    let all = views([lock(1), Lock::new("b").held(X, actor(1)).waits(X, actor(3))]);
    assert_eq!(deadlocks(&[look(&all)]).len(), 1, "task 3 waits for task 1");
    // The engine does not tell for what its claims wait. One permit is free, so the first one waits for both.
    let lock = |holder| {
        let lock = Lock::new("a").held(PERMITS(1), actor(holder)).waits_as("w", None, actor(2));
        lock.waits_as("w", None, actor(1))
    };
    assert_eq!(deadlocks(&[look(&views([lock(1)]))]).len(), 1);
    assert!(deadlocks(&[look(&views([lock(3)]))]).is_empty(), "task 3 ends");
}

#[test]
fn what_only_looks_like_a_cycle_is_none() {
    let no_cycles = [
        // A chain: the last task waits for nothing.
        views([
            Lock::new("a").held(X, actor(1)).waits(X, actor(2)),
            Lock::new("b").held(X, actor(2)).waits(X, actor(3)),
            Lock::new("c").held(X, actor(3)),
        ]),
        // Readers beside each other.
        views([
            Lock::new("a").held(S, actor(1)).held(S, actor(2)),
            Lock::new("b").held(S, actor(2)).held(S, actor(1)),
        ]),
        // A claim is granted in a moment.
        views([
            Lock::new("a").held(S, actor(1)).waits(S, actor(2)),
            Lock::new("b").held(X, actor(2)).waits(X, actor(1)),
        ]),
        // Two tasks of one process, without actors: who holds is not who waits.
        views([Lock::new("a").held(X, None).waits(X, None), Lock::new("b").held(X, None).waits(X, None)]),
        // Two runs beside each other inside one run: one waits for the other, which goes on.
        views([
            Lock::new("a").held(X, actor(1)),
            Lock::new("b").held(X, child(11, 1)).waits(X, child(12, 1)),
        ]),
        // Labels that name each other as parents.
        views([Lock::new("a").held(X, child(1, 2)).waits(X, None), Lock::new("b").held(X, child(2, 1))]),
        // A queue without a holder.
        views([Lock::new("a").waits(X, actor(1)).waits(X, actor(1))]),
    ];
    for all in no_cycles {
        assert_eq!(deadlocks(&[look(&all)]), [], "{all:?}");
    }
    let mut unreadable = two_tasks();
    unreadable[0].problem = Some("not a record".into());
    assert_eq!(deadlocks(&[look(&unreadable)]), []);
}

#[test]
fn a_cycle_counts_if_the_same_claims_form_it_in_two_looks() {
    let all = two_tasks();
    let other = views([
        Lock::new("a").held(X, actor(1)).waits(X, actor(2)),
        Lock::new("b").held(X, actor(2)).waits_as("v", Some(X), actor(1)),
    ]);
    let chain = views([Lock::new("a").held(X, actor(1)).waits(X, actor(2))]);
    let (mut finder, now) = (Finder::new(), Instant::now());
    let at = |millis| now + Duration::from_millis(millis);
    assert_eq!(finder.next(&[look(&all)], now), [], "one look is not enough");
    assert_eq!(finder.next(&[look(&all)], at(999)), [], "too soon");
    assert_eq!(finder.next(&[look(&all)], at(1000)).len(), 1);
    assert_eq!(finder.next(&[look(&other)], at(2000)), [], "another claim of the same task");
    assert_eq!(finder.next(&[look(&chain)], at(3000)), []);
    assert_eq!(finder.next(&[look(&all)], at(4000)), [], "it was gone in between");
    assert_eq!(finder.next(&[look(&all)], at(5000)).len(), 1);
}

#[test]
fn a_queue_behind_a_deadlock_is_counted_and_a_long_one_without_is_reduced() {
    let queue = |lock: Lock| (0..5000).fold(lock, |lock, _| lock.waits(X, None));
    let mut all = two_tasks();
    all[0] = queue(Lock(all[0].clone())).0;
    let found = deadlocks(&[look(&all)]);
    assert_eq!((found.len(), found[0].behind), (1, 5000));
    let all = views([queue(Lock::new("a").held(X, actor(1)))]);
    assert_eq!(deadlocks(&[look(&all)]), []);
    assert_eq!(blocks(&[look(&all)]).len(), 5000 + 4999, "the holder, and the claim ahead");
}

/// Tasks are told apart by their owners, also those of one process. Each has locks of its own, because the engine does
/// not see a wait for a hold of the same locks.
#[test]
fn tasks_of_one_process_are_seen_through_an_engine() {
    let connect = || Locks::connect("memory:tasks-that-wait").unwrap();
    let (locks, of_first, of_second) = (connect(), connect(), connect());
    let request = |name: &str, locks: &Locks, task: &Owner| locks.mutex(name).owner(task.clone()).blocking();
    let wait = |name: &str, locks: &Locks, task: &Owner| {
        let request = request(name, locks, task);
        std::thread::spawn(move || request.acquire_within(Duration::from_secs(60)).map(drop))
    };
    let until_waiters = |count| {
        let waiters = |views: Vec<View>| views.iter().map(|view| view.waiters.len()).sum::<usize>();
        let end = Instant::now() + Duration::from_secs(60);
        while waiters(locks.list_blocking("").unwrap()) < count {
            assert!(Instant::now() < end, "there are no {count} waiters");
            std::thread::yield_now();
        }
        locks.list_blocking("").unwrap()
    };
    let tasks = [1, 2].map(|number| Owner::of_task(&format!("task {number}"), Actor::random()));
    let [first, second] = &tasks;
    let held_a = request("a", &of_first, first).acquire().unwrap();
    let held_b = request("b", &of_second, second).acquire().unwrap();
    // A third task waits beside them.
    let third = wait("a", &locks, &Owner::new("task 3"));
    assert_eq!(deadlocks(&[look(&until_waiters(1))]), []);
    held_a.release_blocking().unwrap();
    third.join().unwrap().unwrap();
    let held_a = request("a", &of_first, first).acquire().unwrap();

    let waits = [wait("b", &of_first, first), wait("a", &of_second, second)];
    let found = deadlocks(&[look(&until_waiters(2))]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(words(&found[0]), ["task 1 b task 2", "task 2 a task 1"]);
    drop((held_a, held_b));
    waits.into_iter().for_each(|wait| wait.join().unwrap().unwrap());
}

#[test]
fn the_advice_names_the_engine_of_the_command() {
    let redis = views([Lock::new("a").held(X, actor(1)).waits(X, actor(2))]);
    let etcd = views([Lock::new("b").held(X, actor(2)).waits(X, actor(1))]);
    let looks = [look(&redis), Look { engine: "etcd (URL 2)", fifo: true, views: &etcd }];
    let found = deadlocks(&looks);
    let labelled = found[0].advice(&|engine| Reached::Label(engine.to_owned()));
    let line = "with the URL of etcd (URL 2): leasehold break --token 7 -- b;";
    assert!(labelled.contains(line), "{labelled}");
    let by_url = found[0].advice(&|engine| Reached::of_url(&format!("{}://h", &engine[..4]), engine));
    let line = "leasehold --url etcd://h break --token 7 -- b;";
    assert!(by_url.contains(line), "{by_url}");
    let line = ": leasehold break --token 7 -- b;";
    assert!(found[0].advice(&here).contains(line), "{}", found[0].advice(&here));
}

#[test]
fn a_name_is_one_word_of_the_shell() {
    let all = views([Lock::new("it's; rm").held(X, actor(1)).waits(X, child(2, 1))]);
    let found = deadlocks(&[look(&all)]);
    assert!(
        found[0].advice(&here).contains(r"leasehold break --token 7 -- 'it'\''s; rm';"),
        "{}",
        found[0].advice(&here)
    );
}

/// Looks once a minute at a name whose holds last a minute each, for so many minutes.
fn watch(fifo: bool, minutes: u64, queue: impl Fn(u64) -> Lock) -> Option<LongWait> {
    let (mut finder, start) = (Finder::new(), Instant::now());
    let mut last = None;
    for minute in 0..minutes {
        let all = [queue(minute).0];
        let found = finder
            .next(&[Look { engine: "redis", fifo, views: &all }], start + Duration::from_secs(60 * minute));
        last = found.into_iter().find_map(|finding| match finding {
            Finding::LongWait(long_wait) => Some(*long_wait),
            Finding::Deadlock(_) => None,
        });
    }
    last
}

/// Between two looks at an engine that is away, nobody knows how long its holds last.
#[test]
fn an_outage_is_no_end_of_a_hold() {
    let (mut finder, start, mut last) = (Finder::new(), Instant::now(), Vec::new());
    for minute in 0..12 {
        let mut lock = Lock::new("a").held(X, actor(1)).waits_as("victim", Some(X), None);
        lock.0.holders[0].held = Some(Duration::from_secs(5 + 60 * minute));
        lock.0.waiters[0].waiting = Some(Duration::from_secs(60 * minute));
        let (all, at) = ([lock.0], start + Duration::from_secs(60 * minute));
        last = finder.next(&[look(&all)], at);
        let other = Look { engine: "other", fifo: true, views: &[] };
        assert!(finder.next(&[other], at + Duration::from_secs(30)).is_empty());
    }
    let [Finding::LongWait(long_wait)] = &last[..] else { panic!("{last:?}") };
    assert_eq!(long_wait.typical, None, "no hold was seen to end");
    assert!(matches!(&long_wait.cause, LongWaitCause::Hold(_)), "{long_wait:?}");
}

/// A name that a new claim holds each minute, and for which `victim` waits.
fn each_minute(minute: u64) -> Lock {
    let mut lock = Lock::new("a").held(X, actor(minute + 1)).waits_as("victim", Some(X), None);
    (lock.0.holders[0].held, lock.0.waiters[0].waiting) = (None, None);
    lock
}

#[test]
fn a_long_wait_is_told_with_its_cause() {
    assert!(watch(false, 10, each_minute).is_none(), "ten times the typical hold have not passed");
    let found = watch(false, 12, each_minute).unwrap();
    assert_eq!((found.typical, found.waiting.as_secs()), (Some(Duration::from_secs(60)), 660));
    assert_eq!(found.cause, LongWaitCause::Overtaken(11));
    assert_eq!(watch(true, 12, each_minute).unwrap().cause, LongWaitCause::Queue);
    // Its turn comes after three others.
    let in_line = |minute| {
        let mut lock = each_minute(minute);
        let mut victim = lock.0.waiters.remove(0);
        victim.waiting = Some(Duration::from_secs(60 * minute));
        let word = format!("w{minute}-");
        let mut lock = (0..3).fold(lock, |lock, _| lock.waits_as(&word, Some(X), None));
        lock.0.waiters.iter_mut().for_each(|waiter| waiter.waiting = None);
        lock.0.waiters.push(victim);
        lock
    };
    assert!(watch(true, 30, in_line).is_none());

    // One hold lasts for all of the wait.
    let hung = |minute| {
        let mut lock = Lock::new("a").held(X, actor(1)).waits_as("victim", Some(X), None);
        lock.0.holders[0].held = Some(Duration::from_secs(5 + 60 * minute));
        lock.0.waiters[0].waiting = Some(Duration::from_secs(60 * minute));
        lock
    };
    assert!(watch(true, 10, hung).is_none(), "nothing is known of its holds");
    let found = watch(true, 11, hung).unwrap();
    assert!(matches!(&found.cause, LongWaitCause::Hold(hold) if hold.owner == "t1"), "{found:?}");
    let text = found.to_string();
    assert!(
        text.ends_with("has waited 10 min 0 s for redis lock \"a\", which t1 has held for 10 min 5 s"),
        "{text}"
    );
    assert!(found.advice(&here).ends_with("leasehold break --token 7 -- a"), "{}", found.advice(&here));
}
