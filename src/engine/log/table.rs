//! An engine's messages as a table of rows, which drives both the search for lines of interest and
//! the reading of their values.

use super::Line;
use super::figures::{Number, after, complete_count, decimal_gb, gib, number, number_before};
use super::heads::begins_message;
use super::sheet::Sheet;
use super::words::Words;
use crate::engine::facts::{EngineStep, FactKey, FactValue};
use crate::units::GIB;
use std::collections::{BTreeMap, BTreeSet};

/// A value in a message. `H` is its destination, which differs from engine to engine.
#[derive(Debug, Clone, Copy)]
pub struct Row<H> {
    /// The text by which the message is found.
    pub sign: &'static str,
    /// Another text that the line holds, if it must.
    when: Option<&'static str>,
    /// Where the value is.
    place: Place,
    /// How the value is written.
    form: Form,
    /// The part of the line that a shortened quote keeps, where it is not the sign.
    shown: Option<&'static str>,
    /// Destination of the value.
    pub target: H,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// After the sign and then after each of these.
    Behind(&'static [&'static str]),
    /// After the first of these, which may be before the sign, and then after each of the others.
    Anywhere(&'static [&'static str]),
}

/// How a value is written.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// An amount of memory with its unit; kept in GiB.
    Gib,
    /// The same, right before the sign and after a comma.
    GibBefore,
    /// A number that is kept with a fraction.
    Float,
    /// The same, right before the sign.
    FloatBefore,
    /// A number that is kept without a fraction.
    Count,
    /// The same, right before the sign.
    CountBefore,
    /// A number with no unit of memory after it: bytes.
    Bytes,
    /// Bytes without a fraction or a sign; kept in GiB.
    BytesAsGib,
    /// Multiples of 10^9 bytes, printed as `GB`; kept in GiB.
    DecimalGb,
    /// A number above zero and without a fraction.
    Positive,
    /// A number without a fraction or a sign.
    Whole,
    /// The same, where something follows it: a number that ends its line may have been cut off.
    CompleteCount,
    /// A number, kept as it is printed.
    Number,
    /// The text that the function finds at the beginning.
    Text(fn(&str) -> Option<&str>),
    /// The last word before the sign.
    WordBefore,
    /// Whole numbers in brackets, separated by commas.
    Counts,
    /// `true`, `1`, `False` and the like, and nothing more.
    Switch,
    /// What the sign alone states.
    Is(&'static str),
    /// That the sign is there.
    Flag,
    /// That something is off, by the sign alone.
    Off,
    /// That there is none, by the sign alone.
    Zero,
}

