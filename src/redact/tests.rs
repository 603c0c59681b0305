//! What is redacted, and what is left alone.

use super::*;
use proptest::prelude::*;

fn strings(args: &[&str]) -> Vec<String> {
    args.iter().map(|s| (*s).to_owned()).collect()
}

#[test]
fn names_of_secrets_are_distinguished_from_names_about_tokens() {
    for name in [
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "VLLM_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "DB_PASSWORD",
        "apiKey",
        "--api-key",
        "--hf-token",
        "WANDB_KEY",
        "PGPASSWORD_SECRET",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "HTTP_AUTH",
        "MYSQL_PWD",
        "DB_PASS",
        "GITHUB_PAT",
        "TS_AUTHKEY",
        "SESSION_COOKIE",
        "AZURE_CREDS",
        "MY_JWT",
        "TOKEN_2",
        "NGC_CLI_API_KEY",
        "PGPASSWORD",
        "PGPASSWORD_OLD",
        "SSHPASS",
        "HFTOKEN",
        "HFToken",
        "accesstoken",
        "--hftoken",
        "dbpassword",
        "clientsecret",
        "OPENAIAPIKEY",
        "keypassphrase",
    ] {
        assert!(is_secret_name(name), "{name}");
    }
    for name in [
        "VLLM_TOKENIZER",
        "TOKENIZERS_PARALLELISM",
        "MAX_TOKENS",
        "KV_CACHE_KEY_DTYPE",
        "KV_CACHE_KEY",
        "EOS_TOKEN",
        "pad_token",
        "PWD",
        "PATH",
        "KEYBOARD",
        "SSH_AUTH_SOCK",
        "HF_TOKEN_PATH",
        "PASSWORD_FILE",
        "max_num_batched_tokens",
        "bos_token_id",
        "AUTHOR",
        "GPG_KEY",
        "MONKEY",
        "",
        "--",
        "MAX_TOTAL_TOKENS",
        "max_tokens",
        "num_tokens",
        "stop_token",
        "stop_token_ids",
        "special_token",
        "image_token",
        "tokenizer",
        "eostoken",
        "PadToken",
        "tiktoken",
        "detoken",
        "PGPASSFILE",
        "BYPASS",
    ] {
        assert!(!is_secret_name(name), "{name}");
    }
}

