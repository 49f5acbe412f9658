//! Memos: a small record beside a name, which its holder writes and which outlives the hold. An engine offers them by
//! the trait [`Memos`], or says in its profile why it has none.

use std::{any::Any, fmt, time::Duration};

use crate::{
    BoxFuture, ClaimId, EngineError, Error, Mode, Name, Previous, Release, Token,
    contract::time::format_duration,
};

/// The most bytes in one memo: enough for an address, a result or a list of arrivals, and far below the limit of every
/// server on the size of one value or one request.
pub const MAX_MEMO_BYTES: usize = 64 * 1024;

/// The longest time for which a memo can be kept: a yearly job must find the memo of its last run.
pub const MAX_MEMO_KEEP: Duration = Duration::from_secs(400 * 24 * 3600);

/// The shortest time for which a memo can be kept: engines count in milliseconds.
pub const MIN_MEMO_KEEP: Duration = Duration::from_millis(1);

/// The longest name of a kind, in bytes.
const MAX_KIND_BYTES: usize = 16;

/// The memos of an engine: at most one record beside each name.
///
/// The rules of [`Engine`](crate::Engine) apply: in particular, an unknown outcome is never reported as "not applied"
/// (R12), and the future of a request may be dropped at any point (R23). A memo has these rules of its own (R28):
///
/// 1. **By the holder.** `write` changes the memo only in one atomic step with the comparison of claim id *and*
///    token: the claim must hold the name with that token, unbroken, by the clock of the engine. Everything else is
///    [`Written::Overtaken`] and changes nothing. A foreign holder of the name changes nothing about `read`, and
///    nothing can be written under its hold.
/// 2. **With the release.** A write with [`HoldAfter::Release`] does the same and ends the hold in the same atomic
///    step, as a [`Release`](crate::Release) with this token that ended clean does: nobody finds the name free
///    without the memo. What the release of a hold leaves (a tombstone, a notification of the next waiter, a grant)
///    this step leaves too. If it is answered with anything but [`Written::Done`], core sends an ordinary release
///    afterwards.
/// 3. **One kind.** If a memo of another kind is stored under the name and has not ended, `write` changes nothing and
///    fails with [`Fault::Misconfigured`](crate::Fault::Misconfigured), by [`kind_error`]. `read` returns a memo of any
///    kind.
/// 4. **In order.** Writes of one claim have growing numbers. A write whose number is smaller than the number of the
///    stored memo *of the same claim* is a late request: it changes nothing and is answered [`Written::Done`],
///    because a later write of the same holder has replaced it. That is so also after the stored memo has ended, as
///    long as its claim holds the name. The same number again stores the same memo again.
/// 5. **Whole.** A reader gets a whole memo as one write stored it, never parts of two. After a write was answered
///    `Done`, no reader gets an older memo.
/// 6. **Until its end.** A memo ends when `keep` has passed since the engine applied the write, by the clock of the
///    engine; `left` at a read says how long that is. An engine may keep a memo longer, by at most a minute or a tenth
///    of `keep`, whichever is more, and `left` then includes that time. It never ends a memo earlier, and never returns
///    one after its end. There are two exceptions: an engine whose clock does not count across a restart of its machine
///    decides then by the time of day. If the time of day was wrong before or after the restart, the memo ends too
///    early or too late, as the documentation of the engine says. An engine whose servers begin the time again when
///    another of them takes the lead keeps the memo that much longer, and says so. After the end of the memo and of the
///    hold that wrote it, nothing of the memo stays on the engine for longer than that documentation says.
/// 7. **Its own data.** Data under the key of a memo that is no memo is foreign: `read` and `write` fail with
///    `Fault::Misconfigured` and change nothing.
///
/// Only exclusive holds write memos; core refuses other modes. Core limits the size and the time, so that an engine
/// gets valid values only.
///
/// A later version may add a write without a hold, which compares the [`MemoVersion`] that it replaces. So an engine
/// must store the whole version and compare no part of it alone.
///
/// No method has a default body, so that a decorator cannot forget to forward one.
pub trait Memos: Send + Sync {
    /// The memo of `name`; `None` if there is none, or if it has ended. Takes no lock, waits for no holder, and creates
    /// nothing.
    ///
    /// # Errors
    /// As for `claim`; a failed read has changed nothing, whatever its fault.
    fn read<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Option<Memo>, EngineError>>;

    /// Writes a memo under a hold, and ends the hold if `after` says so. See the rules of the trait.
    ///
    /// # Errors
    /// An [`EngineError`] whose [`Fault`](crate::Fault) tells whether the memo may have been written. Core repeats a
    /// write with an unknown outcome, and at the end reads the version back.
    fn write<'a>(&'a self, write: &'a MemoWrite) -> BoxFuture<'a, Result<Written, EngineError>>;

