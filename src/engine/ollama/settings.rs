//! Parses and renders the variables of an Ollama server; it has no flags, and loads a model on request.

use super::recognise;
use crate::capture::ContainerFacts;
use crate::engine::ServerSettings;
use crate::engine::settings::variables;
use std::collections::BTreeMap;

/// Variables of other programs that change its memory.
const FOREIGN_ENV: &[&str] = &[
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "GGML_VK_VISIBLE_DEVICES",
];

/// Settings of the server that process 1 is; of an idle container its environment, too.
pub fn read(facts: &ContainerFacts) -> ServerSettings {
    let mut env = facts.env.clone();
    env.extend(recognise::server(facts).map_or_else(BTreeMap::new, |s| s.command.env));
    let mut settings = ServerSettings::default();
    if let Some(value) = env.get("OLLAMA_HOST") {
        (settings.host, settings.port) = address(value);
    }
    let kept = variables(env, &["OLLAMA_", "LLAMA_ARG_"], FOREIGN_ENV);
    settings.values.extend(kept);
    settings
}

/// `0.0.0.0:11434`, `http://[::]:8080/`, `:8080`, `0.0.0.0`.
fn address(text: &str) -> (Option<String>, Option<u16>) {
    let text = text.trim().trim_matches(['"', '\'']);
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let rest = rest.split('/').next().unwrap_or_default();
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        _ => (rest, None),
    };
    let port = port.or(match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    });
    let host = host.trim_matches(['[', ']']);
    (Some(host.to_owned()).filter(|h| !h.is_empty()), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, host, port) in [
            ("0.0.0.0:11500", Some("0.0.0.0"), Some(11500)),
            ("0.0.0.0", Some("0.0.0.0"), None),
            (":8080", None, Some(8080)),
            ("http://example.org", Some("example.org"), Some(80)),
            ("http://[::]:8080/", Some("::"), Some(8080)),
            ("[::1]", Some("::1"), None),
            ("", None, None),
        ] {
            assert_eq!(address(text), (host.map(str::to_owned), port), "{text}");
        }
    }

    #[test]
    fn variables_without_secrets() {
        let env = [
            ("OLLAMA_CONTEXT_LENGTH", "8192"),
            ("OLLAMA_API_KEY", "sk-x"),
            ("OLLAMA_HOST", "0.0.0.0:11500"),
            ("PATH", "/"),
        ];
        let s = read(&ContainerFacts {
            argv: vec!["/bin/ollama".into(), "serve".into()],
            env: env.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..ContainerFacts::default()
        });
        assert_eq!(s.port, Some(11500));
        let names: Vec<&String> = s.values.keys().collect();
        assert_eq!(names, ["OLLAMA_CONTEXT_LENGTH", "OLLAMA_HOST"]);
    }
}
