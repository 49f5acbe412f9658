//! The command with locks of a database session (`hold=session`).

use leasehold_testkit::server::{MariadbServer, PostgresServer};

use crate::tools::{HOLD, Running, code, one_line, stdout, until};

/// A server, and the command that uses it.
type Fixture<S> = crate::fixture::Fixture<S>;

fn fixture() -> Fixture<PostgresServer> {
    let server = PostgresServer::start(&[]);
    let url = format!("{}?hold=session&delay=0s", server.url());
    Fixture::at("postgres", url, server)
}

/// On a server whose first second is over: before that it grants nothing.
fn mariadb() -> Fixture<MariadbServer> {
    let server = MariadbServer::start(&[]);
    let url = format!("{}?hold=session&delay=0s", server.url());
    let fixture = Fixture::at("mysql", url, server);
    assert_eq!(fixture.code(&["run", "first", "--", "true"]), 0);
    fixture
}

#[test]
fn commands_exclude_each_other_and_a_break_names_the_session() {
    let fixture = fixture();
    let holder = fixture.holder(&[], HOLD);
    assert_eq!(fixture.code(&["run", "-n", "job", "--", "true"]), 75);
    assert_eq!(fixture.code(&["run", "-n", "other", "--", "true"]), 0);
    let shown = fixture.show("job");
    let session = shown["holders"][0]["id"].as_str().unwrap().replace("pid ", "");
    let broken = fixture.call(&["break", "job", "--token", "1"]);
    assert_eq!(code(&broken), 77, "{broken:?}");
    assert!(one_line(&broken).contains(&format!("SELECT pg_terminate_backend({session})")), "{broken:?}");
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(fixture.code(&["run", "-n", "job", "--", "true"]), 0);
}

#[test]
fn a_killed_command_frees_its_name_without_a_lease() {
    let fixture = fixture();
    let mut holder = fixture.holder(&["--ttl", "24h"], "echo ready; exec sleep 1000");
    let waiter = Running::start(fixture.leasehold(&["run", "job", "--", "sh", "-c", "echo mine"]));
    until("a waiter", || fixture.show("job")["waiters"].as_array().unwrap().len() == 1);
    holder.kill_whole();
    assert_eq!(stdout(&waiter.output()), "mine\n");
    drop(holder);
}

#[test]
fn commands_exclude_each_other_on_mariadb_and_a_killed_one_frees_its_name() {
    let fixture = mariadb();
    let mut holder = fixture.holder(&["--ttl", "24h"], "echo ready; exec sleep 1000");
    assert_eq!(fixture.code(&["run", "-n", "job", "--", "true"]), 75);
    assert_eq!(fixture.code(&["run", "-n", "other", "--", "true"]), 0);
    let shown = fixture.show("job");
    let session = shown["holders"][0]["id"].as_str().unwrap().replace("connection ", "");
    let broken = fixture.call(&["break", "job", "--token", "1"]);
    assert_eq!(code(&broken), 77, "{broken:?}");
    assert!(one_line(&broken).contains(&format!("KILL CONNECTION {session}")), "{broken:?}");
    holder.kill_whole();
    assert_eq!(fixture.code(&["run", "job", "--", "true"]), 0);
    drop(holder);
}
