//! Whether a container is Ollama's. That it answers `/api/tags` proves nothing: SGLang does, too.

use crate::capture::ContainerFacts;
use crate::engine::Recognition;
use crate::engine::argv::basename;
use crate::engine::process::{ServerCommand, image_is, of_image, of_process};

const IMAGES: &[&str] = &["ollama"];

/// The server that process 1 is, if it is one.
pub fn server(facts: &ContainerFacts) -> Option<ServerCommand> {
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
