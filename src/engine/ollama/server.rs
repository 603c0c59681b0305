//! Whether a container is Ollama's, and its variables: it has no flags, and loads a model on request. That it answers
//! `/api/tags` proves nothing: SGLang does, too.

use crate::capture::ContainerFacts;
use crate::engine::argv::basename;
use crate::engine::process::{ServerCommand, image_is, of_image, of_process};
use crate::engine::settings::variables;
use crate::engine::{Recognition, ServerSettings};
use std::collections::BTreeMap;

const IMAGES: &[&str] = &["ollama"];

/// The server that process 1 is, if it is one.
fn server(facts: &ContainerFacts) -> Option<ServerCommand> {
    let serves =
        |w: &[String]| basename(&w[0]) == "ollama" && matches!(w[1].as_str(), "serve" | "start");
    let flags_at = |argv: &[String]| Some(argv.windows(2).position(serves)? + 2);
    // Some runtimes report an image's entrypoint apart.
    let apart = facts.argv == ["serve"] && image_is(&facts.image, IMAGES);
    let of_word = || ServerCommand::of_flags(&facts.argv, "serve");
    ServerCommand::find(facts, flags_at).or_else(|| of_word().filter(|_| apart))
}

/// Whether the container is Ollama's.
pub fn recognise(facts: &ContainerFacts) -> Option<Recognition> {
    if server(facts).is_some() {
        return Some(Recognition::serving("process 1 runs `ollama serve`"));
    }
    let named = image_is(&facts.image, IMAGES);
    of_image(facts, named, "Ollama", of_process)
}

/// Variables of other programs that change its memory.
const FOREIGN_ENV: &[&str] = &[
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "GGML_VK_VISIBLE_DEVICES",
];

/// Settings of the server that process 1 is; of an idle container its environment, too.
pub fn read_settings(facts: &ContainerFacts) -> ServerSettings {
    let mut env = facts.env.clone();
    env.extend(server(facts).map_or_else(BTreeMap::new, |s| s.command.env));
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
    use crate::engine::process::container;

    #[test]
    fn servers_and_others() {
        let serving =
            |image: &str, argv: &[&str]| recognise(&container(image, argv)).map(|r| r.serving);
        for argv in [
            &["/bin/ollama", "serve"][..],
            &["tini", "--", "ollama", "serve"],
            &["sh", "-c", "OLLAMA_HOST=0.0.0.0 ollama serve & wait"],
        ] {
            assert_eq!(serving("any", argv), Some(true), "{argv:?}");
        }
        assert_eq!(serving("ollama/ollama:0.13.5", &["serve"]), Some(true));
        assert_eq!(serving("ollama/ollama:rocm", &["sleep", "1"]), Some(false));
        assert_eq!(serving("x/ollama-webui", &["node"]), None);
        assert_eq!(serving("any", &["ollama", "run", "m"]), None);
        assert_eq!(serving("lmsysorg/sglang", &["sleep", "1"]), None);
    }
}

#[cfg(test)]
mod settings_tests {
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
        let s = read_settings(&ContainerFacts {
            argv: vec!["/bin/ollama".into(), "serve".into()],
            env: env.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..ContainerFacts::default()
        });
        assert_eq!(s.port, Some(11500));
        let names: Vec<&String> = s.values.keys().collect();
        assert_eq!(names, ["OLLAMA_CONTEXT_LENGTH", "OLLAMA_HOST"]);
    }
}
