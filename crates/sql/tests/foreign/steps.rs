//! What happens between leasehold and another program on one table.

use std::time::Duration;

use leasehold_core::{Loss, Released, Renewed};
use leasehold_sql::Layout;

use super::{
    LAYOUTS, Site, answer, assert_taken, held, held_soon, name, released, renewed, short_claim, show, table,
    theirs::Theirs, try_claim,
};
use crate::until::until;

/// A short time for a lock of another program, in whole seconds.
const SHORT: u32 = 2;
/// The ttls of which each is measured, in milliseconds: no whole seconds, because where a lease begins within a second
/// decides how much of it a server cuts or rounds.
const TTLS: [u64; 4] = [300, 900, 1400, 1900];

/// Both sides exclude each other, whichever comes first, and both enter after a release.
pub(crate) async fn both_exclude_each_other(site: &impl Site) {
    for layout in LAYOUTS {
        site.query(site.sql().plain_table(layout));
        both_exclude_each_other_in(site, layout).await;
    }
}

/// The same, in the table of one layout.
pub(crate) async fn both_exclude_each_other_in(site: &impl Site, layout: Layout) {
    let (ours, other) = (site.engine(table(layout)), site.engine(table(layout)));
    let theirs = Theirs { site, layout, owner: "host-1 (10.0.0.1)" };
    for checks_the_owner in [true, false] {
        let claim = try_claim(layout);
        let grant = held(&*ours, &claim).await;
        assert!(!theirs.take(600), "{layout:?}: ours holds");
        assert_taken(&*other, layout).await;
        assert!(matches!(renewed(&*ours, &claim, &grant).await, Renewed::Extended { .. }), "{layout:?}");
        assert!(matches!(released(&*ours, &claim, Some(&grant)).await, Released::Freed), "{layout:?}");
        assert!(theirs.take(600), "{layout:?}: ours has released");
        assert_taken(&*ours, layout).await;
        let view = show(&other, layout).await;
        assert!(view.holders.len() == 1 && view.holders[0].foreign, "{layout:?}: {view:?}");
        let owner = if layout == Layout::Insert { "unknown" } else { theirs.owner };
        assert_eq!(view.holders[0].owner, owner, "{layout:?}");
        assert_eq!(view.holders[0].remaining.is_some(), has_time(layout), "{layout:?}: {view:?}");
        if checks_the_owner {
            theirs.free();
        } else {
            theirs.free_by_name();
        }
        let (claim, grant) = held_soon(&*other, layout).await;
        assert!(matches!(released(&*other, &claim, Some(&grant)).await, Released::Freed), "{layout:?}");
    }
}

/// Where the format has a time, a holder that was killed blocks the other side no longer than for that time.
pub(crate) async fn a_killed_holder_blocks_until_its_time_has_passed(site: &impl Site) {
    for layout in LAYOUTS.into_iter().filter(|layout| has_time(*layout)) {
        site.query(site.sql().plain_table(layout));
        let theirs = Theirs { site, layout, owner: "host-1" };
        let ours = site.engine(table(layout));
        let claim = short_claim(layout, Duration::from_secs(1));
        held(&*ours, &claim).await;
        assert!(!theirs.take(SHORT), "{layout:?}: ours holds");
        // Ours ends without a release.
        drop(ours);
        until("the other program is granted", || theirs.take(SHORT));
        // The other program ends without a release.
        let ours = site.engine(table(layout));
        assert_taken(&*ours, layout).await;
        held_soon(&*ours, layout).await;
    }
}

/// By the clock of the database no side enters before the time of the other has passed, although some formats and
/// columns store whole seconds. The owner of the other program begins like ours.
pub(crate) async fn a_lease_lasts_as_long_as_it_was_granted(site: &impl Site) {
    let now = || site.query(site.sql().now)[0].parse::<f64>().unwrap();
    let plain = LAYOUTS.into_iter().filter(|layout| has_time(*layout));
    let plain = plain.map(|layout| (layout, site.sql().plain_table(layout)));
    for (layout, table_of_theirs) in plain.chain([(Layout::Shedlock, site.sql().coarse)]) {
        site.query(table_of_theirs);
        let theirs = Theirs { site, layout, owner: "leasehold-worker" };
        let ours = site.engine(table(layout));
        for ttl in TTLS.map(Duration::from_millis) {
            let claim = short_claim(layout, ttl);
            let before = now();
            held(&*ours, &claim).await;
            until("the other program is granted", || theirs.take(1));
            assert!(now() >= before + ttl.as_secs_f64(), "{layout:?}: {ttl:?} of ours were cut short");
            theirs.free();
            let before = now();
            until("the other program is granted again", || theirs.take(1));
            let (claim, grant) = held_soon(&*ours, layout).await;
            assert!(now() >= before + 1.0, "{layout:?}: the other program was cut short");
            released(&*ours, &claim, Some(&grant)).await;
        }
    }
}

