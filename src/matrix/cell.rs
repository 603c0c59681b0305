//! One cell of a sweep: a server configuration and a load, and the id that follows from both.

use crate::capture::{RequestedSettings, ShortPrompts};
use crate::preset::Preset;
use crate::redact::{REDACTED, Secrets, is_secret_name};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;

/// One measurement to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Follows from server and load alone: the same cell has the same id in every run.
    pub id: CellId,
    /// Cells of one group can be measured on one start of the engine.
    pub group: GroupId,
    /// The engine that is loaded.
    pub server: Arc<ServerConfig>,
    /// The load on it.
    pub load: CellLoad,
}

impl Cell {
    /// A cell with its ids.
    pub fn new(server: Arc<ServerConfig>, load: CellLoad) -> Cell {
        let group = GroupId::of_server(&server);
        let id = CellId(hash(&(server.identity_key(), &load)));
        Cell {
            id,
            group,
            server,
            load,
        }
    }

    /// What distinguishes it in its group: `in 256 out 128 batch 8`.
    pub fn describe_load(&self) -> String {
        self.load.describe_load()
    }
}

/// Everything that needs another start of the engine when it changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerConfig {
    /// Model, as the engine knows it.
    pub model: String,
    /// Engine, where the file names it.
    pub engine: Option<String>,
    /// Where it runs.
    pub place: EnginePlace,
    /// Settings in the field's words.
    pub settings: RequestedSettings,
    /// Further arguments for the engine.
    pub engine_args: Vec<String>,
    /// The model's architecture by the file, key → number, as in `num_layers`. Kept with the
    /// results; nothing is measured by it.
    pub architecture: std::collections::BTreeMap<String, f64>,
}

impl ServerConfig {
    /// Why its engine serves no request of these lengths, tokens: it is to take no longer ones. A clause.
    pub fn refused_length(&self, input: u64, output: u64) -> Option<String> {
        let longest = input.saturating_add(output);
        let most = self.settings.max_model_len.filter(|most| *most < longest)?;
        Some(format!(
            "requests of {longest} tokens are longer than its max_model_len of {most}"
        ))
    }

    /// What its id follows from: all that can change a measurement. A token that is renewed
    /// changes none.
    fn identity_key(&self) -> impl Serialize + '_ {
        (
            &self.model,
            &self.engine,
            self.place.without_secrets(),
            &self.settings,
            &self.engine_args,
        )
    }

    /// Without the secrets in its environment and arguments. Ids follow from the whole one.
    pub fn redacted(&self) -> ServerConfig {
        let mut server = self.clone();
        let env = match &self.place {
            EnginePlace::Image(preset) => Some(&preset.env),
            EnginePlace::Container(_) => None,
        };
        let pairs = env.into_iter().flatten();
        let pairs = pairs.map(|(name, value)| (name.as_str(), value.as_str()));
        let redactor = Secrets::gather_from(pairs, &self.engine_args).redactor();
        server.engine_args = redactor.redact_argv(&server.engine_args);
        if let EnginePlace::Image(preset) = &mut server.place {
            for (name, value) in &mut preset.env {
                *value = redactor.redact_setting(name, value);
            }
            preset.engine_args = redactor.redact_argv(&preset.engine_args);
        }
        server
    }
}

/// Where an engine runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnginePlace {
    /// In an existing container, by name.
    Container(String),
    /// In a container that plimsoll starts for it.
    Image(Box<Preset>),
}

impl EnginePlace {
    /// The container's or the image's name.
    pub fn place_name(&self) -> &str {
        match self {
            EnginePlace::Container(name) => name,
            EnginePlace::Image(preset) => preset.image.as_deref().unwrap_or("?"),
        }
    }

    /// The same, without the values of environment variables that look like secrets: fit to be
    /// written to a file.
    pub fn without_secrets(&self) -> EnginePlace {
        let mut place = self.clone();
        if let EnginePlace::Image(preset) = &mut place {
            for (name, value) in &mut preset.env {
                if is_secret_name(name) {
                    *value = REDACTED.to_owned();
                }
            }
        }
        place
    }
}

/// The load of one cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CellLoad {
    /// What puts it on.
    pub bench: BenchWord,
    /// Prompt tokens per request.
    pub input_len: u32,
    /// Generated tokens per request.
    pub output_len: u32,
    /// Sequences at once: of a batch (latency bench), in flight (serve, builtin).
    pub batch_size: Option<u32>,
    /// Requests per second, at random moments; `None` keeps `batch_size` in flight.
    pub request_rate: Option<f64>,
    /// Requests; `None`: `batch_size` × `num_iters`.
    pub num_prompts: Option<u32>,
    /// Measured iterations.
    pub num_iters: Option<u32>,
    /// Warm-up iterations or requests.
    pub num_iters_warmup: Option<u32>,
    /// Times the bench runs.
    pub repeats: u32,
    /// Random seed of the bench.
    pub seed: Option<u64>,
    /// The other prompts of a mixture, where `input_len` is the length of the long ones. Not
    /// written where there is none: no id changes by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_prompts: Option<ShortPrompts>,
}

/// Iterations of a load that names none.
pub const ITERATIONS: u32 = 10;

