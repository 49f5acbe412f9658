//! The command on SQL databases. Each test runs on every database.

use std::thread;

use leasehold_testkit::server::{MariadbServer, PostgresServer};

use crate::{
    shared,
    tools::{Dir, HOLD, Running, bare, code, finish, one_line, stdout, until},
};

/// A database, and the command that uses it.
type Fixture = crate::fixture::Fixture<()>;

/// Runs a test on all databases at once, because a test mostly waits.
fn each(test: impl Fn(&Fixture) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        scope.spawn(move || {
            let server = PostgresServer::durable(&[]);
            test(&Fixture::at("postgres", server.url(), ()));
        });
        scope.spawn(move || {
            let server = MariadbServer::durable(&[]);
            test(&Fixture::at("mysql", server.url(), ()));
        });
        scope.spawn(move || {
            let dir = Dir::new();
            let url = format!("sqlite://{}/locks.db", dir.path().display());
            test(&Fixture::at("sqlite", url, ()));
        });
    });
}

#[test]
fn processes_exclude_each_other_and_are_shown() {
    each(|fixture| shared::processes_exclude_each_other_and_are_shown(fixture, "job", "lease-bounded"));
}

#[test]
fn a_broken_lock_ends_its_command_and_frees_the_name() {
    each(|fixture| shared::a_broken_lock_ends_its_command_and_frees_the_name(fixture, &["--ttl", "3s"]));
}

#[test]
fn a_killed_holder_frees_the_name_for_waiters_after_its_lease() {
    each(|fixture| {
        let mut holder = fixture.holder(&["--ttl", "2s"], "echo ready; exec sleep 1000");
        let waiter = Running::start(fixture.leasehold(&["run", "job", "--", "sh", "-c", "echo mine"]));
        until("a waiter", || fixture.show("job")["waiters"].as_array().unwrap().len() == 1);
        holder.kill_whole();
        assert_eq!(stdout(&waiter.output()), "mine\n");
        drop(holder);
    });
}

#[test]
fn modes_are_enforced_and_mixing_them_is_78() {
    each(|fixture| {
        let holder = fixture.holder(&["--permits", "1", "--limit", "2"], HOLD);
        assert_eq!(fixture.code(&["run", "-n", "--permits", "1", "--limit", "2", "job", "--", "true"]), 0);
        assert_eq!(fixture.code(&["run", "-n", "--permits", "2", "--limit", "2", "job", "--", "true"]), 75);
        let mixed = fixture.call(&["run", "-n", "job", "--", "true"]);
        assert_eq!(code(&mixed), 78, "{mixed:?}");
        assert!(one_line(&mixed).contains("semaphore"), "{mixed:?}");
        assert_eq!(code(&holder.output()), 0);
        let min_hold = fixture.call(&["run", "--at-least", "1h", "tick", "--", "true"]);
        assert_eq!(code(&min_hold), 0, "{min_hold:?}");
        assert_eq!(fixture.code(&["run", "-n", "tick", "--", "true"]), 75);
    });
}

#[test]
fn the_command_locks_in_tables_of_other_programs() {
    let test = |engine, url: &str| {
        let at = |options: &str| Fixture::at(engine, format!("{url}?layout={options}"), ());
        for layout in ["shedlock", "symfony", "laravel"] {
            let fixture = at(&format!("{layout}&create=yes"));
            let holder = fixture.holder(&[], HOLD);
            assert_eq!(fixture.code(&["run", "-n", "job", "--", "true"]), 75, "{layout}");
            assert_eq!(fixture.show("job")["holders"][0]["foreign"], false, "{layout}");
            assert_eq!(code(&holder.output()), 0, "{layout}");
            assert_eq!(fixture.code(&["run", "-n", "job", "--", "true"]), 0, "{layout}");
        }
        let shedlock = at("shedlock");
        assert_eq!(shedlock.code(&["run", "--at-least", "1h", "tick", "--", "true"]), 0);
        assert_eq!(shedlock.code(&["run", "-n", "tick", "--", "true"]), 75);
        // Liquibase has one lock, whose name is the ID of its row.
        let liquibase = at("liquibase&create=yes");
        assert_eq!(liquibase.code(&["run", "-n", "1", "--", "true"]), 0);
        let refused = liquibase.call(&["run", "-n", "job", "--", "true"]);
        assert_eq!(code(&refused), 78, "{refused:?}");
        assert!(one_line(&refused).contains("use 1"), "{refused:?}");
        let refused = at("quartz").call(&["run", "-n", "job", "--", "true"]);
        assert_eq!(code(&refused), 78, "{refused:?}");
        assert!(
            one_line(&refused).contains("shedlock, symfony, laravel, liquibase and insert"),
            "{refused:?}"
        );
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let server = PostgresServer::durable(&[]);
            test("postgres", &server.url());
        });
        scope.spawn(|| {
            let server = MariadbServer::durable(&[]);
            test("mysql", &server.url());
        });
    });
}

