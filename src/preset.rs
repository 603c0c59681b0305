//! Presets: how to start an engine's image, as YAML. Some ship in the binary (configs/recipes.yaml).

use crate::bounded::unreadable_input;
use crate::error::Failure;
use crate::tables::read_table;
use crate::wording::did_you_mean;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;
use std::sync::LazyLock;

/// The presets that ship, by name.
pub static SHIPPED: LazyLock<BTreeMap<String, Preset>> = LazyLock::new(|| {
    #[derive(Default, Deserialize)]
    struct Recipes {
        presets: BTreeMap<String, Preset>,
    }
    let table: Recipes = read_table(include_str!("../configs/recipes.yaml"));
    table.presets
});

/// How to start an image. Flags of the command line win over each of these.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// What it is for; a sentence.
    #[serde(default)]
    pub description: String,
    /// Image.
    pub image: Option<String>,
    /// Engine.
    pub engine: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// See [`GpuRequest`].
    pub gpus: Option<String>,
    /// AMD GPUs: `/dev/kfd` and `/dev/dri` with their groups.
    #[serde(default)]
    pub amd: bool,
    /// Size of `/dev/shm`.
    pub shm_size: Option<String>,
    /// Memory limit.
    pub memory: Option<String>,
    /// Share the host's IPC namespace.
    #[serde(default)]
    pub ipc_host: bool,
    /// Environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Mounts, as docker's `-v`.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Linux capabilities beside Docker's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cap_add: Vec<String>,
    /// As docker's `--security-opt`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_opt: Vec<String>,
    /// Limits of its processes by name, as docker's `--ulimit`; -1 is none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ulimits: BTreeMap<String, i64>,
    /// Further arguments for the engine.
    #[serde(default)]
    pub engine_args: Vec<String>,
}

/// Which GPUs a new container gets. Written as Docker's `--gpus`: `all`, a count (`2`, `count=2`),
/// ids (`device=0`, `device=0,1`); also ids alone where they cannot be a count (`0,1`, `GPU-1f…`,
/// `nvidia.com/gpu=0`), and `none`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum GpuRequest {
    /// None.
    #[default]
    None,
    /// All of them.
    All,
    /// The first N.
    Count(u32),
    /// These: indices, UUIDs, or names of CDI devices.
    Ids(Vec<String>),
}

/// What `--gpus` asks for, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenGpus {
    /// The GPUs.
    pub request: GpuRequest,
    /// Fields besides: `driver=nvidia`, `capabilities=utility`.
    pub options: Vec<String>,
    /// The quotes around a list are missing: Docker would read a count, or refuse it.
    pub unquoted: bool,
}

impl GpuRequest {
    /// What a request may be.
    pub const FORMS: &str = "none, all, a count as in 2, or ids as in device=0 or device=0,1";

    /// Reads `--gpus` by Docker's grammar, one record of CSV, and lists of ids without Docker's quotes.
    ///
    /// # Errors
    /// The text is not a valid request.
    pub fn read_written(text: &str) -> Result<WrittenGpus, String> {
        let invalid = || format!("must be {}, not `{text}`", GpuRequest::FORMS);
        let fields = csv_fields(text);
        let is_option = |f: &String| {
            let key = f.split('=').next().unwrap_or_default();
            f.contains('=') && matches!(key, "driver" | "capabilities" | "options")
        };
        let (options, fields): (Vec<String>, Vec<String>) = fields.into_iter().partition(is_option);
        let unquoted = fields.iter().filter(|f| !f.is_empty()).count() > 1;
        let written = fields.join(",");
        let (key, value) = match written.split_once('=') {
            Some((key @ ("count" | "device"), value)) => (key, value),
            Some((key, _)) if !key.contains('/') => return Err(invalid()),
            _ => ("", written.as_str()),
        };
        let request = match (key, value, value.parse::<u32>()) {
            ("", "", _) if !options.is_empty() => GpuRequest::Count(1),
            ("", "none", _) => GpuRequest::None,
            (_, "all", _) | ("" | "count", "-1", _) => GpuRequest::All,
            ("" | "count", _, Ok(count)) => GpuRequest::Count(count),
            ("count", ..) => return Err(invalid()),
            _ => gpu_ids(value).map(GpuRequest::Ids).ok_or_else(invalid)?,
        };
        Ok(WrittenGpus {
            request,
            options,
            unquoted,
        })
    }

    /// As Docker's description of a container has it.
    pub fn stored_words(&self) -> Vec<String> {
        match self {
            GpuRequest::None => Vec::new(),
            GpuRequest::All => vec!["all".to_owned()],
            GpuRequest::Count(n) => vec![format!("count={n}")],
            GpuRequest::Ids(ids) => ids.clone(),
        }
    }

    /// The request of which a container's description has these words.
    pub fn from_stored(words: &[String]) -> GpuRequest {
        match words {
            [] => GpuRequest::None,
            [one] if one == "all" => GpuRequest::All,
            [one] if one.starts_with("count=") => {
                GpuRequest::Count(one["count=".len()..].parse().unwrap_or(0))
            }
            ids => GpuRequest::Ids(ids.to_vec()),
        }
    }
}

