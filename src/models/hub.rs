//! A model's facts from a Hugging Face hub: its configuration and the headers of its files, never the weights. Asked
//! only with `--online`.

mod http;

pub use http::Limits;

use super::cache::hf_place;
use super::json;
use crate::bounded::read_beginning;
use crate::error::Failure;
use crate::estimate::headers::{HeaderError, Headers, Stored, safetensors};
use ::http::header::HeaderValue;
use ::http::uri::Scheme;
use ::http::{StatusCode, Uri};
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Http, Reply, Trouble};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The hub where `HF_ENDPOINT` names none.
const ENDPOINT: &str = "https://huggingface.co";
/// So much of a file is asked for at first, bytes: most headers are shorter.
const FIRST: u64 = 100_000;
/// Headers that are asked for at once.
const AT_ONCE: usize = 8;
/// Grows where the fields of [`Facts`] change: what an older plimsoll kept is asked for again.
const KEPT_VERSION: u32 = 2;
/// Longest token that is one, bytes.
const LONGEST_TOKEN: u64 = 4096;

/// A model's files on a hub.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Facts {
    id: String,
    /// The hub.
    endpoint: String,
    /// The commit, where the hub names it; else `main`.
    revision: String,
    /// The day on which it was asked.
    asked: String,
    /// config.json, with hf_quant_config.json in it.
    pub config: Value,
    /// What its safetensors files hold, where it has any.
    pub headers: Option<Headers>,
    /// Why there are no headers.
    pub note: Option<String>,
}

impl Facts {
    /// The hub, the revision and the day.
    pub fn source(&self) -> String {
        let revision: String = self.revision.chars().take(12).collect();
        let host = self.endpoint.split("://").last().unwrap_or(&self.endpoint);
        format!(
            "the hub ({host}/{}, revision {revision}, asked {})",
            self.id, self.asked
        )
    }
}

/// Where texts are kept between runs.
pub trait Keep {
    /// The text under a key.
    fn get(&self, key: &str) -> Option<String>;
    /// Keeps a text.
    fn put(&self, key: &str, text: &str);
}

/// A hub, and who asks it.
pub struct Hub {
    endpoint: Uri,
    token: Option<HeaderValue>,
    limits: Limits,
}

impl Hub {
    /// The hub of huggingface_hub's own variables: `HF_ENDPOINT`, `HF_TOKEN`, `HF_TOKEN_PATH`, `HF_HOME`.
    ///
    /// # Errors
    /// An endpoint that is not an address, or a token that no header can hold.
    pub fn from_env() -> Result<Hub, Failure> {
        let set = |name: &str| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let token = set("HF_TOKEN").or_else(token_of_file);
        Hub::new(&endpoint, token.as_deref(), Limits::default())
    }

    /// A hub at an address.
    ///
    /// # Errors
    /// As [`Hub::from_env`].
    pub fn new(endpoint: &str, token: Option<&str>, limits: Limits) -> Result<Hub, Failure> {
        let wrong = || {
            Failure::usage("HF_ENDPOINT is not a URL")
                .hint("as in HF_ENDPOINT=https://huggingface.co, without a user or a query")
        };
        let uri: Uri = endpoint.trim().parse().map_err(|_| wrong())?;
        let scheme = uri.scheme().ok_or_else(wrong)?;
        let plain = *scheme == Scheme::HTTP;
        let authority = uri.authority().ok_or_else(wrong)?.as_str();
        if !plain && *scheme != Scheme::HTTPS || authority.contains('@') || uri.query().is_some() {
            return Err(wrong());
        }
        // Whoever listens on the way would have it.
        let here = matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
        let token = token.map(str::trim).filter(|t| !t.is_empty());
        let token = match token.filter(|_| !plain || here) {
            Some(token) => {
                let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
                    Failure::usage("HF_TOKEN contains characters that no token has")
                        .hint("copy the token again: it begins with hf_, without blanks or quotes")
                })?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        Ok(Hub {
            endpoint: uri,
            token,
            limits,
        })
    }

    /// The address without what follows the path.
    fn name(&self) -> String {
        let text = self.endpoint.to_string();
        text.trim_end_matches('/').to_owned()
    }

    fn key(&self, id: &str) -> String {
        format!("{} {id}", self.name())
    }

    /// What was kept of a model.
    pub fn kept(&self, id: &str, keep: &dyn Keep) -> Option<Facts> {
        let text = keep.get(&self.key(id))?;
        let (version, facts): (u32, Facts) = serde_json::from_str(&text).ok()?;
        let ours = version == KEPT_VERSION && facts.id == id && facts.endpoint == self.name();
        ours.then_some(facts)
    }

    /// Asks the hub, and keeps the answer.
    ///
    /// # Errors
    /// No such model, none that this user may see, no network, or an answer that cannot be parsed.
    pub fn ask(&self, id: &str, keep: &dyn Keep) -> Result<Facts, Failure> {
        let offline = std::env::var("HF_HUB_OFFLINE").unwrap_or_default();
        if ["1", "ON", "YES", "TRUE"].contains(&offline.to_uppercase().as_str()) {
            return Err(
                Failure::environment("HF_HUB_OFFLINE is set, so the hub is not asked")
                    .hint("unset it, or leave --online out"),
            );
        }
        let facts = self.asked(id)?;
        if let Ok(text) = serde_json::to_string(&(KEPT_VERSION, &facts)) {
            keep.put(&self.key(id), &text);
        }
        Ok(facts)
    }

