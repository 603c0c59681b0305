//! What is handed to others: the Debian package, the image, the action and the workflows.

use crate::common;
use common::docker;
use common::e2e::{Engine, Results, program, run};
use common::skip::skip;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const IMAGE: &str = "plimsoll/plimsoll:dev";
const DEBIAN: &str = "debian:bookworm-slim";
const BINARY: &str = env!("CARGO_BIN_EXE_plimsoll");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn script(name: &str) -> Command {
    let mut command = Command::new(root().join("scripts").join(name));
    command.stdin(Stdio::null());
    command
}

#[track_caller]
fn well(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// Packs this test's binary, with little compression.
fn packed(kind: &str, dir: &Path) -> PathBuf {
    let output = script("package")
        .args(["--quick", "--binary", BINARY, "--out"])
        .arg(dir)
        .arg(kind)
        .output()
        .expect("scripts/package");
    PathBuf::from(well(&output).trim())
}

/// What the host needs for a Debian package.
fn lacks_dpkg(test: &str) -> bool {
    let absent = ["dpkg-deb", "dpkg-shlibdeps", "strip"]
        .into_iter()
        .find(|p| program(p).is_none());
    if let Some(name) = absent {
        skip(test, &format!("no {name} (Debian: dpkg-dev)"));
    }
    absent.is_some()
}

/// Every file of Rust below tests/.
fn test_sources(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).expect("tests").flatten();
    let texts = entries.map(|entry| match entry.path() {
        folder if folder.is_dir() => test_sources(&folder),
        file if file.extension().is_some_and(|e| e == "rs") => {
            std::fs::read_to_string(file).expect("source")
        }
        _ => String::new(),
    });
    texts.collect()
}

/// A fresh machine skips no test for want of a package: whatever a test's reason names, `scripts/test` installs.
#[test]
fn scripts_test_installs_every_package_that_a_test_asks_for() {
    let missing = "source scripts/machine.sh; has() { return 1; }; missing_packages test";
    let output = Command::new("bash")
        .args(["-c", missing])
        .current_dir(root())
        .output();
    let listed = well(&output.expect("bash"));
    let installed: Vec<&str> = (listed.lines())
        .filter_map(|line| line.split('|').next())
        .flat_map(str::split_whitespace)
        .collect();
    let reason = regex::Regex::new(
        r#"\(Debian: ([a-z][^){]*)\)|lacking\(&[^"]*(?:"[^"]*",? ?)*[^"]*, "([a-z][^"]*)"\)"#,
    );
    let mut asked = 0;
    for found in reason
        .expect("regex")
        .captures_iter(&test_sources(&root().join("tests")))
    {
        let packages = found.get(1).or(found.get(2)).map_or("", |m| m.as_str());
        for package in packages.split_whitespace().filter(|word| *word != "and") {
            asked += 1;
            // The daemon has a function of its own, need_docker.
            let known = package == "docker.io" || installed.contains(&package);
            assert!(
                known,
                "scripts/machine.sh does not install {package}: {installed:?}"
            );
        }
    }
    assert!(asked >= 10, "only {asked} packages were found in the tests");
}

