//! The names of keys.
//!
//! The keys of a name are in its directory, `<prefix>/<name>/`, one for each claim, as with the official clients: the
//! oldest key holds, the others wait
//! (<https://github.com/etcd-io/etcd/blob/v3.4.23/clientv3/concurrency/mutex.go>). Those clients treat every key of the
//! directory as an exclusive claim, whatever its name and value. Our keys are called
//!
//! | key below the directory | mode |
//! |---|---|
//! | `<lease>`, as the official clients write it | exclusive |
//! | `~p<limit>.<count>.<lease>` | permits; both numbers in eight hexadecimal digits |
//! | `~s<lease>` | shared |
//!
//! followed by `.1`, `.2` and so on for further claims of one process. A later claim reuses the key of an ended claim:
//! the server stores every key name that ever existed until its operator compacts the data, and each request scans all
//! of these names in the directory.
//!
//! `~` sorts after all keys of the official clients, which are hexadecimal. So the keys that shared claims wait for are
//! one range, and so are the keys of every other kind of lock.
//!
//! `<prefix>/<name>` itself, the bare key, is the key of clients without a queue: Python's `etcd3` and `etcd3gw`,
//! Node's `etcd3`. They read no other key. While the bare key exists, one of these clients holds the name. We do not
//! write the bare key.
//!
//! With `layout=key` the lock of a name is one key, the lock key: the prefix, and after it the name as it is. The
//! holder created the lock key. The claims of this layout have their keys, the queue keys, in a directory of ours,
//! which no other program reads: `leasehold/<prefix>/key/<name>/queue/`.
//!
//! The keys of our leases, fences and memos are outside of the prefix, in `leasehold/<prefix>/`, so that no name
//! collides with them.

use leasehold_core::{EngineError, Fault, KnownMode, Mode, Name};
use percent_encoding::{AsciiSet, percent_decode_str, utf8_percent_encode};

use crate::config::{Config, Layout};

/// The characters of a name that are escaped in its directory: `/` is the separator, and `%` begins an escape.
const ESCAPED: &AsciiSet = &AsciiSet::EMPTY.add(b'%').add(b'/').add(0x7f);

/// The beginning of the keys that only leasehold reads and writes.
const OWN_KEYS: &str = "leasehold/";

/// A range of keys: its first key, and the key after its last one.
pub(crate) type Span = (Vec<u8>, Vec<u8>);

/// The directory of one name: `<prefix>/<name>/`, or with `layout=key` the directory of its queue keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dir {
    /// The path, with a slash at its end.
    path: String,
    /// With `layout=key`: the key that is the lock.
    lock_key: Option<String>,
    /// With `layout=election`: the values of keys are what leaders publish, and no records.
    is_election: bool,
}

impl Dir {
    pub(crate) fn of(prefix: &str, name: &Name) -> Self {
        Self { path: format!("{prefix}/{}/", escape(name.as_str())), lock_key: None, is_election: false }
    }

    /// The same with `layout=election`.
    pub(crate) fn of_election(prefix: &str, name: &Name) -> Self {
        Self { is_election: true, ..Self::of(prefix, name) }
    }

    /// The directory of the queue keys of a name, with `layout=key`.
    pub(crate) fn of_queue(prefix: &str, name: &Name) -> Self {
        Self {
            path: format!("{}{}{QUEUE}", queues(prefix), escape(name.as_str())),
            lock_key: Some(format!("{prefix}{name}")),
            is_election: false,
        }
    }

    /// What another program is given for this name: the path of the directory, or the lock key.
    pub(crate) fn key_of_others(&self) -> String {
        let path = || self.path[..self.path.len() - 1].to_owned();
        self.lock_key.clone().unwrap_or_else(path)
    }

    /// The key of clients without a queue; with `layout=key` the lock key.
    pub(crate) fn bare_key(&self) -> Vec<u8> {
        self.key_of_others().into_bytes()
    }

    /// Whether one key is the lock, as with `layout=key`.
    pub(crate) const fn has_lock_key(&self) -> bool {
        self.lock_key.is_some()
    }

    /// Whether the values of keys are what leaders publish, as with `layout=election`.
    pub(crate) const fn is_election(&self) -> bool {
        self.is_election
    }

    /// With `layout=key`: the key that is the lock.
    pub(crate) fn lock_key(&self) -> Option<Vec<u8>> {
        self.lock_key.as_ref().map(|key| key.clone().into_bytes())
    }

