//! A flag that ends the threads of a test.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Sets its flag when it is dropped, so also when the test panics. Without this, a scope of threads would wait for ever
/// for a thread that runs until the flag is set.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
