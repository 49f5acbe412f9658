//! The sources of the URL, and that it is not shown.

use std::{path::PathBuf, process::Command};

use crate::{
    start::{LEASEHOLD, program},
    tools::{Dir, bare, code, finish, one_line, stdout},
};

/// The path of the lock file, which contains the directory that was used.
fn key(mut command: Command) -> String {
    command.args(["show", "--json", "x"]);
    let output = finish(command);
    assert_eq!(code(&output), 0, "{output:?}");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    value["key"].as_str().unwrap().to_owned()
}

#[test]
fn the_option_overrides_the_variable_and_the_file() {
    let dir = Dir::new();
    let url = |name: &str| format!("file://{}/{name}", dir.path().display());
    let file = dir.file("url", &format!("{}\n", url("by-file")), 0o600);
    let mut command = bare(&["--url", &url("by-option")]);
    command.env("LEASEHOLD_URL", url("by-variable")).env("LEASEHOLD_URL_FILE", &file);
    assert!(key(command).contains("/by-option/"));
    let mut command = bare(&[]);
    command.env("LEASEHOLD_URL", url("by-variable")).env("LEASEHOLD_URL_FILE", &file);
    assert!(key(command).contains("/by-variable/"));
    let mut command = bare(&["--require-url"]);
    command.env("LEASEHOLD_URL_FILE", &file);
    assert!(key(command).contains("/by-file/"));
}

#[test]
fn a_missing_required_url_is_78() {
    // On a machine with a URL file of its own no URL is missing.
    let given = std::path::Path::new("/etc/leasehold/url").exists();
    for args in [
        &["--require-url", "run", "x", "--", "true"][..],
        &["run", "--require-url", "x", "--", "true"],
        &["list", "--require-url"],
    ] {
        let output = finish(bare(args));
        if given {
            assert!(!crate::tools::stderr(&output).contains("--require-url"), "{args:?}: {output:?}");
        } else {
            assert_eq!(code(&output), 78, "{args:?}");
            assert!(one_line(&output).contains("--require-url"));
        }
    }
}

