//! Why an engine's process fails, and what to change: one table, read by the search for a root cause
//! and by the advice.

use super::log::words::Words;
use crate::units::Bytes;
use std::sync::LazyLock;

/// A kind of failure, how it is recognised, and the remedy.
#[derive(Debug)]
pub struct FailureCause {
    /// Machine-readable name, snake_case.
    pub name: &'static str,
    /// Texts that identify it; one suffices. `…` matches any text of the line, `$` its end.
    signs: &'static [&'static str],
    /// Whether the process prints these lines before its engine's own code runs (loader, shell, init,
    /// argument parser): a parser of the engine's messages does not know them.
    before_engine: bool,
    /// What to change, in order of preference. `{flag}`: the flag that the line names; `{limit}`:
    /// the container's memory limit. Advice is left out while its value is unknown.
    advice: &'static [&'static str],
}

const CHECK_FIT: &str = "`plimsoll estimate` calculates before a start what fits; `plimsoll top --once` shows what is in use now";

/// Where a line matches two rows, the first wins.
const FAILURE_CAUSES: &[FailureCause] = &[
    FailureCause {
        name: "kv_pool_empty",
        signs: &["No available memory for the cache blocks"],
        before_engine: false,
        advice: &[
            "nothing is left for the KV cache: a higher --gpu-memory-utilization, a shorter --max-model-len, or more GPUs (--tensor-parallel-size)",
            CHECK_FIT,
        ],
    },
    FailureCause {
        name: "host_ram_oom_cgroup",
        signs: &["out of memory, the container's limit is "],
        before_engine: false,
        advice: &[
            "give the container more memory than {limit} (--memory), or use less: --batch-size, --input-len, --max-model-len, a smaller model",
            CHECK_FIT,
        ],
    },
    FailureCause {
        name: "host_ram_oom_parent_cgroup",
        signs: &["out of memory, the limit of "],
        before_engine: false,
        advice: &[
            "raise the named limit, which is above the container's own, or use less: --batch-size, --input-len, --max-model-len, a smaller model",
            CHECK_FIT,
        ],
    },
    FailureCause {
        name: "host_ram_oom_kernel",
        signs: &["out of memory, the host has "],
        before_engine: false,
        advice: &[
            "free memory on the host, or use less: --batch-size, --input-len, --max-model-len, a smaller model",
            CHECK_FIT,
        ],
    },
    FailureCause {
        name: "killed_from_outside",
        signs: &["so it was killed from outside ("],
        before_engine: false,
        advice: &[
            "find what sent SIGKILL: the journal of systemd-oomd, the scheduler's log, other users of this host",
        ],
    },
    FailureCause {
        name: "out_of_memory",
        signs: &["out of memory", "OutOfMemory"],
        before_engine: false,
        advice: &[
            "use less: --batch-size, --input-len, --max-model-len or --gpu-memory-utilization; use more GPUs: --tensor-parallel-size; or give the container more memory",
            CHECK_FIT,
        ],
    },
    FailureCause {
        name: "model_gated",
        signs: &["gated repo", "401 Client Error", "GatedRepoError"],
        before_engine: false,
        advice: &["the model is gated: accept its terms and give the container HF_TOKEN"],
    },
    FailureCause {
        name: "model_not_found",
        signs: &[
            "is not a local folder and is not a valid model identifier",
            "is not a valid model identifier listed on",
            "Cannot find an appropriate cached snapshot folder",
            "HFValidationError",
            "Repo id must be in the form",
            "OfflineModeIsEnabled",
            "couldn't connect to 'https://",
            "LocalEntryNotFoundError",
            "RepositoryNotFoundError",
            "Repository Not Found",
        ],
        before_engine: false,
        advice: &[
            "the container does not have this model: mount it (--volume, --hf-cache), or let it download with HF_TOKEN and without HF_HUB_OFFLINE",
            "--model is an id, or a path as it is inside the container: `docker inspect` shows what is mounted where",
        ],
    },
    FailureCause {
        name: "bad_flag",
        signs: &[
            "error: unrecognized arguments: ",
            "error: argument -",
            "error: unexpected argument '",
            "error: invalid value '…' for '",
            "error: the following arguments are required: ",
            "error: ambiguous option: ",
            "error: invalid argument: ",
            "Error: No such option: ",
        ],
        before_engine: true,
        advice: &[
            "correct or leave out `{flag}`: this release of the engine refuses it",
            "the engine's arguments come from --extra-engine-args, the preset, and the engine settings of the command line; --dry-run shows them",
        ],
    },
    FailureCause {
        name: "no_gpu_visible",
        signs: &[
            "error while loading shared libraries: libcuda.so",
            "error while loading shared libraries: libnvidia-",
            "ImportError: libcuda.so.1: cannot open shared object file",
        ],
        before_engine: true,
        advice: &[
            "the container has no NVIDIA driver: start it with --gpus all, which needs the NVIDIA Container Toolkit on the host",
        ],
    },
    FailureCause {
        name: "missing_library",
        signs: &[
            "error while loading shared libraries: ",
            "Error loading shared library ",
            "Error relocating ",
            ": cannot open shared object file: No such file or directory$",
        ],
        before_engine: true,
        advice: &["the image lacks a library that its engine needs: use another image or tag"],
    },
    FailureCause {
        name: "wrong_architecture",
        signs: &["xec format error"],
        before_engine: true,
        advice: &[
            "the image, or a program in it, is built for another processor: use the tag for this one",
        ],
    },
    FailureCause {
        name: "command_not_found",
        signs: &[
            "[FATAL tini …exec …No such file or directory",
            "(catatonit:…failed to exec pid1: No such file or directory",
            "executable file not found in ",
            ": command not found$",
            "sh: …: not found$",
            ": exec: …: not found$",
            "can't open file '…[Errno 2] No such file or directory",
            "python…: No module named ",
        ],
        before_engine: true,
        advice: &[
            "the image has no such program: check --image, its entrypoint, and whether --engine fits the image",
        ],
    },
    FailureCause {
        name: "command_not_executable",
        signs: &[
            "[FATAL tini …exec …Permission denied",
            "(catatonit:…failed to exec pid1: Permission denied",
            "sh: …: Permission denied$",
        ],
        before_engine: true,
        advice: &[
            "the image's program may not be executed: check its mode and the container's user",
        ],
    },
    FailureCause {
        name: "bench_result_unreadable",
        signs: &["is no valid JSON", "yet it wrote no"],
        before_engine: false,
        advice: &[
            "is the engine whole in this image, and a release that its bench is known of? --bench builtin and --bench none do without its bench",
        ],
    },
];

