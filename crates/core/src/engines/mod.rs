//! The engines that need no client library.

#[cfg(all(feature = "file", target_os = "linux"))]
pub mod file;
#[cfg(feature = "memory")]
pub mod memory;
