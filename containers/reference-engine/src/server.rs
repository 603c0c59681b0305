//! `serve`: the endpoints of an OpenAI-style engine, with a spike of activation memory per completion.

use crate::args::{Args, Flag, Kind, Spec, Stop, usage};
use crate::http::{self, Answer, Request};
use crate::kv::Pool;
use crate::latency::{self, Latency};
use crate::memory::Engine;
use crate::phases::{Phase, Phases};
use crate::truth::{self, BLOCK_TOKENS, Truth};
use crate::{VERSION, faults, json, signals};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// More connections than this are turned away: each has a thread, and a thread has kernel memory.
const MAX_CONNECTIONS: u64 = 256;

pub const SPEC: Spec = Spec {
    usage: "reference-engine serve --model NAME [flags]",
    about: "Load, then answer /health /version /v1/models /metrics /truth and POST /v1/completions.",
    groups: &[
        truth::FLAGS,
        &[
            Flag::new("host", Kind::Text, "0.0.0.0", "address to listen on"),
            Flag::new("port", Kind::Count, "8000", "port to listen on"),
            Flag::new("max-model-len", Kind::Count, "4096", "longest prompt and output together, in tokens"),
        ],
        latency::FLAGS,
        faults::FLAGS,
    ],
};

pub struct Settings {
    truth: Truth,
    latency: Latency,
    address: SocketAddr,
    max_model_len: u64,
}

impl Settings {
    pub fn read(args: &Args) -> Result<Settings, Stop> {
        let port = u16::try_from(args.count("port")?).map_err(|_| usage("port", "at most 65535"))?;
        let address = http::address(args.text("host")?, port);
        Ok(Settings {
            truth: Truth::read(args)?,
            latency: Latency::read(args)?,
            address: address.ok_or_else(|| usage("host", "expected an IP address or localhost"))?,
            max_model_len: args.count("max-model-len")?,
        })
    }
}

struct Server {
    settings: Settings,
    engine: Engine,
    pool: Pool,
    requests: AtomicU64,
    connections: AtomicU64,
}

pub fn run(settings: Settings, phases: &'static Phases) -> Result<i32, Stop> {
    phases.banner(&settings.truth.model);
    phases.enter(Phase::Start, "");
    let engine = Engine::load(&settings.truth, phases).map_err(|why| Stop::Failed(format!("cannot load: {why}")))?;
    let listener = TcpListener::bind(settings.address)
        .map_err(|why| Stop::Failed(format!("cannot listen on {}: {why}", settings.address)))?;
    let pool = Pool::new(settings.truth.kv_blocks(), settings.latency.max_num_seqs);
    let server: &'static Server = Box::leak(Box::new(Server {
        settings,
        engine,
        pool,
        requests: AtomicU64::new(0),
        connections: AtomicU64::new(0),
    }));
    phases.enter(Phase::Ready, "");
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        if server.connections.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            let _ = http::write_answer(&stream, &Answer::error(503, "too many connections"));
            server.connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let answered = signals::small_thread(move || {
            // What goes wrong here is the client's to see: it went away.
            let _ = server.connection(&stream);
            server.connections.fetch_sub(1, Ordering::Relaxed);
        });
        if answered.is_err() {
            server.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
    Ok(0)
}

