//! Locks of other programs that are not strings: under a lock key of any type, leasehold grants nothing.

use std::time::Duration;

use leasehold_core::{Answer, Engine, How, Mode, Notification};

use crate::rig::{PATIENCE, Rig};

/// How another lock program acquires and releases a lock.
struct Layout {
    program: &'static str,
    kind: &'static str,
    take: &'static [&'static [&'static str]],
    free: &'static [&'static str],
}

const LAYOUTS: [Layout; 3] = [
    Layout {
        program: "Symfony's RedisStore, exclusive",
        kind: "(zset)",
        take: &[&["ZADD", "lock:a", "99999999999999", "dG9rZW4=", "99999999999999", "__write__"]],
        free: &["ZREM", "lock:a", "dG9rZW4=", "__write__"],
    },
    Layout {
        program: "Semaphore of redis-semaphore",
        kind: "(zset)",
        take: &[&["ZADD", "lock:a", "1763900000000", "9e1fa6a4-91d4-4ac1-a4a8-2b3d2a3f1a77"]],
        free: &["ZREM", "lock:a", "9e1fa6a4-91d4-4ac1-a4a8-2b3d2a3f1a77"],
    },
    Layout {
        program: "RLock of Redisson",
        kind: "(hash)",
        take: &[&["HSET", "lock:a", "285475da-9152-4c83-822a-67ee2f116a79:52", "1"]],
        free: &["DEL", "lock:a"],
    },
];

impl Layout {
    fn take(&self, rig: &Rig) {
        self.take.iter().for_each(|command| drop(rig.command(command)));
        assert_eq!(rig.command(&["PEXPIRE", "lock:a", "60000"]), "1", "{}", self.program);
    }
}

#[test]
fn a_foreign_lock_of_another_type_excludes_every_mode() {
    let rig = Rig::new();
    let locks = rig.locks();
    for layout in &LAYOUTS {
        layout.take(&rig);
        let program = layout.program;
        for request in [locks.mutex("a"), locks.rw("a").read(), locks.semaphore("a", 3)].map(|r| r.blocking())
        {
            let error = request.try_acquire().unwrap_err();
            assert!(error.is_taken(), "{program}: {error}");
            let error = request.acquire_within(Duration::from_millis(300)).unwrap_err();
            assert!(error.is_timed_out(), "{program}: {error}");
            // A claim of another mode is refused while this claim is in the queue, so wait until this claim has left
            // the queue.
            rig.until("it left the queue", || rig.show("a").waiters.is_empty());
        }
        let view = rig.show("a");
        let [holder] = &view.holders[..] else { panic!("{program}: {view:?}") };
        assert!(
            holder.foreign && holder.id == layout.kind && view.mode == Some(Mode::Exclusive),
            "{holder:?}"
        );
        assert!(holder.remaining.is_some_and(|remaining| remaining <= Duration::from_secs(60)), "{holder:?}");
        rig.command(layout.free);
        locks.mutex("a").blocking().try_acquire().unwrap().release_blocking().unwrap();
    }
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

#[test]
fn the_end_of_a_foreign_lock_of_another_type_wakes_the_head() {
    let rig = Rig::new();
    let engine = rig.engine();
    for layout in &LAYOUTS {
        let claim = rig.claim("a");
        layout.take(&rig);
        rig.run(async {
            let answer = engine.claim(&claim, How::Create).await.unwrap();
            assert!(matches!(answer, Answer::Waiting(hint) if hint.obstacle.is_none()), "{answer:?}");
            rig.command(layout.free);
            let notification = tokio::time::timeout(PATIENCE, engine.notifications()).await.unwrap();
            assert!(
                matches!(notification[..], [Notification::Recheck { id, .. }] if id == claim.id),
                "{notification:?}"
            );
            assert!(matches!(engine.claim(&claim, How::Ask).await, Ok(Answer::Held(_))));
        });
        rig.command(&["DEL", "lock:a"]);
    }
}

/// A lock key of another type than a string, without an expiry, may be data that is no lock.
#[test]
fn a_foreign_key_without_expiry_is_a_misconfiguration() {
    let rig = Rig::new();
    let locks = rig.locks();
    rig.command(&["LPUSH", "lock:a", "x"]);
    let request = locks.mutex("a").blocking();
    for error in
        [request.try_acquire().unwrap_err(), request.acquire_within(Duration::from_millis(300)).unwrap_err()]
    {
        assert!(error.is_misconfigured() && error.to_string().contains("not a string"), "{error}");
    }
    assert_eq!(rig.command(&["LRANGE", "lock:a", "0", "-1"]), "x", "left as it was");
    let listed = locks.list_blocking("").unwrap();
    for view in [&listed[0], &locks.show_blocking("a").unwrap()] {
        assert!(view.problem.as_ref().is_some_and(|problem| problem.contains("not a string")), "{view:?}");
        assert!(view.note.is_some() && view.holders.iter().all(|holder| holder.foreign), "{view:?}");
    }
    rig.command(&["PEXPIRE", "lock:a", "600000"]);
    assert_eq!(locks.list_blocking("").unwrap()[0].problem, None, "it ends by itself");
    rig.command(&["PERSIST", "lock:a"]);
    let waiting = std::thread::spawn(move || request.acquire_within(PATIENCE));
    rig.until("it waits", || rig.show("a").waiters.len() == 1);
    rig.command(&["DEL", "lock:a"]);
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}