    /// Asks for [`Notification::Memo`](crate::Notification::Memo) for `name` until the returned value is dropped.
    /// Neither this call nor the drop of the value blocks: requests to a server are left to the engine's own tasks.
    /// `None`: the engine does not push changes of memos, and core polls.
    ///
    /// The engine pushes one notification for the name as soon as it would notice every change from then on, and again
    /// after each reconnect ([`AskAll`](crate::Notification::AskAll) will do as well); core reads the memo after each.
    /// So no change between two reads is missed. Then the engine pushes a notification after a write, and after the end
    /// of the hold that wrote the memo, if it learns of that. As all notifications, these can be lost, doubled and late
    /// (R7): core also reads at intervals.
    fn follow(&self, name: &Name) -> Option<Followed>;
}

/// A subscription to the changes of one memo. It ends when this value is dropped.
pub struct Followed(#[expect(dead_code, reason = "only its drop matters")] Box<dyn Any + Send + Sync>);

impl Followed {
    /// A subscription that ends with the drop of `subscription`.
    pub fn until_dropped(subscription: impl Any + Send + Sync) -> Self {
        Self(Box::new(subscription))
    }
}

impl fmt::Debug for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Followed")
    }
}

/// What a memo is for: 1 to 16 lower-case letters. The kinds of leasehold are the constants of this type.
///
/// One name has memos of one kind at a time, so that, for example, an election does not overwrite a stored result.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MemoKind(std::borrow::Cow<'static, str>);

impl MemoKind {
    /// The value that a leader publishes.
    pub const ELECTION: Self = Self(std::borrow::Cow::Borrowed("election"));
    /// The result of work that is done one time.
    pub const ONCE: Self = Self(std::borrow::Cow::Borrowed("once"));
    /// The last run of a schedule.
    pub const SCHEDULE: Self = Self(std::borrow::Cow::Borrowed("schedule"));
    /// The arrivals at a latch.
    pub const LATCH: Self = Self(std::borrow::Cow::Borrowed("latch"));
    /// The number of stripes of a name.
    pub const STRIPES: Self = Self(std::borrow::Cow::Borrowed("stripes"));

    /// Checks `text` and makes a kind from it.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) unless `text` is 1 to 16 lower-case letters (a to z).
    pub fn new(text: &str) -> Result<Self, Error> {
        let is_valid =
            (1..=MAX_KIND_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase());
        if is_valid {
            Ok(Self(text.to_owned().into()))
        } else {
            Err(Error::invalid(format!(
                "{text:?} is no kind of memo: give 1 to {MAX_KIND_BYTES} letters a to z"
            )))
        }
    }

    /// The kind as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MemoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Identifies one write of a memo: no two writes have the same version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoVersion {
    /// The claim under whose hold the memo was written.
    pub id: ClaimId,
    /// The number of the write: larger than the numbers of all earlier writes of this claim.
    pub number: u64,
}

/// A memo that is to be written: valid by construction.
#[derive(Clone, PartialEq, Eq)]
pub struct NewMemo {
    kind: MemoKind,
    bytes: Vec<u8>,
    print: Option<[u8; 32]>,
    keep: Duration,
}

impl NewMemo {
    /// A memo of this kind, which is kept for `keep` after the engine has written it. [`MIN_MEMO_KEEP`] to
    /// [`MAX_MEMO_KEEP`].
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for more than [`MAX_MEMO_BYTES`] bytes, or for another time.
    pub fn new(kind: MemoKind, bytes: impl Into<Vec<u8>>, keep: Duration) -> Result<Self, Error> {
        let bytes = bytes.into();
        let len = bytes.len();
        if len > MAX_MEMO_BYTES {
            return Err(Error::invalid(format!(
                "the memo of kind {kind} has {len} bytes: at most {MAX_MEMO_BYTES} are allowed"
            )));
        }
        if !(MIN_MEMO_KEEP..=MAX_MEMO_KEEP).contains(&keep) {
            let [keep, shortest, longest] = [keep, MIN_MEMO_KEEP, MAX_MEMO_KEEP].map(format_duration);
            return Err(Error::invalid(format!(
                "the memo of kind {kind} cannot be kept for {keep}: give {shortest} to {longest}"
            )));
        }
        Ok(Self { kind, bytes, print: None, keep })
    }

    /// Adds the digest of what the memo is the answer to, so that a repeat with another payload can be told apart.
    #[must_use]
    pub fn print(mut self, print: [u8; 32]) -> Self {
        self.print = Some(print);
        self
    }

    /// What the memo is for.
    #[must_use]
    pub const fn kind(&self) -> &MemoKind {
        &self.kind
    }

    /// Its content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The digest of what it is the answer to.
    #[must_use]
    pub const fn digest(&self) -> Option<&[u8; 32]> {
        self.print.as_ref()
    }

    /// How long it is kept after the engine has written it.
    #[must_use]
    pub const fn keep(&self) -> Duration {
        self.keep
    }
}

