//! End-to-end tests: what they need, the real binary on a leash, containers of real engines.

pub use super::skip::skip;
use super::{docker, has_image, image, podman, rootless, top, unique};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The calibration weight.
pub const REFERENCE_IMAGE: &str = "plimsoll/reference-engine:dev";

/// The calibration weight with a shell in it; made when it is needed.
const SHELL_IMAGE: &str = "plimsoll/test-reference-with-shell:dev";

/// The release of the real vLLM that the tests are for, where it is not that of containers/vllm-cpu: of its image's tag
/// (`VLLM_VERSION=0.19.1 scripts/build-images vllm-cpu`).
pub fn older_vllm() -> Option<&'static str> {
    static OLDER: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let named = || std::env::var("PLIMSOLL_TEST_VLLM_VERSION").ok();
    OLDER.get_or_init(named).as_deref()
}

/// The real vLLM on CPU.
pub fn vllm_image() -> &'static str {
    static IMAGE: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    IMAGE.get_or_init(|| format!("plimsoll/vllm-cpu:{}", older_vllm().unwrap_or("dev")))
}

/// The real llama.cpp on CPU.
pub const LLAMA_CPP_IMAGE: &str = "plimsoll/llama-cpp:dev";

/// So long a test waits for what must come, on a machine that does other things too: half of what .config/nextest.toml
/// gives a test, so that the message of a wait in vain is printed.
pub const PATIENCE: Duration = Duration::from_secs(match env!("CARGO_CRATE_NAME").as_bytes() {
    b"engines" => 600,
    _ => 300,
});

/// What a test cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A Docker daemon and a busybox image.
    Docker,
    /// [`REFERENCE_IMAGE`].
    ReferenceEngine,
    /// [`vllm_image`] and its tiny model.
    Vllm,
    /// [`LLAMA_CPP_IMAGE`].
    LlamaCpp,
    /// The real `jq`.
    Jq,
    /// To be root and able to become somebody else. Nobody can demand that of a machine.
    Root,
    /// To look into the processes of containers and to end them from the host: to be root, or the user of a rootless daemon.
    /// A user in the group docker can neither.
    OwnsProcesses,
    /// What a Docker daemon of the test's own takes: to be root, its program, and `ip`.
    OwnDaemon,
    /// Podman, and to be root: the test has a service and a store of its own.
    Podman,
    /// Slurm's daemons and munge's, and to be root: scripts/slurm/local-cluster starts them.
    Slurm,
    /// OpenSSH's server and client.
    Sshd,
    /// A browser for the page of a report.
    Chromium,
    /// Prometheus and its promtool.
    Prometheus,
    /// libfaketime, and to be loaded before glibc's own clock.
    Faketime,
    /// A host that swaps.
    Swap,
}

impl Need {
    /// Its word in `PLIMSOLL_REQUIRE`.
    fn word(self) -> &'static str {
        match self {
            Need::Docker => "docker",
            Need::ReferenceEngine => "reference-engine",
            Need::Vllm => "vllm",
            Need::LlamaCpp => "llama-cpp",
            Need::Jq => "jq",
            Need::Root => "root",
            Need::OwnsProcesses => "owns-processes",
            Need::OwnDaemon => "own-daemon",
            Need::Podman => "podman",
            Need::Slurm => "slurm",
            Need::Sshd => "sshd",
            Need::Chromium => "chromium",
            Need::Faketime => "faketime",
            Need::Prometheus => "prometheus",
            Need::Swap => "swap",
        }
    }

    fn lack(self) -> Option<String> {
        match self {
            Need::Docker => image().err(),
            Need::ReferenceEngine => image_lack(REFERENCE_IMAGE, "reference-engine"),
            Need::Vllm if !wanted() => Some(
                "takes minutes: asked for by PLIMSOLL_TEST_VLLM=1 (scripts/test --with-vllm)"
                    .into(),
            ),
            Need::Vllm => image_lack(vllm_image(), "vllm-cpu").or_else(|| {
                let model = models().join("tiny-llama/config.json");
                (!model.exists()).then(|| {
                    format!(
                        "no model: there is no {}; scripts/build-images model makes it",
                        model.display()
                    )
                })
            }),
            Need::LlamaCpp => image_lack(LLAMA_CPP_IMAGE, "llama-cpp"),
            Need::Jq => Command::new("jq")
                .arg("--version")
                .output()
                .err()
                .map(|e| format!("no jq: {e}")),
            Need::Root => (!rustix::process::getuid().is_root()).then(|| "not root".into()),
            Need::OwnsProcesses => {
                let host = std::env::var("DOCKER_HOST").unwrap_or_default();
                let rootless = host.contains("/run/user/");
                (Need::Root.lack()).filter(|_| !rootless)
            }
            Need::OwnDaemon => (Need::Root.lack())
                .or_else(|| lacking(&["dockerd", "ip"], "docker.io and iproute2")),
            Need::Podman => Need::Root
                .lack()
                .or_else(|| lacking(&["podman", "catatonit"], "podman and catatonit")),
            Need::Slurm => Need::Root.lack().or_else(|| {
                let daemons = ["sbatch", "slurmctld", "slurmd", "munged"];
                lacking(&daemons, "slurm-wlm and munge")
            }),
            Need::Sshd => lacking(&["sshd", "ssh", "ssh-keygen"], "openssh-server"),
            Need::Chromium => lacking(&["chromium"], "chromium"),
            Need::Prometheus => lacking(&["prometheus", "promtool"], "prometheus"),
            Need::Faketime => (faketime().is_none())
                .then(|| "no libfaketimeMT.so.1 (Debian: faketime)".to_owned()),
            Need::Swap => (std::fs::read_to_string("/proc/swaps").unwrap_or_default())
                .lines()
                .nth(1)
                .is_none()
                .then(|| "nothing is swapped to here (/proc/swaps)".to_owned()),
        }
    }
}

