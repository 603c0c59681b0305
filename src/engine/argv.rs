//! Flags of a command line, read as Python's argparse would read them.
//!
//! Engines disagree on little here: `--flag value`, `--flag=value`, underscores for dashes,
//! `--no-flag`, one-dash short forms, several values after one flag. What the words alone do not
//! show (does `--flag` take the next word?) comes from a [`Grammar`].

use std::collections::{BTreeMap, BTreeSet};

/// Which words a flag takes as its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// One value.
    Value,
    /// Every word up to the next flag.
    List,
    /// Nothing.
    Nothing,
}

/// The flags of one program.
#[derive(Debug, Clone, Default)]
pub struct Grammar {
    flags: BTreeMap<String, Takes>,
    aliases: BTreeMap<String, String>,
    /// Further flags, of which it is not known what they take.
    names: BTreeSet<String>,
}

impl Grammar {
    /// Reads a table: a line `value`, `list` or `switch` is followed by indented names, a line
    /// `alias` by indented pairs of an alias and its full name. `#` begins a comment.
    pub fn from_table(table: &str) -> Grammar {
        let mut grammar = Grammar::default();
        let mut heading = "";
        for line in table.lines().filter(|l| !l.starts_with('#')) {
            if !line.starts_with(' ') {
                heading = line.trim();
                continue;
            }
            let mut words = line.split_whitespace();
            let takes = match heading {
                "value" => Takes::Value,
                "list" => Takes::List,
                "switch" => Takes::Nothing,
                _ => {
                    if let (Some(alias), Some(name)) = (words.next(), words.next()) {
                        grammar.aliases.insert(alias.to_owned(), name.to_owned());
                    }
                    continue;
                }
            };
            for name in words {
                grammar.flags.insert(name.to_owned(), takes);
            }
        }
        grammar
    }

    /// The same with further flags by name alone, so that their beginnings are understood.
    pub fn with_names<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Grammar {
        Grammar {
            names: names.into_iter().map(str::to_owned).collect(),
            ..self
        }
    }

    /// The values of a flag that the program is known to have.
    pub fn takes(&self, name: &str) -> Option<Takes> {
        self.flags.get(name).copied()
    }

    /// The full name of a long flag: itself, what it is an alias of, or the one flag that it is
    /// the beginning of (argparse takes `--kv-cache-memory` for `--kv-cache-memory-bytes`, and
    /// vLLM's own log advises that spelling).
    fn full_name(&self, name: &str) -> String {
        // `--json-flag.key` belongs to `--json-flag`.
        let (head, tail) = name.split_at(name.find('.').unwrap_or(name.len()));
        if let Some(alias) = self.aliases.get(head) {
            return format!("{alias}{tail}");
        }
        if head.is_empty() || self.flags.contains_key(head) || self.names.contains(head) {
            return name.to_owned();
        }
        let begins = |k: &&String| k.starts_with(head);
        let flags = self.flags.range(head.to_owned()..).map(|(k, _)| k);
        let names = self.names.range(head.to_owned()..);
        let mut longer = flags.take_while(begins).chain(names.take_while(begins));
        match (longer.next(), longer.next()) {
            (Some(only), None) => {
                let full = self.aliases.get(only).unwrap_or(only);
                format!("{full}{tail}")
            }
            _ => name.to_owned(),
        }
    }

    /// Name and glued value of a one-dash flag: `-tp`, `-tp2`, `-O3`, `-cc.mode`.
    fn short_name(&self, word: &str) -> (String, Option<String>) {
        let (head, tail) = word.split_at(word.find('.').unwrap_or(word.len()));
        // vLLM's `-O` is a level, and with a key behind it the configuration (utils/argparse_utils.py).
        let head = if head == "O" && !tail.is_empty() {
            "cc"
        } else {
            head
        };
        if let Some(name) = self.aliases.get(head) {
            return (format!("{name}{tail}"), None);
        }
        let digits = word
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(word.len());
        let (head, number) = word.split_at(digits);
        match self.aliases.get(head) {
            Some(name) if !number.is_empty() => (name.clone(), Some(number.to_owned())),
            _ => (word.replace('-', "_"), None),
        }
    }
}

