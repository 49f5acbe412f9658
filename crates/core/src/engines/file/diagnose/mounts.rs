//! The mount on which a path is, from the text of `/proc/self/mountinfo`.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// The list of the mounts that this process sees.
pub(super) const MOUNTS: &str = "/proc/self/mountinfo";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Where it is mounted.
    pub(super) point: PathBuf,
    /// The type of its file system.
    pub(super) fs_type: String,
    /// Its own options, and those of its file system.
    options: Vec<String>,
}

impl Mount {
    /// The mount on which an absolute path without symbolic links is. Of several mounts at one place the last one is
    /// seen.
    pub(super) fn of(mounts: &[u8], path: &Path) -> Option<Self> {
        let all = mounts.split(|&byte| byte == b'\n').filter_map(parse);
        all.filter(|mount| path.starts_with(&mount.point)).reduce(|found, mount| {
            let is_nearer = mount.point.as_os_str().len() >= found.point.as_os_str().len();
            if is_nearer { mount } else { found }
        })
    }

    /// Whether it has this option.
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|other| other == option)
    }

    /// The value of an option that is written as `key=value`.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.options.iter().find_map(|option| option.strip_prefix(key)?.strip_prefix('='))
    }
}

/// Parses `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    // Between the options of the mount and the dash there is any number of fields.
    let dash = fields.iter().position(|&field| field == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let options = [*fields.get(5)?, *fields.get(dash + 3)?];
    Some(Mount {
        point: OsString::from_vec(unescape(fields.get(4)?)).into(),
        fs_type: text(fields.get(dash + 1)?),
        options: options.iter().flat_map(|options| options.split(|&byte| byte == b',')).map(text).collect(),
    })
}

/// The path whose space, tab, line feed and backslash are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        rest = match byte {
            Some(byte) if first == b'\\' => {
                path.push(byte);
                &behind[3..]
            }
            _ => {
                path.push(first);
                behind
            }
        };
    }
    path
}

/// The part of a path that exists, without symbolic links: the path itself, or the nearest directory above it.
pub(super) fn existing(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .filter(|path| !path.as_os_str().as_bytes().is_empty())
        .find_map(|path| path.canonicalize().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] =
        b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro,nobarrier\n\
        23 22 0:21 / /proc rw,nosuid - proc proc rw,hidepid=invisible\n\
        24 22 0:30 / /srv/a\\040b rw shared:2 master:3 - tmpfs none ro,size=64k\n\
        25 22 0:31 / /srv/a\\040b ro - overlay overlay rw\n\
        garbage\n26 22 0:32 /x\n";

    fn of(path: &str) -> Mount {
        Mount::of(TEXT, Path::new(path)).unwrap()
    }

    #[test]
    fn a_path_is_on_the_nearest_and_last_mount() {
        assert_eq!((of("/srv/a").fs_type.as_str(), of("/").fs_type.as_str()), ("ext4", "ext4"));
        assert_eq!(of("/srv/a b/locks").fs_type, "overlay");
        assert_eq!(of("/srv/a b").point, Path::new("/srv/a b"));
        assert_eq!(
            of("/srv/a bc").fs_type,
            "ext4",
            "a name that begins with a mount point is not on the mount"
        );
        assert_eq!(Mount::of(b"", Path::new("/")), None);
    }

    #[test]
    fn options_are_those_of_the_mount_and_of_its_file_system() {
        assert!(of("/srv/a b").has("ro") && of("/srv/a b").has("rw") && !of("/").has("ro"));
        assert!(of("/").has("nobarrier") && !of("/").has("barrier"));
        assert_eq!(of("/proc/1").value("hidepid"), Some("invisible"));
        assert_eq!(of("/proc/1").value("hide"), None);
    }

    #[test]
    fn only_three_octal_digits_are_an_escape() {
        assert_eq!(unescape(b"a\\134b\\040\\9\\12"), b"a\\b \\9\\12");
    }
}
