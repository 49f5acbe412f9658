//! Memos: rule R28 of `docs/rules.md`.

use std::time::Duration;

use leasehold_core::{
    Answer, Breaking, Claim, EngineError, Fault, Grant, HoldAfter, How, MAX_MEMO_BYTES, Memo, MemoKind,
    MemoWrite, Mode, NewMemo, Previous, Released, Token, Written,
};

use super::{
    case::{Case, Outcome, Stop, case, ensure, expect_match, needs_fifo, needs_lease},
    fixture::{Contended, Fixture},
    memo_client::{KEEP, ending_write, write_of},
    names::{ODD, longest_names},
    notifications::wait_for_wake_up,
    program::{needs_memos, needs_memos_and_breaking},
};

pub(super) const CASES: &[Case] = &[
    case!(there_are_memos_unless_the_profile_says_why_not),
    case!(a_name_without_a_memo_has_none, skip = needs_memos),
    case!(a_memo_is_read_as_it_was_written, skip = needs_memos),
    case!(the_largest_memo_is_whole, skip = needs_memos),
    case!(a_memo_outlives_its_hold, skip = needs_memos),
    case!(a_write_with_the_release_frees_the_name, skip = needs_memos),
    case!(
        a_write_with_the_release_serves_the_next_waiter,
        skip = |profile| needs_memos(profile).or(needs_fifo(profile))
    ),
    case!(a_write_without_the_hold_is_overtaken, skip = needs_memos),
    case!(a_write_after_the_release_lands_nowhere, skip = needs_memos),
    case!(
        a_write_of_a_lapsed_hold_is_overtaken,
        skip = |profile| needs_memos(profile).or(needs_lease(profile))
    ),
    case!(
        a_memo_of_a_lapsed_hold_is_read_while_a_claim_waits,
        skip = |profile| needs_memos(profile).or(needs_lease(profile))
    ),
    case!(a_write_of_a_broken_hold_is_overtaken, skip = needs_memos_and_breaking),
    case!(a_late_write_of_the_same_hold_changes_nothing, skip = needs_memos),
    case!(a_late_write_brings_no_older_memo_back_after_the_end_of_the_newer, skip = needs_memos),
    case!(a_new_holder_replaces_a_memo_of_any_number, skip = needs_memos),
    case!(a_repeated_write_changes_nothing_else, skip = needs_memos),
    case!(a_memo_of_another_kind_is_not_replaced, skip = needs_memos),
    case!(a_memo_ends_when_its_time_has_passed, skip = needs_memos),
    case!(readers_see_whole_memos_in_order, skip = needs_memos),
    case!(memos_of_odd_names_do_not_collide, skip = needs_memos),
    case!(a_follower_is_told_of_changes, skip = needs_memos),
];

async fn there_are_memos_unless_the_profile_says_why_not(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let (has_memos, reason) = (client.engine.memos().is_some(), fixture.profile().no_memos);
    ensure!(has_memos == reason.is_none(), "memos: {has_memos}, yet the profile says {reason:?}");
    Ok(())
}

async fn a_name_without_a_memo_has_none(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    expect_match!(client_b.memo(&claim.name).await?, None => (), "a name that was never used");
    let grant = client_a.acquire(&claim).await?;
    expect_match!(client_b.memo(&claim.name).await?, None => (), "a name that is held");
    client_a.release_hold(&claim, &grant).await?;
    expect_match!(client_b.memo(&claim.name).await?, None => (), "a name that was released");
    Ok(())
}

async fn a_memo_is_read_as_it_was_written(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let all_bytes: Vec<u8> = (0..=u8::MAX).collect();
    let print = std::array::from_fn(|index| 255 - index as u8);
    let last_token = Token { number: grant.token.number + u64::from(grant.tokens) - 1, ..grant.token };
    let memo = |bytes: &[u8]| NewMemo::new(MemoKind::ONCE, bytes, KEEP).expect("it is valid");
    for (number, memo, token) in [
        (1, memo(&all_bytes).print(print), grant.token),
        (2, memo(b""), last_token),
        (1 << 40, memo(b"'; DROP TABLE memos; --\0\r\n").print([0; 32]), grant.token),
    ] {
        let write = MemoWrite { token, memo: memo.clone(), ..write_of(&claim, &grant, number, b"") };
        expect_match!(client_a.write_memo(&write).await?, Written::Done => (), "write {number}");
        let read =
            expect_match!(client_b.memo(&claim.name).await?, Some(read) => read, "after write {number}");
        let expected = (&MemoKind::ONCE, memo.bytes(), memo.digest(), claim.id, number, token);
        let found = (&read.kind, &read.bytes[..], read.print.as_ref(), read.version.id, read.version.number);
        ensure!(
            (found.0, found.1, found.2, found.3, found.4, read.token) == expected && read.is_held,
            "write {number} of {memo:?} was read as {read:?}"
        );
        ensure!(
            !read.left.is_zero() && read.left <= longest_left(KEEP),
            "kept for {KEEP:?}, and {:?} are left",
            read.left
        );
    }
    client_a.release_hold(&claim, &grant).await
}

