//! The fast path for free names, on one server and in a cluster, and the cases that it must leave to the full scripts.

use std::sync::Arc;

use futures_util::future::{join, join_all};
use leasehold_core::{Answer, Claim, Engine, EngineError, Fault, Grant, How, Inspect, Previous, Released};
use leasehold_redis::RedisEngine;

use crate::{
    cluster_rig::{ClusterRig, granted, release_of},
    rig::Rig,
    stops::texts,
};

/// One server or a cluster.
enum Site {
    One(Rig),
    Cluster(ClusterRig),
}

impl Site {
    fn both() -> [Self; 2] {
        [Self::One(Rig::new()), Self::Cluster(ClusterRig::with(3, 0, &[]))]
    }

    fn engine(&self) -> Arc<RedisEngine> {
        match self {
            Self::One(rig) => rig.engine(),
            Self::Cluster(rig) => rig.engine(),
        }
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        match self {
            Self::One(rig) => rig.run(work),
            Self::Cluster(rig) => rig.run(work),
        }
    }

    /// Sends a command to the server that stores this name.
    fn command(&self, name: &str, words: &[&str]) -> Vec<String> {
        match self {
            Self::One(rig) => rig.server.command(words),
            Self::Cluster(rig) => {
                let (_, node, _) = rig.slot_and_nodes(name);
                rig.cluster().command(node, words)
            }
        }
    }

    /// A side key of a name.
    fn side_key(&self, letter: char, name: &str) -> String {
        let lock = format!("lock:{name}");
        let made = self.command(name, &["KEYS", &format!("leasehold:{{????}}?{lock}")]);
        let tag = made.iter().find_map(|key| key.get("leasehold:{".len()..)?.get(..4).map(str::to_owned));
        format!("leasehold:{{{}}}{letter}{lock}", tag.expect("a side key of the name is there"))
    }

    /// The key of the token counter for this name, which must exist.
    fn counter(&self, name: &str) -> String {
        match self {
            Self::One(_) => "leasehold:{}tlock:".to_owned(),
            Self::Cluster(rig) => {
                let (slot, node, _) = rig.slot_and_nodes(name);
                let keys = rig.cluster().keys_in_slot(node, slot);
                keys.into_iter().find(|key| key.ends_with("}tlock:")).expect("the slot has a counter")
            }
        }
    }

    /// The number of script calls by clients on all servers.
    fn requests(&self) -> u64 {
        match self {
            Self::One(rig) => {
                let answer = rig.command(&["INFO", "commandstats"]);
                let calls = answer.split_once("cmdstat_evalsha:calls=");
                calls.map_or(0, |(_, calls)| calls.split(',').next().unwrap().parse().unwrap())
            }
            Self::Cluster(rig) => rig.calls().get("evalsha").copied().unwrap_or_default(),
        }
    }
}

async fn create(engine: &RedisEngine, claim: &Claim) -> Result<Answer, EngineError> {
    engine.claim(claim, How::Create).await
}

async fn must_release(engine: &RedisEngine, claim: &Claim, grant: &Grant) {
    let released = engine.release(&[release_of(claim, Some(grant))]).await;
    assert!(matches!(released[..], [Released::Freed]), "{released:?}");
}

fn claim(name: &str) -> Claim {
    crate::rig::claim_of(name)
}