#[test]
fn the_debian_package_holds_all_and_says_what_it_needs() {
    if lacks_dpkg(test_name!()) {
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let deb = packed("deb", dir.path());
    let ask = |args: &[&str]| {
        let output = Command::new("dpkg-deb").args(args).arg(&deb).output();
        well(&output.expect("dpkg-deb"))
    };
    let files = ask(&["--contents"]);
    for file in [
        "./usr/bin/plimsoll",
        "./usr/share/man/man1/plimsoll.1.gz",
        "./usr/share/man/man1/plimsoll-loadline.1.gz",
        "./usr/share/bash-completion/completions/plimsoll",
        "./usr/share/zsh/vendor-completions/_plimsoll",
        "./usr/share/fish/vendor_completions.d/plimsoll.fish",
        "./usr/share/doc/plimsoll/copyright",
        "./usr/lib/systemd/system/plimsoll-clean.service",
        "./usr/lib/systemd/system/plimsoll-watch.service",
    ] {
        let listed = files.lines().find(|l| l.ends_with(file));
        let listed = listed.unwrap_or_else(|| panic!("{file} is not in:\n{files}"));
        assert!(listed.contains("root/root"), "{listed}");
    }
    let control = ask(&["--field"]);
    let depends = control
        .lines()
        .find_map(|l| l.strip_prefix("Depends: "))
        .unwrap_or_else(|| panic!("{control}"));
    assert!(depends.contains("libc6 (>= 2."), "{depends}");
    assert!(control.contains("\nRecommends: docker.io | docker-ce | podman\n"));
    assert!(control.contains(&format!("\nVersion: {}-1\n", env!("CARGO_PKG_VERSION"))));

    let into = dir.path().join("root");
    well(
        &Command::new("dpkg-deb")
            .arg("-x")
            .args([&deb, &into])
            .output()
            .expect("dpkg-deb"),
    );
    // They change nothing, and start what the package installed.
    for (unit, command) in [
        ("clean", "clean --watch"),
        ("watch", "watch --listen 127.0.0.1:9400"),
    ] {
        let path = format!("usr/lib/systemd/system/plimsoll-{unit}.service");
        let unit = std::fs::read_to_string(into.join(path)).expect("unit");
        let start = format!("\nExecStart=/usr/bin/plimsoll {command}\n");
        assert!(unit.contains(&start), "{unit}");
    }

    if program("lintian").is_none() {
        skip(test_name!(), "the package is not checked: no lintian");
        return;
    }
    let lintian = Command::new("lintian")
        .args(["--fail-on", "error", "--allow-root"])
        .arg(&deb)
        .output();
    well(&lintian.expect("lintian"));
}

/// What these steps print in a Debian that has nothing of ours and no network; the folder is its /made.
#[track_caller]
fn tried_in_bare_debian(folder: &Path, steps: &str) -> String {
    let mount = format!("{}:/made:ro", folder.display());
    let mut args = vec![
        "run",
        "--rm",
        "--label",
        "plimsoll.test=1",
        "--network=none",
    ];
    args.extend(["-v", &mount, DEBIAN, "bash", "-c", steps]);
    docker(&args).expect("the steps end well")
}

/// What somebody tries first who has just installed it.
#[track_caller]
fn is_a_first_try(said: &str) {
    let version = concat!("plimsoll ", env!("CARGO_PKG_VERSION"));
    assert!(said.starts_with(version), "{said}");
    assert!(said.contains("$ plimsoll estimate"), "{said}");
}

#[test]
fn the_archive_runs_where_it_is_unpacked() {
    needs!(Docker);
    if !common::has_image(DEBIAN) {
        skip(test_name!(), "no image debian:bookworm-slim");
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    packed("tar", dir.path());
    let said = tried_in_bare_debian(
        dir.path(),
        "set -e; cd /tmp; tar -xzf /made/*.tar.gz; cd plimsoll-*/; ./plimsoll --version; ./plimsoll demo",
    );
    is_a_first_try(&said);
}

/// Installed by pip without an index. The wheel has no Python in it, so that its program runs where there is none.
#[test]
fn the_wheel_installs_without_an_index() {
    needs!(Docker);
    let absent = ["maturin", "pip"]
        .into_iter()
        .find(|p| program(p).is_none());
    if let Some(name) = absent {
        skip(test_name!(), &format!("no {name}"));
        return;
    }
    if !common::has_image(DEBIAN) {
        skip(test_name!(), "no image debian:bookworm-slim");
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let wheel = packed("wheel", dir.path());
    let mut pip = Command::new("pip");
    pip.args(["install", "--quiet", "--no-index", "--no-deps", "--target"]);
    let installed = pip.arg(dir.path().join("installed")).arg(wheel).output();
    well(&installed.expect("pip"));
    let steps =
        "set -e; cd /tmp; PATH=/made/installed/bin:$PATH; plimsoll --version; plimsoll demo";
    is_a_first_try(&tried_in_bare_debian(dir.path(), steps));
}

#[test]
fn the_debian_package_installs_works_and_leaves_nothing() {
    needs!(Docker);
    if lacks_dpkg(test_name!()) {
        return;
    }
    if !common::has_image(DEBIAN) {
        skip(test_name!(), "no image debian:bookworm-slim");
        return;
    }
    const STEPS: &str = r#"
set -e
list() { find / -xdev \( -path /proc -o -path /sys -o -path /made -o -path /tmp -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \) -prune -o -print | sort; }
list > /tmp/before
dpkg --install /made/*.deb
plimsoll --version
plimsoll demo --results-dir /tmp/tour > /dev/null
plimsoll doctor || echo "doctor ended with $?"
dpkg --verify plimsoll
dpkg --purge plimsoll
list > /tmp/after
diff /tmp/before /tmp/after && echo nothing left
"#;
    let dir = tempfile::tempdir().expect("tempdir");
    packed("deb", dir.path());
    let said = tried_in_bare_debian(dir.path(), STEPS);
    assert!(
        said.contains(concat!("plimsoll ", env!("CARGO_PKG_VERSION"))),
        "{said}"
    );
    // Without a daemon that is what it has to say.
    assert!(
        said.contains("Docker") && said.contains("doctor ended with 3"),
        "{said}"
    );
    assert!(said.ends_with("nothing left"), "{said}");
}

/// Makes the image from this test's binary; whether that can be done here.
fn image(test: &str) -> bool {
    if !common::has_image(DEBIAN) {
        skip(test, "no image debian:bookworm-slim");
        return false;
    }
    let spoken_to = std::env::var("DOCKER_HOST").unwrap_or_default();
    if !Path::new("/var/run/docker.sock").exists()
        || !(spoken_to.is_empty() || spoken_to.ends_with("/run/docker.sock"))
    {
        skip(test, "the daemon does not listen at /var/run/docker.sock");
        return false;
    }
    let built = script("build-images").args(["plimsoll", BINARY]).output();
    well(&built.expect("scripts/build-images"));
    true
}

#[test]
fn in_its_image_the_first_try_works() {
    needs!(Docker);
    if !image(test_name!()) {
        return;
    }
    let run = [
        "run",
        "--rm",
        "--label",
        "plimsoll.test=1",
        "--network=none",
        IMAGE,
    ];
    let version = docker(&[&run[..], &["--version"]].concat()).expect("version");
    let tour = docker(&[&run[..], &["demo"]].concat()).expect("demo");
    is_a_first_try(&format!("{version}\n{tour}"));
}

/// `docker run` of the image, with what docs/INSTALL.md says and some more.
fn contained(results: &Path, flags: &[&str], args: &[&str]) -> Output {
    let mut command = Command::new("docker");
    command
        .args(["run", "--rm", "--label", "plimsoll.test=1"])
        .args(["-v", "/var/run/docker.sock:/var/run/docker.sock"])
        .args(["-v", "/sys/fs/cgroup:/sys/fs/cgroup:ro"])
        .arg("-v")
        .arg(format!("{}:/results", results.display()))
        .args(flags)
        .arg(IMAGE)
        .args(args);
    command.output().expect("docker")
}

const MIB: f64 = 1024.0 * 1024.0;

/// Bytes of a part of the peak, in MiB; `None` where it is not known.
fn part(document: &Value, component: &str) -> Option<f64> {
    let parts = document["memory_breakdown"]["components"].as_array()?;
    let part = parts.iter().find(|p| p["component"] == component)?;
    Some(part["bytes"].as_f64()? / MIB)
}

/// In a container that sees the host's processes and cgroups, plimsoll measures what it measures on the host.
#[test]
fn in_its_image_it_measures_a_neighbour_as_from_the_host() {
    needs!(Docker, ReferenceEngine);
    if !image(test_name!()) {
        return;
    }
    // Idle: the bench loads the engine, so that every part is known. One engine for each: the kernel's mark stays.
    let truth =
        "--extra-engine-args=--weights 96MiB --kv-pool 64MiB --activation 32MiB --activation-ms 30";
    let settings = [
        "--model=reference/calibration-weight",
        truth,
        "--baseline=200ms",
        "--json",
        "--quiet",
    ];
    let (near, far) = (Engine::idle("image-host"), Engine::idle("image-inside"));
    let results = Results::new();
    let results = results.arg();
    let mut args = vec!["profile", near.name.as_str(), results.as_str()];
    args.extend(settings);
    let host = run(&args).expect(0).stdout;

    let dir = tempfile::tempdir().expect("tempdir");
    let mut args = vec!["profile", far.name.as_str()];
    args.extend(settings);
    let output = contained(dir.path(), &["--pid=host", "--cgroupns=host"], &args);
    let inside = well(&output);
    for (from, document) in [("the host", host), ("a container", inside)] {
        let document: Value = serde_json::from_str(&document).expect("JSON");
        let peak = &document["memory_measurements"]["peak"];
        let bytes = peak["total_bytes"].as_f64().expect("peak");
        // The kernel counts it, however late a busy machine wakes who samples.
        assert!(
            (bytes / MIB - 192.0).abs() <= 12.0,
            "192 MiB true, {:.2} MiB from {from}: {peak:#}",
            bytes / MIB
        );
        assert_eq!(
            peak["per_gpu_details"][0]["source"], "kernel_peak",
            "{from}"
        );
        for component in ["model_weights", "kv_cache", "activations"] {
            let known = part(&document, component).is_some_and(|mib| mib > 0.0);
            assert!(
                known,
                "{component} from {from}: {:#}",
                document["memory_breakdown"]
            );
        }
    }
    // The results are outside.
    assert!(dir.path().join("memory-profiles").is_dir());
}

/// Without its flags it says which it lacks, and gives no figure that is somebody else's.
#[test]
fn in_its_image_it_says_what_it_cannot_see() {
    needs!(Docker, ReferenceEngine);
    if !image(test_name!()) {
        return;
    }
    let engine = Engine::serving("image-bare", &[], &["--weights=96MiB", "--kv-pool=64MiB"]);
    let dir = tempfile::tempdir().expect("tempdir");
    let output = Command::new("docker")
        .args(["run", "--rm", "--label", "plimsoll.test=1"])
        .args(["-v", "/var/run/docker.sock:/var/run/docker.sock", "-v"])
        .arg(format!("{}:/results", dir.path().display()))
        .args([IMAGE, "profile", &engine.name])
        .args(["--baseline=200ms", "--num-prompts=16"])
        .output()
        .expect("docker");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("--pid=host"), "{said}");
    assert!(said.contains("/sys/fs/cgroup"), "{said}");

    // The doctor says so before anybody tries.
    let output = Command::new("docker")
        .args(["run", "--rm", "--label", "plimsoll.test=1"])
        .args(["-v", "/var/run/docker.sock:/var/run/docker.sock"])
        .args([IMAGE, "doctor", "--json"])
        .output()
        .expect("docker");
    let checks: Value = serde_json::from_str(&well(&output)).expect("JSON");
    let checks = checks["checks"].as_array().expect("checks");
    let memory = checks.iter().find(|c| c["name"] == "container memory");
    let memory = memory.unwrap_or_else(|| panic!("{checks:#?}"));
    assert_eq!(memory["ok"], false, "{memory}");
    assert!(
        memory["hint"]
            .as_str()
            .is_some_and(|h| h.contains("--pid=host")),
        "{memory}"
    );
}

/// Results are their owner's when the container runs as the user.
#[test]
fn in_its_image_it_can_run_as_anybody() {
    needs!(Docker, ReferenceEngine, Root);
    if !image(test_name!()) {
        return;
    }
    use std::os::unix::fs::{MetadataExt, chown};
    let engine = Engine::serving("image-user", &[], &["--weights=64MiB"]);
    let dir = tempfile::tempdir().expect("tempdir");
    chown(dir.path(), Some(4242), Some(4242)).expect("chown");
    let group = std::fs::metadata("/var/run/docker.sock")
        .expect("socket")
        .gid();
    let group = group.to_string();
    let flags = [
        "--pid=host",
        "--cgroupns=host",
        "--user=4242:4242",
        "--group-add",
        &group,
    ];
    let output = contained(
        dir.path(),
        &flags,
        &[
            "profile",
            &engine.name,
            "--baseline=200ms",
            "--num-prompts=16",
            "--output=/results/p.json",
        ],
    );
    well(&output);
    let profile = std::fs::metadata(dir.path().join("p.json")).expect("profile");
    assert_eq!(profile.uid(), 4242);
}

// The action ------------------------------------------------------------------------------------

/// A step of the action as the runner would run it, in a folder of its own.
struct Runner {
    dir: tempfile::TempDir,
}

impl Runner {
    fn new() -> Runner {
        let dir = tempfile::tempdir().expect("tempdir");
        Runner { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn step(&self, step: &str, variables: &[(&str, &str)]) -> Output {
        let mut command = script("action");
        command
            .arg(step)
            .env_remove("GITHUB_STEP_SUMMARY")
            .env("RUNNER_TEMP", self.dir.path())
            .env("GITHUB_OUTPUT", self.at("output"))
            .env("GITHUB_STEP_SUMMARY", self.at("summary"))
            .env("ACTION_REPOSITORY", "somebody/plimsoll")
            .env("PLIMSOLL", BINARY)
            .current_dir(self.dir.path());
        for (name, value) in variables {
            command.env(name, value);
        }
        command.output().expect("scripts/action")
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_default()
    }
}

#[test]
fn the_action_installs_what_the_release_lists_and_nothing_else() {
    if program("curl").is_none() {
        skip(test_name!(), "no curl");
        return;
    }
    let runner = Runner::new();
    let release = runner.at(concat!("releases/v", env!("CARGO_PKG_VERSION")));
    std::fs::create_dir_all(&release).expect("folder");
    let archive = packed("tar", &release);
    let name = archive
        .file_name()
        .expect("name")
        .to_string_lossy()
        .into_owned();
    let sums = Command::new("sha256sum")
        .arg(&name)
        .current_dir(&release)
        .output();
    let sums = well(&sums.expect("sha256sum"));
    std::fs::write(release.join("SHA256SUMS"), &sums).expect("sums");
    let releases = format!("file://{}", runner.at("releases").display());
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let variables = [
        ("PLIMSOLL_RELEASES", releases.as_str()),
        ("ACTION_REF", version),
    ];
    well(&runner.step("install", &variables));
    let binary = runner.read("output");
    let binary = binary.trim().strip_prefix("binary=").expect("binary");
    let said = Command::new(binary)
        .arg("--version")
        .output()
        .expect("runs");
    assert!(well(&said).contains(env!("CARGO_PKG_VERSION")));

    // One byte more in the archive, and it is not used.
    let mut bytes = std::fs::read(&archive).expect("archive");
    bytes.push(0);
    std::fs::write(&archive, bytes).expect("archive");
    std::fs::remove_file(runner.at("output")).expect("output");
    let refused = runner.step("install", &variables);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stdout).contains("SHA256SUMS"));
    assert_eq!(runner.read("output"), "");

    // A branch is no release, and a version is no path.
    for bad in ["main", "../../x", "0.1.0/../y", ""] {
        let refused = runner.step("install", &[("ACTION_REF", bad)]);
        assert_eq!(refused.status.code(), Some(2), "{bad}");
    }
}

#[test]
fn the_action_runs_no_input_as_a_script_and_keeps_the_exit_code() {
    let runner = Runner::new();
    let args = "$(touch pwned)\n`touch pwned`\n; touch pwned\n--json";
    let ended = runner.step(
        "run",
        &[("INPUT_CONTAINER", "$(touch pwned)"), ("INPUT_ARGS", args)],
    );
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(!runner.at("pwned").exists());
    assert!(runner.read("output").contains("exit-code=2\n"));
    for bad in ["profile; touch pwned", "--version", "a b", "$(id)"] {
        let ended = runner.step("run", &[("INPUT_COMMAND", bad)]);
        assert_eq!(ended.status.code(), Some(2), "{bad}");
        assert!(!runner.at("pwned").exists());
    }
}

#[test]
fn the_action_puts_what_it_found_into_the_summary() {
    // A command without a profile: what it prints, and nothing of it is markup.
    let runner = Runner::new();
    let ended = runner.step("run", &[("INPUT_COMMAND", "gpus"), ("INPUT_CONTAINER", "")]);
    well(&ended);
    let summary = runner.read("summary");
    assert!(
        summary.starts_with("### plimsoll gpus\n\n    "),
        "{summary}"
    );
    assert!(runner.read("output").contains("exit-code=0\n"));

    // A profile: its report.
    let runner = Runner::new();
    let results = runner.at("results");
    std::fs::create_dir(&results).expect("results");
    let capture = root().join("results/example/tiny-profile.capture");
    let args = format!(
        "{}\n--output\n{}",
        capture.display(),
        results.join("p.json").display()
    );
    let ended = runner.step(
        "run",
        &[
            ("INPUT_COMMAND", "derive"),
            ("INPUT_ARGS", &args),
            ("INPUT_RESULTS_DIR", &results.to_string_lossy()),
            ("INPUT_TITLE", "A $title `with` marks"),
        ],
    );
    well(&ended);
    let summary = runner.read("summary");
    assert!(
        summary.contains("Model weights") || summary.contains("model weights"),
        "{summary}"
    );
    assert!(results.join("report/report.html").is_file());
    assert!(runner.read("output").contains("report="));
}

// Workflows -------------------------------------------------------------------------------------

fn yaml(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("text");
    serde_yaml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every step in a document, whatever it lies in.
fn steps(of: &Value, found: &mut Vec<Value>) {
    match of {
        Value::Object(map) => {
            for (name, value) in map {
                match (name.as_str(), value) {
                    ("steps", Value::Array(list)) => found.extend(list.iter().cloned()),
                    _ => steps(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|v| steps(v, found)),
        _ => {}
    }
}

#[test]
fn workflows_pin_what_they_use_run_what_exists_and_take_no_text_for_a_script() {
    let folder = root().join(".github/workflows");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("workflows")
        .map(|e| e.expect("entry").path())
        .collect();
    assert!(files.len() >= 2, "{files:?}");
    files.push(root().join("action.yml"));
    let mut scripts = 0;
    for file in files {
        let document = yaml(&file);
        let shown = file.display();
        if file.starts_with(&folder) {
            // Whatever is not said is not allowed.
            assert_eq!(
                document["permissions"],
                serde_json::json!({"contents": "read"}),
                "{shown}"
            );
        }
        let mut all = Vec::new();
        steps(&document, &mut all);
        assert!(!all.is_empty(), "{shown} has no steps");
        for step in all {
            if let Some(uses) = step["uses"].as_str() {
                let (_, at) = uses
                    .split_once('@')
                    .unwrap_or_else(|| panic!("{shown}: {uses}"));
                let pinned = at.len() == 40 && at.bytes().all(|b| b.is_ascii_hexdigit());
                assert!(pinned, "{shown}: {uses} is not pinned to a commit");
                continue;
            }
            let run = step["run"]
                .as_str()
                .unwrap_or_else(|| panic!("{shown}: {step}"));
            // An expression is put in before the shell reads the text.
            assert!(
                !run.contains("${{"),
                "{shown}: an expression in a script:\n{run}"
            );
            let words = run.split(|c: char| c.is_whitespace() || "\"'=".contains(c));
            for word in words {
                let word = word.strip_prefix("$GITHUB_ACTION_PATH/").unwrap_or(word);
                if word.starts_with("scripts/") || word.starts_with(".ci/") {
                    use std::os::unix::fs::PermissionsExt;
                    let meta = std::fs::metadata(root().join(word));
                    let meta = meta.unwrap_or_else(|e| panic!("{shown}: {word}: {e}"));
                    assert!(
                        meta.permissions().mode() & 0o111 != 0,
                        "{word} cannot be run"
                    );
                    scripts += 1;
                }
            }
        }
    }
    assert!(scripts >= 6, "only {scripts} scripts were found");
}