/// The longest time for which an engine may keep a memo: the rule allows to round up.
fn longest_left(keep: Duration) -> Duration {
    keep + (keep / 10).max(Duration::from_secs(60))
}

async fn the_largest_memo_is_whole(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    for (number, len) in [(1, MAX_MEMO_BYTES), (2, MAX_MEMO_BYTES - 1), (3, 1), (4, MAX_MEMO_BYTES)] {
        let bytes: Vec<u8> =
            (0..len).map(|index| (index * 7 + index / 256 + number as usize) as u8).collect();
        let write = write_of(&claim, &grant, number, &bytes);
        expect_match!(client_a.write_memo(&write).await?, Written::Done => (), "{len} bytes");
        let read = expect_match!(client_b.memo(&claim.name).await?, Some(read) => read, "{len} bytes");
        ensure!(read.bytes == bytes, "{len} bytes were read as {} other bytes", read.bytes.len());
    }
    client_a.release_hold(&claim, &grant).await
}

async fn a_memo_outlives_its_hold(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    client_a.write_done(&write_of(&claim, &grant, 1, b"first")).await?;
    client_a.release_hold(&claim, &grant).await?;
    expect_memo(client_b.memo(&claim.name).await?, b"first", false)?;
    let next = Claim { id: crate::claims::fresh_id(), ..claim.clone() };
    let next_grant = client_b.acquire(&next).await?;
    // Held, but not by the claim that wrote it.
    expect_memo(client_a.memo(&claim.name).await?, b"first", false)?;
    client_b.write_done(&write_of(&next, &next_grant, 1, b"second")).await?;
    expect_memo(client_a.memo(&claim.name).await?, b"second", true)?;
    client_b.release_hold(&next, &next_grant).await
}

/// Fails the case unless the memo has these bytes and this `is_held`.
fn expect_memo(memo: Option<Memo>, bytes: &[u8], is_held: bool) -> Outcome {
    expect_match!(
        memo,
        Some(memo) if memo.bytes == bytes && memo.is_held == is_held => (),
        "the memo should be {:?}, held: {is_held}", String::from_utf8_lossy(bytes)
    );
    Ok(())
}

async fn a_write_with_the_release_frees_the_name(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    client_a.write_done(&ending_write(&claim, &grant, 1, b"result")).await?;
    expect_memo(client_b.memo(&claim.name).await?, b"result", false)?;
    let next = client_b.expect_free(&claim.name).await?;
    expect_match!(next.previous, Previous::Clean | Previous::Unknown => (), "after a clean release");
    expect_match!(
        client_a.release(&claim, Some(&grant)).await?,
        Released::NotThere => (),
        "the release of a hold that its memo ended"
    );
    expect_match!(
        client_a.send_claim(&claim, How::Ask).await?,
        Answer::Gone | Answer::Taken(_) => (),
        "a claim that its memo ended"
    );
    client_b.expect_free(&claim.name).await?;
    expect_memo(client_b.memo(&claim.name).await?, b"result", false)
}

async fn a_write_with_the_release_serves_the_next_waiter(fixture: &Fixture<'_>) -> Outcome {
    let Contended { client_a, client_b, holder, grant, waiter } = fixture.contended().await?;
    client_a.write_done(&ending_write(&holder, &grant, 1, b"result")).await?;
    if fixture.profile().push {
        wait_for_wake_up(fixture, &client_b, &waiter).await?;
    }
    let next = client_b.ask_until_granted(&waiter).await?;
    expect_memo(client_b.memo(&holder.name).await?, b"result", false)?;
    client_b.release_hold(&waiter, &next).await
}

