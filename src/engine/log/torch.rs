//! PyTorch's out-of-memory messages, which every engine built on it prints in its own log.
//!
//! Sources: the messages of `CUDACachingAllocator` from PyTorch 1.13 to 2.9. All of its `GiB` and
//! `MiB` count in 1024.

use super::Line;
use super::figures::{after, gib};
use super::sheet::Sheet;
use super::table::Form::Gib;
use super::table::Put::{self, First};
use super::table::{Row, read_values};
use crate::engine::facts::{FactValue, key};

/// Out-of-memory messages of the libraries under an engine; see [`lack`].
pub const LACK: &[&str] = &[
    "CUDA out of memory",
    "HIP out of memory",
    "XPU out of memory",
    "CUDA error: out of memory",
    "HIP error: out of memory",
    "would exceed allowed memory. (out of memory)",
    "OutOfMemoryError",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "std::bad_alloc",
    "Cannot allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
];

/// The sign by which `text` reports an out-of-memory error; `None` if it only mentions one, as
/// advice does (`… may lead to CUDA out of memory errors`).
pub fn lack(text: &str) -> Option<&'static str> {
    LACK.iter().copied().find(|sign| {
        text.match_indices(sign).any(|(at, _)| {
            let (before, behind) = (&text[..at], &text[at + sign.len()..]);
            if sign.ends_with("Error") {
                // The class of an exception, not its name in a sentence.
                return behind.is_empty() || behind.starts_with(':') || behind.starts_with('(');
            }
            if !sign.ends_with("out of memory") || sign.contains("error") {
                return true;
            }
            behind.starts_with(". Tried")
                || behind.starts_with(" occurred")
                || (behind
                    .trim_start_matches(['.', '!', '"', '\''])
                    .trim()
                    .is_empty()
                    && !is_advice(before))
        })
    })
}

/// Whether the words before a sign make it a possibility.
fn is_advice(before: &str) -> bool {
    let before = before.trim_end().to_ascii_lowercase();
    [
        "lead to",
        "cause",
        "avoid",
        "see",
        "if",
        "with",
        "encounter",
        "prevent",
        "get",
        "to",
        "a",
        "an",
    ]
    .iter()
    .any(|word| {
        before
            .strip_suffix(word)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with(' '))
    })
}

/// Reads an out-of-memory error: `oom` and its phase, `oom_requested_gib`, `device_total_gib` (or
/// `device_limit_gib`), `cuda_free_gib`, `torch_allocated_gib`, `torch_reserved_unallocated_gib`,
/// `process_used_gib` (or `processes_gib`). Of several errors the first sets the figures. Returns
/// whether the line is one.
pub fn read(line: &Line<'_>, sheet: &mut Sheet) -> bool {
    let Some(sign) = lack(line.text) else {
        return false;
    };
    let first = sheet.get(key::oom_requested_gib).is_none();
    sheet.out_of_memory(line, sign);
    if first {
        figures(line, sheet);
    }
    true
}

/// Figures by the words before them; of several words for one the first counts.
#[rustfmt::skip]
const FIGURES: &[Row<Put<()>>] = &[
    Row::new("Tried to allocate ", Gib, First(key::oom_requested_gib)),
    Row::new("Requested               : ", Gib, First(key::oom_requested_gib)),
    Row::new("Device limit            : ", Gib, First(key::device_limit_gib)),
    Row::new("Of the allocated memory ", Gib, First(key::torch_allocated_gib)),
    Row::new("Currently allocated     : ", Gib, First(key::torch_allocated_gib)),
    Row::new(" of which ", Gib, First(key::cuda_free_gib)),
    Row::new("Free (according to CUDA): ", Gib, First(key::cuda_free_gib)),
    Row::new("is allocated by PyTorch, and ", Gib, First(key::torch_reserved_unallocated_gib)),
    // Its memory in use as PyTorch before 2.1 has it.
    Row::new("total capacity; ", Gib, First(key::torch_allocated_gib)),
];

/// Only the figures of an out-of-memory error. A debug string contains newlines as `\n`; a message
/// that an excerpt cuts off yields its remaining figures.
pub fn figures(line: &Line<'_>, sheet: &mut Sheet) {
    let text = line.text;
    read_values(FIGURES, text, line, sheet);
    // `capacty` is PyTorch's own spelling from 2.1 to 2.2; 1.13 has `(GPU 0; 23.69 GiB total`.
    for sign in ["total capacity of ", "total capacty of ", "(GPU "] {
        let Some(rest) = after(text, sign) else {
            continue;
        };
        let rest = match sign {
            "(GPU " => rest.split_once("; ").map_or("", |(_, r)| r),
            _ => rest,
        };
        // An excerpt that ends after the number has lost the unit, which is always GiB there.
        let value = gib(rest)
            .map(|(v, _)| v)
            .or_else(|| super::figures::number(rest).map(|(n, _)| n.value));
        if let Some(value) = value {
            sheet.figure(key::device_total_gib, value, line, sign);
            break;
        }
    }
    processes(line, sheet);
}

