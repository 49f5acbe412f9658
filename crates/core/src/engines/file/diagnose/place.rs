//! The file system of a path: its type, its options, and the room that is left.

use std::path::Path;

use nix::{
    sys::{
        statfs::statfs,
        statvfs::{FsFlags, Statvfs, statvfs},
    },
    unistd::geteuid,
};

use super::{
    super::kernel::OVERLAY,
    mounts::{MOUNTS, Mount, existing},
};
use crate::{Diagnostic, Severity};

/// Free bytes from which on there is no warning. A name takes up to 8 KiB, so this is room for two thousand new names,
/// and for the log of a database.
const ENOUGH_BYTES: u64 = 16 * 1024 * 1024;
/// Free bytes below which a new name finds no room: its files have two blocks of 4 KiB.
const NEEDED_BYTES: u64 = 8 * 1024;
/// Free inodes from which on there is no warning: room for five hundred new names.
const ENOUGH_INODES: u64 = 1000;
/// The inodes that a new name needs.
const NEEDED_INODES: u64 = 2;

/// The ids under which an engine reports what this module finds.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct PlaceIds {
    /// The type of the file system.
    pub file_system_id: &'static str,
    /// Its options.
    pub mount_id: &'static str,
    /// The room that is left.
    pub space_id: &'static str,
    /// What does not work without room.
    pub without_space: &'static str,
}

/// Whether a path is on an overlay, which is often the layer of one container. Of a missing path the nearest existing
/// directory above it counts.
#[doc(hidden)]
#[must_use]
pub fn is_on_overlay(path: &Path) -> bool {
    #[allow(clippy::unnecessary_cast, reason = "the type differs between targets")]
    let type_of = |path: &Path| statfs(path).ok().map(|stat| stat.filesystem_type().0 as i64);
    path.ancestors().find_map(type_of) == Some(OVERLAY)
}

/// What an operator should know about the file system on which a path is, or will be.
#[doc(hidden)]
#[must_use]
pub fn diagnose_place(path: &Path, ids: &PlaceIds) -> Vec<Diagnostic> {
    let Some(existing) = existing(path) else { return Vec::new() };
    let mut all = match std::fs::read(MOUNTS).ok().and_then(|mounts| Mount::of(&mounts, &existing)) {
        Some(mount) => of_mount(&mount, ids),
        None => vec![Diagnostic::new(
            ids.mount_id,
            Severity::Unknown,
            format!("the options of the file system of {} cannot be read", path.display()),
            format!("make {MOUNTS} readable for this user"),
        )],
    };
    if let Ok(stat) = statvfs(&existing) {
        // The mounts of another namespace do not show that this one is read-only.
        if stat.flags().contains(FsFlags::ST_RDONLY)
            && all.iter().all(|found| found.severity < Severity::Broken)
        {
            all.retain(|found| found.id != ids.mount_id);
            all.push(read_only(&existing, ids));
        }
        all.push(Room::of(&stat, geteuid().is_root()).judge(&existing, ids));
    }
    all
}

/// The diagnostics about a mount: its type, unless the guarantee reports it, and its options.
fn of_mount(mount: &Mount, ids: &PlaceIds) -> Vec<Diagnostic> {
    let (fs_type, point) = (&mount.fs_type, mount.point.display());
    let mut all = Vec::new();
    match fs_type.as_str() {
        "overlay" => {}
        "tmpfs" | "ramfs" => all.push(Diagnostic::new(
            ids.file_system_id,
            Severity::Warning,
            format!("the file system on {point} is {fs_type}, which is empty after a reboot: then tokens have another lineage"),
            "use a directory on a disk if tokens or memos have to outlive a reboot",
        )),
        _ => all.push(Diagnostic::good(
            ids.file_system_id,
            format!("the file system on {point} is {fs_type}, of this machine"),
        )),
    }
    all.push(if mount.has("ro") {
        read_only(&mount.point, ids)
    } else if mount.has("nobarrier") || mount.value("barrier") == Some("0") {
        Diagnostic::new(
            ids.mount_id,
            Severity::Warning,
            format!("the file system on {point} has no write barriers: a power cut can undo the newest writes, and tokens come again"),
            "mount it without nobarrier or barrier=0",
        )
    } else {
        Diagnostic::good(ids.mount_id, format!("the file system on {point} can be written, with write barriers"))
    });
    all
}

