//! Pages of estimates as people see them.

use super::*;
use crate::estimate::Band;
use crate::estimate::question::{OnGpu, What};
use crate::estimate::{Deployment, EngineId};
use crate::report::format::text::{PageDetail, render_page};
use crate::report::layout::text_width;
use crate::report::page::TextOptions;
use serde_json::json;

const GIB: u64 = 1 << 30;

fn term(component: Component, bytes: Result<u64, Unknown>, band: Option<(u64, u64)>) -> Term {
    Term {
        component,
        at_least: None,
        bytes,
        formula: "rows * columns * bytes / tensor_parallel".into(),
        inputs: json!({"rows": 151_936, "bytes": 2, "format": "bfloat16"})
            .as_object()
            .unwrap()
            .clone(),
        band: band.map(|(low, high)| Band {
            low,
            high,
            cases: 25,
            source: "built-in: vLLM, 25 runs".into(),
        }),
    }
}

fn terms() -> Vec<Term> {
    vec![
        term(
            Component::Weights,
            Ok(15 * GIB + GIB / 4),
            Some((15 * GIB, 16 * GIB)),
        ),
        term(Component::Activation, Ok(5 * GIB), None),
        term(Component::KvCache, Ok(51 * GIB), None),
    ]
}

fn setting(name: &str, value: &str, default: bool) -> EngineSetting {
    EngineSetting {
        name: name.into(),
        value: value.into(),
        default,
    }
}

fn reading_of(page: &mut EstimatePage) -> &mut Reading {
    match &mut page.reading {
        Known::Value(reading) => reading,
        Known::Missing(why) => panic!("{why}"),
    }
}

fn sample_page(terms: &[Term], warnings: &[String]) -> EstimatePage {
    EstimatePage {
        outside_bytes: 0,
        warm_up_bytes: 0,
        document: ESTIMATE_DOCUMENT.into(),
        model: "Qwen/Qwen3-8B".into(),
        parameters: 8_190_735_360,
        source: "configs/models".into(),
        engine: "vllm 0.19.0".into(),
        gpus: Some("1 x H100 SXM 80GB, 79.18 GiB".into()),
        gpu_count: 1,
        settings: vec![
            setting("max_model_len", "40,960", true),
            setting("gpu_memory_utilization", "0.90", false),
        ],
        terms: terms.to_vec(),
        pool: Some(PoolFigures {
            bytes: 51 * GIB,
            tokens: 371_365,
        }),
        per_token: Known::Value(147_456),
        longest: Some(40_960),
        concurrency: 1,
        reason: String::new(),
        reading: Known::Value(Reading {
            lacks_graphs: false,
            least_cache: 0,
            more_graphs: 0,
            extrapolated: false,
            unmeasured: false,
            pool_high: 0,
            refused: false,
            serves_shorter: false,
            is_fitted: false,
            moves_layers: false,
            besides: 20 * GIB + GIB / 4,
            outside: 0,
            besides_high: 21 * GIB,
            request: 40_960 * 147_456,
            on: Some(OnGpu {
                free: 79 * GIB,
                budget: 71 * GIB + GIB / 4,
                pool: 51 * GIB,
                grows: false,
                concurrency: 9.07,
            }),
        }),
        gpu: Some(Gpu {
            name: "H100 SXM 80GB".into(),
            total: 85_017_493_504,
            in_use: 0,
        }),
        solution: None,
        shared: None,
        actions: Vec::new(),
        warnings: warnings.to_vec(),
    }
}

fn page_of(report: &Report, width: usize) -> String {
    let options = TextOptions {
        width,
        ..TextOptions::default()
    };
    render_page(report, options, PageDetail::Essential)
}

fn estimate_page(of: &EstimatePage, explain: bool, width: usize) -> String {
    page_of(&estimate_report(of, explain), width)
}

