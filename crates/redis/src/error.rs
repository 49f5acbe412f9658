//! Classifies errors of the server and of the connection by their meaning for a request.

use leasehold_core::{EngineError, Fault};
use redis::{ErrorKind, RedisError, Value};

use crate::server::{Address, Server};

/// Why the call of a script failed: one variant for each reaction of the caller.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Nothing was done: the slot belongs to another server, at the address `to`, from now on.
    Moved { to: String, error: EngineError },
    /// Nothing was done: the slot is migrating from this server to the server at the address `to`, and this server does
    /// not have the keys. If the keys exist, they are on the server at `to`.
    Ask { to: String, error: EngineError },
    /// Nothing was done: the slot is migrating, and some of the keys are on another server already.
    Split(EngineError),
    /// Nothing was done: the server is not a master, or cannot serve as one yet. The caller must look for the master.
    Demoted(EngineError),
    /// Any other error.
    Failed(EngineError),
}

impl Refused {
    /// Classifies the error of a call.
    pub(crate) fn new(error: RedisError) -> Self {
        let (code, to) = (code_of(&error), error.redirect_node().map(|(to, _)| to.to_owned()));
        match (code.as_deref(), to) {
            (Some("MOVED"), Some(to)) => Self::Moved { to, error: classify(error) },
            (Some("ASK"), Some(to)) => Self::Ask { to, error: classify(error) },
            (Some("TRYAGAIN"), _) => Self::Split(classify(error)),
            (Some(code), _) if means_no_master(code) => Self::Demoted(classify(error)),
            _ => Self::Failed(classify(error)),
        }
    }

    /// Classifies the text of a server's error.
    pub(crate) fn parse(text: &str) -> Self {
        let mut words = text.split_ascii_whitespace();
        let (code, to) = (words.next().unwrap_or_default(), words.nth(1).map(str::to_owned));
        let error = script_error(text);
        match (code, to) {
            ("MOVED", Some(to)) => Self::Moved { to, error },
            ("ASK", Some(to)) => Self::Ask { to, error },
            ("TRYAGAIN", _) => Self::Split(error),
            _ => Self::Failed(error),
        }
    }

    /// A copy without the source of the error, for another caller that waits for the same answer.
    pub(crate) fn without_source(&self) -> Self {
        match self {
            Self::Moved { to, error } => Self::Moved { to: to.clone(), error: error.without_source() },
            Self::Ask { to, error } => Self::Ask { to: to.clone(), error: error.without_source() },
            Self::Split(error) => Self::Split(error.without_source()),
            Self::Demoted(error) => Self::Demoted(error.without_source()),
            Self::Failed(error) => Self::Failed(error.without_source()),
        }
    }

    /// Whether it is unknown if the server executed the request.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Failed(error) if error.fault == Fault::Unknown)
    }
}

/// For a caller that follows no redirection.
impl From<Refused> for EngineError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Moved { error, .. } | Refused::Ask { error, .. } => error,
            Refused::Split(error) | Refused::Demoted(error) | Refused::Failed(error) => error,
        }
    }
}

/// Whether this error code shows that the server is not a master: a replica refuses writes (`READONLY`); a replica
/// without its master refuses to answer (`MASTERDOWN`); a replica of a new master first loads its data (`LOADING`).
fn means_no_master(code: &str) -> bool {
    matches!(code, "READONLY" | "MASTERDOWN" | "LOADING")
}

/// The error if the answer to one item of a batch shows that the server is no longer a master (then every write fails);
/// otherwise `None`.
pub(crate) fn demoted(reply: &Value) -> Option<EngineError> {
    let text = match reply {
        Value::BulkString(text) => std::str::from_utf8(text).ok()?,
        Value::SimpleString(text) => text,
        _ => return None,
    };
    // The answers of our scripts begin with a small letter. An error begins with a capital letter, or, on servers
    // before 7.0, with the position in the script.
    if !text.starts_with(|c: char| c.is_ascii_uppercase()) && !text.starts_with(SCRIPT_NAME) {
        return None;
    }
    let (code, detail) = code_and_detail(text);
    means_no_master(&code).then(|| error_of(&code, detail))
}

