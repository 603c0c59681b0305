//! Lines of `docker run`, `podman run` and `nerdctl run`, with Docker's own grammar of flags.

use super::{Launch, LaunchEntrypoint, shm_bytes};
use crate::engine::argv::basename;
use crate::engine::command::{Command, is_unresolved, script_commands, unresolved};
use crate::preset::GpuRequest;

/// Flags without a value; every other takes one (docker/cli, cli/command/container/opts.go).
const SWITCHES: &[&str] = &[
    "detach",
    "disable-content-trust",
    "help",
    "init",
    "interactive",
    "no-healthcheck",
    "oom-kill-disable",
    "privileged",
    "publish-all",
    "quiet",
    "read-only",
    "rm",
    "sig-proxy",
    "tty",
    "use-api-socket",
];

/// Those that only Podman has.
const PODMAN_SWITCHES: &[&str] = &[
    "replace",
    "rmi",
    "rootfs",
    "no-hosts",
    "no-hostname",
    "env-host",
    "http-proxy",
    "tls-verify",
    "unsetenv-all",
    "read-only-tmpfs",
    "passwd",
];

/// Flags with a value.
const VALUES: &str = "add-host annotation attach blkio-weight blkio-weight-device cap-add cap-drop cgroup-parent cgroupns \
    cidfile cpu-count cpu-percent cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares cpus cpuset-cpus cpuset-mems \
    detach-keys device device-cgroup-rule device-read-bps device-read-iops device-write-bps device-write-iops dns \
    dns-option dns-opt dns-search domainname entrypoint env env-file expose gpus group-add health-cmd health-interval \
    health-retries health-start-interval health-start-period health-timeout hostname io-maxbandwidth io-maxiops ip ip6 ipc \
    isolation kernel-memory label label-file link link-local-ip log-driver log-opt mac-address memory memory-reservation \
    memory-swap memory-swappiness mount name net net-alias network network-alias oom-score-adj pid pids-limit platform \
    publish pull restart runtime security-opt shm-size stop-signal stop-timeout storage-opt sysctl tmpfs ulimit user userns \
    uts volume volume-driver volumes-from workdir";

/// The short flags.
const SHORT: &[(char, &str)] = &[
    ('d', "detach"),
    ('i', "interactive"),
    ('t', "tty"),
    ('P', "publish-all"),
    ('q', "quiet"),
    ('a', "attach"),
    ('c', "cpu-shares"),
    ('e', "env"),
    ('h', "hostname"),
    ('l', "label"),
    ('m', "memory"),
    ('p', "publish"),
    ('u', "user"),
    ('v', "volume"),
    ('w', "workdir"),
];

/// What the words of a line start: a container, or a program of this host.
pub fn read_line(words: &[String]) -> Launch {
    let commands = script_commands(&as_script(words));
    if let Some(launch) = commands.iter().find_map(read_command) {
        return launch;
    }
    // Not a container: a server's own command, as the last of a script.
    let bare = |argv: Vec<String>| Launch {
        argv,
        ..Launch::default()
    };
    match words {
        [script] if script.contains(char::is_whitespace) => {
            let command = commands.into_iter().next_back().unwrap_or_default();
            let mut launch = bare(command.argv);
            launch.env = command.env;
            launch
        }
        _ => bare(words.to_vec()),
    }
}

/// The words as a script: one with blanks in it is one already; of several a shell has taken the quotes away.
fn as_script(words: &[String]) -> String {
    if let [script] = words {
        return script.clone();
    }
    let mut text = String::new();
    let mut open = 0_i64;
    for word in words {
        let brackets = |word: &str| word.matches("$(").count() as i64;
        let inside = open > 0;
        if inside || brackets(word) > 0 {
            open += brackets(word) - word.matches(')').count() as i64;
            open = open.max(0);
        }
        let operator = matches!(
            word.as_str(),
            "|" | "||" | "&&" | ";" | "&" | ">" | ">>" | "2>&1" | "&>"
        );
        if word.trim().is_empty() && word.contains('\n') {
            continue;
        } else if operator || inside || open > 0 {
            text += word;
        } else {
            text.push('"');
            text += &word.replace('\\', "\\\\").replace('"', "\\\"");
            text.push('"');
        }
        text.push(' ');
    }
    text
}

fn read_command(command: &Command) -> Option<Launch> {
    let argv = &command.argv;
    let program = argv
        .iter()
        .position(|w| matches!(basename(w), "docker" | "podman" | "nerdctl"))?;
    let podman = basename(&argv[program]) == "podman";
    let mut at = program + 1;
    loop {
        match argv.get(at)?.as_str() {
            "run" | "create" => break,
            "container" => {}
            "model" => {
                return Some(Launch {
                    argv: argv[program..].to_vec(),
                    ..Launch::default()
                });
            }
            "-D" | "--debug" | "--tls" | "--tlsverify" | "--remote" | "-r" => {}
            flag if flag.starts_with('-') => at += usize::from(!flag.contains('=')),
            _ => return None,
        }
        at += 1;
    }
    Some(read_run(&argv[at + 1..], command, podman))
}

