//! The targets of `scripts/fuzz`, which are a crate of their own, on inputs that a fuzzer begins with.

#[allow(dead_code)]
#[path = "../fuzz/src/lib.rs"]
mod targets;

const SEEDS: &[&[u8]] = &[
    b"",
    b"{",
    b"{}",
    b"[]",
    b"\x00\xff\x7f",
    b"models:\n- m\n",
    b"INFO 11-23 12:00:00 [kv_cache_utils.py:1316] GPU KV cache size: 1,024 tokens\n",
];

#[test]
fn every_fuzz_target_takes_the_first_inputs() {
    for (name, target) in targets::TARGETS {
        for seed in SEEDS {
            println!("{name}: {seed:?}");
            target(seed);
        }
    }
}