/// R18: claims of many names share requests, whatever slots the names are in; so do releases.
#[test]
fn free_names_of_many_slots_share_requests() {
    const NAMES: usize = 96;
    for site in Site::both() {
        // The runtime has one thread, so all claims are queued before the first one is sent.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let engine = site.engine();
        let asks = |name: &str| Claim { tokens: 8, ..claim(name) };
        let claims: Vec<_> = (0..NAMES).map(|number| asks(&format!("n{number}"))).collect();
        runtime.block_on(async {
            // Warm up: the client connects to all servers, and each server loads the scripts.
            for warm in &claims {
                let grant = granted(&engine, warm).await;
                must_release(&engine, warm, &grant).await;
            }
            let claims: Vec<_> = claims.iter().map(|before| asks(before.name.as_str())).collect();
            let before = site.requests();
            let grants = join_all(claims.iter().map(|claim| granted(&engine, claim))).await;
            let between = site.requests();
            let ends: Vec<_> =
                claims.iter().zip(&grants).map(|(claim, grant)| release_of(claim, Some(grant))).collect();
            let released = engine.release(&ends).await;
            assert!(released.iter().all(|one| matches!(one, Released::Freed)), "{released:?}");
            let after = site.requests();
            // 32 names in each request, and perhaps one smaller request for each of three servers.
            for requests in [between - before, after - between] {
                assert!((3..=6).contains(&requests), "{requests} for {NAMES} names");
            }
            if let Site::One(_) = site {
                let mut blocks: Vec<_> = grants.iter().map(|one| (one.token.number, one.tokens)).collect();
                blocks.sort_unstable();
                let apart = |pair: &[(u64, u32)]| pair[0].0 + u64::from(pair[0].1) <= pair[1].0;
                assert!(blocks.windows(2).all(apart), "no token is in two blocks: {blocks:?}");
            }
        });
    }
}

/// A claim on the fast path gets the same answer, and writes the same, as with the full script.
#[test]
fn a_fast_path_grant_looks_like_any_other() {
    for site in Site::both() {
        let (engine, other) = (site.engine(), site.engine());
        let mut first = claim("a");
        (first.tokens, first.owner) = (8, "owner with blanks".into());
        site.run(async {
            let grant = granted(&engine, &first).await;
            assert_eq!((grant.tokens, grant.previous, grant.ttl), (8, Previous::Clean, Some(first.ttl)));
            // The same claim again, as after a lost answer, by the fast path and by the full script.
            assert_eq!(granted(&engine, &first).await.token, grant.token);
            assert_eq!(granted(&other, &first).await.token, grant.token);
            let view = Inspect::show(&*other, &first.name).await.unwrap();
            let [holder] = &view.holders[..] else { panic!("{view:?}") };
            assert_eq!(holder.id, first.id.to_string());
            assert_eq!(holder.owner, "owner with blanks");
            let second = claim("a");
            assert!(matches!(create(&other, &second).await, Ok(Answer::Waiting(_))));
            must_release(&engine, &first, &grant).await;
            let Ok(Answer::Held(next)) = other.claim(&second, How::Ask).await else {
                panic!("it was granted")
            };
            assert!(next.token.number >= grant.token.number + 8, "{next:?} after {grant:?}");
            must_release(&other, &second, &next).await;
        });
    }
}

/// The fast path grants no claim that must not be granted, whether the claim is alone in its request or not.
#[test]
fn the_fast_path_leaves_obstacles_to_the_full_script() {
    for site in Site::both() {
        obstacles_stop_a_fast_path_grant(&site, false);
    }
    for site in Site::both() {
        obstacles_stop_a_fast_path_grant(&site, true);
    }
}