async fn a_write_without_the_hold_is_overtaken(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    client_a.write_done(&write_of(&claim, &grant, 5, b"of the holder")).await?;
    let stranger = fixture.claim(&claim.name, Mode::Exclusive);
    let other_token = Grant {
        token: Token { number: grant.token.number + u64::from(grant.tokens), ..grant.token },
        ..grant.clone()
    };
    let smaller_token = Grant {
        token: Token { number: grant.token.number.saturating_sub(1), ..grant.token },
        ..grant.clone()
    };
    for (whose, claim, grant) in [
        ("another claim's", &stranger, &grant),
        ("a larger token's", &claim, &other_token),
        ("a smaller token's", &claim, &smaller_token),
    ] {
        for write in [write_of(claim, grant, 6, b"x"), ending_write(claim, grant, 7, b"x")] {
            expect_match!(client_b.write_memo(&write).await?, Written::Overtaken => (), "{whose} {write:?}");
        }
    }
    let waiter = fixture.claim(&claim.name, Mode::Exclusive);
    client_b.claim_blocked(&waiter).await?;
    let write = write_of(&waiter, &grant, 8, b"x");
    expect_match!(client_b.write_memo(&write).await?, Written::Overtaken => (), "a waiter's {write:?}");
    client_b.release(&waiter, None).await?;
    expect_memo(client_b.memo(&claim.name).await?, b"of the holder", true)?;
    client_b.expect_taken(&claim.name).await?;
    client_a.release_hold(&claim, &grant).await?;
    // A name that is free.
    let free = fixture.claim(&fixture.name("-free"), Mode::Exclusive);
    let write = write_of(&free, &grant, 9, b"x");
    expect_match!(client_b.write_memo(&write).await?, Written::Overtaken => (), "under a free name");
    expect_match!(client_b.memo(&free.name).await?, None => (), "after an overtaken write");
    Ok(())
}

async fn a_write_after_the_release_lands_nowhere(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    client_a.release_hold(&claim, &grant).await?;
    let late = [write_of(&claim, &grant, 1, b"late"), ending_write(&claim, &grant, 2, b"late")];
    for write in &late {
        expect_match!(client_a.write_memo(write).await?, Written::Overtaken => (), "late: {write:?}");
    }
    expect_match!(client_b.memo(&claim.name).await?, None => (), "after late writes");
    // The next hold is of the same client: an engine must not confuse a claim with its owner, client or session.
    let next = fixture.claim(&claim.name, Mode::Exclusive);
    let next_grant = client_a.acquire(&next).await?;
    client_a.write_done(&write_of(&next, &next_grant, 1, b"next")).await?;
    for write in &late {
        expect_match!(client_a.write_memo(write).await?, Written::Overtaken => (), "late: {write:?}");
    }
    expect_memo(client_b.memo(&claim.name).await?, b"next", true)?;
    client_a.release_hold(&next, &next_grant).await
}

async fn a_write_of_a_lapsed_hold_is_overtaken(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short_lease_claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    client_a.write_done(&write_of(&claim, &grant, 1, b"in time")).await?;
    fixture.wait_until_expired(&grant).await?;
    let late = [write_of(&claim, &grant, 2, b"zombie"), ending_write(&claim, &grant, 3, b"zombie")];
    let next = fixture.claim(&claim.name, Mode::Exclusive);
    let next_grant = client_b.acquire_soon(&next).await?;
    for write in &late {
        expect_match!(client_a.write_memo(write).await?, Written::Overtaken => (), "lapsed: {write:?}");
    }
    expect_memo(client_b.memo(&claim.name).await?, b"in time", false)?;
    client_b.write_done(&write_of(&next, &next_grant, 1, b"next")).await?;
    for write in &late {
        expect_match!(client_a.write_memo(write).await?, Written::Overtaken => (), "lapsed: {write:?}");
    }
    expect_memo(client_a.memo(&claim.name).await?, b"next", true)?;
    client_b.release_hold(&next, &next_grant).await
}

/// The read comes before anything else notices the end of the lease.
async fn a_memo_of_a_lapsed_hold_is_read_while_a_claim_waits(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short_lease_claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    client_a.write_done(&write_of(&claim, &grant, 1, b"last")).await?;
    let waiter = fixture.claim(&claim.name, Mode::Exclusive);
    client_b.claim_blocked(&waiter).await?;
    fixture.wait_until_expired(&grant).await?;
    expect_memo(client_a.memo(&claim.name).await?, b"last", false)?;
    let late = write_of(&claim, &grant, 2, b"zombie");
    expect_match!(client_a.write_memo(&late).await?, Written::Overtaken => (), "lapsed: {late:?}");
    client_b.ask_until_granted(&waiter).await.map(drop)
}

