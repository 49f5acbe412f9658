//! Reads what one server reports about itself. What this user may not read is left out, and recorded.

use std::{collections::HashMap, time::Duration};

use leasehold_core::{EngineError, Fault};
use redis::{Cmd, Value, from_redis_value};

use crate::{
    access::Access,
    conn::Conn,
    guarantee::{parse_info, text_of},
    identity::ServerKind,
    keys::RESERVED_PREFIX,
    layout::is_own_digest,
    server_clock::Clocks,
};

/// The settings that are judged. Each is read by a request of its own, because servers before 7.0 accept only one
/// pattern. No pattern matches a setting with a password.
const SETTINGS: [&str; 11] = [
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "stop-writes-on-bgsave-error",
    "min-replicas-to-write",
    "maxclients",
    "timeout",
    "client-output-buffer-limit",
    "tracking-table-max-keys",
    "protected-mode",
    "cluster-node-timeout",
];
/// How many of the newest slow commands are read: the length of the list by default.
const SLOW_COMMANDS: u32 = 128;
/// The longest name of a command that is shown, in characters.
const MAX_COMMAND_CHARS: usize = 32;

/// What one server reports about itself.
#[derive(Debug)]
pub(crate) struct ServerReport {
    /// The fields of the answer to `INFO`; none if this user may not ask.
    pub(super) info: HashMap<String, String>,
    /// Those of [`SETTINGS`] that the server has; none if this user may not ask.
    pub(super) settings: HashMap<String, String>,
    /// The fields of the answer to `CLUSTER INFO`; none if this user may not ask, or the server is of no cluster.
    pub(super) cluster: HashMap<String, String>,
    /// The newest slow commands; `None` if this user may not ask.
    pub(super) slow_commands: Option<Vec<SlowCommand>>,
    /// The user of the connection, if the server tells it.
    pub(super) user: Option<String>,
    pub(super) clocks: Clocks,
    /// The commands that the server refused.
    pub(super) refused: Vec<&'static str>,
    pub(super) access: Access,
}

/// A command that took long enough for the list of the server.
#[derive(Debug)]
pub(super) struct SlowCommand {
    /// The name of the command. Its arguments may contain secrets.
    pub(super) name: String,
    /// Whether it is a script of leasehold.
    pub(super) is_own: bool,
    /// When it ran, by the server's clock, since 1970.
    pub(super) at: Duration,
    pub(super) took: Duration,
}

impl ServerReport {
    /// Asks the server.
    ///
    /// # Errors
    /// The server does not answer. A refused command is no error.
    pub(crate) async fn read(conn: &Conn, kind: ServerKind) -> Result<Self, EngineError> {
        let mut refused = Vec::new();
        let clocks = Clocks::read(conn).await?;
        let info = ask(conn, "INFO", &["everything"], &mut refused).await?;
        let info = info.map(text_of).transpose()?.as_deref().map(parse_info).unwrap_or_default();
        let mut settings = HashMap::new();
        for setting in SETTINGS {
            let Some(answer) = ask(conn, "CONFIG", &["GET", setting], &mut refused).await? else { break };
            settings.extend(from_redis_value::<HashMap<String, String>>(answer).unwrap_or_default());
        }
        let mut cluster = HashMap::new();
        if kind == ServerKind::ClusterNode
            && let Some(answer) = ask(conn, "CLUSTER", &["INFO"], &mut refused).await?
        {
            cluster = parse_info(&text_of(answer)?);
        }
        let slow = ask(conn, "SLOWLOG", &["GET", &SLOW_COMMANDS.to_string()], &mut refused).await?;
        let user = ask(conn, "ACL", &["WHOAMI"], &mut Vec::new()).await?;
        Ok(Self {
            info,
            settings,
            cluster,
            slow_commands: slow.map(slow_commands),
            user: user.and_then(|user| text_of(user).ok()),
            clocks,
            refused,
            access: conn.access,
        })
    }

    /// A field of the answer to `INFO`; empty if the server has no such field, or this user may not ask.
    pub(super) fn info(&self, field: &str) -> &str {
        self.info.get(field).map_or("", String::as_str)
    }

    /// A number in the answer to `INFO`.
    pub(super) fn number(&self, field: &str) -> Option<u64> {
        self.info(field).parse().ok()
    }

    /// A setting; `None` if the server has no such setting, or this user may not ask.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }
}

