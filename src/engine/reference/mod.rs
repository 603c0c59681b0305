//! The reference engine: takes exactly the configured memory to calibrate the measurement, and has
//! an engine's interfaces. It runs no inference and marks itself as simulated.

mod bench;
mod log;

pub use log::ReferenceLogParser;

use super::argv::{Flags, Grammar, basename};
use super::command::commands;
use super::limits::{LoadLimits, Resource};
use super::vllm::{Names, read_bench_result, read_endpoints};
use super::{Engine, Recognition, ServerSettings};
use crate::capture::ContainerFacts;

/// Image label of the reference engine; its value is `1`.
const LABEL: &str = "plimsoll.reference-engine";
/// Whether a container's label marks it as the reference engine's, even if it was recognised as
/// another engine.
pub fn labelled(container: &ContainerFacts) -> bool {
    container.labels.get(LABEL).is_some_and(|v| v == "1")
}

/// Name of its program.
const PROGRAM: &str = "reference-engine";

/// The mark of its lines on milestones and progress.
const PHASE: &str = "reference-engine phase=";

/// The pool's size in bytes is on its `/metrics` but is not read from there: the measurement is
/// calibrated against this engine, so its memory must be measured.
const NAMES: Names = Names {
    prefix: "reference:",
    trust_kv_bytes: false,
};

/// The reference engine.
pub static ENGINE: Engine = Engine {
    name: "reference",
    simulated: true,
    load_limits: LoadLimits {
        raised_by: &[(Resource::KvPool, &["--kv-pool: a larger pool (simulated)"])],
        ..LoadLimits::UNKNOWN
    },
    endpoints: &["/health", "/version", "/v1/models", "/metrics"],
    log_marks: &["reference-engine "],
    program: &["/reference-engine"],
    serve: "serve --model {model} --port {port}",
    recognise,
    settings: read_settings,
    read_probes: |probes| read_endpoints(probes, &NAMES),
    // It writes the keys that vLLM's benches write.
    read_bench: read_bench_result,
    bench_progress: |_, line| bench::progress(line),
    // The image contains only the engine.
    idle: (None, "idle"),
    ..Engine::defaults(
        || Box::<ReferenceLogParser>::default(),
        |job, _| bench::plan(job),
    )
};

fn recognise(facts: &ContainerFacts) -> Option<Recognition> {
    let label = labelled(facts);
    let words = program_words(facts);
    if words.is_none() && !label {
        return None;
    }
    let serving = words
        .as_deref()
        .or(Some(facts.argv.as_slice()))
        .and_then(<[_]>::first)
        .is_some_and(|w| w == "serve");
    let what = if label {
        format!("label `{LABEL}=1`")
    } else {
        format!("process 1 runs `{PROGRAM}`")
    };
    let evidence = if serving {
        what
    } else {
        format!("{what}; it does not serve")
    };
    Some(Recognition { evidence, serving })
}

fn read_settings(facts: &ContainerFacts) -> ServerSettings {
    let words = program_words(facts).unwrap_or_default();
    let Some((command, words)) = words.split_first() else {
        return ServerSettings::default();
    };
    if command != "serve" {
        return ServerSettings::default();
    }
    let flags = Flags::read(words, &Grammar::default());
    ServerSettings {
        port: flags.value("port").and_then(|p| p.parse().ok()),
        model: flags.value("model").map(str::to_owned),
        served_model_name: flags.value("model").map(str::to_owned),
        values: flags.texts(&[]).collect(),
        ..ServerSettings::default()
    }
}