fn read_run(words: &[String], command: &Command, podman: bool) -> Launch {
    let mut launch = Launch::default();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        if word == "--" {
            break;
        }
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            let switch = SWITCHES.contains(&name) || podman && PODMAN_SWITCHES.contains(&name);
            if !switch {
                if !VALUES.split_whitespace().any(|v| v == name) {
                    launch
                        .unknown_flags
                        .push(format!("--{name} of the container"));
                }
                let value = value.or_else(|| {
                    at += 1;
                    words.get(at - 1).cloned()
                });
                take(&mut launch, name, value.unwrap_or_default(), command);
            }
        } else if word.len() > 1 && word.starts_with('-') {
            for (i, letter) in word[1..].char_indices() {
                let name = SHORT
                    .iter()
                    .find(|(l, _)| *l == letter)
                    .map_or("", |(_, n)| n);
                if SWITCHES.contains(&name) {
                    continue;
                }
                let glued = &word[1 + i + letter.len_utf8()..];
                let value = if glued.is_empty() {
                    at += 1;
                    words.get(at - 1).cloned().unwrap_or_default()
                } else {
                    glued.strip_prefix('=').unwrap_or(glued).to_owned()
                };
                take(&mut launch, name, value, command);
                break;
            }
        } else {
            at -= 1;
            break;
        }
    }
    launch.image = words.get(at).cloned();
    if let Some(image) = &launch.image {
        launch
            .unresolved
            .extend(unresolved(image).map(|x| format!("{x} (the image)")));
    }
    launch.argv = words.get(at + 1..).unwrap_or_default().to_vec();
    launch
}

fn take(launch: &mut Launch, name: &str, value: String, command: &Command) {
    let place = match name {
        "volume" | "mount" => "only in a mount",
        "publish" | "expose" => "only in a port",
        "name" => "the container's name",
        "env" | "gpus" | "entrypoint" | "shm-size" | "ipc" => "",
        other => other,
    };
    if !place.is_empty() {
        let place = if place == name {
            format!("--{name}")
        } else {
            place.to_owned()
        };
        launch
            .unresolved
            .extend(unresolved(&value).map(|x| format!("{x} ({place})")));
    }
    match name {
        "env" => match value.split_once('=') {
            Some((name, value)) => launch.set_env(name, value),
            None => match command.env.get(&value) {
                Some(set) => launch.set_env(&value, set),
                None => launch.pass_env(&value),
            },
        },
        "env-file" => launch.unresolved.push(format!("--env-file {value}")),
        "volume" | "mount" => launch.mounts.push(value),
        "publish" => launch.ports.push(value),
        "gpus" => launch.set_gpus(&value),
        "device" => launch.add_device(&value),
        "entrypoint" => launch.entrypoint = Some(LaunchEntrypoint::Word(value)),
        "shm-size" => launch.set_shm(&value),
        "ipc" => launch.ipc = Some(value),
        "runtime" => launch.runtime = Some(value),
        _ => {}
    }
}

impl Launch {
    /// Takes `--gpus` as Docker's client reads it: one record of CSV, in which the last of two counts wins.
    pub(super) fn set_gpus(&mut self, text: &str) {
        if is_unresolved(text) {
            self.unresolved.push(format!("{text} (the GPUs)"));
            return;
        }
        let mut request = GpuRequest::Count(1);
        for field in csv_fields(text) {
            let (key, value) = field.split_once('=').unwrap_or(("count", &field));
            match (key.trim(), value.trim()) {
                ("count", "all" | "-1") => request = GpuRequest::All,
                ("count", n) => match n.parse() {
                    Ok(n) => request = GpuRequest::Count(n),
                    // Podman takes an id.
                    Err(_) => request = GpuRequest::Ids(vec![field.clone()]),
                },
                ("device", ids) => {
                    request =
                        GpuRequest::Ids(ids.split(',').map(|i| i.trim().to_owned()).collect());
                }
                _ if field.contains('/') => request = GpuRequest::Ids(vec![field.clone()]),
                _ => {}
            }
        }
        let bare = text.trim().trim_matches(['"', '\'']);
        if text.trim() == bare && bare.contains(',') && bare.contains(|c: char| c.is_ascii_digit())
        {
            let ids = bare.trim_start_matches("device=").split(',').map(str::trim);
            let ids: Vec<String> = ids.map(str::to_owned).collect();
            if ids.iter().all(|i| i.bytes().all(|b| b.is_ascii_digit())) {
                self.warnings.push(format!(
                    "Docker does not read `--gpus {bare}` as a list: it wants quotes, `--gpus '\"device={}\"'`",
                    ids.join(",")
                ));
                request = GpuRequest::Ids(ids);
            }
        }
        if request == GpuRequest::Count(0) {
            self.warnings
                .push("`--gpus 0` asks Docker for no GPU: the first is `--gpus device=0`".into());
        }
        self.gpus = Some(request);
    }

    pub(super) fn set_shm(&mut self, text: &str) {
        match shm_bytes(text) {
            Some(bytes) => self.shm_bytes = Some(bytes),
            None => self
                .unresolved
                .push(format!("{text} (the size of /dev/shm)")),
        }
    }
}

/// The fields of a record of CSV: quotes hold what has commas in it.
fn csv_fields(text: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = None;
    for c in text.chars() {
        let last = fields.len() - 1;
        match c {
            '"' | '\'' if quoted.is_none() => quoted = Some(c),
            c if quoted == Some(c) => quoted = None,
            ',' if quoted.is_none() => fields.push(String::new()),
            c => fields[last].push(c),
        }
    }
    fields.retain(|f| !f.trim().is_empty());
    fields
}
