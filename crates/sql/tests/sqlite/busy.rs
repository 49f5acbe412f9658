//! Other processes that write for long.

use std::time::Duration;

use leasehold_core::{Answer, Fault};
use leasehold_testkit::stopwatch::Stopwatch;

use crate::{
    client::{Client, claim},
    rig::Rig,
};

#[test]
fn a_long_write_fails_claims_but_not_looks() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    let job = claim("job");
    let grant = client.hold(&job);
    let other = rig.other();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let watch = Stopwatch::start();
    let view = client.show("job").unwrap();
    assert_eq!(view.holders.len(), 1);
    watch.assert_within(Duration::from_secs(1), "a look does not wait for a writer");
    let pending_claims: Vec<_> = (0..3)
        .map(|number| {
            let (engine, next) = (client.engine.clone(), claim(&format!("next-{number}")));
            client.runtime.spawn(async move {
                leasehold_core::Engine::claim(&*engine, &next, leasehold_core::How::Create).await
            })
        })
        .collect();
    for answer in pending_claims {
        let error = client.runtime.block_on(answer).unwrap().expect_err("the file is locked");
        assert_eq!(error.fault, Fault::Retry, "{error:?}");
        assert!(error.message.contains("locks.db"), "{error:?}");
    }
    watch.assert_within(Duration::from_secs(6), "within the time limit of a request");
    other.execute_batch("ROLLBACK").unwrap();
    client.release_hold(&job, &grant);
    client.hold(&claim("next-0"));
}

/// How long a request waits for a writer.
const BUSY: Duration = Duration::from_secs(2);

#[test]
fn a_short_write_only_delays_claims() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    let (first, second) = (claim("first"), claim("second"));
    client.hold(&first);
    loop {
        let other = rig.other();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let watch = Stopwatch::start();
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            other.execute_batch("COMMIT").unwrap();
        });
        let answer = client.create(&second);
        let waited = watch.elapsed();
        ends.join().unwrap();
        match answer {
            Ok(Answer::Held(_)) => break assert!(waited >= Duration::from_millis(300), "{waited:?}"),
            // On a stalled machine the other process wrote for too long.
            Err(error) if error.fault == Fault::Retry => assert!(waited >= BUSY, "{error:?}"),
            other => panic!("{other:?}"),
        }
    }
}