    fn asked(&self, id: &str) -> Result<Facts, Failure> {
        let environment = |what: &str, e: std::io::Error| Failure::environment(what).caused_by(e);
        if cfg!(not(feature = "online")) && self.endpoint.scheme() == Some(&Scheme::HTTPS) {
            return Err(
                Failure::environment("this build of plimsoll has no TLS").hint(
                    "build it with `--features online`, or name a hub over http in HF_ENDPOINT",
                ),
            );
        }
        let http =
            Http::new(self.endpoint.clone(), self.token.clone(), self.limits).map_err(|e| {
                environment("this host has no certificates to know a hub by", e)
                    .hint("install ca-certificates, or name a bundle in SSL_CERT_FILE")
            })?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| environment("no runtime for the network", e))?;
        let asking = Asking {
            hub: self,
            http,
            id,
        };
        let answer = runtime
            .block_on(async { tokio::time::timeout(self.limits.whole, asking.facts()).await });
        // Connections that a hostile server holds open are not waited for.
        runtime.shutdown_background();
        answer.unwrap_or_else(|_| {
            let patience = self.limits.whole.as_secs();
            Err(asking.failed(&Trouble::Answer(format!(
                "it did not finish within {patience} s"
            ))))
        })
    }
}

/// The token that `hf auth login` left.
fn token_of_file() -> Option<String> {
    let path = hf_place("HF_TOKEN_PATH", "token")?;
    let text = String::from_utf8(read_beginning(&path, LONGEST_TOKEN).ok()?).ok()?;
    Some(text.trim().to_owned()).filter(|t| !t.is_empty())
}

/// Whether a name can be one of the hub's: `owner/name`, or one word as the oldest models have.
pub(super) fn is_id(id: &str) -> bool {
    let word = |w: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !w.is_empty() && w.len() <= 96 && !w.starts_with(['.', '-']) && w.chars().all(plain)
    };
    match id.split_once('/') {
        Some((owner, name)) => word(owner) && word(name),
        None => word(id),
    }
}

/// One question.
struct Asking<'a> {
    hub: &'a Hub,
    http: Http,
    id: &'a str,
}

