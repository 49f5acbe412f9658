//! The series that operators' tools export, in a real Prometheus; and the board and the alert rules of `ops/`, which
//! use only these series.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Instant, SystemTime},
};

use leasehold::{Connect, Diagnostic, Level, Severity};
use leasehold_ops::{
    Looks,
    series::{CONTENT_TYPE, EngineState, Exposition, FAMILIES, Kind, NameFilter, RUN_FAMILIES, Totals},
};
use leasehold_testkit::server::{Prometheus, promtool};
use serde_json::Value;

use crate::tools::{Dir, HOLD, Running, code};

/// A file of this repository.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

/// All series that leasehold exports: those of its tools, and those of the observer for programs.
fn exported() -> BTreeSet<String> {
    let mut names: BTreeSet<_> = series_in(&text("crates/leasehold/src/metrics.rs"));
    for family in FAMILIES.iter().chain(&RUN_FAMILIES) {
        names.insert(family.name.to_owned());
    }
    let histograms: Vec<_> = names.iter().filter(|name| name.ends_with("_seconds")).cloned().collect();
    let is_gauge = |name: &str| {
        let mut families = FAMILIES.iter().chain(&RUN_FAMILIES);
        families.any(|family| family.name == name && family.kind != Kind::Histogram)
    };
    for name in histograms.into_iter().filter(|name| !is_gauge(name)) {
        names.extend(["bucket", "sum", "count"].map(|end| format!("{name}_{end}")));
    }
    names
}

/// The names of series in a text.
fn series_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| word.len() > "leasehold_".len());
    words.filter(|word| word.starts_with("leasehold_") && !word.ends_with('_')).map(str::to_owned).collect()
}

/// The expressions of the board, without its variables.
fn expressions() -> Vec<String> {
    let board: Value = serde_json::from_str(&text("ops/dashboard.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let expression = |target: &Value| {
        let expression = target["expr"].as_str().unwrap().replace("$__rate_interval", "1m");
        expression.replace("$engine", ".*").replace("$location", ".*")
    };
    targets.map(expression).collect()
}

#[test]
fn the_rules_are_valid_and_fire_on_their_causes() {
    let ops = path("ops");
    promtool(&ops, &["check", "rules", "alerts.yml"], "");
    let result = promtool(&ops, &["test", "rules", "alerts_test.yml"], "");
    assert!(result.contains("SUCCESS"), "{result}");
}

#[test]
fn each_rule_has_a_test_and_a_section_in_the_runbook() {
    let (rules, tests, runbook) =
        (text("ops/alerts.yml"), text("ops/alerts_test.yml"), text("docs/runbook.md"));
    let alerts: BTreeSet<_> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    // Rules for requests to the engine are tested together, by the ends of their names.
    let tested_by_end = ["Acquire", "Release", "Late"];
    for alert in &alerts {
        let is_tested = tests.contains(alert) || tested_by_end.iter().any(|end| alert.ends_with(end));
        assert!(is_tested, "{alert} has no test");
        assert!(runbook.contains(&format!("\n## {alert}\n")), "{alert} is not in the runbook");
        let url = format!("docs/runbook.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&url), "{alert} does not lead to the runbook");
    }
    for section in runbook.lines().filter_map(|line| line.strip_prefix("## Leasehold")) {
        assert!(alerts.contains(format!("Leasehold{section}").as_str()), "{section} is no rule");
    }
    let blocks: Vec<_> = rules.split("- alert: ").skip(1).collect();
    for needed in ["severity: ", "summary: ", "description: ", "runbook_url: "] {
        assert!(blocks.iter().all(|block| block.contains(needed)), "{needed}");
    }
}

#[test]
fn the_board_and_the_rules_use_only_series_that_exist() {
    let exported = exported();
    let used = series_in(&(text("ops/alerts.yml") + &expressions().join(" ")));
    assert_eq!(used.difference(&exported).collect::<Vec<_>>(), [""; 0], "unknown");
    let tested = series_in(&text("ops/alerts_test.yml"));
    assert_eq!(tested.difference(&exported).collect::<Vec<_>>(), [""; 0], "unknown");
    for family in FAMILIES.iter().chain(&RUN_FAMILIES) {
        let is_used = used.iter().any(|used| used.starts_with(family.name));
        assert!(is_used, "{} is on no board and in no rule", family.name);
    }
}

#[test]
fn the_documentation_lists_all_series() {
    let page = text("docs/observability.md");
    for family in FAMILIES.iter().chain(&RUN_FAMILIES) {
        assert!(page.contains(&format!("`{}`", family.name)), "{} is not on the page", family.name);
    }
}

#[test]
fn the_board_can_be_provisioned_and_imported() {
    let board: Value = serde_json::from_str(&text("ops/dashboard.json")).unwrap();
    assert_eq!((&board["id"], &board["uid"]), (&Value::Null, &"leasehold".into()));
    let panels = board["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have the id of {panel}");
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        for part in targets.iter().chain((panel["type"] != "row").then_some(panel)) {
            assert_eq!(part["datasource"]["uid"], "${datasource}", "{panel}");
        }
    }
    let variables = board["templating"]["list"].as_array().unwrap();
    assert_eq!((&variables[0]["name"], &variables[0]["type"]), (&"datasource".into(), &"datasource".into()));
}

/// What Grafana requires of a board beside valid JSON: a known version of the format, known kinds of panels, a place on
/// the grid for each, distinct queries in a panel, and a definition of each variable that a query uses.
#[test]
fn the_board_is_one_that_grafana_draws() {
    let board: Value = serde_json::from_str(&text("ops/dashboard.json")).unwrap();
    // From version 33 on a data source is an object with a uid; 41 is the version of Grafana 12.
    assert!((33..=41).contains(&board["schemaVersion"].as_u64().unwrap()));
    let variables = board["templating"]["list"].as_array().unwrap();
    let names: BTreeSet<_> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    for variable in variables.iter().filter(|variable| variable["type"] == "query") {
        let used = series_in(&variable["query"].to_string());
        let exported = exported();
        assert_eq!(used.difference(&exported).collect::<Vec<_>>(), [""; 0], "{variable}");
    }
    let mut taken = BTreeSet::new();
    for panel in board["panels"].as_array().unwrap() {
        let kind = panel["type"].as_str().unwrap();
        assert!(["row", "stat", "table", "timeseries"].contains(&kind), "{kind}");
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(width > 0 && height > 0 && x + width <= 24, "{panel}");
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{} overlaps another panel at {cell:?}", panel["title"]);
        }
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        assert_eq!(targets.is_empty(), kind == "row", "{panel}");
        let ids: BTreeSet<_> = targets.iter().map(|target| target["refId"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), targets.len(), "two queries have one id: {panel}");
        for target in &targets {
            for rest in target["expr"].as_str().unwrap().split('$').skip(1) {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                let variable = &rest[..end];
                assert!(names.contains(variable) || variable == "__rate_interval", "{variable}: {target}");
            }
        }
    }
}

