//! Conversions: an exclusive hold becomes shared, a shared one exclusive, and nobody gets between.

use futures_util::future::join;
use leasehold_core::{
    Answer, Breaking, Claim, Conversions, Grant, How, Loss, Mode, Name, Profile, Released, Renewed, Upgraded,
    Written,
};

use super::{
    case::{Case, Outcome, Stop, case, ensure, expect_match},
    fixture::{Client, Fixture, hold_of},
    memo_client::{ending_write, write_of},
    program::{close_all, failed, needs_memos},
};

pub(super) const CASES: &[Case] = &[
    case!(conversions_are_there_or_refused_with_a_reason),
    case!(a_downgraded_hold_admits_readers_and_keeps_its_token, skip = no_conversion),
    case!(waiting_readers_get_the_name_with_a_downgrade, skip = no_conversion),
    case!(a_repeated_downgrade_changes_nothing, skip = no_conversion),
    case!(
        a_memo_write_after_a_downgrade_changes_nothing,
        skip = |profile| no_conversion(profile).or(needs_memos(profile))
    ),
    case!(the_only_reader_is_upgraded, skip = no_conversion),
    case!(a_repeated_upgrade_gets_the_same_grant, skip = no_conversion),
    case!(an_upgrade_beside_another_reader_changes_nothing, skip = no_conversion),
    case!(an_upgrade_does_not_overtake_a_waiter, skip = no_conversion),
    case!(an_upgrade_and_a_new_reader_do_not_both_succeed, skip = no_conversion),
    case!(a_released_upgrade_is_not_applied_later, skip = no_conversion),
    case!(a_hold_that_is_gone_is_not_converted, skip = no_conversion),
    case!(
        a_broken_hold_is_not_converted,
        skip = |profile| {
            no_conversion(profile).or((profile.breaking != Breaking::Lease)
                .then_some("holds are not broken until their lease ends"))
        }
    ),
    case!(a_lapsed_hold_is_not_converted, skip = no_conversion),
    case!(a_program_converts_its_guard_there_and_back, skip = no_conversion),
];

/// How often two clients compete.
const ROUNDS: usize = 10;

fn no_conversion(profile: &Profile) -> Option<&'static str> {
    profile.no_conversion
}

impl Client<'_> {
    fn conversions(&self) -> Outcome<&dyn Conversions> {
        self.engine.conversions().ok_or_else(|| Stop::Fail("the engine has no conversions".into()))
    }

    /// Downgrades the hold of a claim. `Ok(Err(_))`: the hold was lost.
    async fn downgrade(&self, claim: &Claim, grant: &Grant) -> Outcome<Result<(), Loss>> {
        match self.conversions()?.downgrade(&hold_of(claim, grant)).await {
            Renewed::Extended { .. } => Ok(Ok(())),
            Renewed::Lost(loss) => Ok(Err(loss)),
            Renewed::Unknown(error) => {
                self.fixture.note_error(&error);
                Err(Stop::Fail(format!("downgrade of {}: {error:?}", claim.name)))
            }
        }
    }

    /// Fails the case unless the hold is downgraded.
    async fn expect_downgraded(&self, claim: &Claim, grant: &Grant) -> Outcome {
        let downgraded = self.downgrade(claim, grant).await?;
        ensure!(downgraded.is_ok(), "the hold of {} was not downgraded: {downgraded:?}", claim.name);
        Ok(())
    }

    /// Upgrades the hold of a claim by another claim.
    async fn upgrade(&self, claim: &Claim, grant: &Grant, new: &Claim) -> Outcome<Upgraded> {
        self.add_to_clean_up(new);
        let upgraded = self.conversions()?.upgrade(&hold_of(claim, grant), new).await;
        upgraded.map_err(|error| {
            self.fixture.note_error(&error);
            Stop::Fail(format!("upgrade of {}: {error:?}", claim.name))
        })
    }

    /// Fails the case unless the hold is upgraded.
    async fn expect_upgraded(&self, claim: &Claim, grant: &Grant, new: &Claim) -> Outcome<Grant> {
        Ok(expect_match!(
            self.upgrade(claim, grant, new).await?,
            Upgraded::Held(grant) => grant,
            "{} has only this reader", claim.name
        ))
    }

    async fn renews(&self, claim: &Claim, grant: &Grant) -> bool {
        let renewed = self.engine.renew(&[hold_of(claim, grant)]).await;
        matches!(renewed[..], [Renewed::Extended { .. }])
    }

    /// Fails the case unless a new reader is granted the name. Releases the new hold.
    async fn expect_readable(&self, name: &Name) -> Outcome {
        let reader = self.fixture.try_claim(name, Mode::Shared);
        let grant = self.acquire(&reader).await?;
        self.release_hold(&reader, &grant).await
    }

    /// Fails the case unless a new reader finds the name taken.
    async fn expect_unreadable(&self, name: &Name) -> Outcome {
        self.claim_blocked(&self.fixture.try_claim(name, Mode::Shared)).await.map(drop)
    }
}

