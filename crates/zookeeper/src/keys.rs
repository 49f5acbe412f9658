//! The names of nodes.
//!
//! Each name has a directory, `<prefix>/<name>`: a container with one node for each claim, as in Curator. The node with
//! the smallest number holds, the others wait
//! (<https://github.com/apache/curator/tree/apache-curator-5.4.0/curator-recipes/src/main/java/org/apache/curator/framework/recipes/locks>).
//!
//! | node below the directory | what it is |
//! |---|---|
//! | `_c_<uuid>-lock-<number>` | an exclusive claim, as by Curator's `InterProcessMutex` |
//! | `_c_<uuid>-__WRIT__<number>` | the same with `layout=rw`, as by the writers of `InterProcessReadWriteLock` |
//! | `_c_<uuid>-__READ__<number>` | a shared claim, as by its readers |
//! | `locks/_c_<uuid>-lock-<number>` | a claim of permits in the queue, as by `InterProcessSemaphoreV2` |
//! | `leases/_c_<uuid>-lease-<number>` | one permit that is held, as by `InterProcessSemaphoreV2` |
//! | `_c_<uuid>-leasehold-<milliseconds>-latch-<number>` | the same with `layout=latch`: see `latch.rs` |
//! | `lock-<number>` | an exclusive claim with `layout=plain`, as by programs written by hand: see `plain.rs` |
//!
//! The uuid is the claim id. In the node of a claim that does not wait (a try), `try-` follows the uuid. This mark lets
//! other tries recognise the node of a try: a try is refused because of holders and waiters, not because of other
//! tries.
//!
//! Known nodes of other programs are `<anything>-lock-<number>`, `<anything>__lock__<number>` and
//! `<anything>__rlock__<number>`, as kazoo names them
//! (<https://github.com/python-zk/kazoo/blob/2.8.0/kazoo/recipe/lock.py>), and the same words after `_c_<uuid>-`. Every
//! other node with such a number, like the `lock-<number>` of programs written by hand, is an exclusive claim of an
//! unknown kind, because its program relies on its position in the queue
//! (<https://zookeeper.apache.org/doc/r3.8.0/recipes.html#sc_recipes_Locks>).
//!
//! The server appends the number: it counts all nodes that were ever created in the directory, in 32 bits.

use std::time::Duration;

use leasehold_core::{Claim, ClaimId, EngineError, Fault, KnownMode, Mode, Name};
use percent_encoding::percent_decode_str;

use crate::{config::Layout, session::MAX_PATH_BYTES, wire::Acl};

/// The directories of a semaphore, within the directory of its name.
pub(crate) const PERMITS_QUEUE: &str = "locks";
pub(crate) const PERMITS: &str = "leases";

/// The words before the number of a node, by the kind of the claim.
const MUTEX: &str = "-lock-";
const WRITER: &str = "__WRIT__";
const READER: &str = "__READ__";
const PERMIT: &str = "-lease-";
const LATCH: &str = "-latch-";
const PLAIN: &str = "lock-";
/// Marks the node of a leasehold client among those of [`LATCH`].
const OURS: &str = "leasehold-";
/// Marks the node of a claim that does not wait.
const TRY: &str = "try-";
/// All words before the number in a queue, and whether they belong to shared claims. If one word ends with another
/// word, the longer word comes first, so that it is the one that is found.
const KIND_WORDS: [(&str, bool); 6] = [
    (MUTEX, false),
    (WRITER, false),
    (READER, true),
    (LATCH, false),
    ("__rlock__", true),
    ("__lock__", false),
];

/// A node of a queue, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// The claim is shared, not exclusive.
    pub(crate) shared: bool,
    pub(crate) number: i32,
    /// The name has the form of a known program.
    pub(crate) is_known: bool,
    /// The node belongs to a try (a claim that does not wait) of a leasehold client: soon it holds or is gone.
    pub(crate) is_try: bool,
}

