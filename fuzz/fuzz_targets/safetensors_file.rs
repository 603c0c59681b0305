//! Any bytes are a safetensors file, or its index.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_fuzz::safetensors_file(bytes));
