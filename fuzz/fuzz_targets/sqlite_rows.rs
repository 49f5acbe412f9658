#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_sql::fuzz::rows(bytes));
