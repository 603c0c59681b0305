//! Any bytes are a log of llama_cpp.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_fuzz::log("llama_cpp", bytes));
