//! Go's `slog` text lines: `time=… level=INFO source=server.go:130 msg="…" key=value key="v w"`.

use crate::engine::facts::FactValue;
use crate::engine::log::figures::{gib, number};
use std::collections::BTreeMap;

/// Most fields of one line; a line with more is of another form.
const MOST_FIELDS: usize = 96;

/// How the value of a field is written.
#[derive(Debug, Clone, Copy)]
pub enum Written {
    /// An amount of memory; kept in GiB.
    Gib,
    /// Amounts of memory, or one.
    GibList,
    /// A whole number.
    Whole,
    /// A text.
    Text,
}

/// One line's fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    fields: BTreeMap<String, String>,
}

impl Record {
    /// Parses a line; `None` if it is of another form. Skips any prefix before `time=` or `level=`
    /// and omits a value that the line's end cuts off.
    pub fn read(text: &str) -> Option<Record> {
        let starts = ["time=", "level="];
        let at = starts.iter().filter_map(|s| text.find(s)).min()?;
        let mut fields = BTreeMap::new();
        let mut rest = &text[at..];
        while let Some((name, behind)) = next_name(rest) {
            let (value, tail) = match behind.strip_prefix('"') {
                Some(quoted) => match unquoted(quoted) {
                    Some(found) => found,
                    None => break,
                },
                None => match behind.split_once(' ') {
                    Some((word, tail)) => (word.to_owned(), tail),
                    None => (behind.to_owned(), ""),
                },
            };
            if fields.len() >= MOST_FIELDS {
                break;
            }
            fields.entry(name.to_owned()).or_insert(value);
            rest = tail;
        }
        fields.contains_key("msg").then_some(Record { fields })
    }

    /// A field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// An amount of memory in GiB: `11.5 GiB`, `680.0 MiB`, `0 B`.
    pub fn gib(&self, name: &str) -> Option<f64> {
        size(self.get(name)?)
    }

    /// A list of amounts: `[22.0 GiB 11.5 GiB]`; `None` where one of them cannot be read.
    pub fn gibs(&self, name: &str) -> Option<Vec<f64>> {
        let inside = self.get(name)?.strip_prefix('[')?.strip_suffix(']')?;
        let words: Vec<&str> = inside.split_whitespace().collect();
        let pairs = words.chunks(2).map(|pair| size(&pair.join(" ")));
        pairs
            .collect::<Option<Vec<f64>>>()
            .filter(|l| !l.is_empty())
    }

    /// The value of a field.
    pub fn value(&self, name: &str, written: Written) -> Option<FactValue> {
        match written {
            Written::Gib => self.gib(name).map(FactValue::Float),
            Written::GibList => {
                let one = || self.gib(name).map(|v| vec![v]);
                self.gibs(name).or_else(one).map(FactValue::List)
            }
            Written::Whole => self.int(name).map(FactValue::Int),
            Written::Text => {
                let text = self.get(name).filter(|t| !t.is_empty())?;
                Some(FactValue::Text(text.to_owned()))
            }
        }
    }

    /// A whole number.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.get(name)?.parse().ok()
    }
}

/// An amount with its unit; plain bytes have one, too.
fn size(text: &str) -> Option<f64> {
    gib(text).map(|(v, _)| v).or_else(|| {
        let (n, unit) = number(text)?;
        (unit.trim() == "B").then_some(n.value / f64::from(1 << 30))
    })
}

/// The next `name=` and the text after it; skips words without `=`.
fn next_name(text: &str) -> Option<(&str, &str)> {
    let mut rest = text.trim_start();
    loop {
        let end = rest.find([' ', '=', '"'])?;
        let (word, tail) = rest.split_at(end);
        match tail.strip_prefix('=') {
            Some(behind) if !word.is_empty() => return Some((word, behind)),
            _ => rest = tail.get(1..)?.trim_start(),
        }
    }
}

/// The text up to the closing quote, and what follows.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                other => value.push(other),
            },
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_with_units_and_lists() {
        let r = Record::read(
            r#"host ollama[7]: time=2031-01-02T03:04:05Z level=INFO source=x.go:1 msg="a \"b\"" [...] n=-1 size="1.5 GiB" zero="0 B" list="[2.0 GiB 512.0 MiB]" cut="3 Gi"#,
        )
        .unwrap();
        assert_eq!(r.get("msg"), Some("a \"b\""));
        assert_eq!(r.int("n"), Some(-1));
        assert_eq!((r.gib("size"), r.gib("zero")), (Some(1.5), Some(0.0)));
        assert_eq!(r.gibs("list"), Some(vec![2.0, 0.5]));
        assert_eq!((r.get("cut"), r.gibs("size")), (None, None));
        assert_eq!(Record::read("load_tensors: level=3"), None);
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,60}|(time=)?[a-z=\" \\\\.é]{0,60}") {
            if let Some(r) = Record::read(&text) {
                r.gib("msg");
                r.gibs("msg");
            }
        }
    }
}
