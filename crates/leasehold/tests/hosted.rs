//! The URLs of hosted databases in the pages of the engines can be read.
#![cfg(all(feature = "postgres", feature = "mysql", feature = "tls"))]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use leasehold::Locks;

const POSTGRES: &str = include_str!("../../../docs/engines/postgres.md");
const MYSQL: &str = include_str!("../../../docs/engines/mysql.md");

/// The rows of the table "Hosted databases": a service, and its URL.
fn rows(page: &str) -> Vec<(&str, &str)> {
    let table = page.split("\n## Hosted databases\n").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    table
        .lines()
        .filter_map(|line| {
            let mut cells = line.split('|').skip(1);
            Some((cells.next()?.trim(), cells.next()?.split('`').nth(1)?))
        })
        .collect()
}

#[test]
fn every_url_of_the_pages_is_read() {
    for (page, least) in [(POSTGRES, 12), (MYSQL, 6)] {
        let rows = rows(page);
        assert!(rows.len() >= least, "{rows:?}");
        for (service, url) in rows {
            let locks = Locks::connect(url).unwrap_or_else(|error| panic!("{service}: {url}: {error}"));
            assert!(!format!("{locks:?}").contains("secret"), "{service}");
            let unknown = format!("{url}{}frobnicate=1", if url.contains('?') { '&' } else { '?' });
            let error = Locks::connect(&unknown).unwrap_err();
            assert!(
                error.is_misconfigured() && error.to_string().contains("known options are"),
                "{service}: {error}"
            );
        }
    }
}

/// The URLs of the quick start, for each engine.
#[cfg(all(feature = "redis", feature = "etcd", feature = "zookeeper", feature = "sqlite", feature = "file"))]
#[test]
fn every_url_of_the_quick_start_is_read() {
    const PAGE: &str = include_str!("../../../docs/quick-start.md");
    let spans =
        PAGE.lines().filter(|line| line.starts_with("| [")).flat_map(|row| row.split('`').skip(1).step_by(2));
    let urls: Vec<&str> = spans.filter(|it| it.contains(':') && !it.contains("...")).collect();
    assert!(urls.len() >= 18, "{urls:?}");
    for url in urls {
        Locks::connect(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

/// Parameters that programs of other languages write into the URLs of their databases.
#[test]
fn usual_parameters_are_read_and_impossible_ones_refused() {
    let postgres = "postgres://app:secret@db.example/app";
    let mysql = "mysql://app:secret@db.example/app";
    for url in [
        format!("{postgres}?gssencmode=disable&client_encoding=utf8&fallback_application_name=mine"),
        format!("{postgres}?keepalives=1&keepalives_idle=30&keepalives_interval=10&keepalives_count=3"),
        format!("{mysql}?charset=utf8mb4"),
    ] {
        Locks::connect(&url).unwrap_or_else(|error| panic!("{url}: {error}"));
    }
    for (url, known) in [
        (format!("{postgres}?gssencmode=require"), "disable and prefer"),
        (format!("{postgres}?client_encoding=latin1"), "utf8"),
        (format!("{mysql}?charset=latin1"), "utf8mb4"),
    ] {
        let error = Locks::connect(&url).unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains(known), "{url}: {error}");
    }
}