fn obstacles_stop_a_fast_path_grant(site: &Site, with_another_claim: bool) {
    // The runtime has one thread, so all claims are queued before the first one is sent.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Each claim has its own client, because a client remembers the slots of contended names.
    let ask = |claim: &Claim| {
        let engine = site.engine();
        let other = crate::rig::claim_of(&format!("{{x}}{}", claim.id));
        runtime.block_on(async {
            Inspect::ping(&*engine).await.unwrap();
            if !with_another_claim {
                return create(&engine, claim).await;
            }
            let (answer, beside) = join(create(&engine, claim), create(&engine, &other)).await;
            assert!(matches!(beside, Ok(Answer::Held(_))), "{beside:?}");
            answer
        })
    };

    site.command("{x}", &["SET", "lock:{x}foreign", "theirs"]);
    let answer = ask(&claim("{x}foreign"));
    assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
    assert_eq!(site.command("{x}", &["GET", "lock:{x}foreign"]).concat(), "theirs");

    let engine = site.engine();
    let names = ["{x}queued", "{x}lapsed", "{x}version", "{x}dead"];
    let claims: Vec<_> = names.iter().map(|name| claim(name)).collect();
    site.run(join_all(claims.iter().map(|claim| granted(&engine, claim))));
    let [queued, lapsed, version, dead] = names;

    // An operator deleted the lock key, and a claim waits: only the head of the queue may get the name.
    let (waiting, waiter) = (claim(queued), site.engine());
    assert!(matches!(site.run(create(&waiter, &waiting)), Ok(Answer::Waiting(_))));
    site.command("{x}", &["DEL", "lock:{x}queued"]);
    let answer = ask(&claim(queued));
    assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");

    site.command("{x}", &["DEL", "lock:{x}lapsed"]);
    let Ok(Answer::Held(grant)) = ask(&claim(lapsed)) else { panic!("the name is free") };
    assert_eq!(grant.previous, Previous::Lapsed);

    let record = site.side_key('c', version);
    let newer = "return redis.call('SET', KEYS[1], cmsgpack.pack({ v = 2 }))";
    site.command("{x}", &["EVAL", newer, "1", &record]);
    site.command("{x}", &["DEL", "lock:{x}version"]);
    let error = ask(&claim(version)).unwrap_err();
    assert!(error.fault == Fault::Misconfigured && error.message.contains("another version"), "{error:?}");

    let late = claim(dead);
    let (record, tombs) = (site.side_key('c', dead), site.side_key('d', dead));
    site.command("{x}", &["DEL", "lock:{x}dead", &record]);
    site.command("{x}", &["ZADD", &tombs, "9999999999999", &late.id.to_string()]);
    let answer = ask(&late);
    assert!(
        matches!(answer, Ok(Answer::Gone)),
        "a late request of an ended claim is not granted: {answer:?}"
    );
    assert!(matches!(ask(&claim(dead)), Ok(Answer::Held(_))), "other claims are granted");
}

/// Each release of a batch has the same effect as if it were alone in its request.
#[test]
fn a_fast_path_release_leaves_waiters_to_the_full_script() {
    for site in Site::both() {
        let (engine, other) = (site.engine(), site.engine());
        let claims: Vec<_> = (0..6).map(|number| claim(&format!("{{x}}{number}"))).collect();
        let waiting = claim("{x}1");
        site.run(async {
            let mut grants = Vec::new();
            for claim in &claims {
                grants.push(granted(&engine, claim).await);
            }
            assert!(matches!(create(&other, &waiting).await, Ok(Answer::Waiting(_))));
            // Another program set the lock key of one name, and an operator deleted the lock key of another name.
            site.command("{x}", &["SET", "lock:{x}2", "theirs"]);
            site.command("{x}", &["DEL", "lock:{x}3"]);
            let ends: Vec<_> =
                claims.iter().zip(&grants).map(|(claim, grant)| release_of(claim, Some(grant))).collect();
            let released = engine.release(&ends).await;
            for (position, answer) in released.iter().enumerate() {
                match position {
                    2 | 3 => assert!(matches!(answer, Released::NotThere), "{position}: {answer:?}"),
                    _ => assert!(matches!(answer, Released::Freed), "{position}: {answer:?}"),
                }
            }
            let view = Inspect::show(&*other, &waiting.name).await.unwrap();
            assert!(matches!(&view.holders[..], [holder] if holder.id == waiting.id.to_string()), "{view:?}");
        });
        assert_eq!(site.command("{x}", &["GET", "lock:{x}2"]).concat(), "theirs");
    }
}

