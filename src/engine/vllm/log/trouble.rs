//! What went wrong: the root cause of a failed start or a death, out of memory, preemption.

use super::readings::RankLine;
use crate::capture::AtNs;
use crate::engine::log::figures::{after, number_after};
use crate::engine::log::sheet::{Weight, is_exception};
use crate::engine::log::text::Level;
use crate::engine::log::torch;
use crate::engine::log::words::Words;
use std::sync::LazyLock;

/// A line that explains a failure.
#[derive(Debug, Clone)]
pub struct Witness {
    /// The line.
    pub quote: String,
    /// When it was written.
    pub at: Option<AtNs>,
    number: u64,
}

/// Failures seen so far.
#[derive(Debug, Clone, Default)]
pub struct Trouble {
    cause: Option<(Weight, Witness)>,
    /// The kind of failure, where it is a known one.
    failure: Option<(Weight, String, Witness)>,
    /// An out-of-memory error that ended something.
    pub out_of_memory: Option<Witness>,
    /// The engine or one of its processes died.
    pub fatal: Option<Witness>,
    /// A wrapper reported that the start failed.
    start_failed: Option<Witness>,
    /// Sequences evicted for lack of KV cache: a lower bound of their number, and the line.
    pub preemptions: Option<(u64, Witness)>,
    /// The engine's own count since its start, where it prints that.
    pub preemptions_counted: Option<(u64, Witness)>,
    /// `Available KV cache memory` was not above zero.
    nothing_available: Option<Witness>,
    /// A second exception was raised while the first one was handled.
    chained: bool,
    /// A traceback that belongs to one request.
    request_error: bool,
    /// Whether the weights were loaded completely once. With speculation, a failure after that is the draft model's.
    pub loaded_once: bool,
    /// The engine core was asked to stop and obeys.
    stopping: bool,
    /// A native library that could not be loaded: only warned of, and fatal where it is used.
    unloadable_library: Option<Witness>,
}

/// Texts of lines that are read for failures, beside the signs of the table.
pub const WATCHED: &[&str] = &[
    "Error",
    "error: ",
    "error, ",
    // `Exception`, and `the above exception`.
    "xception",
    "ut of memory",
    "bad_alloc",
    "OOM on device",
    "on startup is less than desired",
    "The worker already uses ",
    "died",
    "exited unexpectedly",
    "failed to start",
    "EngineCore e",
    "EngineCore: trigger received signal",
    "Cgroup memory preflight",
    "ContextTerminated",
    "Segfault",
    "is not a valid model identifier",
];

/// The dynamic linker's messages on a library that it cannot load.
pub const LINKER: &[&str] = &[
    "' not found (required by",
    "cannot open shared object file",
    "undefined symbol: ",
];

/// Exceptions that the use of a library that was not loaded ends with.
const FOLLOW_LINKER: &[&str] = &[
    "AttributeError",
    "NotImplementedError",
    "NameError",
    "ImportError",
    "ModuleNotFoundError",
];

/// Lines that only refer to another line.
const WRAPPERS: &[&str] = &[
    "Engine core initialization failed",
    "EngineDeadError",
    "EngineCore encountered",
    "EngineCore failed to start",
    "WorkerProc initialization failed",
    "WorkerProc failed to start",
    "WorkerProc hit an exception",
    "Worker failed with error",
    "Engine process failed to start",
    "Engine loop is not running",
    "Background loop",
    "Engine background task failed",
    "RuntimeError: cancelled",
    "See root cause above",
    "See stack trace",
    "see the error above",
    "SystemExit",
    "AsyncEngineDeadError",
    "MQEngineDeadError",
    "ChildFailedError",
    "RayTaskError",
];

/// What a process prints because another one failed.
const CONSEQUENCES: &[&str] = &[
    "Executor failed",
    "RPC call to",
    "Connection closed by peer",
    "Connection reset by peer",
    "ConnectionResetError",
    "BrokenPipeError",
    "ContextTerminated",
    "EOFError",
    "CancelledError",
    "KeyboardInterrupt",
    "DistBackendError",
    "NCCL communicator was aborted",
    "RayActorError",
];