#[test]
fn wrong_urls_are_78() {
    for (url, word) in [
        ("memory:", "tasks of one process"),
        ("", "empty"),
        ("/var/locks", "scheme"),
        ("file:relative", "absolute path"),
        ("file:localhost/dir", "absolute path"),
        ("file://host/dir", "absolute path"),
        ("file://localhostile/dir", "absolute path"),
        ("file:///tmp/leasehold-none?frobnicate=1", "frobnicate"),
        ("file:///tmp/leasehold-none?connect_timeout=5", "5s"),
        ("nosql://h", "postgres, mysql and sqlite are known"),
        ("redis://h?frobnicate=1", "prefix"),
        ("rediss://h?cert=/x", "belong together"),
        ("redis://h:port", "port"),
        ("etcd://h?db=1", "prefix"),
        ("etcd://h?ca=/x", "connect_timeout"),
        ("etcd://h?hand_over=hunter2", "on (the default) and off"),
        ("etcd://h?prefix=/locks/", "slash"),
        ("etcd://h?prefix=", "1 to 128"),
        ("etcds://h?cert=/x", "belong together"),
        ("etcd://h:port", "port"),
        ("etcd://h,:2379", "no host"),
        ("etcd:h", "//"),
        ("etcd://h/locks", "?prefix="),
        ("etcd://:hunter2@h", "no user"),
        (
            "zookeeper://h?db=1",
            "known options are connect_timeout, when_unreachable, max_waiting, password_file, prefix, path, hand_over, layout, acl",
        ),
        ("zookeeper://h?hand_over=yes", "on (the default) and off"),
        ("zookeeper://h?ca=/x", "connect_timeout"),
        ("zookeeper://h?prefix=/zookeeper", "outside of /zookeeper"),
        ("zookeeper://h?prefix=locks", "a path like /locks"),
        ("zookeeper://h?layout=curator", "mutex (the default), rw, latch and plain"),
        ("zookeeper://h?acl=anyone", "world:anyone:r"),
        ("zookeepers://h?cert=/x", "belong together"),
        ("zookeeper://h:port", "port"),
        ("zookeeper://h,:2181", "no host"),
        ("zookeeper://h/a//b", "no path"),
        ("zookeeper:h", "//"),
        ("zookeeper://:hunter2@h", "no user"),
        ("postgres:h/d", "postgres://user@host:5432/database"),
        ("postgres://u:hunter2@h:port/d", "postgres://user@host:5432/database"),
        ("postgres://h/d?sslmode=on", "disable, prefer, require, verify-ca and verify-full are known"),
        ("postgres://h/d?sslmode=require&tls=on", "more than one option"),
        ("postgres://h/d?sslmode=disable&ca=/x", "leave one out"),
        ("postgres://h/d?sslrootcert=system&sslmode=require", "verify-full"),
        ("postgres://h/d?sslcert=/x", "belong together"),
        (
            "postgres://h/d?sslsni=1",
            "known options are connect_timeout, when_unreachable, max_waiting, listen_url, host, port, dbname, user, password, passfile,",
        ),
        (
            "postgres://h/d?sslsni=1",
            "sslmode, ssl, ca, sslrootcert, cert, sslcert, key, sslkey, password_file, schema, max_connections, layout, table_owner, hold, prefix",
        ),
        ("postgres://h/d?target_session_attrs=standby", "a lock must be written"),
        ("postgres://h/d?target_session_attrs=hunter2", "read-write, primary and any are known"),
        ("postgres://h/d?host=g", "postgres://user@host:5432/database"),
        ("postgres:///d?user=hunter2", "postgres://user@host:5432/database"),
        ("postgres://h,,g/d", "postgres://user@host:5432/database"),
        ("postgres:///d?host=h,g&port=1,2,3", "postgres://user@host:5432/database"),
        ("postgres://u:hunter2@x@h/d", "postgres://user@host:5432/database"),
        ("postgres://u:1234?user=hunter2@h/d", "%3F"),
        ("postgres://h/d?connect_timeout=1.5", "500ms"),
        ("postgres://h/d?hold=advisory", "lease (the default), session and row are known"),
        (
            "postgres://h/d?hold=session&schema=x",
            "schema is about tables, and hold=session has one connection without tables",
        ),
        ("postgres://h/d?hold=session&table_owner=x", "table_owner is about tables"),
        ("postgres://h/d?hold=session&listen_url=postgres://h/d", "listen_url is about tables"),
        ("postgres://h/d?hold=session&delay=hunter2", "delay is to be written like 0s or 15s"),
        ("postgres://h/d?hold=session&delay=61s", "delay is from 0s to 60s"),
        ("postgres://h/d?hold=session&lock_key=hunter2", "lock_key is unknown"),
        ("postgres://h/d?hold=session&x=1", "hold, delay, lock_key, prefix"),
        ("postgres://h/d?delay=1s", "known options are"),
        ("postgres://h/d?hold=row&table=t", "hold=row needs the URL options table and column"),
        ("postgres://h/d?hold=row&table=t;&column=c", "names with letters, digits and _ only"),
        ("postgres://h/d?hold=row&table=t&column=c&and=x", "and=SCHED_NAME:myScheduler"),
        ("postgres://h/d?hold=row&table=t&column=c&create=on", "it must be yes or no"),
        ("postgres://h/d?hold=row&table=t&column=c&schema=s", "hold, table, column, and, create"),
        (
            "postgres://h/d?hold=row&table=t&column=c&listen_url=postgres://g/d",
            "hold=row needs the server itself",
        ),
        ("mysql://h/d?hold=row&table=t&column=", "names with letters, digits and _ only"),
        ("postgres://h/d?listen_url=mysql://u:hunter2@h/d", "postgres://user@host:5432/database"),
        ("mysql://u:hunter2@h", "mysql://user@host:3306/database"),
        ("mysql://h/d?hold=advisory", "lease (the default), session and row are known"),
        ("mysql://h/d?hold=session&delay=61s", "delay is from 0s to 60s"),
        (
            "mysql://h/d?hold=session&lock_key=hunter2",
            "name, dotnet, flyway, rails, sqlalchemy-dlock, tooz are known",
        ),
        ("mysql://h/d?hold=session&lock_key=pals", "lock_key is unknown"),
        ("mysql://h/d?hold=session&x=1", "hold, delay, lock_key, prefix"),
        ("mysql://h/d?lock_key=name", "known options are"),
        ("mysql://h/d/e", "mysql://user@host:3306/database"),
        (
            "mysql://h/d?listen_url=x",
            "known options are connect_timeout, when_unreachable, max_waiting, schema, socket, unix_socket, password_file, charset, tls, ssl-mode",
        ),
        ("mysql://h/d?ssl-mode=SOME", "verify-full are known"),
        ("sqlite:", "sqlite:///path/to/file.db"),
        ("sqlite::memory:", "names the file"),
        ("sqlite:///locks.db?mode=memory", "names the file"),
        ("sqlite:///locks.db?mode=ro", "a lock must be written"),
        ("sqlite:none.db?mode=rw", "does not exist"),
        (
            "sqlite:///locks.db?cache=shared",
            "known options are connect_timeout, when_unreachable, max_waiting, hold, mode, prefix",
        ),
    ] {
        let output = finish(bare(&["--url", url, "run", "x", "--", "true"]));
        assert_eq!(code(&output), 78, "{url}");
        let message = one_line(&output);
        assert!(message.contains(word) && !message.contains("hunter2"), "{url}: {message}");
    }
}

