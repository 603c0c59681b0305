//! Text that looks like a secret: tokens by their prefix, credentials by their context.

use super::REDACTED;
use super::names::is_secret_name;
use aho_corasick::AhoCorasick;
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use memchr::memmem;
use regex::{Captures, Regex};
use std::borrow::Cow;
use std::sync::LazyLock;

/// Removes secrets that are recognised without context. Usable on whole documents: names of flags
/// and settings are kept, and so is the syntax of JSON, HTML and CSV.
pub fn redact_distinct(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    if ANCHORS.is_match(&*text) {
        replace_distinct(&mut text);
    }
    text
}

/// Output bytes for a file or a terminal without recognisable secrets: the last safeguard.
/// Collected data has passed the redactor already; other input (a user's file, a response of a
/// model hub) has not. Binary data (a picture) is kept.
pub fn redact_bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(bytes).map(redact_distinct) {
        Ok(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
        _ => Cow::Borrowed(bytes),
    }
}

/// Whether any shape can be in the text.
pub(super) fn may_match(text: &str) -> bool {
    ANCHORS.is_match(text)
}

/// Takes out all that looks like a secret, also by the name before it.
pub(super) fn replace_shapes(text: &mut Cow<'_, str>) {
    replace_distinct(text);
    if memmem::find(text.as_bytes(), b"=").is_some() {
        apply(text, &URL_PARAMETER, |c| format!("{}{REDACTED}", &c[1]));
    }
    apply(text, &BEARER, |c| {
        if is_prose_after_bearer(&c[2]) {
            c[0].to_owned()
        } else {
            format!("{}{REDACTED}", &c[1])
        }
    });
    apply(text, &BASIC, |c| {
        if is_user_and_password(&c[2]) {
            format!("{}{REDACTED}", &c[1])
        } else {
            c[0].to_owned()
        }
    });
    apply(text, &HEADER, redact_header);
    apply(text, &COOKIE, |c| format!("{}{REDACTED}", &c[1]));
    if memmem::find(text.as_bytes(), b"-").is_some() {
        apply(text, &FLAG, redact_flag);
    }
    apply(text, &ASSIGNMENT, redact_assignment);
}

fn replace_distinct(text: &mut Cow<'_, str>) {
    apply(text, &SHAPES, |_| REDACTED.to_owned());
    apply(text, &SK, |c| {
        if is_hyphenated_words(&c[2]) {
            c[0].to_owned()
        } else {
            format!("{}{REDACTED}", &c[1])
        }
    });
    if memmem::find(text.as_bytes(), b"PRIVATE KEY").is_some() {
        apply(text, &PRIVATE_KEY, |_| REDACTED.to_owned());
    }
    if memmem::find(text.as_bytes(), b":").is_some() {
        apply(text, &URL_USER, |c| format!("{}{REDACTED}@", &c[1]));
    }
    if memmem::find(text.as_bytes(), b"%40").is_some() {
        apply(text, &URL_USER_ENCODED, |c| {
            format!("{}{REDACTED}%40", &c[1])
        });
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

/// Every text that matches any shape contains one of these. Most log lines contain none.
static ANCHORS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let words = r#"
        hf_ sk- ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- nvapi- xox xapp- akia asia aiza
        gocspx- ya29. npm_ pypi- dckr_pat_ slack.com eyj bearer basic cookie :// :\/\/ %3a%2f%2f
        key token= token%3 token' token" token\ _token -token token: sshpass passw pwd secret
        credential auth passphrase dsn jwt connection"#;
    let words = words.split_ascii_whitespace().chain(["token "]);
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build(words)
        .expect("constant words")
});

// No word boundary before these: a colour (`\x1b[32m`), an escape (`\n`) or an encoded blank (`%20`)
// ends in a letter or a digit.
static SHAPES: LazyLock<Regex> = LazyLock::new(|| {
    compiled(concat!(
        r"hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}",
        r"|glpat-[A-Za-z0-9_-]{16,}|nvapi-[A-Za-z0-9_-]{16,}|xox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"|xapp-[A-Za-z0-9-]{16,}|hooks\.slack\.com/services/[A-Za-z0-9/]{8,}",
        r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|GOCSPX-[A-Za-z0-9_-]{20,}",
        r"|ya29\.[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{16,}",
        r"|dckr_pat_[A-Za-z0-9_-]{20,}",
        r"|eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){2,4}",
    ))
});

