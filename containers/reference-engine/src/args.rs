//! The command line, from tables of flags: what is not in a command's table is an error, as it is for a real engine.

use crate::size;
use std::fmt::Write;
use std::str::FromStr;

/// Why the program ends before, or instead of, its work.
#[derive(Debug, PartialEq)]
pub enum Stop {
    Help(String),
    Usage(String),
    Failed(String),
}

#[derive(Clone, Copy)]
pub enum Kind {
    Text,
    /// Whole pages, because only whole pages can be touched.
    Pages,
    /// Milliseconds and counts: whole numbers up to a billion.
    Count,
    /// A positive number, or `inf`.
    Rate,
}

pub struct Flag {
    pub name: &'static str,
    pub kind: Kind,
    pub default: Option<&'static str>,
    pub required: bool,
    pub help: &'static str,
}

impl Flag {
    pub const fn new(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
        Flag { name, kind, default: Some(default), required: false, help }
    }

    pub const fn optional(name: &'static str, help: &'static str) -> Flag {
        Flag { name, kind: Kind::Text, default: None, required: false, help }
    }

    pub const fn required(name: &'static str, help: &'static str) -> Flag {
        Flag { name, kind: Kind::Text, default: None, required: true, help }
    }
}

pub struct Spec {
    pub usage: &'static str,
    pub about: &'static str,
    pub groups: &'static [&'static [Flag]],
}

impl Spec {
    fn flags(&self) -> impl Iterator<Item = &'static Flag> {
        self.groups.iter().flat_map(|group| group.iter())
    }

    fn help(&self) -> String {
        let mut text = format!("usage: {}\n{}\n\nflags:", self.usage, self.about);
        for flag in self.flags() {
            let metavar = match flag.kind {
                Kind::Text => "TEXT",
                Kind::Pages => "SIZE",
                Kind::Count => "N",
                Kind::Rate => "RATE",
            };
            let name = format!("--{} {metavar}", flag.name);
            let note = match (flag.default, flag.required) {
                (Some(default), _) => format!(" [{default}]"),
                (None, true) => " (required)".into(),
                (None, false) => String::new(),
            };
            let _ = write!(text, "\n  {name:26} {}{note}", flag.help);
        }
        text
    }
}