/// Two clients; the first holds the name by this claim.
async fn held<'a>(fixture: &'a Fixture<'a>, mode: Mode) -> Outcome<([Client<'a>; 2], Claim, Grant)> {
    let clients = [fixture.client().await, fixture.client().await];
    let claim = fixture.claim(&fixture.name(""), mode);
    let grant = clients[0].acquire(&claim).await?;
    Ok((clients, claim, grant))
}

/// A claim for an upgrade.
fn upgrade_of(fixture: &Fixture<'_>, claim: &Claim) -> Claim {
    fixture.try_claim(&claim.name, Mode::Exclusive)
}

async fn conversions_are_there_or_refused_with_a_reason(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let (has_conversions, reason) = (client.engine.conversions().is_some(), fixture.profile().no_conversion);
    ensure!(has_conversions == reason.is_none(), "conversions: {has_conversions}, reason: {reason:?}");
    Ok(())
}

async fn a_downgraded_hold_admits_readers_and_keeps_its_token(fixture: &Fixture<'_>) -> Outcome {
    let ([client_a, client_b], writer, grant) = held(fixture, Mode::Exclusive).await?;
    client_b.expect_unreadable(&writer.name).await?;
    client_a.expect_downgraded(&writer, &grant).await?;
    client_b.expect_readable(&writer.name).await?;
    client_b.expect_taken(&writer.name).await?;
    ensure!(client_a.renews(&writer, &grant).await, "the downgraded hold has its id and token");
    let view = client_b.engine.show(&writer.name).await.map_err(|error| format!("show: {error:?}"))?;
    ensure!(view.mode == Some(Mode::Shared) && view.holders.len() == 1, "one reader, shown is {view:?}");
    let shared = Claim { mode: Mode::Shared, ..writer.clone() };
    client_a.release_hold(&shared, &grant).await?;
    let later = client_b.expect_free(&writer.name).await?;
    ensure!(later.token.number > grant.token.number, "{:?}, then {:?}", grant.token, later.token);
    Ok(())
}

/// I7, I8.
async fn waiting_readers_get_the_name_with_a_downgrade(fixture: &Fixture<'_>) -> Outcome {
    let ([client_a, client_b], holder, grant) = held(fixture, Mode::Exclusive).await?;
    let wait = |mode| fixture.claim(&holder.name, mode);
    let (first, second) = (wait(Mode::Shared), wait(Mode::Shared));
    let (writer, last) = (wait(Mode::Exclusive), wait(Mode::Shared));
    for waiter in [&first, &second, &writer, &last] {
        client_b.claim_blocked(waiter).await?;
    }
    client_a.expect_downgraded(&holder, &grant).await?;
    let view = client_a.engine.show(&holder.name).await.map_err(|error| format!("show: {error:?}"))?;
    ensure!(view.holders.len() == 3, "both readers hold with the downgrade, shown is {view:?}");
    ensure!(
        fixture.is_queue(&view.waiters, [&writer, &last].into_iter()),
        "the writer keeps its place: {view:?}"
    );
    for reader in [&first, &second] {
        let reader_grant = client_b.ask_until_granted(reader).await?;
        ensure!(reader_grant.token.number > grant.token.number, "tokens grow");
        client_b.release_hold(reader, &reader_grant).await?;
    }
    client_b.ask_still_queued(&writer).await?;
    client_a.release_hold(&Claim { mode: Mode::Shared, ..holder }, &grant).await?;
    let writer_grant = client_b.ask_until_granted(&writer).await?;
    client_b.ask_still_queued(&last).await?;
    client_b.release_hold(&writer, &writer_grant).await?;
    client_b.ask_until_granted(&last).await.map(drop)
}

