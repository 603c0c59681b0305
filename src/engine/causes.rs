//! Why an engine's container fails, and what to change: the table `configs/causes.yaml`.

use super::log::words::Words;
use crate::tables::read_table;
use crate::units::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The table.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CauseTable {
    /// Name and flag of a setting by engine, by what it does.
    levers: BTreeMap<String, BTreeMap<String, String>>,
    /// Signs by the name that rules take them by.
    pub groups: BTreeMap<String, Vec<String>>,
    /// Marks of the phases of an engine's life.
    pub phases: Vec<PhaseMark>,
    /// Lines that the rules do not name.
    pub lines: LineSigns,
    /// Figures that lines contain.
    pub numbers: Vec<String>,
    /// What figures are whose names are not clear without their lines.
    pub figures: BTreeMap<String, String>,
    /// The causes.
    pub causes: Vec<FailureCause>,
}

/// Lines that are judged beside the rules; `configs/causes.yaml` explains the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct LineSigns {
    pub quoting: Vec<String>,
    pub devices: Vec<String>,
    pub fatal: Vec<String>,
    pub ends_all: Vec<String>,
    pub wrappers: Vec<String>,
    pub failed_starts: Vec<String>,
    pub pointers: Vec<String>,
    pub exceptions: Vec<String>,
}

/// Marks of one phase.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PhaseMark {
    /// Its name.
    pub phase: String,
    /// Functions in a traceback.
    pub frame: Vec<String>,
    /// Lines of progress.
    pub mark: Vec<String>,
    /// Whether a process starts anew with them.
    pub start: bool,
}

/// A kind of failure.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FailureCause {
    /// Machine-readable name, snake_case.
    pub name: String,
    /// What it means: a clause without a full stop.
    pub means: String,
    /// The phase in which it happens, where the rule names no other.
    pub phase: Option<String>,
    /// Whether only a start fails of it, and no server that serves.
    pub at_start: bool,
    /// Where to look for what the log does not show.
    pub look_at: Vec<String>,
    /// What to change, the best first.
    pub advice: Vec<CauseAdvice>,
    /// How it is recognised.
    pub rules: Vec<CauseRule>,
}

/// How a cause is recognised; `configs/causes.yaml` explains the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct CauseRule {
    pub is: Vec<String>,
    pub not_in_line: Vec<String>,
    pub in_phases: Vec<String>,
    pub with: Vec<String>,
    pub unless: Vec<String>,
    pub healed_by: Vec<String>,
    pub below: Vec<String>,
    pub engines: Vec<String>,
    pub check: Option<String>,
    pub means: Option<String>,
    pub phase: Option<String>,
    pub at_end: bool,
    pub tier: Option<u8>,
    pub abstain: bool,
    pub before_engine: bool,
    pub advice: Vec<CauseAdvice>,
    pub look_at: Vec<String>,
}

/// Something to change.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct CauseAdvice {
    pub lever: Option<String>,
    pub set: Option<String>,
    pub way: String,
    pub value: Option<String>,
    pub below: Option<f64>,
    pub engines: Vec<String>,
    pub text: String,
}

impl CauseRule {
    /// How well it explains, 1 to 4.
    pub fn tier(&self) -> u8 {
        self.tier.unwrap_or(2)
    }
}

/// The table that ships, groups written out.
pub static TABLE: LazyLock<CauseTable> = LazyLock::new(|| {
    let mut table: CauseTable = read_table(include_str!("../../configs/causes.yaml"));
    let groups = table.groups.clone();
    let write_out = |signs: &mut Vec<String>| {
        let each = signs
            .drain(..)
            .flat_map(|sign| match sign.strip_prefix('+') {
                Some(group) => groups.get(group).cloned().unwrap_or_default(),
                None => vec![sign],
            });
        *signs = each.collect();
    };
    for rule in table.causes.iter_mut().flat_map(|cause| &mut cause.rules) {
        [
            &mut rule.is,
            &mut rule.not_in_line,
            &mut rule.with,
            &mut rule.unless,
            &mut rule.healed_by,
            &mut rule.below,
        ]
        .into_iter()
        .for_each(write_out);
    }
    table
});

impl CauseTable {
    /// What a cause means; its name where it is not in the table.
    pub fn meaning_of<'a>(&'a self, cause: &'a str) -> &'a str {
        let row = self.causes.iter().find(|row| row.name == cause);
        row.map_or(cause, |row| &row.means)
    }