/// Classifies the error of a request that may have been sent.
pub(crate) fn classify(error: RedisError) -> EngineError {
    match code_of(&error) {
        Some(code) => {
            let detail = error.detail().unwrap_or_default().to_owned();
            error_of(&code, &detail).with_source(error)
        }
        // If the connection broke, it is unknown whether the request arrived.
        None => {
            EngineError::new(Fault::Unknown, "the connection broke before the answer came").with_source(error)
        }
    }
}

/// The error for an address at which nothing answers.
pub(crate) fn unreachable(address: &Address, error: &std::io::Error) -> EngineError {
    EngineError::new(Fault::Retry, format!("cannot connect to {address}: {error}"))
}

/// Classifies an error at the start of a connection: no request was sent yet.
pub(crate) fn classify_connecting(error: RedisError, server: &Server) -> EngineError {
    if error.kind() == ErrorKind::Parse {
        // Another kind of program answers at this port, or a server that requires TLS.
        let reason = format!(
            "the answer is not of a Redis server: check host and port of the URL{}",
            tls_hint_if_closed(server)
        );
        let message = format!("cannot connect to {}: {reason}", server.address);
        return EngineError::new(Fault::Misconfigured, message).with_source(error);
    }
    let classified = classify(error);
    let cause = classified.source.as_ref().map(ToString::to_string);
    let (fault, reason) = match (classified.fault, cause) {
        // A server that refuses our certificate sends a TLS alert after the connection was made. Here the alert is
        // inside an I/O error of the client library, so only its text shows that it is an alert.
        #[cfg(feature = "tls")]
        (Fault::Unknown, Some(cause)) if leasehold_tls::is_alert(&cause) => (Fault::Misconfigured, cause),
        (Fault::Unknown, cause) => {
            (Fault::Retry, cause.unwrap_or(classified.message) + tls_hint_if_closed(server))
        }
        (fault, _) => (fault, classified.message),
    };
    EngineError::new(fault, format!("cannot connect to {}: {reason}", server.address))
}

/// The text to add to the error for a server that does not answer; empty if the connection is not encrypted.
pub(crate) fn tls_hint_if_silent(server: &Server) -> &'static str {
    if server.is_encrypted() { ": does the server speak TLS on this port?" } else { "" }
}

/// The text to add to the error for a server that closes the connection before its first answer; empty for an encrypted
/// connection and for a unix socket.
pub(crate) fn tls_hint_if_closed(server: &Server) -> &'static str {
    match &server.address {
        _ if server.is_encrypted() => "",
        Address::Tcp(_) => {
            ": if the server wants TLS, write rediss:// instead of redis:// (or rediss+sentinel://, rediss+cluster://)"
        }
        Address::Unix(_) => "",
    }
}

/// Classifies the error of one item of a batch inside a script.
pub(crate) fn script_error(text: &str) -> EngineError {
    let (code, detail) = code_and_detail(text);
    error_of(&code, detail)
}

/// Whether the error says that the key of a lock has a value of a foreign type, which is certainly not one of our
/// holds.
pub(crate) fn is_foreign_type(text: &str) -> bool {
    code_and_detail(text).0 == "WRONGTYPE"
}

/// Whether the error says that the user lacks a right, in the words of Redis 6, of Redis 8 and of Valkey.
fn is_about_rights(detail: &str) -> bool {
    let words = ["can't run this command", "can't access at least one", "ACL failure in script"];
    words.iter().any(|words| detail.contains(words))
}

/// Whether the error says that a script used a key in another slot, in the words of Redis 7 and of Redis 6.
fn is_about_slots(detail: &str) -> bool {
    let words = ["non local key", "hash to the same slot", "undeclared key"];
    words.iter().any(|words| detail.contains(words))
}

/// The error of our scripts for a record that they cannot read, see `unpacked` in `lua/record.lua`.
const UNREADABLE_RECORD: &str = "cannot read what is packed";