// Words end in `sk` too (`disk-`, `task-`), so here something must stand before it.
static SK: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"(^|[^A-Za-z0-9]|\\[nrt]|%[0-9A-Fa-f]{2}|\[[0-9;]*m|\\u00[0-9a-fA-F]{2})sk-([A-Za-z0-9_-]{16,})",
    )
});

// With its end, or as far as what follows can be a part of it. No quote: a document stays one.
static PRIVATE_KEY: LazyLock<Regex> = LazyLock::new(|| {
    compiled(concat!(
        r#"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^"]*?-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"#,
        r"|-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=\s]|\\[nrt])*",
    ))
});

static URL_USER: LazyLock<Regex> =
    LazyLock::new(|| compiled(r#"(:(?:\\?/){2})[^/\s:'"\\<>]*:[^/\s'"\\<>]*@"#));

static URL_USER_ENCODED: LazyLock<Regex> =
    LazyLock::new(|| compiled(r#"(?i)(%3a%2f%2f)[^/\s'"<>]*?%3a[^/\s'"<>]*?%40"#));

static URL_PARAMETER: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r#"(?i)((?:[?&]|%3f|%26)(?:[a-z0-9_-]*(?:token|key|secret|signature|password|sig|auth)|x-amz-[a-z-]+)=)[^&\s'"]+"#,
    )
});

static BEARER: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"(?i)(bearer(?:\s|%20|\+)+)([A-Za-z0-9._~+/=-]{6,})"));

static BASIC: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"(?i)(basic(?:\s|%20|\+)+)([A-Za-z0-9+/=_-]{6,})"));

static HEADER: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r#"(?i)(authorization["'\\]*\s*(?:[:=]|%3a)(?:\s|%20)*["'\\]*)((?:basic|bearer|token|digest|apikey|negotiate)(?:\s|%20|\+)+)?([A-Za-z0-9._~+/=%-]{6,})"#,
    )
});

static COOKIE: LazyLock<Regex> =
    LazyLock::new(|| compiled(r#"(?i)(cookie["'\\]*\s*:\s*["'\\]*)[A-Za-z0-9_.-]+=[^\r\n"'\\]+"#));

// The separator may be that of a printed list: `'--api-key', 'xyz'`.
static FLAG: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r#"(?i)(^|[\s'"\[,(])(--?[a-z][a-z0-9_-]*)(=|\s+|\\*['"]\s*,\s*\\*['"])("[^"]*"|'[^']*'|(?:\[redacted\]|[^\s'",\])\\])+)"#,
    )
});

// A value may be a list, quoted, or quoted in what is quoted itself: `{\"api_key\": \"xyz\"}`.
static ASSIGNMENT: LazyLock<Regex> = LazyLock::new(|| {
    compiled(concat!(
        r#"(?i)([a-z][a-z0-9_.-]*)((?:\\*["'])?\s*(?:[=:]|%3[ad])\s*)"#,
        r#"(\[(?:"[^"]*"|'[^']*')(?:\s*,\s*(?:"[^"]*"|'[^']*'))*"#,
        r#"|\\+"[^"\\]*\\+"|\[?"[^"]*"|\[?'[^']*'|(?:\[redacted\]|[^\s,;&)}\]"'])+)"#,
    ))
});

fn redact_flag(c: &Captures<'_>) -> String {
    if is_secret_flag(c) {
        format!("{}{}{}{REDACTED}", &c[1], &c[2], &c[3])
    } else {
        c[0].to_owned()
    }
}

fn is_secret_flag(c: &Captures<'_>) -> bool {
    let (flag, separator, value) = (&c[2], &c[3], &c[4]);
    let next_flag = separator != "=" && value.starts_with('-');
    !next_flag && is_secret_name(flag) && !is_no_value(value)
}

