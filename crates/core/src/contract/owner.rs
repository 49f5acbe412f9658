//! The owner of a request: a label for others, and an identity for taking the same lock again.

use std::{fmt, sync::Arc};

use crate::Error;

/// The longest label, in bytes.
pub const MAX_OWNER_BYTES: usize = 128;

/// The owner of a request.
///
/// The label is shown to others. The identity is the value itself: a request whose owner is a *clone* of the holder's
/// owner is granted at once, with the token of the holder (re-entrancy by an explicit owner, never by thread or task).
/// Two cases differ: permits are always taken anew, and an exclusive request of a shared holder is an error. Two owners
/// made from the same text are two identities.
#[derive(Clone)]
pub struct Owner(Arc<str>);

impl Owner {
    /// A new identity with this label. Control characters are replaced by `?`, and the label is cut after 128 bytes.
    #[must_use]
    pub fn new(label: &str) -> Self {
        let mut printable: String = label.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let mut end = MAX_OWNER_BYTES.min(printable.len());
        while !printable.is_char_boundary(end) {
            end -= 1;
        }
        printable.truncate(end);
        Self(printable.into())
    }

    /// A new identity with the label `user@host:pid` of another process of this user. For example, a helper process
    /// that holds the lock uses the label of the process that people see.
    #[must_use]
    pub fn of_process(pid: u32) -> Self {
        Self::new(&crate::contract::process::owner_label_of(pid))
    }

    /// The label.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.0
    }

    /// The label, for use in a [`Claim`](crate::Claim).
    pub(crate) fn label_arc(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    /// Whether both are the same identity.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl From<&str> for Owner {
    fn from(label: &str) -> Self {
        Self::new(label)
    }
}

impl From<String> for Owner {
    fn from(label: String) -> Self {
        Self::new(&label)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl std::str::FromStr for Owner {
    type Err = Error;

    /// Rejects any label that [`Owner::new`] would have to change.
    fn from_str(label: &str) -> Result<Self, Error> {
        if label.len() > MAX_OWNER_BYTES {
            return Err(Error::invalid(format!(
                "the owner has {} bytes: at most {MAX_OWNER_BYTES} are allowed",
                label.len()
            )));
        }
        if label.chars().any(char::is_control) {
            return Err(Error::invalid("the owner holds a control character"));
        }
        Ok(Self::new(label))
    }
}