async fn a_write_of_a_broken_hold_is_overtaken(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let breaks = [(false, "-held"), (true, "-forced")];
    let is_possible = |(force, _): &(bool, _)| *force || fixture.profile().breaking == Breaking::Lease;
    for (force, suffix) in breaks.into_iter().filter(is_possible) {
        let claim = fixture.claim(&fixture.name(suffix), Mode::Exclusive);
        let grant = client_a.acquire(&claim).await?;
        client_a.write_done(&write_of(&claim, &grant, 1, b"before")).await?;
        let broken = client_b.engine.break_hold(&claim.name, grant.token.number, force).await;
        broken.map_err(|error| format!("break: {error:?}"))?;
        for write in [write_of(&claim, &grant, 2, b"after"), ending_write(&claim, &grant, 3, b"after")] {
            expect_match!(client_a.write_memo(&write).await?, Written::Overtaken => (), "{suffix}: {write:?}");
        }
        expect_memo(client_b.memo(&claim.name).await?, b"before", false)?;
        client_a.release(&claim, Some(&grant)).await?;
    }
    Ok(())
}

async fn a_late_write_of_the_same_hold_changes_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    client_a.write_done(&write_of(&claim, &grant, 10, b"newest")).await?;
    for number in [9, 2] {
        client_a.write_done(&write_of(&claim, &grant, number, b"late")).await?;
        expect_memo(client_b.memo(&claim.name).await?, b"newest", true)?;
    }
    client_a.release_hold(&claim, &grant).await
}

async fn a_late_write_brings_no_older_memo_back_after_the_end_of_the_newer(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let short = NewMemo::new(MemoKind::ONCE, "short", fixture.short_time(Duration::from_millis(200)));
    let memo = short.expect("it is valid");
    client_a.write_done(&MemoWrite { memo, ..write_of(&claim, &grant, 10, b"") }).await?;
    let left = expect_match!(client_b.memo(&claim.name).await?, Some(memo) => memo.left, "a new memo");
    fixture.advance(left + Duration::from_millis(10)).await;
    // The write of another memo may remove ended memos; it must leave this one.
    let other = fixture.claim(&fixture.name("-other"), Mode::Exclusive);
    let other_grant = client_a.acquire(&other).await?;
    client_a.write_done(&ending_write(&other, &other_grant, 11, b"other")).await?;
    client_a.write_done(&write_of(&claim, &grant, 9, b"late")).await?;
    expect_match!(client_b.memo(&claim.name).await?, None => (), "a late write after the end of a newer memo");
    client_a.write_done(&write_of(&claim, &grant, 12, b"newest")).await?;
    expect_memo(client_b.memo(&claim.name).await?, b"newest", true)?;
    client_a.release_hold(&claim, &grant).await
}

async fn a_new_holder_replaces_a_memo_of_any_number(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    for (client, number, bytes) in [(&client_a, 1 << 50, b"a"), (&client_b, 1, b"b"), (&client_a, 1, b"c")] {
        let claim = fixture.claim(&name, Mode::Exclusive);
        let grant = client.acquire(&claim).await?;
        client.write_done(&write_of(&claim, &grant, number, bytes)).await?;
        expect_memo(client.memo(&name).await?, bytes, true)?;
        client.release_hold(&claim, &grant).await?;
    }
    Ok(())
}

async fn a_repeated_write_changes_nothing_else(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let write = write_of(&claim, &grant, 1, b"twice");
    client_a.write_done(&write).await?;
    client_a.write_done(&write).await?;
    expect_memo(client_b.memo(&claim.name).await?, b"twice", true)?;
    let ending = ending_write(&claim, &grant, 2, b"last");
    client_a.write_done(&ending).await?;
    client_a.write_memo(&ending).await?;
    expect_memo(client_b.memo(&claim.name).await?, b"last", false)?;
    client_b.expect_free(&claim.name).await.map(drop)
}

async fn a_memo_of_another_kind_is_not_replaced(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let first = fixture.claim(&name, Mode::Exclusive);
    let grant = client_a.acquire(&first).await?;
    client_a.write_done(&ending_write(&first, &grant, 1, b"once")).await?;
    let claim = fixture.claim(&name, Mode::Exclusive);
    let grant = client_b.acquire(&claim).await?;
    let latch = NewMemo::new(MemoKind::LATCH, "latch", KEEP).expect("it is valid");
    for after in [HoldAfter::Keep, HoldAfter::Release] {
        let write = MemoWrite { memo: latch.clone(), after, ..write_of(&claim, &grant, 2, b"") };
        expect_match!(
            client_b.send_memo(&write).await,
            Err(EngineError { fault: Fault::Misconfigured, .. }) => (),
            "a memo of another kind, {after:?}"
        );
    }
    expect_memo(client_a.memo(&name).await?, b"once", false)?;
    client_b.release_hold(&claim, &grant).await
}