/// The words after the program's name in process 1's command.
fn program_words(facts: &ContainerFacts) -> Option<Vec<String>> {
    commands(&facts.argv, &facts.env)
        .into_iter()
        .find_map(|mut command| {
            let at = command.argv.iter().position(|w| basename(w) == PROGRAM)?;
            Some(command.argv.split_off(at + 1))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{BenchKind, EngineId, ServeJob};

    fn facts(argv: &[&str]) -> ContainerFacts {
        ContainerFacts {
            argv: argv.iter().map(|w| (*w).to_owned()).collect(),
            ..ContainerFacts::default()
        }
    }

    #[test]
    fn recognised_by_program_or_label() {
        let serving = |f: &ContainerFacts| (ENGINE.recognise)(f).map(|r| r.serving);
        assert_eq!(
            serving(&facts(&["/reference-engine", "serve", "--model", "m"])),
            Some(true)
        );
        assert_eq!(
            serving(&facts(&["tini", "--", "/reference-engine", "serve"])),
            Some(true)
        );
        assert_eq!(serving(&facts(&["/reference-engine", "idle"])), Some(false));
        assert_eq!(
            serving(&facts(&["/reference-engine", "bench", "serve"])),
            Some(false)
        );
        assert_eq!(serving(&facts(&["nginx"])), None);
        let mut labelled = facts(&["serve", "--model", "m"]);
        labelled.labels.insert(LABEL.into(), "1".into());
        assert_eq!(serving(&labelled), Some(true));
        labelled.argv = vec!["sleep".into(), "9".into()];
        assert_eq!(serving(&labelled), Some(false));
        labelled.labels.insert(LABEL.into(), "0".into());
        assert_eq!(serving(&labelled), None);
    }

    #[test]
    fn settings_and_serving() {
        let s = (ENGINE.settings)(&facts(&[
            "/reference-engine",
            "serve",
            "--model",
            "toy",
            "--weights",
            "64MiB",
            "--port=8001",
        ]));
        assert_eq!((s.model.as_deref(), s.port), (Some("toy"), Some(8001)));
        assert_eq!(s.values["weights"], "64MiB");
        assert_eq!(
            (ENGINE.settings)(&facts(&["/reference-engine", "idle"])),
            ServerSettings::default()
        );
        let extra = ["--weights".to_owned(), "1GiB".to_owned()];
        let job = ServeJob {
            model: "toy",
            port: 8000,
            settings: &Default::default(),
            extra_engine_args: &extra,
        };
        assert_eq!(
            EngineId::Reference.serve(&job).cmd.join(" "),
            "serve --model toy --port 8000 --weights 1GiB"
        );
    }

    #[test]
    fn its_results_are_read() {
        let latency = include_str!("../../../tests/fixtures/reference/latency.json");
        let latency = (ENGINE.read_bench)(BenchKind::Latency, latency).unwrap();
        assert_eq!(
            (
                latency.latencies_ms.len(),
                latency.latency_percentiles_ms.len()
            ),
            (2, 7)
        );
        let throughput = include_str!("../../../tests/fixtures/reference/throughput.json");
        assert_eq!(
            (ENGINE.read_bench)(BenchKind::Throughput, throughput)
                .unwrap()
                .completed,
            Some(3)
        );
        let serve = include_str!("../../../tests/fixtures/reference/serve.json");
        let serve = (ENGINE.read_bench)(BenchKind::Serve, serve).unwrap();
        assert_eq!(
            (serve.completed, serve.total_output_tokens),
            (Some(4), Some(16))
        );
        assert_eq!(
            (
                serve.ttft_ms.len(),
                serve.e2el_ms.len(),
                serve.mean_latency_ms
            ),
            (3, 3, Some(285.4539135))
        );
    }

    #[test]
    fn endpoints_do_not_report_the_pool() {
        use crate::engine::endpoints::reply as probe;
        let facts = (ENGINE.read_probes)(&[
            probe("/version", r#"{"version":"0.1.0"}"#),
            probe(
                "/v1/models",
                r#"{"object":"list","data":[{"id":"toy","object":"model"}]}"#,
            ),
            probe(
                "/metrics",
                "reference:cache_config_info{block_size=\"16\",num_gpu_blocks=\"64\",kv_cache_memory_bytes=\"1048576\"} 1\n\
                 reference:kv_cache_usage_perc 0.5\nreference:num_requests_running 1\nreference:num_requests_waiting 2\n\
                 reference:num_preemptions_total 3\n",
            ),
        ]);
        assert_eq!(
            (facts.engine_version.as_deref(), facts.model.as_deref()),
            (Some("0.1.0"), Some("toy"))
        );
        assert_eq!(
            (facts.num_gpu_blocks, facts.block_size, facts.kv_cache_bytes),
            (Some(64), Some(16), None)
        );
        assert_eq!(
            (facts.kv_cache_usage, facts.preemptions),
            (Some(0.5), Some(3))
        );
        assert_eq!(
            (facts.requests_running, facts.requests_waiting),
            (Some(1), Some(2))
        );
    }
}
