//! A commit that arrives after the release of its claim, or whose answer is lost.

use std::{cell::Cell, time::Duration};

use leasehold_core::{Answer, Claim, Engine, Fault, How, Released};
use leasehold_sql::Layout;

use super::{LAYOUTS, Site, name, released, table, try_claim};
use crate::until::PATIENCE;

/// Waits in steps, so that other tasks go on.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = std::time::Instant::now() + PATIENCE;
    while !done() {
        assert!(std::time::Instant::now() < limit, "waited {PATIENCE:?} until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// R9: a release waits for a commit that is under way, and frees what it did.
pub(crate) async fn a_commit_under_way_creates_nothing_after_the_release(site: &impl Site) {
    for layout in LAYOUTS {
        site.query(site.sql().plain_table(layout));
        let (ours, claim) = (site.engine(table(layout)), try_claim(layout));
        lose_the_answer_to_the_commit(site, &*ours, &claim).await;
        let is_released = Cell::new(false);
        let release = async {
            let answer = released(&*ours, &claim, None).await;
            is_released.set(true);
            answer
        };
        let let_the_commit_arrive = async {
            until("the release waits for the commit", || site.lock_waits() > 0 || is_released.get()).await;
            site.proxy().release_held();
        };
        let (answer, ()) = tokio::join!(release, let_the_commit_arrive);
        assert!(matches!(answer, Released::Freed | Released::NotThere), "{layout:?}: {answer:?}");
        until("the transaction of the claim has ended", || site.open_claims() == 0).await;
        assert_eq!(site.query(site.sql().held_rows(layout)), [""; 0], "{layout:?} {}", name(layout));
    }
}

pub(crate) async fn claims_dropped_while_they_commit_leave_no_row(site: &impl Site) {
    for layout in LAYOUTS {
        site.query(site.sql().plain_table(layout));
        a_claim_dropped_while_it_commits_leaves_no_row(site, layout).await;
    }
}

/// A claim that is dropped while its commit is under way is freed by its release, also where the row itself does not
/// tell whose it is.
pub(crate) async fn a_claim_dropped_while_it_commits_leaves_no_row(site: &impl Site, layout: Layout) {
    let (ours, claim) = (site.engine(table(layout)), try_claim(layout));
    connect(&*ours, &claim).await;
    let proxy = site.proxy();
    proxy.hold_answers();
    let until_the_commit = async {
        until("the row is written", || site.open_claims() > 0).await;
        proxy.hold_requests();
        proxy.release_answers();
        until("the commit is under way", || proxy.holds_a_request()).await;
    };
    tokio::select! {
        answer = ours.claim(&claim, How::Create) => panic!("{layout:?}: {answer:?}"),
        () = until_the_commit => {}
    }
    proxy.release_held();
    let answer = released(&*ours, &claim, None).await;
    assert!(matches!(answer, Released::Freed), "{layout:?}: {answer:?}");
    assert_eq!(site.query(site.sql().held_rows(layout)), [""; 0], "{layout:?}");
}

/// An unanswered commit is asked for, and the hold is the one of the commit.
pub(crate) async fn an_unanswered_commit_is_asked_for(site: &impl Site) {
    for layout in LAYOUTS {
        site.query(site.sql().plain_table(layout));
        let (ours, claim) = (site.engine(table(layout)), try_claim(layout));
        lose_the_answer_to_the_commit(site, &*ours, &claim).await;
        site.proxy().release_held();
        let grant = super::held(&*ours, &claim).await;
        let rows = site.query(site.sql().held_rows(layout));
        assert_eq!(rows.len(), 1, "{layout:?}: {rows:?}");
        assert!(matches!(released(&*ours, &claim, Some(&grant)).await, Released::Freed), "{layout:?}");
    }
}

/// A claim that is released during its first round trip commits nothing, because its release did not wait for a commit.
pub(crate) async fn a_claim_released_in_its_first_round_commits_nothing(site: &impl Site) {
    for layout in LAYOUTS {
        site.query(site.sql().plain_table(layout));
        let (ours, claim) = (site.engine(table(layout)), try_claim(layout));
        connect(&*ours, &claim).await;
        site.proxy().hold_answers();
        let release_meanwhile = async {
            until("the row is written", || site.open_claims() > 0).await;
            let answer = released(&*ours, &claim, None).await;
            assert!(matches!(answer, Released::NotThere), "{layout:?}: {answer:?}");
            site.proxy().release_answers();
        };
        let (answer, ()) = tokio::join!(ours.claim(&claim, How::Create), release_meanwhile);
        assert!(matches!(answer, Ok(Answer::Gone)), "{layout:?}: {answer:?}");
        assert_eq!(site.query(site.sql().held_rows(layout)), [""; 0], "{layout:?}");
        super::held(&*ours, &try_claim(layout)).await;
    }
}

/// Holds and releases the name, so that the pool has a connection, and the next claim begins with its first round trip.
async fn connect(ours: &dyn Engine, claim: &Claim) {
    let before = Claim { id: try_claim(leasehold_sql::Layout::Shedlock).id, ..claim.clone() };
    let grant = super::held(ours, &before).await;
    released(ours, &before, Some(&grant)).await;
}

/// Sends a claim whose commit does not reach the server, until the proxy releases what it holds.
pub(crate) async fn lose_the_answer_to_the_commit(site: &impl Site, ours: &dyn Engine, claim: &Claim) {
    connect(ours, claim).await;
    let proxy = site.proxy();
    proxy.hold_answers();
    let hold_the_commit = async {
        until("the row is written", || site.open_claims() > 0).await;
        proxy.hold_requests();
        proxy.release_answers();
        until("the commit is under way", || proxy.holds_a_request()).await;
        proxy.cut_clients();
    };
    let (answer, ()) = tokio::join!(ours.claim(claim, How::Create), hold_the_commit);
    assert!(answer.as_ref().is_err_and(|error| error.fault == Fault::Unknown), "{}: {answer:?}", claim.name);
}
