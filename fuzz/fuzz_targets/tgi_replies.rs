//! Any bytes are a reply of tgi, or the result of its bench.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_fuzz::replies("tgi", bytes));
