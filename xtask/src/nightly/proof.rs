//! Prints the figures of a night as the tables of docs/proof.md.

use super::{
    cargo_fuzz, fault_runs,
    markdown::{bold, grouped, table},
    night::Night,
    simulation,
};

/// The figures of this night, under the same headings as in docs/proof.md.
pub(super) fn page(night: &Night<'_>) -> String {
    format!(
        "# Figures of docs/proof.md\n\n### Storms on real engines\n\n{}### Simulation\n\n{}\n### Parsers\n\n{}\n### Lost updates\n\n{}\n\
         ### Other crates in the same storms\n\n{}",
        fault_runs::tables(night),
        simulation::page(night),
        cargo_fuzz::page(night),
        fenced(&night.log("fenced")),
        peers(&night.log("peers"))
    )
}

/// For each destination of updates: its name in the output of the program, and its name in the table.
const DESTINATIONS: [(&str, &str); 3] = [
    ("file ", "a file without a fence"),
    ("fenced file", "a file with one"),
    ("fenced key", "a key of Redis with one"),
];

fn fenced(output: &str) -> String {
    let row = |line: &str| -> Option<[String; 5]> {
        let (label, name) = DESTINATIONS.into_iter().find(|(label, _)| line.starts_with(label))?;
        let counts: Vec<u64> =
            line.strip_prefix(label)?.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [acknowledged, refused, increments, appends] = counts[..] else { return None };
        let lost = |count: u64| if count == 0 { "0".to_owned() } else { bold(&grouped(count)) };
        let refused = if label == "file " { "–".to_owned() } else { grouped(refused) };
        Some([name.to_owned(), grouped(acknowledged), refused, lost(increments), lost(appends)])
    };
    table(&["", "acknowledged", "refused", "increments lost", "appends lost"], output.lines().filter_map(row))
}

fn peers(output: &str) -> String {
    let row = |line: &str| -> Option<Vec<String>> {
        let mut words = line.split_whitespace();
        let name = format!("{} {}", words.next()?, words.next()?);
        let counts: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [figures @ .., p50, p99] = &counts[..] else { return None };
        if figures.len() != 7 {
            return None;
        }
        let times = [format!("{} µs", grouped(*p50)), format!("{} ms", grouped(p99 / 1000))];
        Some([name].into_iter().chain(figures.iter().map(|count| grouped(*count))).chain(times).collect())
    };
    let titles = [
        "",
        "operations",
        "grants",
        "faults",
        "exclusion violated",
        "unreported losses",
        "waits over their limit",
        "lost wake-ups",
        "hand-over p50",
        "p99",
    ];
    table(&titles, output.lines().filter_map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_updates_are_read() {
        let output = "seed 1, 60 s, 4 processes\n                acknowledged  refused\n\
                    file                    549        0               40            34\n\
                    fenced file             510       13                0             0\n";
        let page = fenced(output);
        assert!(page.contains("| a file without a fence | 549 | – | **40** | **34** |\n"), "{page}");
        assert!(page.contains("| a file with one | 510 | 13 | 0 | 0 |\n"), "{page}");
        assert_eq!(page.lines().count(), 4);
    }

    #[test]
    fn peers_are_read() {
        let output = "                       operations  grants\n\
            distributed-lock 0.2.0       7689    3249    323                 26               3                0             0            2809           43123\n\
            \nrslock, I12 limits: for example\n  \"m0\": exclusive of process 1\n";
        let page = peers(output);
        let row = "| distributed-lock 0.2.0 | 7,689 | 3,249 | 323 | 26 | 3 | 0 | 0 | 2,809 µs | 43 ms |";
        assert_eq!(page.lines().nth(2), Some(row), "{page}");
        assert_eq!(page.lines().count(), 3, "{page}");
    }
}
