//! The events that observers receive: they agree with the history, and cost nothing when nobody observes.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use leasehold_core::{
    All, Clock, Env, Error, Event, Guard, GuardEnd, Instant, Keeper, Locks, Loss, MemoKind, NewMemo, Observe,
    WhenUnreachable,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::decorators::{Fault, Faulty, Verb};
use proptest::prelude::*;
use tokio::time::{sleep, timeout};

use crate::cleanup::{new_store, paused_runtime};

pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const MOMENT: Duration = Duration::from_millis(1);

/// Counts events, and stores a line for each.
#[derive(Default)]
pub(crate) struct Notes {
    counts: Mutex<BTreeMap<&'static str, u64>>,
    lines: Mutex<Vec<String>>,
}

impl Notes {
    fn count(&self, what: &str) -> u64 {
        self.counts.lock().unwrap().get(what).copied().unwrap_or_default()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

impl Observe for Notes {
    fn event(&self, event: &Event<'_>) {
        let (what, detail) = match event {
            Event::WaitBegun { .. } => ("begun", String::new()),
            Event::Queued { ahead, .. } => ("queued", format!("{ahead:?}")),
            Event::Granted { contended, local, .. } => ("granted", format!("{contended} {local}")),
            Event::Cancelled { waited, contended, .. } => ("cancelled", format!("{waited:?} {contended}")),
            Event::Refused { error, waited, .. } => {
                assert_eq!(error.name(), event.name());
                ("refused", format!("{:?} {waited:?}", error.kind()))
            }
            Event::Renewed { margin, .. } => ("renewed", format!("{}", margin.is_some_and(|m| m < TTL))),
            Event::RenewalFailed { first, .. } => ("renewal failed", format!("{first}")),
            Event::Lost { loss, at_release, .. } => ("lost", format!("{loss:?} {at_release}")),
            Event::Released { end, .. } => ("released", format!("{end:?}")),
            Event::Answered { verb, error, .. } => {
                let mut counts = self.counts.lock().unwrap();
                let verb = if error.is_some() { "failed" } else { verb.as_str() };
                ["answered", verb].iter().for_each(|what| *counts.entry(what).or_default() += 1);
                return;
            }
            _ => ("other", String::new()),
        };
        *self.counts.lock().unwrap().entry(what).or_default() += 1;
        assert_eq!(event.engine(), "memory");
        let name = event.name().map(ToString::to_string).unwrap_or_default();
        let token = event.token().map(|token| format!(" #{}", token.number)).unwrap_or_default();
        self.lines.lock().unwrap().push(format!("{what} {name}{token} {detail}").trim_end().to_owned());
    }
}

/// A client of `store` whose connection may be faulty, with its events.
pub(crate) fn observed(store: &Arc<MemoryStore>, env: &Env) -> (Locks, Arc<Faulty>, Arc<Notes>) {
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryEngine::new(Arc::clone(store)))));
    let notes = Arc::new(Notes::default());
    let keeper = Keeper::on(tokio::runtime::Handle::current());
    let builder = Locks::builder(Arc::clone(&faulty) as _).keeper(keeper).env(env.clone());
    (builder.observe(Arc::clone(&notes) as _).build(), faulty, notes)
}

#[test]
fn a_request_and_its_guard_have_their_events_in_order() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (holder, _, holder_notes) = observed(&store, &env);
        let (waiter, _, notes) = observed(&store, &env);
        let guard = holder.mutex("x").acquire().await.unwrap();
        let waiting = tokio::spawn(waiter.mutex("x").acquire());
        sleep(MOMENT).await;
        let behind = tokio::spawn(waiter.mutex("x").acquire_within(Duration::from_secs(3)));
        sleep(MOMENT).await;
        guard.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        assert!(behind.await.unwrap().unwrap_err().is_timed_out());
        drop(guard);
        sleep(MOMENT).await;
        assert_eq!(
            notes.lines(),
            [
                "begun x",
                "queued x Some(0)",
                "begun x",
                "queued x Some(1)",
                "granted x #9 true false",
                // A pushed grant is renewed at once: it lasts only the claim time.
                "renewed x #9 true",
                "refused x TimedOut 3s",
                "released x #9 Released",
            ]
        );
        assert_eq!(holder_notes.lines(), ["begun x", "granted x #1 false false", "released x #1 Released"]);
        assert!(notes.count("answered") > 0);
    });
}