/// One flag as given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// Its name without dashes in front, underscores for the dashes inside.
    pub name: String,
    /// Its values; for a switch `true` or `false`; empty when a value is missing.
    pub values: Vec<String>,
}

/// The words of a command line after the program's name, sorted into flags and the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// Flags in the order given.
    pub given: Vec<Flag>,
    /// Words that belong to no flag.
    pub positionals: Vec<String>,
}

impl Flags {
    /// Sorts the words.
    pub fn read(words: &[String], grammar: &Grammar) -> Flags {
        let mut flags = Flags::default();
        let mut rest = words.iter().map(String::as_str).peekable();
        while let Some(word) = rest.next() {
            if word == "--" {
                flags.positionals.extend(rest.map(str::to_owned));
                break;
            }
            if !is_flag(word) {
                flags.positionals.push(word.to_owned());
                continue;
            }
            let (mut name, mut values) = split(word, grammar);
            let mut negated = false;
            let mut takes = grammar.takes(&name);
            if takes.is_none() {
                if let Some(positive) = name.strip_prefix("no_") {
                    if values.is_empty() {
                        let positive = grammar.full_name(positive);
                        // `--no-x` of an unknown program: a switch, unless a word follows.
                        let switch = grammar.takes(&positive) == Some(Takes::Nothing)
                            || rest.peek().is_none_or(|next| is_flag(next));
                        if switch {
                            (name, negated, takes) = (positive, true, Some(Takes::Nothing));
                        }
                    }
                }
            }
            match takes {
                _ if !values.is_empty() => {}
                Some(Takes::Nothing) => {
                    // Some switches were once spelled with their value.
                    let spelled =
                        rest.next_if(|w| matches!(*w, "true" | "True" | "false" | "False"));
                    let on = spelled.is_none_or(|w| w.eq_ignore_ascii_case("true")) != negated;
                    values.push(on.to_string());
                }
                Some(Takes::List) => {
                    while let Some(value) = rest.next_if(|w| !is_flag(w)) {
                        values.push(value.to_owned());
                    }
                }
                Some(Takes::Value) | None => {
                    if let Some(value) = rest.next_if(|w| !is_flag(w)) {
                        values.push(value.to_owned());
                    } else if takes.is_none() {
                        values.push("true".to_owned());
                    }
                }
            }
            flags.given.push(Flag { name, values });
        }
        flags
    }

    /// The flag as it counts: the last one given.
    pub fn get(&self, name: &str) -> Option<&Flag> {
        self.given.iter().rev().find(|f| f.name == name)
    }

    /// The first value of a flag.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.get(name)?.values.first().map(String::as_str)
    }

    /// All flags by name with their values as one text, but for those named here: the values of
    /// secrets never leave the command line.
    pub fn texts(&self, secret: &[&str]) -> impl Iterator<Item = (String, String)> {
        self.given
            .iter()
            .filter(|f| !secret.contains(&f.name.as_str()))
            .map(|f| (f.name.clone(), f.values.join(" ")))
    }

    /// Whether a flag was given at all.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// The last part of a path: `/usr/bin/python3` → `python3`.
pub fn basename(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// A dash in front makes a flag, except before a number.
fn is_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && word.parse::<f64>().is_err()
}