    /// The key of a claim on this lease with this number.
    pub(crate) fn key(&self, mode: Mode, lease: i64, number: u32) -> Vec<u8> {
        let lease_and_number =
            if number == 0 { format!("{lease:x}") } else { format!("{lease:x}.{number:x}") };
        let key = match mode.known() {
            KnownMode::Exclusive => format!("{}{lease_and_number}", self.path),
            KnownMode::Shared => format!("{}~s{lease_and_number}", self.path),
            KnownMode::Permits { count, limit } => {
                format!("{}~p{limit:08x}.{count:08x}.{lease_and_number}", self.path)
            }
        };
        key.into_bytes()
    }

    /// All keys of the directory.
    pub(crate) fn all_keys(&self) -> Span {
        // The byte after `/`.
        self.span("", &self.path[..self.path.len() - 1], "0")
    }

    /// The keys that block a claim if they are older than its own key: for a shared claim all keys except those of
    /// shared claims, for other claims all keys.
    pub(crate) fn blockers(&self, mode: Mode) -> Span {
        match mode {
            Mode::Shared => self.span("", &self.path, "~s"),
            _ => self.all_keys(),
        }
    }

    /// The ranges of keys of another kind of lock, or of another limit.
    pub(crate) fn other_kinds(&self, mode: Mode) -> Vec<Span> {
        match mode.limit() {
            // The queue keys are all of one kind.
            _ if self.lock_key.is_some() => Vec::new(),
            None => vec![self.span("~p", &self.path, "~q")],
            Some(limit) => vec![
                self.span("", &self.path, &format!("~p{limit:08x}.")),
                // The character after the full stop.
                self.span(&format!("~p{limit:08x}/"), &self.path[..self.path.len() - 1], "0"),
            ],
        }
    }

    /// The span from the key `<directory><from>` up to, but not including, the key `<base><to>`.
    fn span(&self, from: &str, base: &str, to: &str) -> Span {
        (format!("{}{from}", self.path).into_bytes(), format!("{base}{to}").into_bytes())
    }

    /// The part of a key after the directory; `None` for a key elsewhere.
    pub(crate) fn part_below<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(key).ok()?.strip_prefix(&self.path)
    }

    /// The mode of the claim with this key. A foreign key is an exclusive claim.
    pub(crate) fn mode(&self, key: &[u8]) -> Mode {
        let part_below = self.part_below(key).unwrap_or_default();
        if part_below.starts_with("~s") {
            return Mode::Shared;
        }
        permits_mode(part_below).unwrap_or(Mode::Exclusive)
    }
}

/// The mode of a key of permits; `None` for another key.
fn permits_mode(part_below: &str) -> Option<Mode> {
    let mut parts = part_below.strip_prefix("~p")?.splitn(3, '.');
    let limit = parse_hex(parts.next()?)?;
    let count = parse_hex(parts.next()?)?;
    parts.next().map(|_| Mode::Permits { count, limit })
}

/// A number of eight hexadecimal digits.
fn parse_hex(text: &str) -> Option<u32> {
    (text.len() == 8).then(|| u32::from_str_radix(text, 16).ok())?
}

/// The name of a key below the prefix, and the part after its directory; `None` if the key is in no directory of a
/// name.
pub(crate) fn name_of<'a>(prefix: &str, key: &'a [u8]) -> Option<(Name, &'a str)> {
    let path = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?.strip_prefix('/')?;
    let (escaped, part_below) = path.split_once('/')?;
    let name = Name::new(&percent_decode_str(escaped).decode_utf8().ok()?).ok()?;
    // A directory with a different escaping is not the directory of the name.
    (escape(name.as_str()) == escaped).then_some((name, part_below))
}

/// The name that a client without a queue holds by this key; `None` for other keys.
pub(crate) fn name_of_bare_key(prefix: &str, key: &[u8]) -> Option<Name> {
    name_of(prefix, &[key, b"/"].concat())
        .filter(|(_, part_below)| part_below.is_empty())
        .map(|(name, _)| name)
}

