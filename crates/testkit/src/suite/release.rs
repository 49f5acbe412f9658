//! Release: rules R4, R9 and R21 of `docs/rules.md`, and what the next holder learns about the previous hold.

use leasehold_core::{
    Answer, Claim, Grant, HolderView, How, Life, Mode, Previous, Profile, Release, Released, Token,
};

use super::{
    case::{Case, Outcome, case, ensure, expect_match, needs_fifo, needs_lease},
    fixture::{Client, Fixture, release_of},
};
use crate::claims;

pub(super) const CASES: &[Case] = &[
    case!(a_released_name_is_free),
    case!(a_repeated_release_finds_nothing),
    case!(a_release_of_an_unknown_claim_finds_nothing),
    case!(a_release_of_another_id_touches_nothing),
    case!(a_release_with_another_token_finds_nothing_and_leaves_nothing),
    case!(a_release_of_an_unconfirmed_lapsed_hold_finds_nothing, skip = needs_pushed_leases),
    case!(a_release_of_a_lapsed_hold_ends_its_later_grant, skip = needs_pushed_leases),
    case!(a_release_by_id_alone_frees_a_hold),
    case!(a_late_release_spares_the_next_holder),
    case!(releases_answer_one_by_one_in_order),
    case!(a_late_claim_after_its_release_holds_nothing, skip = cannot_be_late),
    case!(a_claim_released_before_it_arrived_holds_nothing, skip = cannot_be_late),
    case!(a_clean_end_is_reported_to_the_next_holder),
    case!(an_abandoned_hold_is_reported_to_the_next_holder),
    case!(an_unused_hold_does_not_hide_the_end_before_it),
];

/// The reason to skip cases about tombstones: R9 requires them only if a request can arrive after a later one.
fn cannot_be_late(profile: &Profile) -> Option<&'static str> {
    let applied_at_once = profile.inline && profile.life == Life::Process;
    applied_at_once.then_some("no request can arrive late: verbs are applied when they are called")
}

fn needs_pushed_leases(profile: &Profile) -> Option<&'static str> {
    let pushes = (!profile.push).then_some("grants are not pushed");
    needs_lease(profile).or(needs_fifo(profile)).or(pushes)
}

async fn a_released_name_is_free(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    client_a.release_hold(&claim, &grant).await?;
    client_b.expect_free(&claim.name).await?;
    client_a.expect_free(&claim.name).await.map(drop)
}

async fn a_repeated_release_finds_nothing(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client.acquire(&claim).await?;
    client.release_hold(&claim, &grant).await?;
    for token in [Some(&grant), None] {
        expect_match!(
            client.release(&claim, token).await?,
            Released::NotThere => (),
            "the second release of one claim"
        );
    }
    Ok(())
}

async fn a_release_of_an_unknown_claim_finds_nothing(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 2 }]
        .map(|mode| fixture.mode_or_exclusive(mode))
    {
        let claim = fixture.claim(&fixture.name(""), mode);
        expect_match!(
            client.release(&claim, None).await?,
            Released::NotThere => (),
            "the release of a claim never made"
        );
    }
    client.expect_free(&fixture.name("")).await.map(drop)
}

async fn a_release_of_another_id_touches_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    for token in [Some(grant.token), None] {
        let release_request = Release { id: claims::fresh_id(), token, ..release_of(&claim, None) };
        expect_match!(
            client_b.send_release(&release_request).await?,
            Released::NotThere => (),
            "the release of a hold by another id"
        );
        client_b.expect_taken(&claim.name).await?;
    }
    client_a.release_hold(&claim, &grant).await
}

