//! The largest number of connections of a client.

use std::{sync::Arc, thread, time::Duration};

use leasehold_core::{Answer, Claim, Engine, Env, Hold, How, Renewed};
use leasehold_sql::mysql::{Config, engine};

use crate::{
    rig::{Rig, claim},
    until::until,
};

/// How many claims wait for a row at the same time: more than there are connections.
const BLOCKED: usize = 8;
/// A connection that has just been closed is still counted for a moment: only this many counts in a row matter.
const COUNTS: usize = 5;
const RENEWALS: usize = 5;

/// Claims that wait for rows do not use all connections, however few there are: renewals find one. And there are never
/// more than allowed.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_keeps_within_its_connections_and_renews() {
    for (most, reached) in [(2, 2), (100, 4)] {
        let rig = Rig::new();
        rig.server.query("CREATE USER locker@'%'");
        rig.server.query("GRANT ALL ON locks.* TO locker@'%'");
        let url = format!("//locker@127.0.0.1:{}/locks", rig.server.port());
        let config = Config::from_url(&url).unwrap().max_connections(most).unwrap();
        let engine = Arc::new(engine(config, &Env::system()));
        let held = claim("held");
        let Ok(Answer::Held(grant)) = engine.claim(&held, How::Create).await else { panic!() };
        for number in 0..BLOCKED {
            let answer = engine.claim(&claim(&number.to_string()), How::Create).await;
            assert!(matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
        }
        let mut blocker = mysql_async::Conn::from_url(rig.server.url()).await.unwrap();
        // One statement for several names would perhaps scan, and lock, the whole table.
        let lock = |number| format!("SELECT * FROM leasehold_lock WHERE name = '{number}' FOR UPDATE");
        for statement in std::iter::once("BEGIN".to_owned()).chain((0..BLOCKED).map(lock)) {
            mysql_async::prelude::Queryable::query_drop(&mut blocker, statement).await.unwrap();
        }
        let block = |number: usize| {
            let (engine, claim) = (Arc::clone(&engine), claim(&number.to_string()));
            tokio::spawn(async move {
                loop {
                    let _ = engine.claim(&claim, How::Create).await;
                }
            })
        };
        let blocked: Vec<_> = (0..BLOCKED).map(block).collect();
        let connections = || -> usize {
            let query = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'locker'";
            rig.server.query(query)[0].parse().unwrap()
        };
        let is_excess = |_| {
            thread::sleep(Duration::from_millis(20));
            connections() > most
        };
        let Claim { id, name, mode, ttl, .. } = held;
        let hold = [Hold { id, name, mode, token: grant.token, ttl }];
        for renewal in 0..RENEWALS {
            let renewed = engine.renew(&hold).await;
            assert!(matches!(renewed[..], [Renewed::Extended { .. }]), "renewal {renewal}: {renewed:?}");
            assert!(!(0..COUNTS).all(is_excess), "{} connections", connections());
        }
        until("the connections are used", || connections() >= reached);
        blocked.iter().for_each(tokio::task::JoinHandle::abort);
        drop(blocker);
    }
}

#[test]
fn too_few_connections_are_refused() {
    for most in [0, 1] {
        let error = Config::from_url("//h/d").unwrap().max_connections(most).unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("2 connections"), "{error}");
    }
}