/// With `layout=key`: the name of a queue key; `None` for other keys.
pub(crate) fn name_of_queue_key(prefix: &str, key: &[u8]) -> Option<Name> {
    let path = std::str::from_utf8(key).ok()?.strip_prefix(&queues(prefix))?;
    let (escaped, _) = path.split_once(QUEUE)?;
    let name = Name::new(&percent_decode_str(escaped).decode_utf8().ok()?).ok()?;
    (escape(name.as_str()) == escaped).then_some(name)
}

/// The range of the directories of all names that begin with `start`.
pub(crate) fn names_starting_with(prefix: &str, start: &str) -> Span {
    starting_with(&format!("{prefix}/"), start)
}

/// With `layout=key`: the range of the queue keys of all names that begin with `start`.
pub(crate) fn queues_starting_with(prefix: &str, start: &str) -> Span {
    starting_with(&queues(prefix), start)
}

/// The range of the keys that begin with `base` and the escaped `start`.
fn starting_with(base: &str, start: &str) -> Span {
    let from = format!("{base}{}", escape(start)).into_bytes();
    let mut to = from.clone();
    // UTF-8 has no byte 0xff, so one can be added to the last byte.
    if let Some(last) = to.last_mut() {
        *last += 1;
    }
    (from, to)
}

/// The last part of the directory of queue keys. Because of this part, and of the prefixes and names that
/// [`is_prefix_in_queue`] and [`check_name`] refuse, the directory of the queue of one name contains no queue key of
/// another name, no epoch key and no key of a fence or memo, also if two programs have different prefixes.
const QUEUE: &str = "/queue/";

/// The beginning of all queue keys.
fn queues(prefix: &str) -> String {
    format!("{OWN_KEYS}{prefix}/key/")
}

/// Whether the keys that leasehold keeps for this prefix would lie in the queue of a name of another prefix.
pub(crate) fn is_prefix_in_queue(prefix: &str) -> bool {
    let parts: Vec<&str> = prefix.split('/').skip(1).collect();
    parts.windows(3).any(|parts| matches!(parts, ["key", name, "queue"] if !name.is_empty()))
}

/// The key that a client reads to find out whether it has access to the locks. No client writes this key.
pub(crate) fn probe_key(config: &Config) -> Vec<u8> {
    let prefix = config.key_prefix();
    match config.layout {
        Layout::Directory | Layout::Election => format!("{prefix}/").into_bytes(),
        Layout::Key => queues(prefix).into_bytes(),
    }
}

/// The epoch key of one of our leases. A write to the epoch key also notifies the lease's holders that a hold was
/// broken.
pub(crate) fn epoch_key(prefix: &str, lease: i64) -> Vec<u8> {
    format!("{OWN_KEYS}{prefix}/lease/{lease:x}").into_bytes()
}

/// The key of the fence around a resource.
pub(crate) fn fence_key(prefix: &str, resource: &str) -> Vec<u8> {
    format!("{OWN_KEYS}{prefix}/fence/{}", escape(resource)).into_bytes()
}

/// The key of the memo of a name. With `layout=key` it is another one, because locks of the two layouts can have the
/// same prefix and name and not be the same lock.
pub(crate) fn memo_key(prefix: &str, layout: Layout, name: &Name) -> Vec<u8> {
    let part = match layout {
        Layout::Directory | Layout::Election => "memo",
        Layout::Key => "key-memo",
    };
    format!("{OWN_KEYS}{prefix}/{part}/{}", escape(name.as_str())).into_bytes()
}

