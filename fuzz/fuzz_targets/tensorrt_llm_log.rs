//! Any bytes are a log of tensorrt_llm.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_fuzz::log("tensorrt_llm", bytes));