/// What becomes of a value where it needs no more than a row. `S` is the state of the reader.
pub enum Put<S: 'static> {
    /// A fact; the last line counts.
    Last(FactKey),
    /// A fact; the first line counts.
    First(FactKey),
    /// The step is passed.
    Step(EngineStep),
    /// Memory sufficed, once this fact is known.
    EnoughAfter(FactKey),
    /// A message that needs more than a row; the text is what follows its sign.
    Read(fn(&mut S, &Line<'_>, &str, &mut Sheet)),
}

impl<S> Clone for Put<S> {
    fn clone(&self) -> Put<S> {
        *self
    }
}

impl<S> Copy for Put<S> {}

impl<H: Copy> Row<H> {
    /// A value right after `sign`.
    pub const fn new(sign: &'static str, form: Form, target: H) -> Row<H> {
        Row {
            sign,
            when: None,
            place: Place::Behind(&[]),
            form,
            shown: None,
            target,
        }
    }

    /// The value does not follow `sign` directly, but follows these texts, which come after it in
    /// this order.
    pub const fn then(mut self, texts: &'static [&'static str]) -> Row<H> {
        self.place = Place::Behind(texts);
        self
    }

    /// The same, but the first of the texts may be anywhere in the line.
    pub const fn behind(mut self, texts: &'static [&'static str]) -> Row<H> {
        self.place = Place::Anywhere(texts);
        self
    }

    /// Only where the line holds `text` too.
    pub const fn when(mut self, text: &'static str) -> Row<H> {
        self.when = Some(text);
        self
    }

    /// A quote that is shortened keeps the part around `text`.
    pub const fn shown(mut self, text: &'static str) -> Row<H> {
        self.shown = Some(text);
        self
    }

    /// The part of the line that a shortened quote keeps.
    pub fn needle(&self) -> &'static str {
        self.shown.unwrap_or(self.sign)
    }

    /// The value in `text`, where the sign ends at byte `end`.
    pub fn value(&self, text: &str, end: usize) -> Option<FactValue> {
        let before = &text[..end - self.sign.len()];
        let (from, texts) = match self.place {
            Place::Behind(texts) => (&text[end..], texts),
            Place::Anywhere(texts) => (text, texts),
        };
        let from = (texts.iter()).try_fold(from, |rest, next| after(rest, next))?;
        let float = |n: Number| FactValue::Float(n.value);
        let count = |n: Number| FactValue::Int(n.value as i64);
        match self.form {
            Form::Gib => Some(FactValue::Float(gib(from)?.0)),
            Form::GibBefore => Some(FactValue::Float(gib(before.rsplit_once(", ")?.1)?.0)),
            Form::Float => Some(float(number(from)?.0)),
            Form::FloatBefore => Some(float(number_before(text, self.sign)?)),
            Form::Count => Some(count(number(from)?.0)),
            Form::CountBefore => Some(count(number_before(text, self.sign)?)),
            Form::Bytes => gib(from).is_none().then_some(count(number(from)?.0)),
            Form::BytesAsGib => {
                let (n, _) = number(from).filter(|(n, _)| n.whole && n.value >= 0.0)?;
                Some(FactValue::Float(n.value / GIB))
            }
            Form::Positive | Form::Whole => {
                let least = f64::from(u8::from(matches!(self.form, Form::Positive)));
                let (n, _) =
                    number(from).filter(|(n, _)| n.whole && (least..9e15).contains(&n.value))?;
                Some(count(n))
            }
            Form::CompleteCount => Some(FactValue::Int(complete_count(from)?.try_into().ok()?)),
            Form::Number => number(from).map(|(n, _)| if n.whole { count(n) } else { float(n) }),
            Form::DecimalGb => Some(FactValue::Float(decimal_gb(from)?)),
            Form::Counts => Some(FactValue::List(counts(from).filter(|c| !c.is_empty())?)),
            Form::Switch => match from.split_whitespace().next()? {
                "1" | "true" | "True" => Some(FactValue::Bool(true)),
                "0" | "false" | "False" => Some(FactValue::Bool(false)),
                _ => None,
            },
            Form::Text(find) => text_value(find(from)?),
            Form::WordBefore => text_value(before.split(' ').next_back()?),
            Form::Is(name) => Some(FactValue::Text(name.to_owned())),
            Form::Flag => Some(FactValue::Bool(true)),
            Form::Off => Some(FactValue::Bool(false)),
            Form::Zero => Some(FactValue::Int(0)),
        }
    }
}

/// Writes the values of the `rows` that have their sign anywhere in `text`, a part of the line.
pub fn read_values<S>(rows: &[Row<Put<S>>], text: &str, line: &Line<'_>, sheet: &mut Sheet) {
    for row in rows {
        if let Some(rest) = after(text, row.sign) {
            row.write_value(text, text.len() - rest.len(), line, sheet);
        }
    }
}

/// The values of the `rows` that have their sign in `text`, by their keys.
pub fn record_of<S>(rows: &[Row<Put<S>>], text: &str) -> BTreeMap<String, FactValue> {
    let value = |row: &Row<Put<S>>| {
        let (Put::Last(key) | Put::First(key)) = row.target else {
            return None;
        };
        let end = text.len() - after(text, row.sign)?.len();
        Some((key.name().to_owned(), row.value(text, end)?))
    };
    rows.iter().filter_map(value).collect()
}

impl<S> Row<Put<S>> {
    fn write_value(&self, text: &str, end: usize, line: &Line<'_>, sheet: &mut Sheet) {
        let (Put::Last(key) | Put::First(key)) = self.target else {
            return;
        };
        if let Some(value) = self.value(text, end) {
            match self.target {
                Put::First(_) => sheet.set_first(key, value, line, self.needle()),
                _ => sheet.set(key, value, line, self.needle()),
            }
        }
    }
}

impl<S> Table<Put<S>> {
    /// Reads the rows with which the line's message begins.
    pub fn read_message(&self, state: &mut S, line: &Line<'_>, sheet: &mut Sheet) {
        for (row, end) in self.matching(line.text).unwrap_or_default() {
            if !begins_message(&line.text[..end - row.sign.len()]) {
                continue;
            }
            match row.target {
                Put::Read(read) => read(state, line, &line.text[end..], sheet),
                Put::Step(step) => sheet.step(step, line, row.needle()),
                Put::EnoughAfter(key) if sheet.get(key).is_some() => {
                    sheet.enough_memory(line, row.needle());
                }
                _ => row.write_value(line.text, end, line, sheet),
            }
        }
    }
}

/// The numbers of `[32, 16]`, which is not cut off.
pub fn counts(text: &str) -> Option<Vec<f64>> {
    let (inside, _) = text.trim_start().strip_prefix('[')?.split_once(']')?;
    let words = inside.split(',').map(str::trim).filter(|w| !w.is_empty());
    let counts: Option<Vec<f64>> = words.map(|w| Some(w.parse::<u32>().ok()?.into())).collect();
    counts.filter(|c| c.len() <= 4096)
}

