//! Core renews the holds of one slot of a Redis Cluster together, because they can share a request.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Engine, Env, Guard, Locks, Name};
use leasehold_redis::{Config, RedisEngine};
use leasehold_testkit::decorators::{Counting, Verb};

use crate::{
    cluster_rig::ClusterRig,
    rig::{PATIENCE, Rig, local},
};

const HOLDS: u64 = 200;
const TTL: Duration = Duration::from_secs(4);

/// 200 holds were granted at 200 different moments. In each round of renewals they need about seven requests, of at
/// most 32 holds each; if each hold were renewed on its own, they would need 200. The test allows one request for 16
/// renewals, because a busy machine may split a round in two.
#[test]
fn holds_of_one_slot_are_renewed_in_few_requests() {
    let rig = ClusterRig::with(3, 0, &[]);
    let counting = Arc::new(Counting::new(rig.engine()));
    let locks = Locks::builder(Arc::clone(&counting) as _).build();
    let acquire = |number: u64| {
        std::thread::sleep(TTL / 3 / HOLDS as u32);
        locks.mutex(format!("{{x}}{number}")).ttl(TTL).blocking().acquire_within(PATIENCE).unwrap()
    };
    let guards: Vec<Guard> = (0..HOLDS).map(acquire).collect();
    let renewed = || counting.count(Verb::Renew).items;
    let requests = || rig.calls()["evalsha"];
    rig.until("each was renewed twice or more, so the renewals coincide", || renewed() >= 3 * HOLDS);
    let (first_request, first) = (requests(), renewed());
    rig.until("each is renewed five times more", || renewed() >= first + 5 * HOLDS);
    let (renewed, requests) = (renewed() - first, requests() - first_request);
    assert!(requests * 16 <= renewed, "{requests} requests for {renewed} renewals");
    assert!(guards.iter().all(Guard::check));
}

#[test]
fn the_group_of_a_name_is_its_cluster_slot() {
    let name = |name: &str| Name::new(name).unwrap();
    let cluster = RedisEngine::new(Config::cluster(vec![local(1)]), &Env::system());
    // Examples from the specification of Redis Cluster.
    assert_eq!(cluster.group(&name("{user1000}.following")), cluster.group(&name("{user1000}.followers")));
    assert_eq!(cluster.group(&name("{foo}x")), Some(12_182));
    assert_eq!(Rig::new().engine().group(&name("{foo}x")), None, "any names share a request");
}