impl FromStr for GpuRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<GpuRequest, String> {
        let read = GpuRequest::read_written(text)?;
        match (read.request, read.options.first()) {
            (_, Some(option)) => Err(format!(
                "`{option}` is not passed on: must be {}",
                GpuRequest::FORMS
            )),
            (GpuRequest::Count(0), _) => Err(
                "0 requests no GPU, as in Docker; use device=0 for the first GPU, none for no GPU"
                    .into(),
            ),
            (request, None) => Ok(request),
        }
    }
}

/// The fields of a record of CSV: quotes hold what has commas in it.
fn csv_fields(text: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = None;
    for c in text.trim().chars() {
        let last = fields.len() - 1;
        match c {
            '"' | '\'' if quoted.is_none() => quoted = Some(c),
            c if quoted == Some(c) => quoted = None,
            ',' if quoted.is_none() => fields.push(String::new()),
            c => fields[last].push(c),
        }
    }
    fields
}

/// The ids of a list: each has a digit, or names a CDI device. Both kinds do not mix.
fn gpu_ids(list: &str) -> Option<Vec<String>> {
    let ids: Vec<&str> = list.split(',').map(str::trim).collect();
    let plain = |id: &&str| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_:.".contains(&b);
        let begins = id.starts_with(|c: char| c.is_ascii_alphanumeric());
        begins && id.bytes().all(allowed) && id.bytes().any(|b| b.is_ascii_digit())
    };
    let cdi = |id: &&str| id.contains('/') && id.contains('=');
    let ids = ids.strip_suffix(&[""]).unwrap_or(&ids);
    let valid = !ids.is_empty() && (ids.iter().all(plain) || ids.iter().all(cdi));
    valid.then(|| ids.iter().map(|id| (*id).to_owned()).collect())
}

impl fmt::Display for GpuRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuRequest::None => f.write_str("none"),
            GpuRequest::All => f.write_str("all"),
            GpuRequest::Count(n) => write!(f, "count={n}"),
            GpuRequest::Ids(ids) => write!(f, "device={}", ids.join(",")),
        }
    }
}

/// Maximum size of a preset file, bytes.
const LONGEST: u64 = 1 << 20;

/// The first byte of a line that is a directive of YAML, `%TAG …`. Nothing of ours needs one, and
/// the reader's time grows with the square of their number.
pub fn directive_line(text: &str) -> Option<usize> {
    let begins = |before: &str| {
        before
            .chars()
            .next_back()
            .is_none_or(|c| "\n\r\u{85}\u{2028}\u{2029}\u{feff}".contains(c))
    };
    text.match_indices('%')
        .map(|(at, _)| at)
        .find(|at| begins(&text[..*at]))
}

/// Loads a preset by name, or from a file when the word names one.
pub fn load_preset(word: &str) -> Result<Preset, Failure> {
    if let Some(preset) = SHIPPED.get(word) {
        return Ok(preset.clone());
    }
    let path = Path::new(word);
    if !path.exists() {
        if word.contains('/') || word.ends_with(".yaml") || word.ends_with(".yml") {
            return Err(
                Failure::usage(format!("there is no preset file `{word}`")).hint(
                    "a name without `/` is one that ships: `plimsoll run --preset ?` lists them",
                ),
            );
        }
        let names: Vec<&str> = SHIPPED.keys().map(String::as_str).collect();
        let near = did_you_mean(word, names.iter().copied(), 2);
        let failure = Failure::usage(format!("no preset `{word}`"));
        let failure = near.into_iter().fold(failure, Failure::hint);
        return Err(failure.hint(format!(
            "shipped presets: {}; or give a YAML file",
            names.join(", ")
        )));
    }
    // A pipe would make us wait for ever, unless it is one of this process': `<(…)`.
    if !path.is_file() && !word.starts_with("/dev/fd/") && !word.starts_with("/proc/self/fd/") {
        return Err(Failure::usage(format!(
            "preset `{word}` is a folder or a device, not a file"
        ))
        .hint("name a YAML file"));
    }
    let mut text = String::new();
    // Another user's sweep file may name any path, also an endless one.
    std::fs::File::open(path)
        .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text))
        .map_err(|e| unreadable_input(path, e))?;
    if text.len() as u64 > LONGEST {
        return Err(Failure::usage(format!(
            "`{word}` is larger than {} KiB, the most of a preset file",
            LONGEST >> 10
        ))
        .hint("name the preset's YAML file"));
    }
    parse_preset(word, &text)
}

fn parse_preset(word: &str, text: &str) -> Result<Preset, Failure> {
    if directive_line(text).is_some() {
        return Err(Failure::usage(format!(
            "preset `{word}` cannot be read: a line in it begins with `%`, a YAML directive"
        ))
        .hint("remove that line"));
    }
    serde_yaml::from_str(text).map_err(|e| {
        Failure::usage(format!("preset `{word}` cannot be read")).caused_by(error_summary(&e))
    })
}

