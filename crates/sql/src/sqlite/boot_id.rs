//! The id of the current boot of the machine: the times in an SQLite database count from a boot.

use std::fs;

use leasehold_core::{Fault, boot_time_ahead};

use crate::database::Failed;

/// The file in which the kernel tells the id of the current boot.
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// The id of the current boot, from which the ends of the leases in the database count.
pub(super) fn boot_id() -> Result<String, Failed> {
    let boot_id = fs::read_to_string(BOOT_ID_FILE).map_err(|error| {
        Failed::new(
            Fault::Misconfigured,
            format!(
                "{BOOT_ID_FILE} cannot be read ({error}), so it is unknown whether its locks are from before a restart"
            ),
        )
    })?;
    if boot_time_ahead() != 0 {
        return Err(Failed::new(
            Fault::Misconfigured,
            "this process runs in a time namespace with another boot time, so leases would end too early or too late: run it without one",
        ));
    }
    Ok(boot_id.trim().to_owned())
}
