//! Fixture: a server with Redisson's layout, and the recorded commands of Redisson's scripts. Redisson itself runs in
//! the nightly test `e2e/tests/neighbours/redisson.rs`.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::{SystemTime, UNIX_EPOCH},
};

use leasehold_redis::Layout;

use crate::rig::{PATIENCE, Rig};

/// A thread of a Redisson client.
pub(crate) const OWNER: &str = "285475da-9152-4c83-822a-67ee2f116a79:52";
/// A thread of another client.
pub(crate) const OTHER: &str = "5d2ff9f5-6ba5-4c3a-a6cf-1dc1f22ba1a5:27";

const EFFECTS: &str = include_str!("redisson_effects.txt");

pub(crate) fn redisson() -> Rig {
    redisson_with(&[])
}

pub(crate) fn redisson_with(arguments: &[&str]) -> Rig {
    let mut rig = Rig::with(arguments);
    rig.config = rig.config.layout(Layout::Redisson).unwrap();
    rig
}

impl Rig {
    /// Sends the recorded commands of Redisson for these steps, for the name `a`.
    pub(crate) fn redisson_runs(&self, steps: &[&str]) {
        for step in steps {
            let mut lines = EFFECTS.lines().skip_while(|line| line != step);
            assert!(lines.next().is_some(), "{step} is no recorded step");
            for line in lines.take_while(|line| line.starts_with(' ')) {
                let words: Vec<String> = line.split_whitespace().map(word).collect();
                self.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
            }
        }
    }

    /// The hash under the key of the name `a`.
    pub(crate) fn hash(&self) -> BTreeMap<String, String> {
        let reply = self.server.command(&["HGETALL", "lock:a"]);
        reply.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }

    pub(crate) fn millis_left(&self, key: &str) -> i64 {
        self.command(&["PTTL", key]).parse().unwrap()
    }

    /// Whether `lock()` of an `RLock`, a `SpinLock` or a `FencedLock` of another client would succeed now.
    pub(crate) fn redisson_can_lock(&self) -> bool {
        self.command(&["EXISTS", "lock:a"]) == "0" || self.command(&["HEXISTS", "lock:a", OTHER]) == "1"
    }

    /// Whether a read lock of another client would succeed now.
    pub(crate) fn redisson_can_read(&self) -> bool {
        matches!(&*self.command(&["HGET", "lock:a", "mode"]), "" | "read")
    }

    pub(crate) fn redisson_can_write(&self) -> bool {
        self.command(&["HGET", "lock:a", "mode"]).is_empty()
    }

    /// Subscribes to channels, like a waiter of Redisson.
    pub(crate) fn listen(&self, channels: &[&str]) -> ChannelListener {
        ChannelListener::at(self.server.port(), channels)
    }
}

/// Replaces the placeholders of a recorded word: see `redisson_effects.txt`.
fn word(word: &str) -> String {
    let named = |text: &str| match text {
        "N" => "lock:a".to_owned(),
        "O" => OWNER.to_owned(),
        "P" => OTHER.to_owned(),
        "SOON" => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            (now.as_millis() + 300_000).to_string()
        }
        other => other.to_owned(),
    };
    let parts: Vec<String> = word
        .split(':')
        .map(|part| match part {
            "{N}" => "{lock:a}".to_owned(),
            part => named(part),
        })
        .collect();
    parts.join(":")
}

/// A connection with subscriptions.
pub(crate) struct ChannelListener(BufReader<TcpStream>);

impl ChannelListener {
    pub(crate) fn at(port: u16, channels: &[&str]) -> Self {
        Self::subscribed_by(port, "SUBSCRIBE", channels)
    }

    /// Subscribes to a sharded channel, at the node that has its slot.
    pub(crate) fn by_slot(port: u16, channel: &str) -> Self {
        Self::subscribed_by(port, "SSUBSCRIBE", &[channel])
    }

    fn subscribed_by(port: u16, command: &str, channels: &[&str]) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{command} {}\r\n", channels.join(" ")).as_bytes()).unwrap();
        let mut listener = Self(BufReader::new(stream));
        for _ in channels {
            while !listener.line().starts_with(':') {}
        }
        listener
    }

    /// The next message, and its channel.
    pub(crate) fn receive(&mut self) -> (String, String) {
        self.next("message")
    }

    pub(crate) fn receive_by_slot(&mut self) -> (String, String) {
        self.next("smessage")
    }

    fn next(&mut self, kind: &str) -> (String, String) {
        while self.line() != kind {}
        let mut text = || loop {
            let line = self.line();
            if !line.starts_with('$') {
                return line;
            }
        };
        (text(), text())
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the connection ended");
        line.trim_end().to_owned()
    }
}
