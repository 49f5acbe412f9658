//! The second in which a server was started. Tokens begin with that second, so those of a server that is killed and
//! started again in one second would come again.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Engine, Env, Fault, How};
use leasehold_sql::{
    ForeignTable, Layout, RowTable, SessionOptions,
    mysql::{Config, foreign_table_engine, row_engine, session_engine},
};

use crate::rig::{Rig, USER, as_user, claim, claim_and_hold};

/// The second with which tokens begin.
const SECOND_OF_THE_START: &str = "SELECT UUID_SHORT() >> 24 & 4294967295";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_granted_in_the_second_in_which_the_server_started() {
    let rig = Rig::new();
    for text in [
        "CREATE TABLE jobs (name varchar(50) NOT NULL PRIMARY KEY) ENGINE = InnoDB",
        "INSERT INTO jobs VALUES ('nightly')",
        USER,
        "GRANT ALL ON locks.* TO locker@'%'",
    ] {
        rig.server.query(text);
    }
    let second: u64 = rig.server.query(SECOND_OF_THE_START).concat().parse().unwrap();
    let config = || Config::from_url(&as_user(&rig)).unwrap();
    let options = SessionOptions::default().delay(Duration::ZERO).unwrap();
    let table = ForeignTable::new(Layout::Symfony).create();
    let engines: [(&str, Arc<dyn Engine>); 3] = [
        ("hold=session", Arc::new(session_engine(config(), options, &Env::system()))),
        ("hold=row", Arc::new(row_engine(config(), RowTable::new("jobs", "name").unwrap()))),
        ("layout=", Arc::new(foreign_table_engine(config(), table, &Env::system()))),
    ];
    // For new sessions of this user the clock stands still: in the second of the start, and a minute before it, as if
    // the clock had been set back.
    for now in [second, second - 60] {
        rig.server.query(&format!("SET GLOBAL init_connect = 'SET timestamp = {now}'"));
        let mut granted = Vec::new();
        for (mode, engine) in &engines {
            match engine.claim(&claim("nightly"), How::Create).await {
                Err(error) if error.fault == Fault::Retry => {}
                answer => granted.push((mode, answer)),
            }
        }
        assert!(granted.is_empty(), "{granted:?}");
    }
    rig.server.query("SET GLOBAL init_connect = ''");
    rig.wait_until_it_grants();
    for (_, engine) in &engines {
        claim_and_hold(&**engine, &claim("nightly")).await;
    }
}
