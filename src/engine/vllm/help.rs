//! The help text of an installed `vllm bench`: which flags this release knows.

use crate::engine::BenchKind;
use std::collections::BTreeMap;

/// Spellings that the newest release no longer has.
const GONE: &[&str] = &["--endpoint-type"];

/// The flags of one bench.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Help {
    /// The flags that the help lists, each with the choices in braces after it.
    Listed(BTreeMap<String, Vec<String>>),
    /// Unknown: those of the newest release are assumed.
    Newest,
}

/// The command that asks a bench for its flags.
pub fn question(kind: BenchKind, how: &str) -> Vec<String> {
    ["vllm", "bench", kind.as_str(), how]
        .map(str::to_owned)
        .to_vec()
}

impl Help {
    /// Reads a full list of flags; `None` for anything else: a summary of groups (`--help` from
    /// 0.11 on), the hits of a search (`--help=all` in 0.10), an error.
    pub fn read(text: &str) -> Option<Help> {
        let mut flags = BTreeMap::new();
        for line in text.lines() {
            let indent = line.len() - line.trim_start().len();
            // Descriptions are indented far to the right and may begin with a flag, too.
            if (1..=6).contains(&indent) && line.trim_start().starts_with('-') {
                read_entry(line.trim(), &mut flags);
            }
        }
        // Every bench can save its result; a list without that is not the whole.
        let whole = flags.contains_key("--output-json") || flags.contains_key("--save-result");
        whole.then_some(Help::Listed(flags))
    }

    /// Whether the flag may be passed.
    pub fn knows(&self, flag: &str) -> bool {
        match self {
            Help::Listed(flags) => flags.contains_key(flag),
            Help::Newest => !GONE.contains(&flag),
        }
    }

    /// Whether the flag accepts this word; true where the help lists no choices.
    pub fn offers(&self, flag: &str, choice: &str) -> bool {
        match self {
            Help::Listed(flags) => flags
                .get(flag)
                .is_some_and(|choices| choices.is_empty() || choices.iter().any(|c| c == choice)),
            Help::Newest => self.knows(flag),
        }
    }
}

/// Whether the release lacks this command, according to argparse's message.
pub fn refused(kind: BenchKind, text: &str) -> bool {
    ["bench", kind.as_str()]
        .iter()
        .any(|word| text.contains(&format!("invalid choice: '{word}'")))
}

/// `--quantization QUANTIZATION, -q QUANTIZATION  Method used …`
fn read_entry(entry: &str, flags: &mut BTreeMap<String, Vec<String>>) {
    let head = entry.split("  ").next().unwrap_or_default();
    let choices = match (head.find('{'), head.find('}')) {
        (Some(open), Some(close)) if open < close => head[open + 1..close]
            .split(',')
            .map(|c| c.trim().to_owned())
            .collect(),
        _ => Vec::new(),
    };
    for word in head.split_whitespace() {
        if word.starts_with('-') {
            flags.insert(word.trim_end_matches(',').to_owned(), choices.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lists() {
        let latency = Help::read(include_str!(
            "../../../tests/fixtures/vllm/help/help-bench-latency-all.txt"
        ))
        .unwrap();
        for flag in [
            "--input-len",
            "--num-iters-warmup",
            "--output-json",
            "--dtype",
            "-q",
            "-tp",
            "--no-enforce-eager",
        ] {
            assert!(latency.knows(flag), "{flag}");
        }
        assert!(!latency.knows("--num-prompts"));
        assert!(!latency.knows("--random-input-len"));
        let serve = Help::read(include_str!(
            "../../../tests/fixtures/vllm/help/help-bench-serve-all.txt"
        ))
        .unwrap();
        assert!(serve.offers("--backend", "openai"));
        assert!(!serve.offers("--backend", "tgi"));
        assert!(serve.offers("--base-url", "anything"));
        assert!(!serve.knows("--endpoint-type"));
        // Named in a description only.
        assert!(!serve.knows("--random-input-len."));
    }

    #[test]
    fn what_is_no_list() {
        assert_eq!(
            Help::read(include_str!(
                "../../../tests/fixtures/vllm/help/help-bench-serve-summary.txt"
            )),
            None
        );
        assert_eq!(
            Help::read("\nParameters matching 'all':\n\n  --allowed-origins ALLOWED_ORIGINS\n"),
            None
        );
        assert_eq!(
            Help::read("vllm: error: argument -h/--help: ignored explicit argument 'all'"),
            None
        );
        assert_eq!(Help::read(""), None);
        assert!(refused(
            BenchKind::Serve,
            "vllm: error: argument subparser: invalid choice: 'bench' (choose from serve)"
        ));
        assert!(refused(
            BenchKind::Latency,
            "invalid choice: 'latency' (choose from 'serve')"
        ));
        assert!(!refused(BenchKind::Latency, "invalid choice: 'x'"));
    }
}