/// The first word.
pub fn first_word(text: &str) -> Option<&str> {
    text.split_whitespace().next()
}

fn text_value(text: &str) -> Option<FactValue> {
    (!text.is_empty()).then(|| FactValue::Text(text.to_owned()))
}

/// The rows of an engine and the search for their signs.
pub struct Table<H: 'static> {
    rows: &'static [Row<H>],
    /// The rows of each sign of the search.
    by_sign: Vec<Vec<usize>>,
    search: Words,
    /// A faster search, which finds something in every line that has a sign, and in some others.
    gate: Words,
}

impl<H: Copy> Table<H> {
    /// A table of `rows`. `watched`: further texts that make a line one of interest. `busy`:
    /// frequent lines without values; a search that hits other such lines is slower.
    pub fn new(rows: &'static [Row<H>], watched: &[&'static str], busy: &[&str]) -> Table<H> {
        let mut signs: Vec<&str> = rows.iter().map(|row| row.sign).collect();
        signs.extend(watched);
        signs.sort_unstable();
        signs.dedup();
        let rows_of = |sign: &&str| -> Vec<usize> {
            (0..rows.len()).filter(|i| rows[*i].sign == *sign).collect()
        };
        Table {
            rows,
            by_sign: signs.iter().map(rows_of).collect(),
            search: Words::overlapping(&signs),
            gate: Words::new(&common_parts(&signs, busy)),
        }
    }

    /// A search that finds something in every line of interest, and in some others.
    pub fn gate(&self) -> &Words {
        &self.gate
    }

    /// The rows with their sign and condition in `text`, in table order, each with the end of its
    /// first sign; `None` for a text with no sign and no watched text.
    pub fn matching(&self, text: &str) -> Option<Vec<(&'static Row<H>, usize)>> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        let mut hit = false;
        self.search.each(text.as_bytes(), |sign, end| {
            hit = true;
            for row in &self.by_sign[sign] {
                if !found.iter().any(|(known, _)| known == row) {
                    found.push((*row, end));
                }
            }
        });
        found.sort_unstable();
        let rows = found.into_iter().map(|(row, end)| (&self.rows[row], end));
        let rows = rows.filter(|(row, _)| row.when.is_none_or(|when| after(text, when).is_some()));
        hit.then(|| rows.collect())
    }
}

/// A few short texts such that every sign contains one: a vectorised search takes 64. No `busy`
/// line contains one, unless a sign has no other part.
fn common_parts<'a>(signs: &[&'a str], busy: &[&str]) -> Vec<&'a str> {
    let mut holders: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (number, sign) in signs.iter().enumerate() {
        for len in [4, 6] {
            let parts = (0..sign.len()).filter_map(|at| sign.get(at..at + len));
            parts.for_each(|part| {
                holders.entry(part).or_default().insert(number);
            });
        }
    }
    holders.retain(|part, _| busy.iter().all(|line| after(line, part).is_none()));
    let mut parts = Vec::new();
    let mut left: BTreeSet<usize> = (0..signs.len()).collect();
    while let Some((part, held)) = (holders.iter())
        .max_by_key(|(part, held)| (held.intersection(&left).count(), part.len()))
        .filter(|(_, held)| !held.is_disjoint(&left))
    {
        left = &left - held;
        parts.push(*part);
    }
    parts.extend(left.into_iter().map(|number| signs[number]));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_at_the_place_of_its_row() {
        const ROWS: &[Row<&str>] = &[
            Row::new("took ", Form::Gib, "behind"),
            Row::new("took ", Form::Float, "further").then(&["and "]),
            Row::new(" seconds", Form::FloatBefore, "before"),
            Row::new("seconds", Form::Text(|t| Some(t.trim())), "text"),
            Row::new("took ", Form::Number, "anywhere").behind(&["Model "]),
            Row::new("took ", Form::Flag, "condition").when("nothing of it"),
            Row::new("took ", Form::Bytes, "bytes"),
        ];
        let table = Table::new(ROWS, &["watched"], &["a busy line of seconds"]);
        let text = "Model 7 took 1.50 GiB and 2.5 seconds x";
        let values: Vec<(&str, String)> = table
            .matching(text)
            .unwrap()
            .iter()
            .filter_map(|(row, end)| Some((row.target, row.value(text, *end)?.to_string())))
            .collect();
        let expected = [
            ("behind", "1.5"),
            ("further", "2.5"),
            ("before", "2.5"),
            ("text", "x"),
            ("anywhere", "7"),
        ];
        assert_eq!(values, expected.map(|(key, value)| (key, value.to_owned())));
        assert_eq!(table.matching("watched").map(|rows| rows.len()), Some(0));
        assert!(table.matching("Model 7").is_none());
    }
}
