//! Secrets: what looks like one, which were met, and how a text loses them before it is written.
//!
//! Two nets. Values that are known to be secret (a container's `HF_TOKEN`, the server's
//! `--api-key`) are replaced wherever they occur; what only *looks* secret (`hf_…`, `Bearer …`,
//! `password=…`, `user:pass@host`) is replaced by shape. Over-redaction costs a word in a log;
//! the opposite costs a credential.

use aho_corasick::{AhoCorasick, MatchKind};
use regex::{Captures, Regex};
use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

/// What stands where a secret stood.
pub const REDACTED: &str = "[redacted]";

/// Known values shorter than this are not searched for in texts: they would hit ordinary words.
const SHORTEST_KNOWN: usize = 6;

/// Secrets that were met in a container's settings, by the name they were met under.
///
/// Holds the real values: it is never serialised, and `Debug` prints names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<(String, String)>);

impl Secrets {
    /// Remembers a value under a name (`HF_TOKEN`, `--api-key`). Empty values are no secrets.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let entry = (name.into(), value.into());
        if !entry.1.is_empty() && !self.0.contains(&entry) {
            self.0.push(entry);
        }
    }

    /// Remembers everything that `env` and `argv` give away.
    pub fn gather<'a>(env: impl IntoIterator<Item = (&'a str, &'a str)>, argv: &[String]) -> Self {
        let mut found = Secrets::default();
        for (name, value) in env {
            if is_secret_name(name) {
                found.add(name, value);
            }
        }
        for part in argv_parts(argv) {
            if let ArgPart::Secret { name, value, .. } = part {
                found.add(name, value);
            }
        }
        found
    }

    /// The value met under `name`, whatever the case of the name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }

    /// The key the engine's HTTP server wants, where its settings tell: `--api-key` first (it wins
    /// in the engines too), then the variables that engines read.
    pub fn api_key(&self) -> Option<&str> {
        [
            "--api-key",
            "--api_key",
            "VLLM_API_KEY",
            "SGLANG_API_KEY",
            "LLAMA_API_KEY",
            "API_KEY",
        ]
        .iter()
        .find_map(|n| self.get(n))
    }

    /// Names under which secrets were met.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(n, _)| n.as_str())
    }

    /// The real values.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, v)| v.as_str())
    }

    /// Takes over what another set knows.
    pub fn extend(&mut self, other: &Secrets) {
        for (name, value) in &other.0 {
            self.add(name.clone(), value.clone());
        }
    }

    /// A redactor that knows these values.
    pub fn redactor(&self) -> Redactor {
        Redactor::new(self.values().map(str::to_owned))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Takes secrets out of texts. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Option<AhoCorasick>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.as_ref().map_or(0, AhoCorasick::patterns_len);
        write!(f, "Redactor({known} known values)")
    }
}

impl Redactor {
    /// A redactor that knows these values besides the shapes. Values that are too short or too
    /// ordinary to be searched for are left out.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let values: Vec<String> = secrets
            .into_iter()
            .filter(|v| {
                v.len() >= SHORTEST_KNOWN && !is_ordinary(v) && !REDACTED.contains(v.as_str())
            })
            .collect();
        // The builder fails only on more patterns than fit its state ids; shapes still work then.
        let known = match values.is_empty() {
            true => None,
            false => AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(&values)
                .ok(),
        };
        Redactor { known }
    }

    /// The text without its secrets; borrowed when there were none. Idempotent.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let known = self.known.as_ref().filter(|k| k.is_match(text));
        if known.is_none() && !ANCHORS.is_match(text) {
            return Cow::Borrowed(text);
        }
        let mut current = self.once(text);
        // A replacement can complete another shape (`token=` + value that ended in a known secret).
        for _ in 0..4 {
            match self.once(&current) {
                Cow::Borrowed(_) => break,
                Cow::Owned(next) if next == *current => break,
                Cow::Owned(next) => current = Cow::Owned(next),
            }
        }
        current
    }

    /// Arguments without their secrets, so that `--api-key`, `xyz` as two elements are seen too.
    pub fn argv(&self, argv: &[String]) -> Vec<String> {
        argv_parts(argv)
            .into_iter()
            .map(|part| match part {
                ArgPart::Plain(text) => self.text(text).into_owned(),
                ArgPart::Secret { prefix, .. } => format!("{prefix}{REDACTED}"),
            })
            .collect()
    }

    /// The value of a setting: gone altogether when the name says that it is a secret.
    pub fn setting(&self, name: &str, value: &str) -> String {
        match is_secret_name(name) && !value.is_empty() {
            true => REDACTED.to_owned(),
            false => self.text(value).into_owned(),
        }
    }

    fn once<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        if let Some(known) = self.known.as_ref().filter(|k| k.is_match(&*text)) {
            let replacements = vec![REDACTED; known.patterns_len()];
            text = Cow::Owned(known.replace_all(&text, &replacements));
        }
        if !ANCHORS.is_match(&*text) {
            return text;
        }
        apply(&mut text, &SHAPES, |_| REDACTED.to_owned());
        if memchr::memmem::find(text.as_bytes(), b"://").is_some() {
            apply(&mut text, &URL_USER, |_| format!("://{REDACTED}@"));
            apply(&mut text, &URL_PARAMETER, |c| {
                format!("{}{REDACTED}", &c[1])
            });
        }
        apply(&mut text, &BEARER, |c| match is_prose_after_bearer(&c[2]) {
            true => c[0].to_owned(),
            false => format!("{}{REDACTED}", &c[1]),
        });
        if memchr::memmem::find(text.as_bytes(), b"-").is_some() {
            apply(&mut text, &FLAG, redact_flag);
        }
        apply(&mut text, &ASSIGNMENT, redact_assignment);
        text
    }
}

