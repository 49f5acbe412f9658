//! Others who write for long.

use std::time::{Duration, Instant};

use leasehold_core::Fault;

use crate::{
    client::{Client, claim},
    rig::Rig,
};

#[test]
fn who_writes_for_too_long_makes_others_try_again_and_look_meanwhile() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    let job = claim("job");
    let grant = client.hold(&job);
    let other = rig.other();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begin = Instant::now();
    let said = client.show("job").unwrap();
    assert_eq!(said.holders.len(), 1);
    assert!(begin.elapsed() < Duration::from_secs(1), "a look waits for nobody");
    let asked: Vec<_> = (0..3)
        .map(|number| {
            let (engine, next) = (client.engine.clone(), claim(&format!("next-{number}")));
            client.runtime.spawn(async move {
                leasehold_core::Engine::claim(&*engine, &next, leasehold_core::How::Create).await
            })
        })
        .collect();
    for answer in asked {
        let error = client.runtime.block_on(answer).unwrap().expect_err("nobody can write");
        assert_eq!(error.fault, Fault::Retry, "{error:?}");
        assert!(error.message.contains("locks.db"), "{error:?}");
    }
    assert!(
        begin.elapsed() < Duration::from_secs(6),
        "within what a request may take: {:?}",
        begin.elapsed()
    );
    other.execute_batch("ROLLBACK").unwrap();
    client.free(&job, &grant);
    client.hold(&claim("next-0"));
}

#[test]
fn who_writes_for_less_only_makes_others_wait() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    let (first, second) = (claim("first"), claim("second"));
    client.hold(&first);
    let other = rig.other();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begin = Instant::now();
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        other.execute_batch("COMMIT").unwrap();
    });
    client.hold(&second);
    assert!(begin.elapsed() >= Duration::from_millis(299));
    ends.join().unwrap();
}
