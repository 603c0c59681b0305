//! A real vLLM (on CPU) by name, both ways, and as `run` starts it: the figures against what the
//! engine itself says, and the jq lines of the seeds on the result. Slow: minutes.

use crate::common;
use common::docker;
use common::e2e::{
    Engine, Results, codes, models, older_vllm, parts_sum_to_the_peak, read, run, vllm_image,
    wait_for,
};
use common::jq::Desk;
use common::watched::{Watched, parts_of};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What every engine here is given for its pool. On a CPU 0.19.1 does not read `--kv-cache-memory-bytes`, and whole GiB are the
/// least that its variable takes.
fn pool() -> u64 {
    older_vllm().map_or(268_435_456, |_| 1 << 30)
}

/// The variable that gives an older release its pool.
const OLDER_POOL: &str = "VLLM_CPU_KVCACHE_SPACE=1";

/// KV bytes per token of the tiny model: 2 (K and V) × 4 layers × 2 heads × 64 × 2 bytes.
const BYTES_PER_TOKEN: u64 = 2048;

/// By how much `memory.stat` may lag behind the usage, bytes: the kernel counts in batches on each processor.
const STAT_LAG: f64 = 1_048_576.0;

/// Each of these keeps every core busy.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options() -> Vec<String> {
    let volume = format!("{}:/models:ro", models().display());
    let mut options = vec!["-m", "4g", "--shm-size", "1g", "-v", &volume];
    if older_vllm().is_some() {
        options.extend(["-e", OLDER_POOL]);
    }
    options.into_iter().map(str::to_owned).collect()
}

fn start(what: &str, more: &[&str], args: &[&str]) -> Engine {
    let options = options();
    let options: Vec<&str> = options
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    Engine::run(what, &options, vllm_image(), args)
}