/// Sends a command that this user need not have the right to send. Returns `None`, and records the command, if the
/// server refuses it or lacks it.
async fn ask(
    conn: &Conn,
    name: &'static str,
    arguments: &[&str],
    refused: &mut Vec<&'static str>,
) -> Result<Option<Value>, EngineError> {
    let mut command = Cmd::new();
    command.arg(name).arg(arguments);
    match conn.ask(&command).await {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if matches!(error.fault, Fault::Denied | Fault::Misconfigured | Fault::Internal) => {
            refused.push(name);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The entries of an answer to `SLOWLOG GET`, without those that cannot be read.
fn slow_commands(answer: Value) -> Vec<SlowCommand> {
    let Value::Array(entries) = answer else { return Vec::new() };
    entries.into_iter().filter_map(slow_command).collect()
}

/// An entry: its number, the time in seconds, the duration in microseconds, the words of the command, and more.
fn slow_command(entry: Value) -> Option<SlowCommand> {
    let Value::Array(fields) = entry else { return None };
    let mut fields = fields.into_iter().skip(1);
    let at = from_redis_value(fields.next()?).ok()?;
    let took = from_redis_value(fields.next()?).ok()?;
    let words: Vec<Vec<u8>> = from_redis_value(fields.next()?).ok()?;
    let name = String::from_utf8_lossy(words.first()?).to_ascii_uppercase();
    let name: String = name.chars().filter(char::is_ascii_graphic).take(MAX_COMMAND_CHARS).collect();
    let is_own = name == "EVALSHA" && is_own_script(&words);
    Some(SlowCommand { name, is_own, at: Duration::from_secs(at), took: Duration::from_micros(took) })
}

/// Whether an `EVALSHA` with these words is a script of leasehold: of this version by its digest, of any version by a
/// key that only leasehold uses.
fn is_own_script(words: &[Vec<u8>]) -> bool {
    let digest = words.get(1).and_then(|word| str::from_utf8(word).ok());
    digest.is_some_and(is_own_digest) || words.iter().any(|word| word.starts_with(RESERVED_PREFIX.as_bytes()))
}

#[cfg(test)]
impl ServerReport {
    /// The report of a durable server without replicas, on this machine, with these changes: those of [`SETTINGS`], and
    /// other names as fields of `INFO`.
    pub(crate) fn example(changes: &[(&str, &str)]) -> Self {
        let info = [
            ("redis_version", "7.0.15"),
            ("uptime_in_seconds", "90000"),
            ("role", "master"),
            ("connected_slaves", "0"),
            ("aof_enabled", "1"),
            ("aof_last_write_status", "ok"),
            ("aof_last_bgrewrite_status", "ok"),
            ("rdb_last_bgsave_status", "ok"),
            ("aof_delayed_fsync", "0"),
            ("maxmemory", "1000000"),
            ("maxmemory_policy", "noeviction"),
            ("used_memory", "500000"),
            ("mem_not_counted_for_evict", "0"),
            ("used_memory_rss", "600000"),
            ("total_system_memory", "9000000"),
            ("evicted_keys", "0"),
            ("connected_clients", "3"),
            ("rejected_connections", "0"),
        ];
        let settings = [
            ("appendfsync", "always"),
            ("no-appendfsync-on-rewrite", "no"),
            ("save", ""),
            ("stop-writes-on-bgsave-error", "yes"),
            ("min-replicas-to-write", "0"),
            ("maxclients", "10000"),
            ("timeout", "0"),
            (
                "client-output-buffer-limit",
                "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
            ),
            ("tracking-table-max-keys", "1000000"),
            ("protected-mode", "yes"),
        ];
        let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        let mut report = Self {
            info: info.iter().map(owned).collect(),
            settings: settings.iter().map(owned).collect(),
            cluster: HashMap::new(),
            slow_commands: Some(Vec::new()),
            user: Some("default".to_owned()),
            clocks: Clocks::of_millis(5000, 5000, 5000),
            refused: Vec::new(),
            access: Access {
                path: crate::access::Path::Loopback,
                has_password: true,
                is_encrypted: false,
                certificate_end: None,
            },
        };
        for change in changes {
            let fields = if SETTINGS.contains(&change.0) { &mut report.settings } else { &mut report.info };
            fields.extend([owned(change)]);
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_slow_command_only_the_name_is_kept() {
        let text = |text: &str| Value::BulkString(text.into());
        let words = Value::Array(vec![text("e\u{1b}val"), text("canary")]);
        let entry =
            Value::Array(vec![Value::Int(7), Value::Int(100), Value::Int(2_500_000), words, text("a")]);
        let found = slow_commands(Value::Array(vec![entry, Value::Nil, Value::Array(Vec::new())]));
        let [found] = &found[..] else { panic!("{found:?}") };
        assert_eq!((found.name.as_str(), found.is_own), ("EVAL", false));
        assert_eq!((found.at, found.took), (Duration::from_secs(100), Duration::from_millis(2500)));
        assert!(!format!("{found:?}").contains("canary"));
    }

    #[test]
    fn scripts_of_leasehold_are_known_by_their_digest_or_by_their_keys() {
        let digest = |text: &str| sha1_smol::Sha1::from(text).digest().to_string();
        let is_own = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            is_own_script(&words)
        };
        let own = digest(crate::texts::CLAIM);
        assert!(is_own(&["EVALSHA", &own, "1", "x"]) && is_own(&["EVALSHA", &own]));
        let redisson = digest(crate::texts::redisson::CLAIM);
        assert!(is_own(&["EVALSHA", &redisson, "0"]));
        // Of another version.
        assert!(is_own(&["EVALSHA", &digest("x"), "2", "lock:a", "leasehold:{t}t"]));
        assert!(!is_own(&["EVALSHA", &digest("x"), "1", "lock:a"]));
        assert!(!is_own(&["EVALSHA"]));
    }
}
