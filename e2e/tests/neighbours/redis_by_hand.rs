//! Locks on Redis from articles: programs of a few lines with go-redis, redis-py and Jedis, and a cache with Redisson's
//! read-write lock.

use std::{
    fs,
    path::Path,
    sync::Arc,
    thread::spawn,
    time::{Duration, Instant},
};

use leasehold::{ErrorKind, Locks, Loss};
use leasehold_testkit::{rig::PATIENCE, server::RedisServer};

use crate::{
    go::REDIS_BY_HAND,
    groups::{Contest, ROUNDS, SIDES, expect_no_overlap},
    java,
    packages::Neighbour,
};

const KEY: &str = "lock:shared";
/// A ttl that outlasts what the other programs do.
const LONG: Duration = Duration::from_secs(60);
/// A ttl that the test waits for.
const SHORT: Duration = Duration::from_secs(2);

fn url(server: &RedisServer, options: &str) -> String {
    format!("redis://127.0.0.1:{}?{options}", server.port())
}

fn locks(server: &RedisServer, options: &str) -> Locks {
    Locks::connect(&url(server, options)).unwrap()
}

/// The command line of a program in Python, up to its key.
fn python(what: &str, kind: &str, server: &RedisServer) -> Vec<String> {
    let port = server.port().to_string();
    ["python3", "redis_by_hand.py", what, kind, &port, KEY].map(str::to_owned).into()
}

/// Starts a program in Python that holds or waits for the lock, with this ttl.
fn start_python(what: &str, kind: &str, server: &RedisServer, ttl: &str) -> Neighbour {
    let command_line = python(what, kind, server);
    let mut command = std::process::Command::new(&command_line[0]);
    command.args(&command_line[1..]).arg(ttl);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/neighbours"));
    Neighbour::run(command)
}

/// How often `EXPIRE` was called.
fn expire_calls(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let calls = stats.iter().find_map(|line| line.trim().strip_prefix("cmdstat_expire:calls="));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

/// Polls until `poll` returns a value; panics after a long time.
fn until<T>(condition: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let limit = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < limit, "waited {PATIENCE:?} until {condition}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until `EXPIRE` was called this often from now on.
fn await_expire_calls(server: &RedisServer, count: u64) {
    let target = expire_calls(server) + count;
    until("EXPIRE was called", || (expire_calls(server) >= target).then_some(()));
}

/// Both sides contend, and holders of both sides are killed.
fn contend_and_kill(server: &RedisServer, what: &str, options: &str, theirs: Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let mut contest = Contest::of(dir.path(), &url(server, options), theirs);
    for _ in 0..ROUNDS {
        SIDES.iter().for_each(|side| contest.kill(side));
    }
    let tally = contest.finish(what);
    expect_no_overlap(&tally);
    assert_eq!(tally.doubted, 0, "no program changed a key of ours: {tally:?}");
}

#[test]
fn go_redis_with_a_renewal_at_half_of_the_ttl() {
    let server = RedisServer::start(&[]);
    let theirs = REDIS_BY_HAND.command_line(&[&server.port().to_string(), KEY]);
    contend_and_kill(&server, "go-redis by hand", "", theirs);
}

/// `SETNX key time` without expiry. GETSET decides between programs that see a time that is over; it may overwrite a
/// key of ours that has just taken over: then our holder is told, and nobody else holds.
fn setnx_with_a_time(kind: &str) {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let options = "stale_deadline=reclaim";
    let mut contest = Contest::of(dir.path(), &url(&server, options), python("until", kind, &server));
    for _ in 0..ROUNDS {
        SIDES.iter().for_each(|side| contest.kill(side));
    }
    expect_no_overlap(&contest.finish(kind));
    server.command(&["DEL", KEY]);

    // Only ours are left after the holder was killed.
    let mut theirs = start_python("hold", kind, &server, "1000");
    assert_eq!(theirs.first_line(), "held");
    drop(theirs);
    let watching = locks(&server, "");
    let note = until("the time is over", || {
        let note = watching.show_blocking("shared").unwrap().note;
        assert!(watching.mutex("shared").blocking().try_acquire().unwrap_err().is_taken());
        note
    });
    assert!(note.contains("stale_deadline=reclaim"), "{note}");
    let guard = locks(&server, options).mutex("shared").blocking().acquire().unwrap();
    assert_eq!(guard.previous(), leasehold::Previous::Lapsed);
    // Its programs wait for ours, whose value is no time.
    let mut theirs = start_python("wait", kind, &server, "1000");
    assert_eq!(theirs.next_line(), "waits");
    guard.release_blocking().unwrap();
    assert_eq!(theirs.next_line(), "held");
    theirs.finish();
}

#[test]
fn setnx_with_a_time_in_seconds() {
    setnx_with_a_time("old");
}

#[test]
fn setnx_with_a_time_in_milliseconds() {
    setnx_with_a_time("old-millis");
}

/// Both sides exclude each other. But a waiter that sees TTL 0 extends the lock of any holder: the lock of a holder
/// that died lasts for as long as that program waits.
#[test]
fn python_function_that_sets_the_expiry_at_ttl_0() {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let contest = Contest::of(dir.path(), &url(&server, ""), python("until", "repairing", &server));
    let tally = contest.finish("repairing");
    assert_eq!([tally.overlaps, tally.doubted], [0, 0], "{tally:?}");

    let locks = locks(&server, "");
    let dead = locks.mutex("shared").ttl(SHORT).renew(false).blocking().acquire().unwrap();
    let mut theirs = start_python("wait", "repairing", &server, "3000");
    assert_eq!(theirs.next_line(), "waits");
    await_expire_calls(&server, 2);
    assert!(!dead.check() && server.command(&["GET", KEY])[0].starts_with(&dead.id().to_string()));
    assert!(locks.mutex("shared").blocking().try_acquire().unwrap_err().is_taken());
    drop(theirs);
    locks.mutex("shared").blocking().acquire().unwrap().release_blocking().unwrap();
}

/// The renewal of the program is an `EXPIRE` that does not compare, and that goes on after the release. While the
/// program runs, it changes the time of our holds: our holders are told, and the holds stay valid.
#[test]
fn java_with_a_scheduled_expire() {
    let server = RedisServer::start(&[]);
    let locks = locks(&server, "");
    let arguments = [&server.port().to_string(), KEY, "3000"];
    let mut theirs = java::start_class("RedisByHand", &arguments);
    assert_eq!(theirs.next_line(), "held");
    await_expire_calls(&server, 2);
    assert!(locks.mutex("shared").blocking().try_acquire().unwrap_err().is_taken());
    theirs.tell();
    assert_eq!(theirs.next_line(), "released");

    let guard = locks.mutex("shared").ttl(LONG).blocking().acquire().unwrap();
    assert_eq!(server.command(&["SET", KEY, "theirs", "NX"]), [""], "ours excludes it");
    await_expire_calls(&server, 1);
    guard.confirm_blocking().unwrap();
    let trouble = guard.trouble().unwrap();
    assert!(trouble.contains("shortened the time") && guard.check(), "{trouble}");
    guard.release_blocking().unwrap();

    // The lock of a holder that died lasts as long as that program runs.
    let dead = locks.mutex("shared").ttl(SHORT).renew(false).blocking().acquire().unwrap();
    await_expire_calls(&server, 3);
    assert!(!dead.check() && locks.mutex("shared").blocking().try_acquire().unwrap_err().is_taken());
    theirs.finish();
    let guard = locks.mutex("shared").ttl(LONG).blocking().acquire().unwrap();
    guard.confirm_blocking().unwrap();
    assert_eq!(guard.trouble(), None);
}

/// The class `RedLock`: its renewal compares, and then sets the key in another step. Nobody can exclude it between
/// these steps: our holder is told, and a fence refuses that holder once the next one has shown its token.
#[test]
fn python_class_whose_renewal_overwrites() {
    let server = RedisServer::start(&[]);
    let locks = locks(&server, "");
    let mut theirs = start_python("hold", "overwriting", &server, "1000");
    let lines = [theirs.next_line(), theirs.next_line()];
    assert!(lines.contains(&"held".to_owned()) && lines.contains(&"compared".to_owned()), "{lines:?}");
    // The program has compared the value, and is paused for longer than its ttl.
    let guard = locks.mutex("shared").ttl(LONG).blocking().acquire().unwrap();
    theirs.tell();
    assert_eq!(theirs.next_line(), "renewed");
    let error = guard.confirm_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost(Loss::Overwritten), "{error}");
    assert!(error.to_string().contains("a program overwrote the key without comparing"), "{error}");
    assert!(!guard.check() && locks.mutex("shared").blocking().try_acquire().unwrap_err().is_taken());
    drop(theirs);

    let fence = locks.redis_fence("stock").unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let next = locks.mutex("shared").ttl(LONG).blocking().acquire().unwrap();
    runtime.block_on(fence.seal(next.token())).unwrap();
    let late = runtime.block_on(fence.write(guard.token(), &[&["SET", "stock", "9"]]));
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Fenced);
    runtime.block_on(fence.write(next.token(), &[&["SET", "stock", "7"]])).unwrap();
    assert_eq!(server.command(&["GET", "stock"]), ["7"]);
}

