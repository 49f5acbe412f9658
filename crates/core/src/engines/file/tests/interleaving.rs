//! Events between two steps of a claim.

use std::sync::atomic::AtomicUsize;

use super::{
    notifications::{granted, run},
    *,
};

/// A clock whose `at`th reading makes the holder release.
struct Trigger {
    reads: AtomicUsize,
    at: usize,
    holder: FileEngine,
    hold: Claim,
}

impl crate::Clock for Trigger {
    fn now(&self) -> crate::Instant {
        if self.reads.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            freed(&self.holder, &self.hold);
        }
        self.holder.env.clock.now()
    }
}

#[test]
fn a_release_between_two_steps_of_a_claim_is_noticed() {
    for at in 1.. {
        let scratch = Scratch::new();
        let (holder, hold) = (scratch.engine(), claim("job", Mode::Exclusive));
        held(create(&holder, &hold));
        let trigger = Arc::new(Trigger { reads: AtomicUsize::new(0), at, holder, hold });
        let clock = Arc::clone(&trigger) as _;
        let waiter = FileEngine::open(Some(scratch.dir()), Env { clock, ..Env::system() }).unwrap();
        let second = claim("job", Mode::Exclusive);
        let answer = create(&waiter, &second);
        if trigger.reads.load(Ordering::SeqCst) < at {
            assert!(at > 3, "it takes some steps");
            break;
        }
        match answer {
            Ok(Answer::Held(_)) => {}
            Ok(Answer::Waiting(_)) => drop(run(granted(&waiter, &second))),
            other => panic!("{other:?}"),
        }
    }
}