/// A hold that is renewed outlives its ttl.
pub(crate) async fn renewals_keep_others_out(site: &impl Site) {
    for layout in LAYOUTS {
        site.query(site.sql().plain_table(layout));
        let theirs = Theirs { site, layout, owner: "host-1" };
        let ours = site.engine(table(layout));
        let claim = short_claim(layout, Duration::from_secs(1));
        let grant = held(&*ours, &claim).await;
        let long = leasehold_core::Claim { ttl: Duration::from_secs(600), ..claim.clone() };
        assert!(matches!(renewed(&*ours, &long, &grant).await, Renewed::Extended { .. }), "{layout:?}");
        // A renewal for a shorter time shortens nothing.
        assert!(matches!(renewed(&*ours, &claim, &grant).await, Renewed::Extended { .. }), "{layout:?}");
        tokio::time::sleep(Duration::from_millis(3500)).await;
        assert!(!theirs.take(600), "{layout:?}");
        assert!(matches!(released(&*ours, &claim, Some(&grant)).await, Released::Freed), "{layout:?}");
    }
}

/// A holder learns at its next renewal that another program deleted or overwrote its row. Its release does not touch
/// the row of the other program, whether or not the holder has renewed before.
pub(crate) async fn a_row_that_another_program_changed_is_reported_as_a_loss(site: &impl Site) {
    for (layout, renews) in LAYOUTS.into_iter().flat_map(|layout| [(layout, true), (layout, false)]) {
        site.query(site.sql().plain_table(layout));
        let ours = site.engine(table(layout));
        let claim = try_claim(layout);
        let grant = held(&*ours, &claim).await;
        site.query(&format!("DELETE FROM {}", site.sql().table(layout)));
        if layout == Layout::Liquibase {
            site.query(site.sql().unlocked_row);
        }
        let theirs = Theirs { site, layout, owner: "host-1" };
        assert!(theirs.take(600), "{layout:?}");
        if renews {
            let answer = renewed(&*ours, &claim, &grant).await;
            assert!(matches!(answer, Renewed::Lost(Loss::Gone)), "{layout:?}: {answer:?}");
        }
        assert!(matches!(released(&*ours, &claim, Some(&grant)).await, Released::NotThere), "{layout:?}");
        assert_taken(&*site.engine(table(layout)), layout).await;
    }
}

/// ShedLock without `usingDbTime()` unlocks by name alone. So a job of ShedLock that outlives its time frees the row of
/// our holder, who is told at the next renewal, also before another program takes the row.
pub(crate) async fn a_job_that_outlives_its_time_frees_the_row_of_the_next_holder(site: &impl Site) {
    let layout = Layout::Shedlock;
    let theirs = Theirs { site, layout, owner: "host-1" };
    for is_taken in [false, true] {
        site.query(site.sql().plain_table(layout));
        assert!(theirs.take(1));
        let ours = site.engine(table(layout));
        let (claim, grant) = held_soon(&*ours, layout).await;
        theirs.free_by_name();
        assert!(!is_taken || theirs.take(600));
        let answer = renewed(&*ours, &claim, &grant).await;
        let expected = if is_taken { Loss::Gone } else { Loss::Lapsed };
        assert!(matches!(answer, Renewed::Lost(loss) if loss == expected), "{is_taken}: {answer:?}");
        released(&*ours, &claim, Some(&grant)).await;
        assert_eq!(site.query(site.sql().held_rows(layout)).len(), usize::from(is_taken));
    }
}

/// A repeated claim is the same hold, and a released one never holds again.
pub(crate) async fn claims_are_known_by_their_id(site: &impl Site) {
    for layout in LAYOUTS {
        site.query(site.sql().plain_table(layout));
        let ours = site.engine(table(layout));
        let claim = try_claim(layout);
        let grant = held(&*ours, &claim).await;
        assert_eq!(held(&*ours, &claim).await.token, grant.token, "{layout:?}");
        released(&*ours, &claim, None).await;
        let late = answer(&*ours, &claim).await;
        assert!(matches!(late, leasehold_core::Answer::Gone), "{layout:?}: {late:?}");
        assert_eq!(site.query(site.sql().held_rows(layout)), [""; 0], "{layout:?} {}", name(layout));
    }
}

pub(crate) fn has_time(layout: Layout) -> bool {
    !matches!(layout, Layout::Liquibase | Layout::Insert)
}
