//! Any bytes are a reply of tensorrt_llm, or the result of its bench.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_fuzz::replies("tensorrt_llm", bytes));
