//! The owner of a request: a label for others, and an identity for taking the same lock again.

use std::{fmt, sync::Arc};

#[cfg(doc)]
use crate::Blocking;
use crate::{Acquire, Actor, Error, Request};

/// The longest label, in bytes.
pub const MAX_OWNER_BYTES: usize = 128;

/// The owner of a request: a label for others, and an identity for re-entrancy.
///
/// The label is shown to others. The identity is the value itself: a request whose owner is a *clone* of the holder's
/// owner is granted at once, with the token of the holder (re-entrancy by an explicit owner, never by thread or task).
/// Two cases differ: permits are always taken anew, and an exclusive request of a shared holder is an error. Two owners
/// made from the same text are two identities. The identity counts within one `Locks` and its clones.
///
/// The guards of an owner on one name are counted: they share one hold, and the last of them to end releases it. So a
/// function can lock what it needs, whether or not its caller has locked it already:
///
/// ```
/// # fn main() -> Result<(), leasehold::Error> {
/// # pollster::block_on(async {
/// use leasehold::{Error, Locks, Owner};
///
/// async fn transfer(locks: &Locks, owner: &Owner) -> Result<(), Error> {
///     let guard = owner.enter(locks.mutex("accounts")).await?;
///     book(locks, owner).await?;
///     guard.release().await
/// }
///
/// async fn book(locks: &Locks, owner: &Owner) -> Result<(), Error> {
///     // Granted at once in `transfer`, and waits for other holders if it is called alone.
///     let guard = owner.enter(locks.mutex("accounts")).await?;
///     guard.release().await
/// }
///
/// let locks = Locks::connect("memory:")?;
/// transfer(&locks, &Owner::new("transfer 17")).await?;
/// book(&locks, &Owner::new("booking 18")).await
/// # })
/// # }
/// ```
#[derive(Clone)]
pub struct Owner(Arc<str>);

impl Owner {
    /// A new identity with this label. Control characters are replaced by `?`, and the label is cut after 128 bytes.
    ///
    /// ```
    /// use leasehold::Owner;
    /// let owner = Owner::new("importer");
    /// assert!(owner.is(&owner.clone()) && !owner.is(&Owner::new("importer")));
    /// ```
    #[must_use]
    pub fn new(label: &str) -> Self {
        Self(printable(label, MAX_OWNER_BYTES).into())
    }

    /// A new identity with this label, which acts for the task `actor`. Every request of this owner tells it to tools
    /// that look for deadlocks. The actor takes 23 bytes of the label, or 40 if it has a parent: the text is cut to
    /// leave them.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use leasehold::{Actor, Owner};
    /// let (actor, text) = (Actor::random(), "transfer 17");
    /// let guard = Owner::of_task(text, actor).enter_blocking(locks.mutex("accounts"))?;
    /// let holder = locks.show_blocking("accounts")?.holders.remove(0);
    /// assert_eq!((holder.owner.as_str(), holder.actor), (text, Some(actor)));
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn of_task(label: &str, actor: Actor) -> Self {
        Self((printable(label, MAX_OWNER_BYTES - actor.label_bytes()) + &actor.label_end()).into())
    }

    /// A new identity with the label `user@host:pid` of another process of this user. For example, a helper process
    /// that holds the lock uses the label of the process that people see.
    ///
    /// ```
    /// let owner = leasehold::Owner::of_process(4711);
    /// assert!(owner.label().ends_with(":4711"));
    /// ```
    #[must_use]
    pub fn of_process(pid: u32) -> Self {
        Self::new(&crate::contract::label::owner_label_of(pid))
    }

    /// The label; of an owner that acts for a task, with the actor at its end.
    ///
    /// ```
    /// assert_eq!(leasehold::Owner::new("importer").label(), "importer");
    /// ```
    #[must_use]
    pub fn label(&self) -> &str {
        &self.0
    }

    /// The label, for use in a [`Claim`](crate::Claim).
    pub(crate) fn label_arc(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    /// Whether both are the same identity.
    ///
    /// ```
    /// use leasehold::Owner;
    /// let owner = Owner::new("importer");
    /// assert!(owner.is(&owner.clone()) && !owner.is(&Owner::new("importer")));
    /// ```
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Acquires `request` as this owner: the same as [`owner(self.clone())`](Request::owner) and
    /// [`acquire`](Request::acquire). If this owner holds the name, the request is granted at once and shares the hold;
    /// if a request of this owner already waits for the name, both get the hold with the same grant. Each guard counts
    /// as one [entry](crate::Guard::entries), and the last to end releases the hold.
    ///
    /// ```
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use leasehold::Owner;
    /// let owner = Owner::new("transfer 17");
    /// let outer = owner.enter(locks.mutex("accounts")).await?;
    /// let inner = owner.enter(locks.mutex("accounts")).await?;
    /// assert_eq!((inner.entries(), inner.token()), (2, outer.token()));
    /// drop(outer);
    /// assert!(locks.mutex("accounts").try_acquire().await.unwrap_err().is_taken());
    /// inner.release().await?;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Request::acquire`]; [`is_invalid`](Error::is_invalid) for an exclusive request if this owner holds the name
    /// shared, because that request would wait for the owner itself.
    ///
    /// # Cancel safety
    /// As [`Request::acquire`].
    pub fn enter(&self, request: Request) -> Acquire {
        request.owner(self.clone()).acquire()
    }

    /// [`enter`](Self::enter) for code without an executor: blocks the thread.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let owner = leasehold::Owner::new("transfer 17");
    /// let outer = owner.enter_blocking(locks.mutex("accounts"))?;
    /// let inner = owner.enter_blocking(locks.mutex("accounts"))?;
    /// assert_eq!(inner.entries(), 2);
    /// # drop((outer, inner));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    ///
    /// # Panics
    /// As [`Blocking::acquire`].
    #[track_caller]
    pub fn enter_blocking(&self, request: Request) -> Result<crate::Guard, Error> {
        request.owner(self.clone()).blocking().acquire()
    }
}

/// A label without control characters, cut to this number of bytes.
fn printable(label: &str, max_bytes: usize) -> String {
    let mut printable: String = label.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let mut end = max_bytes.min(printable.len());
    while !printable.is_char_boundary(end) {
        end -= 1;
    }
    printable.truncate(end);
    printable
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
