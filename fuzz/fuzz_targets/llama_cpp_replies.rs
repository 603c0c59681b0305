//! Any bytes are a reply of llama_cpp, or the result of its bench.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_fuzz::replies("llama_cpp", bytes));