#[test]
fn cancelled_requests_and_unused_guards_are_reported() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, _, notes) = observed(&store, &env);
        let guard = locks.mutex("x").acquire().await.unwrap();
        assert!(timeout(Duration::from_secs(1), locks.mutex("x").acquire()).await.is_err());
        // Its tries are in their pauses when it is dropped.
        assert!(
            timeout(Duration::from_secs(1), locks.mutex("x").attempts(1_000_000).acquire()).await.is_err()
        );
        sleep(MOMENT).await;
        let lines = notes.lines();
        assert_eq!(lines.iter().filter(|line| line.starts_with("cancelled x 1")).count(), 2, "{lines:?}");
        // The guard is delivered to a request that is dropped before it is polled again.
        let mut waiting = Box::pin(locks.mutex("x").acquire());
        assert!(timeout(MOMENT, &mut waiting).await.is_err());
        guard.release().await.unwrap();
        drop(waiting);
        let lines = notes.lines();
        assert!(lines.last().unwrap().ends_with(&format!("{:?}", GuardEnd::Unused)), "{lines:?}");
    });
}

#[test]
fn the_first_failed_renewal_is_told_from_the_later_ones_and_a_loss_is_reported_once() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, notes) = observed(&store, &env);
        let guard = locks.mutex("x").ttl(TTL).acquire().await.unwrap();
        faulty.next(Verb::Renew, Fault::RequestLost);
        faulty.next(Verb::Renew, Fault::RequestLost);
        assert!(guard.confirm().await.is_err() && guard.confirm().await.is_err());
        guard.confirm().await.unwrap();
        (0..100).for_each(|_| faulty.next(Verb::Renew, Fault::RequestLost));
        assert_eq!(guard.lost().await, Loss::Lapsed);
        drop(guard);
        sleep(MOMENT).await;
        let lines = notes.lines();
        let failed: Vec<_> = lines.iter().filter(|line| line.starts_with("renewal failed")).collect();
        let firsts: Vec<_> = failed.iter().map(|line| line.ends_with("true")).collect();
        assert_eq!(firsts[..3], [true, false, true], "{lines:?}");
        assert!(firsts[3..].iter().all(|first| !first), "{lines:?}");
        assert!(lines.contains(&"renewed x #1 true".to_owned()), "{lines:?}");
        let ends: Vec<_> = lines.iter().filter(|line| !line.starts_with("rene")).skip(2).collect();
        assert_eq!(ends, ["lost x #1 Lapsed false", "released x #1 Lost(Lapsed)"]);
    });
}

#[test]
fn a_loss_that_only_the_release_finds_is_reported_too() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, _, notes) = observed(&store, &env);
        let gone = locks.mutex("x").acquire().await.unwrap();
        store.forget_all();
        assert!(gone.release().await.unwrap_err().is_lost());
        let closed = locks.mutex("y").acquire().await.unwrap();
        locks.close(Duration::ZERO).await;
        assert_eq!(closed.release().await.unwrap_err().name().unwrap().as_str(), "y");
        let lines = notes.lines();
        let lost: Vec<_> = lines.iter().filter(|line| line.starts_with("lost")).collect();
        assert_eq!(lost, ["lost x #1 Gone true", "lost y #9 Closed false"], "{lines:?}");
        assert!(locks.mutex("z").acquire().await.unwrap_err().is_closed());
        assert_eq!(notes.lines(), ["begun z", "refused z Closed 0ns"]);
    });
}

/// Panics at each event.
struct Panics(AtomicU64);

impl Observe for Panics {
    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("an observer of a test");
    }
}

