//! Whether a container is TGI's, and where its launcher's flags begin.

use crate::capture::ContainerFacts;
use crate::engine::Recognition;
use crate::engine::argv::basename;
use crate::engine::process::{
    ServerCommand, image_name, is_about, not_by_name, of_image, of_variable,
};

/// Programs that are the server, or start it.
const PROGRAMS: &[&str] = &[
    "text-generation-launcher",
    "text-generation-router",
    "tgi-entrypoint.sh",
];

/// Programs of TGI that serve nothing.
const TOOLS: &[&str] = &["text-generation-benchmark"];

/// A variable that only TGI reads.
const OWN_ENV: &str = "TGI_WIGGLE_ROOM";

/// The server that process 1 is, if it is one.
pub fn server(facts: &ContainerFacts) -> Option<ServerCommand> {
    let ours = image_is_tgi(&facts.image);
    let begins = |word: &String| {
        // Amazon's images start it by a script of a common name.
        PROGRAMS.contains(&basename(word)) || (ours && basename(word) == "entrypoint.sh")
    };
    let flags_at = |argv: &[String]| {
        let at = argv.iter().position(begins)?;
        // An entrypoint runs the command that follows it.
        let other = argv.get(at + 1).map(|w| basename(w));
        let last = argv.iter().rposition(begins)?;
        (other.is_none_or(|w| !TOOLS.contains(&w))).then_some(last + 1)
    };
    let of_flags = || ServerCommand::of_flags(&facts.argv, "--");
    ServerCommand::find(facts, flags_at).or_else(|| of_flags().filter(|_| ours))
}

/// Whether the container is TGI's.
pub fn recognise(facts: &ContainerFacts) -> Option<Recognition> {
    if let Some(server) = server(facts) {
        // A router or launcher script followed by a shell is an interactive session.
        let serving = (server.flags().first()).is_none_or(|w| w.starts_with('-'));
        let evidence = server.evidence(facts);
        return Some(Recognition { evidence, serving });
    }
    of_image(facts, image_is_tgi(&facts.image), "TGI", not_by_name)
        .or_else(|| of_variable(facts, &[OWN_ENV], "TGI", not_by_name))
}

/// Whether an image is named as TGI's are: `text-generation-inference`, Amazon's
/// `huggingface-pytorch-tgi-inference`, `tgi-gaudi`.
fn image_is_tgi(image: &str) -> bool {
    let name = image_name(image);
    let words: Vec<&str> = name.split(['-', '_', '.']).collect();
    let named = name.contains("text-generation-inference") || words.contains(&"tgi");
    named && !is_about(&words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::process::container;
    use std::collections::BTreeMap;

    fn serving(image: &str, argv: &[&str]) -> Option<bool> {
        recognise(&container(image, argv)).map(|r| r.serving)
    }

    #[test]
    fn servers_in_every_dress() {
        for argv in [
            &["text-generation-launcher", "--model-id", "m"][..],
            &["/tgi-entrypoint.sh", "--model-id", "m"],
            &["/tgi-entrypoint.sh"],
            &[
                "/tgi-entrypoint.sh",
                "text-generation-launcher",
                "--port",
                "80",
            ],
            &["tini", "--", "/usr/local/bin/text-generation-launcher"],
            &[
                "sh",
                "-c",
                "exec text-generation-launcher --model-id $MODEL_ID",
            ],
        ] {
            assert_eq!(serving("anything", argv), Some(true), "{argv:?}");
        }
        let image = "ghcr.io/huggingface/text-generation-inference:3.3.5-rocm";
        assert_eq!(serving(image, &["--model-id", "m"]), Some(true));
        let amazon =
            "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-tgi-inference:2.3";
        assert_eq!(serving(amazon, &["./entrypoint.sh"]), Some(true));
    }

    #[test]
    fn idle_and_others() {
        let image = "ghcr.io/huggingface/text-generation-inference:3";
        for argv in [
            &["sleep", "infinity"][..],
            &["bash"],
            &[],
            &["/tgi-entrypoint.sh", "bash"],
        ] {
            assert_eq!(serving(image, argv), Some(false), "{argv:?}");
        }
        assert_eq!(serving("nginx", &["./entrypoint.sh"]), None);
        assert_eq!(serving("vllm/vllm-openai", &["--model", "m"]), None);
        assert_eq!(serving("org/tgi-exporter", &["/exporter"]), None);
        assert_eq!(serving("x", &["echo", "text-generation-launcher"]), None);
        let own = |argv: &str| ContainerFacts {
            argv: vec![argv.to_owned()],
            env: BTreeMap::from([(OWN_ENV.to_owned(), "0.9".to_owned())]),
            ..ContainerFacts::default()
        };
        assert!(recognise(&own("bash")).is_some());
        assert!(recognise(&own("nginx")).is_none());
    }
}