#[test]
fn shapes_are_redacted_without_knowing_the_value() {
    let r = Redactor::default();
    for (text, expected) in [
        (
            "login with hf_AbCdEfGhIjKlMnOpQrStUv ok",
            "login with [redacted] ok",
        ),
        ("key sk-proj-0123456789abcdefXYZ", "key [redacted]"),
        ("AKIAIOSFODNN7EXAMPLE", "[redacted]"),
        (
            "Authorization: Bearer abc.def-123",
            "Authorization: Bearer [redacted]",
        ),
        (
            "vllm serve m --api-key s3cr3t --port 8000",
            "vllm serve m --api-key [redacted] --port 8000",
        ),
        ("--hf-token=xyzxyz", "--hf-token=[redacted]"),
        (
            "['--api-key', 'abc', '--port']",
            "['--api-key', '[redacted]', '--port']",
        ),
        ("https://user:pw@host/x", "https://[redacted]@host/x"),
        (
            "GET http://h/x?token=abc&n=1",
            "GET http://h/x?token=[redacted]&n=1",
        ),
        (
            "non-default args: {'model': 'm', 'api_key': ['abcdef'], 'seed': 0}",
            "non-default args: {'model': 'm', 'api_key': ['[redacted]'], 'seed': 0}",
        ),
        ("HF_TOKEN=abcdef python x", "HF_TOKEN=[redacted] python x"),
        ("PGPASSWORD=abcdef psql", "PGPASSWORD=[redacted] psql"),
        ("SSHPASS=abcdef ssh h", "SSHPASS=[redacted] ssh h"),
        (
            "HFTOKEN=abcdef HFTOKEN = x",
            "HFTOKEN=[redacted] HFTOKEN = [redacted]",
        ),
        ("'accesstoken': 'abcdef'", "'accesstoken': '[redacted]'"),
        ("--hftoken abcdef", "--hftoken [redacted]"),
        ("dbpassword=abcdef;x", "dbpassword=[redacted];x"),
        (r#"{"password": "x y"}"#, r#"{"password": "[redacted]"}"#),
    ] {
        assert_eq!(r.redact_text(text), expected);
    }
}

#[test]
fn lines_of_engines_about_tokens_are_kept() {
    let r = Redactor::default();
    for text in [
        "INFO 08-20 loggers.py:123] Engine 000: Avg prompt throughput: 12.3 tokens/s, Avg generation throughput: 4.5 tokens/s",
        "print_info: BOS token        = 1 '<s>'",
        "args: Namespace(api_key=None, hf_token=None, max_num_batched_tokens=8192, skip_tokenizer_init=False)",
        "GPU KV cache size: 1,234,560 tokens",
        "'api_key': None, 'pad_token': '<pad>', eos_token='</s>'",
        "Using cache key: prefix_abc",
        "Bearer authentication is enabled",
        "tcp://127.0.0.1:5555 rank=0 world_size=1",
        "Starting vLLM API server 0 on http://0.0.0.0:8000",
    ] {
        assert!(
            matches!(r.redact_text(text), Cow::Borrowed(_)) || r.redact_text(text) == text,
            "{}",
            r.redact_text(text)
        );
    }
}

#[test]
fn known_values_go_wherever_they_occur() {
    let mut secrets = Secrets::gather_from(
        [
            ("HF_TOKEN", "tok-abc-1"),
            ("MODE", "fast"),
            ("X_AUTH", "enabled"),
        ],
        &strings(&["serve", "--api-key", "k3yk3y", "--port", "1"]),
    );
    secrets.add_secret("HF_TOKEN", "tok-abc-1");
    assert_eq!(secrets.api_key(), Some("k3yk3y"));
    let r = secrets.redactor();
    assert_eq!(
        r.redact_text("x tok-abc-1/k3yk3y enabled fast"),
        "x [redacted]/[redacted] enabled fast"
    );
    assert!(!format!("{secrets:?}{r:?}").contains("k3yk3y"));
}

#[test]
fn arguments_lose_their_secrets_in_both_spellings() {
    let r = Redactor::default();
    let argv = strings(&[
        "vllm",
        "serve",
        "m",
        "--api-key",
        "abc",
        "--hf-token=q",
        "--seed",
        "3",
        "HF_TOKEN=z",
        "--enable-auth",
        "--port",
    ]);
    let expected = strings(&[
        "vllm",
        "serve",
        "m",
        "--api-key",
        REDACTED,
        "--hf-token=[redacted]",
        "--seed",
        "3",
        "HF_TOKEN=[redacted]",
        "--enable-auth",
        "--port",
    ]);
    assert_eq!(r.redact_argv(&argv), expected);
    assert_eq!(r.redact_setting("HF_TOKEN", "x"), REDACTED);
    assert_eq!(
        r.redact_setting("URL", "http://a:b@c"),
        "http://[redacted]@c"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn known_secrets_never_survive(secret in "[A-Za-z0-9+/=_.-]{8,40}", before in ".{0,40}", after in ".{0,40}") {
        prop_assume!(!REDACTED.contains(&secret) && !is_ordinary(&secret));
        let r = Redactor::new([secret.clone()]);
        let text = format!("{before}{secret}{after}");
        prop_assert!(!r.redact_text(&text).contains(&secret));
    }
}

proptest! {
    #[test]
    fn redaction_is_idempotent(text in r#"(\PC{0,10}|--api-key |token=|Bearer |://a:b@|hf_[a-z0-9]{16}|[ '":=,&\[\]-]|SECRET9){0,12}"#) {
        let r = Redactor::new(["SECRET9".to_owned()]);
        let once = r.redact_text(&text).into_owned();
        prop_assert_eq!(r.redact_text(&once), once.as_str());
    }

    #[test]
    fn text_without_anchors_is_not_touched(text in "[0-9 .,%()/]{0,200}") {
        prop_assert!(matches!(Redactor::default().redact_text(&text), Cow::Borrowed(_)));
    }
}

/// Values that cannot be real, of every kind that is known by its look.
fn tokens() -> Vec<String> {
    let long = "Q7xPlimsoll0TestSecret9vB2kLmN4rT6wY8zA1cE3gI5";
    let jwt = [
        "eyJhbGciOiJIUzI1NiJ9",
        "eyJzdWIiOiJwbGltc29sbCJ9",
        "Q7xPlimsoll0TestSecret",
    ]
    .join(".");
    vec![
        format!("hf_{}", &long[..34]),
        format!("sk-{long}"),
        format!("sk-proj-{}-{}_{}", &long[..20], &long[20..30], &long[30..]),
        format!("sk-ant-api03-{long}"),
        ["AK", "IAQ7XPLIMSOLL0TEST"].concat(),
        format!("ghp_{}", &long[..36]),
        format!("github_pat_{}_{}", &long[..22], &long[22..]),
        format!("glpat-{}", &long[..20]),
        format!("AI{}{}", "za", &long[..35]),
        format!("xoxb-{}-{}", "123456789012", &long[..24]),
        format!("nvapi-{long}"),
        format!("ya29.{long}"),
        jwt,
    ]
}

/// What stands around a secret in logs, replies and command lines.
fn dressed(token: &str) -> Vec<String> {
    vec![
        token.to_owned(),
        format!("\x1b[32m{token}\x1b[0m"),
        format!("\x1b[1;38;5;208mkey\x1b[0m=\x1b[4m{token}"),
        format!("{}\x1b[0m{}", &token[..9], &token[9..]),
        format!("line\\n{token}\\n"),
        format!("\\u001b[32m{token}\\u001b[0m"),
        format!("{{\"a\":\"{{\\\"k\\\": \\\"{token}\\\"}}\"}}"),
        format!("GET /v1/models?x=%20{token}&n=1"),
        format!("a%3D{token}%26b"),
        format!("['--x', '{token}']"),
        format!("Namespace(x='{token}', y=1)"),
        format!("<b>{token}</b>"),
        format!("model:{token},"),
        format!("/models/{token}/config.json"),
    ]
}

#[test]
fn tokens_are_known_by_their_look_whatever_stands_around() {
    let redactor = Redactor::default();
    for token in tokens() {
        for text in dressed(&token) {
            let clean = redactor.redact_text(&text);
            // No half of it either.
            for part in [&token[..], &token[token.len() - 12..]] {
                assert!(!clean.contains(part), "{text:?} became {clean:?}");
            }
            assert_eq!(redactor.redact_text(&clean), clean, "again");
        }
        // The last net, before a document is written, does without names and colours.
        for text in [
            token.clone(),
            format!("{{\"x\":[\"a {token}\"]}}"),
            format!("x,{token}\n"),
        ] {
            assert!(!redact_distinct(&text).contains(&token[4..]), "{text:?}");
        }
    }
}

#[test]
fn the_last_net_leaves_a_document_what_it_is() {
    let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n";
    for token in tokens()
        .into_iter()
        .chain(["http://user:secretly@host/".to_owned(), key.to_owned()])
    {
        let document = serde_json::json!({
            "a": [token, format!("\n{token}\""), format!("\\{token}\\")],
            token.clone(): {"end": "-----END PRIVATE KEY-----", "api_key": "--api-key"},
        });
        for text in [document.to_string(), format!("{document:#}")] {
            let clean = redact_distinct(&text);
            let read: serde_json::Value = serde_json::from_str(&clean).expect(&clean);
            assert_eq!(read.as_object().map(|o| o.len()), Some(2));
            assert_eq!(read["a"].as_array().map(Vec::len), Some(3));
            assert!(clean.contains("--api-key"));
        }
    }
}

#[test]
fn credentials_are_known_by_what_stands_before_them() {
    let secret = "pl1ms0ll+Te/st=word";
    let redactor = Redactor::default();
    for text in [
        format!("Authorization: Basic {}", base64("user:pl1ms0llTestword")),
        format!("authorization: token {secret}"),
        format!("'Authorization': 'Bearer {secret}'"),
        format!("{{\\\"authorization\\\": \\\"Bearer {secret}\\\"}}"),
        format!("Proxy-Authorization: Digest {secret}"),
        format!("header=Authorization%3A%20Bearer%20{secret}"),
        format!("X-Api-Key: {secret}"),
        format!("Set-Cookie: session={secret}; Path=/; csrf={secret}"),
        format!("postgres://me:{secret}@db/x").replace("/st", "st"),
        format!("https:\\/\\/me:{}@db", "pl1ms0llTestword"),
        format!("url=http%3A%2F%2Fme%3A{}%40db", "pl1ms0llTestword"),
        format!("http://me:p@{}@db:80/", "pl1ms0llTestword"),
        format!("https://me@name:{}@db", "pl1ms0llTestword"),
        format!("--api-key {secret} --port 1"),
        format!("--hf-token={secret}"),
        format!("--password \"{secret}\""),
        format!("[\"--api-key\", \"{secret}\"]"),
        format!("{{\\\"args\\\": [\\\"--api-key\\\", \\\"{secret}\\\"]}}"),
        format!("{{'api_key': ['first1', '{secret}']}}"),
        format!("{{\\\"api_key\\\": \\\"{secret}\\\"}}"),
        format!("aws_secret_access_key = {secret}"),
        format!("DB_PASSWORD={secret} python x"),
        format!("passphrase: '{secret}'"),
        format!("AccountName=a;AccountKey={secret};x=1"),
        format!("-----BEGIN RSA PRIVATE KEY-----\n{secret}\n-----END RSA PRIVATE KEY----- end"),
        format!(
            "\"-----BEGIN OPENSSH PRIVATE KEY-----\\n{}\\n\"",
            "pl1ms0llTestword"
        ),
    ] {
        let clean = redactor.redact_text(&text);
        for part in ["pl1ms0ll", "Testword", "word", "dXNlcjpw"] {
            assert!(
                !clean
                    .replace("PASSWORD", "")
                    .replace("password", "")
                    .contains(part),
                "{text} became {clean}"
            );
        }
        assert_eq!(redactor.redact_text(&clean), clean, "again");
    }
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[test]
fn words_that_only_resemble_secrets_stay() {
    let redactor = Redactor::default();
    let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    for text in [
        "disk-usage-of-the-cache task-0123456789abcdefghij risk-0123456789abcdefghij",
        "/models/sk-learn-classifier-v2 and sk-mixtral-8x7b-instruct",
        "Qwen/Qwen2.5-0.5B-Instruct meta-llama/Llama-3.1-8B hf_transformers hf_config.json",
        &format!("sha256:{hash} image id {hash} revision {}", &hash[..40]),
        "GPU-3f9f0c1e-1b2d-4b7a-9f55-0a1b2c3d4e5f MIG-1a2b3c4d",
        "eyJ is how many a JSON in base64 begins",
        "basic settings: basic authentication; Basic scheduling of blocks",
        "ssh://me@node:2222 git@github.com:a/b http://host:8000/v1 unix:///run/docker.sock",
        "set HF_TOKEN; authorization: required; Authorization is needed",
        "num_tokens=5 max_tokens: 128 'bos_token': '<s>' token_ids=[1, 2]",
        "the cookie crumbles: a=b",
        "keyboard: us; hotkey=F1; cache_key: 0a1b2c3d4e5f",
        "2026-11-22T08:00:00Z --served-model-name a/b --dtype bfloat16",
    ] {
        assert_eq!(redactor.redact_text(text), text);
        assert_eq!(redact_distinct(text), text);
    }
    // Messages to users name flags.
    let hint = "pass --api-key KEY, or set HF_TOKEN=...";
    assert_eq!(redact_distinct(hint), hint);
}

#[test]
fn a_known_secret_goes_in_every_spelling() {
    let secret = "pw Q7x/Plim'sö&\"ll\\9";
    let redactor = Redactor::new([secret.to_owned()]);
    let json = serde_json::to_string(secret).expect("JSON");
    let twice = serde_json::to_string(&json).expect("JSON");
    for text in [
        format!("is {secret}."),
        "url?p=pw%20Q7x%2FPlim%27s%C3%B6%26%22ll%5C9&n".to_owned(),
        "url?p=pw+Q7x%2fPlim%27s%c3%b6%26%22ll%5c9&n".to_owned(),
        json,
        twice,
        format!("x {}", base64(&format!("user:{secret}"))),
        format!("x {}", base64(&format!("someone:{secret}"))),
        format!("x {}", base64(secret)),
        "<p>pw Q7x/Plim&#39;sö&amp;&quot;ll\\9</p>".to_owned(),
        "<p>pw Q7x/Plim&#x27;sö&amp;&quot;ll\\9</p>".to_owned(),
        "url?p=pw%20Q7x/Plim%27s%C3%B6%26%22ll%5C9&n".to_owned(),
        "url?p=pw%20Q7x%2FPlim's%C3%B6%26%22ll%5C9&n".to_owned(),
        r#""pw Q7x/Plim's\u00f6&\"ll\\9""#.to_owned(),
        r#"{"a": "\"pw Q7x/Plim's\\u00f6&\\\"ll\\\\9\""}"#.to_owned(),
        r#"'pw Q7x/Plim\'s\xf6&"ll\\9'"#.to_owned(),
        r#"b'pw Q7x/Plim\'s\xc3\xb6&"ll\\9'"#.to_owned(),
    ] {
        let clean = redactor.redact_text(&text);
        assert!(clean.contains(REDACTED), "{text} became {clean}");
        assert!(
            !clean.contains("Plim") && !clean.contains("UGxpb"),
            "{text} became {clean}"
        );
    }
}

/// How programs write a text that is not theirs: each by its own rules, repeated here.
fn spellings(secret: &str) -> Vec<(&'static str, String)> {
    let bytes = |keep: &dyn Fn(u8) -> bool, each: &dyn Fn(u8) -> String| -> String {
        let one = |b: u8| {
            if keep(b) {
                char::from(b).to_string()
            } else {
                each(b)
            }
        };
        secret.bytes().map(one).collect()
    };
    let chars = |each: &dyn Fn(char) -> Option<String>| -> String {
        let one = |c: char| each(c).unwrap_or_else(|| c.to_string());
        secret.chars().map(one).collect()
    };
    let upper = |b: u8| format!("%{b:02X}");
    let word = |b: u8| b.is_ascii_alphanumeric();
    let among = |kept: &'static str| move |b: u8| word(b) || kept.as_bytes().contains(&b);
    let json = serde_json::to_string(secret).expect("JSON");
    let json = json[1..json.len() - 1].to_owned();
    let units = |text: &str| -> String {
        let mut out = String::new();
        for c in text.chars() {
            if c.is_ascii() {
                out.push(c)
            } else {
                c.encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|u| out.push_str(&format!("\\u{u:04x}")))
            }
        }
        out
    };
    let html = |quotes: bool, apostrophe: &str| {
        let text = secret
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        if quotes {
            text.replace('"', "&quot;").replace('\'', apostrophe)
        } else {
            text
        }
    };
    let go = json
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e");
    let hex: String = secret.bytes().map(|b| format!("{b:02x}")).collect();
    vec![
        ("as it is", secret.to_owned()),
        ("url, quote", bytes(&among("-._~/"), &upper)),
        ("url, quote of everything", bytes(&among("-._~"), &upper)),
        (
            "url, lower case",
            bytes(&among("-._~"), &|b| format!("%{b:02x}")),
        ),
        (
            "url, form",
            bytes(&among("-._~ "), &upper).replace(' ', "+"),
        ),
        (
            "url, encodeURIComponent",
            bytes(&among("-._~!*'()"), &upper),
        ),
        (
            "url, encodeURI",
            bytes(&among("-._~!*'();/?:@&=+$,#"), &upper),
        ),
        ("json", json.clone()),
        ("json, ascii", units(&json)),
        ("json, slashes", json.replace('/', "\\/")),
        ("json, slash by its number", json.replace('/', "\\u002f")),
        ("json, Go", go.clone()),
        ("html, quotes", html(true, "&#x27;")),
        ("html, Go", html(true, "&#39;").replace("&quot;", "&#34;")),
        ("html, no quotes", html(false, "")),
        ("html, slashes", html(true, "&#x27;").replace('/', "&#x2F;")),
        ("shell", secret.replace('\'', "'\"'\"'")),
        ("shell, backslash", secret.replace('\'', "'\\''")),
        ("yaml", secret.replace('\'', "''")),
        (
            "C, octal",
            chars(&|c| match c {
                '"' | '\\' => Some(format!("\\{c}")),
                c if c.is_ascii() => None,
                c => Some(
                    c.to_string()
                        .bytes()
                        .map(|b| format!("\\{b:03o}"))
                        .collect(),
                ),
            }),
        ),
        (
            "C, hex",
            chars(&|c| match c {
                '"' | '\\' => Some(format!("\\{c}")),
                c if c.is_ascii() => None,
                c => Some(
                    c.to_string()
                        .bytes()
                        .map(|b| format!("\\x{b:02x}"))
                        .collect(),
                ),
            }),
        ),
        (
            "quoted-printable",
            bytes(&|b| (b' '..=b'~').contains(&b) && b != b'=', &|b| {
                format!("={b:02X}")
            }),
        ),
        ("hex", hex.clone()),
        ("hex, upper case", hex.to_uppercase()),
        ("base64", base64(secret)),
        ("base64 with a name", base64(&format!("me:{secret}"))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_spelling_of_a_known_secret_passes_nor_one_in_another(
        secret in "[a-zA-Z0-9]{3}[ -~äß€🔑]{6,14}[a-zA-Z0-9]{3}",
    ) {
        let redactor = Redactor::new([secret.clone()]);
        for (outer_name, _) in spellings("") {
            for (inner_name, inner) in spellings(&secret) {
                let twice = spellings(&inner).into_iter().find(|s| s.0 == outer_name);
                let text = format!("<{}>", twice.expect("each has a name").1);
                let clean = redactor.redact_text(&text);
                prop_assert!(
                    clean.contains(REDACTED) && clean.len() < REDACTED.len() + 32,
                    "{inner_name} in {outer_name}: {text:?} became {clean:?}"
                );
            }
        }
    }
}

#[test]
fn a_carriage_return_within_a_secret_hides_nothing() {
    let token = "hf_abcdefghijklmnopqrstuv";
    let redactor = Redactor::new(["pl1ms0ll-word".to_owned()]);
    for text in ["hf_abcdefgh\rijklmnopqrstuv", "pl1ms\r0ll-word", token] {
        let line = format!("is {text} so");
        assert_eq!(
            redactor.redact_text(&line),
            format!("is {REDACTED} so"),
            "{text:?}"
        );
    }
    assert_eq!(redactor.redact_text("10%\r20%\r30%"), "10%\r20%\r30%");
}

#[test]
fn passwords_of_urls_in_settings_are_known() {
    let secrets = Secrets::gather_from(
        [("DATABASE_URL", "postgres://me:pl1ms0llpw@db/x")],
        &strings(&[
            "serve",
            "--proxy",
            "http://u:0therpw9@h",
            "--api-key",
            "key-one",
            "key-two",
            "--port",
            "1",
        ]),
    );
    let redactor = secrets.redactor();
    assert_eq!(
        redactor.redact_text("pl1ms0llpw 0therpw9 key-one key-two"),
        "[redacted] [redacted] [redacted] [redacted]"
    );
    let secrets = Secrets::gather_from(
        [("DATABASE_URL", "postgres://me@here:p%40ssw0rd%2f9@db/x")],
        &[],
    );
    assert_eq!(
        secrets.redactor().redact_text("p%40ssw0rd%2f9 p@ssw0rd/9"),
        "[redacted] [redacted]"
    );
}

#[test]
fn what_a_line_for_a_shell_gives_to_names_of_secrets_is_known() {
    let script = "export DB_PASSWORD='pl1ms0ll-one' KEY_FILE=/run/key; \
                  exec vllm serve org/model --api-key \"pl1ms0ll-two\" --max-num-batched-tokens 8192";
    let secrets = Secrets::gather_from(
        [("EXTRA_ARGS", "--hf-token pl1ms0ll-three --port 8000")],
        &strings(&["sh", "-c", script]),
    );
    assert_eq!(secrets.api_key(), Some("pl1ms0ll-two"));
    assert_eq!(
        secrets.redactor().redact_text(
            "pl1ms0ll-one, pl1ms0ll-two and pl1ms0ll-three of org/model, /run/key, 8192"
        ),
        "[redacted], [redacted] and [redacted] of org/model, /run/key, 8192"
    );
    // What the shell puts there is not known from the line.
    let secrets = Secrets::gather_from(
        [("VLLM_API_KEY", "pl1ms0ll-four")],
        &strings(&["sh", "-c", "vllm serve m --api-key \"$VLLM_API_KEY\""]),
    );
    assert_eq!(secrets.api_key(), Some("pl1ms0ll-four"));
}

#[test]
fn each_key_after_the_flag_goes_whatever_its_alphabet() {
    let argv = strings(&[
        "serve",
        "--api-key",
        "one",
        "pl1m/s0ll+two==",
        "--port",
        "1",
    ]);
    assert_eq!(
        Redactor::default().redact_argv(&argv),
        strings(&["serve", "--api-key", REDACTED, REDACTED, "--port", "1"])
    );
    let redactor = Secrets::gather_from([], &argv).redactor();
    assert_eq!(redactor.redact_text("is pl1m/s0ll+two=="), "is [redacted]");
}

#[test]
fn a_private_key_that_is_printed_line_by_line_goes() {
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDQ7xPlimsoll00";
    let redactor = Redactor::default();
    let mut key = KeyBlock::default();
    let mut line = |text: &str| {
        key.filter_line(text, redactor.redact_text(text))
            .into_owned()
    };
    assert_eq!(line(&format!("digest {body}")), format!("digest {body}"));
    assert!(line("INFO x] -----BEGIN PRIVATE KEY-----").starts_with("INFO x] "));
    assert_eq!(line(body), REDACTED);
    assert_eq!(
        line(&format!("INFO y] {body}")),
        format!("INFO y] {REDACTED}")
    );
    assert_eq!(
        line("Loading weights took 1.5 seconds"),
        "Loading weights took 1.5 seconds"
    );
    assert_eq!(line("Q7xPlim="), REDACTED);
    line("-----END PRIVATE KEY-----");
    assert_eq!(line(body), body);
    // Within lines of JSON.
    line(r#"{"m":"-----BEGIN PRIVATE KEY-----"}"#);
    assert_eq!(
        line(&format!(r#"{{"l":"info","m":"{body}\n","n":1}}"#)),
        r#"{"l":"info","m":"[redacted]\n","n":1}"#
    );
    assert_eq!(line(&format!("['{body}',")), "['[redacted]',");
    assert_eq!(
        line(r#"{"l":"info","m":"started"}"#),
        r#"{"l":"info","m":"started"}"#
    );
    assert_eq!(line(r#"{"m": "Q7xPlim=\n"}"#), r#"{"m": "[redacted]\n"}"#);
    line(r#"{"m":"-----END PRIVATE KEY-----"}"#);
    // As a value that is known, of many lines.
    let known = Redactor::new([format!(
        "-----BEGIN X-----\n{body}\n{body}Z\n-----END X-----\n"
    )]);
    assert_eq!(known.redact_text(&format!("a {body} b")), "a [redacted] b");
}

proptest! {
    #[test]
    fn tokens_never_survive(
        token in proptest::sample::select(tokens()),
        before in "[ -~]{0,30}[ =:'\"/,]",
        after in "([ '\",&)\\\\<][ -~]{0,30})?",
        dress in 0..14usize,
    ) {
        let text = format!("{before}{}{after}", dressed(&token)[dress]);
        let clean = Redactor::default().redact_text(&text).into_owned();
        prop_assert!(!clean.contains(&token), "{text:?} became {clean:?}");
    }

    #[test]
    fn hashes_and_names_survive(text in "([a-f0-9]{8,64}|[A-Z][a-z]{2,9}-[0-9.]{1,3}[Bb]|[a-z]{1,9}/[a-z0-9-]{1,20}| ){0,12}") {
        prop_assume!(!text.contains("sk-"));
        let redactor = Redactor::default();
        prop_assert_eq!(redactor.redact_text(&text), text.as_str());
    }
}