/// R21.
async fn a_repeated_downgrade_changes_nothing(fixture: &Fixture<'_>) -> Outcome {
    let ([client_a, client_b], writer, grant) = held(fixture, Mode::Exclusive).await?;
    let reader = fixture.claim(&writer.name, Mode::Shared);
    client_a.expect_downgraded(&writer, &grant).await?;
    let reader_grant = client_b.acquire(&reader).await?;
    client_a.expect_downgraded(&writer, &grant).await?;
    ensure!(client_b.renews(&reader, &reader_grant).await, "the other reader holds");
    client_b.release_hold(&reader, &reader_grant).await?;
    let upgrade = upgrade_of(fixture, &writer);
    let shared = Claim { mode: Mode::Shared, ..writer.clone() };
    client_a.expect_upgraded(&shared, &grant, &upgrade).await?;
    // A late repetition is for a hold that has ended.
    let late = client_a.downgrade(&writer, &grant).await?;
    ensure!(late.is_err(), "the hold before the upgrade was downgraded");
    client_b.expect_unreadable(&writer.name).await
}

/// I4.
/// R28.
async fn a_memo_write_after_a_downgrade_changes_nothing(fixture: &Fixture<'_>) -> Outcome {
    let ([client_a, client_b], writer, grant) = held(fixture, Mode::Exclusive).await?;
    client_a.write_done(&write_of(&writer, &grant, 1, b"of the writer")).await?;
    client_a.expect_downgraded(&writer, &grant).await?;
    for write in [write_of(&writer, &grant, 2, b"late"), ending_write(&writer, &grant, 3, b"late")] {
        expect_match!(client_a.write_memo(&write).await?, Written::Overtaken => (), "under a shared hold");
        let memo = expect_match!(client_b.memo(&writer.name).await?, Some(memo) => memo, "it was written");
        ensure!(memo.bytes == b"of the writer" && !memo.is_held, "after a downgrade: {memo:?}");
    }
    ensure!(client_a.renews(&writer, &grant).await, "the downgraded hold stays");
    let shared = Claim { mode: Mode::Shared, ..writer.clone() };
    client_a.release_hold(&shared, &grant).await
}

async fn the_only_reader_is_upgraded(fixture: &Fixture<'_>) -> Outcome {
    let ([client_a, client_b], reader, grant) = held(fixture, Mode::Shared).await?;
    let writer = upgrade_of(fixture, &reader);
    let writer_grant = client_a.expect_upgraded(&reader, &grant, &writer).await?;
    let grows =
        writer_grant.token.number > grant.token.number && writer_grant.token.lineage == grant.token.lineage;
    ensure!(grows, "token {:?}, then {:?}", grant.token, writer_grant.token);
    client_b.expect_unreadable(&reader.name).await?;
    ensure!(client_a.renews(&writer, &writer_grant).await, "the new claim holds");
    ensure!(!client_a.renews(&reader, &grant).await, "the shared hold has ended");
    for client in [&client_a, &client_b] {
        // The second client knows nothing of the claim: the server alone decides.
        expect_match!(
            client.send_claim(&reader, How::Create).await?,
            Answer::Gone => (),
            "a late request of the shared claim"
        );
    }
    expect_match!(client_a.release(&reader, Some(&grant)).await?, Released::NotThere => (), "it has ended");
    client_b.expect_unreadable(&reader.name).await?;
    client_a.expect_downgraded(&writer, &writer_grant).await?;
    client_b.expect_readable(&reader.name).await?;
    let writer = Claim { mode: Mode::Shared, ..writer };
    client_a.release_hold(&writer, &writer_grant).await?;
    client_b.expect_free(&reader.name).await.map(drop)
}

/// R21.
async fn a_repeated_upgrade_gets_the_same_grant(fixture: &Fixture<'_>) -> Outcome {
    let ([client_a, client_b], reader, grant) = held(fixture, Mode::Shared).await?;
    let writer = upgrade_of(fixture, &reader);
    let first = client_a.expect_upgraded(&reader, &grant, &writer).await?;
    // A claim that waits changes nothing about the answer.
    client_b.claim_blocked(&fixture.claim(&reader.name, Mode::Exclusive)).await?;
    let again = client_a.expect_upgraded(&reader, &grant, &writer).await?;
    ensure!(first.token == again.token, "token {:?}, then {:?}", first.token, again.token);
    client_a.release_hold(&writer, &first).await
}

