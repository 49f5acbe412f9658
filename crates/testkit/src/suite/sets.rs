//! Several names: all are held, or none. By core on every engine, and in one step where the engine can.

use std::sync::Arc;

use futures_util::future::{join, try_join};
use leasehold_core::{
    AllAnswer, Claim, Engine, Env, Fault, Grant, Keeper, Locks, Mode, Name, Profile, Released,
};

use super::{
    cancel::{MAX_POLLS, poll_times},
    case::{Case, Outcome, Stop, case, ensure, expect_match, needs_fifo, needs_modes, needs_stored_claims},
    fixture::{Client, Fixture, release_of},
};

pub(super) const CASES: &[Case] = &[
    case!(a_set_is_held_or_nothing_is),
    case!(sets_in_any_order_do_not_deadlock),
    case!(free_names_are_granted_in_one_step, skip = needs_one_step),
    case!(one_taken_name_leaves_the_others_free, skip = needs_one_step),
    case!(
        a_set_does_not_overtake_the_queue,
        skip = |profile| needs_one_step(profile).or(needs_fifo(profile))
    ),
    case!(a_repeated_set_gets_the_same_grants, skip = needs_one_step),
    case!(a_released_set_is_not_created_later, skip = needs_one_step),
    case!(one_of_two_sets_at_a_time_is_granted, skip = needs_one_step),
    case!(a_set_dropped_at_any_poll_leaves_nothing, skip = needs_one_step),
    case!(
        a_refused_name_leaves_the_others_free,
        skip = |profile| needs_one_step(profile).or(needs_modes(profile)).or(needs_stored_claims(profile))
    ),
    case!(
        shared_names_are_granted_in_one_step,
        skip = |profile| needs_one_step(profile).or(needs_modes(profile))
    ),
    case!(
        shared_names_and_permits_are_granted_in_one_step,
        skip = |profile| needs_one_step(profile).or(needs_modes(profile))
    ),
];

/// How often two clients compete.
const ROUNDS: usize = 10;
/// The number of names of a set.
const NAMES: usize = 3;

fn needs_one_step(profile: &Profile) -> Option<&'static str> {
    (profile.claims_at_once < NAMES).then_some("the engine takes one name at a time")
}

fn locks_of(engine: &Arc<dyn Engine>) -> Locks {
    let keeper = Keeper::on(tokio::runtime::Handle::current());
    Locks::builder(Arc::clone(engine)).env(Env::system()).keeper(keeper).build()
}

/// Names of one group, in byte order.
fn names(client: &Client<'_>) -> [Name; NAMES] {
    let name = |number: u32| client.fixture.name(&format!("-{number:08}"));
    let group = client.engine.group(&name(0));
    let mut names = (0..).map(name).filter(|name| client.engine.group(name) == group);
    std::array::from_fn(|_| names.next().expect("every group has names without end"))
}

/// F74, by core: a set that cannot be held leaves nothing, and a set excludes other claims from each of its names.
async fn a_set_is_held_or_nothing_is(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let locks = locks_of(&client_a.engine);
    let names = names(&client_a);
    let set = names.iter().rev().fold(locks.all(), |all, name| all.mutex(name.as_str()));
    for taken in &names {
        let holder = fixture.claim(taken, Mode::Exclusive);
        let grant = client_b.acquire(&holder).await?;
        let error = expect_match!(set.try_acquire().await, Err(error) => error, "{taken} is taken");
        ensure!(error.is_taken(), "{taken} is taken, reported is: {error}");
        client_b.release_hold(&holder, &grant).await?;
        let guards = set.acquire().await.map_err(|error| format!("all names are free: {error}"))?;
        ensure!(guards.check(), "granted just now: {guards:?}");
        for name in &names {
            client_b.expect_taken(name).await?;
        }
        guards.release().await.map_err(|error| format!("release of a set: {error}"))?;
        for name in &names {
            client_b.expect_free(name).await?;
        }
    }
    Ok(())
}

/// F74, by core: two clients take the same names, named in opposite orders.
async fn sets_in_any_order_do_not_deadlock(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let [first, second, _] = names(&client_a);
    let rounds = async |client: &Client<'_>, names: [&Name; 2]| {
        let locks = locks_of(&client.engine);
        for round in 0..ROUNDS {
            let set = names.iter().fold(locks.all(), |all, name| all.mutex(name.as_str()));
            let guards = set.acquire().await.map_err(|error| format!("round {round}: {error}"))?;
            ensure!(guards.check(), "granted just now: {guards:?}");
            guards.release().await.map_err(|error| format!("release of a set: {error}"))?;
        }
        Ok(())
    };
    try_join(rounds(&client_a, [&first, &second]), rounds(&client_b, [&second, &first])).await.map(drop)
}

