//! The database of [`hostile`](crate::hostile) with the engines that have no tables of their own: locks of sessions,
//! rows of other programs, and tables of other programs.

use std::sync::Arc;

use leasehold_core::{Engine, Env, Locks};
use leasehold_sql::{
    ForeignTable, Layout, RowTable,
    postgres::{Config, foreign_table_engine, row_engine, session_engine},
};

use crate::{
    hostile::TRAPS,
    rig::{Rig, acquire},
    session::rig::at_once,
};

/// Makes a client.
type NewClient<'a> = &'a dyn Fn() -> Arc<dyn Engine>;

#[test]
fn no_function_operator_or_type_of_others_is_used_without_own_tables() {
    let rig = Rig::new();
    for text in [
        "CREATE ROLE app LOGIN; CREATE SCHEMA app AUTHORIZATION app",
        // The worst path: it also finds exact matches of the system after those of others.
        "ALTER ROLE app SET search_path = public, pg_catalog",
        "CREATE TABLE jobs (name varchar(50) PRIMARY KEY); GRANT SELECT, UPDATE ON jobs TO app",
        "INSERT INTO jobs VALUES ('nightly')",
        TRAPS,
    ] {
        rig.server.query(text);
    }
    let config = || Config::from_url(&format!("//app@127.0.0.1:{}/postgres", rig.server.port())).unwrap();
    let session = || Arc::new(session_engine(config(), at_once(), &Env::system())) as Arc<dyn Engine>;
    let row = || Arc::new(row_engine(config(), RowTable::new("jobs", "name").unwrap())) as Arc<dyn Engine>;
    let table = || {
        let config = config().schema("app").unwrap();
        let table = ForeignTable::new(Layout::Shedlock).create();
        Arc::new(foreign_table_engine(config, table, &Env::system())) as Arc<dyn Engine>
    };
    let modes: [(&str, NewClient<'_>); 3] =
        [("hold=session", &session), ("hold=row", &row), ("layout=", &table)];
    for (mode, engine) in modes {
        let locks_of = || Locks::builder(engine()).build();
        let (locks, other) = (locks_of(), locks_of());
        let guard = acquire(&locks, "nightly");
        assert!(other.mutex("nightly").blocking().try_acquire().unwrap_err().is_taken());
        let waiting = std::thread::spawn(move || acquire(&other, "nightly").release_blocking().unwrap());
        rig.run(async {
            locks.guarantee().await.unwrap();
            let looker = locks_of();
            assert_eq!(looker.show("nightly").await.unwrap().holders.len(), 1, "{mode}");
            assert!(!looker.list("").await.unwrap().is_empty(), "{mode}");
            guard.confirm().await.unwrap();
        });
        guard.release_blocking().unwrap();
        waiting.join().unwrap();
        let executed = rig.server.query("SELECT DISTINCT what FROM public.executed");
        assert_eq!(executed, [""; 0], "{mode}");
    }
}
