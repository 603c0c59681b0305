//! Any bytes are a GGUF file.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_fuzz::gguf_file(bytes));