/// Exclusive claims of all names, which may not queue.
fn claims(client: &Client<'_>) -> Vec<Claim> {
    names(client).iter().map(|name| client.fixture.try_claim(name, Mode::Exclusive)).collect()
}

/// Sends the claims as one set. An error of the engine fails the case.
async fn claim_all(client: &Client<'_>, claims: &[Claim]) -> Outcome<AllAnswer> {
    claims.iter().for_each(|claim| client.add_to_clean_up(claim));
    let answer = client.engine.claim_all(claims).await;
    let noted = |error| {
        client.fixture.note_error(&error);
        format!("a claim of several names: {error:?}")
    };
    Ok(answer.map_err(noted)?)
}

/// Sends the claims as one set. Fails the case unless all are granted.
async fn acquire_all(client: &Client<'_>, claims: &[Claim]) -> Outcome<Vec<Grant>> {
    let grants = expect_match!(
        claim_all(client, claims).await?,
        AllAnswer::Held(grants) => grants,
        "all names are free and were not granted"
    );
    ensure!(grants.len() == claims.len(), "{} grants for {} claims", grants.len(), claims.len());
    Ok(grants)
}

async fn release_all(client: &Client<'_>, claims: &[Claim], grants: &[Grant]) -> Outcome {
    for (claim, grant) in claims.iter().zip(grants) {
        client.release_hold(claim, grant).await?;
    }
    Ok(())
}

async fn free_names_are_granted_in_one_step(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claims = claims(&client_a);
    let grants = acquire_all(&client_a, &claims).await?;
    for (claim, grant) in claims.iter().zip(&grants) {
        client_b.expect_taken(&claim.name).await?;
        let again = client_a.acquire(claim).await?;
        ensure!(
            again.token == grant.token,
            "{}: token {:?}, then {:?}",
            claim.name,
            grant.token,
            again.token
        );
    }
    release_all(&client_a, &claims, &grants).await?;
    for (claim, old) in claims.iter().zip(&grants) {
        let next = fixture.try_claim(&claim.name, Mode::Exclusive);
        let grant = client_b.acquire(&next).await?;
        let grows = grant.token.number > old.token.number && grant.token.lineage == old.token.lineage;
        ensure!(grows, "{}: token {:?} after {:?}", claim.name, grant.token, old.token);
    }
    Ok(())
}

async fn one_taken_name_leaves_the_others_free(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let names = names(&client_a);
    for (taken, name) in names.iter().enumerate() {
        let holder = fixture.claim(name, Mode::Exclusive);
        let grant = client_b.acquire(&holder).await?;
        let claims = claims(&client_a);
        let index = expect_match!(
            claim_all(&client_a, &claims).await?,
            AllAnswer::Taken { index, .. } => index,
            "{name} is taken"
        );
        ensure!(index == taken, "name {taken} is taken, reported is name {index}");
        for free in names.iter().filter(|free| *free != name) {
            client_b.expect_free(free).await?;
        }
        for claim in &claims {
            let request = release_of(claim, None);
            expect_match!(client_a.send_release(&request).await?, Released::NotThere => (), "a claim of no set");
        }
        client_b.release_hold(&holder, &grant).await?;
    }
    Ok(())
}

/// R8: a claim that waits is ahead of every set.
async fn a_set_does_not_overtake_the_queue(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let [_, name, _] = names(&client_a);
    let (reader, writer) = (Mode::Shared, Mode::Exclusive);
    let mode = fixture.mode_or_exclusive(reader);
    let (holder, waiter) = (fixture.claim(&name, mode), fixture.claim(&name, writer));
    let grant = client_b.acquire(&holder).await?;
    client_b.claim_blocked(&waiter).await?;
    let mut set = claims(&client_a);
    set[1].mode = mode;
    expect_match!(claim_all(&client_a, &set).await?, AllAnswer::Taken { index: 1, .. } => (), "a writer waits");
    client_b.release_hold(&holder, &grant).await?;
    client_b.ask_until_granted(&waiter).await.map(drop)
}

/// R21.
async fn a_repeated_set_gets_the_same_grants(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claims = claims(&client);
    let (first, second) = (acquire_all(&client, &claims).await?, acquire_all(&client, &claims).await?);
    let tokens = |grants: &[Grant]| grants.iter().map(|grant| grant.token).collect::<Vec<_>>();
    ensure!(tokens(&first) == tokens(&second), "tokens {:?}, then {:?}", tokens(&first), tokens(&second));
    release_all(&client, &claims, &first).await
}

/// R9.
async fn a_released_set_is_not_created_later(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claims = claims(&client_a);
    // Only one of the claims was released: the set is granted whole, or not at all.
    client_a.send_release(&release_of(&claims[1], None)).await?;
    expect_match!(claim_all(&client_a, &claims).await?, AllAnswer::Taken { .. } => (), "one claim was released");
    for claim in &claims {
        client_b.expect_free(&claim.name).await?;
    }
    Ok(())
}

