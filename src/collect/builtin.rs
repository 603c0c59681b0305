//! Runs plimsoll's own load client against the engine, from the host, and produces the same outcome
//! as a bench in the container.

use super::bench::Bench;
use super::{BenchSetup, CapturePlan, EngineEndpoint};
use crate::capture::{
    ExecEnd, ExecOutcome, ExecRole, LineSource, Mode, Phase, Request, RequestRow, Stream, Workload,
};
use crate::engine::bench::NUM_PROMPTS;
use crate::error::Failure;
use crate::load::{self, Arrivals, LengthMix, LoadOutcome, LoadPlan, LoadProgress, LoadTarget};
use crate::progress::{Progress, Stage};
use std::time::Duration;

/// Default warm-up requests: the one that probes the server's API is enough, because the engine
/// runs already.
const WARMUPS: u32 = 1;

/// Timeout of one request; the whole run has its own deadline.
const PATIENCE: Duration = Duration::from_secs(600);

/// Maximum number of errors written to the log.
const MOST_LOGGED_ERRORS: usize = 8;

/// The server's address for the client, or an error if this host cannot reach it.
pub async fn resolve_target(
    plan: &CapturePlan,
    door: &EngineEndpoint,
    setup: &BenchSetup,
) -> Result<LoadTarget, Failure> {
    let path = plan
        .attached
        .engine
        .endpoints
        .first()
        .copied()
        .unwrap_or("/");
    let runtime = &plan.attached.runtime;
    let address = runtime
        .outside_address(&door.facts, door.port, path, door.key.as_deref())
        .await
        .map_err(|why| unreachable_port(door, &why))?;
    let name = setup.served_model_name.as_ref().unwrap_or(&setup.model);
    Ok(LoadTarget {
        address,
        dialect: plan.attached.engine.dialect,
        model: name.clone(),
        key: door.key.clone(),
        redactor: plan.attached.found.secrets.redactor(),
    })
}

/// The error for a server that is reachable only inside the container.
pub fn unreachable_port(door: &EngineEndpoint, why: &str) -> Failure {
    Failure::environment(format!(
        "the built-in bench sends its requests from this host, which does not reach port {} of container `{}`: {why}",
        door.port, door.facts.name
    ))
    .hint("publish the port (`docker run -p`), or run the engine's own bench inside: --bench serve")
}

/// The client's plan for one repeat.
pub fn load_plan(workload: &Workload, repeat: u32) -> LoadPlan {
    let requests = workload.num_prompts.unwrap_or(NUM_PROMPTS);
    let arrivals = match workload.request_rate {
        Some(per_second) => Arrivals::Poisson {
            per_second,
            max_in_flight: workload.max_concurrency,
        },
        // As fast as possible: all requests concurrently, or as many as allowed.
        None => Arrivals::Closed {
            concurrency: workload.max_concurrency.unwrap_or(requests).min(requests),
        },
    };
    let mut plan = LoadPlan {
        requests,
        warmups: workload.num_iters_warmup.unwrap_or(WARMUPS),
        arrivals,
        lengths: match workload.short_prompts {
            None => LengthMix::fixed_length(workload.input_len, workload.output_len),
            Some(short) => LengthMix::two_lengths(
                (short.input_len, short.share),
                workload.input_len,
                workload.output_len,
            ),
        },
        prompt: workload.prompt.clone(),
        seed: workload.seed.unwrap_or(0),
        first_prompt: 0,
        patience: PATIENCE,
        not_before: None,
    };
    plan.first_prompt = plan.prompt_count() * u64::from(repeat.saturating_sub(1));
    plan
}

/// Notes on settings without effect on this client; sentences.
pub fn ignored_settings(plan: &CapturePlan) -> Vec<String> {
    let Request {
        workload,
        settings,
        extra_engine_args,
        ..
    } = &plan.request;
    let mut notes: Vec<String> = [
        ("batch size", workload.batch_size.is_some()),
        ("number of iterations", workload.num_iters.is_some()),
    ]
    .into_iter()
    .filter(|(_, asked)| *asked)
    .map(|(what, _)| format!("the built-in bench has no {what}; it was ignored"))
    .collect();
    let engine = *settings != Default::default() || !extra_engine_args.is_empty();
    if engine && plan.attached.mode != Mode::Started {
        notes.push("the server is already running; engine settings have no effect".to_owned());
    }
    notes
}

/// The client's settings in the form of a command, for display and for the capture. No command runs
/// in the container.
pub fn client_words(target: &LoadTarget, plan: &LoadPlan) -> Vec<String> {
    let mut words = vec!["plimsoll".to_owned(), "(built-in client)".to_owned()];
    let mut put = |name: &str, value: String| words.extend([name.to_owned(), value]);
    put(
        "--url",
        format!("http://{}{}", target.address, target.request_path()),
    );
    put("--model", target.model.clone());
    match &plan.prompt {
        Some(text) => put("--prompt", text.clone()),
        None => put("--input-len", plan.lengths.input_text()),
    }
    let length = plan.lengths.length_of(plan.seed, plan.first_prompt);
    put("--output-len", length.output.to_string());
    put("--num-prompts", plan.requests.to_string());
    match plan.arrivals {
        Arrivals::Closed { concurrency } => put("--max-concurrency", concurrency.to_string()),
        Arrivals::Poisson {
            per_second,
            max_in_flight,
        } => {
            put("--request-rate", per_second.to_string());
            if let Some(most) = max_in_flight {
                put("--max-concurrency", most.to_string());
            }
        }
    }
    put("--num-warmups", plan.warmups.max(1).to_string());
    put("--seed", plan.seed.to_string());
    words
}