/// The parts of a sign, which follow each other in a line.
fn parts(sign: &str) -> impl Iterator<Item = &str> {
    sign.trim_end_matches('$').split('…')
}

fn matches(sign: &str, line: &str) -> bool {
    let rest = parts(sign).try_fold(line.trim_end(), |rest, part| {
        rest.split_once(part).map(|(_, rest)| rest)
    });
    rest.is_some_and(|rest| rest.is_empty() || !sign.ends_with('$'))
}

/// The cause that `text` states and the line that states it; the first matching row wins.
pub fn find_cause(text: &str) -> Option<(&'static FailureCause, &str)> {
    let stated = |cause: &'static FailureCause| Some((cause, cause.stated_by(text)?));
    FAILURE_CAUSES.iter().find_map(stated)
}

impl FailureCause {
    fn stated_by<'a>(&self, text: &'a str) -> Option<&'a str> {
        let states = |line: &&str| self.signs.iter().any(|sign| matches(sign, line));
        text.lines().find(states)
    }

    /// What to change, from the line that states the cause and the container's memory limit in
    /// bytes.
    pub fn advise(&self, line: &str, memory_limit: Option<u64>) -> Vec<String> {
        let flag = self.signs.iter().find_map(|sign| refused_flag(sign, line));
        let values = [
            ("{flag}", flag.map(str::to_owned)),
            (
                "{limit}",
                memory_limit.map(|limit| Bytes(limit).to_string()),
            ),
        ];
        let fill = |advice: &&str| {
            let fill = |text: String, (name, value): &(&str, Option<String>)| match (
                text.contains(name),
                value,
            ) {
                (false, _) => Some(text),
                (true, Some(value)) => Some(text.replace(name, value)),
                (true, None) => None,
            };
            values.iter().try_fold((*advice).to_owned(), fill)
        };
        self.advice.iter().filter_map(fill).collect()
    }
}

/// The flag that a parser of arguments names after its sign: `--dtype` of
/// `error: argument --dtype/-d: invalid choice`.
fn refused_flag<'a>(sign: &str, line: &'a str) -> Option<&'a str> {
    let begin = parts(sign).next()?.trim_end_matches(['-', '\'']);
    let (_, rest) = line.split_once(begin)?;
    let word = rest
        .split([' ', '\'', '`', '"', ',', '/', '='])
        .find(|word| word.starts_with('-') && word.len() > 1)?;
    Some(word.trim_end_matches([':', '.']))
}

/// Finds lines that a process prints before its engine's own code runs.
static BEFORE_ENGINE: LazyLock<Words> = LazyLock::new(|| {
    let causes = FAILURE_CAUSES.iter().filter(|cause| cause.before_engine);
    let longest = |sign: &&'static str| parts(sign).max_by_key(|part| part.len());
    let words: Vec<&str> = causes.flat_map(|c| c.signs).filter_map(longest).collect();
    Words::new(&words)
});