/// The error for a server's error code and text.
fn error_of(code: &str, detail: &str) -> EngineError {
    let (fault, explanation) = match code {
        "LOADING" => (Fault::Retry, "the server is still loading its data"),
        "BUSY" => (Fault::Retry, "the server is busy with the script of another client"),
        "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" => (Fault::Retry, "the server cannot serve this now"),
        "OOM" => (Fault::Refused, "the server is out of memory: raise its maxmemory or free some"),
        "READONLY" => (Fault::Refused, "the server is a read-only replica: connect to the primary"),
        "MISCONF" => {
            (Fault::Refused, "the server refuses writes because it cannot save its data: look at its disk")
        }
        "NOREPLICAS" => (Fault::Refused, "the server refuses writes while too few replicas are connected"),
        "NOAUTH" | "WRONGPASS" => {
            (Fault::Denied, "the server does not accept the user or password of the URL")
        }
        "NOPERM" => (
            Fault::Denied,
            "the user of the URL may not do this: give it the rights of docs/engines/redis.md; list, top and serve need +scan, too, as the user leasehold-operator has it there",
        ),
        // The error of a command inside a script has no error code, only this text.
        _ if is_about_rights(detail) => (
            Fault::Denied,
            "the user of the URL may not do this: give it the rights of docs/engines/redis.md; list, top and serve need +scan, too, as the user leasehold-operator has it there",
        ),
        "CROSSSLOT" | "MOVED" | "ASK" => (
            Fault::Misconfigured,
            "this is a node of a Redis Cluster, where the keys of a lock are on several servers: write redis+cluster:// in the URL",
        ),
        // Scripts of locks declare the keys that they use: only the keys that a fence writes are not known beforehand.
        _ if is_about_slots(detail) => (
            Fault::Misconfigured,
            "the keys that a fence writes on a Redis Cluster must be in the slot of the fence: give the resource and all keys the same hash tag, as in {stock} and {stock}:42 (or that slot is moving: then try again)",
        ),
        "NOSCRIPT" => (Fault::Retry, "the server forgets its scripts"),
        "WRONGTYPE" => (
            Fault::Misconfigured,
            "the key of this lock has a value that is not a string: choose another name or prefix",
        ),
        _ if detail.contains("DB index is out of range") || detail.contains("invalid DB index") => (
            Fault::Misconfigured,
            "the server does not have the database that the URL names: with the default settings there are 0 to 15",
        ),
        _ if detail.contains("max number of clients") => (Fault::Full, "the server has too many connections"),
        _ if detail.contains(UNREADABLE_RECORD) => (
            Fault::Misconfigured,
            "a key that leasehold stores beside this lock has a foreign value: while the lock is free, delete the keys leasehold:{...}?lock:NAME with its prefix and name",
        ),
        _ if detail.contains("unknown command") || is_unknown_in_script(detail) => (
            Fault::Misconfigured,
            "the server lacks a command, or has it renamed: Redis 6.0 or newer, or Valkey, is needed",
        ),
        _ => (Fault::Internal, "the server answered with an error"),
    };
    // The text without the arguments of the command, which may contain a full script.
    let detail = detail.split(", with args beginning with").next().unwrap_or_default().trim();
    let message =
        if detail.is_empty() { explanation.to_owned() } else { format!("{explanation} ({code} {detail})") };
    EngineError::new(fault, message)
}

/// Whether this is the error of a script for a command that the server lacks: "Unknown Redis command" of Redis,
/// "Unknown command" of Valkey 9.
fn is_unknown_in_script(detail: &str) -> bool {
    detail.contains("Unknown ") && detail.contains("command called from script")
}

/// The server's error code, if the error came from the server.
fn code_of(error: &RedisError) -> Option<String> {
    let code = error.code()?;
    Some(code_and_detail(&format!("{code} {}", error.detail().unwrap_or_default())).0)
}

/// How errors name a script; a line number follows.
const SCRIPT_NAME: &str = "@user_script:";

