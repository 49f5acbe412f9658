//! Headless Chromium, driven by the WebDriver protocol.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::PATIENCE;

/// The key under which the protocol sends elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// How often the driver is started: it looks for a free port, which another program can take before it listens.
const STARTS: usize = 5;

/// A browser, which ends with this value.
pub(crate) struct Chromium {
    driver: Child,
    port: u16,
    session: String,
    /// The profile, and all temporary files.
    dir: TempDir,
}

impl Chromium {
    pub(crate) fn start() -> Self {
        Self::with_scripts(true)
    }

    /// A browser that runs no scripts of pages.
    pub(crate) fn without_scripts() -> Self {
        Self::with_scripts(false)
    }

    fn with_scripts(runs_scripts: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (driver, port) = (0..STARTS)
            .find_map(|_| start_driver(dir.path()))
            .unwrap_or_else(|| panic!("chromedriver does not start: run setup/debian"));
        let mut browser = Self { driver, port, session: String::new(), dir };
        let profile = format!("--user-data-dir={}", browser.dir.path().join("profile").display());
        // Its own sandbox does not start for root, as in a container.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1280,800",
            "--hide-scrollbars",
            &profile,
        ];
        let scripts = if runs_scripts { 1 } else { 2 };
        // The browser must not outlive a test that is killed: the kernel kills it with the driver.
        let program = browser.dir.path().join("chromium");
        fs::write(&program, "#!/bin/sh\nexec setpriv --pdeathsig KILL -- chromium \"$@\"\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let options = json!({
            "args": arguments,
            "binary": program,
            "prefs": { "profile.managed_default_content_settings.javascript": scripts },
        });
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome", "acceptInsecureCerts": true, "goog:chromeOptions": options,
        } } });
        browser.session = browser.send("POST", "/session", &wanted)["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    pub(crate) fn go(&self, url: &str) {
        self.call("POST", "/url", &json!({ "url": url }));
    }

    /// Waits for an element and clicks it.
    pub(crate) fn click(&self, css: &str) {
        let element = self.element(css);
        self.call("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Waits for an element and types into it.
    pub(crate) fn write(&self, css: &str, text: &str) {
        let element = self.element(css);
        self.call("POST", &format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// The text that an element shows; empty if there is none.
    pub(crate) fn text(&self, css: &str) -> String {
        let body = json!({ "using": "css selector", "value": css });
        let found = self.try_call("POST", "/element", &body);
        let text = found.ok().and_then(|found| {
            let element = found[ELEMENT].as_str()?.to_owned();
            // The page may have been loaded anew since.
            self.try_call("GET", &format!("/element/{element}/text"), &Value::Null).ok()
        });
        text.and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// How many elements there are.
    pub(crate) fn count(&self, css: &str) -> usize {
        let body = json!({ "using": "css selector", "value": css });
        self.call("POST", "/elements", &body).as_array().unwrap().len()
    }

    /// Runs a script in the page, and returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an element shows this text.
    pub(crate) fn until_text(&self, css: &str, text: &str) {
        self.until(&format!("{css} shows {text:?}"), || self.text(css).contains(text));
    }

    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < end, "it never happened: {what}; the page: {}", self.text("body"));
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Takes a picture of the page. It becomes the picture of the documentation if the environment asks for it.
    pub(crate) fn picture(&self, name: &str) {
        let encoded = self.call("GET", "/screenshot", &Value::Null);
        let png = from_base64(encoded.as_str().unwrap());
        assert!(png.starts_with(b"\x89PNG"), "a picture");
        if std::env::var_os("LEASEHOLD_WRITE_PICTURES").is_some() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
            fs::write(folder.join(format!("{name}.png")), png).unwrap();
        }
    }

    fn element(&self, css: &str) -> String {
        let body = json!({ "using": "css selector", "value": css });
        let mut found = None;
        self.until(&format!("there is {css}"), || {
            found = self.try_call("POST", "/element", &body).ok();
            found.is_some()
        });
        found.unwrap()[ELEMENT].as_str().unwrap().to_owned()
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_call(method, path, body).unwrap_or_else(|error| panic!("{method} {path} {body}: {error}"))
    }

    fn try_call(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let value = self.send(method, &format!("/session/{}{path}", self.session), body);
        if value["error"].is_string() { Err(value) } else { Ok(value) }
    }

    /// Sends a command and returns its value.
    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(2 * PATIENCE)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        // It does not end the connection, so the length says where the answer ends.
        let (mut answer, mut length) = (BufReader::new(stream), 0);
        loop {
            let mut line = String::new();
            answer.read_line(&mut line).unwrap();
            match line.trim_end().to_ascii_lowercase().split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse().unwrap(),
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body).unwrap();
        serde_json::from_slice::<Value>(&body).unwrap()["value"].take()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let path = format!("/session/{}", self.session);
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.send("DELETE", &path, &Value::Null)
            }));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Starts the driver on a free port, and returns the port. `None`: another program took the port meanwhile.
fn start_driver(dir: &Path) -> Option<(Child, u16)> {
    // The kernel kills it with the thread of the test, as the servers of the testkit.
    let mut driver = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "chromedriver", "--port=0"])
        .env("TMPDIR", dir)
        .env("HOME", dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let port = lines.find_map(|line| {
        let line = line.unwrap();
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    let Some(port) = port else {
        driver.wait().unwrap();
        return None;
    };
    // It writes on, and must find a reader.
    std::thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}

fn from_base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().filter_map(value) {
        bits = (bits << 6 | u32::from(digit)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap());
        }
    }
    bytes
}