impl Server {
    fn connection(&self, stream: &TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_write_timeout(Some(Duration::from_secs(30)))?;
        stream.set_nodelay(true)?;
        let request = match http::read_request(stream) {
            Ok(request) => request,
            Err(answer) => return http::write_answer(stream, &answer),
        };
        let model = json::string(&self.settings.truth.model);
        let answer = match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/v1/completions") => return self.complete(stream, &request),
            (_, "/v1/completions") => Answer::error(405, "POST it"),
            ("GET", "/health") => Answer { status: 200, kind: "text/plain", body: String::new() },
            ("GET", "/version") => {
                Answer::json(format!("{{\"version\":\"{VERSION}\",\"engine\":\"reference\",\"simulated\":true}}"))
            }
            ("GET", "/truth") => Answer::json(self.settings.truth.to_json(self.settings.latency.slowdown)),
            ("GET", "/metrics") => Answer { status: 200, kind: "text/plain; version=0.0.4", body: self.metrics() },
            ("GET", "/v1/models") => Answer::json(format!(
                "{{\"object\":\"list\",\"data\":[{{\"id\":{model},\"object\":\"model\",\"owned_by\":\"reference-engine\",\
                 \"root\":{model},\"max_model_len\":{}}}]}}",
                self.settings.max_model_len
            )),
            _ => Answer::error(404, "no such endpoint"),
        };
        http::write_answer(stream, &answer)
    }

    fn metrics(&self) -> String {
        let counts = self.pool.counts();
        let usage = counts.used_blocks as f64 / self.pool.blocks.max(1) as f64;
        let mut text = format!(
            "# TYPE reference:cache_config_info gauge\nreference:cache_config_info{{block_size=\"{BLOCK_TOKENS}\",\
             num_gpu_blocks=\"{}\",kv_cache_memory_bytes=\"{}\"}} 1\n",
            self.pool.blocks, self.settings.truth.kv_pool_bytes
        );
        for (name, kind, value) in [
            ("kv_cache_usage_perc", "gauge", usage),
            ("num_requests_running", "gauge", counts.running as f64),
            ("num_requests_waiting", "gauge", counts.waiting as f64),
            ("num_preemptions_total", "counter", counts.preemptions as f64),
            ("activation_spikes_total", "counter", counts.spikes as f64),
            ("prompt_tokens_total", "counter", counts.prompt_tokens as f64),
            ("generation_tokens_total", "counter", counts.output_tokens as f64),
        ] {
            text += &format!("# TYPE reference:{name} {kind}\nreference:{name} {value}\n");
        }
        text
    }

    fn complete(&self, stream: &TcpStream, request: &Request) -> std::io::Result<()> {
        let asked = match Asked::read(&request.body, &self.settings, self.pool.blocks) {
            Ok(asked) => asked,
            Err(answer) => return http::write_answer(stream, &answer),
        };
        let id = self.requests.fetch_add(1, Ordering::Relaxed);
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let begin = format!(
            "{{\"id\":\"cmpl-{id}\",\"object\":\"text_completion\",\"created\":{created},\"model\":{}",
            json::string(&self.settings.truth.model)
        );
        let Asked { prompt_tokens, max_tokens, .. } = asked;
        let usage = format!(
            "\"usage\":{{\"prompt_tokens\":{prompt_tokens},\"completion_tokens\":{max_tokens},\"total_tokens\":{}}}}}",
            prompt_tokens + max_tokens
        );

        let held = self.pool.hold(Pool::needed(prompt_tokens));
        if let Err(why) = self.engine.spike() {
            return http::write_answer(stream, &Answer::error(500, &format!("out of memory: {why}")));
        }
        self.pool.count(|counts| counts.spikes += 1);
        let (_held, _) = held.grow(Pool::needed(prompt_tokens + max_tokens));
        let (latency, alone) = (&self.settings.latency, Duration::from_micros(self.settings.truth.token_us));
        thread::sleep(latency.prefill(alone, prompt_tokens, id));
        let token_time = || latency.token(alone, self.pool.counts().running, id);
        if asked.stream {
            self.stream_tokens(stream, &asked, &begin, &usage, &token_time)?;
        } else {
            (0..max_tokens).for_each(|_| thread::sleep(token_time()));
        }
        self.pool.count(|counts| {
            counts.prompt_tokens += prompt_tokens;
            counts.output_tokens += max_tokens;
        });
        if asked.stream {
            return Ok(());
        }
        let text = json::string(&" weight".repeat(max_tokens as usize));
        let choice =
            format!("\"choices\":[{{\"index\":0,\"text\":{text},\"logprobs\":null,\"finish_reason\":\"length\"}}]");
        http::write_answer(stream, &Answer::json(format!("{begin},{choice},{usage}")))
    }

    fn stream_tokens(
        &self,
        mut stream: &TcpStream,
        asked: &Asked,
        begin: &str,
        usage: &str,
        token_time: &dyn Fn() -> Duration,
    ) -> std::io::Result<()> {
        http::begin_events(stream)?;
        for n in 1..=asked.max_tokens {
            thread::sleep(token_time());
            let reason = if n == asked.max_tokens { "\"length\"" } else { "null" };
            let event = format!(
                "data: {begin},\"choices\":[{{\"index\":0,\"text\":\" weight\",\"logprobs\":null,\
                 \"finish_reason\":{reason}}}]}}\n\n"
            );
            stream.write_all(event.as_bytes())?;
        }
        if asked.include_usage {
            stream.write_all(format!("data: {begin},\"choices\":[],{usage}\n\n").as_bytes())?;
        }
        stream.write_all(b"data: [DONE]\n\n")
    }
}