#[test]
fn every_file_url_form_of_rfc_8089_works() {
    let dir = Dir::new();
    let path = dir.locks().display().to_string();
    for url in ["file:", "file://", "file://localhost"] {
        assert!(key(bare(&["--url", &format!("{url}{path}")])).starts_with(&path), "{url}");
    }
}

/// As sqlx reads them, where such URLs come from.
#[test]
fn every_usual_sqlite_url_form_works() {
    let dir = Dir::new();
    let path = dir.path().display();
    for (url, file) in [
        ("sqlite:a.db".to_owned(), "a.db"),
        ("sqlite://b.db?mode=rwc".to_owned(), "b.db"),
        (format!("sqlite:{path}/c.db"), "c.db"),
        (format!("sqlite://{path}/d.db"), "d.db"),
        (format!("sqlite:{path}/d.db?mode=rw"), "d.db"),
        ("sqlite:e%20f.db".to_owned(), "e f.db"),
    ] {
        let mut command = bare(&["--url", &url, "run", "x", "--", "true"]);
        let output = finish({
            command.current_dir(dir.path());
            command
        });
        assert_eq!(code(&output), 0, "{url}: {output:?}");
        assert!(dir.path().join(file).exists(), "{url}");
    }
}

#[test]
fn an_unknown_url_option_creates_nothing() {
    let dir = Dir::new();
    let url = format!("{}?frobnicate=1", dir.url());
    assert_eq!(code(&finish(bare(&["--url", &url, "run", "x", "--", "true"]))), 78);
    assert!(!dir.locks().exists());
}

#[test]
fn a_url_file_open_to_others_is_78() {
    let dir = Dir::new();
    let file = dir.file("url", &dir.url(), 0o644);
    let mut command = bare(&["run", "x", "--", "true"]);
    command.env("LEASEHOLD_URL_FILE", &file);
    let output = finish(command);
    assert_eq!(code(&output), 78);
    assert!(one_line(&output).contains("chmod 600"));
}

#[test]
fn no_error_shows_a_password() {
    let canary = "canary-d41d8cd9";
    let dir = Dir::new();
    let secret = format!("nosql://user:{canary}@host/?token={canary}");
    let file = dir.file("url", &secret, 0o600);
    let run = ["run", "x", "--", "true"];
    let by_option = bare(&[&["--url", secret.as_str()], &run[..]].concat());
    let mut by_variable = bare(&run);
    by_variable.env("LEASEHOLD_URL", &secret);
    let mut by_file = bare(&run);
    by_file.env("LEASEHOLD_URL_FILE", &file);
    let misplaced = bare(&[&[secret.as_str()], &run[..]].concat());
    let misspelt = bare(&[&[format!("--ulr={secret}").as_str()], &run[..]].concat());
    for (command, expected) in
        [(by_option, 78), (by_variable, 78), (by_file, 78), (misplaced, 64), (misspelt, 64)]
    {
        let output = finish(command);
        assert_eq!(code(&output), expected);
        let message = one_line(&output);
        assert!(!message.contains(canary), "{message}");
    }
}

/// Such a password ends at its `?`, and the rest looks like an option.
#[test]
fn a_password_with_an_unescaped_question_mark_is_not_shown() {
    for rest in [
        "zookeeper://user:1234?canary@h:2181",
        "zookeeper://user:1234?layout=canary@h",
        "zookeeper://user:1234?acl=canary@h",
    ] {
        let output = finish(bare(&["--url", rest, "run", "x", "--", "true"]));
        assert_eq!(code(&output), 78, "{output:?}");
        assert!(!one_line(&output).contains("canary"), "{output:?}");
    }
    for rest in ["?canary@h:2379", "?canary=x@h", "?prefix=x&canary@h", "?connect_timeout=canary@h"] {
        let url = format!("etcd://user:1234{rest}");
        let output = finish(bare(&["--url", &url, "run", "x", "--", "true"]));
        assert_eq!(code(&output), 78, "{output:?}");
        let message = one_line(&output);
        assert!(message.contains("%3F") && !message.contains("canary"), "{message}");
    }
}

