//! Which start of the machine this is: what times are counted from.

use std::fs;

use leasehold_core::Fault;

use crate::database::Failed;

const BOOT: &str = "/proc/sys/kernel/random/boot_id";
const OFFSETS: &str = "/proc/self/timens_offsets";

/// Tells this start of the machine from all others.
pub(super) fn boot() -> Result<String, Failed> {
    let boot = fs::read_to_string(BOOT).map_err(|error| {
        Failed::new(
            Fault::Misconfigured,
            format!(
                "{BOOT} cannot be read ({error}), so nobody can tell whether its locks are from before a restart"
            ),
        )
    })?;
    // Kernels without time namespaces have no such file, and one clock for all.
    let offsets = fs::read_to_string(OFFSETS).unwrap_or_default();
    if is_shifted(&offsets) {
        return Err(Failed::new(
            Fault::Misconfigured,
            "this process lives in a time namespace in which the machine was started at another time, so leases would end too \
             early or too late: run it without one",
        ));
    }
    Ok(boot.trim().to_owned())
}

/// Whether the clock since the start goes otherwise than for who lives in no namespace.
fn is_shifted(offsets: &str) -> bool {
    let boottime = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    boottime.is_some_and(|offset| offset.split_whitespace().any(|number| number != "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_shifted_is_found() {
        assert!(!is_shifted(""));
        assert!(!is_shifted("monotonic           0         0\nboottime            0         0\n"));
        assert!(!is_shifted("monotonic           7         0\nboottime            0         0\n"));
        assert!(is_shifted("monotonic           0         0\nboottime       -86400         0\n"));
        assert!(is_shifted("monotonic           0         0\nboottime            0       500\n"));
    }
}
