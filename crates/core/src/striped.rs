//! Striping: many keys share a fixed number of names.

use std::{
    fmt::{self, Display, Write},
    hash::Hasher,
    sync::Arc,
};

use crate::{Error, Locks, Name, Request, Rw, driver::shared::SharedHandle, request::Family};

/// Locks for any number of keys on a fixed number of names, the stripes: for keys that are too many to leave something
/// of each on the engine, or for systems that watch each name. `Locks::striped` makes it.
///
/// A key belongs to the stripe `hash(key) mod stripes`, and the stripe is the name `<base>~<stripes>/<stripe>`. The
/// hash is SipHash-2-4 with a key of zeros, of the key as text in UTF-8, so a program in another language can compute
/// it:
///
/// | key | hash | stripe of 1024 |
/// |---|---|---|
/// | the empty text | `0x1e924b9d737700d7` | 215 |
/// | `17` | `0xc8506f43c55c6402` | 2 |
/// | `alice` | `0x76211b47297fa5ef` | 495 |
/// | `order/4711-2026` | `0x57133cc1afe50a63` | 611 |
///
/// Two rules:
///
/// - **All programs give the same number of stripes.** With another number, a key is on another name, and the two
///   programs do not exclude each other. Nothing notices this: keep the number beside the URL in the configuration.
///   Change it only while no program holds a stripe.
/// - **A task acquires one stripe at a time, or all its stripes by one request.** Two keys may be on the same stripe,
///   where a task that holds one key would wait for itself, and tasks that take two stripes in different orders would
///   wait for each other. One request of [`Locks::all`] for the [name](Self::name_for) of each key does neither: it
///   takes a stripe that is named twice one time, and all stripes in one order.
///
/// ```
/// # let locks = leasehold::Locks::connect("memory:")?;
/// let keys = ["alice", "bob", "alice"];
/// let purses = locks.striped("purse", 1024);
/// let mut all = locks.all();
/// for key in keys {
///     all = all.mutex(purses.name_for(key)?);
/// }
/// let guards = all.blocking().acquire()?;
/// assert_eq!(guards.iter().len(), 2);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
pub struct Striped {
    handle: Arc<SharedHandle>,
    base: String,
    stripes: u32,
}

impl Locks {
    /// Locks for any number of keys on a fixed number of names: see [`Striped`].
    #[must_use]
    pub fn striped(&self, base: impl AsRef<str>, stripes: u32) -> Striped {
        Striped { handle: Arc::clone(self.handle()), base: base.as_ref().to_owned(), stripes }
    }
}

impl Striped {
    /// A lock that excludes every other holder of the stripe of this key. The key counts as the text that it displays
    /// as, so the number 17 and the text `17` are the same key.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let accounts = locks.striped("account", 1024);
    /// let guard = accounts.for_key(17).blocking().acquire()?;
    /// assert_eq!(guard.name().as_str(), "account~1024/2");
    /// assert!(accounts.for_key("17").blocking().try_acquire().unwrap_err().is_taken());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn for_key(&self, key: impl Display) -> Request {
        Request::new(&self.handle, self.stripe(&key), Family::Exclusive)
    }

    /// A read-write lock on the stripe of this key.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let accounts = locks.striped("account-rw", 1024);
    /// let readers = [17, 17].map(|id| accounts.rw_for_key(id).read().blocking().acquire());
    /// assert!(readers.iter().all(|guard| guard.is_ok()));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn rw_for_key(&self, key: impl Display) -> Rw {
        Rw::new(&self.handle, self.stripe(&key))
    }

    /// The name of the stripe of this key, for [`Locks::all`].
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let purses = locks.striped("purse", 1024);
    /// let pair = locks.all().mutex(purses.name_for("alice")?).mutex(purses.name_for("bob")?);
    /// assert_eq!(pair.blocking().acquire()?.iter().len(), 2);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for zero stripes, or if the base and the number are no valid name.
    pub fn name_for(&self, key: impl Display) -> Result<String, Error> {
        Ok(self.stripe(&key)?.as_str().to_owned())
    }

    /// The stripe of the key.
    fn stripe(&self, key: &dyn Display) -> Result<Name, Error> {
        Name::new(&stripe_name(&self.base, self.stripes, key)?)
    }
}

/// The name of the stripe of this key: see [`Striped`].
///
/// ```
/// assert_eq!(leasehold::stripe_name("account", 1024, &17)?, "account~1024/2");
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// # Errors
/// [`is_invalid`](Error::is_invalid) for zero stripes.
pub fn stripe_name(base: &str, stripes: u32, key: &dyn Display) -> Result<String, Error> {
    if stripes == 0 {
        return Err(Error::invalid(format!("lock {base:?}: a name needs at least 1 stripe")));
    }
    Ok(format!("{base}~{stripes}/{}", hash(key) % u64::from(stripes)))
}

/// SipHash-2-4 of the text that `key` displays as, with a key of zeros.
#[expect(deprecated, reason = "the only hasher of the standard library whose algorithm is fixed")]
fn hash(key: &dyn Display) -> u64 {
    struct Text(std::hash::SipHasher);

    impl Write for Text {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0.write(part.as_bytes());
            Ok(())
        }
    }

    let mut text = Text(std::hash::SipHasher::new());
    // Only a `Display` that fails by itself fails here; what it wrote before counts.
    let _ = write!(text, "{key}");
    text.0.finish()
}

impl fmt::Debug for Striped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Striped({:?}, {})", self.base, self.stripes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_siphash_2_4_with_a_key_of_zeros() {
        for (key, hash_of_key, stripe) in [
            ("", 0x1e92_4b9d_7377_00d7, 215),
            ("0", 0xb6af_0bb0_34a0_5e4a, 586),
            ("17", 0xc850_6f43_c55c_6402, 2),
            ("alice", 0x7621_1b47_297f_a5ef, 495),
            ("order/4711-2026", 0x5713_3cc1_afe5_0a63, 611),
            ("Gr\u{fc}\u{df}e", 0x0ce0_adf3_4d96_db74, 884),
        ] {
            assert_eq!(hash(&key), hash_of_key, "{key:?}");
            assert_eq!(stripe_name("a", 1024, &key).unwrap(), format!("a~1024/{stripe}"), "{key:?}");
            assert_eq!(stripe_name("a", 1, &key).unwrap(), "a~1/0");
        }
        assert_eq!(
            hash(&format_args!("order/{}-{}", 4711, 2026)),
            hash(&"order/4711-2026"),
            "of the text as a whole"
        );
        assert_eq!(hash(&17), hash(&"17"));
    }

    #[test]
    #[expect(deprecated, reason = "the hasher in use")]
    fn the_hasher_agrees_with_the_vectors_of_the_paper() {
        let paper = |bytes: &[u8]| {
            let mut hasher =
                std::hash::SipHasher::new_with_keys(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
            hasher.write(bytes);
            hasher.finish()
        };
        assert_eq!(paper(&[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(paper(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]), 0xa129_ca61_49be_45e5);
    }
}
