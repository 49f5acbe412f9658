//! Names that differ only in case, names with the same key, names that have no key.

use leasehold_core::{Engine, Fault, How, Inspect};

use leasehold_testkit::server::MariadbServer;

use super::rig::{Program, keys_of, session_at};
use crate::rig::{Rig, assert_taken, claim, claim_and_hold, is_mysql, release_hold};

/// MySQL ignores the case of a key, also within one session, where it would let a lock be taken twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_differ_in_case_are_as_the_server_sees_them() {
    let rig = Rig::new();
    let (one, other) = (rig.session_with(keys_of("name")), rig.session_with(keys_of("name")));
    let upper = claim("Nightly");
    let grant = claim_and_hold(&*one, &upper).await;
    if is_mysql() {
        assert_taken(&*one, "nightly").await;
        assert_taken(&*other, "nightly").await;
    } else {
        // MariaDB compares the bytes.
        claim_and_hold(&*one, &claim("nightly")).await;
    }
    assert_taken(&*other, "Nightly").await;
    release_hold(&*one, &upper, &grant).await;
    claim_and_hold(&*other, &claim("Nightly")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_keys_tell_apart_what_the_server_does_not() {
    let rig = Rig::new();
    let one = rig.session();
    for name in
        ["Nightly", "nightly", "nightly ", &"x".repeat(512), &"x".repeat(511), "\u{1f512}", "\u{1f513}"]
    {
        claim_and_hold(&*one, &claim(name)).await;
    }
    // The database belongs to the key, as it does with tables.
    rig.server.query("CREATE DATABASE other");
    let url = format!("//root@127.0.0.1:{}/other", rig.server.port());
    claim_and_hold(&*session_at(&url, super::rig::no_delay()), &claim("nightly")).await;
}

/// However a URL spells the database, its names have the keys that the server's own spelling gives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_spelled_in_two_ways_has_one_key_for_a_name() {
    // MySQL has the setting for new data only: there databases that differ in case are two.
    let ignores_case = !is_mysql();
    let rig = Rig::of(MariadbServer::start(if ignores_case { &["--lower-case-table-names=1"] } else { &[] }));
    if !ignores_case {
        rig.server.query("CREATE DATABASE LOCKS");
    }
    let one = rig.session();
    claim_and_hold(&*one, &claim("nightly")).await;
    let url = format!("//root@127.0.0.1:{}/LOCKS", rig.server.port());
    let other = session_at(&url, super::rig::no_delay());
    if ignores_case {
        assert_taken(&*other, "nightly").await;
    } else {
        claim_and_hold(&*other, &claim("nightly")).await;
    }
}

/// Two names have one key: the second is taken, in the same process too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_with_the_same_key_are_taken() {
    let rig = Rig::new();
    let (one, other) = (rig.session_with(keys_of("dotnet")), rig.session_with(keys_of("dotnet")));
    let first = claim("ABC");
    let grant = claim_and_hold(&*one, &first).await;
    for client in [&one, &other] {
        assert_taken(&**client, "abczj4qr6tvn4a3kmgq4bukhowqyfrlxsb3").await;
    }
    release_hold(&*one, &first, &grant).await;
    claim_and_hold(&*other, &claim("abczj4qr6tvn4a3kmgq4bukhowqyfrlxsb3")).await;
    assert_taken(&*one, "ABC").await;
}

#[tokio::test]
async fn a_name_without_a_key_is_refused_with_the_reason() {
    let rig = Rig::new();
    let one = rig.session_with(keys_of("name"));
    let error = one.claim(&claim(&"x".repeat(65)), How::Create).await.unwrap_err();
    assert!(error.fault == Fault::Misconfigured && error.message.contains("at most 64"), "{error:?}");
    claim_and_hold(&*one, &claim(&"x".repeat(64))).await;
}

/// The key, the connection, and the login of the holder; with few rights the view says what is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn show_prints_the_key_and_the_holder() {
    let rig = Rig::new();
    rig.server.query(crate::rig::USER);
    rig.server.query("GRANT USAGE ON *.* TO locker@'%'; GRANT SELECT ON locks.* TO locker@'%'");
    let mut program = Program::connect(&rig.server).await;
    assert!(program.locks("nightly").await);
    let connection = program.ask("CONNECTION_ID()").await.unwrap();
    let name = claim("nightly").name;
    let view = rig.session_with(keys_of("name")).show(&name).await.unwrap();
    assert_eq!(view.key, "GET_LOCK('nightly')");
    let [holder] = &view.holders[..] else { panic!("{view:?}") };
    assert!(
        holder.foreign && holder.of_session && holder.id == format!("connection {connection}"),
        "{holder:?}"
    );
    assert!(holder.owner.starts_with("root@") && holder.token.is_none(), "{holder:?}");
    rig.wait_until_it_grants();
    let few_rights = session_at(&crate::rig::as_user(&rig), keys_of("name"));
    let view = few_rights.show(&name).await.unwrap();
    assert!(view.holders[0].owner.contains("the right PROCESS"), "{view:?}");
    let error = few_rights.break_hold(&name, 0, true).await.unwrap_err();
    let remedy = format!("KILL CONNECTION {connection}");
    assert!(error.fault == Fault::Denied && error.message.contains(&remedy), "{error:?}");
    // Our own hold, with its token and its claim.
    let one = rig.session();
    let mine = claim("mine");
    let grant = claim_and_hold(&*one, &mine).await;
    let view = one.show(&mine.name).await.unwrap();
    assert!(view.key.starts_with("GET_LOCK('leasehold:mine:"), "{view:?}");
    assert_eq!(view.holders[0].token, Some(grant.token.number));
    let other = rig.session().show(&mine.name).await.unwrap();
    assert!(!other.holders[0].foreign && other.holders[0].token.is_none(), "{other:?}");
}
