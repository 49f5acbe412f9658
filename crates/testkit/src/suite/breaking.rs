//! Breaking a hold on purpose: rule R13 of `docs/rules.md`.

use leasehold_core::{
    Answer, Breaking, Broken, Claim, EngineError, Fault, Grant, HAND_OVER_TOKENS, HolderView, How, Life,
    Loss, Mode, Previous, Profile, Renewed, View,
};

use super::{
    Stored,
    case::{Case, Outcome, case, ensure, expect_match, needs_lease},
    fixture::{Contended, Fixture, hold_of},
};

pub(super) const CASES: &[Case] = &[
    case!(breaking_a_free_name_finds_nothing),
    case!(breaking_another_token_finds_nothing),
    case!(
        a_hold_that_cannot_be_broken_stays,
        skip = |profile| {
            (profile.breaking == Breaking::Lease).then_some("holds can be broken on the server")
        }
    ),
    case!(a_broken_hold_is_lost_and_blocks_until_its_release, skip = needs_lease_breaking),
    case!(a_broken_hold_is_shown_as_broken, skip = needs_lease_breaking),
    case!(
        a_broken_hold_blocks_until_its_lease_ends,
        skip = |profile| { needs_lease_breaking(profile).or(needs_lease(profile)) }
    ),
    case!(a_forced_break_frees_at_once, skip = needs_forced_breaking),
    case!(a_forced_break_ends_an_unconfirmed_grant, skip = needs_forced_breaking),
    case!(
        any_token_of_a_block_breaks_its_hold,
        skip = |profile| {
            needs_lease_breaking(profile).or((profile.tokens == 1).then_some("grants carry one token"))
        }
    ),
];

/// The reason to skip a case that needs holds which an operator can break by force.
fn needs_forced_breaking(profile: &Profile) -> Option<&'static str> {
    (!matches!(profile.breaking, Breaking::Lease | Breaking::Force))
        .then_some("holds cannot be broken on the server")
}

fn needs_lease_breaking(profile: &Profile) -> Option<&'static str> {
    (profile.breaking != Breaking::Lease).then_some("holds cannot be broken on the server")
}

async fn breaking_a_free_name_finds_nothing(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    for force in [false, true] {
        let answer = client.engine.break_hold(&fixture.name(""), 1, force).await;
        expect_match!(
            answer,
            Ok(Broken::NotHeld) | Err(EngineError { fault: Fault::Denied, .. }) => (),
            "breaking a free name"
        );
    }
    Ok(())
}

async fn breaking_another_token_finds_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let next = next_block(&grant);
    for (token, force) in [(next, false), (next + 1_000_000, true), (0, true)] {
        let answer = client_b.engine.break_hold(&claim.name, token, force).await;
        expect_match!(
            answer,
            Ok(Broken::NotHeld) | Err(EngineError { fault: Fault::Denied, .. }) => (),
            "breaking the token {token} while {} holds", grant.token
        );
    }
    let answers = client_a.engine.renew(&[hold_of(&claim, &grant)]).await;
    expect_match!(&answers[..], [Renewed::Extended { .. }] => (), "the hold after a break of another token");
    client_a.release_hold(&claim, &grant).await
}

async fn a_hold_that_cannot_be_broken_stays(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    // The claim does not end on SIGTERM. So an engine that breaks holds only by signals cannot break it.
    let claim = Claim { stops_on_term: false, ..fixture.claim(&fixture.name(""), Mode::Exclusive) };
    let grant = client_a.acquire(&claim).await?;
    // Some holds can be broken, but only by force.
    let is_refused = |force: &bool| !(*force && fixture.profile().breaking == Breaking::Force);
    for force in [false, true].into_iter().filter(is_refused) {
        let answer = client_b.engine.break_hold(&claim.name, grant.token.number, force).await;
        expect_match!(
            answer,
            Err(EngineError { fault: Fault::Denied, .. }) => (),
            "breaking what cannot be broken"
        );
    }
    client_b.expect_taken(&claim.name).await?;
    client_a.release_hold(&claim, &grant).await
}

async fn a_broken_hold_is_lost_and_blocks_until_its_release(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let waiter = fixture.claim(&claim.name, Mode::Exclusive);
    client_b.claim_blocked(&waiter).await?;
    let answer = client_b.engine.break_hold(&claim.name, grant.token.number, false).await;
    expect_match!(answer, Ok(Broken::Done) => (), "breaking a hold");
    client_b.claim_blocked(&waiter).await?;
    let answers = client_a.engine.renew(&[hold_of(&claim, &grant)]).await;
    expect_match!(&answers[..], [Renewed::Lost(Loss::Broken)] => (), "the renewal of a hold that was broken");
    // The release by the holder confirms that the holder has stopped.
    client_a.release(&claim, Some(&grant)).await?;
    let next = client_b.ask_until_granted(&waiter).await?;
    expect_match!(next.previous, Previous::Broken | Previous::Unknown => (), "after a hold that was broken");
    client_b.release_hold(&waiter, &next).await
}

