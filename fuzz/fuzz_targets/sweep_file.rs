//! Any bytes are a sweep file.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_fuzz::sweep_file(bytes));