/// The code of an error and the text after the code. For an error inside a script, servers before 7.0 write the code
/// within the text.
fn code_and_detail(text: &str) -> (String, &str) {
    let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
    let inner = text_in_script(text).map(|inner| inner.split(' ').next().unwrap_or_default());
    let is_code = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase());
    (inner.filter(is_code).unwrap_or(code.trim_start_matches('-')).to_owned(), detail)
}

/// The text of an error after the line number of the script, as in `@user_script:9: -OOM command not allowed`, or
/// `@user_script: 9: WRONGTYPE Operation`.
fn text_in_script(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(SCRIPT_NAME)?;
    let rest = rest.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(": ")?;
    Some(rest.strip_prefix('-').unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::server::Login;

    #[test]
    fn error_codes_of_older_servers_are_found_in_script_errors() {
        let old = "ERR Error running script (call to f_1): @user_script:9: -OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(script_error(old).fault, Fault::Refused);
        let old = "ERR Error running script (call to f_1): @user_script:9: WRONGTYPE Operation against a key";
        assert_eq!(script_error(old).fault, Fault::Misconfigured);
        assert_eq!(script_error("OOM command not allowed").fault, Fault::Refused);
        assert_eq!(script_error("NOPERM this user has no permissions").fault, Fault::Denied);
        for (reply, fault) in [
            (
                "ERR The user executing the script can't run this command or subcommand script: x",
                Fault::Denied,
            ),
            (
                "ERR ACL failure in script: User x has no permissions to run the 'scan' command script: y",
                Fault::Denied,
            ),
            ("CROSSSLOT Keys in request don't hash to the same slot", Fault::Misconfigured),
            ("MOVED 3999 127.0.0.1:6381", Fault::Misconfigured),
            (
                "ERR Script attempted to access a non local key in a cluster node script: x, on @user_script:20.",
                Fault::Misconfigured,
            ),
            (
                "ERR Script attempted to access keys that do not hash to the same slot script: x, on @user_script:20.",
                Fault::Misconfigured,
            ),
            (
                "ERR Error running script (call to f_1): @user_script:20: @user_script: 20: Lua script attempted to access a non local key in a cluster node",
                Fault::Misconfigured,
            ),
            ("NOSCRIPT No matching script. Please use EVAL.", Fault::Retry),
            ("ERR max number of clients reached", Fault::Full),
            ("ERR DB index is out of range", Fault::Misconfigured),
            ("ERR Unknown Redis command called from script script: x", Fault::Misconfigured),
            ("ERR Unknown command called from script script: x", Fault::Misconfigured),
            ("ERR unknown command 'SCRIPT', with args beginning with: 'LOAD'", Fault::Misconfigured),
        ] {
            assert_eq!(script_error(reply).fault, fault, "{reply}");
        }
        let of_item = |text: &str| demoted(&Value::BulkString(text.into())).map(|error| error.fault);
        for text in [
            "READONLY You can't write against a read only replica. script: x, on @user_script:9.",
            "ERR Error running script (call to f_1): @user_script:9: -READONLY You can't write against a read only replica.",
            "@user_script: 525: -READONLY You can't write against a read only replica.",
        ] {
            assert_eq!(of_item(text), Some(Fault::Refused));
        }
        for text in ["held 1 1 1 c", "extended", "NOREPLICAS Not enough good replicas to write.", "ERR x", ""]
        {
            assert_eq!(of_item(text), None, "{text}");
        }
        assert!(is_foreign_type("WRONGTYPE Operation against a key holding the wrong kind of value"));
        assert!(!is_foreign_type("ERR x"));
    }

    #[test]
    fn a_broken_connection_is_unknown_only_after_connecting() {
        let broken = || RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(classify(broken()).fault, Fault::Unknown);
        let server = Server::new(Address::Unix("/s".into()), Login::default(), Duration::ZERO, 1);
        let connecting = classify_connecting(broken(), &server);
        assert_eq!(connecting.fault, Fault::Retry);
        assert!(connecting.message.starts_with("cannot connect to /s: "), "{}", connecting.message);
    }
}
