//! Conformance of the Redis engine on one server.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Answer, BoxFuture, Engine, Env, Hold, How, Notification, Previous, Release, Renewed};
use leasehold_redis::RedisEngine;
use leasehold_testkit::{
    server::redis_command,
    suite::{self, Disturbance, Harness},
};

use crate::rig::Rig;

/// Queue entries, and claims whose client is gone, expire after a minute at the latest. The check for leftovers ends as
/// soon as they are gone.
const AT_REST_LIMIT: Duration = Duration::from_secs(80);

impl Harness for Rig {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        Box::pin(async { Arc::new(RedisEngine::new(self.config.clone(), &Env::system())) as Arc<dyn Engine> })
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        match (kind, &self.proxy) {
            (Disturbance::Forget, _) => drop(self.server.command(&["FLUSHALL"])),
            (Disturbance::HoldAnswers, Some(proxy)) => proxy.hold_answers(),
            (Disturbance::Cut, Some(proxy)) => proxy.reset(),
            (Disturbance::Cut, None) => {
                drop(self.server.command(&["CLIENT", "KILL", "TYPE", "normal"]));
                drop(self.server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]));
            }
            _ => return Box::pin(std::future::ready(false)),
        }
        Box::pin(std::future::ready(true))
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
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

/// The users with the documented rights: see docs/engines/redis.md.
const USERS: &str = include_str!("../../../../docs/engines/redis.acl");
pub(crate) const PASSWORD: &str = "correct-horse";

/// Whether the server knows rights on channels. Redis 6.0 does not, and refuses a file of users with such a right.
pub(crate) fn has_rights_on_channels() -> bool {
    let rig = Rig::new();
    redis_command(rig.server.port(), &["ACL", "SETUSER", "probe", "resetchannels"]).status.success()
}

/// The users for Redis 6.0, as documented: the same file without the rights on channels.
pub(crate) fn without_channel_rights(users: &str) -> String {
    let line = |line: &str| {
        let words = line.split(' ').filter(|word| *word != "resetchannels" && !word.starts_with('&'));
        words.collect::<Vec<_>>().join(" ")
    };
    users.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

/// A server with the documented users; the clients log in as `name`.
pub(crate) fn as_user(name: &str) -> (tempfile::TempDir, Rig) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users.acl");
    let everyone = format!("user default on nopass ~* &* +@all\n{}", USERS.replace("CHANGE-ME", PASSWORD));
    let everyone = if has_rights_on_channels() { everyone } else { without_channel_rights(&everyone) };
    std::fs::write(&file, everyone).unwrap();
    let mut rig = Rig::with(&["--aclfile", file.to_str().unwrap()]);
    rig.config = rig.config.login(name, PASSWORD);
    (directory, rig)
}

#[test]
fn the_engine_conforms_with_operator_rights() {
    let (_directory, mut rig) = as_user("leasehold-operator");
    rig.use_proxy("leasehold-operator", PASSWORD);
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 80, "{report}");
}

/// The user has no right to MGET, INCRBY and HEXISTS. Every fast path needs one of them.
#[test]
fn the_engine_conforms_without_its_fast_paths() {
    let (_directory, rig) = as_user("leasehold-operator");
    rig.server.command(&["ACL", "SETUSER", "leasehold-operator", "-mget", "-incrby", "-hexists"]);
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 80, "{report}");
}

