//! Which names of settings say that their value is a secret.

/// Words that make a name a secret's, wherever they are in it.
const SECRET_WORDS: &str = "SECRETS CREDENTIAL CREDENTIALS AUTHTOKEN AUTHKEY COOKIE COOKIES CREDS \
    JWT PAT DSN ACCESSKEY SSHPASS";
/// Words before a final `KEY` that is not secret.
const BEFORE_PLAIN_KEY: &str = "CACHE PUBLIC SORT PRIMARY FOREIGN PARTITION ROUTING HASH GPG INDEX \
    KV LAYER METRIC ENGINE CONFIG";
/// Words before a final `TOKEN` of a model's vocabulary.
const BEFORE_VOCABULARY_TOKEN: &str = "PAD EOS BOS UNK SEP CLS MASK STOP NEXT PER SPECIAL EOT EOM \
    EOG NL FIM IMAGE AUDIO VIDEO START END FIRST LAST NEW DECODER PREFIX SUFFIX MIDDLE THINK BEGIN";

/// Whether a setting with this name (environment variable, flag, label, key) holds a secret.
///
/// Goes by whole words, and by how a word ends where several run together: `HF_TOKEN`, `apiKey` and
/// `PGPASSWORD` do, `MAX_TOKENS`, `VLLM_TOKENIZER`, `EOS_TOKEN`, `tiktoken` and `KV_CACHE_KEY_DTYPE`
/// do not.
pub fn is_secret_name(name: &str) -> bool {
    let words = words_of(name);
    let Some(last) = words.last() else {
        return false;
    };
    let has = |w: &str| words.iter().any(|x| x == w);
    let pair = |a: &str, b: &str| words.windows(2).any(|w| w[0] == a && w[1] == b);
    // Words for the location or lifetime of a secret; such a value is not secret.
    const ABOUT: &[&str] = &[
        "FILE", "PATH", "DIR", "NAME", "ENABLED", "TYPE", "MODE", "LEN", "LENGTH", "SIZE", "COUNT",
        "LIMIT", "REQUIRED", "METHOD", "SOCK", "PROVIDER", "HEADER", "DTYPE", "URL", "TTL",
    ];
    if ABOUT.contains(&last.as_str()) {
        return false;
    }
    // `PGPASSWORD`, `clientsecret`.
    const ENDINGS: &[&str] = &["PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "APIKEY"];
    let ends = |w: &String| ENDINGS.iter().any(|end| w.ends_with(end));
    if SECRET_WORDS.split(' ').any(has)
        || words.iter().any(ends)
        || pair("API", "KEY")
        || pair("API", "KEYS")
        || pair("ACCESS", "KEY")
        || pair("PRIVATE", "KEY")
        || pair("CONNECTION", "STRING")
    {
        return true;
    }
    let before = words
        .len()
        .checked_sub(2)
        .map(|i| words[i].as_str())
        .unwrap_or_default();
    match last.as_str() {
        "TOKEN" => !is_of_a_vocabulary(before),
        "KEY" => !BEFORE_PLAIN_KEY.split(' ').any(|word| word == before),
        "AUTH" | "AUTHORIZATION" => true,
        "PWD" | "PASS" => words.len() > 1,
        // Run together: `HFTOKEN`, and `eostoken`.
        word => word.strip_suffix("TOKEN").is_some_and(|before| {
            !is_of_a_vocabulary(before) && !matches!(before, "TIK" | "SUB" | "DE" | "RE" | "MULTI")
        }),
    }
}

/// Whether this word before `TOKEN` in a name means a token of a model's vocabulary (`EOS_TOKEN`), and not a secret.
fn is_of_a_vocabulary(before: &str) -> bool {
    BEFORE_VOCABULARY_TOKEN
        .split(' ')
        .any(|word| word == before)
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