#[test]
fn an_observer_that_panics_harms_nothing() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (panics, notes) = (Arc::new(Panics(AtomicU64::new(0))), Arc::new(Notes::default()));
        let locks = Locks::builder(Arc::new(MemoryEngine::new(store)))
            .keeper(Keeper::on(tokio::runtime::Handle::current()))
            .env(env)
            .observe(Arc::clone(&panics) as _)
            .observe(Arc::clone(&notes) as _)
            .build();
        let guard = locks.mutex("x").ttl(TTL).acquire().await.unwrap();
        let waiting = tokio::spawn(locks.mutex("x").acquire());
        sleep(TTL * 3).await;
        assert!(guard.check(), "it was renewed");
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert!(panics.0.load(Ordering::Relaxed) > 6);
        assert_eq!((notes.count("granted"), notes.count("released")), (2, 2));
    });
}

#[test]
fn the_write_of_a_memo_is_reported_as_other_requests_are() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, notes) = observed(&store, &env);
        let memo = || NewMemo::new(MemoKind::ONCE, "done", TTL).unwrap();
        let guard = locks.mutex("x").acquire().await.unwrap();
        faulty.next(Verb::Memo, Fault::ReplyLost);
        guard.write_memo(memo()).await.unwrap();
        assert_eq!((notes.count("failed"), notes.count("memo")), (1, 1));
        guard.release_with_memo(memo()).await.unwrap();
        assert_eq!((notes.count("failed"), notes.count("memo")), (1, 2));
    });
}

/// Counts how often it is read.
struct CountingClock(AtomicU64);

impl Clock for CountingClock {
    fn now(&self) -> Instant {
        self.0.fetch_add(1, Ordering::Relaxed);
        Instant::from_nanos(1_000_000_000)
    }
}

/// How often the clock of a client of a store is read for the work, and for the same work with an observer. The least
/// of ten counts, because the end of a wait starts a thread that may read the clock, too.
fn clock_readings(store: &Arc<MemoryStore>, work: impl Fn(&Locks)) -> [u64; 2] {
    [None, Some(Arc::new(Notes::default()) as Arc<dyn Observe>)].map(|observer| {
        let count = |_| {
            let clock = Arc::new(CountingClock(AtomicU64::new(0)));
            let env = Env { clock: Arc::clone(&clock) as _, ..Env::system() };
            let engine = Arc::new(MemoryEngine::new(Arc::clone(store)));
            let builder = Locks::builder(engine).env(env).keeper(Keeper::deferred());
            work(&observer.clone().into_iter().fold(builder, leasehold_core::Builder::observe).build());
            clock.0.load(Ordering::Relaxed)
        };
        (0..10).map(count).min().unwrap()
    })
}

fn store_on_a_clock_of_its_own() -> Arc<MemoryStore> {
    MemoryStore::new(Env::system().lineage(), Arc::new(CountingClock(AtomicU64::new(0))))
}

/// The value of a future that is ready at its first poll.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn without_an_observer_the_clock_is_not_read_for_events() {
    let store = store_on_a_clock_of_its_own();
    // At the entry of the request, before the claim is sent, at its grant, and at the release. With an observer, also
    // for the answers to the claim and to the release, and when the release was sent.
    let pair = |locks: &Locks| drop(at_once(locks.mutex("x").acquire()).unwrap());
    assert_eq!(clock_readings(&store, pair), [4, 4 + 3]);
    let (holder, _) = client_on(&store);
    let _guard = at_once(holder.mutex("x").acquire()).unwrap();
    // At the entry of the try, and before its claim is sent. With an observer, also when the claim is
    // sent, for the answer, and for the refusal.
    let refused = |locks: &Locks| assert!(at_once(locks.mutex("x").try_acquire()).unwrap_err().is_taken());
    assert_eq!(clock_readings(&store, refused), [2, 2 + 3]);
    // At the entry of a request that waits, when its claim is sent, and when it is dropped. With an observer, also for
    // the answer and the cancellation.
    let cancelled = |locks: &Locks| {
        let mut waiting = Box::pin(locks.mutex("x").acquire());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    };
    assert_eq!(clock_readings(&store, cancelled), [3, 3 + 2]);
}

/// A client of `store` without an observer.
fn client_on(store: &Arc<MemoryStore>) -> (Locks, Keeper) {
    let (engine, keeper) = (Arc::new(MemoryEngine::new(Arc::clone(store))), Keeper::deferred());
    (Locks::builder(engine).keeper(keeper.clone()).build(), keeper)
}

