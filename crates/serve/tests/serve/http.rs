//! A small client that sends exactly what a test says.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// The longest wait for a byte: far longer than needed, because the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Parses the bytes of a whole answer whose body is not chunked.
    pub(crate) fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let (status, headers) = head_of(head.lines().map(str::to_owned));
        Self { status, headers, body: body.to_owned() }
    }
}

fn head_of(mut lines: impl Iterator<Item = String>) -> (u16, Vec<(String, String)>) {
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.map(|line| {
        let (key, value) = line.split_once(':').unwrap();
        (key.to_owned(), value.trim().to_owned())
    });
    (status, headers.collect())
}

/// The text of a request. Without a `Host` among the headers it has that of loopback.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(key, _)| key.eq_ignore_ascii_case("host")) {
        text += "Host: localhost\r\n";
    }
    for (key, value) in headers {
        text += &format!("{key}: {value}\r\n");
    }
    if method == "POST" {
        text +=
            &format!("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n", body.len());
    }
    text + "\r\n" + body
}

/// Sends a request and reads its whole answer.
pub(crate) fn send(address: SocketAddr, request: &str) -> Answer {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    Answer::parse(&text)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A connection on which events come.
pub(crate) struct Events {
    lines: BufReader<TcpStream>,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
}

impl Events {
    pub(crate) fn follow(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut stream = connect(address);
        stream.write_all(request("GET", path, headers, "").as_bytes()).unwrap();
        let mut lines = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            match line.trim_end() {
                "" => break,
                text => head.push(text.to_owned()),
            }
        }
        let (status, headers) = head_of(head.into_iter());
        Self { lines, status, headers }
    }

    /// The data of the next event; `None`: the server has ended the stream.
    pub(crate) fn next(&mut self) -> Option<serde_json::Value> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }

    /// The next event of which this is true.
    pub(crate) fn until(&mut self, is_it: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        loop {
            let event = self.next().expect("the stream goes on");
            if is_it(&event) {
                return event;
            }
        }
    }
}
