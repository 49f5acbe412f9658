//! Locks of the recipe `SETNX key time`: keys without expiry whose value is a time in the past.

use std::time::Duration;

use leasehold_core::{Answer, Claim, Engine, Error, How, Mode, Previous};
use leasehold_redis::{Layout, StaleDeadline};

use crate::{
    cluster_rig::ClusterRig,
    rig::{PATIENCE, Rig},
};

/// For how long a time must be over, in ms, as the documentation says.
const MARGIN: i64 = 5000;
/// More than a test takes, in ms.
const FAR: i64 = 600_000;

impl Rig {
    /// A server and a configuration that takes over keys whose time is over.
    pub(crate) fn reclaiming() -> Self {
        let mut rig = Self::new();
        rig.config = rig.config.stale_deadline(StaleDeadline::Reclaim).unwrap();
        rig
    }

    /// The server's time in milliseconds, moved by `offset_ms`.
    pub(crate) fn server_millis(&self, offset_ms: i64) -> i64 {
        let time: Vec<i64> =
            self.server.command(&["TIME"]).iter().map(|part| part.trim().parse().unwrap()).collect();
        time[0] * 1000 + time[1] / 1000 + offset_ms
    }

    /// Values that old programs store for a time at this offset from the server's time.
    fn times(&self, offset_ms: i64) -> [String; 4] {
        let millis = self.server_millis(offset_ms);
        let seconds = millis / 1000;
        [millis.to_string(), seconds.to_string(), format!("{millis}.25"), format!("{seconds}.0123456")]
    }

    fn try_once(&self) -> Result<Previous, Error> {
        let guard = self.locks().mutex("a").blocking().try_acquire()?;
        let previous = guard.previous();
        guard.release_blocking()?;
        Ok(previous)
    }
}

#[test]
fn a_time_that_is_over_is_taken_over_in_every_mode() {
    let rig = Rig::reclaiming();
    for value in rig.times(-MARGIN - 1001) {
        for request in [rig.locks().mutex("a"), rig.locks().rw("a").read(), rig.locks().semaphore("a", 2)] {
            rig.command(&["SET", "lock:a", &value]);
            let note = rig.show("a").note.unwrap();
            assert!(note.contains("the next claim takes the name over"), "{note}");
            let guard = request.blocking().try_acquire().unwrap();
            assert_eq!(guard.previous(), Previous::Lapsed, "its program ended without a release");
            assert!(rig.show("a").note.is_none() && !rig.show("a").holders[0].foreign, "{value}");
            guard.release_blocking().unwrap();
        }
    }
    // The end of the foreign lock does not count for later grants.
    assert_eq!(rig.try_once().unwrap(), Previous::Clean);
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

#[test]
fn without_the_option_the_key_is_taken_and_show_says_why() {
    let rig = Rig::new();
    for value in rig.times(-FAR) {
        rig.command(&["SET", "lock:a", &value]);
        assert!(rig.try_once().unwrap_err().is_taken());
        let view = rig.show("a");
        let note = view.note.unwrap();
        assert!(note.contains("passed 6") && note.contains("put stale_deadline=reclaim"), "{note}");
        assert!(!note.contains('\n') && view.holders[0].foreign && view.holders[0].id == value, "{note}");
        assert_eq!(
            [rig.command(&["GET", "lock:a"]), rig.command(&["TTL", "lock:a"])],
            [value, "-1".to_owned()]
        );
    }
}

/// Values that are no time, times that are not over for longer than the margin, and keys that expire by themselves.
#[test]
fn other_keys_stay_taken() {
    let rig = Rig::reclaiming();
    let mut values: Vec<String> = [
        "",
        "1",
        "locked",
        "0000000001",
        "999999999",
        "99999999999",
        "1600000000000000",
        "1600000000000000000",
    ]
    .map(str::to_owned)
    .into();
    let over = rig.server_millis(-FAR) / 1000;
    let alike =
        [format!("-{over}"), format!("+{over}"), format!(" {over}"), format!("{over}\n"), format!("{over}.")];
    values.extend(alike);
    values.extend([
        format!("{over}e0"),
        format!("{over},5"),
        format!("u7-{over}"),
        format!("{over}.{}", "1".repeat(30)),
    ]);
    values.extend(rig.times(FAR));
    for value in values {
        rig.command(&["SET", "lock:a", &value]);
        assert!(rig.try_once().unwrap_err().is_taken(), "{value:?}");
        assert!(rig.show("a").note.is_none(), "{value:?}");
        assert_eq!(rig.command(&["STRLEN", "lock:a"]), value.len().to_string(), "left as it was");
    }
    // A time that has been over for less than the margin, also when the claim was answered.
    rig.until("an answer comes within the margin", || {
        let value = rig.server_millis(-MARGIN / 2);
        rig.command(&["SET", "lock:a", &value.to_string()]);
        let result = rig.try_once();
        let is_in_time = rig.server_millis(-value) < MARGIN;
        assert!(!is_in_time || result.unwrap_err().is_taken(), "{value}");
        is_in_time
    });
    rig.command(&["SET", "lock:a", &over.to_string(), "PX", "60000"]);
    assert!(rig.try_once().unwrap_err().is_taken(), "the key expires by itself");
    assert!(rig.show("a").note.is_none());
}

/// The claim that waits judges the value that is under the key when it asks, not one that it has read before.
#[test]
fn a_program_that_stores_a_new_time_keeps_its_lock_until_that_time_is_over() {
    let rig = Rig::reclaiming();
    let engine = rig.engine();
    let claim = rig.claim("a");
    rig.command(&["SET", "lock:a", &rig.server_millis(FAR).to_string()]);
    rig.run(async {
        assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Waiting(_))));
        for _ in 0..3 {
            let renewed = rig.server_millis(FAR).to_string();
            rig.command(&["GETSET", "lock:a", &renewed]);
            assert!(matches!(engine.claim(&claim, How::Ask).await, Ok(Answer::Waiting(_))));
            assert_eq!(rig.command(&["GET", "lock:a"]), renewed);
        }
        rig.command(&["SET", "lock:a", &rig.server_millis(-FAR).to_string()]);
        assert!(matches!(engine.claim(&claim, How::Ask).await, Ok(Answer::Held(_))));
    });
}

