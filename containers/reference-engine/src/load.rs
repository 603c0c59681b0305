//! `bench serve`: a client that loads a running server and times its streamed answers.

use crate::args::{Args, Flag, Kind, Spec, Stop, usage};
use crate::bench::{self, mean, percentile, write_result};
use crate::phases::{Phase, Phases};
use crate::{faults, http, json};
use std::io::BufRead;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub const SPEC: Spec = Spec {
    usage: "reference-engine bench serve --model NAME [flags]",
    about: "Load a running server with streamed completions. It allocates nothing: the memory is the server's.",
    groups: &[
        &[
            Flag::required("model", "the model's name at the server"),
            Flag::optional("base-url", "http://ADDRESS:PORT, instead of --host and --port"),
            Flag::new("host", Kind::Text, "127.0.0.1", "the server's IP address, or localhost"),
            Flag::new("port", Kind::Count, "8000", "the server's port"),
            Flag::new("num-prompts", Kind::Count, "10", "timed requests"),
            Flag::new("num-warmups", Kind::Count, "1", "requests before the timed ones"),
            Flag::new("max-concurrency", Kind::Count, "8", "requests under way at once, up to 128"),
            Flag::new("request-rate", Kind::Rate, "inf", "requests per second, evenly spaced, or inf"),
        ],
        bench::COMMON,
        faults::FLAGS,
    ],
};

struct Plan {
    server: SocketAddr,
    body: String,
    prompts: u64,
    warmups: u64,
    concurrency: u64,
    rate: f64,
}

impl Plan {
    fn read(args: &Args) -> Result<Plan, Stop> {
        let (flag, host, port) = match args.optional("base-url") {
            None => ("host", args.text("host")?, args.count("port")?.to_string()),
            Some(url) => {
                let place = url.strip_prefix("http://").map(|place| place.trim_end_matches('/'));
                let (host, port) = place
                    .and_then(|place| place.rsplit_once(':'))
                    .ok_or_else(|| usage("base-url", "expected http://ADDRESS:PORT"))?;
                ("base-url", host, port.to_string())
            }
        };
        let server = port.parse().ok().and_then(|port| http::address(host, port));
        // Token ids rather than words, so that the server counts as many as were asked for.
        let ids = vec!["1"; args.count("input-len")?.clamp(1, 100_000) as usize].join(",");
        Ok(Plan {
            server: server.ok_or_else(|| usage(flag, "expected an IP address or localhost, and a port"))?,
            body: format!(
                "{{\"model\":{},\"prompt\":[{ids}],\"max_tokens\":{},\"stream\":true,\"ignore_eos\":true}}",
                json::string(args.text("model")?),
                args.count("output-len")?.max(1)
            ),
            prompts: args.count("num-prompts")?,
            warmups: args.count("num-warmups")?,
            concurrency: args.count("max-concurrency")?.clamp(1, 128),
            rate: args.rate("request-rate")?,
        })
    }

    /// When the nth request may leave, counted from the start.
    fn due(&self, n: u64) -> Duration {
        Duration::try_from_secs_f64(n as f64 / self.rate).unwrap_or(Duration::MAX)
    }
}

#[derive(Clone, Copy)]
struct Timed {
    first_token_ms: f64,
    end_ms: f64,
    output_tokens: u64,
}

pub fn run(args: &Args, phases: &'static Phases) -> Result<i32, Stop> {
    let plan = Plan::read(args)?;
    phases.banner(args.text("model")?);
    phases.enter(Phase::Start, "");
    match http::send(plan.server, "GET /health", "") {
        Ok((200, _)) => phases.enter(Phase::Ready, ""),
        Ok((status, _)) => return Err(Stop::Failed(format!("{}/health answers {status}", plan.server))),
        Err(why) => return Err(Stop::Failed(format!("no server at {}: {why}", plan.server))),
    }
    phases.enter(Phase::WarmupStart, "");
    for _ in 0..plan.warmups {
        one(&plan).map_err(|why| Stop::Failed(format!("the warm-up request failed: {why}")))?;
    }
    phases.enter(Phase::WarmupEnd, "");
    phases.enter(Phase::BenchStart, "");
    let begin = Instant::now();
    let (timed, failed) = all(&plan, phases, begin);
    let duration = begin.elapsed().as_secs_f64();
    phases.enter(Phase::BenchEnd, "");

    let completed = timed.len() as u64;
    let input_tokens = completed * args.count("input-len")?.clamp(1, 100_000);
    let output_tokens: u64 = timed.iter().map(|timed| timed.output_tokens).sum();
    let result = format!(
        "{{\"model_id\": {}, \"num_prompts\": {}, \"max_concurrency\": {}, \"completed\": {completed}, \
         \"failed\": {failed}, \"duration\": {}, \"total_input_tokens\": {input_tokens}, \
         \"total_output_tokens\": {output_tokens}, \"request_throughput\": {}, \"output_throughput\": {}, \
         \"total_token_throughput\": {}, {}, {}}}\n",
        json::string(args.text("model")?),
        plan.prompts,
        plan.concurrency,
        json::number(duration),
        json::number(completed as f64 / duration),
        json::number(output_tokens as f64 / duration),
        json::number((input_tokens + output_tokens) as f64 / duration),
        summary("ttft", timed.iter().map(|timed| timed.first_token_ms)),
        summary("e2el", timed.iter().map(|timed| timed.end_ms)),
    );
    write_result(args, phases, &result)?;
    // A bench that measured nothing did not succeed, though it wrote what it saw.
    Ok(if completed == 0 && plan.prompts > 0 { 1 } else { 0 })
}

