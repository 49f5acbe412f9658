//! What operators see, and what they can end.

use leasehold_core::{Inspect, Mode, Name};

use super::rig::SessionRig;
use crate::rig::{acquire, until};

/// Another process sees the key, the session of the holder, and its program.
#[test]
fn a_holder_is_shown_by_its_session() {
    let rig = SessionRig::new();
    let locks = rig.locks();
    let guard = acquire(&locks, "a");
    let pid =
        rig.server.query("SELECT pid FROM pg_stat_activity WHERE application_name = 'leasehold'").remove(0);
    let view = rig.show("a");
    let holder = &view.holders[0];
    assert_eq!((view.mode, holder.id.as_str()), (Some(Mode::Exclusive), format!("pid {pid}").as_str()));
    assert_eq!(holder.owner, format!("pid {pid} leasehold postgres 127.0.0.1"));
    assert!(holder.of_session && !holder.foreign && holder.token.is_none());
    let shown = rig.server.query(
        "SELECT 'classid ' || classid || ' objid ' || objid || ' objsubid ' || objsubid FROM pg_locks WHERE locktype = 'advisory'",
    );
    assert_eq!(view.key, shown[0]);
    // The process itself knows more.
    let own = rig.run(locks.show("a")).unwrap();
    assert_eq!(own.holders[0].token, Some(guard.token().number));
    let listed = rig.run(locks.list("a")).unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    let elsewhere = rig.run(rig.locks().list("")).unwrap();
    assert!(elsewhere[0].name.as_str().starts_with('(') && elsewhere[0].note.is_some(), "{elsewhere:?}");
    guard.release_blocking().unwrap();
    until("the name is free", || rig.show("a").holders.is_empty());
}

/// A hold cannot be broken alone: the message says which session to end, and how.
#[test]
fn a_break_is_refused_with_the_statement_that_ends_the_session() {
    let rig = SessionRig::new();
    let guard = acquire(&rig.locks(), "a");
    let pid =
        rig.server.query("SELECT pid FROM pg_stat_activity WHERE application_name = 'leasehold'").remove(0);
    let (engine, name) = (rig.engine(), Name::new("a").unwrap());
    let error = rig.run(engine.break_hold(&name, guard.token().number, true)).unwrap_err();
    let statement = format!("SELECT pg_terminate_backend({pid})");
    assert!(error.message.contains(&statement), "{error}");
    rig.server.query(&statement);
    until("the holder is told", || !guard.check());
    assert_eq!(rig.run(engine.break_hold(&name, 1, false)).unwrap(), leasehold_core::Broken::NotHeld);
}