/// Name and value of a flag that may carry its value after `=`.
fn split(word: &str, grammar: &Grammar) -> (String, Vec<String>) {
    let (head, value) = match word.split_once('=') {
        Some((head, value)) => (head, Some(value.to_owned())),
        None => (word, None),
    };
    let (name, glued) = match head.strip_prefix("--") {
        Some(long) => {
            // Only the flag's own name is normalised; a key after the dot is data.
            let (own, key) = long.split_at(long.find('.').unwrap_or(long.len()));
            (
                grammar.full_name(&format!("{}{key}", own.replace('-', "_"))),
                None,
            )
        }
        None => grammar.short_name(head.trim_start_matches('-')),
    };
    (name, value.or(glued).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grammar() -> Grammar {
        Grammar::from_table(
            "# x\nvalue\n  model max_model_len kv_cache_memory_bytes\n  tensor_parallel_size\nlist\n  served_model_name\n\
             switch\n  enforce_eager enable_prefix_caching\nalias\n  tp tensor_parallel_size\n  O level\n  cc compilation_config\n",
        )
    }

    fn read(line: &str) -> Flags {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Flags::read(&words, &grammar())
    }

    #[test]
    fn texts_without_secrets() {
        let flags = read("--model m --served-model-name a b --api-key sk-x --enforce-eager");
        let texts: Vec<(String, String)> = flags.texts(&["api_key"]).collect();
        let expected = [
            ("model", "m"),
            ("served_model_name", "a b"),
            ("enforce_eager", "true"),
        ];
        assert_eq!(texts, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
    }

    #[test]
    fn spellings_of_one_flag() {
        for line in [
            "--max-model-len 8",
            "--max_model_len=8",
            "--max-model-len=8",
            "--max_model-len 8",
        ] {
            assert_eq!(read(line).value("max_model_len"), Some("8"), "{line}");
        }
        for line in [
            "-tp 2",
            "-tp=2",
            "-tp2",
            "--tensor-parallel-size 2",
            "--tensor-par 2",
        ] {
            assert_eq!(
                read(line).value("tensor_parallel_size"),
                Some("2"),
                "{line}"
            );
        }
        assert_eq!(read("-O3").value("level"), Some("3"));
        assert_eq!(
            read("-cc.mode=none").value("compilation_config.mode"),
            Some("none")
        );
        assert_eq!(
            read("--kv-cache-memory=7").value("kv_cache_memory_bytes"),
            Some("7")
        );
    }

    #[test]
    fn switches_and_their_negation() {
        assert_eq!(
            read("--enforce-eager m").value("enforce_eager"),
            Some("true")
        );
        assert_eq!(read("--enforce-eager m").positionals, ["m"]);
        assert_eq!(
            read("--no-enforce-eager").value("enforce_eager"),
            Some("false")
        );
        assert_eq!(
            read("--enable-prefix-caching False").value("enable_prefix_caching"),
            Some("false")
        );
        assert_eq!(
            read("--enforce-eager --no-enforce-eager").value("enforce_eager"),
            Some("false")
        );
        assert_eq!(read("--unknown --no-such").value("unknown"), Some("true"));
        assert_eq!(read("--unknown --no-such").value("such"), Some("false"));
    }

    #[test]
    fn values_that_look_like_flags_and_lists() {
        assert_eq!(
            read("--max-model-len -1").value("max_model_len"),
            Some("-1")
        );
        assert_eq!(
            read("--served-model-name a b --model m")
                .get("served_model_name")
                .unwrap()
                .values,
            ["a", "b"]
        );
        assert_eq!(read(r#"--json {"a":-1} x"#).positionals, ["x"]);
        assert_eq!(
            read("--model --enforce-eager").get("model").unwrap().values,
            [""; 0]
        );
        assert_eq!(read("a -- --b").positionals, ["a", "--b"]);
        assert_eq!(read("--json.key4+ v").value("json.key4+"), Some("v"));
    }

    proptest! {
        #[test]
        fn never_panics(words in proptest::collection::vec("\\PC{0,12}|-{0,3}[a-z._=0-9-]{0,8}", 0..8)) {
            let flags = Flags::read(&words, &grammar());
            prop_assert!(flags.given.len() + flags.positionals.len() <= words.len());
            Flags::read(&words, &Grammar::default());
            Grammar::from_table(&words.join("\n"));
        }
    }
}