fn apply(text: &mut Cow<'_, str>, regex: &Regex, with: impl Fn(&Captures<'_>) -> String) {
    if let Cow::Owned(changed) = regex.replace_all(text, |c: &Captures<'_>| with(c)) {
        *text = Cow::Owned(changed);
    }
}

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern, compiled by a test")
}

/// One of these stands in every text that any shape can match. Most log lines have none.
static ANCHORS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let words = [
        "hf_",
        "sk-",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "nvapi-",
        "xox",
        "akia",
        "asia",
        "eyj",
        "bearer",
        "://",
        "key",
        "token=",
        "token'",
        "token\"",
        "_token",
        "-token",
        "token:",
        "passw",
        "pwd",
        "secret",
        "credential",
        "auth",
        "passphrase",
    ];
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build(words)
        .expect("constant words")
});

static SHAPES: LazyLock<Regex> = LazyLock::new(|| {
    compiled(concat!(
        r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}",
        r"|glpat-[A-Za-z0-9_-]{16,}|nvapi-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}\b",
        r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)",
    ))
});

static URL_USER: LazyLock<Regex> = LazyLock::new(|| compiled(r#"://[^/\s:@'"]*:[^/\s@'"]+@"#));

static URL_PARAMETER: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r#"(?i)([?&](?:[a-z0-9_-]*(?:token|key|secret|signature|password|sig|auth)|x-amz-[a-z-]+)=)[^&\s'"]+"#,
    )
});

static BEARER: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"(?i)\b(bearer\s+)([A-Za-z0-9._~+/=-]{6,})"));

// The separator may be that of a printed list: `'--api-key', 'xyz'`.
static FLAG: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r#"(?i)(^|[\s'"\[,(])(--?[a-z][a-z0-9_-]*)(=|\s+|['"]\s*,\s*['"])("[^"]*"|'[^']*'|(?:\[redacted\]|[^\s'",\])])+)"#,
    )
});

static ASSIGNMENT: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r#"(?i)\b([a-z][a-z0-9_.-]*)(["']?\s*[=:]\s*)(\[?"[^"]*"|\[?'[^']*'|(?:\[redacted\]|[^\s,;&)}\]"'])+)"#,
    )
});

fn redact_flag(c: &Captures<'_>) -> String {
    let (flag, separator, value) = (&c[2], &c[3], &c[4]);
    let next_flag = separator != "=" && value.starts_with('-');
    if next_flag || !is_secret_name(flag) || is_no_value(value) {
        return c[0].to_owned();
    }
    format!("{}{flag}{separator}{REDACTED}", &c[1])
}

fn redact_assignment(c: &Captures<'_>) -> String {
    let (name, separator, value) = (&c[1], &c[2], &c[3]);
    if !is_secret_name(name) || is_no_value(value) {
        return c[0].to_owned();
    }
    // Prose: "key: value", "BOS token = 1", "auth: none" are no credentials.
    let one_word = !name.contains(['_', '-', '.']);
    let prose = one_word
        && matches!(
            name.to_ascii_lowercase().as_str(),
            "key" | "token" | "auth" | "authorization"
        );
    let quoted = separator.starts_with(['"', '\'']);
    if prose && !quoted && value.len() < 16 {
        return c[0].to_owned();
    }
    let bracket = if value.starts_with("[") && value != REDACTED {
        "["
    } else {
        ""
    };
    let quote = match value[bracket.len()..].chars().next() {
        Some('"') => "\"",
        Some('\'') => "'",
        _ => "",
    };
    // An unquoted value has no bracket of its own to give back.
    let bracket = if quote.is_empty() { "" } else { bracket };
    format!("{name}{separator}{bracket}{quote}{REDACTED}{quote}")
}

fn is_no_value(value: &str) -> bool {
    if value == REDACTED {
        return true;
    }
    let v = value.trim_start_matches('[').trim_matches(['"', '\'']);
    v == REDACTED
        || matches!(
            v.to_ascii_lowercase().as_str(),
            "" | "none" | "null" | "true" | "false" | "undefined" | "unset"
        )
        || (v.len() < 6 && v.bytes().all(|b| b.is_ascii_digit()))
}

fn is_prose_after_bearer(word: &str) -> bool {
    matches!(
        word.trim_end_matches(['.', ','])
            .to_ascii_lowercase()
            .as_str(),
        "authentication"
            | "authorization"
            | "credentials"
            | "tokens"
            | "scheme"
            | "format"
            | "header"
            | "security"
    )
}

