//! Tables of other programs: what the tests of all databases share.

pub(crate) mod conforms;
pub(crate) mod crowd;
pub(crate) mod late;
pub(crate) mod numbered;
pub(crate) mod operators;
pub(crate) mod steps;
pub(crate) mod theirs;
pub(crate) mod tokens;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold_core::{
    Answer, Claim, Engine, Fault, Grant, Hold, How, Inspect, Name, Release, Released, Renewed, View,
};
use leasehold_sql::{ForeignTable, ForeignTableEngine, Layout};
use leasehold_testkit::claims;

use crate::until::PATIENCE;

/// The layouts.
pub(crate) const LAYOUTS: [Layout; 5] =
    [Layout::Shedlock, Layout::Symfony, Layout::Laravel, Layout::Liquibase, Layout::Insert];

/// A server with the tables of the other programs.
pub(crate) trait Site: Sync {
    /// A client of this table, through the proxy of the site.
    fn engine(&self, table: ForeignTable) -> Arc<ForeignTableEngine>;

    /// A client as this user.
    fn engine_as(&self, user: &str, table: ForeignTable) -> Arc<ForeignTableEngine>;

    /// Runs statements as an operator.
    fn query(&self, sql: &str) -> Vec<String>;

    /// Cuts all connections through the proxy.
    fn cut(&self);

    fn proxy(&self) -> &leasehold_testkit::server::Proxy;

    /// How many transactions wait for another one at present.
    fn lock_waits(&self) -> usize;

    /// How many transactions of claims have written their row, and are open.
    fn open_claims(&self) -> usize;

    fn sql(&self) -> &'static theirs::Dialect;
}

/// The table of a layout, as its program configures it.
pub(crate) fn table(layout: Layout) -> ForeignTable {
    let table = ForeignTable::new(layout);
    match layout {
        Layout::Insert => table.table("method_lock").unwrap().column("method_name").unwrap(),
        Layout::Laravel => table.prefix("app_"),
        _ => table,
    }
}

/// A name that the layout can lock.
pub(crate) fn name(layout: Layout) -> &'static str {
    if layout == Layout::Liquibase { "1" } else { "nightly" }
}

/// A try that lasts longer than any test.
pub(crate) fn try_claim(layout: Layout) -> Claim {
    short_claim(layout, Duration::from_secs(600))
}

pub(crate) fn short_claim(layout: Layout, ttl: Duration) -> Claim {
    Claim { may_queue: false, owner: "tester@here".into(), ..claims::exclusive(name(layout), ttl) }
}

/// The answer to a claim, as soon as the server can be reached.
pub(crate) async fn answer(engine: &dyn Engine, claim: &Claim) -> Answer {
    let limit = Instant::now() + PATIENCE;
    loop {
        match engine.claim(claim, How::Create).await {
            Ok(answer) => return answer,
            Err(error) if matches!(error.fault, Fault::Retry | Fault::Unknown) && Instant::now() < limit => {}
            Err(error) => panic!("{}: {error:?}", claim.name),
        }
    }
}

pub(crate) async fn held(engine: &dyn Engine, claim: &Claim) -> Grant {
    match answer(engine, claim).await {
        Answer::Held(grant) => grant,
        other => panic!("{} is free, yet: {other:?}", claim.name),
    }
}

pub(crate) async fn assert_taken(engine: &dyn Engine, layout: Layout) {
    let answer = answer(engine, &try_claim(layout)).await;
    assert!(matches!(answer, Answer::Taken(_)), "{layout:?}: {answer:?}");
}

/// Claims until it is granted.
pub(crate) async fn held_soon(engine: &dyn Engine, layout: Layout) -> (Claim, Grant) {
    let (claim, limit) = (try_claim(layout), Instant::now() + PATIENCE);
    loop {
        match answer(engine, &claim).await {
            Answer::Held(grant) => return (claim, grant),
            other => assert!(Instant::now() < limit, "{layout:?}: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn hold_of(claim: &Claim, grant: &Grant) -> Hold {
    Hold { id: claim.id, name: claim.name.clone(), mode: claim.mode, token: grant.token, ttl: claim.ttl }
}

pub(crate) async fn renewed(engine: &dyn Engine, claim: &Claim, grant: &Grant) -> Renewed {
    let limit = Instant::now() + PATIENCE;
    loop {
        match engine.renew(&[hold_of(claim, grant)]).await.remove(0) {
            Renewed::Unknown(error) => assert!(Instant::now() < limit, "{error:?}"),
            answer => return answer,
        }
    }
}

pub(crate) async fn released(engine: &dyn Engine, claim: &Claim, grant: Option<&Grant>) -> Released {
    let limit = Instant::now() + PATIENCE;
    let [by_id] = claims::release_of(claim);
    let release = Release { token: grant.map(|grant| grant.token), ..by_id };
    loop {
        match engine.release(std::slice::from_ref(&release)).await.remove(0) {
            Released::Unknown(error) => assert!(Instant::now() < limit, "{error:?}"),
            answer => return answer,
        }
    }
}

pub(crate) async fn show(engine: &ForeignTableEngine, layout: Layout) -> View {
    engine.show(&Name::new(name(layout)).unwrap()).await.unwrap()
}

/// The tests that each server runs. `$test` is a macro that makes a test of each name and its steps.
macro_rules! foreign_table_tests {
    ($test:ident) => {
        $test! {
            both_exclude_each_other = steps::both_exclude_each_other;
            a_killed_holder_blocks_until_its_time_has_passed = steps::a_killed_holder_blocks_until_its_time_has_passed;
            a_lease_lasts_as_long_as_it_was_granted = steps::a_lease_lasts_as_long_as_it_was_granted;
            renewals_keep_others_out = steps::renewals_keep_others_out;
            a_row_that_another_program_changed_is_reported_as_a_loss = steps::a_row_that_another_program_changed_is_reported_as_a_loss;
            claims_are_known_by_their_id = steps::claims_are_known_by_their_id;
            tokens_grow_over_competing_clients = tokens::tokens_grow_over_competing_clients;
            a_row_without_a_time_is_shown_and_broken = operators::a_row_without_a_time_is_shown_and_broken;
            a_broken_hold_of_ours_is_lost = operators::a_broken_hold_of_ours_is_lost;
            a_missing_table_is_created_on_request_only = operators::a_missing_table_is_created_on_request_only;
            a_commit_under_way_creates_nothing_after_the_release = late::a_commit_under_way_creates_nothing_after_the_release;
            a_claim_released_in_its_first_round_commits_nothing = late::a_claim_released_in_its_first_round_commits_nothing;
            a_job_that_outlives_its_time_frees_the_row_of_the_next_holder = steps::a_job_that_outlives_its_time_frees_the_row_of_the_next_holder;
            claims_dropped_while_they_commit_leave_no_row = late::claims_dropped_while_they_commit_leave_no_row;
            an_unanswered_commit_is_asked_for = late::an_unanswered_commit_is_asked_for;
        }

        conformance_tests! {
            shedlock_conforms = Shedlock, 55;
            symfony_conforms = Symfony, 50;
            laravel_conforms = Laravel, 52;
            liquibase_conforms = Liquibase, 46;
            inserted_rows_conform = Insert, 42;
        }
    };
}

/// A test for each layout, with the least number of cases that must not be skipped.
macro_rules! conformance_tests {
    ($($test:ident = $layout:ident, $least:literal;)*) => {
        $(#[test]
        fn $test() {
            assert_conforms(&Rig::new(), Layout::$layout, $least);
        })*
    };
}