/// All timed requests; who failed is counted and told on stderr.
fn all(plan: &Plan, phases: &Phases, begin: Instant) -> (Vec<Timed>, u64) {
    let next = AtomicU64::new(0);
    let done = Mutex::new((Vec::new(), 0));
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= plan.prompts {
                return;
            }
            thread::sleep(plan.due(n).saturating_sub(begin.elapsed()));
            let result = one(plan);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(timed) => done.0.push(timed),
                Err(why) => {
                    eprintln!("error: request {}: {why}", n + 1);
                    done.1 += 1;
                }
            }
            phases.iteration(done.0.len() as u64 + done.1, plan.prompts);
        }
    };
    thread::scope(|scope| {
        for _ in 0..plan.concurrency.min(plan.prompts) {
            // A worker fewer is slower, not wrong; but one there must be.
            if thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, work).is_err() {
                work();
            }
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn one(plan: &Plan) -> std::io::Result<Timed> {
    let begin = Instant::now();
    let since = || begin.elapsed().as_secs_f64() * 1000.0;
    let (status, mut reader) = http::send(plan.server, "POST /v1/completions", &plan.body)?;
    let mut line = String::new();
    if status != 200 {
        reader.read_line(&mut line)?;
        return Err(std::io::Error::other(format!("status {status}: {line}")));
    }
    let mut timed = Timed { first_token_ms: 0.0, end_ms: 0.0, output_tokens: 0 };
    while reader.read_line(&mut line)? > 0 {
        match line.trim_end() {
            "data: [DONE]" => {
                timed.end_ms = since();
                return Ok(timed);
            }
            event if event.starts_with("data: ") => {
                timed.output_tokens += 1;
                if timed.output_tokens == 1 {
                    timed.first_token_ms = since();
                }
            }
            _ => {}
        }
        line.clear();
    }
    Err(std::io::Error::other("the stream broke off"))
}

fn summary(name: &str, values: impl Iterator<Item = f64>) -> String {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    format!(
        "\"mean_{name}_ms\": {}, \"median_{name}_ms\": {}, \"p99_{name}_ms\": {}",
        json::number(mean(&sorted)),
        json::number(percentile(&sorted, 50.0)),
        json::number(percentile(&sorted, 99.0))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, Stop> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        Plan::read(&Args::parse(&SPEC, &words)?)
    }

    #[test]
    fn where_the_server_is() {
        let at = |line: &str| plan(&format!("--model m {line}")).map(|plan| plan.server.to_string());
        assert_eq!(at(""), Ok("127.0.0.1:8000".into()));
        assert_eq!(at("--host 10.0.0.2 --port 80"), Ok("10.0.0.2:80".into()));
        assert_eq!(at("--base-url http://localhost:9/ --port 80"), Ok("127.0.0.1:9".into()));
        for line in ["--host engine", "--port 65536", "--base-url localhost:9", "--base-url http://localhost"] {
            assert!(matches!(at(line), Err(Stop::Usage(_))), "{line}");
        }
    }

    #[test]
    fn requests_are_evenly_spaced() {
        let rate = |line: &str| plan(&format!("--model m {line}")).ok().unwrap();
        assert_eq!(rate("--request-rate 4").due(2), Duration::from_millis(500));
        assert_eq!(rate("").due(1_000_000), Duration::ZERO);
        assert_eq!(rate("--request-rate 1e-300").due(1), Duration::MAX);
    }
}