impl Trouble {
    /// Reads a line of this level and message. `ready`: the engine has served already.
    pub fn read(
        &mut self,
        line: &RankLine<'_>,
        (level, message): (Level, &str),
        ready: bool,
        speculative: bool,
    ) {
        match level {
            Level::Quiet => {
                self.request_error = false;
                self.quiet(line, message);
                return;
            }
            Level::Error => self.request_error = false,
            Level::Unknown => {}
        }
        self.chained |=
            message.contains("above exception was") || message.contains("of the above exception");
        if message.contains("Exception in ASGI application")
            || message.starts_with("Exception ignored in")
        {
            self.request_error = true;
            return;
        }
        if self.request_error {
            return;
        }
        if let Some((kind, failure)) = known_failure(message, speculative && self.loaded_once) {
            if kind == Weight::Memory {
                self.out_of_memory
                    .get_or_insert_with(|| witness(line, message));
            }
            if self
                .failure
                .as_ref()
                .is_none_or(|(known, ..)| kind > *known)
            {
                self.failure = Some((kind, failure.to_owned(), witness(line, message)));
            }
        }
        self.wrapper(line, message);
        if let Some(weight) = weigh(message) {
            // After the start, an error record may be about one request only.
            if weight == Weight::Cause && ready && level == Level::Error && self.fatal.is_none() {
                self.consider(Weight::Hint, line, message);
            } else {
                self.consider(weight, line, message);
            }
        }
    }

    /// The line that explains a failed start or a death.
    pub fn root_cause(&self, ready: bool) -> Option<&Witness> {
        let (weight, witness) = self.cause.as_ref()?;
        // A server that continues has survived the errors of single requests.
        let died = self.fatal.is_some() || self.start_failed.is_some();
        let follows = *weight <= Weight::Cause
            && FOLLOW_LINKER
                .iter()
                .any(|name| witness.quote.contains(name));
        let first = self
            .unloadable_library
            .as_ref()
            .filter(|library| follows && library.number < witness.number);
        (*weight > Weight::Hint || died || !ready).then_some(first.unwrap_or(witness))
    }

    /// The kind of failure and its line, where there was one.
    pub fn failure(&self) -> Option<(String, &Witness)> {
        if let Some((_, failure, witness)) = &self.failure {
            return Some((failure.clone(), witness));
        }
        if let Some(witness) = &self.nothing_available {
            return Some(("no_memory_for_cache_blocks".to_owned(), witness));
        }
        let cause = self
            .cause
            .as_ref()
            .filter(|(weight, _)| *weight >= Weight::Death);
        match (&self.start_failed, &self.fatal, cause) {
            (Some(wrapper), _, cause) => Some((
                "start_failed".to_owned(),
                cause.map_or(wrapper, |(_, cause)| cause),
            )),
            (None, Some(_), Some((Weight::Death, cause))) => {
                Some(("process_died".to_owned(), cause))
            }
            (None, Some(fatal), _) => Some(("engine_died".to_owned(), fatal)),
            (None, None, _) => None,
        }
    }

    /// Whether the engine failed with a cause that may have been an out-of-memory error: unknown,
    /// or an exception outside the known ones.
    pub fn may_lack_memory(&self, ready: bool) -> bool {
        let failed = self.start_failed.is_some() || self.fatal.is_some();
        let cause = matches!(&self.cause, Some((weight, _)) if *weight >= Weight::Death);
        self.failure.is_none() && (failed || cause && !ready)
    }

    /// Out of memory, stated or shown by a budget below zero.
    pub fn lack_of_memory(&self) -> Option<&Witness> {
        self.out_of_memory
            .as_ref()
            .or(self.nothing_available.as_ref())
    }

    /// A wrapper's line that reports a failed start.
    pub fn start_failed(&self) -> Option<&Witness> {
        self.start_failed.as_ref()
    }

