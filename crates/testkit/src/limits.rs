//! Limits of the operating system for a test process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The limit of open files that is enough for all tests of one program, which run at the same time, and for the servers
/// that they start.
pub const OPEN_FILES: u64 = 8192;

/// Raises the limit of open files of this process and of its future children to [`OPEN_FILES`], or as far as permitted;
/// root may raise any limit. Returns the limit that is in effect afterwards.
pub fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    if soft >= OPEN_FILES {
        return soft;
    }
    [(OPEN_FILES, hard.max(OPEN_FILES)), (hard.min(OPEN_FILES).max(soft), hard)]
        .into_iter()
        .find(|&(soft, hard)| setrlimit(Resource::RLIMIT_NOFILE, soft, hard).is_ok())
        .map_or(soft, |(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_once_and_never_lowered() {
        let before = getrlimit(Resource::RLIMIT_NOFILE).unwrap().0;
        let raised = raise_open_files();
        assert!(raised >= before);
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, raised);
        assert_eq!(raise_open_files(), raised);
    }
}
