//! Any bytes are a log of ollama.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_fuzz::log("ollama", bytes));