async fn an_upgrade_beside_another_reader_changes_nothing(fixture: &Fixture<'_>) -> Outcome {
    let ([client_a, client_b], first, first_grant) = held(fixture, Mode::Shared).await?;
    let second = fixture.claim(&first.name, Mode::Shared);
    let second_grant = client_b.acquire(&second).await?;
    let (to_first, to_second) = (upgrade_of(fixture, &first), upgrade_of(fixture, &first));
    for round in 0..ROUNDS {
        let (one, other) = join(
            client_a.upgrade(&first, &first_grant, &to_first),
            client_b.upgrade(&second, &second_grant, &to_second),
        )
        .await;
        let (one, other) = (one?, other?);
        ensure!(
            matches!((&one, &other), (Upgraded::Taken, Upgraded::Taken)),
            "round {round}: two upgraders got {one:?} and {other:?}"
        );
    }
    let holds = client_a.renews(&first, &first_grant).await && client_b.renews(&second, &second_grant).await;
    ensure!(holds, "both readers still hold");
    client_a.expect_readable(&first.name).await?;
    client_b.release_hold(&second, &second_grant).await?;
    client_a.expect_upgraded(&first, &first_grant, &to_first).await.map(drop)
}

/// R8.
async fn an_upgrade_does_not_overtake_a_waiter(fixture: &Fixture<'_>) -> Outcome {
    let ([client_a, client_b], reader, grant) = held(fixture, Mode::Shared).await?;
    let waiter = fixture.claim(&reader.name, Mode::Exclusive);
    client_b.claim_blocked(&waiter).await?;
    let upgraded = client_a.upgrade(&reader, &grant, &upgrade_of(fixture, &reader)).await?;
    expect_match!(upgraded, Upgraded::Taken => (), "a writer waits");
    client_b.ask_still_queued(&waiter).await?;
    client_a.release_hold(&reader, &grant).await?;
    client_b.ask_until_granted(&waiter).await.map(drop)
}

/// I1.
async fn an_upgrade_and_a_new_reader_do_not_both_succeed(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    for round in 0..ROUNDS {
        let (reader, other) = (fixture.claim(&name, Mode::Shared), fixture.try_claim(&name, Mode::Shared));
        let grant = client_a.acquire(&reader).await?;
        let writer = upgrade_of(fixture, &reader);
        let (upgraded, answer) =
            join(client_a.upgrade(&reader, &grant, &writer), client_b.send_claim(&other, How::Create)).await;
        match (upgraded?, answer?) {
            (Upgraded::Held(grant), Answer::Taken(_)) => client_a.release_hold(&writer, &grant).await?,
            (Upgraded::Taken, Answer::Held(other_grant)) => {
                client_b.release_hold(&other, &other_grant).await?;
                client_a.release_hold(&reader, &grant).await?;
            }
            // The new reader may be refused although the upgrade comes to nothing only if it never held.
            (upgraded, answer) => {
                return Err(
                    format!("round {round}: the upgrade got {upgraded:?}, the reader {answer:?}").into()
                );
            }
        }
    }
    Ok(())
}

/// R9.
async fn a_released_upgrade_is_not_applied_later(fixture: &Fixture<'_>) -> Outcome {
    let ([client_a, client_b], reader, grant) = held(fixture, Mode::Shared).await?;
    let other = fixture.claim(&reader.name, Mode::Shared);
    let other_grant = client_b.acquire(&other).await?;
    let writer = upgrade_of(fixture, &reader);
    expect_match!(client_a.upgrade(&reader, &grant, &writer).await?, Upgraded::Taken => (), "two readers");
    expect_match!(client_a.release(&writer, None).await?, Released::NotThere => (), "nothing of it was left");
    client_b.release_hold(&other, &other_grant).await?;
    expect_match!(client_a.upgrade(&reader, &grant, &writer).await?, Upgraded::Taken => (), "it was released");
    client_b.expect_readable(&reader.name).await?;
    ensure!(client_a.renews(&reader, &grant).await, "the reader still holds");
    Ok(())
}