impl Asking<'_> {
    async fn facts(&self) -> Result<Facts, Failure> {
        let most = self.hub.limits.document;
        let found = self.get("main", "config.json", most, false).await?;
        if !found.status.is_success() {
            return Err(self.refused(&found));
        }
        let mut config = self.json("config.json", &found)?;
        // All that follows is of the same commit, whoever pushes meanwhile.
        let revision = found.commit.unwrap_or_else(|| "main".to_owned());
        let name = "hf_quant_config.json";
        let beside = self.get(&revision, name, most, false).await?;
        // Only a clear no means that there is none: without it a model would be taken for an unquantised one.
        if !beside.status.is_success() && beside.status != StatusCode::NOT_FOUND {
            return Err(self.refused(&beside));
        }
        if beside.status.is_success() {
            if let Some(fields) = config.as_object_mut() {
                let quantised = self.json(name, &beside)?;
                fields.entry("hf_quant_config").or_insert(quantised);
            }
        }
        let tensors = self.tensors(&revision).await?;
        let note = "it has no model.safetensors and no index of such files on the hub: its weights are computed from its configuration";
        let note = tensors.is_none().then(|| note.to_owned());
        let mut facts = Facts {
            id: self.id.to_owned(),
            endpoint: self.hub.name(),
            revision,
            asked: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            config,
            headers: None,
            note,
        };
        let source = facts.source();
        facts.headers = tensors.map(|tensors| Headers {
            tensors,
            gguf: false,
            source,
        });
        Ok(facts)
    }

    /// The tensors of all its files; `None`: it has none of the usual names.
    async fn tensors(&self, revision: &str) -> Result<Option<Vec<Stored>>, Failure> {
        let index = "model.safetensors.index.json";
        let most = self.hub.limits.document;
        let found = self.get(revision, index, most, false).await?;
        let mut files = vec!["model.safetensors".to_owned()];
        let listed = found.status.is_success();
        if listed {
            let names = safetensors::index_files(&found.bytes);
            files = names.map_err(|e| self.odd(index, &e.to_string()))?;
            if files.is_empty() || files.len() > self.hub.limits.files {
                return Err(self.odd(index, &format!("it names {} files", files.len())));
            }
        } else if found.status != StatusCode::NOT_FOUND {
            return Err(self.refused(&found));
        }
        let one = |file: String| async move { self.header(revision, &file, listed).await };
        let each = futures::stream::iter(files.into_iter().map(one)).buffered(AT_ONCE);
        let all: Vec<Option<Vec<Stored>>> = each.try_collect().await?;
        let whole: Option<Vec<Vec<Stored>>> = all.into_iter().collect();
        Ok(whole.map(|files| files.into_iter().flatten().collect()))
    }

    /// The header of a file. `needed`: an index names it.
    async fn header(
        &self,
        revision: &str,
        file: &str,
        needed: bool,
    ) -> Result<Option<Vec<Stored>>, Failure> {
        let mut reply = self.get(revision, file, FIRST, true).await?;
        if reply.status == StatusCode::NOT_FOUND && !needed {
            return Ok(None);
        }
        if !reply.status.is_success() {
            return Err(match reply.status {
                StatusCode::NOT_FOUND => self.odd(
                    file,
                    "the model's index lists it, but it does not exist there",
                ),
                _ => self.refused(&reply),
            });
        }
        let odd = |e: HeaderError| self.odd(file, &e.to_string());
        let length = safetensors::length(&reply.bytes).map_err(odd)?;
        if let Some(size) = reply.size.filter(|size| length + 8 > *size) {
            let what = format!("a header of {length} bytes in a file of {size}");
            return Err(self.odd(file, &what));
        }
        if (reply.bytes.len() as u64) < length + 8 {
            reply = self.get(revision, file, length + 8, true).await?;
        }
        safetensors::parse(&reply.bytes, reply.size)
            .map(Some)
            .map_err(odd)
    }

    /// A file, or its first `most` bytes where `range` is so.
    async fn get(
        &self,
        revision: &str,
        file: &str,
        most: u64,
        range: bool,
    ) -> Result<Reply, Failure> {
        let path = format!("/{}/resolve/{revision}/{}", self.id, escaped(file));
        log::debug!("asking {}{path}", self.hub.name());
        let reply = self.http.get(&path, most, range).await;
        let reply = reply.map_err(|e| self.failed(&e))?;
        log::debug!("{}, {} bytes", reply.status, reply.bytes.len());
        Ok(reply)
    }

    fn json(&self, file: &str, reply: &Reply) -> Result<Value, Failure> {
        let text = std::str::from_utf8(&reply.bytes).map_err(|e| self.odd(file, &e.to_string()))?;
        let value = json::parse(text).map_err(|e| self.odd(file, &format!("not JSON: {e}")))?;
        if value.is_object() {
            Ok(value)
        } else {
            Err(self.odd(file, "not a JSON object"))
        }
    }

    /// The hub answered, with something else than this file.
    fn odd(&self, file: &str, what: &str) -> Failure {
        let what: String = what.chars().filter(|c| !c.is_control()).take(300).collect();
        Failure::environment(format!(
            "`{file}` of `{}` on {} cannot be used: {what}",
            self.id,
            self.hub.name()
        ))
        .hint("give the model's folder, or its configuration: --config FILE")
    }

    /// The hub did not answer, or without end.
    fn failed(&self, trouble: &Trouble) -> Failure {
        let hub = self.hub.name();
        match trouble {
            Trouble::Connection(why) => Failure::environment(format!("cannot reach the hub {hub}: {why}"))
                .hint("proxies are not used; where this host has no way out, give the model's folder, or --config FILE"),
            other => Failure::environment(format!("{hub} does not answer like a model hub: {other}"))
                .hint("is HF_ENDPOINT right, and no proxy in between? --config FILE needs no hub"),
        }
    }

    /// The hub refuses.
    fn refused(&self, reply: &Reply) -> Failure {
        let (id, hub) = (self.id, self.hub.name());
        let token = match self.hub.token {
            Some(_) => "the account of the token that was sent must be the one that has access",
            None => {
                "then set HF_TOKEN to a token of that account; none was found (or none is sent over plain HTTP)"
            }
        };
        match (reply.status, reply.code.as_str()) {
            (StatusCode::NOT_FOUND, "EntryNotFound") => {
                Failure::usage(format!("`{id}` has no config.json on {hub}"))
                    .hint("GGUF files are read from the disk: give the file instead of the id")
            }
            (StatusCode::NOT_FOUND, _) => {
                Failure::usage(format!("there is no model `{id}` on {hub}"))
                    .hint("check its spelling; `plimsoll models` lists those that need no hub")
            }
            (StatusCode::UNAUTHORIZED, "RepoNotFound") => Failure::environment(format!(
                "{hub} has no public model `{id}`: it is private or gated, or does not exist"
            ))
            .hint(format!(
                "check the id; for a gated model accept its licence at {hub}/{id}"
            ))
            .hint(token),
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => Failure::environment(format!(
                "`{id}` is gated: {hub} gives its files only to who accepted its licence"
            ))
            .hint(format!("accept the licence at {hub}/{id}"))
            .hint(token),
            (StatusCode::TOO_MANY_REQUESTS, _) => Failure::environment(format!(
                "{hub} limits the number of requests, and this host has reached the limit"
            ))
            .hint("try again later; with HF_TOKEN more is allowed"),
            (status, _) => Failure::environment(format!(
                "{hub} answered `{id}` with HTTP status {}",
                status.as_u16()
            ))
            .hint("try again later; --config FILE needs no hub"),
        }
    }
}

/// A file's name as a part of an address.
fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(byte as char);
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
