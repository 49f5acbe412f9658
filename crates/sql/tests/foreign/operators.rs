//! What operators see of the tables, and what they end.

use leasehold_core::{Broken, Fault, Inspect, Loss, Name, Released, Renewed};
use leasehold_sql::{ForeignTable, Layout};

use super::{
    LAYOUTS, Site, assert_taken, held, held_soon, name, released, renewed, show, steps::has_time, table,
    theirs::Theirs, try_claim,
};

/// `show` tells what a dead holder left behind and since when if a column knows it; `break` alone ends it, and not the
/// next hold.
pub(crate) async fn a_row_without_a_time_is_shown_and_broken(site: &impl Site) {
    for layout in LAYOUTS.into_iter().filter(|layout| !has_time(*layout)) {
        site.query(site.sql().plain_table(layout));
        let (ours, theirs) = (site.engine(table(layout)), Theirs { site, layout, owner: "host-1" });
        assert!(theirs.take(1));
        if layout == Layout::Liquibase {
            site.query(site.sql().last_year);
        }
        assert_taken(&*ours, layout).await;
        let view = show(&ours, layout).await;
        let holder = &view.holders[0];
        assert!(holder.foreign && holder.remaining.is_none(), "{view:?}");
        let days = holder.held.map(|held| held.as_secs() / 86_400);
        assert_eq!(days.is_some_and(|days| days >= 364), layout == Layout::Liquibase, "{view:?}");
        assert!(view.note.as_ref().is_some_and(|note| note.contains("break --force")), "{view:?}");
        let (name, token) = (Name::new(name(layout)).unwrap(), holder.token.unwrap());
        let refused = ours.break_hold(&name, token, false).await.unwrap_err();
        assert_eq!(refused.fault, Fault::Denied, "{refused:?}");
        assert!(!matches!(ours.break_hold(&name, token + 1, true).await, Ok(Broken::Done)));
        assert_taken(&*ours, layout).await;
        assert_eq!(ours.break_hold(&name, token, true).await.unwrap(), Broken::Done);
        let claim = try_claim(layout);
        let grant = held(&*ours, &claim).await;
        released(&*ours, &claim, Some(&grant)).await;
    }
}

/// A hold of ours that an operator broke is lost, and blocks until its holder releases.
pub(crate) async fn a_broken_hold_of_ours_is_lost(site: &impl Site) {
    for layout in LAYOUTS.into_iter().filter(|layout| *layout != Layout::Insert) {
        site.query(site.sql().plain_table(layout));
        let (ours, other) = (site.engine(table(layout)), site.engine(table(layout)));
        let claim = try_claim(layout);
        let grant = held(&*ours, &claim).await;
        let name = claim.name.clone();
        assert_eq!(other.break_hold(&name, grant.token.number, false).await.unwrap(), Broken::Done);
        assert_taken(&*other, layout).await;
        assert!(matches!(renewed(&*ours, &claim, &grant).await, Renewed::Lost(Loss::Broken)), "{layout:?}");
        assert!(matches!(released(&*ours, &claim, Some(&grant)).await, Released::NotThere), "{layout:?}");
        let (claim, grant) = held_soon(&*other, layout).await;
        assert_eq!(ours.break_hold(&name, grant.token.number, true).await.unwrap(), Broken::Done);
        assert!(matches!(renewed(&*other, &claim, &grant).await, Renewed::Lost(Loss::Gone)), "{layout:?}");
    }
}

/// A user with the four rights on the table, and no others, locks, looks and breaks.
pub(crate) async fn rights_on_the_table_alone_suffice(site: &impl Site, grants: &[&str]) {
    for layout in LAYOUTS {
        site.query(site.sql().plain_table(layout));
        let name_of_table = site.sql().table(layout);
        grants.iter().for_each(|grant| drop(site.query(&grant.replace(":table", name_of_table))));
        let (ours, other) =
            (site.engine_as("locker", table(layout)), site.engine_as("locker", table(layout)));
        let claim = try_claim(layout);
        let grant = held(&*ours, &claim).await;
        assert_taken(&*other, layout).await;
        assert!(matches!(renewed(&*ours, &claim, &grant).await, Renewed::Extended { .. }), "{layout:?}");
        assert_eq!(other.list("").await.unwrap().len(), 1, "{layout:?}");
        other.guarantee().await.unwrap();
        let number = show(&other, layout).await.holders[0].token.unwrap();
        assert_eq!(other.break_hold(&claim.name, number, true).await.unwrap(), Broken::Done, "{layout:?}");
        let (claim, grant) = held_soon(&*other, layout).await;
        assert!(matches!(released(&*other, &claim, Some(&grant)).await, Released::Freed), "{layout:?}");
    }
}

/// A missing table is created only on request, and otherwise the error has the statement that creates it.
pub(crate) async fn a_missing_table_is_created_on_request_only(site: &impl Site) {
    for layout in LAYOUTS {
        let refused = {
            let engine = site.engine(table(layout));
            leasehold_core::Engine::claim(&*engine, &try_claim(layout), leasehold_core::How::Create)
                .await
                .unwrap_err()
        };
        assert_eq!(refused.fault, Fault::Misconfigured, "{refused:?}");
        assert!(refused.message.contains("create it by CREATE TABLE"), "{refused:?}");
        let statement = refused
            .message
            .split("create it by ")
            .nth(1)
            .unwrap()
            .replace(", or add create=yes to the URL", "");
        if layout == Layout::Insert {
            site.query(&statement);
        } else {
            let created = site.engine(table(layout).create());
            assert!(created.show(&try_claim(layout).name).await.is_err(), "looking creates nothing");
            let claim = try_claim(layout);
            let grant = held(&*created, &claim).await;
            released(&*created, &claim, Some(&grant)).await;
            // The statement of the message makes the same table.
            site.query(&format!("DROP TABLE {}", site.sql().table(layout)));
            site.query(&statement);
        }
        let ours = site.engine(table(layout));
        let theirs = Theirs { site, layout, owner: "host-1" };
        held(&*ours, &try_claim(layout)).await;
        assert!(!theirs.take(600), "{layout:?}");
    }
}

/// A table that cannot store locks is refused, with the reason.
pub(crate) async fn unusable_tables_are_refused(site: &impl Site, tables: &[(&str, &str)]) {
    for (number, (statement, reason)) in tables.iter().enumerate() {
        let odd = format!("odd_{number}");
        site.query(&statement.replace("ODD", &odd));
        let odd = ForeignTable::new(Layout::Insert).table(&odd).unwrap().column("name").unwrap();
        let engine = site.engine(odd);
        let claim = try_claim(Layout::Insert);
        let refused =
            leasehold_core::Engine::claim(&*engine, &claim, leasehold_core::How::Create).await.unwrap_err();
        assert_eq!(refused.fault, Fault::Misconfigured, "{statement}: {refused:?}");
        assert!(refused.message.contains(reason), "{statement}: {refused:?}");
    }
}