impl CellLoad {
    /// `in 256 out 128 batch 8`, and behind it whatever else the file sets for the load: no two
    /// loads of a group have the same words.
    pub fn describe_load(&self) -> String {
        let mut words = match self.short_prompts {
            None => format!("in {} out {}", self.input_len, self.output_len),
            Some(short) => format!(
                "in {} or {} ({} % short) out {}",
                short.input_len,
                self.input_len,
                short.share * 100.0,
                self.output_len
            ),
        };
        let mut put = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                words.push_str(&format!(" {name} {value}"));
            }
        };
        put("batch", self.batch_size.map(|n| n.to_string()));
        put("rate", self.request_rate.map(|r| format!("{r}/s")));
        let bench = Some(self.bench).filter(|b| *b != BenchWord::Auto);
        put("bench", bench.map(|b| b.as_str().to_owned()));
        for (name, number) in self.named_counts() {
            put(name, number.map(|n| n.to_string()));
        }
        words
    }

    /// The same as a sentence has it, with units: `input 256, output 128 tokens, batch 8`.
    pub fn spell_load(&self) -> String {
        let input = match self.short_prompts {
            None => self.input_len.to_string(),
            Some(short) => format!(
                "{} or {} ({} % short)",
                short.input_len,
                self.input_len,
                short.share * 100.0
            ),
        };
        let bench = Some(self.bench).filter(|b| *b != BenchWord::Auto);
        let settings = [
            self.batch_size.map(|n| format!("batch {n}")),
            self.request_rate.map(|r| format!("{r} requests/s")),
            bench.map(|b| format!("bench {}", b.as_str())),
        ];
        let counts = self.named_counts().into_iter();
        let counts = counts.filter_map(|(name, n)| Some(format!("{name} {}", n?)));
        let lengths = format!("input {input}, output {} tokens", self.output_len);
        let parts = settings.into_iter().flatten().chain(counts);
        std::iter::once(lengths)
            .chain(parts)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// What is counted besides tokens and sequences, by short names: prompts, iterations, warm-up
    /// iterations, repeats where there are several, and the seed.
    pub fn named_counts(&self) -> [(&'static str, Option<u64>); 5] {
        let repeats = Some(self.repeats).filter(|n| *n > 1);
        [
            ("prompts", self.num_prompts.map(u64::from)),
            ("iters", self.num_iters.map(u64::from)),
            ("warm-up", self.num_iters_warmup.map(u64::from)),
            ("repeats", repeats.map(u64::from)),
            ("seed", self.seed),
        ]
    }

    /// Whether this load takes at least as much memory as `other` in every respect: the same
    /// bench, and no length, no number at once and no number of requests is smaller. What cannot
    /// be compared, as a number that only one of them gives, is not at least the other.
    pub fn at_least(&self, other: &CellLoad) -> bool {
        // Where nothing holds requests back, how many there are decides how many are in flight.
        let piles_up = self.bench == BenchWord::Throughput || self.request_rate.is_some();
        self.bench == other.bench
            && self.request_rate == other.request_rate
            && self.input_len >= other.input_len
            && no_shorter(self, other)
            && self.output_len >= other.output_len
            && self.at_once() >= other.at_once()
            && as_many(self.num_prompts, other.num_prompts)
            && (!piles_up || as_many(self.num_iters, other.num_iters))
    }

    /// Sequences at once; no limit is more than any.
    pub(super) fn at_once(&self) -> u64 {
        self.batch_size.map_or(u64::MAX, u64::from)
    }
}

/// Whether no prompt of a mixture is shorter than the other load's that it takes the place of.
fn no_shorter(these: &CellLoad, others: &CellLoad) -> bool {
    match (these.short_prompts, others.short_prompts) {
        (None, _) => true,
        (Some(own), None) => own.input_len >= others.input_len,
        (Some(own), Some(theirs)) => {
            own.input_len >= others.input_len
                || own.input_len >= theirs.input_len && own.share <= theirs.share
        }
    }
}

/// Whether these are no fewer; only two numbers, or none twice, can be compared.
fn as_many(these: Option<u32>, others: Option<u32>) -> bool {
    these.is_some() == others.is_some() && these >= others
}

/// The benches that a sweep file can ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchWord {
    /// The engine's own client where a server is reused, its latency bench where each cell has a
    /// process of its own; plimsoll's client for engines without a suitable bench.
    #[default]
    Auto,
    /// A process of its own for each cell.
    Latency,
    /// A process of its own for each cell.
    Throughput,
    /// The engine's own client against the server.
    Serve,
    /// plimsoll's own client against the server.
    Builtin,
}

impl BenchWord {
    /// All of them, as written.
    pub const ALL: [(&'static str, BenchWord); 5] = [
        ("auto", BenchWord::Auto),
        ("latency", BenchWord::Latency),
        ("throughput", BenchWord::Throughput),
        ("serve", BenchWord::Serve),
        ("builtin", BenchWord::Builtin),
    ];

    /// As written.
    pub fn as_str(self) -> &'static str {
        let own = BenchWord::ALL.iter().find(|(_, bench)| *bench == self);
        own.map_or("", |(name, _)| name)
    }

    /// Whether it loads an engine in a process of its own.
    pub fn in_process(self) -> bool {
        matches!(self, BenchWord::Latency | BenchWord::Throughput)
    }
}

/// Names a cell: 12 hexadecimal digits.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CellId(pub String);

/// Names a group of cells: 12 hexadecimal digits.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(pub String);

impl GroupId {
    /// Of a server configuration.
    pub fn of_server(server: &ServerConfig) -> GroupId {
        GroupId(hash(&server.identity_key()))
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first 12 hexadecimal digits of the SHA-256 of a value's JSON. Maps are sorted, so equal
/// values have equal JSON.
fn hash(value: &impl Serialize) -> String {
    // Strings, numbers and lists of them cannot fail to be written.
    let json = serde_json::to_vec(value).unwrap_or_default();
    let digest = Sha256::digest(&json);
    digest.iter().take(6).map(|b| format!("{b:02x}")).collect()
}
