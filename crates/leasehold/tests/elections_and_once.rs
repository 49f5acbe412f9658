//! Elections and work that is done one time through the public crate, on the engines of files and SQL that need no
//! server: independent `Locks` act as processes.
#![expect(clippy::unwrap_used, reason = "tests")]
#![cfg(all(target_os = "linux", any(feature = "file", feature = "sqlite")))]

use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
};

use leasehold::{Leadership, Locks, Previous, Ran, Role};

/// Calls `test` with the URL of each engine, in a directory of its own.
fn on_each_engine(test: impl AsyncFn(&str)) {
    let urls: [&dyn Fn(&str) -> String; 2] =
        [&|dir| format!("file:{dir}/locks"), &|dir| format!("sqlite:{dir}/locks.db")];
    let enabled = [cfg!(feature = "file"), cfg!(feature = "sqlite")];
    for (url, _) in urls.iter().zip(enabled).filter(|(_, enabled)| *enabled) {
        let dir = tempfile::tempdir().unwrap();
        pollster::block_on(test(&url(dir.path().to_str().unwrap())));
    }
}

#[test]
fn a_leader_is_found_by_others_and_hands_over() {
    on_each_engine(async |url| {
        let [locks, other, observer] = [(); 3].map(|()| Locks::connect(url).unwrap());
        let mut watch = observer.election("scheduler").observe().unwrap();
        assert_eq!(watch.changed().await.unwrap(), Leadership::Vacant, "{url}");
        let first = locks.election("scheduler").value("first").campaign().await.unwrap();
        let Leadership::Held(leader) = watch.changed().await.unwrap() else { panic!("{url}: it leads") };
        assert_eq!((leader.value.as_deref(), leader.term), (Some("first"), first.term()), "{url}");
        let mut candidate = other.election("scheduler").value("second").stand().unwrap();
        let role = candidate.changed().await.unwrap();
        assert_eq!(role, Role::Follower { leader: Some("first".into()) }, "{url}");
        let term = first.term();
        first.resign().await.unwrap();
        let token = loop {
            // It may see the vacancy first.
            if let Role::Leader { token } = candidate.changed().await.unwrap() {
                break token;
            }
        };
        assert!(token > term, "{url}");
        let leader = loop {
            if let Leadership::Held(leader) = watch.changed().await.unwrap() {
                break leader;
            }
        };
        assert_eq!((leader.value.as_deref(), leader.term), (Some("second"), token), "{url}");
        candidate.resign().await.unwrap();
        assert_eq!(locks.election("scheduler").leader().await.unwrap(), None, "{url}");
    });
}

#[test]
fn duplicates_of_several_processes_run_one_time() {
    on_each_engine(async |url| {
        let runs = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let locks = Locks::connect(url).unwrap();
                    for _ in 0..5 {
                        let ran = locks.once("order-17").run_blocking(|_| {
                            runs.fetch_add(1, Ordering::Relaxed);
                            Ok::<_, Infallible>("receipt 1")
                        });
                        assert_eq!(ran.unwrap().bytes(), b"receipt 1", "{url}");
                    }
                });
            }
        });
        assert_eq!(runs.into_inner(), 1, "{url}");
        let locks = Locks::connect(url).unwrap();
        let failed = locks.once("order-18").run(async |_| Err::<&str, _>("no money")).await;
        assert_eq!(failed.unwrap_err().into_work_error(), Some("no money"), "{url}");
        let broken = Locks::connect(url).unwrap();
        let panicked = std::thread::scope(|scope| {
            let work = || {
                broken.once("order-18").run_blocking(|_| -> Result<&str, Infallible> { panic!("on purpose") })
            };
            scope.spawn(work).join()
        });
        assert!(panicked.is_err());
        let next = locks.once("order-18").run(async |guard| {
            assert_eq!(guard.previous(), Previous::Abandoned, "{url}");
            Ok::<_, Infallible>("receipt 2")
        });
        assert_eq!(next.await.unwrap(), Ran::Fresh(b"receipt 2".to_vec()), "{url}");
    });
}
