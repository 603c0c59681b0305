//! A test that cannot run says so where it is counted.
#![allow(dead_code, missing_docs, clippy::print_stderr)]

use std::io::Write;

/// Says that a test is skipped, on stderr and in the file that `PLIMSOLL_SKIP_LOG` names.
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIPPED: {test}: {reason}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("PLIMSOLL_SKIP_LOG") {
        let appended = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .and_then(|mut f| f.write_all(line.as_bytes()));
        if let Err(e) = appended {
            panic!("PLIMSOLL_SKIP_LOG names a file that cannot be written: {e}");
        }
    }
}
