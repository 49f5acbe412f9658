//! How a lock is stored on the server: as a string, as by most lock programs, or as a hash, as by Redisson.

use std::sync::OnceLock;

use leasehold_core::{EngineError, Fault, Guarantee, Name};

use crate::{
    keys::{Keys, slot},
    scripts::{Script, TEXTS, is_plain_digest},
    texts::redisson,
};

/// How a lock is stored, so that programs with other libraries see it. All programs that share a lock need the same
/// layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// A string, as by `SET key id NX PX`.
    #[default]
    Plain,
    /// A hash, as the locks of the Java library Redisson.
    Redisson,
}

/// The prefix of Redisson's own keys.
const REDISSON_PREFIX: &str = "redisson_";
/// A part of the keys in which Redisson stores the timeouts of its readers.
const READER_KEY_PART: &str = ":rwlock_timeout:";

impl Layout {
    /// The letter after the tag in a side key. It differs between the layouts: a name that is used in both layouts has
    /// a separate record for each.
    pub(crate) const fn layout_letter(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Redisson => "r",
        }
    }

    /// The text of a script for this layout.
    pub(crate) const fn text(self, script: Script) -> &'static str {
        match (self, redisson_text(script)) {
            (Self::Redisson, Some(text)) => text,
            _ => script.text(),
        }
    }

    /// The digest by which a server finds the script; `None` if this layout has no text of its own for the script.
    pub(crate) fn digest(self, script: Script) -> Option<&'static str> {
        static DIGESTS: [OnceLock<String>; TEXTS.len()] = [const { OnceLock::new() }; TEXTS.len()];
        let text = redisson_text(script).filter(|_| self == Self::Redisson)?;
        let digest =
            DIGESTS[script as usize].get_or_init(|| sha1_smol::Sha1::from(text).digest().to_string());
        Some(digest)
    }

    /// Whether scripts declare a key that never exists, where servers share the slots. While keys of the slot are
    /// migrating, the server then refuses every such script, even if all other declared keys are present: scripts that
    /// also read keys that are not known in advance need this refusal.
    pub(crate) const fn declares_absent_key(self) -> bool {
        matches!(self, Self::Redisson)
    }

    /// Refuses names whose keys Redisson reserves, and, where servers share the slots, names whose
    /// Redisson keys would be in several slots.
    pub(crate) fn check(self, keys: &Keys<'_>, name: &Name, shares_slots: bool) -> Result<(), EngineError> {
        if self == Self::Plain {
            return Ok(());
        }
        let lock = keys.lock();
        let refused = |message: String| Err(EngineError::new(Fault::Misconfigured, message));
        if lock.starts_with(REDISSON_PREFIX) || lock.contains(READER_KEY_PART) {
            return refused(format!(
                "keys that begin with {REDISSON_PREFIX:?} or hold {READER_KEY_PART:?} are Redisson's own: choose another name or prefix"
            ));
        }
        let redisson_key = if lock.contains('{') { format!("x:{lock}") } else { format!("x:{{{lock}}}") };
        if shares_slots && slot(redisson_key.as_bytes(), b"") != keys.slot {
            return refused(format!(
                "on a Redis Cluster Redisson has the keys of {:?} in several slots: choose a name without braces, or with one pair of them",
                name.as_str()
            ));
        }
        Ok(())
    }

    /// Adds a note on the limitations of Redisson's layout to the guarantee; adds nothing for plain locks.
    pub(crate) fn add_limitations(self, guarantee: &mut Guarantee) {
        if self == Self::Redisson {
            guarantee.note(
                "Locks are those of Redisson (layout=redisson): claims of leasehold are granted in their order, the first client of Redisson to ask takes a free lock, and in the queue of a FairLock all claims of leasehold are one entry.",
            );
        }
    }

    /// The obstacle that is reported for a lock key whose value is probably no lock.
    pub(crate) const fn obstacle_not_a_lock(self) -> &'static str {
        match self {
            Self::Plain => {
                "the key of this lock has a value that is not a string, without an expiry: delete it, or choose another name or prefix"
            }
            Self::Redisson => {
                "the key of this lock has a value that is not a lock of Redisson, without an expiry: delete it, or choose another name or prefix"
            }
        }
    }

    /// The obstacle that is reported while leasehold holds the name in the other layout.
    pub(crate) const fn obstacle_other_layout(self) -> &'static str {
        match self {
            Self::Plain => {
                "leasehold holds it in another layout, as a lock of Redisson's: put layout=redisson into the URL of all programs of this lock, or of none"
            }
            Self::Redisson => {
                "leasehold holds it in another layout, as a string: put layout=redisson into the URL of all programs of this lock, or of none"
            }
        }
    }

    /// The error message for a token counter with a foreign value.
    pub(crate) const fn counter_error_text(self) -> &'static str {
        match self {
            Self::Plain => {
                "the key of the newest token, leasehold:{}t and the prefix, has a foreign value: delete it, and tokens continue above the server's clock"
            }
            Self::Redisson => {
                "the key of the newest token, leasehold:{}t and the prefix, or that of Redisson's FencedLock, redisson_lock_token:{...}, has a foreign value: delete it, and tokens continue above the server's clock"
            }
        }
    }
}

/// The texts of the scripts for Redisson's locks.
const REDISSON_TEXTS: [(Script, &str); 11] = [
    (Script::Claim, redisson::CLAIM),
    (Script::Renew, redisson::RENEW),
    (Script::Release, redisson::RELEASE),
    (Script::Break, redisson::BREAK),
    (Script::Look, redisson::LOOK),
    (Script::RenewLock, redisson::RENEW_LOCK),
    (Script::ReleaseLock, redisson::RELEASE_LOCK),
    (Script::RenewShared, redisson::RENEW_SHARED),
    (Script::ReleaseShared, redisson::RELEASE_SHARED),
    (Script::ReadMemo, redisson::READ_MEMO),
    (Script::WriteMemo, redisson::WRITE_MEMO),
];

/// The text of a script for Redisson's locks; `None` for a script that reads no lock, or that is only for plain
/// strings.
const fn redisson_text(script: Script) -> Option<&'static str> {
    let mut index = 0;
    while index < REDISSON_TEXTS.len() {
        let (of, text) = REDISSON_TEXTS[index];
        if of as usize == script as usize {
            return Some(text);
        }
        index += 1;
    }
    None
}

/// Whether a server knows a script of leasehold, of any layout, by this digest.
pub(crate) fn is_own_digest(digest: &str) -> bool {
    let mut of_redisson = REDISSON_TEXTS.iter().filter_map(|(script, _)| Layout::Redisson.digest(*script));
    is_plain_digest(digest) || of_redisson.any(|own| own == digest)
}
