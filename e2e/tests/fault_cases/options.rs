//! Invalid options.

use std::time::Duration;

use leasehold::Locks;

use crate::rig::Rig;

#[test]
fn f15_impossible_lease_times() {
    let (rig, dir) = (Rig::new(), tempfile::tempdir().unwrap());
    let file = format!("file://{}", dir.path().join("locks").display());
    for url in ["memory:f15", &file, &rig.url()] {
        let locks = Locks::connect(url).unwrap();
        for ttl in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999), Duration::MAX] {
            let error = locks.mutex("a").ttl(ttl).blocking().try_acquire().unwrap_err();
            assert!(error.is_invalid(), "{url} {ttl:?}: {error}");
        }
        let error = locks.mutex("a").max_hold(Duration::ZERO).blocking().try_acquire().unwrap_err();
        assert!(error.is_invalid(), "{url}: {error}");
        let guard = locks.mutex("a").max_hold(Duration::MAX).blocking().try_acquire().unwrap();
        assert!(guard.check(), "{url}: the same as without a maximum");
        guard.release_blocking().unwrap();
    }
    assert_eq!(rig.left("lock:a"), -2);
}
