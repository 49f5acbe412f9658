//! Inspection from outside: ping, list, show, guarantee.

use leasehold_core::{Mode, View};

use super::{
    Stored,
    case::{Case, Outcome, case, ensure, needs_fifo, needs_stored_claims},
    fixture::{Client, Fixture},
};

pub(super) const CASES: &[Case] = &[
    case!(a_ping_is_answered_and_creates_nothing, skip = needs_stored_claims),
    case!(a_free_name_is_shown_free),
    case!(a_holder_is_shown, skip = needs_stored_claims),
    case!(waiters_are_shown_in_order, skip = needs_fifo),
    case!(only_names_in_use_are_listed, skip = needs_stored_claims),
    case!(inspecting_changes_nothing),
    case!(the_guarantee_is_reported),
];

async fn a_ping_is_answered_and_creates_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let ping =
        async |client: &Client<'_>| client.engine.ping().await.map_err(|error| format!("ping: {error:?}"));
    // The client pings before its first request, while a name is held, and after use.
    ping(&client_a).await?;
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    for client in [&client_a, &client_b] {
        ping(client).await?;
    }
    if fixture.stored() != Stored::HashedNames {
        let listed =
            client_b.engine.list(claim.name.as_str()).await.map_err(|error| format!("list: {error:?}"))?;
        ensure!(listed.len() == 1, "{} is held, listed after a ping are {listed:?}", claim.name);
    }
    client_a.release_hold(&claim, &grant).await?;
    ping(&client_a).await?;
    Ok(())
}

async fn a_free_name_is_shown_free(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    for _ in 0..2 {
        let view = show(fixture, &client).await?;
        ensure!(view.mode.is_none(), "a free name is shown held: {view:?}");
        ensure!(view.holders.is_empty() && view.waiters.is_empty(), "a free name is shown in use: {view:?}");
        ensure!(!view.key.is_empty(), "a free name has no key: {view:?}");
        client.expect_free(&fixture.name("")).await?;
    }
    Ok(())
}

async fn a_holder_is_shown(fixture: &Fixture<'_>) -> Outcome {
    fixture.need_stored(Stored::HashedNames)?;
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 2, limit: 3 }]
        .map(|mode| fixture.mode_or_exclusive(mode))
    {
        let claim = fixture.claim(&fixture.name(""), mode);
        let grant = client_a.acquire(&claim).await?;
        let view = show(fixture, &client_b).await?;
        ensure!(
            view.mode.is_some_and(|shown| shown.same_kind(mode)),
            "held is {mode}, shown is {:?}",
            view.mode
        );
        let [holder] = &view.holders[..] else {
            return Err(format!("one holds, shown are {:?}", view.holders).into());
        };
        ensure!(holder.id == claim.id.to_string(), "{} holds, shown is {holder:?}", claim.id);
        ensure!(
            holder.token == Some(grant.token.number),
            "{} is the token, shown is {holder:?}",
            grant.token
        );
        ensure!(
            view.lineage == Some(grant.token.lineage),
            "{:?} is the token, the lineage shown is {:?}",
            grant.token,
            view.lineage
        );
        let has_label = fixture.stored() == Stored::HashedNames || holder.owner == *claim.owner;
        ensure!(has_label && !holder.foreign, "{} holds, shown is {holder:?}", claim.owner);
        let has_ttl = grant.ttl.is_some();
        ensure!(holder.remaining.is_some() == has_ttl, "granted for {:?}, shown is {holder:?}", grant.ttl);
        ensure!(holder.remaining <= grant.ttl, "granted for {:?}, shown is {holder:?}", grant.ttl);
        client_a.release_hold(&claim, &grant).await?;
    }
    Ok(())
}

async fn waiters_are_shown_in_order(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    client_a.acquire(&fixture.claim(&name, Mode::Exclusive)).await?;
    let modes = [Mode::Shared, Mode::Exclusive, Mode::Shared].map(|mode| fixture.mode_or_exclusive(mode));
    let waiters = modes.map(|mode| fixture.claim(&name, mode));
    for (waiter, client) in waiters.iter().zip([&client_a, &client_b, &client_a]) {
        client.claim_blocked(waiter).await?;
    }
    let view = show(fixture, &client_b).await?;
    let shown: Vec<_> = view.waiters.iter().map(|waiter| waiter.id.clone()).collect();
    ensure!(fixture.is_queue(&view.waiters, waiters.iter()), "{waiters:?} wait, shown are {shown:?}");
    ensure!(
        fixture.stored() == Stored::NamesOnly
            || view.waiters.iter().all(|waiter| waiter.owner == "conformance"),
        "the owners shown: {:?}",
        view.waiters
    );
    Ok(())
}

async fn only_names_in_use_are_listed(fixture: &Fixture<'_>) -> Outcome {
    if fixture.stored() == Stored::HashedNames {
        fixture.need_stored(Stored::Everything)?;
    }
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let prefix = fixture.name("-");
    client_a.expect_free(&fixture.name("-free")).await?;
    for suffix in ["-c", "-a", "-b"] {
        client_a.acquire(&fixture.claim(&fixture.name(suffix), Mode::Exclusive)).await?;
    }
    client_a.acquire(&fixture.claim(&fixture.name("+d"), Mode::Exclusive)).await?;
    let listed = client_b.engine.list(prefix.as_str()).await.map_err(|error| format!("list: {error:?}"))?;
    let names: Vec<_> = listed.iter().map(|view| view.name.clone()).collect();
    ensure!(names == ["-a", "-b", "-c"].map(|suffix| fixture.name(suffix)), "listed are {names:?}");
    ensure!(listed.iter().all(|view| view.holders.len() == 1), "a listed name has no holder: {listed:?}");
    Ok(())
}

async fn inspecting_changes_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    for _ in 0..3 {
        show(fixture, &client_b).await?;
        client_b.engine.list("").await.map_err(|error| format!("list: {error:?}"))?;
        let grant = client_a.acquire(&claim).await?;
        show(fixture, &client_b).await?;
        client_b.expect_taken(&claim.name).await?;
        let again = client_a.ask_until_granted(&claim).await?;
        ensure!(again.token == grant.token, "looking changed the token {} to {}", grant.token, again.token);
    }
    Ok(())
}

async fn the_guarantee_is_reported(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let guarantee = client.engine.guarantee().await.map_err(|error| format!("guarantee: {error:?}"))?;
    ensure!(guarantee.notes.iter().all(|note| !note.trim().is_empty()), "an empty note: {guarantee:?}");
    Ok(())
}

async fn show(fixture: &Fixture<'_>, client: &Client<'_>) -> Outcome<View> {
    Ok(client.engine.show(&fixture.name("")).await.map_err(|error| format!("show: {error:?}"))?)
}
