//! Which modules of a checkpoint a tensor is, and which of them a list of a quantisation names.

use super::super::Tensor;
use crate::tables::read_table;
use regex::{Regex, RegexSet, RegexSetBuilder};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

/// The table that ships: names of modules, by the short name of a tensor.
const TABLE: &str = include_str!("../../../configs/module-names.yaml");

/// Read once; empty where the file cannot be read, which a test rules out.
static MODULES: LazyLock<HashMap<String, Vec<String>>> = LazyLock::new(|| read_table(TABLE));

/// The modules that a tensor is, from `layers.N.` on, or `lm_head`, `embed_tokens`.
pub fn names(tensor: &Tensor) -> Vec<String> {
    names_of(tensor.role, tensor)
}

fn names_of(role: &str, tensor: &Tensor) -> Vec<String> {
    let modules = MODULES.get(role).into_iter().flatten();
    match tensor.layer {
        Some(layer) => modules.map(|m| format!("layers.{layer}.{m}")).collect(),
        None => modules.cloned().collect(),
    }
}

/// What precedes `layers.` and `lm_head` in checkpoints; longest first.
const ROOTS: &[&str] = &[
    "model.language_model.model.",
    "language_model.model.",
    "model.language_model.",
    "language_model.",
    "thinker.model.",
    "model.model.",
    "transformer.",
    "backbone.",
    "model.",
    "",
];

/// Entries of a list beyond which no more are read: no real list is longer.
const MOST_ENTRIES: usize = 200_000;
/// Longest entry that is read, bytes.
const LONGEST: usize = 1024;
/// Expressions of a list beyond which no more are read.
const MOST_EXPRESSIONS: usize = 512;

/// A list of modules: exact names, parents, shell patterns, `re:` expressions, and parts of a name.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    exact: HashSet<String>,
    /// Lengths of the exact names, sorted: a part of another length is none of them.
    lengths: Vec<usize>,
    /// Patterns of a shell, without what precedes `layers.`.
    shells: Option<RegexSet>,
    /// Expressions, for whole names.
    expressions: Option<RegexSet>,
    /// No entry has a digit: layers with numbers of equal length are named alike.
    alike: bool,
    /// Results by role and length of the layer's number, where these decide.
    found: RefCell<HashMap<(&'static str, u32), bool>>,
    /// Experts are beside a dense MLP, and not in it.
    pub experts_beside: bool,
    /// The list ends in `…N more`: what is left of it is taken to go on for the other layers.
    pub cut: bool,
    /// Expressions that could not be read.
    pub unread: Vec<String>,
}

