//! A container to create, as a person would start it: a line of `docker run`, a service of Compose, a description. No
//! secret is in any of them: variables that are secrets are named, and their values come from the shell.

use super::launch::LaunchSpec;
use crate::engine::settings::looks_secret;
use crate::preset::GpuRequest;
use crate::redact::Secrets;
use serde_json::{Value, json};
use std::fmt::Write as _;

impl LaunchSpec {
    /// As flags of `docker run`, image and command apart.
    fn docker_flags(&self) -> Vec<[String; 2]> {
        let mut flags: Vec<[String; 2]> = Vec::new();
        let mut put = |flag: &str, value: String| flags.push([flag.to_owned(), value]);
        put("--name", self.name.clone());
        match &self.gpus {
            GpuRequest::None => {}
            GpuRequest::Ids(ids) if ids.iter().any(|id| id.contains('=')) => {
                ids.iter().for_each(|id| put("--device", id.clone()));
            }
            // Docker reads one record of CSV: a list wants quotes of its own.
            GpuRequest::Ids(ids) if ids.len() > 1 => put("--gpus", format!("\"{}\"", self.gpus)),
            request => put("--gpus", request.to_string().replace("count=", "")),
        }
        for device in self.devices() {
            put("--device", (*device).to_owned());
        }
        for (flag, values) in [
            ("--group-add", &self.groups),
            ("--cap-add", &self.cap_add),
            ("--security-opt", &self.security_opt),
        ] {
            values.iter().for_each(|v| put(flag, v.clone()));
        }
        if self.ipc_host {
            put("--ipc", "host".into());
        }
        if let Some(bytes) = self.shm_size_bytes {
            put("--shm-size", short_size(bytes));
        }
        if let Some(bytes) = self.memory_bytes {
            put("--memory", short_size(bytes));
        }
        for (name, limit) in &self.ulimits {
            put("--ulimit", format!("{name}={limit}"));
        }
        for variable in self.variables() {
            put("-e", variable);
        }
        self.mounts.iter().for_each(|m| put("-v", m.clone()));
        for (inside, host) in &self.ports {
            put("-p", published(*inside, *host));
        }
        if let Some(network) = &self.network {
            put("--network", network.clone());
        }
        if let Some(program) = self.entrypoint.as_ref().map(|e| e.first()) {
            put("--entrypoint", program.cloned().unwrap_or_default());
        }
        flags
    }

    /// The words after the image, those of the entrypoint beyond its first among them. In the place of
    /// a secret stands what `place` makes of the name of a variable; `plain` writes the others.
    fn shown_words(
        &self,
        place: &dyn Fn(&str) -> String,
        plain: &dyn Fn(&str) -> String,
    ) -> Vec<String> {
        let rest = self.entrypoint.iter().flat_map(|e| e.iter().skip(1));
        let words: Vec<String> = rest.chain(&self.cmd).cloned().collect();
        let redactor = Secrets::gather_from([], &words).redactor();
        let words = redactor.redact_argv(&words);
        let variable = |flag: &str| {
            let name = flag.trim_start_matches('-').replace('-', "_");
            place(&name.to_ascii_uppercase())
        };
        let shown = words.iter().enumerate().map(|(at, word)| {
            let before = at.checked_sub(1).map(|at| words[at].as_str());
            match (word.strip_suffix("=[redacted]"), before) {
                (Some(flag), _) => format!("{flag}={}", variable(flag)),
                (None, Some(flag)) if word == "[redacted]" => variable(flag),
                _ => plain(word),
            }
        });
        shown.collect()
    }