impl Node {
    /// Parses the name of a node; `None` if the node is not in a queue.
    pub(crate) fn read(name: &str) -> Option<Self> {
        let (start, number) = split_number(name)?;
        let word = KIND_WORDS.into_iter().find(|(word, _)| start.ends_with(word));
        let shared = word.is_some_and(|(_, shared)| shared);
        let is_try = id_of(name)
            .and(name.get(PREFIX_LENGTH..))
            .is_some_and(|after_prefix| after_prefix.starts_with(TRY));
        Some(Self { name: name.to_owned(), shared, number, is_known: word.is_some(), is_try })
    }
}

/// The nodes of a queue in the order of their numbers: the order of their creation, as long as the server's counter
/// does not overflow.
pub(crate) fn queue_nodes<'a>(children: impl IntoIterator<Item = &'a String>) -> Vec<Node> {
    let mut nodes: Vec<Node> = children.into_iter().filter_map(|name| Node::read(name)).collect();
    nodes.sort_by(|one, other| (one.number, &one.name).cmp(&(other.number, &other.name)));
    nodes
}

/// Whether a node has the form of [`Layout::Plain`]: a word and a number, without a claim id.
pub(crate) fn is_plain(name: &str) -> bool {
    split_number(name).is_some_and(|(start, _)| start == PLAIN)
}

/// Whether a node has the form of [`Layout::Latch`], by any program.
pub(crate) fn is_latch(name: &str) -> bool {
    split_number(name).is_some_and(|(start, _)| start.ends_with(LATCH))
}

/// The time in the name of a node of [`Layout::Latch`] that a leasehold client created; `None` for any other node.
pub(crate) fn latch_hold_time(name: &str) -> Option<Duration> {
    id_of(name)?;
    let (start, _) = split_number(name)?;
    let words = start.strip_suffix(LATCH)?.get(PREFIX_LENGTH..)?;
    let words = words.strip_prefix(TRY).unwrap_or(words);
    Some(Duration::from_millis(words.strip_prefix(OURS)?.parse().ok()?))
}

/// The characters of a number as Java writes it with `%010d`.
const NUMBER_LENGTH: usize = 10;
/// The characters of a number below -999999999.
const LONG_NUMBER_LENGTH: usize = 11;

/// Splits the name of a node into the part before the number, and the number.
fn split_number(name: &str) -> Option<(&str, i32)> {
    let split = |length| name.len().checked_sub(length).and_then(|middle| name.split_at_checked(middle));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_word = |start: &str| start == PLAIN || KIND_WORDS.iter().any(|(word, _)| start.ends_with(word));
    let (start, number) = split(NUMBER_LENGTH)?;
    if number.strip_prefix('-').is_some_and(all_digits) {
        return Some((start, number.parse().ok()?));
    }
    if !all_digits(number) {
        return None;
    }
    // A number below -999999999 has eleven characters: then the character before the last ten is the minus sign of the
    // number, and not the end of the word. After an unknown word, the minus sign counts as part of the word, unless the
    // number is too large without it.
    let negative = split(LONG_NUMBER_LENGTH).filter(|(_, number)| number.starts_with('-'));
    let without_sign = number.parse().ok().map(|number| (start, number));
    match negative {
        Some((start, number)) if is_word(start) || without_sign.is_none() => {
            Some((start, number.parse().ok()?))
        }
        _ => without_sign,
    }
}

/// The length of `_c_<uuid>-`. The rest of the name depends on the kind of the node.
const PREFIX_LENGTH: usize = 40;
const UUID_LENGTH: usize = 36;

/// The claim id in the name of a node; `None` if the name contains none.
pub(crate) fn id_of(name: &str) -> Option<ClaimId> {
    let uuid = name.strip_prefix("_c_")?.get(..UUID_LENGTH)?;
    ClaimId::read(&uuid.replace('-', ""))
}

/// Whether the node was created for this claim.
pub(crate) fn belongs_to(name: &str, id: ClaimId) -> bool {
    id_of(name) == Some(id)
}

/// The directory of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dir {
    /// The path with the chroot.
    path: String,
    /// The length of the chroot.
    chroot_length: usize,
}

impl Dir {
    pub(crate) fn of(chroot: &str, prefix: &str, name: &Name) -> Self {
        Self { path: format!("{chroot}{prefix}/{}", escape(name.as_str())), chroot_length: chroot.len() }
    }