/// Values of secret-looking settings that are ordinary words all the same.
fn is_ordinary(value: &str) -> bool {
    let v = value.trim().to_ascii_lowercase();
    matches!(
        v.as_str(),
        "enabled"
            | "disabled"
            | "required"
            | "optional"
            | "default"
            | "unset"
            | "undefined"
            | "password"
            | "secret"
            | "string"
            | "bearer"
    ) || v.is_empty()
}

/// One argument, seen in the light of the one before it.
enum ArgPart<'a> {
    Plain(&'a str),
    /// `prefix` is kept; `value`, met under `name`, is not.
    Secret {
        prefix: &'a str,
        name: &'a str,
        value: &'a str,
    },
}

fn argv_parts(argv: &[String]) -> Vec<ArgPart<'_>> {
    let mut after: Option<&str> = None;
    argv.iter()
        .map(|arg| {
            if let Some(name) = after.take()
                && !arg.starts_with('-')
            {
                return ArgPart::Secret {
                    prefix: "",
                    name,
                    value: arg,
                };
            }
            match arg.split_once('=') {
                Some((name, value))
                    if !name.contains(char::is_whitespace)
                        && is_secret_name(name)
                        && !is_no_value(value) =>
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

/// Whether a setting with this name (environment variable, flag, label, key) holds a secret.
///
/// Goes by whole words: `HF_TOKEN` and `apiKey` do, `MAX_TOKENS`, `VLLM_TOKENIZER`, `EOS_TOKEN` and
/// `KV_CACHE_KEY_DTYPE` do not.
pub fn is_secret_name(name: &str) -> bool {
    let words = words_of(name);
    let Some(last) = words.last() else {
        return false;
    };
    let has = |w: &str| words.iter().any(|x| x == w);
    let pair = |a: &str, b: &str| words.windows(2).any(|w| w[0] == a && w[1] == b);
    // Where something is kept, or how long it is, is no secret.
    const ABOUT: &[&str] = &[
        "FILE", "PATH", "DIR", "NAME", "ENABLED", "TYPE", "MODE", "LEN", "LENGTH", "SIZE", "COUNT",
        "LIMIT", "REQUIRED", "METHOD", "SOCK", "PROVIDER", "HEADER", "DTYPE", "URL", "TTL",
    ];
    if ABOUT.contains(&last.as_str()) {
        return false;
    }
    if [
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "SECRET",
        "SECRETS",
        "CREDENTIAL",
        "CREDENTIALS",
        "APIKEY",
        "AUTHTOKEN",
        "AUTHKEY",
        "COOKIE",
        "COOKIES",
        "CREDS",
        "JWT",
        "PAT",
        "ACCESSKEY",
    ]
    .iter()
    .any(|w| has(w))
        || pair("API", "KEY")
        || pair("API", "KEYS")
        || pair("ACCESS", "KEY")
        || pair("PRIVATE", "KEY")
    {
        return true;
    }
    let before = words
        .len()
        .checked_sub(2)
        .map(|i| words[i].as_str())
        .unwrap_or_default();
    match last.as_str() {
        // The vocabulary's tokens, and counts of them.
        "TOKEN" => !matches!(
            before,
            "PAD"
                | "EOS"
                | "BOS"
                | "UNK"
                | "SEP"
                | "CLS"
                | "MASK"
                | "STOP"
                | "NEXT"
                | "PER"
                | "SPECIAL"
                | "EOT"
                | "EOM"
                | "EOG"
                | "NL"
                | "FIM"
                | "IMAGE"
                | "AUDIO"
                | "VIDEO"
                | "START"
                | "END"
                | "FIRST"
                | "LAST"
                | "NEW"
                | "DECODER"
                | "PREFIX"
                | "SUFFIX"
                | "MIDDLE"
                | "THINK"
                | "BEGIN"
        ),
        "KEY" => !matches!(
            before,
            "CACHE"
                | "PUBLIC"
                | "SORT"
                | "PRIMARY"
                | "FOREIGN"
                | "PARTITION"
                | "ROUTING"
                | "HASH"
                | "GPG"
                | "INDEX"
                | "KV"
                | "LAYER"
                | "METRIC"
                | "ENGINE"
                | "CONFIG"
        ),
        "AUTH" | "AUTHORIZATION" => true,
        "PWD" | "PASS" => words.len() > 1,
        _ => false,
    }
}

/// Upper-case words of a name; camel case is split, trailing digits (`TOKEN_2`) are dropped.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut fresh = true;
    let mut after_lower = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() {
            fresh = true;
            after_lower = false;
            continue;
        }
        if fresh || (after_lower && c.is_ascii_uppercase()) {
            words.push(String::new());
        }
        fresh = false;
        after_lower = c.is_ascii_lowercase();
        if let Some(word) = words.last_mut() {
            word.push(c.to_ascii_uppercase());
        }
    }
    while words
        .last()
        .is_some_and(|w| w.bytes().all(|b| b.is_ascii_digit()))
    {
        words.pop();
    }
    if let Some(last) = words.last_mut() {
        let kept = last.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        last.truncate(kept);
    }
    words
}

#[cfg(test)]
mod tests;