/// Whether the slow tests with the real engine are asked for.
fn wanted() -> bool {
    let set = |name: &str| std::env::var(name).unwrap_or_default();
    !matches!(set("PLIMSOLL_TEST_VLLM").as_str(), "" | "0")
        || set("PLIMSOLL_REQUIRE")
            .split(',')
            .any(|w| w.trim() == "vllm")
}

/// Where a program is, daemons' folders included: they are in the PATH of a login only.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// The library that gives a program another wall clock.
pub fn faketime() -> Option<PathBuf> {
    let place = format!("/usr/lib/{}-linux-gnu/faketime", std::env::consts::ARCH);
    [PathBuf::from(place), "/usr/lib64/faketime".into()]
        .into_iter()
        .map(|folder| folder.join("libfaketimeMT.so.1"))
        .find(|file| file.is_file())
}

fn lacking(programs: &[&str], packages: &str) -> Option<String> {
    let absent = programs.iter().find(|name| program(name).is_none())?;
    Some(format!("no {absent} (Debian: {packages})"))
}

fn image_lack(image: &str, script: &str) -> Option<String> {
    if let Err(e) = docker(&["version", "--format", "{{.Server.Version}}"]) {
        return Some(format!("no Docker daemon: {e}"));
    }
    (!has_image(image)).then(|| format!("no image {image}: scripts/build-images {script} makes it"))
}

/// Whether everything is here; says what is not, and fails where `PLIMSOLL_REQUIRE` names it.
pub fn have(test: &str, needs: &[Need]) -> bool {
    let required = std::env::var("PLIMSOLL_REQUIRE").unwrap_or_default();
    for need in needs {
        if let Some(reason) = need.lack() {
            assert!(
                !required.split(',').any(|w| w.trim() == need.word()),
                "{test} needs what PLIMSOLL_REQUIRE demands: {reason}"
            );
            skip(test, &reason);
            return false;
        }
    }
    true
}

/// The name of the test that it is in, as the test harness has it: the path without the binary.
#[allow(unused_macros)] // not by every test binary that has this module
macro_rules! test_name {
    () => {{
        fn here() {}
        let path = std::any::type_name_of_val(&here);
        let test = path.split_once("::").map_or(path, |(_binary, test)| test);
        test.trim_end_matches("::here")
            .trim_end_matches("::{{closure}}")
    }};
}

/// [`SHELL_IMAGE`], up to date. Docker's own cache makes that quick.
pub fn shell_image() -> &'static str {
    static MADE: std::sync::OnceLock<()> = std::sync::OnceLock::new();
    MADE.get_or_init(|| {
        // Podman may not be able to run a step of a build where it is run by the tests; it is copied.
        if podman() && has_image(SHELL_IMAGE) {
            return;
        }
        let dir = tempfile::tempdir().expect("tempdir");
        let busybox = image().expect("busybox");
        let file = format!(
            "FROM {REFERENCE_IMAGE}\nCOPY --from={busybox} /bin/busybox /bin/busybox\nCOPY --from={busybox} /bin/sh /bin/sh\n\
             RUN [\"/bin/busybox\", \"mkdir\", \"/tmp\"]\nRUN [\"/bin/busybox\", \"--install\", \"/bin\"]\n"
        );
        std::fs::write(dir.path().join("Dockerfile"), file).expect("Dockerfile");
        docker(&["build", "-q", "-t", SHELL_IMAGE, &dir.path().to_string_lossy()]).expect("image");
    });
    SHELL_IMAGE
}

