//! From a cell to what a run is asked for.

use crate::capture::{ContainerFacts, Request, Workload};
use crate::engine::{EngineId, LoadKind, ServerSettings, same};
use crate::error::Failure;
use crate::matrix::{BenchWord, Cell, ITERATIONS, ServerConfig};
use std::time::Duration;

/// What puts the load on a cell.
pub fn load_kind(bench: BenchWord, engine: EngineId, in_process: bool) -> LoadKind {
    match bench {
        BenchWord::Auto => engine.default_bench(!in_process),
        BenchWord::Latency => LoadKind::Latency,
        BenchWord::Throughput => LoadKind::Throughput,
        BenchWord::Serve => LoadKind::Serve,
        BenchWord::Builtin => LoadKind::Builtin,
    }
}

/// What a run is asked for, of a cell.
pub fn request_for_cell(
    cell: &Cell,
    kind: LoadKind,
    interval: Duration,
    timeout: Duration,
) -> Request {
    let load = &cell.load;
    let iterations = load.num_iters.unwrap_or(ITERATIONS);
    let batch = load.batch_size.unwrap_or(1);
    // A batch that is repeated makes `batch * iterations` requests, as many in flight as it holds.
    let prompts = load.num_prompts.unwrap_or(batch.saturating_mul(iterations));
    let batched = matches!(kind, LoadKind::Latency | LoadKind::Probe);
    let server = kind.needs_server();
    Request {
        workload: Workload {
            input_len: load.input_len,
            output_len: load.output_len,
            batch_size: load.batch_size.filter(|_| batched),
            num_iters: batched.then_some(iterations),
            num_iters_warmup: load.num_iters_warmup,
            num_prompts: (!batched).then_some(prompts),
            max_concurrency: load.batch_size.filter(|_| server),
            request_rate: load.request_rate.filter(|_| server),
            seed: load.seed,
            short_prompts: load.short_prompts,
            ..Workload::default()
        },
        ..request_to_serve(&cell.server, interval, timeout)
    }
}

/// The same without a load.
pub fn request_to_serve(server: &ServerConfig, interval: Duration, timeout: Duration) -> Request {
    Request {
        model: Some(server.model.clone()),
        bench: String::new(),
        workload: Workload {
            input_len: 1,
            output_len: 1,
            ..Workload::default()
        },
        settings: server.settings.clone(),
        extra_engine_args: server.engine_args.clone(),
        beside: Vec::new(),
        architecture: server.architecture.clone(),
        sample_interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
        timeout_s: timeout.as_secs_f64(),
    }
}

/// Refuses a container with a server that differs from the request, or does not show that it
/// matches.
pub fn serves_what_is_asked(
    asked: &ServerConfig,
    engine: EngineId,
    facts: &ContainerFacts,
) -> Result<(), Failure> {
    let wrong = contradictions(asked, &(engine.settings)(facts), &facts.argv);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "container `{}` serves already, and not what is asked for: {}",
        facts.name,
        wrong.join("; ")
    ))
    .hint("measure what it serves, or name an idle container or an image"))
}

/// Differences between a running server and the file, and settings that its command does not
/// confirm; sentences. `argv`: its command. Its cells would carry settings that were never
/// confirmed.
fn contradictions(asked: &ServerConfig, runs: &ServerSettings, argv: &[String]) -> Vec<String> {
    let set = asked.settings.named().into_iter();
    let mut found: Vec<String> = set
        // A switch is looked for among the words.
        .filter(|(key, _)| *key != "enforce_eager")
        .filter_map(|(key, asked)| match runs.values.get(key) {
            Some(has) if same::setting(&asked, has) => None,
            Some(has) => Some(format!(
                "it runs with {key} {has}, and {asked} is asked for"
            )),
            // An engine's default.
            None if asked == "auto" || (key == "tensor_parallel_size" && asked == "1") => None,
            None => Some(format!(
                "its command does not say {key}, and {asked} is asked for"
            )),
        })
        .collect();
    let has_word = |word: &String| argv.iter().any(|w| w == word || same_flag(w, word));
    let mut unsaid: Vec<&str> = asked
        .engine_args
        .iter()
        .filter(|w| !has_word(w))
        .map(String::as_str)
        .collect();
    if asked.settings.enforce_eager && !argv.iter().any(|w| same_flag(w, "--enforce-eager")) {
        unsaid.push("--enforce-eager");
    }
    if !unsaid.is_empty() {
        found.push(format!("its command does not say {}", unsaid.join(" ")));
    }
    if let Some(model) = &runs.model {
        let names = [Some(model), runs.served_model_name.as_ref()];
        let served = |name: &String| same::model(&asked.model, name);
        if !names.into_iter().flatten().any(served) {
            found.push(format!(
                "it serves `{model}`, and `{}` is asked for",
                asked.model
            ));
        }
    }
    found
}

