//! The Redis engine conforms on a Redis Cluster.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Engine, Env};
use leasehold_redis::RedisEngine;
use leasehold_testkit::suite::{self, Disturbance, Harness, left_at_rest};

use crate::{
    cluster_rig::ClusterRig,
    oracle::answers_as_the_oracle,
    rig::{AT_ONCE, PATIENCE},
};

impl Harness for ClusterRig {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        Box::pin(async { Arc::new(RedisEngine::new(self.config.clone(), &Env::system())) as Arc<dyn Engine> })
    }

    fn advance(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        let commands: &[&[&str]] = match kind {
            Disturbance::Forget => &[&["FLUSHALL"]],
            Disturbance::Cut => {
                &[&["CLIENT", "KILL", "TYPE", "normal"], &["CLIENT", "KILL", "TYPE", "pubsub"]]
            }
            _ => return Box::pin(std::future::ready(false)),
        };
        for node in self.masters() {
            commands.iter().for_each(|command| drop(self.cluster().command(node, command)));
        }
        Box::pin(std::future::ready(true))
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn at_rest(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(left_at_rest(|| self.leftovers()))
    }
}

#[test]
fn the_redis_engine_conforms_on_a_cluster() {
    let report = suite::engine(&ClusterRig::new());
    assert!(report.passed.len() > 80, "{report}");
}

#[test]
fn a_cluster_answers_as_the_oracle_does() {
    let rig = ClusterRig::with(3, 0, &[]);
    answers_as_the_oracle(|| rig.engine(), 100);
}
