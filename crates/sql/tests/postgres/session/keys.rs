//! Programs that take an advisory lock with the key of another package: they and leasehold exclude each other.

use leasehold_core::{Answer, Claim, Engine, How, Inspect, Locks, Mode, Released};
use leasehold_testkit::claims;

use super::rig::{SessionRig, at_once, engine_of};
use crate::rig::acquire;

/// A derivation, a name, and the arguments that the other program gives to the lock functions.
const KEYS: [(&str, &str, &str); 18] = [
    ("advisory-lock", "nightly", "-1251853526, 379575101"),
    ("bigint:-4711", "nightly", "-4711"),
    ("bigint", "9223372036854775807", "9223372036854775807"),
    ("dotnet", "nightly", "-576242034, -1690517505"),
    ("dotnet", "00000003,ffffffff", "3, -1"),
    ("dotnet", "ffffffffffffffff", "-1"),
    ("dotnet", "some very long name", "1765484347666752899"),
    ("flyway", "public.flyway_schema_history", "77433833903597"),
    ("int,int:7,-11", "nightly", "7, -11"),
    ("int,int", "7,11", "7, 11"),
    ("pals", "shop.nightly", "-5525528342958411330"),
    ("rails", "nightly", "550136877389907570"),
    ("sha256be", "nightly", "3043134503785307926"),
    ("sha256le", "nightly", "1630262648214010666"),
    ("sqlalchemy-dlock", "nightly", "-6609291228350792459"),
    ("sqlx", "my first Postgres advisory lock!", "-5560419505042474287"),
    ("symfony", "nightly", "267906906"),
    ("tooz", "nightly", "10, 227"),
];

#[test]
fn programs_with_the_keys_of_other_packages_are_excluded_both_ways() {
    let rig = SessionRig::new();
    let (program, connection) =
        rig.run(tokio_postgres::connect(&rig.server.url(), tokio_postgres::NoTls)).unwrap();
    rig.runtime.spawn(connection);
    let ask = |function: &str, key: &str| -> bool {
        let text = format!("SELECT {function}({key})");
        rig.run(program.query_one(&text, &[])).unwrap().get(0)
    };
    for (lock_key, name, key) in KEYS {
        let options = at_once().lock_key(lock_key).unwrap();
        let locks = Locks::builder(engine_of("postgres", rig.server.port(), options)).build();
        assert!(ask("pg_try_advisory_lock", key), "{lock_key}");
        let taken = locks.mutex(name).blocking().try_acquire();
        assert!(taken.is_err_and(|error| error.is_taken()), "{lock_key} {name}");
        assert!(ask("pg_advisory_unlock", key));
        let guard = acquire(&locks, name);
        assert!(!ask("pg_try_advisory_lock", key), "{lock_key} {name}");
        guard.release_blocking().unwrap();
        assert!(ask("pg_try_advisory_lock", key) && ask("pg_advisory_unlock", key), "{lock_key} {name}");
    }
}

/// Several keys of two numbers each in one batch: on a runtime with one thread both claims are made before either is
/// sent.
#[test]
fn several_keys_of_two_numbers_are_locked_and_unlocked_together() {
    let rig = SessionRig::new();
    let engine = || engine_of("postgres", rig.server.port(), at_once().lock_key("tooz").unwrap());
    let (first, second) = (engine(), engine());
    let claim = |name, mode| Claim {
        mode,
        may_queue: false,
        ..claims::exclusive(name, std::time::Duration::from_secs(600))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (alone, shared) = (claim("a", Mode::Exclusive), claim("b", Mode::Shared));
        first.ping().await.unwrap();
        let grants = tokio::join!(first.claim(&alone, How::Create), first.claim(&shared, How::Create));
        let (Ok(Answer::Held(one)), Ok(Answer::Held(other))) = grants else { panic!("{grants:?}") };
        assert_eq!(one.token, other.token, "one batch has one number");
        let locks = "SELECT objsubid, mode FROM pg_locks WHERE locktype = 'advisory' ORDER BY mode";
        assert_eq!(rig.server.query(locks), ["2|ExclusiveLock", "2|ShareLock"]);
        let (taken, beside) = (claim("a", Mode::Shared), claim("b", Mode::Shared));
        second.ping().await.unwrap();
        let answers = tokio::join!(second.claim(&taken, How::Create), second.claim(&beside, How::Create));
        assert!(matches!(answers, (Ok(Answer::Taken(_)), Ok(Answer::Held(_)))), "{answers:?}");
        assert_eq!(rig.server.query(locks).len(), 3);
        let [alone, shared] = [&alone, &shared].map(|claim| claims::release_of(claim)[0].clone());
        let freed = first.release(&[alone, shared]).await;
        assert!(matches!(freed[..], [Released::Freed, Released::Freed]), "{freed:?}");
        second.release(&claims::release_of(&beside)).await;
        assert!(rig.advisory_locks().is_empty());
    });
}