    fn quiet(&mut self, line: &RankLine<'_>, message: &str) {
        static SIGNS: LazyLock<Words> = LazyLock::new(|| {
            let own = [
                "Available KV cache memory: ",
                "EngineCore: trigger received signal",
                "engine core exited unexpectedly",
                "Cgroup memory preflight",
            ];
            Words::new(&[LINKER, &own].concat())
        });
        if !SIGNS.hold(message.as_bytes()) {
            return;
        }
        // vLLM refuses to start on a budget of zero or less; the refusal may be cut off.
        if let Some(n) = number_after(message, "Available KV cache memory: ") {
            if n.value <= 0.0 {
                self.nothing_available
                    .get_or_insert_with(|| witness(line, message));
            }
        }
        if LINKER.iter().any(|sign| message.contains(sign)) {
            self.unloadable_library
                .get_or_insert_with(|| witness(line, message));
        }
        self.stopping |= message.contains("EngineCore: trigger received signal");
        if message.contains("engine core exited unexpectedly") && !self.stopping {
            self.fatal.get_or_insert_with(|| witness(line, message));
            self.consider(Weight::Death, line, message);
        }
        // A log that stops here was cut by the kernel; this is its last sign.
        if let Some(rest) = after(message, "Cgroup memory preflight") {
            if number_after(rest, "limit, ").is_some_and(|n| n.value < 0.0) {
                self.consider(Weight::Hint, line, message);
            }
        }
    }

    fn wrapper(&mut self, line: &RankLine<'_>, message: &str) {
        for sign in [
            "EngineCore encountered",
            "EngineDeadError",
            "died unexpectedly",
            "Engine background task failed",
        ] {
            if message.contains(sign) {
                self.fatal.get_or_insert_with(|| witness(line, message));
            }
        }
        for sign in [
            "EngineCore failed to start",
            "Engine core initialization failed",
            "WorkerProc initialization failed",
            "WorkerProc failed to start",
            "Engine process failed to start",
        ] {
            if message.contains(sign) {
                self.start_failed
                    .get_or_insert_with(|| witness(line, message));
            }
        }
    }

    /// Notes the engine's own count of preemptions since its start.
    pub fn preemptions_counted(&mut self, count: u64, line: &RankLine<'_>) {
        self.preemptions = Some((count, witness(line, line.text)));
        self.preemptions_counted = self.preemptions.clone();
    }

    /// Notes the preemptions of a statistics line.
    pub fn preempted(&mut self, count: u64, line: &RankLine<'_>) {
        // One line's count is a lower bound, whether it counts since the start or since the last one.
        if self.preemptions.as_ref().is_none_or(|(n, _)| count > *n) {
            self.preemptions = Some((count, witness(line, line.text)));
        }
    }

    fn consider(&mut self, weight: Weight, line: &RankLine<'_>, message: &str) {
        let better = match &self.cause {
            None => true,
            Some((known, _)) if weight > *known => true,
            // Of a chain of exceptions the last one was written for people.
            Some((known, old)) => {
                weight == *known
                    && ((self.chained
                        && weight >= Weight::Cause
                        && line.number.saturating_sub(old.number) < 200)
                        || (weight == Weight::Hint && self.fatal.is_none()))
            }
        };
        if better {
            self.cause = Some((weight, witness(line, message)));
        }
        self.chained = false;
    }
}

/// Quotes the message with its prefix.
fn witness(line: &RankLine<'_>, message: &str) -> Witness {
    Witness {
        quote: line.quote(message),
        at: line.at,
        number: line.number,
    }
}

/// How well `message` explains a failure; `None` when it is not an error.
fn weigh(message: &str) -> Option<Weight> {
    static WRAPPING: LazyLock<Words> = LazyLock::new(|| Words::new(WRAPPERS));
    static FOLLOWING: LazyLock<Words> = LazyLock::new(|| Words::new(CONSEQUENCES));
    if WRAPPING.hold(message.as_bytes()) {
        return None;
    }
    if message.contains("died unexpectedly") || message.contains("Segfault encountered") {
        return Some(Weight::Death);
    }
    let error = is_exception(message)
        || message.starts_with("Value error, ")
        || message.starts_with("Fatal Python error: ")
        || is_usage_error(message);
    if FOLLOWING.hold(message.as_bytes()) {
        return error.then_some(Weight::Consequence);
    }
    if let Some((kind @ Weight::Memory, _)) = known_failure(message, false) {
        return Some(kind);
    }
    // `1 validation error for ModelConfig`: the line below states the error.
    if error && message.contains("validation error for") {
        return Some(Weight::Consequence);
    }
    error.then_some(Weight::Cause)
}

