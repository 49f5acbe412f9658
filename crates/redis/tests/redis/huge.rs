//! Huge foreign values: scripts read only a part of them, and other names stay visible.

use std::time::Duration;

use leasehold_core::{Answer, Claim, Engine, Hold, How, Loss, Previous, Release, Released, Renewed};

use crate::rig::{Rig, acquire};

/// The position of the last byte of a value of 40 MiB; all earlier bytes are zeros.
const LAST: &str = "41943039";
/// The most memory that the scripts may use: a script that reads a whole value would use more.
const READ_LIMIT: u64 = 8 << 20;

impl Rig {
    /// The key of the record of a name that is held.
    fn record_of(&self, name: &str) -> String {
        self.command(&["KEYS", &format!("leasehold:{{*}}clock:{name}")])
    }

    /// The server memory that the scripts have used.
    fn script_memory(&self) -> u64 {
        let lines = self.server.command(&["INFO", "memory"]);
        let line = lines.iter().find_map(|line| line.trim().strip_prefix("used_memory_lua:")).unwrap();
        line.parse().unwrap()
    }
}

#[test]
fn huge_values_are_shown_by_their_beginning() {
    let rig = Rig::new();
    let locks = rig.locks();
    let (_held, _bad) = (acquire(&locks, "held"), acquire(&locks, "bad"));
    let record = rig.record_of("bad");
    rig.command(&["DEL", &record]);
    for key in ["lock:big", &record] {
        rig.command(&["SETRANGE", key, LAST, "x"]);
    }
    rig.command(&["SET", "lock:empty", ""]);
    let many = "for i = 1, 100000 do redis.call('HSET', KEYS[1], i, string.rep('x', 99)) end";
    rig.command(&["EVAL", many, "1", "lock:many"]);
    for _ in 0..2 {
        assert!(locks.mutex("big").blocking().try_acquire().unwrap_err().is_taken());
    }
    let views = rig.run(locks.list("")).unwrap();
    let names: Vec<_> = views.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(names, ["bad", "big", "empty", "held", "many"]);
    assert!(views[0].problem.is_some(), "{:?}", views[0]);
    for (index, shown) in [(1, "\0".repeat(128) + "…"), (2, "(empty)".into()), (4, "(hash)".into())] {
        let [holder] = &views[index].holders[..] else { panic!("{:?}", views[index]) };
        assert!(holder.foreign && holder.id == shown, "{holder:?}");
    }
    assert_eq!(views[3].holders[0].owner, rig.show("held").holders[0].owner);
    assert!(rig.script_memory() < READ_LIMIT, "{} bytes were read", rig.script_memory());
}

/// The fast path of a claim reads the lock key and the record, so both are tested with a huge value.
#[test]
fn claims_do_not_read_a_whole_huge_value() {
    let rig = Rig::new();
    let locks = rig.locks();
    let guard = acquire(&locks, "a");
    rig.command(&["SETRANGE", "lock:a", LAST, "x"]);
    assert!(rig.command(&["EXISTS", &rig.record_of("a")]) == "1");
    for _ in 0..2 {
        assert!(locks.mutex("a").blocking().try_acquire().is_err());
        assert!(rig.locks().mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    }
    assert!(rig.script_memory() < READ_LIMIT, "{} bytes were read", rig.script_memory());
    drop(guard);
}

/// The first step of the scan takes so long that the client closes the connection, as with long keys on a busy machine.
#[test]
fn a_list_resumes_after_a_slow_step() {
    let rig = Rig::new();
    let locks = rig.locks();
    let _held = locks.mutex("held").ttl(Duration::from_secs(3600)).blocking().acquire().unwrap();
    rig.command(&["CLIENT", "PAUSE", "4000"]);
    let names: Vec<_> = rig.run(locks.list("")).unwrap().into_iter().map(|view| view.name).collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

/// The fast paths of renewals and releases read the lock key first.
#[test]
fn renewals_and_releases_do_not_read_a_whole_huge_value() {
    let rig = Rig::new();
    let (engine, claim) = (rig.engine(), rig.claim("a"));
    rig.run(async {
        let Ok(Answer::Held(grant)) = engine.claim(&claim, How::Create).await else { panic!("it is free") };
        rig.command(&["SETRANGE", "lock:a", LAST, "x"]);
        let Claim { id, name, mode, ttl, .. } = claim.clone();
        let hold = Hold { id, name: name.clone(), mode, token: grant.token, ttl };
        assert!(matches!(engine.renew(&[hold]).await[..], [Renewed::Lost(Loss::Overwritten)]));
        assert!(rig.script_memory() < READ_LIMIT, "{} bytes were read to renew", rig.script_memory());
        let ended = Previous::Clean;
        let release = Release { id, name, mode, token: Some(grant.token), ended, min_hold: None };
        assert!(matches!(engine.release(&[release]).await[..], [Released::NotThere]));
        assert!(rig.script_memory() < READ_LIMIT, "{} bytes were read to release", rig.script_memory());
    });
}

#[test]
fn huge_keys_hide_no_name_from_a_list() {
    let rig = Rig::new();
    let locks = rig.locks();
    // The ttl is long, because the server answers no renewal while it writes the keys below.
    let _held = locks.mutex("held").ttl(Duration::from_secs(3600)).blocking().acquire().unwrap();
    let long = "for i = 1, 65 do redis.call('SET', KEYS[1] .. i .. string.rep('x', 1048576), '1') end";
    rig.command(&["EVAL", long, "1", "lock:"]);
    let views = rig.run(locks.list("")).unwrap();
    let [held] = &views[..] else { panic!("{} names", views.len()) };
    assert!(held.name.as_str() == "held" && held.holders.len() == 1, "{held:?}");
}

/// Whoever looks at ten thousand names does not wait for ten thousand round trips. The server counts how often it has
/// read from a connection: several requests that were sent together are one read.
#[test]
fn the_names_of_a_list_are_asked_for_together() {
    let rig = Rig::new();
    let locks = rig.locks();
    let many = "for i = 1, 640 do redis.call('SET', 'lock:' .. i, 'x') end";
    rig.command(&["EVAL", many, "0"]);
    let reads = || -> u64 {
        let lines = rig.server.command(&["INFO", "stats"]);
        let line = lines.iter().find_map(|line| line.trim().strip_prefix("total_reads_processed:"));
        line.unwrap().parse().unwrap()
    };
    rig.run(locks.list("")).unwrap();
    let before = reads();
    assert_eq!(rig.run(locks.list("")).unwrap().len(), 640);
    let reads = reads() - before;
    assert!(reads < 320, "{reads} reads for 640 names");
}