async fn a_hold_that_is_gone_is_not_converted(fixture: &Fixture<'_>) -> Outcome {
    let ([client_a, client_b], reader, grant) = held(fixture, Mode::Shared).await?;
    let mut wrong = grant.clone();
    wrong.token.number += 1;
    let stranger = fixture.claim(&reader.name, Mode::Shared);
    for (claim, grant) in [(&reader, &wrong), (&stranger, &grant)] {
        let upgraded = client_a.upgrade(claim, grant, &upgrade_of(fixture, &reader)).await?;
        expect_match!(upgraded, Upgraded::Lost(_) => (), "no hold has this id and token");
    }
    client_b.expect_readable(&reader.name).await?;
    client_a.release_hold(&reader, &grant).await?;
    let upgraded = client_a.upgrade(&reader, &grant, &upgrade_of(fixture, &reader)).await?;
    expect_match!(upgraded, Upgraded::Lost(_) => (), "the hold was released");
    let writer = fixture.claim(&reader.name, Mode::Exclusive);
    let grant = client_b.acquire(&writer).await?;
    let mut wrong = grant.clone();
    wrong.token.number += 1;
    for (claim, grant) in [(&writer, &wrong), (&fixture.claim(&writer.name, Mode::Exclusive), &grant)] {
        let downgraded = client_b.downgrade(claim, grant).await?;
        ensure!(downgraded.is_err(), "no hold has this id and token");
    }
    client_a.expect_unreadable(&writer.name).await?;
    client_b.release_hold(&writer, &grant).await?;
    let downgraded = client_b.downgrade(&writer, &grant).await?;
    ensure!(downgraded.is_err(), "the hold was released");
    client_a.expect_free(&writer.name).await.map(drop)
}

/// R13.
async fn a_broken_hold_is_not_converted(fixture: &Fixture<'_>) -> Outcome {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let client = fixture.client().await;
        let claim = fixture.claim(&fixture.name(mode.word()), mode);
        let grant = client.acquire(&claim).await?;
        let broken = client.engine.break_hold(&claim.name, grant.token.number, false).await;
        broken.map_err(|error| format!("break: {error:?}"))?;
        let loss = if mode == Mode::Exclusive {
            client.downgrade(&claim, &grant).await?.err()
        } else {
            match client.upgrade(&claim, &grant, &upgrade_of(fixture, &claim)).await? {
                Upgraded::Lost(loss) => Some(loss),
                other => return Err(format!("a broken hold was upgraded: {other:?}").into()),
            }
        };
        ensure!(loss == Some(Loss::Broken), "the hold was broken, and the loss is {loss:?}");
        client.expect_taken(&claim.name).await?;
        client.release_hold(&claim, &grant).await?;
    }
    Ok(())
}

/// R3.
async fn a_lapsed_hold_is_not_converted(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claims = [Mode::Exclusive, Mode::Shared]
        .map(|mode| fixture.short_lease_claim(&fixture.name(mode.word()), mode));
    let [writer, reader] = &claims;
    let (writer_grant, reader_grant) = (client.acquire(writer).await?, client.acquire(reader).await?);
    fixture.wait_until_expired(&reader_grant).await?;
    let downgraded = client.downgrade(writer, &writer_grant).await?;
    ensure!(downgraded.is_err(), "the lease has ended: {downgraded:?}");
    let upgraded = client.upgrade(reader, &reader_grant, &upgrade_of(fixture, reader)).await?;
    expect_match!(upgraded, Upgraded::Lost(_) => (), "the lease has ended");
    for claim in &claims {
        client.expect_free_soon(&claim.name).await?;
    }
    Ok(())
}

/// By core: a writer lets readers in, and becomes the writer again when they have gone.
async fn a_program_converts_its_guard_there_and_back(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (one, other) = (fixture.program(&name).await, fixture.program(&name).await);
    let refused = |refused: leasehold_core::NotConverted| failed("convert")(refused.into());
    let writer = one.rw(name.as_str()).write().acquire().await.map_err(failed("write"))?;
    let request = other.rw(name.as_str()).read();
    let mut reading = std::pin::pin!(request.acquire());
    ensure!(crate::dropper::poll_once(reading.as_mut()).is_none(), "a writer holds");
    let reader = fixture.step("a downgrade", writer.downgrade()).await?.map_err(refused)?;
    let other_reader = fixture.step("a reader that waits", reading).await?.map_err(failed("read"))?;
    let token = reader.token();
    let taken = expect_match!(reader.try_upgrade().await, Err(refused) => refused, "two readers");
    ensure!(taken.error().is_taken(), "two readers, reported is {taken}");
    other_reader.release().await.map_err(failed("release"))?;
    let writer = fixture.step("an upgrade", taken.into_guard().try_upgrade()).await?.map_err(refused)?;
    ensure!(writer.token().number > token.number && writer.check(), "{writer:?} after token {token:?}");
    writer.confirm().await.map_err(failed("confirm"))?;
    let error = expect_match!(request.try_acquire().await, Err(error) => error, "a writer holds");
    ensure!(error.is_taken(), "a writer holds, reported is {error}");
    writer.release().await.map_err(failed("release"))?;
    close_all([one, other]).await
}
