//! A look changes nothing.

use leasehold_core::{Broken, Env, Inspect, Name};
use leasehold_sql::postgres::{Config, SCHEMA, engine};
use leasehold_testkit::server::{PgBouncer, psql};

use crate::rig::{Rig, acquire, engine_of};

#[test]
fn a_look_makes_no_tables() {
    let rig = Rig::new();
    let pooler = PgBouncer::start(rig.server.port());
    let name = Name::new("a").unwrap();
    let tables = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'leasehold%'";
    let at = |port: u16| Config::from_url(&format!("//postgres@127.0.0.1:{port}/postgres")).unwrap();
    let pooled = at(pooler.port()).listen(at(rig.server.port()));
    let (direct, pooled) = (rig.engine(), engine(pooled, &Env::system()));
    let engines = [&*direct, &pooled];
    for looks in engines {
        assert!(rig.run(looks.show(&name)).unwrap().holders.is_empty());
        assert!(rig.run(looks.list("")).unwrap().is_empty());
        rig.run(looks.guarantee()).unwrap();
        assert!(matches!(rig.run(looks.break_hold(&name, 1, false)), Ok(Broken::NotHeld)));
        assert_eq!(rig.server.says(tables), [""; 0]);
    }
    // Once somebody made them, it sees what is in them.
    let held = acquire(&rig.locks(), "a");
    for looks in engines {
        assert_eq!(rig.run(looks.show(&name)).unwrap().holders.len(), 1);
    }
    held.release_blocking().unwrap();
}

/// Who may not see the tables is not told that names are free.
#[test]
fn a_look_without_the_right_to_it_is_denied() {
    let rig = Rig::new();
    let said = psql(rig.server.port(), &["-c", SCHEMA]);
    assert!(said.status.success(), "{said:?}");
    rig.server.says("CREATE ROLE nobody LOGIN");
    let looks = engine_of("nobody", rig.server.port());
    let error = rig.run(looks.list("")).unwrap_err();
    assert_eq!(error.fault, leasehold_core::Fault::Denied, "{error:?}");
}