    /// Name and flag of the setting that an engine has for `lever`.
    pub fn lever_of(&self, lever: &str, engine: &str) -> Option<(&str, &str)> {
        self.levers.get(lever)?.get(engine)?.split_once(' ')
    }
}

/// The parts of a sign, which follow each other in a line.
fn parts(sign: &str) -> impl Iterator<Item = &str> {
    sign.trim_end_matches('$').split('…')
}

/// The longest part of a sign, by which lines are searched.
pub fn longest_part(sign: &str) -> &str {
    parts(sign).max_by_key(|part| part.len()).unwrap_or("")
}

/// Whether a line has a sign: `…` matches any text, `$` the line's end.
pub fn has_sign(sign: &str, line: &str) -> bool {
    let rest = parts(sign).try_fold(line.trim_end(), |rest, part| {
        rest.split_once(part).map(|(_, rest)| rest)
    });
    rest.is_some_and(|rest| rest.is_empty() || !sign.ends_with('$'))
}

/// The flag that a parser of arguments names after its sign: `--dtype` of
/// `error: argument --dtype/-d: invalid choice`.
pub fn refused_flag<'a>(sign: &str, line: &'a str) -> Option<&'a str> {
    let begin = parts(sign).next()?.trim_end_matches(['-', '\'']);
    let (_, rest) = line.split_once(begin)?;
    let word = rest
        .split([' ', '\'', '`', '"', ',', '/', '='])
        .find(|word| word.starts_with('-') && word.len() > 1)?;
    Some(word.trim_end_matches([':', '.']))
}

/// Fills a text: `{name}` by its value, `[...]` only where all its values are known. `None` where
/// a value outside brackets is unknown.
pub fn fill_text(text: &str, value: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['{', '[']) {
        filled.push_str(&rest[..at]);
        let (close, is_option) = if rest[at..].starts_with('[') {
            (']', true)
        } else {
            ('}', false)
        };
        let Some(length) = rest[at..].find(close) else {
            break;
        };
        let inner = &rest[at + 1..at + length];
        if is_option {
            filled.push_str(&fill_text(inner, value).unwrap_or_default());
        } else {
            filled.push_str(&value(inner)?);
        }
        rest = &rest[at + length + 1..];
    }
    filled.push_str(rest);
    Some(filled)
}

/// Finds lines that a process prints before its engine's own code runs.
static BEFORE_ENGINE: LazyLock<Words> = LazyLock::new(|| {
    let words: Vec<&str> = before_engine()
        .map(|(_, sign)| longest_part(sign))
        .collect();
    Words::new(&words)
});

fn before_engine() -> impl Iterator<Item = (&'static CauseRule, &'static str)> {
    let rules = TABLE.causes.iter().flat_map(|cause| &cause.rules);
    rules
        .filter(|rule| rule.before_engine)
        .flat_map(|rule| rule.is.iter().map(move |sign| (rule, sign.as_str())))
}

/// Whether a line states a failure from before the engine's own code.
pub fn fails_before_engine(raw: &[u8]) -> bool {
    BEFORE_ENGINE.hold(raw) && {
        let line = String::from_utf8_lossy(raw);
        before_engine().any(|(rule, sign)| {
            has_sign(sign, &line) && !rule.not_in_line.iter().any(|not| has_sign(not, &line))
        })
    }
}

/// What to change about a failure of plimsoll's own run, from the sentence or the lines that state
/// it and the container's memory limit in bytes.
pub fn advise_on_text(text: &str, memory_limit: Option<u64>) -> Vec<String> {
    let limit = memory_limit.map(|limit| Bytes(limit).to_string());
    let found = super::diagnosis::Diagnosis::of_text_with_limit(text, limit);
    let named = found.names_failure();
    let texts = found.advice.into_iter().map(|advice| advice.text);
    texts.filter(|_| named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_page_about_memory_lists_every_phase_that_why_prints() {
        let marked = TABLE.phases.iter().map(|mark| &mark.phase);
        let of_causes = TABLE.causes.iter().filter_map(|cause| cause.phase.as_ref());
        let rules = TABLE.causes.iter().flat_map(|cause| &cause.rules);
        let of_rules = rules.filter_map(|rule| rule.phase.as_ref());
        let all: BTreeSet<&String> = marked.chain(of_causes).chain(of_rules).collect();
        let page = include_str!("../../docs/OUT-OF-MEMORY.md");
        for phase in all {
            let row = format!("| {} |", phase.replace('_', " "));
            assert!(
                page.contains(&row),
                "docs/OUT-OF-MEMORY.md has no row `{row}`"
            );
        }
    }
}