fn redact_header(c: &Captures<'_>) -> String {
    let scheme = c.get(2).map_or("", |m| m.as_str());
    let value = &c[3];
    // "authorization: required", "Authorization: Bearer".
    let word = value.bytes().all(|b| b.is_ascii_alphabetic());
    let prose = if scheme.is_empty() {
        word && value.len() < 16
    } else {
        is_prose_after_bearer(value)
    };
    if prose {
        c[0].to_owned()
    } else {
        format!("{}{scheme}{REDACTED}", &c[1])
    }
}

fn redact_assignment(c: &Captures<'_>) -> String {
    if !is_secret_assignment(c) {
        return c[0].to_owned();
    }
    let (name, separator, value) = (&c[1], &c[2], &c[3]);
    // What stood around the value stays: a bracket, a quote with its backslashes.
    let inner = value.trim_start_matches(['[', '\\']);
    let opening = if inner.starts_with(['"', '\'']) && value != REDACTED {
        &value[..value.len() - inner.len() + 1]
    } else {
        // An unquoted value has no bracket of its own to restore.
        ""
    };
    let closing = opening.trim_start_matches('[');
    format!("{name}{separator}{opening}{REDACTED}{closing}")
}

fn is_secret_assignment(c: &Captures<'_>) -> bool {
    let (name, separator, value) = (&c[1], &c[2], &c[3]);
    if !is_secret_name(name) || is_no_value(value) {
        return false;
    }
    // Prose: "key: value", "BOS token = 1", "auth: none" are no credentials.
    let one_word = !name.contains(['_', '-', '.']);
    let prose = one_word
        && matches!(
            name.to_ascii_lowercase().as_str(),
            "key" | "token" | "auth" | "authorization"
        );
    let quoted = separator.starts_with(['"', '\'', '\\']);
    !prose || quoted || value.len() >= 16
}

/// Reports the values that flags and assignments in a text give to secret names. A shell's value
/// for `$KEY` is not in the text.
pub(super) fn each_secret_setting(text: &str, mut take: impl FnMut(&str, &str)) {
    let flags = FLAG.captures_iter(text).filter(is_secret_flag);
    let flags = flags.map(|c| (c.extract::<4>().1[1], c.extract::<4>().1[3]));
    let assignments = ASSIGNMENT.captures_iter(text).filter(is_secret_assignment);
    let assignments = assignments.map(|c| (c.extract::<3>().1[0], c.extract::<3>().1[2]));
    for (name, value) in flags.chain(assignments) {
        let value = value.trim_matches(['[', '\\', '"', '\'']);
        if !value.starts_with(['$', '`']) {
            take(name, value);
        }
    }
}

pub(super) fn is_no_value(value: &str) -> bool {
    if value == REDACTED {
        return true;
    }
    let v = value
        .trim_start_matches(['[', '\\'])
        .trim_matches(['"', '\'', '\\']);
    v == REDACTED
        || matches!(
            v.to_ascii_lowercase().as_str(),
            "" | "none" | "null" | "true" | "false" | "undefined" | "unset"
        )
        || (v.len() < 6 && v.bytes().all(|b| b.is_ascii_digit()))
}

fn is_prose_after_bearer(word: &str) -> bool {
    let prose = "authentication authorization credentials tokens scheme format header security";
    let word = word.trim_end_matches(['.', ',']).to_ascii_lowercase();
    prose.split(' ').any(|w| w == word)
}

/// `learn-classifier-v2`, of a name that begins with `sk-`: words and short numbers. A key is longer
/// than any word.
fn is_hyphenated_words(body: &str) -> bool {
    body.split(['-', '_']).all(|part| {
        let word = part.len() <= 15 && part.bytes().all(|b| b.is_ascii_lowercase());
        word || part.len() <= 4
    })
}

/// Whether this is base64 of `user:password`, and no word.
fn is_user_and_password(text: &str) -> bool {
    let lenient =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decoded = [alphabet::STANDARD, alphabet::URL_SAFE]
        .iter()
        .find_map(|a| GeneralPurpose::new(a, lenient).decode(text).ok());
    decoded.is_some_and(|bytes| bytes.contains(&b':'))
}