impl Bench<'_> {
    /// One run of the client, and its last message.
    pub(super) async fn builtin_repeat(
        &self,
        target: &LoadTarget,
        repeat: u32,
        index: u32,
    ) -> (ExecOutcome, Option<String>) {
        let recorder = self.recorder;
        let workload = &self.plan.request.workload;
        let of = self.plan.repeats;
        let mut load = load_plan(workload, repeat);
        load.not_before = Some(self.not_before).filter(|_| repeat == 1);
        if repeat == 1 {
            ignored_settings(self.plan)
                .into_iter()
                .for_each(|n| recorder.report_progress(Progress::Warning(n)));
        }
        let started_at_ns = recorder.clock.now();
        let mut zero_ns = started_at_ns;
        let done = load::run_load(target, &load, self.stop.token(), |step| match step {
            LoadProgress::WarmingUp => recorder.mark_phase(Phase::Warmup, Some(repeat)),
            LoadProgress::Measuring => {
                zero_ns = recorder.clock.now();
                recorder.mark_phase(Phase::Bench, Some(repeat));
                recorder.report_progress(Progress::Stage(Stage::Bench { repeat, of }));
            }
            LoadProgress::Row { row, done, of } => {
                let mut row = row.clone().moved_to(zero_ns);
                row.repeat = repeat;
                recorder.record_request(&row);
                recorder.report_progress(Progress::Step { done, of });
            }
        })
        .await;
        let ended_at_ns = recorder.clock.now();
        let say = |stream, text: String| {
            recorder.record_line(ended_at_ns, LineSource::Exec(index), stream, &text, false);
        };
        let mut outcome = ExecOutcome {
            role: ExecRole::Bench,
            repeat: Some(repeat),
            argv: recorder.redactor.redact_argv(&client_words(target, &load)),
            started_at_ns,
            ended_at_ns,
            ..ExecOutcome::default()
        };
        let last_words = match done {
            Ok(done) => {
                outcome.end = if done.cancelled {
                    ExecEnd::Cancelled
                } else {
                    ExecEnd::Exited(0)
                };
                let errors = errors(&done.requests);
                outcome_lines(&done)
                    .into_iter()
                    .for_each(|t| say(Stream::Stdout, t));
                for error in &errors {
                    say(Stream::Stderr, error.clone());
                }
                let result = done.to_document().to_string();
                outcome.result = Some(recorder.redactor.redact_text(&result).into_owned());
                errors.into_iter().next()
            }
            Err(failure) => {
                outcome.end = ExecEnd::Exited(1);
                say(Stream::Stderr, failure.message.clone());
                failure
                    .hints
                    .iter()
                    .for_each(|hint| say(Stream::Stderr, format!("hint: {hint}")));
                Some(failure.message)
            }
        };
        (outcome, last_words)
    }
}

/// The outcome in lines, like the output of the other benches.
fn outcome_lines(done: &LoadOutcome) -> Vec<String> {
    let document = done.to_document();
    let mut lines = Vec::new();
    if let Some(object) = document.as_object() {
        let figures = object
            .iter()
            .filter(|(_, value)| value.is_number() || value.is_null());
        lines.extend(figures.map(|(key, value)| format!("{key}: {value}")));
    }
    lines.extend(done.notes.iter().map(|n| format!("note: {n}")));
    lines
}

/// The first errors, each with its kind.
fn errors(rows: &[RequestRow]) -> Vec<String> {
    rows.iter()
        .filter(|row| row.has_failed())
        .filter_map(|row| {
            let error = row.error.as_ref()?;
            let kind = error.kind.as_str();
            Some(format!("request {}: {kind}: {}", row.number, error.message))
        })
        .take(MOST_LOGGED_ERRORS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_make_a_closed_or_an_open_loop() {
        let workload = Workload {
            input_len: 8,
            output_len: 4,
            num_prompts: Some(10),
            ..Workload::default()
        };
        let closed = |w: &Workload| load_plan(w, 1).arrivals;
        assert_eq!(closed(&workload), Arrivals::Closed { concurrency: 10 });
        let four = Workload {
            max_concurrency: Some(4),
            ..workload.clone()
        };
        assert_eq!(closed(&four), Arrivals::Closed { concurrency: 4 });
        let open = Workload {
            request_rate: Some(2.5),
            ..four
        };
        assert_eq!(
            closed(&open),
            Arrivals::Poisson {
                per_second: 2.5,
                max_in_flight: Some(4)
            }
        );
        // No prompt of a repeat was sent in the one before.
        let (first, second) = (load_plan(&workload, 1), load_plan(&workload, 2));
        assert_eq!(
            (first.first_prompt, second.first_prompt),
            (0, first.prompt_count())
        );
        assert_eq!(first.prompt_count(), 11);
    }

    #[test]
    fn the_words_hold_no_key() {
        let target = LoadTarget {
            address: "127.0.0.1:8000".into(),
            dialect: Default::default(),
            model: "m".into(),
            key: Some("sk-very-secret".into()),
            redactor: Default::default(),
        };
        let plan = load_plan(
            &Workload {
                input_len: 8,
                output_len: 4,
                ..Workload::default()
            },
            1,
        );
        let words = client_words(&target, &plan).join(" ");
        assert!(
            words.contains("--url http://127.0.0.1:8000/v1/completions --model m --input-len 8")
        );
        assert!(!words.contains("secret") && !format!("{target:?}").contains("secret"));
    }
}