/// A request that waits is granted without any push.
#[test]
fn a_waiter_takes_over_when_the_time_is_over() {
    let rig = Rig::reclaiming();
    let request = rig.locks().mutex("a").blocking();
    // In half a second the time has been over for the margin.
    rig.command(&["SET", "lock:a", &rig.server_millis(500 - MARGIN).to_string()]);
    let guard = request.acquire_within(PATIENCE).unwrap();
    assert_eq!(guard.previous(), Previous::Lapsed);
}

#[test]
fn a_claim_takes_over_on_a_cluster() {
    let mut rig = ClusterRig::with(2, 0, &[]);
    rig.config = rig.config.clone().stale_deadline(StaleDeadline::Reclaim).unwrap();
    let engine = rig.engine();
    for name in ["a", "b", "{c}d"] {
        let (_, owner, _) = rig.slot_and_nodes(name);
        rig.cluster().command(owner, &["SET", &format!("lock:{name}"), "1600000000"]);
        let claim = Claim { mode: Mode::Exclusive, ..rig.claim(name) };
        assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Held(_))), "{name}");
    }
}

#[test]
fn the_layout_of_redisson_refuses_the_option() {
    let config = Rig::new().config;
    let reclaiming = config.clone().stale_deadline(StaleDeadline::Reclaim).unwrap();
    let error = reclaiming.layout(Layout::Redisson).unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("stale_deadline=reclaim"), "{error}");
    let redisson = config.layout(Layout::Redisson).unwrap();
    assert!(redisson.clone().stale_deadline(StaleDeadline::Taken).is_ok());
    assert!(redisson.stale_deadline(StaleDeadline::Reclaim).is_err());
}

/// The recipe's own race: a program reads a time that is over, and deletes the key later, whatever is under it then.
/// Our holder is told, with the reason, and the next token is larger.
#[test]
fn a_holder_whose_key_the_old_recipe_deletes_is_told() {
    let rig = Rig::reclaiming();
    let guard_over = |rig: &Rig| {
        rig.command(&["SET", "lock:a", &rig.server_millis(-FAR).to_string()]);
        rig.locks().mutex("a").ttl(Duration::from_secs(60)).blocking().try_acquire().unwrap()
    };
    let guard = guard_over(&rig);
    rig.command(&["DEL", "lock:a"]);
    assert_eq!(rig.command(&["SETNX", "lock:a", &rig.server_millis(FAR).to_string()]), "1");
    let error = rig.run(guard.confirm()).unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("another program's value"), "{error}");
    let token = guard.token();
    assert!(!guard.check() && guard.release_blocking().unwrap_err().is_lost());
    assert!(guard_over(&rig).token() > token);
}
