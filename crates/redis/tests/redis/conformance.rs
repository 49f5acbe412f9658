//! The Redis engine conforms.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Engine};
use leasehold_testkit::suite::{self, Disturbance, Harness};

use crate::rig::Rig;

/// Places in line and silent claims end after a minute at the latest; what is left is looked at as soon as it is gone.
const AT_REST_LIMIT: Duration = Duration::from_secs(80);

impl Harness for Rig {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        Box::pin(async { self.engine() as Arc<dyn Engine> })
    }

    fn advance(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        match kind {
            Disturbance::Forget => drop(self.server.command(&["FLUSHALL"])),
            Disturbance::Cut => {
                drop(self.server.command(&["CLIENT", "KILL", "TYPE", "normal"]));
                drop(self.server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]));
            }
            _ => return Box::pin(std::future::ready(false)),
        }
        Box::pin(std::future::ready(true))
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }

    fn at_rest(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let limit = tokio::time::Instant::now() + AT_REST_LIMIT;
            loop {
                let left = self.leftovers();
                if left.is_empty() || tokio::time::Instant::now() > limit {
                    return left;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    }
}

#[test]
fn the_redis_engine_conforms() {
    let report = suite::engine(&Rig::new());
    assert!(report.passed.len() > 80, "{report}");
}