/// An HTTP server on loopback that answers each request with a text that it makes then.
struct Exporter {
    port: u16,
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    fn start(mut text: impl FnMut() -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (port, has_ended) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let ends = Arc::clone(&has_ended);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ends.load(Ordering::SeqCst) {
                    break;
                }
                answer(&stream, &text());
            }
        });
        Self { port, has_ended, thread: Some(thread) }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::SeqCst);
        // The thread waits for a connection.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        self.thread.take().map(JoinHandle::join);
    }
}

/// Reads the head of a request, and answers with this text. A client that has gone is ignored.
fn answer(mut stream: &TcpStream, text: &str) {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let length = text.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let _ = stream.write_all((head + text).as_bytes());
}

#[test]
fn a_prometheus_scrapes_the_series_and_answers_the_queries_of_the_board() {
    let dir = Dir::new();
    let job = dir.path().join("job.prom").to_str().unwrap().to_owned();
    assert_eq!(dir.code(&["run", "--metrics-file", &job, "nightly", "--", "true"]), 0);
    let holder = dir.holder(&[], "deploy/\"a\"", HOLD);
    let waiter = Running::start(dir.leasehold(&["run", "deploy/\"a\"", "--", "true"]));
    dir.until_waiters("deploy/\"a\"", 1);
    let locks = Connect::default().owner("exporter").connect(&dir.url()).unwrap();
    let (mut looks, mut totals) = (Looks::new(), Totals::new());
    let exporter = Exporter::start(move || {
        let views = locks.list_blocking("").unwrap();
        totals.count(looks.next(&views, Instant::now()).iter().map(|(_, change)| change));
        let found =
            [Diagnostic::new("file-system", Severity::Broken, "it is full", "delete files").of_server("h")];
        let state = EngineState::new("file", "/srv/locks", &totals).looked(SystemTime::now(), &views);
        let mut text = Exposition::new();
        state.level(Some(Level::Exact)).diagnostics(&found).write(&mut text, &NameFilter::new(["deploy/*"]));
        text.to_string() + &fs::read_to_string(&job).unwrap()
    });
    let mut prometheus = Prometheus::start(exporter.port, &path("ops/alerts.yml"));
    let mut value = |query: &str| {
        let samples = prometheus.await_result(query);
        assert_eq!(samples.len(), 1, "{query}: {samples:?}");
        samples[0].clone()
    };
    let (labels, waiters) = value("leasehold_lock_waiters");
    assert_eq!((labels["name"].as_str(), waiters.as_str()), (Some("deploy/\"a\""), "1"));
    assert_eq!((labels["engine"].as_str(), labels["location"].as_str()), (Some("file"), Some("/srv/locks")));
    assert_eq!(value("leasehold_holders").1, "1");
    assert_eq!(value("leasehold_guarantee_level").1, "2");
    let age: f64 = value("time() - leasehold_lock_held_since_timestamp_seconds").1.parse().unwrap();
    assert!((0.0..3600.0).contains(&age), "{age}");
    assert_eq!(value("leasehold_run_ends_total{outcome=\"ran\"}").1, "1");
    let alert = value("ALERTS{alertname=\"LeaseholdBroken\"}").0;
    assert_eq!((alert["id"].as_str(), alert["server"].as_str()), (Some("file-system"), Some("h")));
    // The hand-over is seen by a look.
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(code(&waiter.output()), 0);
    value("leasehold_observed_hold_duration_seconds_count >= 1");
    value("leasehold_holders == 0");
    for expression in expressions() {
        prometheus.assert_valid(&expression);
    }
}