fn read_only(point: &Path, ids: &PlaceIds) -> Diagnostic {
    Diagnostic::new(
        ids.mount_id,
        Severity::Broken,
        format!("the file system on {} is read-only", point.display()),
        "mount it with the option rw, or use another directory",
    )
}

/// The room that is left for this user.
#[derive(Clone, Copy, Debug)]
struct Room {
    bytes: u64,
    /// `None` where the number of inodes has no limit.
    inodes: Option<u64>,
}

impl Room {
    #[allow(clippy::useless_conversion, reason = "the types differ between targets")]
    fn of(stat: &Statvfs, is_root: bool) -> Self {
        let (blocks, inodes) = match is_root {
            true => (stat.blocks_free(), stat.files_free()),
            false => (stat.blocks_available(), stat.files_available()),
        };
        let bytes = u64::from(blocks).saturating_mul(u64::from(stat.fragment_size()));
        Self { bytes, inodes: (stat.files() > 0).then(|| u64::from(inodes)) }
    }

    fn judge(self, path: &Path, ids: &PlaceIds) -> Diagnostic {
        let inodes =
            self.inodes.map_or_else(|| "no limit of inodes".to_owned(), |inodes| format!("{inodes} inodes"));
        let found = format!(
            "{} MiB and {inodes} are free on the file system of {}",
            self.bytes / (1024 * 1024),
            path.display()
        );
        let is_below = |bytes, inodes| self.bytes < bytes || self.inodes.is_some_and(|free| free < inodes);
        let severity = if is_below(NEEDED_BYTES, NEEDED_INODES) {
            Severity::Broken
        } else if is_below(ENOUGH_BYTES, ENOUGH_INODES) {
            Severity::Warning
        } else {
            return Diagnostic::good(ids.space_id, found);
        };
        Diagnostic::new(
            ids.space_id,
            severity,
            found,
            format!("free space there: without it {}", ids.without_space),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: PlaceIds = PlaceIds {
        file_system_id: "type",
        mount_id: "options",
        space_id: "room",
        without_space: "nothing works",
    };

    fn judged(line: &str) -> Vec<(&'static str, Severity)> {
        let mount = Mount::of(line.as_bytes(), Path::new("/d/locks")).unwrap();
        of_mount(&mount, &IDS).iter().map(|found| (found.id, found.severity)).collect()
    }

    #[test]
    fn a_mount_is_judged_by_its_type_and_options() {
        let good = [("type", Severity::Good), ("options", Severity::Good)];
        assert_eq!(judged("22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw"), good);
        assert_eq!(judged("22 1 8:1 / /d rw - ext4 /dev/sda1 rw,barrier=1"), good);
        assert_eq!(judged("22 1 8:1 / /d rw - ext4 /dev/sda1 rw,nobarrier")[1].1, Severity::Warning);
        assert_eq!(judged("22 1 8:1 / /d rw - ext4 /dev/sda1 rw,barrier=0")[1].1, Severity::Warning);
        assert_eq!(judged("22 1 8:1 / /d ro - ext4 /dev/sda1 rw")[1].1, Severity::Broken);
        assert_eq!(judged("22 1 0:1 / /d rw - tmpfs none rw")[0].1, Severity::Warning);
        // The guarantee reports an overlay.
        assert_eq!(judged("22 1 0:1 / /d rw - overlay overlay rw"), [("options", Severity::Good)]);
    }

    #[test]
    fn room_is_judged_by_bytes_and_inodes() {
        let judged = |bytes, inodes| Room { bytes, inodes }.judge(Path::new("/d"), &IDS).severity;
        assert_eq!(judged(ENOUGH_BYTES, Some(ENOUGH_INODES)), Severity::Good);
        assert_eq!(judged(ENOUGH_BYTES, None), Severity::Good);
        assert_eq!(judged(ENOUGH_BYTES - 1, None), Severity::Warning);
        assert_eq!(judged(ENOUGH_BYTES, Some(ENOUGH_INODES - 1)), Severity::Warning);
        assert_eq!(judged(NEEDED_BYTES - 1, None), Severity::Broken);
        assert_eq!(judged(u64::MAX, Some(NEEDED_INODES - 1)), Severity::Broken);
    }
}