/// One label of the server's own `cache_config_info`, fetched without plimsoll.
fn from_metrics(engine: &Engine, label: &str) -> u64 {
    let mut stream =
        std::net::TcpStream::connect((engine.address().as_str(), 8000)).expect("port 8000");
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .expect("request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("metrics");
    let line = text
        .lines()
        .find(|l| l.starts_with("vllm:cache_config_info{"))
        .expect("cache_config_info");
    let value = line
        .split_once(&format!("{label}=\""))
        .and_then(|(_, rest)| rest.split_once('"'));
    value
        .and_then(|(v, _)| v.parse().ok())
        .unwrap_or_else(|| panic!("no {label} in {line}"))
}

/// What holds of every profile of a real engine.
#[track_caller]
fn holds(document: &Value) {
    assert_eq!(
        document["metadata"]["outcome"], "completed",
        "{:#}",
        document["findings"]
    );
    assert_eq!(document["metadata"]["simulated"], false);
    parts_sum_to_the_peak(document);

    // Three points, and nothing lower than what came before it.
    let measurements = &document["memory_measurements"];
    let at = |point: &str| measurements[point]["total_gb"].as_f64().expect("a point");
    // An engine that served before has files in the page cache, which the kernel takes back as it likes.
    let without_files = |point: &str| {
        let device = &measurements[point]["per_gpu_details"][0];
        let files = device["host"]["file_bytes"].as_f64().expect("files");
        device["used_bytes"].as_f64().expect("memory") - files
    };
    assert!(
        without_files("baseline") <= without_files("post_warmup") + STAT_LAG
            && at("post_warmup") <= at("peak"),
        "{measurements:#}"
    );
    for point in ["baseline", "post_warmup", "peak"] {
        let point = &measurements[point];
        let device = &point["per_gpu_details"][0];
        assert_eq!(
            point["total_bytes"], device["used_bytes"],
            "one device is the sum of all"
        );
        assert_eq!(
            (point["max_gb"].as_f64(), point["stddev_gb"].as_f64()),
            (point["total_gb"].as_f64(), Some(0.0))
        );
        assert_eq!(point["mean_gb"], point["total_gb"]);
        assert!(
            device["host"]["anon_bytes"].as_u64().is_some_and(|b| b > 0),
            "{device:#}"
        );
        assert_eq!(
            device["total_gb"].as_f64(),
            Some(4.0),
            "the container's limit"
        );
    }

    // The timeline, every 100 ms.
    let timeline = &document["memory_timeline"];
    let gb = |key: &str| timeline[key].as_f64().expect("a statistic");
    let ordered = [gb("min_gb"), gb("median_gb"), gb("p95_gb"), gb("max_gb")];
    assert!(ordered.is_sorted(), "{ordered:?}");
    // The peak is that of the load. Before it the kernel may still hold a little of a command that
    // ended just then, so that the highest moment of all is no more than near it.
    let highest = (timeline["timeline"].as_array().expect("timeline").iter())
        .map(|point| point["memory_gb"].as_f64().unwrap() - point["file_gb"].as_f64().unwrap())
        .fold(0.0, f64::max);
    let peak = without_files("peak") / f64::from(1 << 30) + 16.0 / 1024.0;
    // Where it is higher, as in 0.19.1 whose client's --help takes more than its load, that is said.
    assert!(
        highest <= peak
            || older_vllm().is_some() && codes(document).contains(&"higher_peak_outside_load"),
        "{highest} > {peak}, {ordered:?}"
    );
    assert!(gb("min_gb") <= gb("mean_gb") && gb("mean_gb") <= gb("max_gb"));
    let points = timeline["timeline"].as_array().expect("timeline");
    let took = document["metadata"]["duration_s"]
        .as_f64()
        .expect("duration");
    assert!(points.len() as u64 <= timeline["num_samples"].as_u64().expect("samples"));
    // A quick machine serves the load of our own client within five seconds.
    let least = (took * 5.0).min(50.0);
    assert!(points.len() as f64 > least, "{} in {took} s", points.len());
    let stamps: Vec<f64> = points
        .iter()
        .map(|p| p["timestamp"].as_f64().expect("timestamp"))
        .collect();
    assert!(stamps.is_sorted() && stamps[stamps.len() - 1] - stamps[0] <= took);

    // The pool, in the engine's own figures.
    let internal = &document["vllm_internal_metrics"];
    assert_eq!(
        internal["total_gpu_kv_cache_tokens"].as_u64(),
        Some(pool() / BYTES_PER_TOKEN)
    );
    // A bench of 0.19.1 prints the pool's tokens alone.
    let printed = internal["total_gpu_kv_cache_gb"].as_f64();
    let is_unprinted = older_vllm().is_some() && printed.is_none();
    assert!(
        is_unprinted || printed == Some(pool() as f64 / (1u64 << 30) as f64),
        "{printed:?}"
    );
    assert_eq!(part(document, "kv_cache"), pool());
    // The checkpoint's tensors: the file without its header.
    let file = std::fs::read(models().join("tiny-llama/model.safetensors")).expect("model");
    let header = u64::from_le_bytes(file[..8].try_into().expect("a length"));
    let tensors = file.len() as u64 - 8 - header;
    assert_eq!(part(document, "model_weights"), tensors);
    let model = &document["model_info"];
    assert_eq!(model["checkpoint_bytes"].as_u64(), Some(tensors));
    assert_eq!(
        model["num_parameters"].as_u64(),
        Some(tensors / 2),
        "2 bytes each"
    );
    let share = if older_vllm().is_some() { 0.9 } else { 0.92 };
    assert_eq!(internal["gpu_memory_utilization"].as_f64(), Some(share));
    assert!(!codes(document).contains(&"gpu_memory_utilization_default"));
    assert!(
        !codes(document).contains(&"witnesses_disagree"),
        "{:#}",
        document["findings"]
    );

    assert_eq!(document["engine_metadata"]["engine_type"], "vllm");
    assert_eq!(document["model_info"]["name"], "/models/tiny-llama");
    assert_eq!(document["dtype_metadata"]["kv_cache"], "bfloat16");
    assert!(
        document["latency_stats"]["mean_latency_ms"]
            .as_f64()
            .is_some_and(|ms| ms > 0.0)
    );
    let raw = &document["raw_logs"];
    assert!(raw["bench"].as_str().is_some_and(|t| t.len() > 100));
}

fn part(document: &Value, component: &str) -> u64 {
    let parts = document["memory_breakdown"]["components"]
        .as_array()
        .expect("components");
    let part = parts.iter().find(|p| p["component"] == component);
    part.and_then(|p| p["bytes"].as_u64())
        .unwrap_or_else(|| panic!("no {component}: {parts:#?}"))
}

/// Derived again, the document is the same to the byte.
#[track_caller]
fn is_derived_again(profile: &Path) {
    let again = run(&[
        "derive",
        "--json",
        &profile.with_extension("capture").display().to_string(),
    ])
    .expect(0);
    assert_eq!(
        again.stdout,
        std::fs::read_to_string(profile).expect("profile")
    );
}

#[test]
fn a_container_that_serves_by_name() {
    needs!(Docker, Vllm);
    let _alone = alone();
    let args = [
        "/models/tiny-llama",
        "--enforce-eager",
        "--max-model-len",
        "2048",
        "--kv-cache-memory-bytes",
        "268435456",
    ];
    let server = start("vllm-serving", &[], &args);
    server.wait_for_log("Application startup complete");
    let before = server.processes();
    let results = Results::new();
    let load = [
        "--num-prompts=32",
        "--input-len=128",
        "--output-len=256",
        "--max-concurrency=8",
        "--num-iters-warmup=1",
    ];
    let dir = results.arg();
    let mut command = vec!["profile", &server.name, &dir];
    command.extend(load);
    let ended = run(&command).expect(0);
    assert_eq!(server.processes(), before);
    assert!(
        docker(&["exec", &server.id, "sh", "-c", "ls -d /tmp/plimsoll*"]).is_err(),
        "a file is left"
    );

    let profile = results.profile();
    let document = read(&profile);
    holds(&document);
    assert_eq!(document["metadata"]["mode"], "serving");
    // Its own /metrics, asked by us.
    let bytes = match older_vllm() {
        None => from_metrics(&server, "kv_cache_memory_bytes"),
        Some(_) => pool(),
    };
    let (blocks, size) = (
        from_metrics(&server, "num_gpu_blocks"),
        from_metrics(&server, "block_size"),
    );
    assert_eq!(part(&document, "kv_cache"), bytes);
    assert_eq!(blocks * size * BYTES_PER_TOKEN, bytes);
    let internal = &document["vllm_internal_metrics"];
    assert_eq!(internal["num_gpu_blocks"].as_u64(), Some(blocks));
    assert_eq!(internal["block_size"].as_u64(), Some(size));
    assert_eq!(
        document["memory_breakdown"]["confidence_levels"]["kv_cache"],
        "high_from_vllm_metrics"
    );
    assert_eq!(
        document["memory_breakdown"]["vllm_reported_values_used"]["kv_cache"],
        true
    );
    // Reserved and used are two numbers: 8 requests of at most 384 tokens.
    let used = internal["kv_cache_usage_peak"].as_f64().expect("usage");
    let most = 8.0 * 384.0 * BYTES_PER_TOKEN as f64 / pool() as f64;
    assert!(used > 0.0 && used <= most * 1.5, "{used} of {most}");
    // Read back from the engine.
    let effective = &document["configuration"]["effective"];
    assert_eq!(
        (
            effective["max_model_len"].as_str(),
            effective["enforce_eager"].as_str()
        ),
        (Some("2048"), Some("true"))
    );
    let packages = "ls -d /opt/vllm/lib/python3*/site-packages/vllm_cpu-*.dist-info";
    let package = docker(&["exec", &server.id, "sh", "-c", packages]).expect("its package");
    let version = package.trim().split("vllm_cpu-").nth(1);
    let version = version.and_then(|name| name.strip_suffix(".dist-info"));
    assert_eq!(
        document["engine_metadata"]["engine_version"].as_str(),
        version
    );
    let bench = &document["latency_stats"]["repeats"][0]["result"];
    assert_eq!(
        (bench["completed"].as_u64(), bench["failed"].as_u64()),
        (Some(32), Some(0))
    );
    assert_eq!(bench["total_output_tokens"].as_u64(), Some(32 * 256));
    for kind in ["ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"] {
        assert!(
            bench[kind]["mean"].as_f64().is_some_and(|ms| ms > 0.0),
            "{bench:#}"
        );
    }
    assert!(
        document["raw_logs"]["engine"]
            .as_str()
            .expect("log")
            .contains(older_vllm().map_or(
                "CPU KV cache size: 131,072 tokens",
                |_| "cache size: 524,288 tokens"
            ))
    );
    assert!(
        part(&document, "bench_client") > 50 << 20,
        "Python's client is no memory of the engine"
    );

    is_derived_again(&profile);
    our_own_client(&server);
    watch_reads_the_same(&server);
    for block in [
        "Total at the peak",
        "KV cache pool",
        older_vllm().map_or(
            "Reserved          0.250  GiB",
            |_| "Reserved              1  GiB",
        ),
        "Memory timeline",
        "how sure",
        "Findings",
    ] {
        assert!(ended.stdout.contains(block), "{block}: {}", ended.stdout);
    }
    needs!(Jq);
    let desk = Desk::new(&results, &profile, &profile);
    desk.seeds_lines_answer();
    desk.the_pool_is_told();
    desk.every_row_answers(false);
}

/// `watch` alone reads the parts that a profile without load has.
fn watch_reads_the_same(server: &Engine) {
    let state = tempfile::tempdir().unwrap();
    let watched = Watched::start(state.path(), &[]);
    let parts = wait_for("its parts", || {
        Some(parts_of(&watched.scrape(), &server.name)).filter(|parts| !parts.is_empty())
    });
    let results = Results::new();
    let dir = results.arg();
    run(&[
        "profile",
        &server.name,
        "--bench=none",
        "--duration=2s",
        &dir,
    ])
    .expect(0);
    let document = results.document();
    let total: f64 = parts.values().sum();
    for (name, bytes) in parts.iter().filter(|(name, _)| *name != "page_cache") {
        let there = part(&document, name) as f64;
        assert!(
            (bytes - there).abs() <= total * 0.01,
            "{name}: {bytes} and {there} of {total}"
        );
    }
}

/// The same server, with requests of our own client instead of `vllm bench serve`.
fn our_own_client(server: &Engine) {
    let results = Results::new();
    let dir = results.arg();
    let load = [
        "--bench=builtin",
        "--num-prompts=16",
        "--input-len=96",
        "--output-len=48",
        "--max-concurrency=4",
    ];
    let mut command = vec!["profile", &server.name, &dir];
    command.extend(load);
    run(&command).expect(0);
    let document = results.document();
    holds(&document);
    assert_eq!(document["latency_stats"]["bench"], "builtin");
    let repeat = &document["latency_stats"]["repeats"][0];
    let result = &repeat["result"];
    assert_eq!(result["completed"].as_u64(), Some(16));
    // Counted by the server's own tokenizer, to the token; and no end before the length asked for.
    assert_eq!(result["total_input_tokens"].as_u64(), Some(16 * 96));
    assert_eq!(result["total_output_tokens"].as_u64(), Some(16 * 48));
    for kind in ["ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"] {
        assert!(
            result[kind]["mean"].as_f64().is_some_and(|ms| ms > 0.0),
            "{result:#}"
        );
    }
    let notes = repeat["notes"].to_string();
    assert!(
        !notes.contains("words") && !notes.contains("asked for"),
        "{notes}"
    );
    let parts = document["memory_breakdown"]["components"].to_string();
    assert!(
        !parts.contains("bench_client"),
        "nothing of the client is in the container: {parts}"
    );
    is_derived_again(&results.profile());
}

#[test]
fn an_idle_container_by_name() {
    needs!(Docker, Vllm);
    let _alone = alone();
    let idle = start("vllm-idle", &["--entrypoint", "sleep"], &["infinity"]);
    let before = idle.processes();
    let results = Results::new();
    let dir = results.arg();
    let common = [
        "-m=/models/tiny-llama",
        "--enforce-eager",
        "--max-model-len=2048",
        "--extra-engine-args=--kv-cache-memory-bytes 268435456",
        "--input-len=64",
    ];
    let mut command = vec![
        "profile",
        &idle.name,
        &dir,
        "--output-len=16",
        "--batch-size=4",
        "--num-iters=3",
        "--num-iters-warmup=1",
    ];
    command.extend(common);
    run(&command).expect(0);
    assert_eq!(idle.processes(), before);
    assert!(
        docker(&["exec", &idle.id, "sh", "-c", "ls -d /tmp/plimsoll*"]).is_err(),
        "a file is left"
    );

    let profile = results.profile();
    let document = read(&profile);
    holds(&document);
    assert_eq!(document["metadata"]["mode"], "idle");
    let source = match older_vllm() {
        None => "high_from_vllm_logs",
        Some(_) => "high_calculated",
    };
    assert_eq!(
        document["memory_breakdown"]["confidence_levels"]["kv_cache"],
        source
    );
    assert_eq!(
        document["latency_stats"]["repeats"][0]["result"]["latencies_ms"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
    // The start-up was seen, so little is left unexplained.
    let unexplained = document["memory_breakdown"]["unexplained_bytes"]
        .as_i64()
        .expect("bytes");
    assert!(
        unexplained.unsigned_abs() < 256 << 20,
        "{:#}",
        document["memory_breakdown"]["components"]
    );
    is_derived_again(&profile);
    if common::e2e::have(test_name!(), &[common::e2e::Need::Jq]) {
        let desk = Desk::new(&results, &profile, &profile);
        desk.seeds_lines_answer();
        if older_vllm().is_none() {
            desk.the_pool_is_told();
            desk.every_row_answers(true);
        }
    }

    // A model that is not there: vLLM says so, far above the last line of its tracebacks.
    let nowhere = Results::new();
    let dir = nowhere.arg();
    let ended = run(&[
        "profile",
        &idle.name,
        &dir,
        "-m=/models/no-such-model",
        "--enforce-eager",
        "--num-iters=1",
    ])
    .expect(4);
    assert!(
        ended.error().starts_with("the bench ended with 1"),
        "{}",
        ended.stderr
    );
    ended.says(
        &["/models/no-such-model"],
        "the container does not have this model",
    );
    assert!(codes(&nowhere.document()).contains(&"bench_failed"));
    assert_eq!(idle.processes(), before);
}

#[test]
fn run_starts_it_from_the_preset() {
    needs!(Docker, Vllm);
    let _alone = alone();
    let results = Results::new();
    let dir = results.arg();
    let volume = format!("--volume={}:/models:ro", models().display());
    let load = [
        "--num-prompts=8",
        "--input-len=64",
        "--output-len=64",
        "--max-concurrency=4",
        "--num-iters-warmup=1",
    ];
    let image = format!("--image={}", vllm_image());
    let mut command = vec!["run", "--preset=vllm-cpu", &image, &volume, &dir];
    let variable = format!("--env={OLDER_POOL}");
    command.extend(older_vllm().map(|_| variable.as_str()));
    command.extend(load);
    run(&command).expect(0);
    let profile = results.profile();
    let document = read(&profile);
    holds(&document);
    assert_eq!(document["metadata"]["mode"], "started");
    let container = &document["metadata"]["container"];
    assert!(
        docker(&["inspect", container["id"].as_str().expect("id")]).is_err(),
        "it is removed"
    );
    assert_eq!(container["memory_limit_bytes"].as_u64(), Some(4 << 30));
    assert_eq!(container["shm_size_bytes"].as_u64(), Some(1 << 30));
    // The whole life was seen: the runtime is measured, the rest is small.
    assert!(part(&document, "runtime") > 200 << 20);
    let unexplained = document["memory_breakdown"]["unexplained_bytes"]
        .as_i64()
        .expect("bytes");
    assert!(
        unexplained.unsigned_abs() < 256 << 20,
        "{:#}",
        document["memory_breakdown"]["components"]
    );
    is_derived_again(&profile);
}