/// Ends the test where something that it needs is not here.
#[allow(unused_macros)] // not by every test binary that has this module
macro_rules! needs {
    ($($need:ident),+) => {
        if !$crate::common::e2e::have(test_name!(), &[$($crate::common::e2e::Need::$need),+]) {
            return;
        }
    };
}

/// Where the tiny model lies, on this machine.
pub fn models() -> PathBuf {
    let cache = std::env::var_os("PLIMSOLL_CACHE").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    cache
        .or_else(|| home.map(|h| h.join(".cache/plimsoll")))
        .unwrap_or_default()
        .join("models")
}

/// Polls until `look` gives something.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            begin.elapsed() < PATIENCE,
            "waited {PATIENCE:?} in vain for: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `plimsoll`, with nothing of this shell's settings that would change what it does.
pub fn plimsoll(args: &[&str]) -> Command {
    command(Path::new(env!("CARGO_BIN_EXE_plimsoll")), args)
}

/// The same from another place.
pub fn command(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("PLIMSOLL_") || name.starts_with("HF_") || name == "NO_COLOR" {
            command.env_remove(&*name);
        }
    }
    command
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Fails with all that was said unless it ended so.
    #[track_caller]
    pub fn expect(self, code: i32) -> Ended {
        assert_eq!(
            self.code(),
            code,
            "exit code\n--- stdout\n{}\n--- stderr\n{}",
            self.stdout,
            self.stderr
        );
        assert!(
            !self.stderr.contains("panicked") && !self.stderr.contains("bug in plimsoll"),
            "{}",
            self.stderr
        );
        self
    }

    /// What stands behind `error:`. There is exactly one.
    #[track_caller]
    pub fn error(&self) -> &str {
        let errors: Vec<&str> = self
            .stderr
            .lines()
            .filter_map(|l| l.strip_prefix("error: "))
            .collect();
        assert_eq!(errors.len(), 1, "one sentence:\n{}", self.stderr);
        errors[0]
    }

    /// The advice.
    pub fn hints(&self) -> Vec<&str> {
        self.stderr
            .lines()
            .filter_map(|l| l.strip_prefix("hint: "))
            .collect()
    }

    /// The error and one of the hints say all of this.
    #[track_caller]
    pub fn says(self, error: &[&str], hint: &str) -> Ended {
        let said = self.error();
        for part in error {
            assert!(
                said.contains(part),
                "`{part}` is not in the error:\n{}",
                self.stderr
            );
        }
        assert!(
            self.hints().iter().any(|h| h.contains(hint)),
            "no hint says `{hint}`:\n{}",
            self.stderr
        );
        self
    }
}