async fn a_release_with_another_token_finds_nothing_and_leaves_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 2 }]
        .map(|mode| fixture.mode_or_exclusive(mode))
    {
        let claim = fixture.claim(&fixture.name(""), mode);
        let grant = client_a.acquire(&claim).await?;
        let token = Token { number: grant.token.number + 1_000_000, ..grant.token };
        let release_request = Release {
            token: Some(token),
            ended: Previous::Abandoned,
            min_hold: Some(claim.ttl),
            ..release_of(&claim, None)
        };
        expect_match!(
            client_a.send_release(&release_request).await?,
            Released::NotThere => (),
            "the release of a hold by another token"
        );
        expect_match!(
            client_a.release(&claim, Some(&grant)).await?,
            Released::NotThere => (),
            "the release of what was released"
        );
        let next = client_b.expect_free(&claim.name).await?;
        expect_match!(
            next.previous,
            Previous::Clean | Previous::Unknown => (),
            "after a hold that its client did not know"
        );
    }
    Ok(())
}

async fn a_release_of_an_unconfirmed_lapsed_hold_finds_nothing(fixture: &Fixture<'_>) -> Outcome {
    let UnconfirmedGrant { client_a, client_b, claim, grant } = lapsed_unconfirmed_grant(fixture).await?;
    let next = fixture.claim(&claim.name, Mode::Exclusive);
    let next_grant = client_a.acquire_soon(&next).await?;
    expect_match!(
        client_b.release(&claim, Some(&grant)).await?,
        Released::NotThere => (),
        "the release of a hold that lapsed"
    );
    expect_match!(
        client_b.send_claim(&claim, How::Ask).await?,
        Answer::Gone => (),
        "a claim that was released"
    );
    client_a.release_hold(&next, &next_grant).await?;
    client_a.expect_free(&claim.name).await.map(drop)
}

async fn a_release_of_a_lapsed_hold_ends_its_later_grant(fixture: &Fixture<'_>) -> Outcome {
    let UnconfirmedGrant { client_a, client_b, claim, grant } = lapsed_unconfirmed_grant(fixture).await?;
    let again = client_b.ask_until_granted(&claim).await?;
    ensure!(again.token.number > grant.token.number, "{again:?} after {grant:?}");
    expect_match!(
        client_b.release(&claim, Some(&grant)).await?,
        Released::NotThere => (),
        "the release of a hold that lapsed"
    );
    client_a.expect_free(&claim.name).await.map(drop)
}

/// A claim with a pushed grant that lapsed before the claim confirmed it.
struct UnconfirmedGrant<'a> {
    client_a: Client<'a>,
    client_b: Client<'a>,
    claim: Claim,
    grant: Grant,
}

async fn lapsed_unconfirmed_grant<'a>(fixture: &'a Fixture<'a>) -> Outcome<UnconfirmedGrant<'a>> {
    let (client_a, client_b, name) = (fixture.client().await, fixture.client().await, fixture.name(""));
    let (holder, claim) =
        (fixture.claim(&name, Mode::Exclusive), fixture.short_lease_claim(&name, Mode::Exclusive));
    let grant = client_a.acquire(&holder).await?;
    client_b.claim_blocked(&claim).await?;
    client_a.release_hold(&holder, &grant).await?;
    let view = fixture.view_after_release(&client_a, &name).await?;
    let number = expect_match!(
        &view.holders[..], [HolderView { token: Some(number), .. }] => *number, "the holder after a hand-over"
    );
    let grant = Grant { token: Token { number, ..grant.token }, ttl: Some(claim.ttl), ..grant };
    fixture.wait_until_expired(&grant).await?;
    Ok(UnconfirmedGrant { client_a, client_b, claim, grant })
}

async fn a_release_by_id_alone_frees_a_hold(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    client_a.acquire(&claim).await?;
    expect_match!(
        client_a.release(&claim, None).await?,
        Released::Freed => (),
        "the clean-up of an attempt that was granted"
    );
    client_b.expect_free(&claim.name).await.map(drop)
}

async fn a_late_release_spares_the_next_holder(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let old = fixture.claim(&name, Mode::Exclusive);
    let old_grant = client_a.acquire(&old).await?;
    client_a.release_hold(&old, &old_grant).await?;
    // The new claim is of the same client: an engine must not confuse a claim with its owner, client or session.
    let new = fixture.claim(&name, Mode::Exclusive);
    let grant = client_a.acquire(&new).await?;
    for token in [Some(&old_grant), None] {
        expect_match!(
            client_a.release(&old, token).await?,
            Released::NotThere => (),
            "a late release of an older hold"
        );
        client_b.expect_taken(&name).await?;
    }
    client_a.release_hold(&new, &grant).await
}

