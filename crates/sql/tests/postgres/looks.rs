//! A look changes nothing.

use leasehold_core::{Broken, Engine, Env, Fault, How, Inspect, Level, Name};
use leasehold_sql::postgres::{Config, SCHEMA, engine};
use leasehold_testkit::server::{PgBouncer, PostgresServer, psql};

use crate::rig::{Rig, acquire, engine_of, until};

#[test]
fn a_look_creates_no_tables() {
    let rig = Rig::new();
    let pooler = PgBouncer::start(rig.server.port());
    let name = Name::new("a").unwrap();
    let tables = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'leasehold%'";
    let at = |port: u16| Config::from_url(&format!("//postgres@127.0.0.1:{port}/postgres")).unwrap();
    let pooled = at(pooler.port()).listen(at(rig.server.port()));
    let (direct, pooled) = (rig.engine(), engine(pooled, &Env::system()));
    let engines = [&*direct, &pooled];
    for engine in engines {
        assert!(rig.run(engine.show(&name)).unwrap().holders.is_empty());
        assert!(rig.run(engine.list("")).unwrap().is_empty());
        rig.run(engine.guarantee()).unwrap();
        assert!(matches!(rig.run(engine.break_hold(&name, 1, false)), Ok(Broken::NotHeld)));
        assert_eq!(rig.server.query(tables), [""; 0]);
    }
    // Once the tables exist, a look shows their rows.
    let held = acquire(&rig.locks(), "a");
    for engine in engines {
        assert_eq!(rig.run(engine.show(&name)).unwrap().holders.len(), 1);
    }
    held.release_blocking().unwrap();
}

/// A user without rights to the tables gets an error, not the answer that names are free.
#[test]
fn a_look_without_rights_is_denied() {
    let rig = Rig::new();
    let output = psql(rig.server.port(), &["-c", SCHEMA]);
    assert!(output.status.success(), "{output:?}");
    rig.server.query("CREATE ROLE nobody LOGIN");
    let engine = engine_of("nobody", rig.server.port());
    let error = rig.run(engine.list("")).unwrap_err();
    assert_eq!(error.fault, Fault::Denied, "{error:?}");
}

/// A replica refuses claims, also on a connection that was used for a look before. The tokens of a replica have no
/// lineage, because the replica may be behind its primary.
#[test]
fn a_replica_shows_holds_and_refuses_claims() {
    let rig = Rig::of(PostgresServer::durable(&["synchronous_standby_names=", "wal_level=replica"]));
    let output = psql(rig.server.port(), &["-c", SCHEMA, "-c", crate::rights::ROLES]);
    assert!(output.status.success(), "{output:?}");
    let replica = rig.server.replica();
    let held = acquire(&rig.locks(), "a");
    let pooler = PgBouncer::start(replica.port());
    let at = |port: u16| Config::from_url(&format!("//postgres@127.0.0.1:{port}/postgres")).unwrap();
    let pooled = engine(at(pooler.port()).listen(at(replica.port())), &Env::system());
    let (root, viewer) =
        (engine_of("postgres", replica.port()), engine_of("leasehold_viewer", replica.port()));
    let name = Name::new("a").unwrap();
    for engine in [&*root, &*viewer, &pooled] {
        until("the replica has the row", || rig.run(engine.show(&name)).unwrap().holders.len() == 1);
        let view = rig.run(engine.show(&name)).unwrap();
        assert_eq!((view.holders[0].token, view.lineage), (Some(held.token().number), None));
        let listed = rig.run(engine.list("")).unwrap();
        assert_eq!(listed.iter().map(|view| view.name.as_str()).collect::<Vec<_>>(), ["a"]);
        let promised = rig.run(engine.guarantee()).unwrap();
        assert!(promised.level == Level::BestEffort, "{promised}");
        assert!(promised.to_string().contains("behind"), "{promised}");
        let claim = rig.claim("b");
        for failed in [
            rig.run(engine.claim(&claim, How::Create)).map(drop),
            rig.run(engine.break_hold(&claim.name, 1, true)).map(drop),
            rig.run(engine.ping()),
        ] {
            let error = failed.unwrap_err();
            assert!(error.message.contains("name the primary"), "{error:?}");
        }
        assert_eq!(rig.run(engine.show(&name)).unwrap().holders.len(), 1, "once more");
    }
    held.release_blocking().unwrap();
}
