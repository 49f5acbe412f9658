//! Holds that are renewed together because their engine groups them. On paused time.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Claim, Engine, EngineError, Guard, Hold, How, Keeper, Locks, Name,
    Notification, Profile, Release, Released, Renewed, memory::MemoryEngine,
};
use leasehold_testkit::decorators::{Count, Counting, Verb};
use tokio::time::sleep;

use crate::{
    cleanup::{new_store, paused_runtime},
    inspect_macro::inspects_by,
};

const TTL: Duration = Duration::from_secs(6);
const HOLDS: u64 = 300;

/// The group of a name is the number after its dot.
struct Grouped(MemoryEngine);

impl Engine for Grouped {
    fn profile(&self) -> &Profile {
        self.0.profile()
    }

    fn group(&self, name: &Name) -> Option<u16> {
        name.as_str().split_once('.')?.1.parse().ok()
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        self.0.claim(claim, how)
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        self.0.claim_all(claims)
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        self.0.renew(holds)
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        self.0.release(releases)
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        self.0.notifications()
    }

    fn memos(&self) -> Option<&dyn leasehold_core::Memos> {
        self.0.memos()
    }

    fn conversions(&self) -> Option<&dyn leasehold_core::Conversions> {
        self.0.conversions()
    }
}

inspects_by!(Grouped, |this| this.0);

fn client() -> (Locks, Arc<Counting>) {
    let (store, env) = new_store();
    let counting = Arc::new(Counting::new(Arc::new(Grouped(MemoryEngine::new(store)))));
    let keeper = Keeper::on(tokio::runtime::Handle::current());
    (Locks::builder(Arc::clone(&counting) as _).keeper(keeper).env(env).build(), counting)
}

/// Makes holds one after the other, within two thirds of a lease, and counts the requests of four rounds of renewals.
async fn four_rounds(name: impl Fn(u64) -> String) -> Count {
    let (locks, counting) = client();
    let mut guards = Vec::new();
    for number in 0..HOLDS {
        guards.push(locks.mutex(name(number)).ttl(TTL).acquire().await.unwrap());
        sleep(TTL * 2 / 3 / HOLDS as u32).await;
    }
    sleep(TTL).await;
    counting.reset();
    sleep(TTL / 3 * 4).await;
    assert!(guards.iter().all(Guard::check));
    counting.count(Verb::Renew)
}

#[test]
fn a_group_is_renewed_by_one_request() {
    paused_runtime().block_on(async {
        let grouped = four_rounds(|number| format!("{number}.{}", number % 3)).await;
        assert!((HOLDS * 4 - 100..=HOLDS * 4 + 100).contains(&grouped.items), "{grouped:?}");
        assert!(grouped.calls <= 3 * 4 + 1, "{grouped:?}");
        let alone = four_rounds(|number| number.to_string()).await;
        assert!(alone.calls > 100, "without groups each is due when it is: {alone:?}");
    });
}

#[test]
fn a_short_hold_costs_no_renewal() {
    paused_runtime().block_on(async {
        let (locks, counting) = client();
        for number in 0..50 {
            let guard = locks.mutex(format!("a.{number}")).ttl(TTL).acquire().await.unwrap();
            sleep(TTL / 3 - Duration::from_millis(40)).await;
            guard.release().await.unwrap();
        }
        assert_eq!(counting.count(Verb::Renew).calls, 0);
    });
}
