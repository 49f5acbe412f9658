//! A private Prometheus, and its tool.

use std::{
    cell::Cell,
    ffi::OsStr,
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use super::{
    child::{Server, free_port},
    directory::scratch,
    etcd_node::http_request,
};

/// A Prometheus that scrapes one exporter every second.
pub struct Prometheus {
    process: Server,
    _directory: TempDir,
    port: u16,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes `http://127.0.0.1:EXPORTER/metrics`, as the job `leasehold`, and evaluates the
    /// rules of this file.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn start(exporter: u16, rules: &Path) -> Self {
        let (directory, port) = (scratch(), free_port());
        let rules = fs::canonicalize(rules).expect("the file with the rules exists");
        let settings = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{rules:?}]\nscrape_configs:\n\
             - job_name: leasehold\n  static_configs: [{{targets: ['127.0.0.1:{exporter}']}}]\n"
        );
        let file = directory.path().join("prometheus.yml");
        fs::write(file, settings).expect("a private directory takes a file");
        let arguments = [
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            &format!("--web.listen-address=127.0.0.1:{port}"),
            "--log.level=error",
        ];
        let arguments = arguments.map(str::to_owned);
        let mut process = Server::start("prometheus", directory.path(), &arguments, &[]);
        process
            .wait_until(|| http_request(port, "GET /-/ready").is_some_and(|answer| answer.contains("Ready")));
        Self { process, _directory: directory, port }
    }

    /// Waits until the query has a result, and returns the labels and the value of each sample.
    ///
    /// # Panics
    /// If the query has no result in time.
    pub fn await_result(&mut self, query: &str) -> Vec<(Value, String)> {
        let port = self.port;
        let found = Cell::default();
        self.process.wait_until(|| {
            let samples = samples(&answer(port, query));
            let is_found = !samples.is_empty();
            found.set(samples);
            is_found
        });
        found.into_inner()
    }

    /// Checks that the server accepts the query, whether or not it has a result.
    ///
    /// # Panics
    /// If the server refuses the query.
    pub fn assert_valid(&self, query: &str) {
        let answer = answer(self.port, query);
        assert_eq!(answer["status"], "success", "{query}: {answer}");
    }
}

/// The answer to a query; null if there is none.
fn answer(port: u16, query: &str) -> Value {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = http_request(port, &format!("GET /api/v1/query?query={encoded}")).unwrap_or_default();
    serde_json::from_str(&answer).unwrap_or_default()
}

/// The labels and the value of each sample of an answer.
fn samples(answer: &Value) -> Vec<(Value, String)> {
    let samples = answer["data"]["result"].as_array().cloned().unwrap_or_default();
    let sample = |sample: Value| {
        (sample["metric"].clone(), sample["value"][1].as_str().unwrap_or_default().to_owned())
    };
    samples.into_iter().map(sample).collect()
}

/// Runs `promtool` with this input in a directory. Returns its output and messages.
///
/// # Panics
/// If promtool does not succeed.
pub fn promtool(directory: &Path, arguments: &[impl AsRef<OsStr>], input: &str) -> String {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().unwrap_or_else(|error| panic!("cannot start promtool: {error}: run setup/debian"));
    // A promtool that ends before it has read its input says why by its status.
    let _ = child.stdin.take().expect("the input is a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("a child can be waited for");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{command:?}: {text}\nof {input}");
    text
}
