//! Events between two steps of a claim.

use std::sync::atomic::AtomicUsize;

use super::{
    notifications::{run, wait_until_held},
    *,
};

/// A clock that makes the holder release when it is read for the `release_at`th time.
struct Trigger {
    reads: AtomicUsize,
    release_at: usize,
    holder: FileEngine,
    hold: Claim,
}

impl crate::Clock for Trigger {
    fn now(&self) -> crate::Instant {
        if self.reads.fetch_add(1, Ordering::SeqCst) + 1 == self.release_at {
            release_claim(&self.holder, &self.hold);
        }
        self.holder.env.clock.now()
    }
}

#[test]
fn a_release_between_two_steps_of_a_claim_is_noticed() {
    for release_at in 1.. {
        let scratch = Scratch::new();
        let (holder, hold) = (scratch.engine(), claim("job", Mode::Exclusive));
        held(create(&holder, &hold));
        let trigger = Arc::new(Trigger { reads: AtomicUsize::new(0), release_at, holder, hold });
        let clock = Arc::clone(&trigger) as _;
        let waiter = FileEngine::open(Some(scratch.dir()), Env { clock, ..Env::system() }).unwrap();
        let second = claim("job", Mode::Exclusive);
        let answer = create(&waiter, &second);
        if trigger.reads.load(Ordering::SeqCst) < release_at {
            assert!(release_at > 3, "it takes some steps");
            break;
        }
        match answer {
            Ok(Answer::Held(_)) => {}
            Ok(Answer::Waiting(_)) => drop(run(wait_until_held(&waiter, &second))),
            other => panic!("{other:?}"),
        }
    }
}