/// As in libpq, if the URL has no password.
#[test]
fn the_password_is_read_from_a_passfile() {
    let server = PostgresServer::encrypted("anna", "hunter2");
    let (dir, port) = (Dir::new(), server.port());
    let ca = server.certificate("ca.pem");
    let url = |more: &str| {
        let verified = format!("sslmode=verify-full&sslrootcert={}&connect_timeout=60", ca.display());
        format!("postgres://anna@nowhere.invalid,localhost:{port}/postgres?{verified}{more}")
    };
    let line = format!("nowhere.invalid:*:*:*:wrong\nlocalhost:{port}:postgres:anna:hunter2\n");
    let named = dir.file("named", &line, 0o600);
    let open = dir.file("open", &line, 0o644);
    let other = dir.file("other", "localhost:*:*:bert:hunter2", 0o600);
    dir.file(".pgpass", &line, 0o600);
    let nowhere = dir.path().join("nowhere");
    let passfile = |file: &std::path::Path| format!("&passfile={}", file.display());
    for (more, home, expected, word) in [
        (String::new(), dir.path(), 0, ""),
        (passfile(&named), &nowhere, 0, ""),
        (String::new(), &nowhere, 77, "password missing"),
        (passfile(&other), dir.path(), 77, "password missing"),
        (passfile(&nowhere), dir.path(), 78, "No such file"),
        (passfile(&open), dir.path(), 78, "chmod 600"),
    ] {
        let mut command = bare(&["--url", &url(&more), "run", "x", "--", "true"]);
        command.env("HOME", home);
        let output = finish(command);
        assert_eq!(code(&output), expected, "{more}: {output:?}");
        if expected != 0 {
            let message = one_line(&output);
            assert!(message.contains(word) && !message.contains("hunter2"), "{message}");
        }
    }
}

#[test]
fn the_schema_is_printed_without_a_connection() {
    each(|fixture| {
        let printed = fixture.call(&["schema"]);
        assert_eq!(code(&printed), 0, "{printed:?}");
        assert!(stdout(&printed).contains("CREATE TABLE IF NOT EXISTS leasehold_lock"), "{printed:?}");
    });
    let nothing = finish(bare(&["--url", "postgres://nobody@127.0.0.1:1/none", "schema"]));
    assert_eq!(code(&nothing), 0);
    let other = finish(bare(&["--url", "redis://127.0.0.1:1", "schema"]));
    assert_eq!(code(&other), 78);
    assert!(one_line(&other).contains("has no tables"));
}

#[test]
fn a_missing_server_is_69_and_a_wrong_url_78() {
    let gone = finish(bare(&[
        "--url",
        "postgres://u:hunter2@127.0.0.1:1/d?connect_timeout=1s",
        "run",
        "-n",
        "x",
        "--",
        "true",
    ]));
    assert_eq!(code(&gone), 69, "{gone:?}");
    assert!(one_line(&gone).contains("127.0.0.1:1") && !one_line(&gone).contains("hunter2"));
    for (url, word) in [
        ("postgres:", "postgres://user@host"),
        ("postgres://", "postgres://user@host"),
        ("postgres://h:port/d", "postgres://user@host"),
        ("postgres://h/d?hold=advisory", "hold"),
        ("postgres://h/d?tls=maybe", "tls"),
        ("postgres://h/d?tls=off&ca=x", "leave one out"),
        ("postgres://h/d?listen_url=redis://h", "postgres://user@host"),
        ("postgres://h/d?frobnicate=1", "listen_url"),
        ("mysql://h", "mysql://user@host"),
        ("mysql://u:hunter2@h:x/d", "mysql://user@host"),
        ("sqlite:", "sqlite:///path"),
        ("sqlite:///tmp", "directory"),
        ("postgres://u:hunter2@h:x/d", "postgres://user@host"),
    ] {
        let output = finish(bare(&["--url", url, "list"]));
        assert_eq!(code(&output), 78, "{url}: {output:?}");
        let message = one_line(&output);
        assert!(message.contains(word) && !message.contains("hunter2"), "{url}: {message}");
    }
    let dir = Dir::new();
    let notes = dir.file("notes", &"text of another program\n".repeat(100), 0o600);
    let output = finish(bare(&["--url", &format!("sqlite://{}", notes.display()), "list"]));
    assert_eq!(code(&output), 78, "{output:?}");
    assert!(one_line(&output).contains("not a database"), "{output:?}");
    assert!(std::fs::read_to_string(notes).unwrap().starts_with("text of another program"));
}

/// Runs a test on each database whose rows can be held, with the table of xxl-job.
fn each_with_rows(test: impl Fn(&Fixture) + Sync) {
    let test = &test;
    let table = [
        "CREATE TABLE xxl_job_lock (lock_name varchar(50) PRIMARY KEY)",
        "INSERT INTO xxl_job_lock VALUES ('job')",
    ];
    let url = |server: String| format!("{server}?hold=row&table=xxl_job_lock&column=lock_name");
    thread::scope(|scope| {
        scope.spawn(move || {
            let server = PostgresServer::start(&[]);
            for text in table {
                server.query(text);
            }
            test(&Fixture::at("postgres", url(server.url()), ()));
        });
        scope.spawn(move || {
            let server = MariadbServer::start(&[]);
            for text in table {
                server.query(text);
            }
            test(&Fixture::at("mysql", url(server.url()), ()));
        });
    });
}

#[test]
fn a_row_of_another_program_is_held_while_the_command_runs() {
    each_with_rows(|fixture| {
        let mut holder = fixture.holder(&[], "echo ready; exec sleep 1000");
        assert_eq!(fixture.code(&["run", "-n", "job", "--", "true"]), 75);
        assert_eq!(fixture.show("job")["holders"].as_array().unwrap().len(), 1);
        let waiter = Running::start(fixture.leasehold(&["run", "job", "--", "sh", "-c", "echo mine"]));
        // The server frees the row as soon as the connection of the killed process is closed.
        holder.kill_whole();
        assert_eq!(stdout(&waiter.output()), "mine\n");
        drop(holder);
        let missing = fixture.call(&["run", "-n", "other", "--", "true"]);
        assert_eq!(code(&missing), 78, "{missing:?}");
        assert!(one_line(&missing).contains("add create=yes to the URL"), "{missing:?}");
    });
}
