//! Lines of `docker run`, `podman run` and `nerdctl run`, with Docker's own grammar of flags.

use super::{Launch, LaunchEntrypoint};
use crate::engine::argv::basename;
use crate::engine::command::{
    Command, assignment, is_container_client, is_unresolved, script_commands, unresolved,
};
use crate::preset::GpuRequest;
use crate::units::Bytes;

/// Flags without a value; every other takes one (docker/cli, cli/command/container/opts.go).
const SWITCHES: &str = "detach disable-content-trust help init interactive no-healthcheck oom-kill-disable privileged \
    publish-all quiet read-only rm sig-proxy tty use-api-socket";

/// Those that only Podman has.
const PODMAN_SWITCHES: &str = "replace rmi rootfs no-hosts no-hostname env-host http-proxy tls-verify unsetenv-all \
    read-only-tmpfs passwd";

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

/// The short flags, each before its long one.
const SHORT: &str = "d-detach i-interactive t-tty P-publish-all q-quiet a-attach c-cpu-shares e-env h-hostname l-label \
    m-memory p-publish u-user v-volume w-workdir";

/// Whether a list of words has this one.
pub(super) fn lists_word(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|listed| listed == word)
}

/// The long name of a short flag; empty where there is none.
fn long_flag(letter: char) -> &'static str {
    let names = |word: &'static str| word.strip_prefix(letter)?.strip_prefix('-');
    SHORT.split_whitespace().find_map(names).unwrap_or("")
}

/// What the words of a line start: a container, or a program of this host.
pub fn read_line(words: &[String]) -> Launch {
    let commands = script_commands(&as_script(words));
    let mut all: Vec<Launch> = Vec::new();
    for command in &commands {
        let containers = all.iter().rfind(|l| l.image.is_some());
        all.extend(read_command(command, containers));
    }
    if all.is_empty() {
        // Not a container: a server's own command.
        match words {
            [script] if script.contains(char::is_whitespace) => {
                all.extend(commands.into_iter().rev().map(|command| Launch {
                    argv: command.argv,
                    env: command.env,
                    ..Launch::default()
                }));
            }
            _ => {
                let (variables, argv) = words.split_at(count_variables(words));
                let mut launch = Launch {
                    argv: argv.to_vec(),
                    ..Launch::default()
                };
                for (name, value) in variables.iter().filter_map(|w| assignment(w)) {
                    launch.set_env(name, value);
                }
                all.push(launch);
            }
        }
    }
    let names_model = |l: &Launch| l.server().is_some_and(|s| s.settings.model.is_some());
    let best = (all.iter().position(names_model))
        .or_else(|| all.iter().position(|l| l.server().is_some()))
        .unwrap_or(0);
    all.into_iter().nth(best).unwrap_or_default()
}

/// How many words before a command set variables: `NAME=value`.
fn count_variables(words: &[String]) -> usize {
    let set = words.iter().take_while(|w| assignment(w).is_some());
    set.count()
}

/// The words as a script: one with blanks in it is one already; of several a shell has taken the quotes away.
fn as_script(words: &[String]) -> String {
    if let [script] = words {
        // A line that goes on has a backslash at its end; PowerShell's has a backtick, a unit of systemd a key before it.
        let joined = script.replace(" `\n", " ").replace(" ^\n", " ");
        let own = |line: &str| {
            let command = line.strip_prefix("ExecStart=");
            let command = command.map(|c| c.trim_start_matches(['-', '@', ':', '+', '!']));
            command.unwrap_or(line).to_owned()
        };
        return joined.lines().map(own).collect::<Vec<_>>().join("\n");
    }
    let mut text = String::new();
    let mut open = 0_i64;
    let variables = count_variables(words);
    for (at, word) in words.iter().enumerate() {
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
            let begin = word
                .find('=')
                .filter(|_| at < variables)
                .map_or(0, |n| n + 1);
            let (name, value) = word.split_at(begin);
            text += name;
            text.push('"');
            text += &value.replace('\\', "\\\\").replace('"', "\\\"");
            text.push('"');
        }
        text.push(' ');
    }
    text
}

/// What a command starts; `container` is the one that an earlier command started.
fn read_command(command: &Command, container: Option<&Launch>) -> Option<Launch> {
    let argv = &command.argv;
    let program = argv.iter().position(|w| is_container_client(w))?;
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
            "exec" => {
                // Its flags are read as those of `run`, the container's name where that has the image.
                let exec = read_run(&argv[at + 1..], command, podman);
                let mut launch = container.cloned().unwrap_or_default();
                launch.entrypoint = Some(LaunchEntrypoint::Words(Vec::new()));
                launch.argv = exec.argv;
                launch.env.extend(exec.env);
                launch.secrets.extend(exec.secrets);
                return Some(launch);
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
            let switch = lists_word(SWITCHES, name) || podman && lists_word(PODMAN_SWITCHES, name);
            if !switch {
                if !lists_word(VALUES, name) {
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
                let name = long_flag(letter);
                if lists_word(SWITCHES, name) {
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
        "env-file" => launch.env_files.push(value),
        "volume" | "mount" => launch.mounts.push(value),
        "publish" => launch.ports.push(value),
        "gpus" => launch.set_gpus(&value),
        "device" => launch.add_device(&value),
        "entrypoint" => launch.entrypoint = Some(LaunchEntrypoint::Word(value)),
        "shm-size" => launch.set_shm(&value),
        "ipc" => launch.ipc = Some(value),
        "runtime" => launch.runtime = Some(value),
        "cap-add" => launch.cap_add.push(value),
        "security-opt" => launch.security_opt.push(value),
        "memory" => launch.memory = Some(value),
        // A user of `run` has its own name, ports and end.
        "name" | "pull" | "label" | "health-cmd" | "stop-timeout" => {}
        // Those that may open AMD's devices are found on the host.
        "group-add" if matches!(value.as_str(), "video" | "render") => {}
        "ulimit" => match value.split_once('=').map(|(n, l)| (n, l.parse())) {
            Some((name, Ok(limit))) => {
                launch.ulimits.insert(name.to_owned(), limit);
            }
            _ => launch.left_out.push(format!("--ulimit {value}")),
        },
        other => launch.left_out.push(format!("--{other} {value}")),
    }
}

impl Launch {
    /// Takes `--gpus`.
    pub(super) fn set_gpus(&mut self, text: &str) {
        if is_unresolved(text) {
            self.unresolved.push(format!("{text} (the GPUs)"));
            return;
        }
        let read = match GpuRequest::read_written(text) {
            Ok(read) => read,
            Err(why) => {
                self.warnings.push(format!("--gpus {why}"));
                return;
            }
        };
        if read.unquoted {
            self.warnings.push(format!(
                "Docker does not read `--gpus {text}` as a list: it wants quotes, `--gpus '\"{}\"'`",
                read.request
            ));
        }
        if read.request == GpuRequest::Count(0) {
            self.warnings
                .push("`--gpus 0` asks Docker for no GPU: the first is `--gpus device=0`".into());
        }
        self.gpus = Some(read.request);
    }

    pub(super) fn set_shm(&mut self, text: &str) {
        match Bytes::parse_binary(text) {
            Ok(bytes) => self.shm_bytes = Some(bytes.0),
            Err(_) => self
                .unresolved
                .push(format!("{text} (the size of /dev/shm)")),
        }
    }
}