/// Whether a line states a failure from before the engine's own code.
pub fn fails_before_engine(raw: &[u8]) -> bool {
    BEFORE_ENGINE.hold(raw) && {
        let line = String::from_utf8_lossy(raw);
        find_cause(&line).is_some_and(|(cause, _)| cause.before_engine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(line: &str) -> (&'static str, String) {
        let (cause, line) = find_cause(line).unwrap_or_else(|| panic!("no cause in `{line}`"));
        (cause.name, cause.advise(line, Some(700 << 20)).join("; "))
    }

    #[test]
    fn a_line_states_its_cause_and_what_to_change() {
        for (line, cause, change) in [
            (
                "vllm serve: error: unrecognized arguments: --no-such-flag 3",
                "bad_flag",
                "leave out `--no-such-flag`",
            ),
            (
                "vllm serve: error: argument --dtype: invalid choice: 'float8'",
                "bad_flag",
                "`--dtype`",
            ),
            (
                "x.py: error: argument --tensor-parallel-size/-tp: invalid int value: 'two'",
                "bad_flag",
                "`--tensor-parallel-size`",
            ),
            (
                "error: unexpected argument '--modell' found",
                "bad_flag",
                "`--modell`",
            ),
            ("error: invalid argument: --ctx", "bad_flag", "`--ctx`"),
            (
                "x: error: the following arguments are required: --model-path",
                "bad_flag",
                "`--model-path`",
            ),
            (
                "OSError: /models/none is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
                "model_not_found",
                "mount it",
            ),
            (
                "/x: error while loading shared libraries: libgomp.so.1: cannot open shared object file: No such file or directory",
                "missing_library",
                "another image",
            ),
            (
                "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
                "no_gpu_visible",
                "--gpus all",
            ),
            (
                "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
                "missing_library",
                "another image",
            ),
            (
                "[FATAL tini (7)] exec vlm failed: No such file or directory",
                "command_not_found",
                "no such program",
            ),
            (
                "ERROR (catatonit:6): failed to exec pid1: No such file or directory",
                "command_not_found",
                "no such program",
            ),
            (
                "[FATAL tini (7)] exec /x failed: Exec format error",
                "wrong_architecture",
                "another processor",
            ),
            (
                "exec /usr/bin/vllm: exec format error",
                "wrong_architecture",
                "another processor",
            ),
            (
                "[FATAL tini (7)] exec /etc/passwd failed: Permission denied",
                "command_not_executable",
                "mode",
            ),
            (
                "sh: 1: exec: vllm: not found",
                "command_not_found",
                "no such program",
            ),
            (
                "/entrypoint.sh: line 3: vllm: command not found",
                "command_not_found",
                "no such program",
            ),
            (
                "/usr/bin/python3: No module named vllm",
                "command_not_found",
                "no such program",
            ),
            (
                "the container was killed (exit 137): out of memory, the container's limit is 700.00 MiB",
                "host_ram_oom_cgroup",
                "more memory than 700.00 MiB",
            ),
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
                "out_of_memory",
                "use less",
            ),
        ] {
            let (name, text) = advice(line);
            assert_eq!(name, cause, "{line}");
            assert!(text.contains(change), "{line}: {text}");
        }
    }

    #[test]
    fn an_advice_whose_value_is_unknown_is_left_out() {
        let (cause, line) = find_cause("error: invalid value '' for '").expect("a cause");
        let advice = cause.advise(line, None);
        assert!(advice.iter().all(|a| !a.contains('{')), "{advice:?}");
        assert_eq!(advice.len(), 1);
    }

    #[test]
    fn lines_of_a_healthy_start_state_no_failure() {
        for line in [
            "WARNING 01-01 00:00:00 [interface.py:1] Failed to import from vllm._C with ImportError('libcuda.so.1: cannot open shared object file: No such file or directory')",
            "INFO 01-01 00:00:00 [x.py:1] config.json not found",
            "If out-of-memory error occurs during cudagraph capture, consider decreasing `gpu_memory_utilization`",
            "INFO:     127.0.0.1:1 - \"GET /health HTTP/1.1\" 200 OK",
        ] {
            assert!(!fails_before_engine(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn every_sign_is_searched_for_and_quick_to_find() {
        assert!(BEFORE_ENGINE.vectorised());
        for cause in FAILURE_CAUSES {
            for sign in cause.signs {
                let end = if sign.ends_with('$') { "" } else { "x" };
                let line = sign.trim_end_matches('$').replace('…', "x ") + end;
                assert!(cause.stated_by(&line).is_some(), "{sign}");
                assert!(
                    !cause.before_engine || fails_before_engine(line.as_bytes()),
                    "{sign}"
                );
            }
            assert!(!cause.advice.is_empty(), "{}", cause.name);
        }
    }
}