    /// The directory at this path, which is the lock itself.
    pub(crate) fn at(chroot: &str, path: &str) -> Self {
        Self { path: format!("{chroot}{path}"), chroot_length: chroot.len() }
    }

    /// The path that another program is given for this name, for a connection with the same chroot.
    pub(crate) fn without_chroot(&self) -> String {
        self.path[self.chroot_length..].to_owned()
    }

    /// The path with the chroot.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The path of the queue for claims of this mode.
    pub(crate) fn queue_of(&self, mode: Mode) -> String {
        match mode {
            Mode::Permits { .. } => self.permits_queue(),
            _ => self.path.clone(),
        }
    }

    /// The path of the queue for permits.
    pub(crate) fn permits_queue(&self) -> String {
        self.child_path(PERMITS_QUEUE)
    }

    /// The path of the permits that are held.
    pub(crate) fn permits(&self) -> String {
        self.child_path(PERMITS)
    }

    /// The path of this node of the directory.
    pub(crate) fn child_path(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// The path of a new node in the queue, to which the server appends a number.
    pub(crate) fn node_prefix(&self, id: ClaimId, mode: Mode, is_try: bool, layout: Layout) -> String {
        // `MUTEX` without the hyphen, because the prefix ends with one.
        let word = match (mode.known(), layout) {
            (KnownMode::Exclusive, Layout::Plain) => return format!("{}/{PLAIN}", self.path),
            (KnownMode::Shared, _) => READER,
            (KnownMode::Exclusive, Layout::ReadWrite) => WRITER,
            (KnownMode::Exclusive, Layout::Mutex | Layout::Latch) | (KnownMode::Permits { .. }, _) => {
                &MUTEX[1..]
            }
        };
        let try_word = if is_try { TRY } else { "" };
        format!("{}/_c_{}-{try_word}{word}", self.queue_of(mode), uuid(id))
    }

    /// The path of a new node of [`Layout::Latch`], to which the server appends a number.
    pub(crate) fn latch_prefix(&self, id: ClaimId, is_try: bool, hold_time: Duration) -> String {
        let (try_word, millis) = (if is_try { TRY } else { "" }, hold_time.as_millis());
        format!("{}/_c_{}-{try_word}{OURS}{millis}{LATCH}", self.path, uuid(id))
    }

    /// The node of one permit that a claim holds. Its number has no meaning.
    pub(crate) fn permit(&self, id: ClaimId, number: u32) -> String {
        format!("{}/_c_{}{PERMIT}{number:010}", self.permits(), uuid(id))
    }
}

/// The claim id as Curator writes it.
fn uuid(id: ClaimId) -> String {
    let hex = id.to_string();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The name whose directory this is; `None` if it is the directory of no name.
pub(crate) fn name_of(directory: &str) -> Option<Name> {
    let name = Name::new(&percent_decode_str(directory).decode_utf8().ok()?).ok()?;
    // A directory that is escaped in another way is not the directory of the name.
    (escape(name.as_str()) == directory).then_some(name)
}

/// Whether a path cannot contain this character
/// (<https://zookeeper.apache.org/doc/r3.8.0/zookeeperProgrammers.html#ch_zkDataModel>). The server uses 16-bit
/// characters, so it sees larger characters as surrogates, and refuses them.
pub(crate) fn is_no_path_character(c: char) -> bool {
    c.is_control() || matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// Escapes a name so that it is one part of a path.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let is_relative = matches!(text, "." | "..");
    for c in text.chars() {
        if is_relative || c == '%' || c == '/' || is_no_path_character(c) {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                escaped.push_str(percent_encoding::percent_encode_byte(byte));
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Whether another node of the same claim possibly replaces this node when this node is deleted: Curator's writers,
/// from 5.5 on, continue as readers (<https://issues.apache.org/jira/browse/CURATOR-621>).
pub(crate) fn may_be_replaced(name: &str) -> bool {
    name.contains(WRITER)
}

/// The total length of the paths of a claim's nodes. An error if its permits do not fit into one request: a permit is a
/// node, and all permits of a claim are created in one step.
pub(crate) fn claim_path_bytes(claim: &Claim, dir: &Dir, acl: &[Acl]) -> Result<usize, EngineError> {
    let permits = match claim.mode.known() {
        KnownMode::Permits { count, limit } if !(1..=limit).contains(&count) => {
            return Err(EngineError::new(Fault::Internal, format!("{} cannot be granted", claim.mode)));
        }
        KnownMode::Permits { count, .. } => count as usize,
        KnownMode::Exclusive | KnownMode::Shared => 0,
    };
    let node_path_bytes = dir.path().len() + MAX_NODE_BYTES;
    if permits * create_bytes(claim, dir, acl) > MAX_PATH_BYTES {
        let why = format!(
            "{} are more than fit into one request: each is a node with a path of {node_path_bytes} bytes",
            claim.mode
        );
        return Err(EngineError::new(Fault::Refused, why));
    }
    Ok((permits + 1) * node_path_bytes)
}

/// The most bytes of a request that creates one node of the claim.
pub(crate) fn create_bytes(claim: &Claim, dir: &Dir, acl: &[Acl]) -> usize {
    let acl_bytes: usize = acl.iter().map(|acl| acl.scheme.len() + acl.id.len() + ACL_BYTES).sum();
    dir.path().len() + MAX_NODE_BYTES + claim.owner.len() + RECORD_BYTES + acl_bytes
}

/// The longest part of a node's path after its directory: words, a uuid, a time, a number and the directory of permits.
const MAX_NODE_BYTES: usize = 90;
/// The most bytes of a record beside the owner.
const RECORD_BYTES: usize = 64;
/// The bytes of an entry of an access list beside its scheme and id.
const ACL_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ClaimId = ClaimId([0xab; 16]);

    fn dir(name: &str) -> Dir {
        Dir::of("/apps", "/locks", &Name::new(name).unwrap())
    }

    #[test]
    fn nodes_are_named_as_in_curator() {
        let dir = dir("a/b%");
        assert_eq!(dir.without_chroot(), "/locks/a%2Fb%25");
        let of = |mode, layout| dir.node_prefix(ID, mode, false, layout);
        let start = "/apps/locks/a%2Fb%25";
        let uuid = "abababab-abab-abab-abab-abababababab";
        assert_eq!(of(Mode::Exclusive, Layout::Mutex), format!("{start}/_c_{uuid}-lock-"));
        assert_eq!(of(Mode::Exclusive, Layout::ReadWrite), format!("{start}/_c_{uuid}-__WRIT__"));
        assert_eq!(of(Mode::Shared, Layout::Mutex), format!("{start}/_c_{uuid}-__READ__"));
        let permits = Mode::Permits { count: 1, limit: 2 };
        assert_eq!(of(permits, Layout::ReadWrite), format!("{start}/locks/_c_{uuid}-lock-"));
        let tried = dir.node_prefix(ID, permits, true, Layout::Mutex);
        assert_eq!(tried, format!("{start}/locks/_c_{uuid}-try-lock-"));
        assert_eq!(of(Mode::Exclusive, Layout::Plain), format!("{start}/lock-"));
        let itself = Dir::at("/apps", "/orders");
        assert_eq!(itself.without_chroot(), "/orders");
        assert_eq!(itself.node_prefix(ID, Mode::Exclusive, true, Layout::Plain), "/apps/orders/lock-");
        assert_eq!(dir.permit(ID, 2), format!("{start}/leases/_c_{uuid}-lease-0000000002"));
    }

    #[test]
    fn only_a_node_with_a_number_is_a_claim() {
        let uuid = "_c_abababab-abab-abab-abab-abababababab";
        for (name, shared, number) in [
            (format!("{uuid}-lock-0000000007"), false, 7),
            (format!("{uuid}-lock--2147483648"), false, i32::MIN),
            (format!("{uuid}-__WRIT__0000000000"), false, 0),
            (format!("{uuid}-__READ__2147483647"), true, i32::MAX),
            (format!("{uuid}-__READ__-2147483647"), true, -i32::MAX),
            (format!("{uuid}-lock--000000001"), false, -1),
            (format!("{uuid}-__READ__-999999999"), true, -999_999_999),
            (format!("{uuid}-try-lock-0000000006"), false, 6),
            (format!("{uuid}-try-__READ__0000000008"), true, 8),
            ("0011aa__lock__0000000003".to_owned(), false, 3),
            ("0011aa__rlock__0000000004".to_owned(), true, 4),
            ("0011aa-lock-0000000005".to_owned(), false, 5),
            (format!("{uuid}-latch-0000000009"), false, 9),
            (format!("{uuid}-try-leasehold-7-latch--000000001"), false, -1),
        ] {
            let node = Node::read(&name).unwrap();
            assert_eq!((node.shared, node.number, node.is_known), (shared, number, true), "{name}");
            assert_eq!(node.is_try, name.contains("-try-"), "{name}");
            assert_eq!(belongs_to(&name, ID), name.starts_with("_c_"));
        }
        for (name, number) in [
            ("lock-0000000007", 7),
            ("0000000001", 1),
            ("läufer-0000000002", 2),
            ("latch-2147483647", i32::MAX),
            ("lock--2147483648", i32::MIN),
            ("lock--000000001", -1),
            ("lock--1234567890", -1_234_567_890),
            ("lock--1999999999", -1_999_999_999),
            ("latch--1234567890", 1_234_567_890),
            ("-0000000003", 3),
            ("leases-0000000001", 1),
        ] {
            let node = Node::read(name).unwrap();
            assert_eq!((node.shared, node.number, node.is_known), (false, number, false), "{name}");
        }
        for name in [
            "locks",
            "leases",
            "",
            "-lock-",
            "x-lock-12",
            "x-lock-00000000a1",
            "x-9999999999",
            "0011aa",
            "ä000000000",
        ] {
            assert_eq!(Node::read(name), None, "{name}");
        }
    }

    #[test]
    fn a_latch_node_of_ours_contains_its_time() {
        let (dir, time) = (dir("a"), Duration::from_millis(26_250));
        for is_try in [false, true] {
            let path = dir.latch_prefix(ID, is_try, time) + "0000000007";
            let name = path.strip_prefix("/apps/locks/a/").unwrap();
            assert!(is_latch(name) && belongs_to(name, ID), "{name}");
            assert_eq!(latch_hold_time(name), Some(time), "{name}");
            let node = Node::read(name).unwrap();
            assert!((node.number, node.is_try, node.is_known) == (7, is_try, true), "{node:?}");
        }
        let uuid = "_c_abababab-abab-abab-abab-abababababab";
        for (name, latch) in [
            (format!("{uuid}-latch-0000000007"), true),
            ("x-leasehold-7-latch-0000000007".to_owned(), true),
            (format!("{uuid}-leasehold-x-latch-0000000007"), true),
            (format!("{uuid}-leasehold-7-lock-0000000007"), false),
            (format!("{uuid}-leasehold-7-latch-"), false),
        ] {
            assert_eq!((is_latch(&name), latch_hold_time(&name)), (latch, None), "{name}");
        }
    }

    #[test]
    fn a_plain_node_has_no_claim_id() {
        for (name, plain) in [
            ("lock-0000000007", true),
            ("lock--000000007", true),
            ("lock--1234567890", true),
            ("x-lock-0000000007", false),
            ("lock-7", false),
            ("latch-0000000007", false),
        ] {
            assert_eq!(is_plain(name), plain, "{name}");
        }
    }

    #[test]
    fn names_are_escaped_as_readable_paths() {
        for (name, without_chroot) in [
            ("läuft ✓", "läuft ✓"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("...", "..."),
            ("a/b", "a%2Fb"),
            ("%2F", "%252F"),
            ("zookeeper", "zookeeper"),
            ("\u{1f512}", "%F0%9F%94%92"),
            ("\u{e000}\u{ffff}", "%EE%80%80%EF%BF%BF"),
        ] {
            let without_chroot = format!("/locks/{without_chroot}");
            assert_eq!(dir(name).without_chroot(), without_chroot);
            assert_eq!(name_of(&without_chroot["/locks/".len()..]).unwrap().as_str(), name);
        }
        for other in ["%2f", "a%", "%FF", ""] {
            assert_eq!(name_of(other), None, "{other}");
        }
    }
}
