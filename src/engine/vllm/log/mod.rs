//! The log of vLLM, 0.4 to 0.33 and its plugins: figures, settings, milestones, failures.
//!
//! Messages are recognised by their shape, never by the version: banners of forks are wrong and
//! plugins copy old words. They are searched, never anchored: logs come with the prefixes of
//! docker compose, journald, Ray and others before the engine's own.

mod facts;
mod messages;
mod origin;
mod readings;
mod settings;
mod table;
mod trouble;

use crate::engine::facts::{EngineStep, FactValue, key};
use crate::engine::log::figures::{after, number};
use crate::engine::log::sheet::Sheet;
use crate::engine::log::table::Row;
use crate::engine::log::text::{Level, record};
use crate::engine::log::words::Words;
use crate::engine::log::{Line, Messages, SheetParser, torch};
use memchr::memmem::{self, Finder};
use origin::{Origin, Role};
use readings::{RankLine, Readings};
use settings::{Settings, Trust};
use std::collections::BTreeSet;
use std::sync::LazyLock;
use table::{TABLE, Target};
use trouble::{Trouble, is_lack};

/// Reads vLLM's log.
pub type VllmLogParser = SheetParser<VllmLog>;

/// Most lines over which a broken message may continue.
const MOST_CONTINUATIONS: u32 = 3;

/// Most data-parallel engines with separate banners.
const MOST_ENGINES: usize = 1024;

/// Longest part of a line with prefixes of processes, bytes.
const LONGEST_PREFIX: usize = 300;

/// Beginnings of messages that quote a request: a prompt can hold any text.
const QUOTES_REQUEST: [&str; 3] = [
    "Received request ",
    "Generated response ",
    "Dumping input data ",
];

/// Searches that run on nearly every line of a serving log.
static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("KV cache usage: "));
static PREEMPTIONS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("Preemptions: "));
static REQUEST: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("] Received request "));
static WORKER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("Worker"));

/// Every sign of the tables of this log.
pub(in crate::engine) fn signs() -> Vec<&'static str> {
    let mut signs: Vec<&str> = table::MESSAGES.iter().map(|row| row.sign).collect();
    for table in [trouble::LACKS, trouble::FAILURES] {
        signs.extend(table.iter().map(|(sign, _)| *sign));
    }
    signs.extend(trouble::LINKER);
    signs.extend(torch::LACK);
    signs
}

/// State of one start of the engine, besides the sheet.
#[derive(Default)]
pub struct VllmLog {
    readings: Readings,
    settings: Settings,
    trouble: Trouble,
    /// Version as the API server announces it.
    server_version: Option<String>,
    /// Weight of the evidence for the engine's generation.
    generation: Option<u8>,
    /// How surely the attention backend is the language model's.
    attention: Option<u8>,
    /// Highest ranks seen in prefixes: tensor, pipeline, data parallel.
    highest: [Option<u32>; 3],
    /// An API server writes this log.
    server: bool,
    /// The API server announced that it is ready.
    startup_complete: bool,
    /// Largest use of the KV pool that the statistics showed, percent.
    peak_usage: Option<f64>,
    /// GPUs of the `nvidia-smi` rows.
    gpus: usize,
    unscaled_fp8: Option<String>,
    compiled_again: Option<String>,
    /// What the engine was doing when it first ran out of memory.
    lack_phase: Option<&'static str>,
    /// Engines with a banner seen: data-parallel engines each print one.
    banners: BTreeSet<(u32, &'static str)>,
    /// A message that continues in the next line, and the lines over which it may.
    broken: Option<(String, u32)>,
}

impl Messages for VllmLog {
    const ENGINE: &'static str = "vllm";

    fn words() -> &'static Words {
        TABLE.gate()
    }

    fn awaits_more(&self) -> bool {
        self.settings.banner_open() || self.broken.is_some()
    }

    fn needs_reading(&self, raw: &[u8], _: &Sheet) -> bool {
        !self.repeats_itself(raw) && (TABLE.gate().hold(raw) || self.names_new_rank(raw))
    }

    fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        let rows = TABLE.matching(line.text);
        // The gate lets some lines without a sign through.
        let quiet = rows.is_none() && !self.awaits_more();
        if quiet && !self.names_new_rank(line.text.as_bytes()) {
            return;
        }
        let rows = rows.unwrap_or_default();
        let (level, message) = record(line.text);
        if QUOTES_REQUEST.iter().any(|m| message.starts_with(m)) {
            return;
        }
        let line = &RankLine {
            line: *line,
            origin: Origin::of(line.text),
        };
        let holds = |sign| rows.iter().any(|(row, _)| row.sign == sign);
        let announcement = if holds("non-default args: ") || holds("args: Namespace(") {
            Some("server")
        } else {
            holds("LLM engine (").then_some("engine")
        };
        if announcement.is_some_and(|kind| self.is_over(kind, line, sheet)) {
            sheet.restart_after(self.root_cause(sheet));
            *self = VllmLog::default();
        }
        if self.readings.forwarded_before(line) {
            return;
        }
        if self.settings.banner_open() {
            self.settings.continue_banner(line, level != Level::Unknown);
        }
        let may_break = holds("Maximum concurrency for ") || holds("Error in memory profiling");
        self.join_broken(line, message, may_break, sheet);
        if let Some(kind) = announcement.filter(|_| self.banners.len() < MOST_ENGINES) {
            self.banners.insert((line.origin.engine(), kind));
        }
        self.server |= line.origin.role == Role::Server;
        self.read_rows(&rows, line, sheet);
        self.read_origin(line);
        self.read_trouble(line, (level, message), sheet);
        if self.lack_phase.is_none() && self.trouble.out_of_memory.is_some() {
            torch::figures(line, sheet);
            self.lack_phase = Some(sheet.phase());
        }
    }

    fn conclude(&self, sheet: &mut Sheet) {
        facts::conclude(self, sheet);
        for finding in facts::findings_of(self, sheet) {
            sheet.note(finding);
        }
        if let Some(version) = self.version() {
            sheet.version(&version);
        }
    }

    fn root_cause(&self, sheet: &Sheet) -> Option<String> {
        let ready = self.is_ready(sheet);
        let cause = self.trouble.root_cause(ready).map(|w| w.quote.clone());
        cause.or_else(|| sheet.root_cause().filter(|_| !ready))
    }

    fn is_ready(&self, sheet: &Sheet) -> bool {
        sheet.passed(EngineStep::Ready)
    }
}