/// The most allocations for an acquire and its release on the memory engine, when nobody observes.
const MAX_ALLOCATIONS: u64 = 16;

#[test]
fn an_acquire_and_a_release_without_an_observer_allocate_no_more_than_a_fixed_number() {
    const PAIRS: u64 = 100;
    let (locks, _keeper) = client_on(&store_on_a_clock_of_its_own());
    let request = locks.mutex("x");
    let pairs = || {
        for _ in 0..PAIRS {
            at_once(at_once(request.acquire()).unwrap().release()).unwrap();
        }
    };
    // The first pairs fill tables that stay.
    pairs();
    let counted = allocation_counter::measure(pairs).count_total;
    assert!(counted >= PAIRS, "the counter counts nothing");
    // The few allocations of tables that grow do not count.
    assert!(counted / PAIRS <= MAX_ALLOCATIONS, "{counted} allocations in {PAIRS} pairs");
}

/// An act of a random history.
#[derive(Clone, Debug)]
enum Act {
    Acquire {
        name: u8,
        limit: Option<u64>,
        tries: Option<u32>,
        shared: bool,
    },
    /// Acquires the names whose bits are set.
    AcquireAll {
        names: u8,
        limit: Option<u64>,
        tries: Option<u32>,
        shared: bool,
    },
    /// Drops one of the futures, or one of the guards.
    Cancel(usize),
    Release(usize),
    Fault(bool, u8),
    Sleep(u64),
    ForgetAll,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0_u8..3, prop::option::of(1_u64..4000), prop::option::of(1_u32..4), any::<bool>())
            .prop_map(|(name, limit, tries, shared)| Act::Acquire { name, limit, tries, shared }),
        3 => (1_u8..8, prop::option::of(1_u64..4000), prop::option::of(1_u32..4), any::<bool>())
            .prop_map(|(names, limit, tries, shared)| Act::AcquireAll { names, limit, tries, shared }),
        2 => (0_usize..20).prop_map(Act::Cancel),
        4 => (0_usize..20).prop_map(Act::Release),
        2 => (any::<bool>(), 0_u8..3).prop_map(|(reply, verb)| Act::Fault(reply, verb)),
        4 => (0_u64..3000).prop_map(Act::Sleep),
        1 => Just(Act::ForgetAll),
    ]
}

type Acquired = Result<Vec<Guard>, Error>;

/// A request that waits, with the number of its names.
type Acquiring = (u64, Pin<Box<dyn Future<Output = Acquired>>>);

/// What the user of one `Locks` saw.
#[derive(Default)]
struct Seen {
    begun: u64,
    granted: u64,
    refused: u64,
    cancelled: u64,
    lost: u64,
}

/// Polls the requests once, and keeps those that wait.
async fn poll_all(waiting: &mut Vec<Acquiring>, guards: &mut Vec<Guard>, seen: &mut Seen) {
    let mut still_waiting = Vec::new();
    for (names, mut request) in waiting.drain(..) {
        match timeout(Duration::ZERO, &mut request).await {
            Ok(Ok(granted)) => {
                seen.granted += names;
                guards.extend(granted);
            }
            Ok(Err(_)) => {
                seen.refused += 1;
                seen.cancelled += names - 1;
            }
            Err(_) => still_waiting.push((names, request)),
        }
    }
    *waiting = still_waiting;
}

