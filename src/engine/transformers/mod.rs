//! Hugging Face transformers: `model.generate()` logs nothing about memory, so plimsoll runs a probe of
//! its own in the container.

mod bench;
pub(in crate::engine) mod log;

use super::argv::{Flags, Grammar, basename};
use super::command::commands;
use super::{Engine, EngineId, LoadKind, Recognition, ServerSettings};
use crate::capture::ContainerFacts;
use log::TransformersLogParser;

/// transformers, releases 4.36 to 5.
pub static ENGINE: Engine = Engine {
    name: "transformers",
    aliases: &["hf", "huggingface"],
    estimated_as: Some(EngineId::Transformers),
    // `/v1/models` lists its cache, not what is loaded.
    endpoints: &["/health"],
    log_marks: &[
        "plimsoll-probe ",
        "Memory available for cache allocation",
        "Paged cache initialized",
    ],
    // The probe would load the model a second time next to a server.
    default_loads: (LoadKind::Builtin, LoadKind::Probe),
    // The model is a word since 5; before, requests alone named it.
    serve: "transformers serve {model} --host 0.0.0.0 --port {port}",
    serve_settings: false,
    // Only its own server is recognised: any image with Python may hold the library.
    recognise: |facts| {
        serve_words(facts).map(|_| Recognition::serving("process 1 runs `transformers serve`"))
    },
    settings: read_settings,
    bench_help: |_| Some(bench::question("python3")),
    bench_help_again: |_, first| bench::lacks(first).then(|| bench::question("python")),
    read_bench: |_, result| bench::read_result(result),
    read_memory: |_, result| bench::read_report(result).ok(),
    bench_progress: |_, line| bench::progress(line),
    log_signs: log::signs,
    ..Engine::defaults(|| Box::<TransformersLogParser>::default(), bench::plan)
};

fn read_settings(facts: &ContainerFacts) -> ServerSettings {
    let Some(words) = serve_words(facts) else {
        return ServerSettings::default();
    };
    let flags = Flags::read(&words, &Grammar::default());
    ServerSettings {
        port: flags.value("port").and_then(|p| p.parse().ok()),
        host: flags.value("host").map(str::to_owned),
        // It loads the model of each request; `force_model` fixes one.
        model: (flags.value("force_model").map(str::to_owned))
            .or_else(|| words.first().filter(|w| !w.starts_with('-')).cloned()),
        values: flags.texts(&[]).collect(),
        ..ServerSettings::default()
    }
}

/// The words after `transformers serve` in process 1's command.
fn serve_words(facts: &ContainerFacts) -> Option<Vec<String>> {
    commands(&facts.argv, &facts.env)
        .into_iter()
        .find_map(|mut command| {
            let at = command
                .argv
                .windows(2)
                .position(|w| basename(&w[0]) == "transformers" && w[1] == "serve")?;
            Some(command.argv.split_off(at + 2))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(argv: &[&str]) -> ContainerFacts {
        ContainerFacts {
            argv: argv.iter().map(|w| (*w).to_owned()).collect(),
            ..ContainerFacts::default()
        }
    }

    #[test]
    fn only_its_server_is_recognised() {
        let serving = |argv: &[&str]| (ENGINE.recognise)(&facts(argv)).map(|r| r.serving);
        assert_eq!(serving(&["transformers", "serve"]), Some(true));
        assert_eq!(
            serving(&["/opt/venv/bin/transformers", "serve", "--port", "8001"]),
            Some(true)
        );
        assert_eq!(serving(&["transformers", "env"]), None);
        assert_eq!(serving(&["python3", "generate.py"]), None);
        assert_eq!(serving(&["sleep", "infinity"]), None);
        let settings = (ENGINE.settings)(&facts(&[
            "transformers",
            "serve",
            "--port=8001",
            "--force-model",
            "org/m",
        ]));
        assert_eq!(
            (settings.port, settings.model.as_deref()),
            (Some(8001), Some("org/m"))
        );
    }
}
