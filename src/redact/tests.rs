//! What is redacted, and what is left alone.

use super::*;
use proptest::prelude::*;

fn strings(args: &[&str]) -> Vec<String> {
    args.iter().map(|s| (*s).to_owned()).collect()
}

#[test]
fn names_of_secrets_are_told_from_names_about_tokens() {
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
        (r#"{"password": "x y"}"#, r#"{"password": "[redacted]"}"#),
    ] {
        assert_eq!(r.text(text), expected);
    }
}

#[test]
fn what_engines_say_about_tokens_stays() {
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
            matches!(r.text(text), Cow::Borrowed(_)) || r.text(text) == text,
            "{}",
            r.text(text)
        );
    }
}

#[test]
fn known_values_go_wherever_they_occur() {
    let mut secrets = Secrets::gather(
        [
            ("HF_TOKEN", "tok-abc-1"),
            ("MODE", "fast"),
            ("X_AUTH", "enabled"),
        ],
        &strings(&["serve", "--api-key", "k3yk3y", "--port", "1"]),
    );
    secrets.add("HF_TOKEN", "tok-abc-1");
    assert_eq!(secrets.api_key(), Some("k3yk3y"));
    let r = secrets.redactor();
    assert_eq!(
        r.text("x tok-abc-1/k3yk3y enabled fast"),
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
    assert_eq!(r.argv(&argv), expected);
    assert_eq!(r.setting("HF_TOKEN", "x"), REDACTED);
    assert_eq!(r.setting("URL", "http://a:b@c"), "http://[redacted]@c");
}

proptest! {
    #[test]
    fn known_secrets_never_survive(secret in "[A-Za-z0-9+/=_.-]{8,40}", before in ".{0,40}", after in ".{0,40}") {
        prop_assume!(!REDACTED.contains(&secret) && !is_ordinary(&secret));
        let r = Redactor::new([secret.clone()]);
        let text = format!("{before}{secret}{after}");
        prop_assert!(!r.text(&text).contains(&secret));
    }

    #[test]
    fn redaction_is_idempotent(text in r#"(\PC{0,10}|--api-key |token=|Bearer |://a:b@|hf_[a-z0-9]{16}|[ '":=,&\[\]-]|SECRET9){0,12}"#) {
        let r = Redactor::new(["SECRET9".to_owned()]);
        let once = r.text(&text).into_owned();
        prop_assert_eq!(r.text(&once), once.as_str());
    }

    #[test]
    fn text_without_anchors_is_not_touched(text in "[0-9 .,%()/]{0,200}") {
        prop_assert!(matches!(Redactor::default().text(&text), Cow::Borrowed(_)));
    }
}
