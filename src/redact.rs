//! Secrets: what looks like one, which were found, and how a text loses them before it is written.
//!
//! Two nets. Values that are known to be secret (a container's `HF_TOKEN`, the server's
//! `--api-key`) are replaced wherever they occur; what only *looks* secret (`hf_…`, `Bearer …`,
//! `password=…`, `user:pass@host`) is replaced by shape. Over-redaction costs a word in a log;
//! the opposite costs a credential.

mod block;
mod names;
mod shapes;
mod variants;

pub use block::KeyBlock;
pub use names::is_secret_name;
pub use shapes::{redact_bytes, redact_distinct};

use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;
use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

/// Replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// Known values shorter than this are not searched for in texts: they would hit ordinary words.
const SHORTEST_KNOWN: usize = 6;

/// Secrets in a container's settings, by their names.
///
/// Holds the real values: it is never serialised, and `Debug` prints names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<(String, String)>);

impl Secrets {
    /// Remembers a value under a name (`HF_TOKEN`, `--api-key`). Empty values are no secrets.
    pub fn add_secret(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let entry = (name.into(), value.into());
        if !entry.1.is_empty() && !self.0.contains(&entry) {
            self.0.push(entry);
        }
    }

    /// Remembers everything that `env` and `argv` give away.
    pub fn gather_from<'a>(
        env: impl IntoIterator<Item = (&'a str, &'a str)>,
        argv: &[String],
    ) -> Self {
        let mut found = Secrets::default();
        for (name, value) in env {
            if is_secret_name(name) {
                found.add_secret(name, value);
            }
            found.add_passwords(name, value);
            found.add_given(value);
        }
        for part in argv_parts(argv) {
            match part {
                ArgPart::Secret { name, value, .. } => found.add_secret(name, value),
                ArgPart::Plain(text) => {
                    found.add_passwords("a URL", text);
                    found.add_given(text);
                }
            }
        }
        found
    }

    /// Remembers the passwords of the URLs in a text, as written and percent-decoded, as a log may
    /// contain them.
    fn add_passwords(&mut self, name: &str, text: &str) {
        for password in PASSWORD.captures_iter(text).filter_map(|c| c.get(1)) {
            self.add_secret(name, password.as_str());
            self.add_secret(name, variants::percent_decoded(password.as_str()));
        }
    }

    /// Remembers what flags and assignments within one argument give to names of secrets: a line
    /// for a shell, a document.
    fn add_given(&mut self, text: &str) {
        if text.contains(char::is_whitespace) {
            shapes::each_secret_setting(text, |name, value| self.add_secret(name, value));
        }
    }

    /// The value of `name`, in any case of letters.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }

    /// The API key of the engine's HTTP server, from its settings: `--api-key` first (it wins in
    /// the engines too), then the variables that engines read.
    pub fn api_key(&self) -> Option<&str> {
        let names = "--api-key --api_key VLLM_API_KEY SGLANG_API_KEY LLAMA_API_KEY API_KEY";
        names.split(' ').find_map(|name| self.get(name))
    }

    /// Names of the secrets.
    pub fn secret_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(n, _)| n.as_str())
    }

    /// The real values.
    pub fn secret_values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, v)| v.as_str())
    }

    /// Takes over what another set knows.
    pub fn extend(&mut self, other: &Secrets) {
        for (name, value) in &other.0 {
            self.add_secret(name.clone(), value.clone());
        }
    }

    /// A redactor that knows these values.
    pub fn redactor(&self) -> Redactor {
        Redactor::new(self.secret_values().map(str::to_owned))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.secret_names()).finish()
    }
}

/// Takes secrets out of texts. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Option<KnownSecret>,
}

/// Values that are known, in all their spellings.
#[derive(Clone)]
struct KnownSecret {
    all: AhoCorasick,
    anchors: AhoCorasick,
}

impl KnownSecret {
    fn is_match(&self, text: &str) -> bool {
        self.anchors.is_match(text) && self.all.is_match(text)
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.as_ref().map_or(0, |k| k.all.patterns_len());
        write!(f, "Redactor({known} known values)")
    }
}

