//! An A/B of a real engine (vLLM on CPU): a pool that is asked for larger is found larger by just
//! that, and nothing else of the engine's own figures moves. Slow: minutes. (Both sizes have two
//! decimals in GiB, which is what the engine prints.)

use crate::common;
use common::e2e::{Engine, Results, models, read, run, vllm_image};

#[test]
fn a_larger_pool_is_the_difference() {
    needs!(Docker, Vllm);
    let volume = format!("{}:/models:ro", models().display());
    let options = [
        "-m",
        "4g",
        "--shm-size",
        "1g",
        "-v",
        &volume,
        "--entrypoint",
        "sleep",
    ];
    let idle = Engine::run("ablate-vllm", &options, vllm_image(), &["infinity"]);
    let results = Results::new();
    run(&[
        "ablate",
        &idle.name,
        &results.arg(),
        "-m=/models/tiny-llama",
        "--enforce-eager",
        "--max-model-len=2048",
        "--input-len=64",
        "--output-len=16",
        "--batch-size=4",
        "--num-iters=2",
        "--num-iters-warmup=1",
        "--a=--kv-cache-memory-bytes 268435456",
        "--b=--kv-cache-memory-bytes 536870912",
    ])
    .expect(0);
    let folder = results.0.path().join("ablations");
    let file = std::fs::read_dir(folder).unwrap().flatten().next().unwrap();
    let document = read(&file.path());
    assert_eq!(document["simulated"], false);
    let rows = |key: &str| document["comparison"][key].as_array().unwrap().clone();
    let difference = |key: &str| {
        let all = [rows("components"), rows("others")].concat();
        let row = all.iter().find(|r| r["key"] == key).unwrap();
        row["difference"].as_f64()
    };
    assert_eq!(difference("kv_cache"), Some(268_435_456.0));
    assert_eq!(difference("kv_cache_tokens"), Some(268_435_456.0 / 2048.0));
    assert_eq!(difference("model_weights"), Some(0.0));
    let total = document["comparison"]["total"]["difference"]
        .as_f64()
        .unwrap();
    assert!((total - 268_435_456.0).abs() < 128e6, "{total}");
    assert!(difference("mean_latency_ms").is_some());
}