impl VllmLog {
    /// Whether this is one of the frequent lines of a serving log and repeats known values. Runs on
    /// every line, so it looks at bytes only.
    fn repeats_itself(&self, raw: &[u8]) -> bool {
        // `INFO:     10.0.0.1:5000 - "POST /v1/completions HTTP/1.1" 200 OK`
        let access = raw.strip_prefix(b"INFO:     ");
        if access.is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit)) {
            return true;
        }
        let Some(at) = USAGE.find(raw) else {
            let front = &raw[..raw.len().min(LONGEST_PREFIX)];
            return REQUEST.find(front).is_some() && !raw.contains(&b'\r');
        };
        // A message may share a redrawn line.
        if raw.contains(&b'\r') || PREEMPTIONS.find(&raw[at..]).is_some() {
            return false;
        }
        let digits = &raw[at + USAGE.needle().len()..];
        let end = digits.iter().take(12).position(|b| *b == b'%').unwrap_or(0);
        let usage = std::str::from_utf8(&digits[..end]).ok();
        let usage = usage.and_then(|text| text.parse::<f64>().ok());
        usage.is_none_or(|usage| self.peak_usage.is_some_and(|peak| usage <= peak))
    }

    /// Whether the prefix of a worker's line names a rank above those seen.
    fn names_new_rank(&self, raw: &[u8]) -> bool {
        let prefix = &raw[..raw.len().min(LONGEST_PREFIX)];
        if WORKER.find(prefix).is_none() {
            return false;
        }
        let origin = Origin::of(&String::from_utf8_lossy(prefix));
        let new_rank = |(rank, highest): (Option<u32>, Option<u32>)| {
            rank.is_some_and(|rank| (1..MOST_RANKS).contains(&rank) && Some(rank) > highest)
        };
        let ranks = [origin.tp, origin.pp, origin.dp].into_iter();
        (self.generation.is_none() && origin.tp.is_some()) || ranks.zip(self.highest).any(new_rank)
    }

    /// Whether a line that announces the engine begins another start of it.
    fn is_over(&self, kind: &'static str, line: &RankLine<'_>, sheet: &Sheet) -> bool {
        // The first lines of a start announce it several times, before anything is allocated. The
        // banner of the second data-parallel engine may come late.
        let begun =
            !self.readings.is_empty() || self.trouble.failure().is_some() || self.is_ready(sheet);
        begun && (kind == "server" || self.banners.contains(&(line.origin.engine(), kind)))
    }

    /// Reads the values of these rows of the table.
    fn read_rows(
        &mut self,
        rows: &[(&Row<Target>, usize)],
        line: &RankLine<'_>,
        sheet: &mut Sheet,
    ) {
        for (row, end) in rows {
            let end = *end;
            let needle = row.needle();
            let value = || row.value(line.text, end);
            match row.target {
                Target::Begins(step) => sheet.step(step, line, needle),
                Target::Ends(step) => sheet.step_of_last_rank(step, line, needle),
                Target::Within(step) => {
                    let passed = |step| sheet.passed(step);
                    if passed(EngineStep::Profiled) && !passed(EngineStep::GraphsCaptured) {
                        sheet.step(step, line, needle);
                    }
                }
                Target::Generation(weight, name) => self.set_generation(weight, name, line),
                Target::Read(read) => read(self, line, &line.text[end..], sheet),
                Target::Setting(key, trust) => {
                    if let Some(value) = value() {
                        self.settings.set(key, value, trust, line, needle);
                    }
                }
                Target::PerRank(key) => self.readings.add(key, value(), line, needle, true, true),
                Target::Common(key) => self.readings.add(key, value(), line, needle, false, true),
                Target::First(key) => {
                    if self.readings.of(key).is_empty() {
                        self.readings.add(key, value(), line, needle, false, true);
                    }
                }
                Target::Replace(key) => {
                    if let Some(value) = value() {
                        self.readings.forget(key);
                        self.readings.add(key, value, line, needle, true, true);
                    }
                }
            }
        }
    }

    /// Better evidence for the engine's generation replaces the known one.
    fn set_generation(&mut self, weight: u8, name: &'static str, line: &RankLine<'_>) {
        if self.generation.is_none_or(|known| weight > known) {
            self.generation = Some(weight);
            let value = FactValue::Text(name.to_owned());
            (self.settings).set(key::engine_generation, value, Trust::Adjusted, line, name);
        }
    }

    /// What the process of a line shows: the generation, and parallel sizes where no configuration
    /// line names them, one more than the highest rank.
    fn read_origin(&mut self, line: &RankLine<'_>) {
        let origin = line.origin;
        let of_v1 = match origin.role {
            Role::Core | Role::Server => true,
            Role::Worker => origin.tp.is_some(),
            Role::Main | Role::Unmarked => false,
        };
        let in_v1 =
            || line.text.contains("gpu_model_runner.py") || line.text.contains("on V1 engine");
        if self.generation.is_none_or(|known| known < 1) && (of_v1 || in_v1()) {
            self.set_generation(1, "V1", line);
        }
        let ranks = [
            (origin.tp, key::tensor_parallel_size),
            (origin.pp, key::pipeline_parallel_size),
            (origin.dp, key::data_parallel_size),
        ];
        for ((rank, key), highest) in ranks.into_iter().zip(&mut self.highest) {
            // Rank 0 alone shows nothing: several releases always print it.
            if let Some(rank) = rank.filter(|r| (1..MOST_RANKS).contains(r)) {
                if Some(rank) > *highest {
                    *highest = Some(rank);
                    self.settings.infer_size(key, rank + 1, line);
                }
            }
        }
    }

    fn read_trouble(&mut self, line: &RankLine<'_>, record: (Level, &str), sheet: &Sheet) {
        let ready = self.is_ready(sheet);
        let speculative = self.settings.speculative;
        self.trouble.read(line, record, ready, speculative);
    }

    /// A message that a narrow terminal or an author broke in two.
    fn join_broken(
        &mut self,
        line: &RankLine<'_>,
        message: &str,
        may_break: bool,
        sheet: &mut Sheet,
    ) {
        if let Some((begun, left)) = self.broken.take() {
            let joined = format!("{begun} {message}");
            let mut whole = *line;
            whole.line.text = &joined;
            let whole_lack = is_lack(&joined) && !is_lack(&begun) && !is_lack(line.text);
            if whole_lack {
                self.read_trouble(&whole, record(&joined), sheet);
            }
            if whole_lack || breaks_off(&begun).is_some_and(|_| breaks_off(&joined).is_none()) {
                self.read_rows(&TABLE.matching(&joined).unwrap_or_default(), &whole, sheet);
            } else if left > 1 && joined.len() < 600 {
                self.broken = Some((joined, left - 1));
            }
        }
        let refusal = message.starts_with("ValueError: ") && !is_lack(message);
        let unfinished = Some(line.text).filter(|_| may_break).and_then(breaks_off);
        let begun = unfinished.or(refusal.then_some(message));
        if let Some(begun) = begun.filter(|begun| begun.len() < 300) {
            self.broken = Some((begun.to_owned(), MOST_CONTINUATIONS));
        }
    }

    /// The version: the server's first, as the engine's banner is wrong in some forks.
    fn version(&self) -> Option<String> {
        let banner = self.settings.get(key::version_in_banner);
        (self.server_version.clone()).or_else(|| banner.map(ToString::to_string))
    }
}

/// More ranks than any machine has.
const MOST_RANKS: u32 = 4096;