impl Patterns {
    /// Reads a list of a configuration.
    pub fn of<'a>(entries: impl IntoIterator<Item = &'a str>) -> Patterns {
        let entries: Vec<&str> = entries
            .into_iter()
            .take(MOST_ENTRIES)
            .filter(|e| e.len() <= LONGEST)
            .collect();
        let mut made = Patterns {
            cut: entries.iter().any(|e| is_cut(e)),
            ..Patterns::default()
        };
        made.alike = !entries
            .iter()
            .any(|e| e.contains(|c: char| c.is_ascii_digit()));
        let mut shells = BTreeSet::new();
        let mut expressions = BTreeSet::new();
        for entry in entries.into_iter().filter(|e| !is_cut(e)) {
            if let Some(expression) = entry.strip_prefix("re:") {
                if expressions.len() < MOST_EXPRESSIONS {
                    expressions.insert(format!("^(?:{expression})"));
                } else {
                    made.unread.push(entry.to_owned());
                }
                continue;
            }
            let bare = without_root(entry);
            if let Some(any) = made.cut.then(|| any_layer(bare)).flatten() {
                shells.insert(any);
            } else if bare.contains(['*', '?', '[']) {
                shells.insert(shell(bare));
            } else if made.exact.is_empty() || !is_later_expert(bare) {
                made.exact.insert(bare.to_owned());
            }
        }
        let build = |sources: &BTreeSet<String>| {
            RegexSetBuilder::new(sources.iter().take(MOST_EXPRESSIONS))
                .size_limit(8 << 20)
                .build()
        };
        let mut set = |mut sources: BTreeSet<String>| {
            if sources.is_empty() {
                return None;
            }
            if let Ok(built) = build(&sources) {
                return Some(built);
            }
            // One that cannot be read keeps all from being built: it is looked for only then, as it takes time.
            sources.retain(|source| {
                let read = Regex::new(source).is_ok();
                if !read {
                    let bare = source.trim_start_matches("^(?:");
                    made.unread
                        .push(format!("re:{}", bare.strip_suffix(')').unwrap_or(bare)));
                }
                read
            });
            let built = build(&sources);
            if built.is_err() {
                made.unread.extend(sources);
            }
            built.ok()
        };
        let (shells, expressions) = (set(shells), set(expressions));
        let lengths: BTreeSet<usize> = made.exact.iter().map(String::len).collect();
        made.lengths = lengths.into_iter().collect();
        made.shells = shells;
        made.expressions = expressions;
        made
    }

    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.expressions.is_none() && self.shells.is_none()
    }

    /// Whether one of a tensor's modules, or what they are in, is named: `name` with a memory of what it found.
    pub fn name_tensor(&self, tensor: &Tensor) -> bool {
        if self.is_empty() {
            return false;
        }
        let modules = || match self.experts_beside && tensor.role.starts_with("exp_") {
            true => names_of("experts_beside", tensor),
            false => names(tensor),
        };
        if !self.alike {
            return self.name(&modules());
        }
        let digits = tensor
            .layer
            .map_or(0, |layer| layer.checked_ilog10().unwrap_or(0) + 1);
        let key = (tensor.role, digits);
        if let Some(known) = self.found.borrow().get(&key) {
            return *known;
        }
        let named = self.name(&modules());
        self.found.borrow_mut().insert(key, named);
        named
    }

    /// Whether one of these modules, or what they are in, is named.
    pub fn name(&self, modules: &[String]) -> bool {
        !self.is_empty() && modules.iter().any(|module| self.names(module))
    }

    fn names(&self, module: &str) -> bool {
        if !self.exact.is_empty() {
            // A part of the name: `gate`, `lm_head`, `self_attn`, `layers.3.mlp`.
            let starts = || {
                let inner = module.match_indices('.').map(|(at, _)| at + 1);
                std::iter::once(0).chain(inner)
            };
            let ends = module
                .match_indices('.')
                .map(|(at, _)| at)
                .chain([module.len()]);
            for end in ends {
                let parts = starts().take_while(|s| *s < end).map(|s| &module[s..end]);
                let lengths = &self.lengths;
                let mut parts = parts
                    .filter(|p| lengths.binary_search(&p.len()).is_ok())
                    .filter(|p| p.contains(|c: char| !c.is_ascii_digit()));
                if parts.any(|part| self.exact.contains(part)) {
                    return true;
                }
            }
        }
        let full = |set: &RegexSet| {
            let mut whole = String::with_capacity(module.len() + 32);
            ROOTS.iter().any(|root| {
                whole.clear();
                whole.push_str(root);
                whole.push_str(module);
                set.is_match(&whole)
            })
        };
        self.shells.as_ref().is_some_and(|set| set.is_match(module))
            || self.expressions.as_ref().is_some_and(full)
    }
}

/// The entry from `layers.` on, without a known root before it.
fn without_root(entry: &str) -> &str {
    let rest = ROOTS.iter().find_map(|root| entry.strip_prefix(root));
    rest.filter(|r| !r.is_empty()).unwrap_or(entry)
}

/// Experts are asked for by the first of them: lists that name each are ten thousands long.
fn is_later_expert(entry: &str) -> bool {
    let number = entry.split_once(".experts.").map(|(_, rest)| rest);
    number.is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit() && c != '0'))
}