/// I13: of two sets that compete, at least one is granted, and never both.
async fn one_of_two_sets_at_a_time_is_granted(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    for round in 0..ROUNDS {
        let (set_a, set_b) = (claims(&client_a), claims(&client_b));
        let (answer_a, answer_b) = join(claim_all(&client_a, &set_a), claim_all(&client_b, &set_b)).await;
        match (answer_a?, answer_b?) {
            (AllAnswer::Held(grants), AllAnswer::Taken { .. }) => {
                release_all(&client_a, &set_a, &grants).await?
            }
            (AllAnswer::Taken { .. }, AllAnswer::Held(grants)) => {
                release_all(&client_b, &set_b, &grants).await?
            }
            (AllAnswer::Held(grants), AllAnswer::Held(later)) => {
                return Err(format!("round {round}: both sets are held: {grants:?}, {later:?}").into());
            }
            (one, other) => return Err(format!("round {round}: no set is held: {one:?}, {other:?}").into()),
        }
    }
    Ok(())
}

async fn a_refused_name_leaves_the_others_free(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let names = names(&client_a);
    client_b.acquire(&fixture.claim(&names[1], Mode::Permits { count: 1, limit: 3 })).await?;
    let (index, error) = expect_match!(
        claim_all(&client_a, &claims(&client_a)).await?,
        AllAnswer::Refused { index, error } => (index, error),
        "a name is in use as permits"
    );
    ensure!(index == 1 && error.fault == Fault::Misconfigured, "name {index}: {error:?}");
    for free in [&names[0], &names[2]] {
        client_b.expect_free(free).await?;
    }
    Ok(())
}

/// R23: every future of a set is dropped, and its claims are released.
async fn a_set_dropped_at_any_poll_leaves_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    for polls in 0..MAX_POLLS {
        let claims = claims(&client_a);
        claims.iter().for_each(|claim| client_a.add_to_clean_up(claim));
        let completed = poll_times(client_a.engine.claim_all(&claims), polls).await;
        let mut freed = 0;
        for claim in &claims {
            freed += usize::from(matches!(client_a.release(claim, None).await?, Released::Freed));
        }
        ensure!([0, claims.len()].contains(&freed), "{freed} claims were there after poll {polls}");
        ensure!(!completed || freed > 0, "granted at poll {polls}, and the releases found nothing");
        for claim in &claims {
            client_b.expect_free(&claim.name).await?;
        }
        if completed {
            return Ok(());
        }
    }
    Err(format!("a set needs more than {MAX_POLLS} polls").into())
}

async fn shared_names_are_granted_in_one_step(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let readers = || {
        let names = names(&client_a);
        names.iter().map(|name| fixture.try_claim(name, Mode::Shared)).collect::<Vec<_>>()
    };
    let (set_a, set_b) = (readers(), readers());
    let grants_a = acquire_all(&client_a, &set_a).await?;
    let grants_b = acquire_all(&client_b, &set_b).await?;
    expect_match!(claim_all(&client_b, &claims(&client_b)).await?, AllAnswer::Taken { index: 0, .. } => (), "readers hold");
    let mut mixed = readers();
    mixed[2].mode = Mode::Exclusive;
    expect_match!(claim_all(&client_b, &mixed).await?, AllAnswer::Taken { index: 2, .. } => (), "readers hold");
    release_all(&client_a, &set_a, &grants_a).await?;
    release_all(&client_b, &set_b, &grants_b).await?;
    acquire_all(&client_b, &claims(&client_b)).await.map(drop)
}

async fn shared_names_and_permits_are_granted_in_one_step(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let set = || {
        let modes = [Mode::Shared, Mode::Permits { count: 2, limit: 4 }, Mode::Shared];
        let with_mode = |(name, mode): (&Name, Mode)| fixture.try_claim(name, mode);
        names(&client_a).iter().zip(modes).map(with_mode).collect::<Vec<_>>()
    };
    let (set_a, set_b) = (set(), set());
    let grants = match claim_all(&client_a, &set_a).await? {
        AllAnswer::Held(grants) => grants,
        AllAnswer::OneByOne => {
            for claim in &set_a {
                client_b.expect_free(&claim.name).await?;
            }
            return Err(Stop::Skip("the engine takes permits one name at a time".into()));
        }
        other => return Err(format!("all names are free: {other:?}").into()),
    };
    acquire_all(&client_b, &set_b).await?;
    expect_match!(claim_all(&client_b, &set()).await?, AllAnswer::Taken { index: 1, .. } => (), "no permit is left");
    release_all(&client_a, &set_a, &grants).await?;
    acquire_all(&client_b, &set()).await.map(drop)
}
