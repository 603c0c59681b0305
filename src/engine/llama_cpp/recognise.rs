//! Whether a container is llama.cpp's, and where in process 1's command its server begins.

use crate::capture::ContainerFacts;
use crate::engine::Recognition;
use crate::engine::argv::basename;
use crate::engine::process::{ServerCommand, image_is, of_image, of_process};

/// Names of its images: `ghcr.io/ggml-org/llama.cpp:server-cuda`.
const IMAGES: &[&str] = &["llama.cpp", "ik_llama.cpp", "llamacpp", "llama-server"];

/// The server that process 1 is, if it is one.
pub fn server(facts: &ContainerFacts) -> Option<ServerCommand> {
    let image = image_is(&facts.image, IMAGES);
    // Only the images for serving have the server as their entrypoint.
    let tag = basename(&facts.image)
        .rsplit_once(':')
        .map_or("", |(_, t)| t);
    let entrypoint = image && tag.starts_with("server");
    let of_flags = || ServerCommand::of_flags(&facts.argv, "-");
    ServerCommand::find(facts, |argv| flags_at(argv, image))
        .or_else(|| of_flags().filter(|_| entrypoint))
}

fn flags_at(argv: &[String], image: bool) -> Option<usize> {
    (0..argv.len()).find_map(|i| {
        let next = argv.get(i + 1).map(String::as_str);
        match basename(&argv[i]) {
            "llama-server" => Some(i + 1),
            "llama_cpp" | "llama" if next == Some("serve") => Some(i + 2),
            // The script of the `full` images.
            "tools.sh" if matches!(next, Some("--server" | "-s")) => Some(i + 2),
            // Its name until June 2024.
            "server" if image => Some(i + 1),
            _ => None,
        }
    })
}

/// Whether the container is llama.cpp's.
pub fn recognise(facts: &ContainerFacts) -> Option<Recognition> {
    if let Some(server) = server(facts) {
        return Some(Recognition::serving(server.evidence(facts)));
    }
    let named = image_is(&facts.image, IMAGES);
    of_image(facts, named, "llama.cpp", of_process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::process::container;

    fn serving(image: &str, argv: &[&str]) -> Option<bool> {
        recognise(&container(image, argv)).map(|r| r.serving)
    }

    #[test]
    fn servers_and_others() {
        let image = "ghcr.io/ggml-org/llama.cpp:server-cuda-b6123";
        for (image, argv) in [
            ("any", &["/app/llama-server", "-m", "/m.gguf"][..]),
            ("any", &["sh", "-c", "exec llama-server -m $M"]),
            (image, &["-m", "/m.gguf"]),
            (
                "ghcr.io/ggml-org/llama.cpp:full",
                &["/app/tools.sh", "--server", "-m", "x"],
            ),
            (
                "ghcr.io/ggerganov/llama.cpp:server",
                &["/server", "-m", "x"],
            ),
        ] {
            assert_eq!(serving(image, argv), Some(true), "{image} {argv:?}");
        }
        assert_eq!(serving(image, &["sleep", "1"]), Some(false));
        assert_eq!(
            serving(
                "ghcr.io/ggml-org/llama.cpp:full",
                &["/app/tools.sh", "--bench"]
            ),
            Some(false)
        );
        assert_eq!(serving("any", &["/server", "-m", "x"]), None);
        assert_eq!(serving("ollama/ollama", &["/bin/ollama", "serve"]), None);
        assert_eq!(serving("any", &["grep", "llama-server"]), None);
    }
}
