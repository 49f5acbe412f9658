//! The fence refuses the writes of a holder once a larger token was shown to it.

use std::time::Duration;

use leasehold_redis::{Fence, Guarded, Reply};

use crate::rig::{Rig, acquire};

#[test]
fn a_stale_holder_cannot_write_once_the_next_has_sealed() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    let fence = Fence::new(rig.engine(), "stock");
    let stale = locks.mutex("a").ttl(Duration::from_millis(200)).renew(false).blocking().acquire().unwrap();
    let write =
        |token: u64, text: &str| rig.run(fence.write(token, &[&["SET", "stock", text], &["GET", "stock"]]));
    let done = |text: &str| Guarded::Done(vec![Reply::Bytes(b"OK".to_vec()), Reply::Bytes(text.into())]);
    assert_eq!(write(stale.token().number, "10").unwrap(), done("10"));
    let next = acquire(&other, "a");
    // F79: between the next grant and its seal the stale holder can still write. After the seal the stale holder cannot
    // change the data that the next holder reads.
    assert_eq!(write(stale.token().number, "9").unwrap(), done("9"));
    assert_eq!(rig.run(fence.write::<&str>(next.token().number, &[])).unwrap(), Guarded::Done(Vec::new()));
    let refused = Guarded::Overtaken(next.token().number);
    assert_eq!(write(stale.token().number, "8").unwrap(), refused);
    assert_eq!(rig.command(&["GET", "stock"]), "9");
    assert_eq!(write(next.token().number, "7").unwrap(), done("7"));
    assert_eq!(
        rig.command(&["TTL", &rig.server.command(&["KEYS", "leasehold:*flock:stock"])[0]]),
        "-1",
        "F70: the fence does not expire"
    );
}

#[test]
fn each_resource_has_its_own_fence_and_errors_are_reported() {
    let rig = Rig::new();
    let (one, two) = (Fence::new(rig.engine(), "one"), Fence::new(rig.engine(), "two"));
    assert!(matches!(rig.run(one.write::<&str>(2, &[])), Ok(Guarded::Done(_))));
    assert!(matches!(rig.run(two.write::<&str>(1, &[])), Ok(Guarded::Done(_))));
    assert_eq!(rig.run(one.write::<&str>(1, &[])).unwrap(), Guarded::Overtaken(2));
    rig.command(&["LPUSH", "list", "x"]);
    let error = rig.run(one.write(2, &[&["GET", "list"]])).unwrap_err();
    assert_eq!(error.fault, leasehold_core::Fault::Misconfigured, "{error}");
    let lists = rig
        .run(one.write(2, &[["LRANGE", "list", "0", "-1"].as_slice(), &["GET", "none"], &["LLEN", "list"]]));
    let expected = [Reply::List(vec![Reply::Bytes(b"x".to_vec())]), Reply::Nothing, Reply::Number(1)];
    assert_eq!(lists.unwrap(), Guarded::Done(expected.to_vec()));
}
