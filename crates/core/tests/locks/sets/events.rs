//! The events of a request for several names: one begin and one end for each name.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Keeper, Locks, memory::MemoryEngine};
use leasehold_testkit::decorators::{Fault, Verb};
use tokio::time::{sleep, timeout};

use super::OneByOne;
use crate::{
    cleanup::{new_store, paused_runtime},
    events::{MOMENT, Notes, TTL, observed},
};

#[test]
fn a_set_has_one_begin_and_one_end_for_each_name() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, notes) = observed(&store, &env);
        let other = observed(&store, &env).0;
        let set = || locks.all().mutex("a").mutex("b").ttl(TTL);
        set().acquire().await.unwrap().release().await.unwrap();
        let granted = ["granted a #1 false false", "granted b #9 false false"];
        let released = ["released a #1 Released", "released b #9 Released"];
        assert_eq!(notes.lines(), [&["begun a", "begun b"][..], &granted, &released].concat());
        let held = other.mutex("b").acquire().await.unwrap();
        assert!(set().attempts(3).acquire().await.unwrap_err().is_taken());
        let lines = notes.lines();
        assert_eq!(lines[..2], ["begun a", "begun b"], "{lines:?}");
        assert!(
            lines[2].starts_with("cancelled a ") && lines[3].starts_with("refused b Taken "),
            "{lines:?}"
        );
        assert_eq!(lines.len(), 4, "{lines:?}");
        // Dropped when the request of the one step is in flight, and in the wait for the second name.
        for (wait, had_to_wait) in [(Duration::ZERO, "false"), (TTL * 2, "true")] {
            faulty.next(Verb::Claim, Fault::Late);
            assert!(timeout(wait, set().acquire()).await.is_err());
            sleep(MOMENT).await;
            faulty.deliver_late().await;
            faulty.clear_planned();
            sleep(MOMENT).await;
            let lines = notes.lines();
            let ends: Vec<_> = lines.iter().filter(|line| line.contains("cancelled")).collect();
            assert!(ends[0].starts_with("cancelled a ") && ends[0].ends_with("false"), "{lines:?}");
            assert!(ends[1].starts_with("cancelled b ") && ends[1].ends_with(had_to_wait), "{lines:?}");
            assert_eq!((ends.len(), &lines[..2]), (2, &["begun a".to_owned(), "begun b".to_owned()][..]));
            assert!(lines.iter().all(|line| !line.contains("granted") && !line.contains("released")));
        }
        drop(held);
        locks.close(Duration::ZERO).await;
        assert!(set().acquire().await.unwrap_err().is_closed());
        assert_eq!(notes.lines(), ["begun a", "begun b", "refused a Closed 0ns", "cancelled b 0ns false"]);
    });
}

/// Where no one step takes all names, each name is acquired by a request of its own, which has no events.
#[test]
fn a_set_that_is_taken_name_by_name_has_the_events_of_a_set() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let notes = Arc::new(Notes::default());
        let locks = Locks::builder(OneByOne::new(Arc::new(MemoryEngine::new(Arc::clone(&store)))))
            .keeper(Keeper::on(tokio::runtime::Handle::current()))
            .env(env.clone())
            .observe(Arc::clone(&notes) as _)
            .build();
        let other = observed(&store, &env).0;
        let set = || locks.all().mutex("a").mutex("b").ttl(TTL);
        let held = other.mutex("a").acquire().await.unwrap();
        assert!(set().attempts(2).acquire().await.unwrap_err().is_taken());
        let lines = notes.lines();
        assert!(lines[2].starts_with("refused a Taken "), "{lines:?}");
        assert!(lines[3].starts_with("cancelled b ") && lines.len() == 4, "{lines:?}");
        assert!(timeout(TTL, set().acquire()).await.is_err());
        sleep(MOMENT).await;
        let lines = notes.lines();
        let ends = ["cancelled a 2s true", "cancelled b 2s false"];
        assert_eq!(lines, [&["begun a", "begun b", "queued a Some(0)"][..], &ends].concat());
        let (result, ()) = tokio::join!(set().acquire(), async {
            sleep(TTL).await;
            held.release().await.unwrap();
        });
        result.unwrap().release().await.unwrap();
        let lines = notes.lines();
        let is_granted = |line: &&String| line.starts_with("granted ");
        let granted: Vec<_> = lines.iter().filter(is_granted).map(|line| line.split(' ').nth(3)).collect();
        assert_eq!(granted, [Some("true"), Some("false")], "{lines:?}");
        assert_eq!(lines.iter().filter(|line| line.starts_with("begun ")).count(), 2, "{lines:?}");
    });
}
