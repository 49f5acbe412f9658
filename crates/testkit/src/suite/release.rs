//! Release: R4, R9 and R21, and what the next holder learns about the previous hold.

use leasehold_core::{
    Answer, Claim, Grant, HolderView, How, Life, Mode, Previous, Profile, Release, Released, Token,
};

use super::{
    case::{Case, Outcome, case, ensure, needs_fifo, needs_lease, want},
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

/// R9 requires tombstones only if requests can overtake each other.
fn cannot_be_late(profile: &Profile) -> Option<&'static str> {
    let applied_at_once = profile.inline && profile.life == Life::Process;
    applied_at_once.then_some("no request can arrive late: verbs are applied when they are called")
}

fn needs_pushed_leases(profile: &Profile) -> Option<&'static str> {
    let pushes = (!profile.push).then_some("grants are not pushed");
    needs_lease(profile).or(needs_fifo(profile)).or(pushes)
}

async fn a_released_name_is_free(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    one.free(&claim, &grant).await?;
    other.finds_free(&claim.name).await?;
    one.finds_free(&claim.name).await.map(drop)
}

async fn a_repeated_release_finds_nothing(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client.hold(&claim).await?;
    client.free(&claim, &grant).await?;
    for token in [Some(&grant), None] {
        want!(client.release(&claim, token).await?, Released::NotThere => (), "the second release of one claim");
    }
    Ok(())
}

async fn a_release_of_an_unknown_claim_finds_nothing(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 2 }]
        .map(|mode| fixture.or_exclusive(mode))
    {
        let claim = fixture.claim(&fixture.name(""), mode);
        want!(client.release(&claim, None).await?, Released::NotThere => (), "the release of a claim never made");
    }
    client.finds_free(&fixture.name("")).await.map(drop)
}

async fn a_release_of_another_id_touches_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    for token in [Some(grant.token), None] {
        let order = Release { id: claims::fresh_id(), token, ..release_of(&claim, None) };
        want!(other.release_as(&order).await?, Released::NotThere => (), "the release of a hold by another id");
        other.finds_taken(&claim.name).await?;
    }
    one.free(&claim, &grant).await
}

async fn a_release_with_another_token_finds_nothing_and_leaves_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 2 }]
        .map(|mode| fixture.or_exclusive(mode))
    {
        let claim = fixture.claim(&fixture.name(""), mode);
        let grant = one.hold(&claim).await?;
        let token = Token { number: grant.token.number + 1_000_000, ..grant.token };
        let order = Release {
            token: Some(token),
            ended: Previous::Abandoned,
            min_hold: Some(claim.ttl),
            ..release_of(&claim, None)
        };
        want!(one.release_as(&order).await?, Released::NotThere => (), "the release of a hold by another token");
        want!(one.release(&claim, Some(&grant)).await?, Released::NotThere => (), "the release of what was released");
        let next = other.finds_free(&claim.name).await?;
        want!(next.previous, Previous::Clean | Previous::Unknown => (), "after a hold that its client did not know");
    }
    Ok(())
}

async fn a_release_of_an_unconfirmed_lapsed_hold_finds_nothing(fixture: &Fixture<'_>) -> Outcome {
    let Unconfirmed { one, other, claim, grant } = unconfirmed(fixture).await?;
    let next = fixture.claim(&claim.name, Mode::Exclusive);
    let next_grant = one.hold_in_time(&next).await?;
    want!(other.release(&claim, Some(&grant)).await?, Released::NotThere => (), "the release of a hold that lapsed");
    want!(other.ask(&claim, How::Ask).await?, Answer::Gone => (), "a claim that was released");
    one.free(&next, &next_grant).await?;
    one.finds_free(&claim.name).await.map(drop)
}

async fn a_release_of_a_lapsed_hold_ends_its_later_grant(fixture: &Fixture<'_>) -> Outcome {
    let Unconfirmed { one, other, claim, grant } = unconfirmed(fixture).await?;
    let again = other.granted(&claim).await?;
    ensure!(again.token.number > grant.token.number, "{again:?} after {grant:?}");
    want!(other.release(&claim, Some(&grant)).await?, Released::NotThere => (), "the release of a hold that lapsed");
    one.finds_free(&claim.name).await.map(drop)
}

/// A claim with a pushed grant that lapsed before the claim confirmed it.
struct Unconfirmed<'a> {
    one: Client<'a>,
    other: Client<'a>,
    claim: Claim,
    grant: Grant,
}