/// `Process 10001 has 39.23 GiB memory in use.`: one for each process on the device, and
/// `Including non-PyTorch memory, this process has 3.63 GiB memory in use.`
fn processes(line: &Line<'_>, sheet: &mut Sheet) {
    let mut used = Vec::new();
    let mut own = None;
    let mut rest = line.text;
    while let Some(at) = rest.find(" has ") {
        let (before, behind) = (&rest[..at], &rest[at + 5..]);
        rest = behind;
        let Some((value, tail)) = gib(behind) else {
            continue;
        };
        // The word may be cut off: `404.00 MiB m`.
        if !" memory in use".starts_with(tail.get(..2).unwrap_or_default()) {
            continue;
        }
        let names_pid = before
            .rsplit(' ')
            .next()
            .is_some_and(|w| !w.is_empty() && w.bytes().all(|b| b.is_ascii_digit()));
        if before.ends_with("this process") {
            own = Some(value);
        } else if !names_pid {
            continue;
        }
        if used.len() < 64 {
            used.push(value);
        }
    }
    if let Some(value) = own.or(used.first().copied().filter(|_| used.len() == 1)) {
        sheet.figure(key::process_used_gib, value, line, " has ");
    }
    if used.len() > 1 {
        sheet.set(key::processes_gib, FactValue::List(used), line, " has ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(text: &str) -> Vec<(String, String)> {
        let mut sheet = Sheet::default();
        assert!(read(
            &Line {
                text,
                ..Line::default()
            },
            &mut sheet
        ));
        let report = sheet.report("x");
        let shown = |(k, f): (&crate::engine::facts::FactKey, &crate::engine::facts::Fact)| {
            let value = match &f.value {
                FactValue::Float(v) => format!("{v:.4}"),
                other => other.to_string(),
            };
            (k.to_string(), value)
        };
        report
            .facts
            .iter()
            .map(shown)
            .filter(|(k, _)| !k.starts_with("oom") || k == "oom_requested_gib")
            .collect()
    }

    fn expected(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn every_generation_of_the_message() {
        assert_eq!(
            facts(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 1 has a total capacity of 47.50 GiB of which 128.00 MiB is free. Process 7 has 1.00 GiB memory in use. Including non-PyTorch memory, this process has 46.25 GiB memory in use. Of the allocated memory 45.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
            ),
            expected(&[
                ("cuda_free_gib", "0.1250"),
                ("device_total_gib", "47.5000"),
                ("oom_requested_gib", "0.2500"),
                ("process_used_gib", "46.2500"),
                ("processes_gib", "1, 46.25"),
                ("torch_allocated_gib", "45.0000"),
                ("torch_reserved_unallocated_gib", "0.5000"),
            ])
        );
        assert_eq!(
            facts(
                "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 20.25 GiB already allocated; 1.50 GiB free; 21.00 GiB reserved in total by PyTorch)"
            ),
            expected(&[
                ("device_total_gib", "23.6900"),
                ("oom_requested_gib", "2.0000"),
                ("torch_allocated_gib", "20.2500"),
            ])
        );
        assert_eq!(
            facts(
                r#"Generation("Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 10.50 GiB\nRequested               : 2.00 GiB\nDevice limit            : 16.00 GiB\nFree (according to CUDA): 512.00 MiB\nPyTorch limit"#
            ),
            expected(&[
                ("cuda_free_gib", "0.5000"),
                ("device_limit_gib", "16.0000"),
                ("oom_requested_gib", "2.0000"),
                ("torch_allocated_gib", "10.5000"),
            ])
        );
    }

    #[test]
    fn what_is_cut_off_is_not_invented() {
        assert_eq!(
            facts(
                "CUDA out of memory. Tried to allocate 448.00 MiB. GPU 7 has a total capacity of 95.00"
            ),
            expected(&[
                ("device_total_gib", "95.0000"),
                ("oom_requested_gib", "0.4375")
            ])
        );
        let mut sheet = Sheet::default();
        let advice = "If you run out of memory, decrease the batch size";
        assert!(!read(
            &Line {
                text: advice,
                ..Line::default()
            },
            &mut sheet
        ));
    }
}