/// Escapes the characters of a name that a directory cannot contain.
fn escape(text: &str) -> String {
    // `utf8_percent_encode` would escape all of Unicode. Here other characters stay as they are, readable for
    // operators.
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            escaped.extend(utf8_percent_encode(c.encode_utf8(&mut [0; 4]), ESCAPED));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// An error for a name whose lock key would be one of our own keys, and for a name whose queue would lie in the queue
/// of another name.
pub(crate) fn check_name(dir: &Dir) -> Result<(), EngineError> {
    match &dir.lock_key {
        Some(lock_key) if lock_key.starts_with(OWN_KEYS) => Err(EngineError::new(
            Fault::Misconfigured,
            "keys that begin with leasehold/ are not locks: leasehold keeps its queues there; choose another name or prefix",
        )),
        Some(_) if dir.path.ends_with("/key/key/queue/queue/") => Err(EngineError::new(
            Fault::Misconfigured,
            "the name queue is not possible with a prefix that ends in /key: leasehold keeps the queue of another name \
             there; choose another name or prefix",
        )),
        _ => Ok(()),
    }
}

/// An error for a mode that can never be granted.
pub(crate) fn check_mode(mode: Mode, layout: Layout) -> Result<(), EngineError> {
    match mode {
        Mode::Shared | Mode::Permits { .. } if layout == Layout::Key => Err(EngineError::new(
            Fault::Misconfigured,
            "with layout=key a lock is one key, which has one holder: only exclusive locks are possible; for other \
             locks use the default layout",
        )),
        Mode::Shared | Mode::Permits { .. } if layout == Layout::Election => Err(EngineError::new(
            Fault::Misconfigured,
            "with layout=election only exclusive locks are possible; for other locks use the default layout",
        )),
        Mode::Permits { count, limit } if !(1..=limit).contains(&count) => {
            Err(EngineError::new(Fault::Internal, format!("{mode} cannot be granted")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: i64 = 0x694d_7d1a_5f0e_8c02;

    fn dir(name: &str) -> Dir {
        Dir::of("/locks", &Name::new(name).unwrap())
    }

    fn within(span: &Span, key: &[u8]) -> bool {
        *span.0 <= *key && *key < *span.1
    }

    const MODES: [Mode; 5] = [
        Mode::Exclusive,
        Mode::Shared,
        Mode::Permits { count: 1, limit: 3 },
        Mode::Permits { count: 3, limit: 3 },
        Mode::Permits { count: 1, limit: u32::MAX },
    ];

    #[test]
    fn a_key_contains_its_name_and_its_mode() {
        let dir = dir("a/b%");
        assert_eq!(dir.key_of_others(), "/locks/a%2Fb%25");
        for mode in MODES {
            for number in [0, 1, 17] {
                let key = dir.key(mode, LEASE, number);
                assert_eq!(dir.mode(&key), mode);
                let (name, part_below) = name_of("/locks", &key).unwrap();
                assert_eq!((name.as_str(), Some(part_below)), ("a/b%", dir.part_below(&key)));
            }
            assert_ne!(dir.key(mode, LEASE, 0), dir.key(mode, LEASE, 1));
        }
        assert_eq!(
            dir.key(Mode::Exclusive, LEASE, 0),
            b"/locks/a%2Fb%25/694d7d1a5f0e8c02",
            "as with the official client"
        );
        assert_eq!(dir.mode(b"/locks/a%2Fb%25/~px"), Mode::Exclusive, "a foreign key");
        assert_eq!(dir.part_below(b"/locks/b/694d7d1a"), None);
        assert_eq!(name_of("/locks", b"/locks/a%2fb/1"), None, "another escaping");
        assert_eq!(name_of("/locks", b"/locks/a"), None);
        assert_eq!(dir.bare_key(), b"/locks/a%2Fb%25");
        assert_eq!(name_of_bare_key("/locks", &dir.bare_key()).unwrap().as_str(), "a/b%");
        for other in ["/locks", "/locks/", "/locks/a/b", "/locks/a%2fb", "/other/a"] {
            assert_eq!(name_of_bare_key("/locks", other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn with_lock_keys_the_name_is_the_key_and_the_queue_is_elsewhere() {
        for (prefix, name) in [("", "/desk_lock"), ("/", "desk_lock"), ("/lock/", "a/b%"), ("", "a/queue/b")]
        {
            let name = Name::new(name).unwrap();
            let dir = Dir::of_queue(prefix, &name);
            assert_eq!(dir.lock_key().unwrap(), format!("{prefix}{name}").into_bytes());
            assert_eq!(dir.bare_key(), dir.lock_key().unwrap());
            check_name(&dir).unwrap();
            let key = dir.key(Mode::Exclusive, LEASE, 1);
            assert_eq!(name_of_queue_key(prefix, &key).unwrap(), name);
            assert!(within(&dir.all_keys(), &key) && !within(&dir.all_keys(), &dir.bare_key()));
            for (start, is_within) in [("", true), (&name.as_str()[..2], true), ("x", false)] {
                assert_eq!(within(&queues_starting_with(prefix, start), &key), is_within, "{start}");
            }
            assert_eq!(name_of_queue_key(prefix, &dir.bare_key()), None);
        }
        // Prefixes and names of which one looks like a part of the other.
        let lease_key = Dir::of_queue("", &Name::new("lease").unwrap()).key(Mode::Exclusive, LEASE, 0);
        assert_ne!(lease_key, epoch_key("/key", LEASE));
        let error = check_name(&Dir::of_queue("lease", &Name::new("hold/x").unwrap())).unwrap_err();
        assert_eq!(error.fault, Fault::Misconfigured);
        check_name(&Dir::of("leasehold", &Name::new("x").unwrap())).unwrap();
    }

    /// A claim that finds an older key in its queue waits, so no other key may lie there.
    #[test]
    fn a_queue_contains_no_key_of_another_prefix() {
        let names = ["key", "queue", "lease", "fence", "x"].map(|name| Name::new(name).unwrap());
        let parts = ["", "key", "queue", "lease", "fence", "x"];
        let (mut prefixes, mut longest) = (Vec::new(), vec![String::new()]);
        for _ in 0..4 {
            let longer = |prefix: &String| parts.map(|part| format!("{prefix}/{part}"));
            longest = longest.iter().flat_map(longer).collect();
            prefixes.extend(longest.clone());
        }
        let config = |prefix: &str| Config::new(Vec::new()).layout(Layout::Key).unwrap().prefix(prefix);
        let has_queue = |dir: &Dir| check_name(dir).is_ok();
        for prefix in prefixes.iter().filter(|prefix| config(prefix).is_ok()) {
            let queues = names.iter().map(|name| Dir::of_queue(prefix, name)).filter(has_queue);
            let mut own_keys: Vec<_> = queues.map(|dir| dir.key(Mode::Exclusive, LEASE, 0)).collect();
            own_keys.push(epoch_key(prefix, LEASE));
            own_keys.extend(names.iter().map(|name| fence_key(prefix, name.as_str())));
            for layout in [Layout::Directory, Layout::Key] {
                own_keys.extend(names.iter().map(|name| memo_key(prefix, layout, name)));
            }
            for other_prefix in ["", "/", "/key", "/x", "/key/x"].iter().filter(|other| *other != prefix) {
                for dir in names.iter().map(|name| Dir::of_queue(other_prefix, name)).filter(has_queue) {
                    let span = dir.all_keys();
                    let inside = own_keys.iter().find(|key| within(&span, key));
                    assert_eq!(inside, None, "{prefix:?} and {dir:?}");
                }
            }
        }
        for refused in ["/key/x/queue", "/x/key/y/queue/z"] {
            assert!(config(refused).is_err(), "{refused}");
        }
        for possible in ["key/x/queue", "/key/x", "/queue", "/key//queue", "/app/queue"] {
            config(possible).unwrap();
        }
        let queue = |prefix| check_name(&Dir::of_queue(prefix, &names[1]));
        assert!(queue("/key").is_err() && queue("/locks").is_ok());
    }

    #[test]
    fn spans_contain_their_keys() {
        let dir = dir("a");
        let foreign = b"/locks/a/694d7d1a5f0e8c02".to_vec();
        for key in MODES.map(|mode| dir.key(mode, LEASE, 0)).iter().chain([&foreign]) {
            assert!(within(&dir.all_keys(), key));
            let mode = dir.mode(key);
            assert_eq!(within(&dir.blockers(Mode::Shared), key), mode != Mode::Shared);
            for wanted in MODES {
                assert_eq!(
                    dir.other_kinds(wanted).iter().any(|span| within(span, key)),
                    !wanted.same_kind(mode),
                    "{wanted} reads {}",
                    String::from_utf8_lossy(key)
                );
            }
        }
        for outside_key in ["/locks/a", "/locks/b/1", "/locks/a0", "/locks/a b/1", "/locks/a-/1"] {
            assert!(!within(&dir.all_keys(), outside_key.as_bytes()), "{outside_key}");
        }
    }

    #[test]
    fn names_stay_readable() {
        for (name, escaped) in [("läuft ✓", "läuft ✓"), ("..", ".."), ("a/b", "a%2Fb"), ("%2F", "%252F")]
        {
            assert_eq!(dir(name).key_of_others(), format!("/locks/{escaped}"));
        }
        let all_names = names_starting_with("/locks", "");
        assert!(
            within(&all_names, b"/locks/a/1")
                && !within(&all_names, b"/locks0")
                && !within(&all_names, b"/locks")
        );
        assert!(within(&names_starting_with("/locks", "ä"), "/locks/äb/1".as_bytes()));
    }
}
