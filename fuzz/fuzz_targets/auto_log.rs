//! Any bytes are a log of unknown origin, in whatever carrier.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_fuzz::log("auto", bytes));