#[derive(Debug, PartialEq)]
struct Asked {
    prompt_tokens: u64,
    max_tokens: u64,
    stream: bool,
    include_usage: bool,
}

impl Asked {
    fn read(body: &str, settings: &Settings, pool_blocks: u64) -> Result<Asked, Answer> {
        let bad = |message: &str| Answer::error(400, message);
        let members = json::members(body).ok_or_else(|| bad("the body is not a JSON object"))?;
        let get = |name: &str| members.iter().find(|(found, _)| *found == name).map(|(_, value)| *value);
        if get("model").is_some_and(|model| model != json::string(&settings.truth.model)) {
            return Err(Answer::error(404, "the model does not exist"));
        }
        let prompt = get("prompt").ok_or_else(|| bad("prompt is missing"))?;
        let prompt_tokens = match prompt.as_bytes().first() {
            // As good as any tokenizer here: four bytes to a token.
            Some(b'"') => (prompt.len() as u64 - 2).div_ceil(4),
            Some(b'[') if !prompt[1..].trim_start().starts_with(['"', '[']) => json::array_len(prompt).unwrap_or(0),
            _ => return Err(bad("prompt: one text or one list of token ids per request")),
        }
        .max(1);
        let max_tokens = match get("max_tokens") {
            None | Some("null") => 16,
            Some(number) => number.parse().ok().filter(|&n| n > 0).ok_or_else(|| bad("max_tokens: at least 1"))?,
        };
        let total = prompt_tokens.saturating_add(max_tokens);
        if total > settings.max_model_len {
            return Err(bad(&format!("the maximum context length is {} tokens", settings.max_model_len)));
        }
        if Pool::needed(total) > pool_blocks {
            return Err(bad("the KV pool is too small for this request"));
        }
        let options = get("stream_options").and_then(json::members).unwrap_or_default();
        Ok(Asked {
            prompt_tokens,
            max_tokens,
            stream: get("stream") == Some("true"),
            include_usage: options.contains(&("include_usage", "true")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(body: &str) -> Result<Asked, u16> {
        let words = ["--model", "m", "--max-model-len", "100"].map(String::from);
        let settings = Settings::read(&Args::parse(&SPEC, &words).ok().unwrap()).ok().unwrap();
        Asked::read(body, &settings, 5).map_err(|answer| answer.status)
    }

    #[test]
    fn completions() {
        let expect = |prompt_tokens, max_tokens, stream, include_usage| {
            Ok(Asked { prompt_tokens, max_tokens, stream, include_usage })
        };
        assert_eq!(asked(r#"{"prompt":"twelve bytes"}"#), expect(3, 16, false, false));
        assert_eq!(asked(r#"{"prompt":[1,2],"max_tokens":4,"model":"m","stream":true}"#), expect(2, 4, true, false));
        let usage = r#"{"prompt":"","stream":true,"stream_options":{"include_usage":true}}"#;
        assert_eq!(asked(usage), expect(1, 16, true, true));
        assert_eq!(asked(r#"{"prompt":"x","model":"other"}"#), Err(404));
        for body in ["", "{}", r#"{"prompt":7}"#, r#"{"prompt":["a","b"]}"#, r#"{"prompt":"x","max_tokens":0}"#] {
            assert_eq!(asked(body), Err(400), "{body}");
        }
        assert_eq!(asked(r#"{"prompt":"x","max_tokens":100}"#), Err(400), "longer than the model");
        assert_eq!(asked(r#"{"prompt":"x","max_tokens":80}"#), Err(400), "larger than the pool");
        assert_eq!(asked(r#"{"prompt":"x","max_tokens":18446744073709551615}"#), Err(400));
    }
}