/// The content may be confidential, so only its length is shown.
impl fmt::Debug for NewMemo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, len, keep) = (&self.kind, self.bytes.len(), self.keep);
        write!(f, "NewMemo({kind}, {len} bytes, kept for {keep:?})")
    }
}

/// The request to write a memo under a hold.
#[derive(Clone, Debug)]
pub struct MemoWrite {
    /// The name.
    pub name: Name,
    /// The version of the write: the claim that holds the name, and the number of the write.
    pub version: MemoVersion,
    /// The first token of the grant, by which the engine recognises the hold, as in [`Hold`](crate::Hold).
    pub hold_token: Token,
    /// The token of the guard that writes: one of the tokens of the grant. It is stored with the memo.
    pub token: Token,
    /// The memo.
    pub memo: NewMemo,
    /// Whether the hold goes on.
    pub after: HoldAfter,
}

impl MemoWrite {
    /// The release that a write with [`HoldAfter::Release`] does in its atomic step.
    #[must_use]
    pub fn release(&self) -> Release {
        Release {
            id: self.version.id,
            name: self.name.clone(),
            mode: Mode::Exclusive,
            token: Some(self.hold_token),
            ended: Previous::Clean,
            min_hold: None,
        }
    }
}

/// Whether a hold goes on after the write of a memo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldAfter {
    /// It goes on.
    Keep,
    /// It ends in the same atomic step, as a clean release ends it.
    Release,
}

/// The answer of an engine to the write of a memo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The memo is stored, or a later one of the same claim is. With [`HoldAfter::Release`] the hold has ended, and no
    /// earlier request with this id can create anything any more.
    Done,
    /// The claim does not hold the name with this token, or its hold is broken: nothing was changed.
    Overtaken,
}

/// A stored memo, as read.
#[derive(Clone, PartialEq, Eq)]
pub struct Memo {
    /// What it is for.
    pub kind: MemoKind,
    /// Its content.
    pub bytes: Vec<u8>,
    /// The digest of what it is the answer to, if it was written with one.
    pub print: Option<[u8; 32]>,
    /// Which write stored it.
    pub version: MemoVersion,
    /// The token of the guard that wrote it.
    pub token: Token,
    /// How long it is still kept, unless it is written again.
    pub left: Duration,
    /// Whether the claim that wrote it still held the name exclusively, unbroken, at the read.
    pub is_held: bool,
}

/// The content may be confidential, so only its length is shown.
impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memo")
            .field("kind", &self.kind)
            .field("bytes", &self.bytes.len())
            .field("version", &self.version)
            .field("token", &self.token.number)
            .field("left", &self.left)
            .field("is_held", &self.is_held)
            .finish_non_exhaustive()
    }
}

/// The error for a write over a memo of another kind.
#[must_use]
pub fn kind_error(found: &MemoKind, written: &MemoKind) -> EngineError {
    EngineError::new(
        crate::Fault::Misconfigured,
        format!(
            "a memo of kind {found} is stored under this name, and one of kind {written} cannot replace it: use \
             another name"
        ),
    )
}

/// The error for data under the key of a memo that is no memo.
#[must_use]
pub fn foreign_memo_error(key: &str) -> EngineError {
    EngineError::new(
        crate::Fault::Misconfigured,
        format!("the data of {key} is no memo of leasehold: remove it, or use another name"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_memo_has_at_most_64_kib_and_a_time() {
        let memo = |len: usize, keep| NewMemo::new(MemoKind::ONCE, vec![0; len], keep);
        assert!(memo(0, MIN_MEMO_KEEP).is_ok() && memo(MAX_MEMO_BYTES, MAX_MEMO_KEEP).is_ok());
        for (refused, reason) in [
            (memo(MAX_MEMO_BYTES + 1, HOUR), "65537 bytes"),
            (memo(0, Duration::ZERO), "cannot be kept for 0"),
            (memo(0, MAX_MEMO_KEEP + Duration::from_millis(1)), "cannot be kept"),
        ] {
            let error = refused.unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn a_kind_is_a_short_word() {
        for text in ["once", "a", "abcdefghijklmnop"] {
            assert_eq!(MemoKind::new(text).unwrap().as_str(), text);
        }
        for text in ["", "Once", "on ce", "once\n", "1", "é", "abcdefghijklmnopq"] {
            assert!(MemoKind::new(text).unwrap_err().is_invalid(), "{text:?}");
        }
        assert_eq!(MemoKind::new("once").unwrap(), MemoKind::ONCE);
    }

    #[test]
    fn debug_shows_no_content() {
        let memo = NewMemo::new(MemoKind::ONCE, "secret", HOUR).unwrap();
        assert_eq!(format!("{memo:?}"), "NewMemo(once, 6 bytes, kept for 3600s)");
    }
}