/// What was expected and where, without the actual text: the path may name any file of the user's.
fn error_summary(error: &serde_yaml::Error) -> String {
    let message = error.to_string();
    let cut = message
        .split_once("invalid type: ")
        .zip(message.rfind(", expected "));
    let Some(((before, _), at)) = cut else {
        return message;
    };
    let expected = message[at + 2..].replace("struct Preset", "a map of keys");
    format!("{before}{expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_requested_as_with_docker() {
        use GpuRequest::{All, Count, Ids};
        let ids = |ids: &[&str]| Ids(ids.iter().map(|id| (*id).to_owned()).collect());
        for (text, request) in [
            ("none", GpuRequest::None),
            ("all", All),
            ("-1", All),
            ("count=all", All),
            ("1", Count(1)),
            ("count=2", Count(2)),
            ("device=0", ids(&["0"])),
            ("device=0,1", ids(&["0", "1"])),
            ("\"device=0,1\"", ids(&["0", "1"])),
            ("device=\"0,1\"", ids(&["0", "1"])),
            ("0,1", ids(&["0", "1"])),
            ("0,", ids(&["0"])),
            ("GPU-1f", ids(&["GPU-1f"])),
            ("nvidia.com/gpu=0", ids(&["nvidia.com/gpu=0"])),
            ("device=nvidia.com/gpu=all", ids(&["nvidia.com/gpu=all"])),
            ("device=all", All),
        ] {
            assert_eq!(text.parse::<GpuRequest>().as_ref(), Ok(&request), "{text}");
            let shown = request.to_string();
            assert_eq!(shown.parse::<GpuRequest>(), Ok(request), "{text}: {shown}");
        }
        for text in ["0", "count=0"] {
            let refused = text.parse::<GpuRequest>().unwrap_err();
            assert!(refused.contains("device=0 for the first"), "{refused}");
        }
        for text in [
            "",
            ",",
            "two",
            "-2",
            "count=x",
            "device=",
            "count=2,device=0",
            "device=0,,1",
            "0,two",
            "0 1",
            "all,capabilities=utility",
            "driver=nvidia",
            "0,nvidia.com/gpu=1",
        ] {
            let refused = text.parse::<GpuRequest>().unwrap_err();
            assert!(refused.contains("device=0,1"), "{text}: {refused}");
        }
    }

    #[test]
    fn every_shipped_preset_loads_and_names_a_known_engine() {
        assert!(SHIPPED.len() > 10);
        for name in SHIPPED.keys() {
            let preset = load_preset(name).unwrap();
            assert!(
                !preset.description.is_empty() && preset.image.is_some(),
                "{name}"
            );
            assert!(
                crate::engine::EngineId::from_name(preset.engine.as_deref().unwrap()).is_ok(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_typo_in_a_preset_is_reported_with_its_place() {
        let e = parse_preset("mine", "image: a\nshm_sise: 1g\n").unwrap_err();
        let cause = e.source.as_ref().unwrap().to_string();
        assert!(
            cause.contains("shm_sise") && cause.contains("line 2"),
            "{cause}"
        );
    }

    #[test]
    fn an_error_quotes_nothing_of_the_file() {
        let secret = ["machine host login me pass", "word pl1msoll"].concat();
        for (text, place) in [
            (secret.clone(), "expected a map of keys"),
            (
                format!("image: a\nenv: {secret}, expected b"),
                "env: expected a map at line 2 column 6",
            ),
            (
                format!("volumes: {secret}\n"),
                "volumes: expected a sequence at line 1 column 10",
            ),
            (
                format!("amd: \"{secret}\\n\""),
                "amd: expected a boolean at line 1 column 6",
            ),
        ] {
            let e = parse_preset("./netrc", &text).unwrap_err();
            assert_eq!(e.source.as_ref().unwrap().to_string(), place, "{text}");
        }
    }

    #[test]
    fn a_file_without_an_end_or_full_of_aliases_is_refused() {
        assert!(
            load_preset("/dev/zero")
                .unwrap_err()
                .message
                .contains("/dev/zero")
        );
        let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x, x]\n");
        for (name, before) in ('b'..='i').zip('a'..) {
            let ten = [format!("*{before}"); 1].concat();
            bomb.push_str(&format!("{name}: &{name} [{}]\n", vec![ten; 10].join(", ")));
        }
        assert!(parse_preset("bomb", &bomb).is_err());
        assert!(parse_preset("deep", &"[".repeat(100_000)).is_err());
        let tags: String = (0..30_000).map(|n| format!("%TAG !{n}! x\n")).collect();
        let message = parse_preset("tags", &tags).unwrap_err().to_string();
        assert!(message.contains("directive"), "{message}");
    }

    #[test]
    fn a_missing_file_is_reported_as_missing() {
        for word in ["./nope.yaml", "nope.yml", "dir/nope"] {
            assert!(
                load_preset(word)
                    .unwrap_err()
                    .message
                    .contains("no preset file")
            );
        }
        assert!(
            load_preset("nope")
                .unwrap_err()
                .message
                .contains("no preset `nope`")
        );
    }
}
