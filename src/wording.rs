//! What the messages of all modules share: plurals, and suggestions for a misspelt name.

use std::fmt::Display;

/// `as_str` for enums that derive [`strum::IntoStaticStr`]: the word of each variant is declared once.
macro_rules! as_written {
    ($($name:ident),+) => { $(
        impl $name {
            /// As written in documents and options.
            pub fn as_str(self) -> &'static str {
                self.into()
            }
        }
    )+ };
}
pub(crate) use as_written;

/// `1 run`, `3 runs`; `1 process`, `2 processes`.
pub fn count_noun<N: Display + PartialEq + From<u8>>(n: N, noun: &str) -> String {
    if n == N::from(1) {
        format!("1 {noun}")
    } else {
        format!("{n} {}", plural_noun(noun))
    }
}

/// `runs`, `processes`.
pub fn plural_noun(noun: &str) -> String {
    let suffix = if noun.ends_with('s') { "es" } else { "s" };
    format!("{noun}{suffix}")
}

/// Shortest name that counts as near because it is a part of the other one.
const MIN_PART_CHARS: usize = 3;
/// Limit of the edit distance where one name contains the other: the rest of the longer one was left out, not misspelt.
const MAX_PART_EDITS: usize = 2;

/// The known names nearest to a misspelt one, nearest first. Case, and whether words are joined by
/// `-`, `_` or a space, do not matter; of `organisation/name` the name matters first.
pub fn near_names<'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
    limit: usize,
) -> Vec<&'a str> {
    let wanted = normalized(wanted);
    let mut near: Vec<(usize, usize, &str)> = known
        .into_iter()
        .filter_map(|name| {
            let candidate = normalized(name);
            let edits = edits_between(last_part(&wanted), last_part(&candidate))?;
            let all_edits = strsim::damerau_levenshtein(&wanted, &candidate);
            Some((edits, all_edits, name))
        })
        .collect();
    near.sort_unstable();
    near.into_iter()
        .map(|(.., name)| name)
        .take(limit)
        .collect()
}

/// ``did you mean `a` or `b`?``, where a known name is near.
pub fn did_you_mean<'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
    limit: usize,
) -> Option<String> {
    let near = near_names(wanted, known, limit);
    let quoted: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    (!quoted.is_empty()).then(|| format!("did you mean {}?", quoted.join(" or ")))
}

fn normalized(name: &str) -> String {
    let name = name.trim_start_matches('-').to_lowercase();
    name.replace(['-', ' '], "_")
}

fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Edits that turn one name into the other; `None` where they are too many for a slip.
fn edits_between(wanted: &str, candidate: &str) -> Option<usize> {
    let is_part = |part: &str, whole: &str| part.len() >= MIN_PART_CHARS && whole.contains(part);
    let edits = strsim::damerau_levenshtein(wanted, candidate);
    // Not typed to its end.
    if wanted.len() >= MIN_PART_CHARS && candidate.starts_with(wanted) {
        return Some(0);
    }
    if is_part(wanted, candidate) || is_part(candidate, wanted) {
        return Some(edits.min(MAX_PART_EDITS));
    }
    let allowed = 1 + wanted.len().max(candidate.len()) / 4;
    (edits <= allowed).then_some(edits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_get_their_plural() {
        assert_eq!(count_noun(1_usize, "GPU"), "1 GPU");
        assert_eq!(count_noun(0_u64, "AMD GPU"), "0 AMD GPUs");
        assert_eq!(count_noun(2_u32, "process"), "2 processes");
    }

    #[test]
    fn a_slip_or_a_part_of_a_name_leads_to_the_name() {
        let containers = ["vllm-server", "x", "tgi"];
        assert_eq!(near_names("vllm", containers, 3), ["vllm-server"]);
        assert_eq!(near_names("vlm-server", containers, 3), ["vllm-server"]);
        assert!(near_names("unrelated", containers, 3).is_empty());
        let keys = ["batch_sizes", "dtype", "gpu_memory_utilization"];
        assert_eq!(near_names("--GPU-memory", keys, 1), [keys[2]]);
        assert_eq!(near_names("dtpye", keys, 1), ["dtype"]);
        // The organisation is not what is misspelt.
        let models = ["Qwen/Qwen3-8B", "other/Qwen3-80B", "meta/Llama"];
        assert_eq!(near_names("Qwne/qwen3-8b", models, 1), ["Qwen/Qwen3-8B"]);
    }

    #[test]
    fn suggestions_are_quoted_and_joined() {
        let known = ["tgi-1", "tgi-2"];
        let both = did_you_mean("tgi-3", known, 3);
        assert_eq!(both.as_deref(), Some("did you mean `tgi-1` or `tgi-2`?"));
        assert_eq!(did_you_mean("vllm", known, 3), None);
    }
}
