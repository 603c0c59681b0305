//! Whether a container is SGLang's, and where in process 1's command its server begins.

use crate::capture::ContainerFacts;
use crate::engine::Recognition;
use crate::engine::argv::basename;
use crate::engine::process::{ServerCommand, image_is, of_image, of_process, of_variable};

/// Names of its images: `lmsysorg/sglang`, `rocm/sgl-dev`.
const IMAGES: &[&str] = &["sglang", "sgl-dev"];

/// Variables that SGLang's images set or it alone reads.
const OWN_ENV: &[&str] = &["SGL_MODEL_GATEWAY", "SGLANG_USE_AITER", "SGLANG_LOG_MS"];

/// The server that process 1 is, if it is one.
pub fn server(facts: &ContainerFacts) -> Option<ServerCommand> {
    ServerCommand::find(facts, flags_at)
}

fn flags_at(argv: &[String]) -> Option<usize> {
    // Any wrapper may come first: an init, `numactl`, the entrypoint of NVIDIA's images.
    (0..argv.len()).find_map(|i| {
        let word = argv[i].as_str();
        match (word, argv.get(i + 1).map(String::as_str)) {
            (program, Some("serve")) if basename(program) == "sglang" => Some(i + 2),
            ("-m", Some("sglang.launch_server")) => Some(i + 2),
            (file, _) if file.ends_with("sglang/launch_server.py") => Some(i + 1),
            // The title that the main process gives itself.
            (title, _) if title.starts_with("sglang::http_server") => Some(i + 1),
            _ => None,
        }
    })
}

/// Whether the container is SGLang's.
pub fn recognise(facts: &ContainerFacts) -> Option<Recognition> {
    if let Some(server) = server(facts) {
        // Only the last two words: earlier ones may contain anything, even a secret.
        let at = server.flags_at;
        let words = server.command.argv[at.saturating_sub(2)..at].join(" ");
        return Some(Recognition::serving(format!("process 1 runs `{words}`")));
    }
    of_image(facts, image_is(&facts.image, IMAGES), "SGLang", of_process)
        .or_else(|| of_variable(facts, OWN_ENV, "SGLang", of_process))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::process::container;

    fn serving(image: &str, argv: &[&str]) -> Option<bool> {
        recognise(&container(image, argv)).map(|r| r.serving)
    }

    #[test]
    fn servers_and_idle_containers() {
        for argv in [
            &["python3", "-m", "sglang.launch_server", "--model-path", "m"][..],
            &[
                "/opt/nvidia/nvidia_entrypoint.sh",
                "sglang",
                "serve",
                "--model-path",
                "m",
            ],
            &[
                "bash",
                "-c",
                "cd /x && exec python3 -m sglang.launch_server --model m",
            ],
            &[
                "python",
                "/sgl-workspace/sglang/python/sglang/launch_server.py",
            ],
        ] {
            assert_eq!(serving("any", argv), Some(true), "{argv:?}");
        }
        for image in [
            "lmsysorg/sglang:v0.5.9-cu129",
            "rocm/sgl-dev:x",
            "nvcr.io/nvidia/sglang:25.10-py3",
        ] {
            assert_eq!(serving(image, &["sleep", "inf"]), Some(false), "{image}");
        }
        assert_eq!(serving("x/sglang-router", &["sleep", "inf"]), None);
        assert_eq!(serving("any", &["echo", "sglang", "serve"]), None);
        assert_eq!(
            serving("any", &["python3", "-m", "sglang.bench_serving"]),
            None
        );
        assert_eq!(
            serving("any", &["python3", "-m", "sglang_router.launch_router"]),
            None
        );
    }
}