/// Looks show that the hold is broken, and how long its name stays taken at the latest.
async fn a_broken_hold_is_shown_as_broken(fixture: &Fixture<'_>) -> Outcome {
    fixture.need_stored(Stored::Everything)?;
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let before = only_holder(client_b.engine.show(&claim.name).await)?;
    ensure!(!before.broken && before.id == claim.id.to_string(), "a hold that nobody broke: {before:?}");
    let answer = client_b.engine.break_hold(&claim.name, grant.token.number, false).await;
    expect_match!(answer, Ok(Broken::Done) => (), "breaking a hold");
    let after = only_holder(client_b.engine.show(&claim.name).await)?;
    ensure!(after.broken && after.id == before.id, "a broken hold: {after:?}");
    ensure!(after.token == Some(grant.token.number), "the token {} of a broken hold: {after:?}", grant.token);
    if fixture.profile().life == Life::Lease {
        // An engine can give the broken hold a lease of its own, as long as a renewal before the break made it.
        let longest = before.remaining.max(Some(claim.ttl));
        let is_bounded = after.remaining.is_some() && after.remaining <= longest;
        ensure!(is_bounded, "the lease of a broken hold: {after:?}, before the break {before:?}");
    }
    client_a.release(&claim, Some(&grant)).await.map(drop)
}

/// The holder of a name that has one.
fn only_holder(view: Result<View, EngineError>) -> Outcome<HolderView> {
    let view = view.map_err(|error| format!("no view: {error:?}"))?;
    let [holder] = &view.holders[..] else { return Err(format!("not one holder: {view:?}").into()) };
    Ok(holder.clone())
}

async fn a_broken_hold_blocks_until_its_lease_ends(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short_lease_claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let answer = client_b.engine.break_hold(&claim.name, grant.token.number, false).await;
    expect_match!(answer, Ok(Broken::Done) => (), "breaking a hold");
    client_b.expect_taken(&claim.name).await?;
    fixture.wait_until_expired(&grant).await?;
    let next = client_b.expect_free_soon(&claim.name).await?;
    expect_match!(next.previous, Previous::Broken | Previous::Unknown => (), "after a hold that was broken");
    Ok(())
}

async fn a_forced_break_frees_at_once(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let answer = client_b.engine.break_hold(&claim.name, grant.token.number, true).await;
    expect_match!(answer, Ok(Broken::Done) => (), "breaking a hold by force");
    let next_claim = fixture.claim(&claim.name, Mode::Exclusive);
    let next = client_b.acquire(&next_claim).await?;
    expect_match!(next.previous, Previous::Broken | Previous::Unknown => (), "after a hold that was broken");
    let answers = client_a.engine.renew(&[hold_of(&claim, &grant)]).await;
    expect_match!(&answers[..], [Renewed::Lost(_)] => (), "the renewal of a hold that was broken");
    client_a.release(&claim, Some(&grant)).await?;
    client_a.expect_taken(&claim.name).await?;
    client_b.release_hold(&next_claim, &next).await
}

/// A token that is in neither the block of this grant nor an earlier block. The result is right even if a claim asked
/// for fewer tokens than a block has: a server that numbers the claims itself gives all blocks one size.
fn next_block(grant: &Grant) -> u64 {
    let last = grant.token.number + u64::from(grant.tokens) - 1;
    let size = u64::from(HAND_OVER_TOKENS);
    (last / size + 1) * size
}

async fn any_token_of_a_block_breaks_its_hold(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = Claim { tokens: 4, ..fixture.claim(&fixture.name(""), Mode::Exclusive) };
    let grant = client_a.acquire(&claim).await?;
    let last = grant.token.number + u64::from(grant.tokens) - 1;
    for (token, which) in [(grant.token.number - 1, "before"), (next_block(&grant), "after")] {
        let answer = client_b.engine.break_hold(&claim.name, token, true).await;
        expect_match!(answer, Ok(Broken::NotHeld) => (), "breaking the token {which} the block");
    }
    let answer = client_b.engine.break_hold(&claim.name, last, true).await;
    expect_match!(answer, Ok(Broken::Done) => (), "breaking the last token of the block");
    client_b.expect_free(&claim.name).await.map(drop)
}

async fn a_forced_break_ends_an_unconfirmed_grant(fixture: &Fixture<'_>) -> Outcome {
    let Contended { client_a, client_b, holder, grant, waiter } = fixture.contended().await?;
    client_a.release_hold(&holder, &grant).await?;
    let view = client_a.engine.show(&waiter.name).await.map_err(|error| format!("show: {error:?}"))?;
    // Some engines grant a claim only when it asks. On such an engine there is no hold to break yet.
    if let Some(token) = view.holders.first().and_then(|holder| holder.token) {
        let answer = client_a.engine.break_hold(&waiter.name, token, true).await;
        expect_match!(answer, Ok(Broken::Done) => (), "breaking a grant that was pushed");
        let answer = client_b.engine.claim(&waiter, How::Ask).await;
        expect_match!(answer, Ok(Answer::Gone) => (), "asking for a grant that was broken");
    }
    client_b.release(&waiter, None).await?;
    client_a.expect_free(&waiter.name).await.map(drop)
}