/// The counter is set to a smaller number, is deleted, is ahead of the clock, or is no number.
#[test]
fn fast_path_tokens_grow_whatever_happens_to_the_counter() {
    for site in Site::both() {
        let engine = site.engine();
        let newest = || {
            let claim = claim("a");
            site.run(async {
                let grant = granted(&engine, &claim).await;
                must_release(&engine, &claim, &grant).await;
                grant.token.number
            })
        };
        let mut before = newest();
        let counter = site.counter("a");
        for words in [["SET", "1"].as_slice(), &["SET", "0"], &["DEL"]] {
            let command: Vec<&str> = [&words[..1], &[&*counter], &words[1..]].concat();
            site.command("a", &command);
            let now = newest();
            assert!(now > before, "{now} after {before} and {words:?}");
            let remaining_ms: i64 = site.command("a", &["PTTL", &counter]).concat().parse().unwrap();
            assert!(
                (3_000_000..=3_700_000).contains(&remaining_ms),
                "the counter expires in {remaining_ms} ms after {words:?}"
            );
            before = now;
        }
        // A counter that is ahead of the clock, as after a clock step back, is still used.
        let ahead = (before + 3_600_000_000).to_string();
        site.command("a", &["SET", &counter, &ahead, "PX", "3600000"]);
        assert!(newest() > before + 3_600_000_000);
        site.command("a", &["SET", &counter, "foo"]);
        let error = site.run(async { create(&engine, &claim("a")).await }).unwrap_err();
        assert_eq!(error.fault, Fault::Misconfigured, "{error:?}");
    }
}

/// R14: at every point of a migration, on both nodes, a script changes all keys of a name that it must change, or none.
#[test]
fn a_fast_path_script_does_all_or_nothing_while_a_slot_moves() {
    let rig = ClusterRig::with(3, 0, &[]);
    let (slot, from, to) = rig.slot_and_nodes("{x}");
    let engine = rig.engine();
    let claims: Vec<_> = (0..4).map(|number| claim(&format!("{{x}}{number}"))).collect();
    let grants = rig.run(join_all(claims.iter().map(|claim| granted(&engine, claim))));
    let keys = |node| rig.cluster().keys_in_slot(node, slot);
    let all = || {
        let mut all = [keys(from), keys(to)].concat();
        all.sort();
        all
    };
    let before = all();
    let tag = before.iter().find_map(|key| key.strip_prefix("leasehold:{")?.get(..4)).unwrap().to_owned();
    let free = format!("{tag}{}lock:{{x}}free", claim("x").id);
    let ends: Vec<_> = claims
        .iter()
        .zip(&grants)
        .map(|(claim, grant)| format!("{tag}{}.{} lock:{}", claim.id, grant.token.number, claim.name))
        .collect();
    rig.cluster().open_slot(slot, to).unwrap();
    loop {
        for node in [from, to] {
            let claim = ["EVAL", texts::CLAIM_NODE, "0", "0", "tlock:", "=30000 1 }news:x owner", &free];
            let answer = rig.cluster().command(node, &claim).concat();
            assert!(
                answer.ends_with(" 0") && answer.matches(' ').count() == 1,
                "nothing is granted: {answer}"
            );
            let mut release = vec!["EVAL", texts::RELEASE_NODE, "0"];
            release.extend(ends.iter().map(String::as_str));
            assert_eq!(rig.cluster().command(node, &release), ["0 0 0 0 0"], "nothing is freed");
        }
        assert_eq!(all(), before, "no key came or went");
        if rig.cluster().move_keys(slot, 1).unwrap() == 0 {
            break;
        }
    }
    rig.cluster().close_slot(slot).unwrap();
    rig.run(async {
        for (claim, grant) in claims.iter().zip(&grants) {
            must_release(&engine, claim, grant).await;
        }
        granted(&engine, &claim("{x}free")).await;
    });
}

/// R19: for a name that was contended lately, the client calls the full script at once, without a try of the fast path.
#[test]
fn a_contended_name_skips_the_fast_path() {
    for site in Site::both() {
        let (engine, other) = (site.engine(), site.engine());
        let costs = |work: &mut dyn FnMut()| {
            let before = site.requests();
            work();
            site.requests() - before
        };
        let first = claim("a");
        site.run(async {
            // Warm up: the server loads all scripts, and both clients connect and subscribe.
            let grant = granted(&other, &first).await;
            assert!(matches!(create(&engine, &claim("a")).await, Ok(Answer::Waiting(_))));
            must_release(&other, &first, &grant).await;
        });
        let waits = costs(&mut || {
            let answer = site.run(async { create(&engine, &claim("a")).await });
            assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
        });
        assert_eq!(waits, 1, "the client knows that the name is contended");
    }
}
