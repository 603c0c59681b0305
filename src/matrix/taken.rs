//! Flags of engines: when two are equal, and which have a key of their own in a sweep file.

use crate::engine::{EngineId, settings::SETTINGS};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

/// A flag as the file writes it. `--max-num-seqs` and `--max_num_seqs` are the same flag.
#[derive(Debug, Clone)]
pub(super) struct ArgumentFlag(String);

impl ArgumentFlag {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// `--no-x` of `--x`, and `--x` of `--no-x`: the two say one thing.
    pub(super) fn opposite_flag(&self) -> ArgumentFlag {
        let plain = plain_flag(&self.0);
        ArgumentFlag(match plain.strip_prefix("--no-") {
            Some(rest) => format!("--{rest}"),
            None => format!("--no-{}", plain.trim_start_matches('-')),
        })
    }

    /// Whether a word of a command line is this flag, its opposite, or another name for what has
    /// a key of its own.
    pub(super) fn is_named_by(&self, word: &str) -> bool {
        let flag = ArgumentFlag::from(word);
        flag == *self || flag == self.opposite_flag() || {
            let own = own_key_of(&self.0);
            own.is_some() && own == own_key_of(word)
        }
    }
}

impl From<&str> for ArgumentFlag {
    fn from(flag: &str) -> ArgumentFlag {
        ArgumentFlag(flag.to_owned())
    }
}

impl From<String> for ArgumentFlag {
    fn from(flag: String) -> ArgumentFlag {
        ArgumentFlag(flag)
    }
}

impl fmt::Display for ArgumentFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq for ArgumentFlag {
    fn eq(&self, other: &ArgumentFlag) -> bool {
        plain_flag(&self.0) == plain_flag(&other.0)
    }
}

impl Eq for ArgumentFlag {}

impl PartialOrd for ArgumentFlag {
    fn partial_cmp(&self, other: &ArgumentFlag) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ArgumentFlag {
    fn cmp(&self, other: &ArgumentFlag) -> std::cmp::Ordering {
        plain_flag(&self.0).cmp(&plain_flag(&other.0))
    }
}

impl Hash for ArgumentFlag {
    fn hash<H: Hasher>(&self, state: &mut H) {
        plain_flag(&self.0).hash(state);
    }
}

/// Without its value, and with one spelling for all.
fn plain_flag(word: &str) -> String {
    word.split('=').next().unwrap_or(word).replace('_', "-")
}

/// Further names on engines' command lines of what has a key in the file.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("tensor_parallel_size", "--tp -tp"),
    ("quantization", "-q"),
    ("max_model_len", "-c"),
    (
        "model_id",
        "--model --model-path --model-id --model-url --hf-repo -m -hf -hfr -mu",
    ),
];

/// TGI's longest sequence, and the size of SGLang's KV pool, which has no key.
const AMBIGUOUS: &str = "--max-total-tokens";

/// The keys of the file and all flags by which engines are given them; the first is plimsoll's own word for it: of that,
/// engines take any beginning that is clear.
static KEYS: LazyLock<Vec<(&str, Vec<String>)>> = LazyLock::new(|| {
    let set = SETTINGS.iter().filter(|s| s.is_requested());
    let flag = |name: &str| format!("--{}", name.replace('_', "-"));
    let mut keys: Vec<(&str, Vec<String>)> = set
        .map(|setting| {
            let own = EngineId::ALL.iter().flat_map(|e| setting.names(*e));
            let mut names = vec![flag(&setting.name)];
            names.extend(own.map(flag).filter(|f| f != AMBIGUOUS));
            (setting.name.as_str(), names)
        })
        .collect();
    keys.push(("model_id", Vec::new()));
    for (key, names) in &mut keys {
        let others = OTHER_NAMES.iter().filter(|(k, _)| k == key);
        names.extend(others.flat_map(|(_, n)| n.split(' ').map(str::to_owned)));
    }
    keys
});

/// Where the engine listens.
const ADDRESS: &[&str] = &["--port", "--host", "--hostname"];

/// Letters from which a beginning is taken for the whole: fewer are an engine's own short names.
const CLEAR: usize = "--tens".len();

/// The key that a flag has of its own: `--max-model-len` → `max_model_len`. Other names for it,
/// its opposite and beginnings of it count as well.
pub(super) fn own_key_of(flag: &str) -> Option<&'static str> {
    let plain = plain_flag(flag);
    let flag = match plain.strip_prefix("--no-") {
        Some(rest) => format!("--{rest}"),
        None => plain,
    };
    // `-qfp8` is `-q fp8`.
    let joined = flag.strip_prefix("-q").map(|_| "-q");
    let flag = joined.unwrap_or(&flag);
    let is = |names: &[String]| {
        names.iter().any(|name| name == flag)
            || names.first().is_some_and(|whole| {
                flag.len() >= CLEAR && flag.starts_with("--") && whole.starts_with(flag)
            })
    };
    KEYS.iter()
        .find(|(_, names)| is(names))
        .map(|(key, _)| *key)
}

/// Whether a flag sets where the engine listens: plimsoll chooses that, because it connects there.
pub(super) fn is_address(flag: &str) -> bool {
    ADDRESS.contains(&plain_flag(flag).as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_key_is_known_by_all_its_names() {
        for (flag, key) in [
            ("--max_model_len=5", Some("max_model_len")),
            ("-tp", Some("tensor_parallel_size")),
            ("--tp_size", Some("tensor_parallel_size")),
            ("--tensor-par", Some("tensor_parallel_size")),
            ("-q", Some("quantization")),
            ("-qfp8", Some("quantization")),
            ("--no-enforce-eager", Some("enforce_eager")),
            ("--no_enforce_eager", Some("enforce_eager")),
            ("--model", Some("model_id")),
            ("-m", Some("model_id")),
            ("--model-path=x", Some("model_id")),
            ("--served-model-name", None),
            ("-pp", None),
            ("--max-num-seqs", None),
            ("--kv-cache-memory-bytes", None),
            ("--kv-pool", None),
            ("--context-length", Some("max_model_len")),
            ("--max-total-tokens", None),
            ("--max", None),
            ("fp8", None),
        ] {
            assert_eq!(own_key_of(flag), key, "{flag}");
        }
        assert!(is_address("--port=1") && is_address("--host") && !is_address("--portable"));
    }

    #[test]
    fn a_dash_and_an_underscore_are_the_same() {
        let flag = ArgumentFlag::from("--max-num-seqs");
        assert_eq!(flag, ArgumentFlag::from("--max_num_seqs"));
        assert!(flag.is_named_by("--max_num_seqs=3") && flag.is_named_by("--no-max-num-seqs"));
        assert!(!flag.is_named_by("--max-num"));
        assert!(ArgumentFlag::from("--tensor-parallel-size").is_named_by("-tp"));
        assert_eq!(
            ArgumentFlag::from("--no-x").opposite_flag(),
            ArgumentFlag::from("--x")
        );
    }
}