#[test]
fn a_page() {
    let terms = terms();
    let warnings = [
        "--cpu-offload-gb moves weights to the host's memory, and is not computed with".to_owned(),
    ];
    insta::assert_snapshot!(estimate_page(&sample_page(&terms, &warnings), false, 88), @r"
    Qwen/Qwen3-8B, vllm 0.19.0 on 1 x H100 SXM 80GB, 79.18 GiB

    Estimated memory
      8.19 B parameters; facts from configs/models.
      max_model_len 40,960 (default), gpu_memory_utilization 0.90

      component      GiB  90 % interval   interval source
      weights      15.25  15.00 to 16.00  built-in: vLLM, 25 runs
      activations   5.00  no data
      KV cache     51.00
      total        71.25

    KV cache
      per token  144.00 KiB
      pool       371,365 tokens
      a request  5.62 GiB for 40,960 tokens
      capacity   9.0 concurrent requests of 40,960 tokens

    To know
      warning  --cpu-offload-gb moves weights to the host's memory, and is not computed with
               [estimate]

    Fits; risk low: with every term at its highest, a tenth of the engine's memory is left
      beside one longest request
      ████████████████████████████████████░░░░ 90 % of 79.18 GiB, H100 SXM 80GB
    ");
}

#[test]
fn a_page_that_explains_on_a_narrow_terminal() {
    let mut terms = terms();
    terms[1].bytes = Err(Unknown::new(
        "the peak of a vision tower is not known from its configuration",
    )
    .hint("measure it with `plimsoll calibrate`"));
    let mut page = sample_page(&terms, &[]);
    page.reading = Known::Missing(Unknown::new("a term is not known"));
    let text = estimate_page(&page, true, 44);
    insta::assert_snapshot!(text, @r"
    Qwen/Qwen3-8B, vllm 0.19.0 on 1 x H100 SXM
      80GB, 79.18 GiB

    Estimated memory
      8.19 B parameters; facts from
        configs/models.
      max_model_len 40,960 (default),
        gpu_memory_utilization 0.90

      component        GiB  90 % interval
      weights        15.25  15.00 to 16.00
      activations  unknown
      KV cache       51.00
      total        unknown
      A wider terminal also shows: interval
        source.
      activations: the peak of a vision tower
        is not known from its configuration:
        measure it with `plimsoll calibrate`

    KV cache
      per token  144.00 KiB
      pool       371,365 tokens

    Formulas
      weights        rows * columns * bytes /
                     tensor_parallel
      rows           151,936
      bytes          2
      format         bfloat16
      =              15.25 GiB (16,374,562,816
                     bytes)
      90 % interval  15.00 GiB to 16.00 GiB,
                     from built-in: vLLM, 25
                     runs (25 cases)

      activations  rows * columns * bytes /
                   tensor_parallel
      rows         151,936
      bytes        2
      format       bfloat16
      =            unknown: the peak of a vision
                   tower is not known from its
                   configuration

      KV cache  rows * columns * bytes /
                tensor_parallel
      rows      151,936
      bytes     2
      format    bfloat16
      =         51.00 GiB (54,760,833,024 bytes)

    Unknown whether it fits: a term is not known
    ");
    assert!(text.lines().all(|l| text_width(l) <= 44), "{text}");
}

#[test]
fn what_does_not_fit_names_the_shortage() {
    let terms = terms();
    let mut page = sample_page(&terms, &[]);
    page.concurrency = 16;
    let text = estimate_page(&page, false, 88);
    let line =
        "Does not fit by 39.00 GiB, 16 requests of 40,960 tokens: the KV cache needs 90.00 GiB";
    assert!(text.contains(line), "{text}");
    // SGLang's rule: what lies beside the pool is not in its share.
    reading_of(&mut page).besides = 80 * GIB;
    assert!(estimate_page(&page, false, 88).contains(line));
    if let Some(on) = &mut reading_of(&mut page).on {
        on.pool = 0;
    }
    let text = estimate_page(&page, false, 120);
    assert!(
        text.contains("everything but the KV cache needs 80.00 GiB"),
        "{text}"
    );
    reading_of(&mut page).on = None;
    assert!(estimate_page(&page, false, 88).contains("name it with --gpu"));
}

#[test]
fn how_sure_it_is_that_it_does_not_fit_is_said() {
    let verdict = |page: &EstimatePage| answer_of_estimate(page).verdict;
    let mut page = sample_page(&terms(), &[]);
    page.concurrency = 10;
    assert!(verdict(&page).starts_with("Does not fit by"));
    // 56.25 GiB are within the interval of the pool.
    reading_of(&mut page).pool_high = 57 * GIB;
    let probably = verdict(&page);
    assert!(
        probably.starts_with("Probably does not fit by 5.25 GiB, 10 requests"),
        "{probably}"
    );
    assert!(
        probably.ends_with("at the upper end of its interval they fit"),
        "{probably}"
    );
    page.concurrency = 1;
    if let Some(on) = &mut reading_of(&mut page).on {
        (on.pool, on.concurrency) = (5 * GIB, 0.9);
    }
    reading_of(&mut page).pool_high = 0;
    reading_of(&mut page).serves_shorter = true;
    let shorter = answer_of_estimate(&page);
    let verdict_text = &shorter.verdict;
    assert!(
        verdict_text.starts_with("Starts, but does not hold 1 request of 40,960 tokens: "),
        "{verdict_text}"
    );
    let end = "The engine refuses requests of more than about 371,365 tokens";
    assert!(verdict_text.ends_with(end), "{verdict_text}");
    assert_eq!(shorter.state, AnswerState::Critical);
    page.reason = "the engine lacks the flag".into();
    reading_of(&mut page).refused = true;
    assert_eq!(verdict(&page), "Does not start: the engine lacks the flag");
}

#[test]
fn a_risk_is_of_the_requests_that_are_asked_for() {
    let mut page = sample_page(&terms(), &[]);
    page.concurrency = 9;
    let (_, verdict) = verdict_of_estimate(&page);
    let end = "with every term at its highest, 9 requests of 40,960 tokens do not fit";
    assert!(verdict.ends_with(end), "{verdict}");
    assert_eq!(at_once(6.96), "6.9");
    assert_eq!(at_once(7.0), "7.0");
}

#[test]
fn answers_to_questions() {
    let solved = Solution {
        what: What::MaxModelLen,
        value: Some(131_072.0),
        deployment: Deployment::with_defaults(EngineId::Vllm),
        bound: "the model reads no more".into(),
    };
    assert_eq!(
        solution_text(&solved, 1),
        "max-model-len 131,072: the model reads no more"
    );
    let nothing = Solution {
        value: None,
        ..solved
    };
    assert_eq!(
        solution_text(&nothing, 4),
        "max-model-len: none; 4 requests of the longest length do not fit, whatever it is"
    );
    let found = vec![Choice {
        gpu: "L40S".into(),
        count: 2,
        memory: 45 * GIB,
        max_concurrency: 12.34,
        headroom: 1.54,
        risk: Risk::Medium,
    }];
    let choices = GpuChoices {
        document: "gpu_choices".into(),
        id: "m".into(),
        title: "m, 8 requests of 8,192 tokens".into(),
        concurrency: 8,
        max_model_len: 8192,
        recommend: found,
        tried: 36,
        warnings: Vec::new(),
    };
    insta::assert_snapshot!(page_of(&choices_report(&choices), 88), @r"
    m, 8 requests of 8,192 tokens

    GPUs that hold it
      GPU   number  GiB in all  concurrent requests  risk
      L40S       2          90                 12.3  medium

    The smallest: 2 x L40S.
    ");
    let entry = |concurrency, length, needed, risk| Entry {
        concurrency,
        length,
        needed: needed * GIB,
        cache: GIB,
        fits: None,
        risk,
    };
    let entries = vec![
        entry(1, 2048, 16, Some(Risk::Low)),
        entry(16, 2048, 70, Some(Risk::High)),
        entry(1, 8192, 17, Some(Risk::Low)),
        entry(16, 8192, 120, Some(Risk::DoesNotFit)),
    ];
    let table = EstimateTable {
        document: "estimate_table".into(),
        id: "m".into(),
        title: "m: GiB on each GPU".into(),
        table: entries,
        warnings: Vec::new(),
    };
    insta::assert_snapshot!(page_of(&table_report(&table), 88), @r"
    m: GiB on each GPU

    By tokens and concurrent requests
      tokens       1       16
       2,048  16.00    70.00?
       8,192  17.00   120.00!
      ! does not fit; ? may not fit: the risk is high

    3 of 4 combinations fit.
    ");
}
