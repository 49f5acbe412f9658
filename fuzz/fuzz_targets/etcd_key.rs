#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_etcd::fuzz::key(bytes));