async fn a_memo_ends_when_its_time_has_passed(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let keep = fixture.short_time(Duration::from_secs(1));
    let memo = NewMemo::new(MemoKind::ONCE, "short", keep).expect("it is valid");
    client_a.write_done(&MemoWrite { memo, ..write_of(&claim, &grant, 1, b"") }).await?;
    let left = expect_match!(client_b.memo(&claim.name).await?, Some(memo) => memo.left, "a new memo");
    ensure!(left <= longest_left(keep), "kept for {keep:?}, and {left:?} are left");
    fixture.advance(left + Duration::from_millis(10)).await;
    expect_match!(client_b.memo(&claim.name).await?, None => (), "a memo whose time is over");
    // Its kind does not count any more.
    let latch = NewMemo::new(MemoKind::LATCH, "latch", KEEP).expect("it is valid");
    client_a.write_done(&MemoWrite { memo: latch, ..write_of(&claim, &grant, 2, b"") }).await?;
    expect_memo(client_b.memo(&claim.name).await?, b"latch", true)?;
    client_a.release_hold(&claim, &grant).await
}

/// How many memos are written while another client reads.
const RACING_WRITES: u64 = 40;

async fn readers_see_whole_memos_in_order(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let finished = std::cell::Cell::new(false);
    let writes = async {
        for number in 1..=RACING_WRITES {
            let bytes = vec![number as u8; (number as usize * 997) % MAX_MEMO_BYTES + 1];
            client_a.write_done(&write_of(&claim, &grant, number, &bytes)).await?;
            tokio::task::yield_now().await;
        }
        finished.set(true);
        Outcome::Ok(())
    };
    let reads = async {
        let mut newest = 0;
        while newest < RACING_WRITES {
            let is_last = finished.get();
            if let Some(memo) = client_b.memo(&claim.name).await? {
                let number = memo.version.number;
                let is_whole = memo.bytes.len() == (number as usize * 997) % MAX_MEMO_BYTES + 1
                    && memo.bytes.iter().all(|byte| *byte == number as u8);
                ensure!(is_whole, "write {number} is torn: {memo:?}");
                ensure!(number >= newest, "write {number} was read after write {newest}");
                newest = number;
            }
            ensure!(!is_last || newest == RACING_WRITES, "write {newest} was read after the last write");
            tokio::task::yield_now().await;
        }
        Outcome::Ok(())
    };
    let (written, read) = tokio::join!(writes, reads);
    written.and(read)?;
    client_a.release_hold(&claim, &grant).await
}

async fn memos_of_odd_names_do_not_collide(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let odd_names = ODD.iter().map(|suffix| fixture.name(suffix));
    let names: Vec<_> =
        odd_names.chain(longest_names(fixture)?).filter(|name| fixture.accepts(name)).collect();
    for name in &names {
        let claim = fixture.claim(name, Mode::Exclusive);
        let grant = client_a.acquire(&claim).await?;
        client_a.write_done(&ending_write(&claim, &grant, 1, name.as_str().as_bytes())).await?;
    }
    for name in &names {
        expect_memo(client_b.memo(name).await?, name.as_str().as_bytes(), false)?;
    }
    Ok(())
}

async fn a_follower_is_told_of_changes(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let Some(followed) = client_b.memos()?.follow(&claim.name) else {
        return Err(Stop::Skip("the engine does not push changes of memos".into()));
    };
    client_b.wait_for_memo_hint(&claim.name, "the subscription").await?;
    let grant = client_a.acquire(&claim).await?;
    client_a.write_done(&write_of(&claim, &grant, 1, b"first")).await?;
    client_b.wait_for_memo_hint(&claim.name, "the first write").await?;
    expect_memo(client_b.memo(&claim.name).await?, b"first", true)?;
    client_a.write_done(&write_of(&claim, &grant, 2, b"second")).await?;
    client_b.wait_for_memo_hint(&claim.name, "the second write").await?;
    client_a.release_hold(&claim, &grant).await?;
    client_b.wait_for_memo_hint(&claim.name, "the end of the hold").await?;
    drop(followed);
    Ok(())
}
