//! Who holds or waits for a lock on a whole file, read from the kernel's list `/proc/locks`: reading disturbs no lock.

pub(super) mod clock;
pub(super) mod locks;
pub(super) mod proc;

use std::{
    fs::File,
    io::{self, Read},
};

use nix::sys::stat::{major, minor};

/// File systems where `stat` returns another device number than `/proc/locks`: btrfs and overlay. There only the
/// inode is compared, which suffices in a directory of one file system.
const OTHER_DEVICE_NUMBER: [i64; 2] = [0x9123_683E, OVERLAY];
/// The size of one read, in bytes: more than the kernel returns per read, which is a page.
const READ_SIZE: usize = 64 * 1024;
/// `OVERLAYFS_SUPER_MAGIC` of `statfs(2)`.
pub(super) const OVERLAY: i64 = 0x794C_7630;

/// One flock on a file, or a byte-range lock of another program that extends to the end of the file, wherever that is,
/// as `lockf(3)` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flock {
    /// `None`: the kernel does not report it, because the lock belongs to an open file.
    pub(super) pid: Option<u32>,
    /// Exclusive, else shared.
    pub(super) exclusive: bool,
    /// Waits for the lock in the kernel instead of holding it.
    pub(super) waits: bool,
}

/// The locks of the whole system at one moment.
#[derive(Debug)]
pub(super) struct KernelLocks {
    /// The content of `/proc/locks`.
    text: String,
    /// The file system is one where device numbers cannot be compared: see [`OTHER_DEVICE_NUMBER`].
    compares_inode_only: bool,
}

impl KernelLocks {
    /// Reads `/proc/locks`; where it cannot be read, the result has no locks. The kernel does not list locks of other
    /// pid namespaces.
    pub(super) fn read(fs_type: Option<i64>) -> Self {
        let text = read_whole("/proc/locks").unwrap_or_default();
        Self {
            text,
            compares_inode_only: fs_type.is_some_and(|fs_type| OTHER_DEVICE_NUMBER.contains(&fs_type)),
        }
    }

    /// The flocks on one file.
    pub(super) fn flocks_on(&self, device: libc::dev_t, inode: libc::ino_t) -> Vec<Flock> {
        let device = format!("{:02x}:{:02x}", major(device), minor(device));
        self.text.lines().filter_map(|line| self.parse(line, &device, inode)).collect()
    }

    /// Parses `1: FLOCK  ADVISORY  WRITE 8081 fe:00:5333167 0 EOF`; a blocked lock has `->` after the number. Our own
    /// latch and marks cover one byte, so they do not end with `EOF`.
    fn parse(&self, line: &str, device: &str, inode: libc::ino_t) -> Option<Flock> {
        let mut words = line.split_ascii_whitespace().skip(1).peekable();
        let waits = words.next_if_eq(&"->").is_some();
        if !matches!(words.next()?, "FLOCK" | "POSIX" | "OFDLCK") {
            return None;
        }
        let exclusive = words.nth(1)? == "WRITE";
        let pid = words.next()?.parse().ok();
        let (lock_device, inode_number) = words.next()?.rsplit_once(':')?;
        let is_same_file =
            inode_number.parse() == Ok(inode) && (self.compares_inode_only || lock_device == device);
        (is_same_file && words.nth(1)? == "EOF").then_some(Flock { pid, exclusive, waits })
    }
}

/// Reads a file in as few reads as the kernel allows. `fs::read_to_string` does not: its first read is for a few bytes
/// only. Between two reads the kernel finds its position by counting locks, so it skips an existing lock when an
/// earlier one is removed meanwhile.
fn read_whole(path: &str) -> io::Result<String> {
    let (mut file, mut text) = (File::open(path)?, Vec::new());
    let mut buffer = vec![0; READ_SIZE];
    loop {
        match file.read(&mut buffer)? {
            0 => return String::from_utf8(text).map_err(io::Error::other),
            read => text.extend_from_slice(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locks_of_one_file_are_found() {
        let text = "1: FLOCK  ADVISORY  WRITE 8081 fe:00:533 0 EOF\n\
                    1: -> FLOCK  ADVISORY  READ 9 fe:00:533 0 EOF\n\
                    2: FLOCK  ADVISORY  WRITE 8082 fe:01:533 0 EOF\n\
                    3: OFDLCK ADVISORY  WRITE -1 fe:00:533 4611686018427387909 4611686018427387909\n\
                    4: FLOCK nonsense\n\
                    5: POSIX  ADVISORY  WRITE 8083 fe:00:533 0 EOF\n\
                    6: POSIX  ADVISORY  WRITE 8084 fe:00:533 0 9\n\
                    7: OFDLCK ADVISORY  READ -1 fe:00:533 0 EOF\n";
        let mut locks = KernelLocks { text: text.into(), compares_inode_only: false };
        let device = nix::sys::stat::makedev(0xfe, 0);
        let holder = Flock { pid: Some(8081), exclusive: true, waits: false };
        let waiter = Flock { pid: Some(9), exclusive: false, waits: true };
        let range = Flock { pid: Some(8083), ..holder };
        let unknown = Flock { pid: None, exclusive: false, waits: false };
        assert_eq!(locks.flocks_on(device, 533), [holder, waiter, range, unknown]);
        assert_eq!(locks.flocks_on(device, 534), []);
        locks.compares_inode_only = true;
        assert_eq!(locks.flocks_on(device, 533).len(), 5);
    }
}
