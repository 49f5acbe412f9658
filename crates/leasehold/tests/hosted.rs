//! The URLs of hosted databases that the pages of the engines show are read.
#![cfg(all(feature = "postgres", feature = "mysql", feature = "tls"))]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use leasehold::Locks;

const POSTGRES: &str = include_str!("../../../docs/engines/postgres.md");
const MYSQL: &str = include_str!("../../../docs/engines/mysql.md");

/// The rows of the table under this heading: a service, and its URL.
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
            assert!(error.is_misconfigured() && error.to_string().contains("it knows"), "{service}: {error}");
        }
    }
}
