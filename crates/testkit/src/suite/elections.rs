//! Leader elections: rule R29 of `docs/rules.md`.

use leasehold_core::{Leader, LeaderWatch, Leadership, Leading};

use super::{
    case::{Case, Outcome, case, ensure, expect_match},
    fixture::Fixture,
    program::{close_all, failed, needs_memos, needs_memos_and_breaking},
};

pub(super) const CASES: &[Case] = &[
    case!(observers_see_the_value_with_the_term_of_its_leader, skip = needs_memos),
    case!(a_resignation_hands_over_to_the_next_candidate, skip = needs_memos),
    case!(a_leader_that_was_broken_publishes_nothing, skip = needs_memos_and_breaking),
];

/// The next leader that an observer sees, past vacancies.
async fn next_leader(fixture: &Fixture<'_>, watch: &mut LeaderWatch) -> Outcome<Leader> {
    let seen = async {
        loop {
            match watch.changed().await {
                Ok(Leadership::Held(leader)) => return Ok(leader),
                Ok(_) => {}
                Err(error) => return Err(failed("observe")(error)),
            }
        }
    };
    fixture.step("an observer sees a leader", seen).await?
}

fn expect_leader(leader: &Leader, value: &str, leading: &Leading) -> Outcome {
    ensure!(
        leader.value.as_deref() == Some(value) && leader.term == leading.term(),
        "{leader:?} should be {value:?} in term {}",
        leading.term()
    );
    Ok(())
}

async fn observers_see_the_value_with_the_term_of_its_leader(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    let mut watch = other.election(name.as_str()).observe().map_err(failed("observe"))?;
    expect_match!(watch.changed().await, Ok(Leadership::Vacant) => (), "nobody leads");
    let campaign = locks.election(name.as_str()).value("first").campaign();
    let leading = campaign.await.map_err(failed("campaign"))?;
    expect_leader(&next_leader(fixture, &mut watch).await?, "first", &leading)?;
    leading.proclaim("second").await.map_err(failed("proclaim"))?;
    expect_leader(&next_leader(fixture, &mut watch).await?, "second", &leading)?;
    leading.resign().await.map_err(failed("resign"))?;
    let vacancy = fixture.step("an observer sees the vacancy", watch.changed()).await?;
    expect_match!(vacancy, Ok(Leadership::Vacant) => (), "the leader has resigned");
    expect_match!(other.election(name.as_str()).leader().await, Ok(None) => (), "the leader has resigned");
    drop(watch);
    close_all([locks, other]).await
}

async fn a_resignation_hands_over_to_the_next_candidate(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    let campaign = locks.election(name.as_str()).value("first").campaign();
    let first = campaign.await.map_err(failed("campaign"))?;
    let mut watch = locks.election(name.as_str()).observe().map_err(failed("observe"))?;
    expect_leader(&next_leader(fixture, &mut watch).await?, "first", &first)?;
    let waiting = tokio::spawn(other.election(name.as_str()).value("next").campaign());
    let term = first.term();
    first.resign().await.map_err(failed("resign"))?;
    let next = fixture.step("the next candidate leads", waiting).await?;
    let next = next.map_err(|error| format!("the next campaign: {error}"))?.map_err(failed("campaign"))?;
    ensure!(
        !matches!(next.term().partial_cmp(&term), Some(order) if order.is_le()),
        "term {} comes after {term}",
        next.term()
    );
    expect_leader(&next_leader(fixture, &mut watch).await?, "next", &next)?;
    next.resign().await.map_err(failed("resign"))?;
    drop(watch);
    close_all([locks, other]).await
}

async fn a_leader_that_was_broken_publishes_nothing(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    let campaign = locks.election(name.as_str()).value("broken").campaign();
    let broken = campaign.await.map_err(failed("campaign"))?;
    let breaking = other.break_hold(name.as_str(), broken.term().number, true);
    breaking.await.map_err(failed("break"))?;
    let next = other.election(name.as_str()).value("next").campaign();
    let next = fixture.step("the next leader", next).await?.map_err(failed("campaign"))?;
    for error in [broken.proclaim("late").await, broken.resign().await] {
        expect_match!(error, Err(error) if error.is_lost() => (), "a leader whose term was ended");
    }
    let leader = other.election(name.as_str()).leader().await.map_err(failed("read"))?;
    let leader = expect_match!(leader, Some(leader) => leader, "the next leader still leads");
    expect_leader(&leader, "next", &next)?;
    next.resign().await.map_err(failed("resign"))?;
    close_all([locks, other]).await
}