#[test]
fn the_url_is_in_no_argument_of_cmd() {
    let dir = Dir::new();
    let output = finish(bare(&["--url", &dir.url(), "run", "x", "--", "cat", "/proc/self/cmdline"]));
    assert_eq!(stdout(&output), "cat\0/proc/self/cmdline\0");
}

#[test]
fn an_unusable_directory_is_77_or_78() {
    let dir = Dir::new();
    let plain = dir.file("plain", "", 0o600);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    for (path, expected) in [(plain, 78), (link, 77)] {
        let url = format!("file://{}", path.display());
        let output = finish(bare(&["--url", &url, "run", "x", "--", "true"]));
        assert_eq!(code(&output), expected, "{url}");
        assert!(one_line(&output).contains(path.to_str().unwrap()));
    }
}

/// The command with the URL of a lock directory that its user may not write, and the directory.
pub(crate) fn of_another_user(dir: &Dir) -> (Command, PathBuf) {
    assert_eq!(dir.code(&["run", "x", "--", "true"]), 0);
    let root = nix::unistd::geteuid().is_root();
    // Without root, only root's directories certainly belong to another user.
    let path = if root { dir.locks() } else { "/usr".into() };
    let mut command = bare(&[]);
    if root {
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let leasehold = dir.path().join("leasehold");
        // Copied by another process: a program that another test starts meanwhile would inherit the descriptor that
        // is open for writing, and the copy could not be executed.
        assert!(program("cp").arg(LEASEHOLD).arg(&leasehold).status().unwrap().success());
        command = program("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(leasehold);
    }
    command.args(["--url", &format!("file://{}", path.display())]);
    (command, path)
}

#[test]
fn another_users_directory_is_77() {
    let dir = Dir::new();
    let (mut command, path) = of_another_user(&dir);
    command.args(["run", "x", "--", "true"]);
    let output = finish(command);
    assert_eq!(code(&output), 77, "{output:?}");
    assert!(one_line(&output).contains(path.to_str().unwrap()));
}

#[test]
fn without_a_url_locks_are_in_the_directory_of_the_user() {
    if !nix::unistd::geteuid().is_root() {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap();
        let expected = user.dir.join(".local/state/leasehold");
        assert!(key(bare(&[])).starts_with(expected.to_str().unwrap()));
        return;
    }
    // In a mount namespace of its own, so that the machine is not changed.
    let script = "mount -t tmpfs none /var/lib && exec \"$@\"";
    let mut command = program("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", LEASEHOLD]);
    assert!(key(command).starts_with("/var/lib/leasehold/"));
}

#[test]
fn foreign_data_under_the_key_is_78_and_unchanged() {
    let dir = Dir::new();
    assert_eq!(dir.code(&["run", "x", "--", "true"]), 0);
    let state = dir.locks().join(".state");
    let files: Vec<_> = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    std::fs::write(&files[0], "something else, of another program").unwrap();
    let output = dir.call(&["run", "x", "--", "true"]);
    assert_eq!(code(&output), 78);
    one_line(&output);
    assert_eq!(std::fs::read_to_string(&files[0]).unwrap(), "something else, of another program");
}

/// Opening the pipe would wait for a writer, without regard to `--wait`.
#[test]
fn a_pipe_is_not_accepted_as_a_certificate_file() {
    let dir = Dir::new();
    let pipe = dir.path().join("pipe").display().to_string();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Files are read after the server was reached.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    for url in [
        format!("rediss://{address}?ca={pipe}"),
        format!("etcds://{address}?ca={pipe}"),
        format!("zookeepers://{address}?ca={pipe}"),
        format!("zookeepers://{address}?cert={pipe}&key={pipe}"),
        format!("mysql://u@{address}/db?ssl-mode=VERIFY_CA&ssl-ca={pipe}"),
    ] {
        let output = finish(bare(&["--url", &url, "run", "-w", "60s", "x", "--", "true"]));
        assert_eq!(code(&output), 78, "{url}: {output:?}");
        assert!(one_line(&output).contains(&format!("{pipe}: it is no regular file")), "{url}: {output:?}");
    }
}