/// Writers to the database and rebuilds of the cache, of both sides: no rebuild sees a write under way, writers exclude
/// each other, and writers of both sides are killed.
#[test]
fn redisson_cache_with_a_read_write_lock() {
    let server = Arc::new(RedisServer::start(&[]));
    let dir = tempfile::tempdir().unwrap();
    let url = url(&server, "layout=redisson");
    let theirs = java::command_line_of("Cache", &[&server.port().to_string(), KEY]);
    let mut contest = Contest::of(dir.path(), &url, theirs);
    let (rebuilds, path, database) =
        (Locks::connect(&url).unwrap(), dir.path().to_owned(), Arc::clone(&server));
    let ours = spawn(move || {
        let written = || fs::read_to_string(path.join("journal")).unwrap().lines().last().map(str::to_owned);
        let mut count = 0;
        while !path.join("over").exists() {
            let within = Duration::from_secs(5);
            let Ok(guard) = rebuilds.rw("shared").read().blocking().acquire_within(within) else { continue };
            let before = written();
            let value = database.command(&["GET", "database"]).concat();
            database.command(&["SET", "cache", &value]);
            let after = written();
            let is_undisturbed = before == after && before.is_none_or(|line| !line.starts_with("enter"));
            assert!(is_undisturbed || !guard.check(), "a write during a rebuild: {after:?}");
            guard.release_blocking().unwrap();
            count += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        count
    });
    for _ in 0..ROUNDS {
        SIDES.iter().for_each(|side| contest.kill(side));
    }
    expect_no_overlap(&contest.finish("Redisson, cache"));
    assert!(ours.join().unwrap() > 0, "leasehold rebuilt the cache");
    let rebuilt: u64 = server.command(&["GET", "rebuilds"])[0].parse().unwrap();
    assert!(rebuilt > 0, "Redisson rebuilt the cache");
}
