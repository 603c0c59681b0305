//! Progress of a `vllm bench` from its output: plain lines and tqdm bars.

use crate::engine::bench::ProgressSign::{self, AtZero, Begins, Holds, Steps, UnnamedSteps};
use crate::engine::bench::progress_of;
use crate::engine::{BenchKind, BenchProgress};

const LATENCY: &[ProgressSign] = &[
    Begins("Warming up...", BenchProgress::Warmup),
    AtZero("Warmup iterations:", BenchProgress::Warmup),
    Steps("Bench iterations:"),
];

const THROUGHPUT: &[ProgressSign] = &[
    // Adding and rendering prompts is in the measured time already.
    AtZero("Rendering prompts:", BenchProgress::Measuring),
    AtZero("Adding requests:", BenchProgress::Measuring),
    Steps("Processed prompts:"),
];

#[rustfmt::skip]
const SERVE: &[ProgressSign] = &[
    // Some releases end the first sentence and begin the second on one line.
    Holds("Starting main benchmark run", BenchProgress::Measuring),
    Begins("Starting initial single prompt test run", BenchProgress::Warmup),
    Begins("Warming up with ", BenchProgress::Warmup),
    // The bar of the warm-up requests looks the same: steps count only after the measured part has
    // begun.
    UnnamedSteps,
];

/// The part that the line begins, or the step it reports.
pub fn read(kind: BenchKind, line: &str) -> Option<BenchProgress> {
    let signs = match kind {
        BenchKind::Latency => LATENCY,
        BenchKind::Throughput => THROUGHPUT,
        BenchKind::Serve => SERVE,
        BenchKind::Probe => return None,
    };
    progress_of(line, signs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use BenchProgress::{Measuring, Step, Warmup};
    use proptest::prelude::*;

    #[test]
    fn latency_lines() {
        let read = |line| read(BenchKind::Latency, line);
        assert_eq!(read("Warming up..."), Some(Warmup));
        assert_eq!(
            read("Warmup iterations:   0%|          | 0/2 [00:00<?, ?it/s]"),
            Some(Warmup)
        );
        assert_eq!(
            read("Warmup iterations:  50%|█████     | 1/2 [00:00<00:00,  1.94it/s]"),
            None
        );
        assert_eq!(
            read("Bench iterations:   0%|          | 0/5 [00:00<?, ?it/s]"),
            Some(Measuring)
        );
        assert_eq!(
            read("Bench iterations:  20%|██        | 1/5 [00:00<00:02,  1.91it/s]"),
            Some(Step { done: 1, of: 5 })
        );
        let redrawn = "Bench iterations:   0%|          | 0/5 [00:00<?]\r\rBench iterations: 100%|██████████| 5/5 [00:02<00:00]\r\n";
        assert_eq!(read(redrawn), Some(Step { done: 5, of: 5 }));
        assert_eq!(
            read(
                "Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:00<00:00, 45.42it/s]"
            ),
            None
        );
        assert_eq!(read("Avg latency: 0.53 seconds"), None);
    }

    #[test]
    fn throughput_lines() {
        let read = |line| read(BenchKind::Throughput, line);
        assert_eq!(
            read("Rendering prompts:   0%|          | 0/40 [00:00<?, ?it/s]"),
            Some(Measuring)
        );
        assert_eq!(
            read("Rendering prompts:  80%|████████  | 32/40 [00:00<00:00, 312.47it/s]"),
            None
        );
        assert_eq!(
            read(
                "Processed prompts:   0%|          | 0/40 [00:00<?, ?it/s, est. speed input: 0.00 toks/s, output: 0.00 toks/s]"
            ),
            Some(Measuring)
        );
        assert_eq!(
            read(
                "Processed prompts: 100%|██████████| 40/40 [00:05<00:00,  4.98s/it, est. speed input: 505.70 toks/s]"
            ),
            Some(Step { done: 40, of: 40 })
        );
    }

    #[test]
    fn serve_lines() {
        let read = |line| read(BenchKind::Serve, line);
        assert_eq!(
            read("Starting initial single prompt test run..."),
            Some(Warmup)
        );
        assert_eq!(read("Warming up with 3 requests..."), Some(Warmup));
        assert_eq!(read("Starting main benchmark run..."), Some(Measuring));
        assert_eq!(
            read("Initial test run completed. Starting main benchmark run..."),
            Some(Measuring)
        );
        assert_eq!(
            read(" 22%|██▎       | 9/40 [00:02<00:06,  5.05it/s]"),
            Some(Step { done: 9, of: 40 })
        );
        assert_eq!(read("10% off | 1/2 [x"), Some(Step { done: 1, of: 2 }));
        assert_eq!(
            read("Capturing CUDA graphs: 10%|█ | 1/2 [00:02<00:06]"),
            None
        );
        assert_eq!(read(""), None);
    }

    /// The steps for a follower that hands over every state of a bar.
    fn states(kind: BenchKind, output: &str) -> Vec<BenchProgress> {
        output
            .split(['\r', '\n'])
            .filter_map(|line| read(kind, line))
            .collect()
    }

    #[test]
    fn whole_benches() {
        let shown = states(
            BenchKind::Latency,
            include_str!("../../../tests/fixtures/vllm/bench-output/latency.log"),
        );
        assert_eq!(
            shown[..4],
            [Warmup, Warmup, Measuring, Step { done: 1, of: 5 }]
        );
        assert_eq!(shown.last(), Some(&Step { done: 5, of: 5 }));
        let shown = states(
            BenchKind::Throughput,
            include_str!("../../../tests/fixtures/vllm/bench-output/throughput.log"),
        );
        assert_eq!(shown[..3], [Measuring, Measuring, Step { done: 1, of: 40 }]);
        assert_eq!(shown.last(), Some(&Step { done: 40, of: 40 }));
        let shown = states(
            BenchKind::Serve,
            include_str!("../../../tests/fixtures/vllm/bench-output/serve.log"),
        );
        assert_eq!(shown[..3], [Warmup, Measuring, Step { done: 0, of: 40 }]);
        assert_eq!(shown.last(), Some(&Step { done: 40, of: 40 }));
    }

    proptest! {
        #[test]
        fn never_panics(line in "\\PC{0,40}|(Bench iterations: |Processed prompts: )?[0-9%|/ \\[\r]{0,30}") {
            for kind in [BenchKind::Latency, BenchKind::Throughput, BenchKind::Serve] {
                read(kind, &line);
            }
        }
    }
}