/// The message of `text` that lacks its last figure.
fn breaks_off(text: &str) -> Option<&str> {
    [
        ("Maximum concurrency for ", "request: "),
        ("Error in memory profiling. ", "current free memory "),
    ]
    .iter()
    .find_map(|(begins, ends)| {
        let message = &text[memmem::find(text.as_bytes(), begins.as_bytes())?..];
        let figure = after(message, ends).and_then(number);
        figure.is_none().then_some(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::LogParser;
    use crate::engine::facts::LogReport;

    fn read(log: &str) -> (LogReport, Option<String>) {
        let mut parser = VllmLogParser::default();
        log.lines().for_each(|l| parser.line(l.as_bytes(), None));
        (parser.report(), parser.root_cause())
    }

    fn oom(log: &str) -> Option<bool> {
        match read(log).0.facts.get("oom")? {
            fact if fact.quote.is_empty() => panic!("without a line: {fact:?}"),
            fact => Some(fact.value == FactValue::Bool(true)),
        }
    }

    const WEIGHTS: &str =
        "INFO 01-02 03:04:05 [gpu_model_runner.py:1] Model loading took 1.25 GiB and 2.5 seconds\n";
    const POOL: &str = "INFO 01-02 03:04:06 [gpu_worker.py:1] Available KV cache memory: 2.00 GiB\n\
         INFO 01-02 03:04:06 [kv_cache_utils.py:1] GPU KV cache size: 20,000 tokens\n";
    const CAPTURE: &str = "INFO 01-02 03:04:07 [gpu_model_runner.py:1] Capturing CUDA graph shapes:   0%|          | 0/2 [00:00<?, ?it/s]\n";
    const FAILED: &str = "ERROR 01-02 03:04:08 [core.py:1] EngineCore failed to start.\n";

    #[test]
    fn a_lack_in_graph_capture_is_of_that_phase() {
        let lack = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
        let (report, _) = read(&format!("{WEIGHTS}{POOL}{CAPTURE}{lack}"));
        assert_eq!(report.text(key::oom_phase), Some("graph_capture"));
    }

    #[test]
    fn that_memory_sufficed_takes_a_line() {
        let ready = "INFO:     Application startup complete.\n";
        let unknown = "ERROR 01-02 03:04:08 [core.py:1] RuntimeError: r INTERNAL ASSERT FAILED\n";
        for (log, expected) in [
            (WEIGHTS.to_owned(), None),
            (format!("{WEIGHTS}{POOL}"), Some(false)),
            (format!("{WEIGHTS}{POOL}{FAILED}"), None),
            (format!("{WEIGHTS}{POOL}{CAPTURE}{FAILED}{unknown}"), None),
            (format!("{WEIGHTS}{POOL}{ready}"), Some(false)),
            (
                "RuntimeError: Cannot find any model weights with `m`".to_owned(),
                Some(false),
            ),
        ] {
            assert_eq!(oom(&log), expected, "{log}");
        }
    }

    #[test]
    fn a_lack_is_read_in_every_form() {
        for log in [
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\ntorch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB",
            "OutOfMemoryError: HIP out of",
            "ValueError: No available memory for\nthe cache blocks. Try increasing `gpu_memory_utilization`",
            "ERROR 01-02 03:04:08 [core.py:1] ValueError: To serve at least one request\nERROR 01-02 03:04:08 [core.py:1] with the model's max seq len (32000), (1.10 GiB KV cache is needed",
            "ValueError: The worker already uses 6.00 GiB (model weights and runtime), more than the 4.00 GiB of CPU memory reserved",
        ] {
            assert_eq!(oom(log), Some(true), "{log}");
        }
    }

    #[test]
    fn the_first_cause_is_the_root_and_no_consequence() {
        let library = "WARNING 01-02 03:04:05 [a.py:1] Failed to import from vllm._C with ImportError(\"/lib/libc.so.6: version `GLIBC_2.38' not found (required by /vllm/_C.abi3.so)\")\n";
        let (_, cause) = read(&format!(
            "{library}AttributeError: '_OpNamespace' '_C' object has no attribute 'silu_and_mul'"
        ));
        assert!(cause.is_some_and(|c| c.contains("GLIBC_2.38")));
        // Alone it is a warning; beside another error it is not the reason.
        assert_eq!(read(library).1, None);
        let (_, cause) = read(&format!("{library}ValueError: no such value"));
        assert_eq!(cause.as_deref(), Some("ValueError: no such value"));
    }

    #[test]
    fn a_failure_is_named_in_one_form() {
        let (report, _) = read(&format!("{WEIGHTS}{FAILED}"));
        assert_eq!(report.text(key::failure), Some("start_failed"));
        let (report, _) = read("RuntimeError: Cannot find any model weights with `m`");
        assert_eq!(report.text(key::failure), Some("model_weights_not_found"));
    }
}