pub struct Args {
    spec: &'static Spec,
    given: Vec<(&'static str, String)>,
}

impl Args {
    pub fn parse(spec: &'static Spec, words: &[String]) -> Result<Args, Stop> {
        let mut given = Vec::new();
        let mut unknown = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                return Err(Stop::Help(spec.help()));
            }
            let (name, joined) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (word.as_str(), None),
            };
            let flag = name.strip_prefix("--").and_then(|name| spec.flags().find(|flag| flag.name == name));
            let Some(flag) = flag else {
                unknown.push(word.as_str());
                continue;
            };
            let value = joined.or_else(|| words.next().cloned());
            let value = value.ok_or_else(|| usage(flag.name, "expected one argument"))?;
            given.push((flag.name, value));
        }
        if !unknown.is_empty() {
            return Err(Stop::Usage(format!("unrecognized arguments: {}", unknown.join(" "))));
        }
        Ok(Args { spec, given })
    }

    /// Every value is good and every required flag is there. After this the getters below cannot fail.
    pub fn check(&self) -> Result<(), Stop> {
        let missing: Vec<String> = (self.spec.flags())
            .filter(|flag| flag.required && self.find(flag.name).is_none())
            .map(|flag| format!("--{}", flag.name))
            .collect();
        if !missing.is_empty() {
            return Err(Stop::Usage(format!("the following arguments are required: {}", missing.join(", "))));
        }
        for flag in self.spec.flags() {
            match flag.kind {
                Kind::Text => {}
                Kind::Pages => drop(self.pages(flag.name)?),
                Kind::Count => drop(self.count(flag.name)?),
                Kind::Rate => drop(self.rate(flag.name)?),
            }
        }
        Ok(())
    }

    /// The last one given wins, as in argparse.
    fn find(&self, name: &str) -> Option<&str> {
        let flag = self.spec.flags().find(|flag| flag.name == name).expect("the flag is in the command's table");
        (self.given.iter().rev()).find(|(given, _)| *given == name).map(|(_, value)| value.as_str()).or(flag.default)
    }

    pub fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.given.iter().filter(move |(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    pub fn optional(&self, name: &str) -> Option<&str> {
        self.find(name)
    }

    pub fn text(&self, name: &str) -> Result<&str, Stop> {
        self.find(name).ok_or_else(|| usage(name, "expected one argument"))
    }

    pub fn pages(&self, name: &str) -> Result<usize, Stop> {
        let bytes = size::parse(self.text(name)?).map_err(|why| usage(name, &why))? as usize;
        let page = crate::memory::page_bytes();
        match bytes % page {
            0 => Ok(bytes),
            _ => Err(usage(name, &format!("{bytes} bytes are not whole pages of {page}"))),
        }
    }

    pub fn count(&self, name: &str) -> Result<u64, Stop> {
        let number = number::<u64>(name, self.text(name)?)?;
        if number > 1_000_000_000 {
            return Err(usage(name, &format!("{number} is too large")));
        }
        Ok(number)
    }

    pub fn rate(&self, name: &str) -> Result<f64, Stop> {
        let rate = number::<f64>(name, self.text(name)?)?;
        if rate.is_nan() || rate <= 0.0 {
            return Err(usage(name, "expected a positive number or inf"));
        }
        Ok(rate)
    }
}

fn number<T: FromStr>(name: &str, text: &str) -> Result<T, Stop> {
    text.parse().map_err(|_| usage(name, &format!("invalid value: '{text}'")))
}

pub fn usage(name: &str, why: &str) -> Stop {
    Stop::Usage(format!("argument --{name}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: Spec = Spec {
        usage: "x",
        about: "y",
        groups: &[&[
            Flag::required("model", "m"),
            Flag::new("weights", Kind::Pages, "1MiB", "w"),
            Flag::new("port", Kind::Count, "8000", "p"),
            Flag::new("rate", Kind::Rate, "inf", "r"),
            Flag::optional("fault", "f"),
        ]],
    };

    fn read(line: &str) -> Result<Args, Stop> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let args = Args::parse(&SPEC, &words)?;
        args.check()?;
        Ok(args)
    }

    fn error(line: &str) -> String {
        match read(line).err() {
            Some(Stop::Usage(message)) => message,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn both_spellings_and_the_last_one_wins() {
        let args = read("--model a --weights=2MiB --fault x --port 1 --port=2 --fault=crash=0@ready").unwrap();
        assert_eq!(args.text("model"), Ok("a"));
        assert_eq!(args.pages("weights"), Ok(2 << 20));
        assert_eq!(args.count("port"), Ok(2));
        assert_eq!(args.rate("rate"), Ok(f64::INFINITY));
        assert_eq!(args.all("fault").collect::<Vec<_>>(), ["x", "crash=0@ready"]);
    }

    #[test]
    fn unknown_words_are_all_named() {
        assert_eq!(error("--model m --x"), "unrecognized arguments: --x");
        assert_eq!(error("--x=1 stray --model m -y"), "unrecognized arguments: --x=1 stray -y");
    }

    #[test]
    fn bad_values() {
        assert_eq!(error(""), "the following arguments are required: --model");
        assert_eq!(error("--model"), "argument --model: expected one argument");
        assert_eq!(error("--model m --port 8k"), "argument --port: invalid value: '8k'");
        assert_eq!(error("--model m --port -1"), "argument --port: invalid value: '-1'");
        assert_eq!(error("--model m --port 1000000001"), "argument --port: 1000000001 is too large");
        assert!(error("--model m --weights 1MB").contains("not a size"));
        assert!(error("--model m --weights 99999999TiB").contains("too large"));
        assert!(error("--model m --weights 4097").contains("whole pages"));
        for rate in ["0", "-1", "NaN"] {
            assert!(error(&format!("--model m --rate {rate}")).contains("positive"), "{rate}");
        }
    }

    #[test]
    fn help_wins_over_what_is_wrong() {
        let Some(Stop::Help(text)) = read("--help").err() else { panic!() };
        assert!(text.contains("--weights SIZE") && text.contains("[1MiB]") && text.contains("(required)"), "{text}");
    }
}