impl Redactor {
    /// A redactor that knows these values besides the shapes. Values that are too short or too
    /// ordinary to be searched for are left out.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let (mut all, mut anchors) = (Vec::new(), Vec::new());
        for secret in secrets.into_iter().filter(|v| !is_ordinary(v)) {
            let spellings = variants::spellings_of(&secret, |v| {
                v.len() >= SHORTEST_KNOWN && !is_ordinary(v) && !REDACTED.contains(v)
            });
            all.extend(spellings.all);
            anchors.extend(spellings.anchors);
        }
        // The builder fails only on more patterns than fit its state ids; shapes still work then.
        let built = |words: &[String]| {
            let mut builder = AhoCorasick::builder();
            builder.match_kind(MatchKind::LeftmostLongest);
            builder.build(words).ok().filter(|_| !words.is_empty())
        };
        Redactor {
            known: built(&all)
                .zip(built(&anchors))
                .map(|(all, anchors)| KnownSecret { all, anchors }),
        }
    }

    /// The text without its secrets; borrowed when there were none. Idempotent.
    pub fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        // A colour or a carriage return may stand in the middle of a secret. Where one is found without it, the line
        // loses its colours too.
        if memchr::memchr3(0x1b, b'\\', b'\r', text.as_bytes()).is_some() {
            let plain = COLOUR.replace_all(text, "");
            if let Cow::Owned(plain) = plain {
                if let Cow::Owned(clean) = self.redact_plain(&plain) {
                    return Cow::Owned(clean);
                }
            }
        }
        self.redact_plain(text)
    }

    fn redact_plain<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let known = self.known.as_ref().filter(|k| k.is_match(text));
        if known.is_none() && !shapes::may_match(text) {
            return Cow::Borrowed(text);
        }
        let mut current = self.redact_once(text);
        // A replacement can complete another shape (`token=` + value that ended in a known secret).
        for _ in 0..4 {
            match self.redact_once(&current) {
                Cow::Borrowed(_) => break,
                Cow::Owned(next) if next == *current => break,
                Cow::Owned(next) => current = Cow::Owned(next),
            }
        }
        current
    }

    /// Arguments without their secrets, so that `--api-key`, `xyz` as two elements are seen too.
    pub fn redact_argv(&self, argv: &[String]) -> Vec<String> {
        argv_parts(argv)
            .into_iter()
            .map(|part| match part {
                ArgPart::Plain(text) => self.redact_text(text).into_owned(),
                ArgPart::Secret { prefix, .. } => format!("{prefix}{REDACTED}"),
            })
            .collect()
    }

    /// The value of a setting; removed entirely if the name is that of a secret.
    pub fn redact_setting(&self, name: &str, value: &str) -> String {
        if is_secret_name(name) && !value.is_empty() {
            REDACTED.to_owned()
        } else {
            self.redact_text(value).into_owned()
        }
    }

    fn redact_once<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        if let Some(known) = self.known.as_ref().filter(|k| k.is_match(&text)) {
            let replacements = vec![REDACTED; known.all.patterns_len()];
            text = Cow::Owned(known.all.replace_all(&text, &replacements));
        }
        if shapes::may_match(&text) {
            shapes::replace_shapes(&mut text);
        }
        text
    }
}

/// Terminal control sequences, also as escaped in a string.
static COLOUR: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033|\\e)\[[0-9;:?]*[A-Za-z]|\r")
        .expect("a constant pattern, compiled by a test")
});

static PASSWORD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"://[^/\s:'"]*:([^/\s'"]*)@"#).expect("a constant pattern, compiled by a test")
});

/// Values of secret-looking settings that are ordinary words all the same.
const ORDINARY: &str = "enabled disabled required optional default unset undefined password secret \
    string bearer";

fn is_ordinary(value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    value.is_empty() || ORDINARY.split(' ').any(|word| word == value)
}

/// One argument, by the one before it.
enum ArgPart<'a> {
    Plain(&'a str),
    /// `prefix` is kept; `value` of `name` is not.
    Secret {
        prefix: &'a str,
        name: &'a str,
        value: &'a str,
    },
}

fn argv_parts(argv: &[String]) -> Vec<ArgPart<'_>> {
    let mut after: Option<&str> = None;
    // vLLM takes several keys after one flag, in whatever alphabet.
    let mut more: Option<&str> = None;
    argv.iter()
        .map(|arg| {
            let name = after.take().or(more).filter(|_| !arg.starts_with('-'));
            if let Some(name) = name {
                let keys = matches!(name, "--api-key" | "--api_key");
                more = Some(name).filter(|_| keys);
                return ArgPart::Secret {
                    prefix: "",
                    name,
                    value: arg,
                };
            }
            more = None;
            match arg.split_once('=') {
                Some((name, value))
                    if !name.contains(char::is_whitespace)
                        && is_secret_name(name)
                        && !shapes::is_no_value(value) =>
                {
                    ArgPart::Secret {
                        prefix: &arg[..=name.len()],
                        name,
                        value,
                    }
                }
                None if arg.starts_with('-') && is_secret_name(arg) => {
                    after = Some(arg);
                    ArgPart::Plain(arg)
                }
                _ => ArgPart::Plain(arg),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