/// A run of the binary that can be watched and signalled; killed when dropped.
pub struct Live {
    child: Child,
    stdout: Option<std::thread::JoinHandle<String>>,
    stderr: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Live {
    /// Sends a signal when it has run for so long, unless it has ended by itself.
    pub fn signal_after(&mut self, life: Duration, signal: rustix::process::Signal) {
        let begin = Instant::now();
        // The moment is what is tested: nothing is waited for.
        while let Some(left) = life.checked_sub(begin.elapsed()) {
            if !self.is_running() {
                break;
            }
            std::thread::sleep(left.min(Duration::from_millis(5)));
        }
        if self.is_running() {
            self.signal(signal);
        }
    }

    pub fn start(mut command: Command) -> Live {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("plimsoll starts");
        let mut out = child.stdout.take().expect("stdout");
        let err = child.stderr.take().expect("stderr");
        let stderr = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&stderr);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                let mut all = into.lock().expect("stderr");
                all.push_str(&line);
                all.push('\n');
            }
        });
        let stdout = std::thread::spawn(move || {
            let mut all = Vec::new();
            let _ = out.read_to_end(&mut all);
            String::from_utf8_lossy(&all).into_owned()
        });
        Live {
            child,
            stdout: Some(stdout),
            stderr,
            reader: Some(reader),
        }
    }

    /// What it said so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().expect("stderr").clone()
    }

    /// Waits until stderr has `text`.
    #[track_caller]
    pub fn until(&mut self, text: &str) {
        let begin = Instant::now();
        while !self.stderr().contains(text) {
            if let Some(status) = self.child.try_wait().expect("wait") {
                // The last lines may still be on their way.
                std::thread::sleep(Duration::from_millis(100));
                let said = self.stderr();
                assert!(
                    said.contains(text),
                    "ended ({status}) without `{text}`:\n{said}"
                );
                return;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "no `{text}` came:\n{}",
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("pid"), signal).expect("signal");
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        let begin = Instant::now();
        let status = loop {
            match self.child.try_wait().expect("wait") {
                Some(status) => break status,
                None if begin.elapsed() > PATIENCE => panic!("it does not end:\n{}", self.stderr()),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let stdout = self
            .stdout
            .take()
            .map(|t| t.join().expect("stdout"))
            .unwrap_or_default();
        if let Some(reader) = self.reader.take() {
            reader.join().expect("stderr");
        }
        Ended {
            status,
            stdout,
            stderr: self.stderr(),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs it to its end.
#[track_caller]
pub fn run(args: &[&str]) -> Ended {
    Live::start(plimsoll(args)).end()
}

/// A container of any image, created by the test; removed when dropped, also by a panic.
pub struct Engine {
    pub id: String,
    pub name: String,
    /// Whether a file can be removed in it.
    shell: bool,
}

impl Engine {
    /// `docker run -d OPTIONS IMAGE ARGS`.
    pub fn run(what: &str, options: &[&str], image: &str, args: &[&str]) -> Engine {
        Engine::with("run", what, options, image, args)
    }

    /// `docker create OPTIONS IMAGE ARGS`.
    pub fn create(what: &str, options: &[&str], image: &str, args: &[&str]) -> Engine {
        Engine::with("create", what, options, image, args)
    }

    fn with(verb: &str, what: &str, options: &[&str], image: &str, args: &[&str]) -> Engine {
        let name = unique(what);
        let mut argv = vec![verb];
        if verb == "run" {
            argv.push("-d");
        }
        argv.extend([
            "--name",
            &name,
            "--label",
            "plimsoll.test=1",
            "--stop-timeout",
            "1",
        ]);
        argv.extend(options);
        if args.first() == Some(&"serve")
            && !options.iter().any(|o| o.contains("net"))
            && rootless()
        {
            argv.extend(["-p", "127.0.0.1::8000"]);
        }
        argv.push(image);
        argv.extend(args);
        let id = docker(&argv).expect("test container");
        Engine {
            id,
            name,
            shell: image == SHELL_IMAGE,
        }
    }

    /// The reference engine, waiting for benches.
    pub fn idle(what: &str) -> Engine {
        Engine::run(what, &[], REFERENCE_IMAGE, &["idle"])
    }

    /// The same, in an image that has a shell besides.
    pub fn idle_with_shell(what: &str, options: &[&str]) -> Engine {
        Engine::run(what, options, shell_image(), &["idle"])
    }

    /// The reference engine, serving; waits until it does.
    pub fn serving(what: &str, options: &[&str], args: &[&str]) -> Engine {
        let mut argv = vec!["serve", "--model", "reference/test"];
        argv.extend(args);
        let server = Engine::run(what, options, REFERENCE_IMAGE, &argv);
        server.wait_for_log("phase=ready");
        server
    }

    pub fn log(&self) -> String {
        let out = Command::new("docker")
            .args(["logs", &self.id])
            .output()
            .expect("docker logs");
        format!(
            "{}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        )
    }

    pub fn wait_for_log(&self, text: &str) {
        wait_for(&format!("`{text}` in the log of {}", self.name), || {
            if self.log().contains(text) {
                return Some(());
            }
            let state = docker(&["inspect", "-f", "{{.State.Status}}", &self.id]);
            assert_eq!(state.as_deref(), Ok("running"), "{}", self.log());
            None
        });
    }

    /// Its address on Docker's network.
    pub fn address(&self) -> String {
        docker(&[
            "inspect",
            "-f",
            "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}",
            &self.id,
        ])
        .expect("address")
    }

    /// Command lines of its processes, sorted; defunct ones, which only wait to be reaped, left out.
    /// A process that the container's runtime has still to become its command is waited for.
    pub fn processes(&self) -> Vec<String> {
        wait_for(&format!("the commands of {}", self.name), || {
            let listed = self.listed();
            // Between one program and the next it has only a name, which is shown in brackets.
            let becoming = |p: &String| p == "runc init" || p.starts_with('[');
            (!listed.iter().any(becoming)).then_some(listed)
        })
    }

    fn listed(&self) -> Vec<String> {
        let mut processes: Vec<String> = top(&self.id)
            .into_iter()
            .map(|(_, args)| args)
            .filter(|args| !args.contains("<defunct>"))
            .collect();
        processes.sort();
        processes
    }

    /// Waits until a process with `part` in its command line runs in it.
    pub fn wait_for_process(&self, part: &str) {
        wait_for(&format!("a process `{part}` in {}", self.name), || {
            self.processes()
                .iter()
                .any(|p| p.contains(part))
                .then_some(())
        });
    }

    /// What plimsoll put into its /tmp and left there, though it could have been removed.
    pub fn leftovers(&self) -> Vec<String> {
        if !self.shell {
            return Vec::new();
        }
        let list = docker(&["exec", &self.id, "sh", "-c", "ls /tmp"]).expect("ls");
        list.lines()
            .filter(|n| n.starts_with("plimsoll"))
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = docker(&["rm", "-f", "-v", &self.id]);
    }
}

/// A results directory of the test's own.
pub struct Results(pub tempfile::TempDir);

impl Results {
    pub fn new() -> Results {
        Results(tempfile::tempdir().expect("tempdir"))
    }

    pub fn arg(&self) -> String {
        format!("--results-dir={}", self.0.path().display())
    }

    fn entries(&self, ending: &str) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = std::fs::read_dir(self.0.path().join("memory-profiles"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path())
            .filter(|p| p.extension().is_some_and(|e| e == ending))
            .collect();
        found.sort();
        found
    }

    /// Every profile in it, oldest first.
    pub fn profiles(&self) -> Vec<PathBuf> {
        self.entries("json")
    }

    /// Every capture in it.
    pub fn captures(&self) -> Vec<PathBuf> {
        self.entries("capture")
    }

    /// Path of its one profile, which lies beside its one whole capture.
    #[track_caller]
    pub fn profile(&self) -> PathBuf {
        let (profiles, captures) = (self.profiles(), self.captures());
        assert_eq!(
            (profiles.len(), captures.len()),
            (1, 1),
            "{profiles:?} {captures:?}"
        );
        assert_eq!(profiles[0].with_extension("capture"), captures[0]);
        for file in ["capture.json", "samples.jsonl", "log.txt"] {
            assert!(captures[0].join(file).is_file(), "{file}");
        }
        profiles[0].clone()
    }

    /// Its one profile.
    #[track_caller]
    pub fn document(&self) -> serde_json::Value {
        read(&self.profile())
    }

    /// Nothing was left, not even an empty capture.
    #[track_caller]
    pub fn is_empty(&self) {
        assert_eq!((self.profiles(), self.captures()), (vec![], vec![]));
    }
}

/// A profile document.
#[track_caller]
pub fn read(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).expect("profile")).expect("JSON")
}

/// All that lies under a folder, as one text to search.
pub fn everything_in(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        all.push_str(&format!("\n=== {}\n", path.display()));
        if path.is_dir() {
            all.push_str(&everything_in(&path));
        } else {
            all.push_str(&String::from_utf8_lossy(
                &std::fs::read(&path).unwrap_or_default(),
            ));
        }
    }
    all
}

/// Codes of a document's findings.
pub fn codes(document: &serde_json::Value) -> Vec<&str> {
    let findings = document["findings"].as_array();
    findings
        .into_iter()
        .flatten()
        .filter_map(|f| f["code"].as_str())
        .collect()
}

/// The parts of every device's peak sum to it, and those of all devices to the total.
#[track_caller]
pub fn parts_sum_to_the_peak(document: &serde_json::Value) {
    let breakdown = &document["memory_breakdown"];
    let sum = |parts: &serde_json::Value| -> i64 {
        let parts = parts.as_array().expect("parts");
        parts
            .iter()
            .map(|p| p["bytes"].as_i64().expect("bytes"))
            .sum()
    };
    assert_eq!(
        Some(sum(&breakdown["components"])),
        breakdown["total_measured_bytes"].as_i64(),
        "{breakdown:#}"
    );
    let devices = breakdown["per_gpu"].as_array().expect("per_gpu");
    assert!(!devices.is_empty());
    for device in devices {
        assert_eq!(
            Some(sum(&device["parts"])),
            device["peak_bytes"].as_i64(),
            "{device:#}"
        );
    }
    let gb = |key: &str| breakdown[key].as_f64().unwrap_or(0.0);
    let named = gb("baseline_gb")
        + gb("model_weights_gb")
        + gb("kv_cache_gb")
        + gb("activations_gb")
        + gb("framework_overhead_gb");
    assert!(
        (named - gb("total_measured_gb")).abs() < 1e-9,
        "{breakdown:#}"
    );
}