async fn random_history(acts: Vec<Act>) {
    let (store, env) = new_store();
    let (locks, faulty, notes) = observed(&store, &env);
    let (mut seen, mut waiting, mut guards) = (Seen::default(), Vec::<Acquiring>::new(), Vec::<Guard>::new());
    for act in acts {
        match act {
            Act::Acquire { name, limit, tries, shared } => {
                let rw = locks.rw(format!("n{name}"));
                let mut request = if shared { rw.read() } else { rw.write() }.ttl(TTL);
                if let Some(tries) = tries {
                    request = request.attempts(tries);
                }
                seen.begun += 1;
                let acquire = match limit {
                    Some(millis) => request.acquire_within(Duration::from_millis(millis)),
                    None => request.acquire(),
                };
                waiting.push((1, Box::pin(async { acquire.await.map(|guard| vec![guard]) })));
                poll_all(&mut waiting, &mut guards, &mut seen).await;
            }
            Act::AcquireAll { names, limit, tries, shared } => {
                let wanted: Vec<_> = (0..3).filter(|name| names & (1 << name) != 0).collect();
                let add = |all: All, name: &u8| match shared {
                    true => all.read(format!("n{name}")),
                    false => all.mutex(format!("n{name}")),
                };
                let request = wanted.iter().fold(locks.all().ttl(TTL), add);
                let request = tries.into_iter().fold(request, All::attempts);
                seen.begun += wanted.len() as u64;
                let acquire = match limit {
                    Some(millis) => request.acquire_within(Duration::from_millis(millis)),
                    None => request.acquire(),
                };
                waiting.push((
                    wanted.len() as u64,
                    Box::pin(async { acquire.await.map(leasehold_core::Guards::split) }),
                ));
                poll_all(&mut waiting, &mut guards, &mut seen).await;
            }
            Act::Cancel(index) if !waiting.is_empty() => {
                let (names, request) = waiting.remove(index % waiting.len());
                seen.cancelled += names;
                drop(request);
            }
            Act::Release(index) if !guards.is_empty() => {
                let guard = guards.remove(index % guards.len());
                seen.lost += u64::from(guard.release().await.is_err_and(|error| error.is_lost()));
            }
            Act::Fault(reply, verb) => faulty.next(
                [Verb::Claim, Verb::Renew, Verb::Release][usize::from(verb)],
                if reply { Fault::ReplyLost } else { Fault::RequestLost },
            ),
            Act::Sleep(millis) => sleep(Duration::from_millis(millis)).await,
            Act::ForgetAll => store.forget_all(),
            Act::Cancel(_) | Act::Release(_) => {}
        }
        poll_all(&mut waiting, &mut guards, &mut seen).await;
    }
    seen.cancelled += waiting.iter().map(|(names, _)| names).sum::<u64>();
    drop(waiting);
    for guard in guards {
        seen.lost += u64::from(guard.release().await.is_err_and(|error| error.is_lost()));
    }
    faulty.clear_planned();
    sleep(Duration::from_secs(10)).await;
    let count = |what| notes.count(what);
    let unused = notes.lines().iter().filter(|line| line.ends_with("Unused")).count() as u64;
    assert_eq!(count("begun"), seen.begun);
    assert_eq!(count("begun"), count("granted") + count("refused") + count("cancelled"));
    assert_eq!(count("granted"), count("released"));
    // A request that is dropped when its answer is under way is granted, or refused, and not cancelled.
    assert_eq!(count("granted"), seen.granted + unused);
    assert!(count("refused") >= seen.refused && count("cancelled") <= seen.cancelled - unused);
    // The release of a guard that the user never got can find out about a loss, too.
    let lost = seen.lost..=seen.lost + unused;
    assert!(lost.contains(&count("lost")), "{lost:?} {:?}", notes.counts);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens, the events agree with what the user saw.
    #[test]
    fn the_counts_of_events_equal_the_history(acts in prop::collection::vec(act(), 1..60)) {
        paused_runtime().block_on(random_history(acts));
    }
}

#[test]
fn a_request_during_an_outage_is_refused_with_its_name() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let faulty = Arc::new(Faulty::new(Arc::new(MemoryEngine::new(store))));
        let notes = Arc::new(Notes::default());
        let locks = Locks::builder(Arc::clone(&faulty) as _)
            .keeper(Keeper::on(tokio::runtime::Handle::current()))
            .env(env)
            .when_unreachable(WhenUnreachable::Fail)
            .observe(Arc::clone(&notes) as _)
            .build();
        faulty.lose_session().await;
        assert!(locks.mutex("x").acquire().await.unwrap_err().is_unreachable());
        let lines = notes.lines();
        assert!(lines.last().unwrap().starts_with("refused x Unreachable"), "{lines:?}");
    });
}