async fn releases_answer_one_by_one_in_order(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let (a, b) = (
        fixture.claim(&fixture.name("-a"), Mode::Exclusive),
        fixture.claim(&fixture.name("-b"), fixture.mode_or_exclusive(Mode::Shared)),
    );
    let (grant_a, grant_b) = (client.acquire(&a).await?, client.acquire(&b).await?);
    let unknown = fixture.claim(&fixture.name("-c"), Mode::Exclusive);
    let release_requests =
        [release_of(&a, Some(&grant_a)), release_of(&unknown, None), release_of(&b, Some(&grant_b))];
    let answers = client.engine.release(&release_requests).await;
    expect_match!(
        &answers[..],
        [Released::Freed, Released::NotThere, Released::Freed] => (),
        "a release of a hold, of nothing, and of a hold"
    );
    let none = client.engine.release(&[]).await;
    ensure!(none.is_empty(), "an empty batch was answered: {none:?}");
    Ok(())
}

async fn a_late_claim_after_its_release_holds_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    client_a.release_hold(&claim, &grant).await?;
    for how in [How::Create, How::Ask, How::Create] {
        expect_match!(
            client_a.send_claim(&claim, how).await?,
            Answer::Gone | Answer::Taken(_) => (),
            "a claim that arrives after its release"
        );
    }
    client_b.expect_free(&claim.name).await.map(drop)
}

async fn a_claim_released_before_it_arrived_holds_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 2 }]
        .map(|mode| fixture.mode_or_exclusive(mode))
    {
        let claim = fixture.claim(&fixture.name(""), mode);
        expect_match!(
            client_a.release(&claim, None).await?,
            Released::NotThere => (),
            "the release of a claim still under way"
        );
        let answer = client_a.send_claim(&claim, How::Create).await?;
        expect_match!(
            answer,
            Answer::Gone | Answer::Taken(_) => (),
            "a claim that arrives after its release"
        );
        client_b.expect_free(&claim.name).await?;
    }
    Ok(())
}

async fn a_clean_end_is_reported_to_the_next_holder(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    client.expect_free(&fixture.name("")).await?;
    let grant = client.expect_free(&fixture.name("")).await?;
    expect_match!(grant.previous, Previous::Clean | Previous::Unknown => (), "after a clean release");
    Ok(())
}

async fn an_abandoned_hold_is_reported_to_the_next_holder(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let release_request = Release { ended: Previous::Abandoned, ..release_of(&claim, Some(&grant)) };
    expect_match!(
        client_a.send_release(&release_request).await?,
        Released::Freed => (),
        "the release of an abandoned hold"
    );
    let next = client_b.expect_free(&claim.name).await?;
    expect_match!(next.previous, Previous::Abandoned | Previous::Unknown => (), "after an abandoned hold");
    let after = client_b.expect_free(&claim.name).await?;
    expect_match!(
        after.previous,
        Previous::Clean | Previous::Unknown => (),
        "the abandoned hold is two holds ago"
    );
    Ok(())
}

async fn an_unused_hold_does_not_hide_the_end_before_it(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let release_request = Release { ended: Previous::Abandoned, ..release_of(&claim, Some(&grant)) };
    expect_match!(
        client_a.send_release(&release_request).await?,
        Released::Freed => (),
        "the release of an abandoned hold"
    );
    let unused = fixture.claim(&claim.name, Mode::Exclusive);
    client_b.acquire(&unused).await?;
    expect_match!(
        client_b.release(&unused, None).await?,
        Released::Freed => (),
        "the release of an unused hold"
    );
    let next = client_a.expect_free(&claim.name).await?;
    expect_match!(next.previous, Previous::Abandoned | Previous::Unknown => (), "after an unused hold");
    Ok(())
}
