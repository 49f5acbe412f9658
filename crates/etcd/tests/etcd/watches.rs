//! Changes that happen after a waiter has read its position and before its watch begins.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Answer, Claim, Engine, How, Inspect, Mode, Notification};
use leasehold_etcd::EtcdEngine;
use leasehold_testkit::server::Proxy;

use crate::rig::{PATIENCE, Rig, release_of};

/// How long an answer has to be missing until the test looks at the server.
const A_MOMENT: Duration = Duration::from_millis(20);

/// A held name and a waiter whose watch has not reached the server.
struct LateWatch {
    rig: Rig,
    proxy: Proxy,
    held: Claim,
    holder: Arc<EtcdEngine>,
    waits: Claim,
    waiter: Arc<EtcdEngine>,
}

impl LateWatch {
    /// The proxy of the waiter holds back first the answer to its claim and then the request for its watch.
    fn new(mode: Mode) -> Self {
        let rig = Rig::new();
        let holder = rig.engine();
        let (proxy, waiter) = rig.proxied();
        let [held, waits] = [(); 2].map(|()| Claim { mode, ..rig.claim("a") });
        rig.run(async {
            // The waiter learns that the name is contended: its claim is one request then. Another ttl means another
            // lease and another key, so `waits` and `held` have no keys that the waiter watches already.
            let (other_holder, others) = (rig.engine(), rig.claim("a"));
            assert!(matches!(other_holder.claim(&others, How::Create).await, Ok(Answer::Held(_))));
            let learns = Claim { ttl: waits.ttl / 2, ..rig.claim("a") };
            assert!(matches!(waiter.claim(&learns, How::Create).await, Ok(Answer::Waiting(_))));
            waiter.release(&release_of(&learns)).await;
            other_holder.release(&release_of(&others)).await;
            // The lease of the first lock of a ttl is not kept, the lease of the second is.
            for _ in 0..2 {
                let before = rig.claim("b");
                assert!(matches!(waiter.claim(&before, How::Create).await, Ok(Answer::Held(_))));
                waiter.release(&release_of(&before)).await;
            }
            assert!(matches!(holder.claim(&held, How::Create).await, Ok(Answer::Held(_))));
            proxy.hold_answers();
            let mut claim = waiter.claim(&waits, How::Create);
            // The client gives a connection up that answers nothing for some seconds, so this loop starts no program.
            while Inspect::show(&*holder, &waits.name).await.unwrap().waiters.is_empty() {
                let answer = tokio::time::timeout(A_MOMENT, &mut claim).await;
                assert!(answer.is_err(), "the answer is held back: {answer:?}");
            }
            proxy.hold_requests();
            proxy.release_answers();
            assert!(matches!(claim.await, Ok(Answer::Waiting(_))));
        });
        rig.until("the watch is held back", || proxy.holds_a_request());
        Self { rig, proxy, held, holder, waits, waiter }
    }

    fn release_holder(&self) {
        self.rig.run(self.holder.release(&release_of(&self.held)));
    }

    /// Lets the watch begin. Waits until the waiter is asked to read its position again; it must not be granted before.
    /// Returns what it reads.
    fn read_after_watch(&self) -> Answer {
        self.proxy.release_held();
        let read = async {
            loop {
                for notification in self.waiter.notifications().await {
                    match notification {
                        Notification::Recheck { id, .. } if id == self.waits.id => {
                            return self.waiter.claim(&self.waits, How::Ask).await.unwrap();
                        }
                        Notification::AskAll => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
        };
        self.rig
            .run(async { tokio::time::timeout(PATIENCE, read).await })
            .expect("the waiter hears of the change")
    }
}

/// The keys in the directory of the name.
fn lock_keys(rig: &Rig) -> Vec<String> {
    rig.keys().into_iter().filter(|key| key.starts_with("/locks/a/")).collect()
}

/// Only a waiter for permits watches from a revision on. The server refuses such a watch when the revision is
/// compacted.
#[test]
fn a_waiter_whose_watch_begins_at_a_compacted_revision_reads_again() {
    let late = LateWatch::new(Mode::Permits { count: 1, limit: 1 });
    late.release_holder();
    for value in ["1", "2"] {
        late.rig.server.command(&["put", "other", value]);
    }
    let newest = late.rig.server.command(&["get", "other", "-w", "json"]).join("");
    let newest = newest.split("\"mod_revision\":").nth(1).unwrap().split(',').next().unwrap();
    late.rig.server.command(&["compact", newest]);
    assert!(matches!(late.read_after_watch(), Answer::Held(_)));
}

/// I1: the key that a waiter waits for is deleted, and so is its own key.
#[test]
fn a_waiter_whose_key_is_deleted_before_its_watch_begins_does_not_hold() {
    let late = LateWatch::new(Mode::Exclusive);
    late.release_holder();
    let [own_key] = &lock_keys(&late.rig)[..] else { panic!("the key of the waiter is left") };
    late.rig.server.command(&["del", own_key]);
    assert!(matches!(late.read_after_watch(), Answer::Gone));
}