/// `...52 more`: a list that was shortened for showing.
fn is_cut(entry: &str) -> bool {
    entry
        .trim_start_matches(['.', '…'])
        .trim()
        .ends_with(" more")
        && entry.starts_with(['.', '…'])
}

/// A shell pattern as an expression; what is below a match is matched too.
fn shell(pattern: &str) -> String {
    let mut made = String::from("^");
    for c in pattern.chars() {
        match c {
            '*' => made.push_str(".*"),
            '?' => made.push('.'),
            c => made.push_str(&regex::escape(&c.to_string())),
        }
    }
    made.push_str(r"(?:\..*)?$");
    made
}

/// The same of any layer, where the entry names one.
fn any_layer(entry: &str) -> Option<String> {
    if entry.starts_with("re:") {
        return None;
    }
    let parts: Vec<&str> = entry.split('.').collect();
    let at = parts.iter().position(|p| *p == "layers")? + 1;
    parts.get(at)?.parse::<u32>().ok()?;
    // A layer that is left out entirely leaves the others as they are.
    parts[at + 1..]
        .iter()
        .find(|p| p.contains(char::is_alphanumeric))?;
    let before = parts[..at].join(".");
    let after = shell(&parts[at + 1..].join("."));
    Some(format!(
        r"^{}\.\d+\.{}",
        regex::escape(&before),
        after.trim_start_matches('^')
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Split;

    fn tensor(role: &'static str, layer: Option<u32>) -> Tensor {
        Tensor {
            role,
            rows: 1,
            columns: 1,
            count: 1,
            layer,
            split: Split::Replicated,
            quantizable: true,
            float32: false,
        }
    }

    fn named(list: &[&str], role: &'static str, layer: Option<u32>) -> bool {
        Patterns::of(list.iter().copied()).name(&names(&tensor(role, layer)))
    }

    #[test]
    fn every_row_of_the_table_is_read() {
        // A role that is in it twice is an error of the parser's.
        let table: HashMap<String, Vec<String>> = serde_yaml::from_str(TABLE).unwrap();
        assert!(table.len() > 20 && table.values().all(|names| !names.is_empty()));
    }

    #[test]
    fn every_way_to_name_a_module_is_understood() {
        assert!(named(&["lm_head"], "lm_head", None));
        assert!(named(&["language_model.lm_head"], "lm_head", None));
        assert!(named(&["model.layers.3.self_attn.q_proj"], "q", Some(3)));
        assert!(named(&["model.layers.3.self_attn"], "kv", Some(3)));
        assert!(named(&["re:.*mlp.gate$"], "router", Some(9)));
        assert!(named(&["model.layers.*.self_attn"], "o", Some(11)));
        assert!(named(
            &["language_model.model.layers.4.self_attn*"],
            "kv_b",
            Some(4)
        ));
        assert!(named(&["gate"], "router", Some(1)));
        assert!(named(&["re:.*experts.*"], "exp_w2", Some(1)));
    }

    #[test]
    fn what_is_not_named_does_not_match() {
        assert!(!named(&["model.layers.3.self_attn.q_proj"], "q", Some(30)));
        assert!(!named(&["model.layers.3.self_attn"], "gate_up", Some(3)));
        assert!(!named(&["re:.*mlp.gate$"], "gate_up", Some(9)));
        assert!(!named(&["gate"], "gate_up", Some(1)));
        assert!(!named(&["model.layers.1.mlp"], "gate_up", Some(11)));
        assert!(!named(&[], "q", Some(0)));
    }

    #[test]
    fn a_list_that_was_shortened_goes_on_for_the_other_layers() {
        let list = [
            "model.layers.0.self_attn*",
            "model.layers.1.*",
            "...52 more",
        ];
        assert!(Patterns::of(list).cut);
        assert!(named(&list, "q", Some(40)));
        assert!(!named(&list, "down", Some(40)) && named(&list, "down", Some(1)));
    }

    #[test]
    fn an_unreadable_expression_is_reported() {
        let made = Patterns::of(["re:((("]);
        assert_eq!(made.unread, ["re:((("]);
    }
}
