//! Where the memos are: `<prefix>/%memos/<two digits>/<name>`. No name has the directory `%memos`, because a name with
//! a percent sign is escaped in another way. The prefix is the only directory in which every user that locks may create
//! nodes, and no recipe of other programs looks at the nodes of two directories.
//!
//! `%memos` is also the clock: the time at which its data was last changed is the time of the server. The names are
//! spread over directories by a hash, so that no list of nodes gets too long for an answer. The version of the data of
//! such a directory counts the memos that were ever created in it.

use leasehold_core::{Fault, Name};

use crate::{
    client::Client,
    error::Failed,
    keys::escape,
    wire::{Acl, ErrorCode},
};

/// The directory of all memos, below the prefix.
pub(crate) const MEMOS: &str = "%memos";
/// The right to read the data of a node, and the right to change it.
const READ: i32 = 1;
const WRITE: i32 = 2;

/// The paths of a memo, with the chroot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoPlace {
    /// The directory of all memos: the clock.
    pub(crate) clock: String,
    /// The directory of this memo and of some others.
    pub(crate) directory: String,
    /// The memo.
    pub(crate) node: String,
}

impl MemoPlace {
    fn of(base_path: &str, name: &Name) -> Self {
        let clock = format!("{base_path}/{MEMOS}");
        let directory = format!("{clock}/{:02x}", hash(name.as_str()));
        let node = format!("{directory}/{}", escape(name.as_str()));
        Self { clock, directory, node }
    }

    /// The failure of a request for a memo. If the login has no right, the message names the directory of all memos:
    /// the list of the first login that wrote a memo decides who may use the memos of all names.
    pub(crate) fn failed(&self, failed: Failed) -> Failed {
        if !failed.is(ErrorCode::NO_AUTH) {
            return failed;
        }
        let message = format!(
            "the login of the URL may not use the memos in {}: all logins that use memos there must name each other in \
             acl=, and an existing list must be changed by setAcl (docs/engines/zookeeper.md, Rights)",
            self.clock
        );
        Failed::Local((Fault::Denied, message))
    }
}

impl Client {
    pub(crate) fn memo_place(&self, name: &Name) -> MemoPlace {
        MemoPlace::of(&self.base_path(), name)
    }

    /// The access list of the clock: whoever may read memos may also set the clock, which has no data. A reader needs
    /// the time of the server, and learns it by a change.
    pub(crate) fn clock_acl(&self) -> Vec<Acl> {
        let with_write = |acl: &Acl| {
            let write = if acl.rights & READ == 0 { 0 } else { WRITE };
            Acl { rights: acl.rights | write, ..acl.clone() }
        };
        self.acl.iter().map(with_write).collect()
    }
}

/// The last byte of the FNV-1a hash, which says in which directory a memo is.
fn hash(text: &str) -> u8 {
    let hash =
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::name_of;

    #[test]
    fn memos_are_where_no_name_has_its_directory() {
        let place = MemoPlace::of("/apps/locks", &Name::new("a/b%").unwrap());
        assert_eq!(place.clock, "/apps/locks/%memos");
        assert_eq!(place.directory, "/apps/locks/%memos/ec");
        assert_eq!(place.node, "/apps/locks/%memos/ec/a%2Fb%25");
        assert_eq!(name_of(MEMOS), None);
        assert_ne!(escape(MEMOS), MEMOS);
    }

    #[test]
    fn names_are_spread_over_all_directories() {
        let mut counts = [0_u32; 256];
        (0..25_600).for_each(|number| counts[usize::from(hash(&format!("order-{number}")))] += 1);
        assert!(counts.iter().all(|count| (40..200).contains(count)), "{counts:?}");
    }
}
