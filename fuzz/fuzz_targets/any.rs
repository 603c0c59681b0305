//! Any bytes are what the target wants that `PLIMSOLL_FUZZ` names.
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(plimsoll_fuzz::chosen);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (*TARGET)(bytes));