#[test]
fn locker_rights_allow_locking_and_nothing_else() {
    let (_directory, rig) = as_user("leasehold");
    let locks = rig.locks();
    let reader = locks.rw("r").read().blocking().acquire().unwrap();
    let permit = locks.semaphore("s", 2).blocking().acquire().unwrap();
    let (guard, other) = (locks.mutex("m").blocking().acquire().unwrap(), rig.locks());
    let waiting =
        std::thread::spawn(move || other.mutex("m").blocking().acquire_within(crate::rig::PATIENCE));
    rig.until("it waits", || rig.show("m").waiters.len() == 1);
    rig.run(guard.confirm()).unwrap();
    let set = locks.all().mutex("x").read("y").permits("z", 1, 2);
    set.blocking().try_acquire().unwrap().release_blocking().unwrap();
    for guard in [guard, reader, permit] {
        guard.release_blocking().unwrap();
    }
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
    rig.command(&["SET", "lock:theirs", "x"]);
    rig.command(&["HSET", "lock:hash", "x", "1"]);
    for name in ["theirs", "hash"] {
        assert!(rig.run(locks.show(name)).unwrap().holders[0].foreign, "{name}");
    }
    for error in [rig.run(locks.list("")).unwrap_err(), rig.run(locks.guarantee()).unwrap_err()] {
        assert!(error.is_denied() && error.to_string().contains("docs/engines/redis.md"), "{error}");
    }
    let channels: &[&[&str]] = &[&["SUBSCRIBE", "other"], &["PUBLISH", "other", "x"]];
    let channels = if has_rights_on_channels() { channels } else { &[] };
    for &command in [
        ["KEYS", "*"].as_slice(),
        &["GET", "other"],
        &["SET", "other", "x"],
        &["FLUSHALL"],
        &["CONFIG", "GET", "*"],
        &["EVAL", "return 1", "0"],
        &["CLIENT", "LIST"],
        &["PSUBSCRIBE", "*"],
    ]
    .iter()
    .chain(channels)
    {
        let login = ["--user", "leasehold", "--pass", PASSWORD, "--no-auth-warning"];
        let all: Vec<&str> = login.iter().chain(command).copied().collect();
        let output = redis_command(rig.server.port(), &all);
        let output = [output.stdout, output.stderr].concat();
        assert!(
            String::from_utf8_lossy(&output).contains("NOPERM"),
            "{command:?}: {}",
            String::from_utf8_lossy(&output)
        );
    }
}

#[test]
fn the_engine_conforms_with_the_old_protocol() {
    let report = suite::engine(&Rig::with(&["--rename-command", "HELLO", ""]));
    assert!(report.passed.len() > 80, "{report}");
}

/// Only the full scripts search the queue with ZRANGEBYSCORE. After a name needed a full script, its next hand-overs
/// use the fast path again.
#[test]
fn hand_overs_return_to_the_fast_path() {
    let rig = Rig::new();
    let walks = || {
        let stats = rig.server.command(&["INFO", "commandstats"]);
        let line = stats.iter().find_map(|line| line.strip_prefix("cmdstat_zrangebyscore:calls="));
        line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse::<u32>().unwrap())
    };
    let engines = [rig.engine(), rig.engine()];
    rig.run(async {
        engines[1].claim(&rig.claim("b"), How::Create).await.unwrap();
        let mut holder = rig.claim("a");
        let Ok(Answer::Held(mut grant)) = engines[0].claim(&holder, How::Create).await else {
            panic!("it is free")
        };
        let shares = leasehold_core::Claim { mode: leasehold_core::Mode::Shared, ..rig.claim("c") };
        engines[0].claim(&shares, How::Create).await.unwrap();
        assert!(walks() > 0, "the full script ran");
        rig.command(&["CONFIG", "RESETSTAT"]);
        for turn in 0..10 {
            let (holder_engine, waiter_engine) = (&engines[turn % 2], &engines[(turn + 1) % 2]);
            let next = rig.claim("a");
            assert!(matches!(waiter_engine.claim(&next, How::Create).await, Ok(Answer::Waiting(_))));
            if turn == 4 {
                // A hold whose grant was confirmed is handed over by the fast path, too.
                let hold = Hold {
                    name: holder.name.clone(),
                    id: holder.id,
                    mode: holder.mode,
                    token: grant.token,
                    ttl: holder.ttl,
                };
                assert!(matches!(holder_engine.renew(&[hold]).await[..], [Renewed::Extended { .. }]));
            }
            let release = Release {
                name: holder.name.clone(),
                id: holder.id,
                mode: holder.mode,
                token: Some(grant.token),
                min_hold: None,
                ended: Previous::Clean,
            };
            holder_engine.release(&[release]).await;
            let notification = waiter_engine.notifications().await;
            let [Notification::Granted { grant: pushed, .. }] = &notification[..] else {
                panic!("{notification:?}")
            };
            (holder, grant) = (next, pushed.clone());
        }
    });
    assert_eq!(walks(), 1, "only the renewal that confirmed a grant ran a full script");
}