async fn unconfirmed<'a>(fixture: &'a Fixture<'a>) -> Outcome<Unconfirmed<'a>> {
    let (one, other, name) = (fixture.client().await, fixture.client().await, fixture.name(""));
    let (holder, claim) = (fixture.claim(&name, Mode::Exclusive), fixture.short(&name, Mode::Exclusive));
    let grant = one.hold(&holder).await?;
    other.blocked(&claim).await?;
    one.free(&holder, &grant).await?;
    let view = one.engine.show(&name).await.map_err(|error| format!("show: {error:?}"))?;
    let number = want!(
        &view.holders[..], [HolderView { token: Some(number), .. }] => *number, "the holder after a hand-over"
    );
    let grant = Grant { token: Token { number, ..grant.token }, ttl: Some(claim.ttl), ..grant };
    fixture.outlive(&grant).await?;
    Ok(Unconfirmed { one, other, claim, grant })
}

async fn a_release_by_id_alone_frees_a_hold(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    one.hold(&claim).await?;
    want!(one.release(&claim, None).await?, Released::Freed => (), "the clean-up of an attempt that was granted");
    other.finds_free(&claim.name).await.map(drop)
}

async fn a_late_release_spares_the_next_holder(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let old = fixture.claim(&name, Mode::Exclusive);
    let old_grant = one.hold(&old).await?;
    one.free(&old, &old_grant).await?;
    // The same client: an engine must not confuse a claim with its owner, client or session.
    let new = fixture.claim(&name, Mode::Exclusive);
    let grant = one.hold(&new).await?;
    for token in [Some(&old_grant), None] {
        want!(one.release(&old, token).await?, Released::NotThere => (), "a late release of an older hold");
        other.finds_taken(&name).await?;
    }
    one.free(&new, &grant).await
}

async fn releases_answer_one_by_one_in_order(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let (a, b) = (
        fixture.claim(&fixture.name("-a"), Mode::Exclusive),
        fixture.claim(&fixture.name("-b"), fixture.or_exclusive(Mode::Shared)),
    );
    let (grant_a, grant_b) = (client.hold(&a).await?, client.hold(&b).await?);
    let unknown = fixture.claim(&fixture.name("-c"), Mode::Exclusive);
    let orders = [release_of(&a, Some(&grant_a)), release_of(&unknown, None), release_of(&b, Some(&grant_b))];
    let answers = client.engine.release(&orders).await;
    want!(
        &answers[..],
        [Released::Freed, Released::NotThere, Released::Freed] => (),
        "a release of a hold, of nothing, and of a hold"
    );
    let none = client.engine.release(&[]).await;
    ensure!(none.is_empty(), "an empty batch was answered: {none:?}");
    Ok(())
}

async fn a_late_claim_after_its_release_holds_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    one.free(&claim, &grant).await?;
    for how in [How::Create, How::Ask, How::Create] {
        want!(one.ask(&claim, how).await?, Answer::Gone | Answer::Taken(_) => (), "a claim that arrives after its release");
    }
    other.finds_free(&claim.name).await.map(drop)
}

async fn a_claim_released_before_it_arrived_holds_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 2 }]
        .map(|mode| fixture.or_exclusive(mode))
    {
        let claim = fixture.claim(&fixture.name(""), mode);
        want!(one.release(&claim, None).await?, Released::NotThere => (), "the release of a claim still under way");
        let answer = one.ask(&claim, How::Create).await?;
        want!(answer, Answer::Gone | Answer::Taken(_) => (), "a claim that arrives after its release");
        other.finds_free(&claim.name).await?;
    }
    Ok(())
}

async fn a_clean_end_is_reported_to_the_next_holder(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    client.finds_free(&fixture.name("")).await?;
    let grant = client.finds_free(&fixture.name("")).await?;
    want!(grant.previous, Previous::Clean | Previous::Unknown => (), "after a clean release");
    Ok(())
}

async fn an_abandoned_hold_is_reported_to_the_next_holder(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    let order = Release { ended: Previous::Abandoned, ..release_of(&claim, Some(&grant)) };
    want!(one.release_as(&order).await?, Released::Freed => (), "the release of an abandoned hold");
    let next = other.finds_free(&claim.name).await?;
    want!(next.previous, Previous::Abandoned | Previous::Unknown => (), "after an abandoned hold");
    let after = other.finds_free(&claim.name).await?;
    want!(after.previous, Previous::Clean | Previous::Unknown => (), "the abandoned hold is two holds ago");
    Ok(())
}

async fn an_unused_hold_does_not_hide_the_end_before_it(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    let order = Release { ended: Previous::Abandoned, ..release_of(&claim, Some(&grant)) };
    want!(one.release_as(&order).await?, Released::Freed => (), "the release of an abandoned hold");
    let unused = fixture.claim(&claim.name, Mode::Exclusive);
    other.hold(&unused).await?;
    want!(other.release(&unused, None).await?, Released::Freed => (), "the release of an unused hold");
    let next = one.finds_free(&claim.name).await?;
    want!(next.previous, Previous::Abandoned | Previous::Unknown => (), "after an unused hold");
    Ok(())
}
