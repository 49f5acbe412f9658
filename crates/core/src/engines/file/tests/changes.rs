//! What a view is told of, and that a look is no change.

use tokio::time::timeout;

use super::{helper::Helper, notifications::run, *};
use crate::{Inspect, NoticeSender, Notices, Watched, notices};

/// The time limit of a notice: far longer than one takes on a busy machine, so only a hang exceeds it.
const NOTICE_LIMIT: Duration = Duration::from_secs(60);

/// Runs `body` while an engine tells a view of these names.
fn told(engine: &FileEngine, watched: &Watched, body: impl AsyncFnOnce(&mut Notices)) {
    run(async {
        let (sender, mut notices) = notices();
        let body = async {
            noticed(&mut notices).await;
            assert!(notices.are_pushed());
            body(&mut notices).await;
        };
        tokio::select! {
            ended = engine.tell_changes(watched, &sender) => panic!("it ended: {ended:?}"),
            () = body => {}
        }
    });
}

async fn noticed(notices: &mut Notices) {
    timeout(NOTICE_LIMIT, notices.changed()).await.expect("a notice comes");
}

/// The notices of one change: each is told twice.
async fn told_twice(notices: &mut Notices) {
    noticed(notices).await;
    noticed(notices).await;
}

/// Lets the engine read all events. None may be told.
async fn not_told(notices: &mut Notices, why: &str) {
    let context = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..300 {
        tokio::task::yield_now().await;
        assert!(notices.poll_changed(&context).is_pending(), "{why}");
    }
}

fn all() -> Watched {
    Watched::Prefix(String::new())
}

/// An engine whose directory exists, with the state of one name.
fn used(scratch: &Scratch) -> FileEngine {
    let engine = scratch.engine();
    let first = claim("job", Mode::Exclusive);
    held(create(&engine, &first));
    release_claim(&engine, &first);
    engine
}

#[test]
fn grants_waits_and_releases_are_told() {
    let scratch = Scratch::new();
    let (engine, viewer) = (used(&scratch), scratch.engine());
    for mode in [Mode::Exclusive, Mode::Shared, PERMIT] {
        let name = format!("of {mode}");
        told(&viewer, &Watched::Name(Name::new(&name).unwrap()), async |notices| {
            let (first, second) = (claim(&name, mode), claim(&name, mode));
            held(create(&engine, &first));
            told_twice(notices).await;
            create(&engine, &second).unwrap();
            told_twice(notices).await;
            release_claim(&engine, &second);
            told_twice(notices).await;
            release_claim(&engine, &first);
            told_twice(notices).await;
        });
    }
}

#[test]
fn the_end_of_a_killed_process_is_told() {
    let scratch = Scratch::new();
    let (_engine, viewer) = (used(&scratch), scratch.engine());
    let mut helper = Helper::start(&scratch.dir());
    assert!(helper.request("claim job exclusive").starts_with("held "));
    told(&viewer, &all(), async |notices| {
        helper.kill();
        told_twice(notices).await;
    });
}

/// Otherwise two views would have each other look without an end.
#[test]
fn a_look_is_no_change() {
    let scratch = Scratch::new();
    let (engine, viewer) = (used(&scratch), scratch.engine());
    let (first, second) = (claim("job", Mode::Exclusive), claim("job", Mode::Exclusive));
    held(create(&engine, &first));
    waiting(create(&engine, &second));
    told(&viewer, &Watched::Name(first.name.clone()), async |notices| {
        let looker = scratch.engine();
        for view in [looker.list("").await.unwrap().remove(0), looker.show(&first.name).await.unwrap()] {
            assert_eq!((view.holders.len(), view.waiters.len()), (1, 1));
        }
        looker.diagnose().await.unwrap();
        drop(looker);
        not_told(notices, "a look is told as a change").await;
    });
}

#[test]
fn a_view_is_not_told_of_names_that_it_does_not_show() {
    let scratch = Scratch::new();
    let (engine, viewer) = (used(&scratch), scratch.engine());
    told(&viewer, &Watched::Prefix("job/".to_owned()), async |notices| {
        let other = claim("other", Mode::Exclusive);
        held(create(&engine, &other));
        release_claim(&engine, &other);
        not_told(notices, "it does not show this name").await;
        held(create(&engine, &claim("job/1", Mode::Exclusive)));
        told_twice(notices).await;
    });
}

/// A missing directory is no reason to give up: core asks again.
#[test]
fn a_directory_that_is_missing_or_goes_away_is_an_error() {
    let scratch = Scratch::new();
    let (sender, _notices) = notices();
    let tell = |viewer: &FileEngine, sender: &NoticeSender| {
        run(async { viewer.tell_changes(&all(), sender).await }).unwrap_err()
    };
    let viewer = scratch.engine();
    assert!(tell(&viewer, &sender).message.contains("does not exist yet"));
    let _engine = used(&scratch);
    let watched = all();
    let error = run(async {
        let moving = async {
            tokio::task::yield_now().await;
            std::fs::rename(scratch.dir(), scratch.0.join("moved")).unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            ended = timeout(NOTICE_LIMIT, viewer.tell_changes(&watched, &sender)) => ended.unwrap().unwrap_err(),
            () = moving => unreachable!("it is pending"),
        }
    });
    assert!(error.message.contains("was moved or removed"), "{error:?}");
}