/// `vllm: error: unrecognized arguments: --x`.
fn is_usage_error(message: &str) -> bool {
    message.split_once(": error: ").is_some_and(|(program, _)| {
        program.len() < 60 && !program.contains(':') && program.split(' ').count() <= 4
    })
}

/// Out-of-memory messages, and the failure that each is.
pub const LACKS: &[(&str, &str)] = &[
    (
        "No available memory for the cache blocks",
        "no_memory_for_cache_blocks",
    ),
    (
        "is larger than the maximum number of tokens that can be stored in KV cache",
        "max_model_len_exceeds_kv_cache",
    ),
    (
        "KV cache is needed, which is larger than the available KV cache memory",
        "kv_cache_too_small_for_max_model_len",
    ),
    (
        "To serve at least one request with the model",
        "kv_cache_too_small_for_max_model_len",
    ),
    (
        "on startup is less than desired",
        "free_memory_below_requested_at_startup",
    ),
    (
        "on kv cache allocation is less than requested",
        "free_memory_below_requested_for_kv_cache",
    ),
    // The CPU backend since 0.33.
    ("The worker already uses ", "weights_exceed_reserved_memory"),
    (
        "out of memory occurred when warming up",
        "out_of_memory_at_warmup",
    ),
    (
        "memory allocation failed with OOM on device",
        "out_of_memory",
    ),
    ("Out of memory! No free blocks", "out_of_memory"),
];

/// Messages of other failures that a start ends with.
pub const FAILURES: &[(&str, &str)] = &[
    ("Error in memory profiling", "error_in_memory_profiling"),
    (
        "Cannot find any safetensors model weights",
        "model_weights_not_found",
    ),
    ("Cannot find any model weights", "model_weights_not_found"),
    (
        "User-specified max_model_len",
        "max_model_len_exceeds_model",
    ),
    (
        "Cannot find an appropriate cached snapshot folder",
        "model_not_found",
    ),
    ("is not a valid model identifier", "model_not_found"),
    (": error: unrecognized arguments", "unrecognized_arguments"),
];

/// The failure that `message` states, where it is a known one; whether it is about memory.
fn known_failure(message: &str, drafting: bool) -> Option<(Weight, &'static str)> {
    static SIGNS: LazyLock<Words> = LazyLock::new(|| {
        let known = LACKS.iter().chain(FAILURES).map(|(sign, _)| *sign);
        let signs: Vec<&str> = known.chain(torch::LACK.iter().copied()).collect();
        Words::new(&signs)
    });
    if !SIGNS.hold(message.as_bytes()) {
        return None;
    }
    if let Some((_, failure)) = LACKS.iter().find(|(sign, _)| message.contains(sign)) {
        return Some((Weight::Memory, failure));
    }
    if torch::lack(message).is_some() {
        return Some((Weight::Memory, "out_of_memory"));
    }
    let (_, failure) = FAILURES.iter().find(|(sign, _)| message.contains(sign))?;
    // The target's weights were loaded already: the draft model's are missing.
    if drafting && *failure == "model_weights_not_found" {
        return Some((Weight::Cause, "draft_model_weights_not_found"));
    }
    Some((Weight::Cause, failure))
}

/// Whether `message` reports an out-of-memory error.
pub fn is_lack(message: &str) -> bool {
    matches!(known_failure(message, false), Some((Weight::Memory, _)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_about_memory_is_no_failure() {
        for message in [
            "If out-of-memory error occurs during cudagraph capture, consider decreasing `gpu_memory_utilization`",
            "The model has a long context length (40960). This may causeOOM during the initial memory profiling phase",
            "CUDA graphs can take additional 1~3 GiB memory per GPU. If you are running out of memory, consider",
        ] {
            assert_eq!(known_failure(message, false), None, "{message}");
        }
    }
}