    fn devices(&self) -> &'static [&'static str] {
        if self.amd {
            &["/dev/kfd", "/dev/dri"]
        } else {
            &[]
        }
    }

    /// `NAME=VALUE`, of a secret the name alone.
    fn variables(&self) -> impl Iterator<Item = String> {
        let redactor = Secrets::default().redactor();
        self.env.iter().map(move |(name, value)| {
            // Nor is an address with a password in it written.
            let has_secret = || redactor.redact_text(value) != value.as_str();
            if looks_secret(name) || has_secret() {
                name.clone()
            } else {
                format!("{name}={value}")
            }
        })
    }

    /// The line of `docker run` that starts it.
    pub fn docker_line(&self) -> String {
        let mut line = "docker run -d".to_owned();
        for [flag, value] in self.docker_flags() {
            let _ = write!(line, " \\\n  {flag} {}", quoted(&value));
        }
        let _ = write!(line, " \\\n  {}", self.image);
        let words = self.shown_words(&|name| format!("\"${name}\""), &quoted);
        if !words.is_empty() {
            let _ = write!(line, " \\\n  {}", words.join(" "));
        }
        line + "\n"
    }

    /// A file of Compose with the service that starts it.
    pub fn compose_file(&self) -> String {
        // Compose replaces variables at a dollar sign.
        let text = |word: &str| json!(word.replace('$', "$$"));
        let texts = |words: &mut dyn Iterator<Item = String>| -> Value {
            words.map(|w| text(&w)).collect()
        };
        let mut file = format!("services:\n  {}:\n", self.name);
        let mut put = |key: &str, value: Value| {
            let empty = value.as_array().is_some_and(Vec::is_empty);
            if !empty && !value.is_null() {
                let _ = writeln!(file, "    {key}: {value}");
            }
        };
        put("image", text(&self.image));
        if let Some(entrypoint) = &self.entrypoint {
            put("entrypoint", texts(&mut entrypoint.iter().take(1).cloned()));
        }
        let words = self.shown_words(&|name| format!("${{{name}:?}}"), &|w| w.replace('$', "$$"));
        put("command", json!(words));
        put("environment", texts(&mut self.variables()));
        put("volumes", texts(&mut self.mounts.iter().cloned()));
        let ports = self.ports.iter().map(|(i, h)| published(*i, *h));
        put("ports", texts(&mut ports.into_iter()));
        put("ipc", json!(self.ipc_host.then_some("host")));
        put("shm_size", json!(self.shm_size_bytes));
        put("mem_limit", json!(self.memory_bytes));
        if !self.ulimits.is_empty() {
            put("ulimits", json!(self.ulimits));
        }
        put("cap_add", json!(self.cap_add));
        put("security_opt", json!(self.security_opt));
        put("devices", json!(self.devices()));
        put("group_add", json!(self.groups));
        put("network_mode", json!(self.network));
        let request = match &self.gpus {
            GpuRequest::None => return file,
            GpuRequest::All => json!({"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}),
            GpuRequest::Count(n) => {
                json!({"driver": "nvidia", "count": n, "capabilities": ["gpu"]})
            }
            GpuRequest::Ids(ids) if ids.iter().any(|id| id.contains('=')) => {
                json!({"driver": "cdi", "device_ids": ids, "capabilities": ["gpu"]})
            }
            GpuRequest::Ids(ids) => {
                json!({"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]})
            }
        };
        let devices = json!({"resources": {"reservations": {"devices": [request]}}});
        let _ = writeln!(file, "    deploy: {devices}");
        file
    }

    /// All that is asked of the daemon, a line for each part.
    pub fn description(&self) -> String {
        let mut text = format!(
            "would start {} as {} with: {}\nGPUs: {}\n",
            self.image,
            self.name,
            self.shown_words(&|_| "[redacted]".into(), &str::to_owned)
                .join(" "),
            self.gpus
        );
        let flags = self.docker_flags();
        let own = flags
            .iter()
            .filter(|[flag, _]| !matches!(flag.as_str(), "--name" | "--gpus"));
        for [flag, value] in own {
            let _ = writeln!(text, "{flag} {value}");
        }
        text
    }
}

fn published(inside: u16, host: u16) -> String {
    format!("{}:{inside}", if host == 0 { inside } else { host })
}

/// A word as a shell takes it for one.
pub fn quoted(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), |quoted| quoted.into_owned())
}

/// The largest unit of Docker's that leaves a whole number.
fn short_size(bytes: u64) -> String {
    let units = [(30, "g"), (20, "m"), (10, "k")];
    let fits = |(power, _): &&(u32, &str)| bytes > 0 && bytes % (1 << power) == 0;
    match units.iter().find(fits) {
        Some((power, unit)) => format!("{}{unit}", bytes >> power),
        None => bytes.to_string(),
    }
}
