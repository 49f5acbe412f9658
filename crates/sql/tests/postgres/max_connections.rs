//! The largest number of connections of a client.

use std::{sync::Arc, thread, time::Duration};

use leasehold_core::{Answer, Claim, Engine, Env, Hold, How, Renewed};
use leasehold_sql::postgres::engine;

use crate::rig::{Rig, config, until};

/// How many claims wait for a row at the same time: more than there are connections.
const BLOCKED: usize = 8;
/// A connection that has just been closed is still counted for a moment: only this many counts in a row matter.
const COUNTS: usize = 5;
const RENEWALS: usize = 40;

/// Claims that wait for rows do not use all connections, however few there are: renewals find one. And there are never
/// more than allowed.
#[test]
fn a_client_keeps_within_its_connections_and_renews() {
    for (most, reached) in [(3, 2), (100, 4)] {
        let rig = Rig::new();
        let config = config(&rig.server.url()).max_connections(most).unwrap();
        let engine = Arc::new(engine(config, &Env::system()));
        let held = rig.claim("held");
        let Ok(Answer::Held(grant)) = rig.run(engine.claim(&held, How::Create)) else { panic!() };
        let _blocker = rig.run(async {
            let (blocker, connection) =
                tokio_postgres::connect(&rig.server.url(), tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            for number in 0..BLOCKED {
                let claim = rig.claim(&number.to_string());
                assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Held(_))));
            }
            blocker
                .batch_execute("BEGIN; SELECT FROM leasehold_lock WHERE name < 'held' FOR UPDATE")
                .await
                .unwrap();
            blocker
        });
        let blocked: Vec<_> = rig.run(async {
            let block = |number: usize| {
                let (engine, claim) = (Arc::clone(&engine), rig.claim(&number.to_string()));
                tokio::spawn(async move {
                    loop {
                        let _ = engine.claim(&claim, How::Create).await;
                    }
                })
            };
            (0..BLOCKED).map(block).collect()
        });
        let is_excess = |_| {
            thread::sleep(Duration::from_millis(20));
            rig.connections() > most
        };
        let excess = || (0..COUNTS).all(is_excess);
        let Claim { id, name, mode, ttl, .. } = held.clone();
        let hold = Hold { id, name, mode, token: grant.token, ttl };
        for renewal in 0..RENEWALS {
            let renewed = rig.run(engine.renew(std::slice::from_ref(&hold)));
            assert!(matches!(renewed[..], [Renewed::Extended { .. }]), "renewal {renewal}: {renewed:?}");
            assert!(!excess(), "{} connections", rig.connections());
        }
        until("the connections are used", || rig.connections() >= reached);
        blocked.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[test]
fn too_few_connections_are_refused() {
    for most in [0, 1, 2] {
        let error = config("postgres://h/d").max_connections(most).unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("3 connections"), "{error}");
    }
}