/// Whether a word of a command is this flag, or holds its value (`--a-b` and `--a_b=1`).
fn same_flag(word: &str, flag: &str) -> bool {
    let plain = |w: &str| w.replace('_', "-");
    let head = word.split_once('=').map_or(word, |(head, _)| head);
    let value = word.split_once('=').map(|(_, value)| value);
    plain(head) == plain(flag) && flag.starts_with('-') || value == Some(flag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::RequestedSettings;
    use crate::matrix::{CellLoad, EnginePlace};
    use std::sync::Arc;

    fn server() -> ServerConfig {
        ServerConfig {
            model: "org/model".into(),
            engine: None,
            place: EnginePlace::Container("c".into()),
            settings: RequestedSettings {
                dtype: Some("half".into()),
                gpu_memory_utilization: Some(0.9),
                ..RequestedSettings::default()
            },
            engine_args: Vec::new(),
            architecture: Default::default(),
        }
    }

    #[test]
    fn a_batch_is_so_many_requests_in_flight() {
        let load = CellLoad {
            bench: BenchWord::Auto,
            input_len: 8,
            output_len: 4,
            batch_size: Some(6),
            request_rate: None,
            num_prompts: None,
            num_iters: None,
            num_iters_warmup: None,
            repeats: 1,
            seed: None,
            short_prompts: None,
        };
        let cell = Cell::new(Arc::new(server()), load);
        let of = |kind| {
            request_for_cell(&cell, kind, Duration::from_millis(100), Duration::ZERO).workload
        };
        let serve = of(LoadKind::Serve);
        assert_eq!(
            (serve.num_prompts, serve.max_concurrency),
            (Some(60), Some(6))
        );
        assert_eq!((serve.batch_size, serve.num_iters), (None, None));
        let latency = of(LoadKind::Latency);
        assert_eq!((latency.batch_size, latency.num_iters), (Some(6), Some(10)));
        assert_eq!((latency.num_prompts, latency.max_concurrency), (None, None));
    }

    #[test]
    fn a_server_must_say_what_is_asked_of_it() {
        let runs = |values: &[(&str, &str)], model: Option<&str>| ServerSettings {
            model: model.map(str::to_owned),
            values: values
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            ..ServerSettings::default()
        };
        let none: [String; 0] = [];
        let same = [("dtype", "float16"), ("gpu_memory_utilization", "0.90")];
        let place = "/hub/models--org--model/snapshots/0a1b";
        let argv = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let plain = argv("vllm serve");
        let of = |runs: &ServerSettings, argv: &[String]| contradictions(&server(), runs, argv);
        assert_eq!(of(&runs(&same, Some("/models/model/")), &plain), none);
        assert_eq!(of(&runs(&same, Some(place)), &plain), none);
        assert_eq!(of(&runs(&[], None), &plain).len(), 2, "it says neither");
        let auto = [("dtype", "auto"), ("gpu_memory_utilization", "0.9")];
        let found = of(&runs(&auto, None), &plain);
        assert_eq!(found.len(), 1, "it chooses for itself: {found:?}");
        let other = [("dtype", "bfloat16"), ("gpu_memory_utilization", "0.9")];
        let found = of(&runs(&other, Some("else")), &plain);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("bfloat16") && found[1].contains("`else`"),
            "{found:?}"
        );
        // Arguments must stand in its command, in whatever spelling.
        let asked = ServerConfig {
            engine_args: argv("--max-num-seqs 64"),
            ..server()
        };
        let with = |words: &str| contradictions(&asked, &runs(&same, None), &argv(words));
        assert_eq!(with("vllm serve --max-num-seqs 64"), none);
        assert_eq!(with("vllm serve --max_num_seqs=64"), none);
        assert_eq!(with("vllm serve").len(), 1);
        assert_eq!(with("vllm serve --max-num-seqs 128").len(), 1);
    }
}
