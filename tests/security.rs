//! What docs/dev/SECURITY.md promises, from end to end: secrets are in no file and no output, files are
//! their owner's alone, and hostile names, logs and replies stay words.

use crate::common;
use crate::common::secrets;
use common::e2e::{Ended, Engine, Live, Results, everything_in};
use common::{docker, image};
use secrets::{API_KEY, Home, IN_LABEL, IN_URL, PASSWORD};
use secrets::{alone, nowhere, open_handed, shapes, tells_nothing};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A container that serves what a vLLM serves, full of secrets, and prints them in every dress.
fn telltale() -> Engine {
    let shapes = shapes();
    let log: Vec<String> = (shapes.iter())
        .flat_map(|s| {
            [
                format!("INFO 11-22 08:00:00 [api_server.py:1] token {s} was read"),
                format!("\\033[32m{s}\\033[0m and {}\\033[1m{}", &s[..8], &s[8..]),
                format!("{{\"a\": \"{{\\\\\"b\\\\\": \\\\\"{s}\\\\\"}}\"}}"),
            ]
        })
        .chain([
            format!("INFO engine: password is {PASSWORD}"),
            "GET /x?password=w9%20pl1msoll%2Fpass%26word HTTP/1.1".replace('%', "%%"),
            "Authorization: Basic dXNlcjp3OSBwbDFtc29sbC9wYXNzJndvcmQ=".to_owned(),
            format!("non-default args: {{'model': 'm', 'api_key': ['{API_KEY}'], 'seed': 0}}"),
            format!("connecting to postgres://me:{IN_URL}@db:5432/x, label {IN_LABEL}"),
            "ERROR 11-22 08:00:00 [engine.py:1] CUDA out of memory".to_owned(),
        ])
        .collect();
    // A line in two writes, with time between: the daemon hands it on in two frames.
    let split = format!(
        "printf 'half of {}'; sleep 0.1; printf '{}\\n'",
        &shapes[0][..12],
        &shapes[0][12..]
    );
    let quoted = |s: &str| s.replace('\'', "'\\''");
    let mut script = String::from("mkdir -p /www/v1; ");
    for line in &log {
        script.push_str(&format!("printf '{}\\n'; ", quoted(line)));
    }
    script.push_str(&split);
    let models = format!(
        r#"{{"object":"list","data":[{{"id":"org/{}","root":"https://me:{IN_URL}@host/m","max_model_len":2048,"x":"{PASSWORD}"}}]}}"#,
        shapes[0]
    );
    let metrics = format!(
        "vllm:num_requests_running{{model_name=\"{}\"}} 1.0\nvllm:cache_config_info{{api_key=\"{API_KEY}\",x=\"{}\"}} 1.0\n",
        shapes[1], shapes[2]
    );
    let info = format!(
        r#"{{"api_key":"{API_KEY}","hf_token":"{}","version":"0.11.0"}}"#,
        shapes[3]
    );
    for (path, text) in [
        ("v1/models", &models),
        ("metrics", &metrics),
        ("get_server_info", &info),
        ("version", &info),
        ("health", &String::new()),
    ] {
        script.push_str(&format!("; printf '%s' '{}' > /www/{path}", quoted(text)));
    }
    script.push_str("; exec busybox httpd -f -p 8000 -h /www");
    let env: Vec<String> = [
        format!("MY_PASSWORD={PASSWORD}"),
        format!("VLLM_API_KEY={API_KEY}"),
        format!("DATABASE_URL=postgres://me:{IN_URL}@db/x"),
        format!("VLLM_NOTE={}", shapes[0]),
        format!("SERVICE_ACCOUNT={}", shapes[8]),
    ]
    .to_vec();
    let mut options: Vec<&str> = env.iter().flat_map(|e| ["-e", e.as_str()]).collect();
    let label = format!("com.example.db-password={IN_LABEL}");
    let note = format!("com.example.note=uses {} and {PASSWORD}", shapes[4]);
    options.extend(["--label", &label, "--label", &note, "-v", "/www"]);
    let key = format!("--hf-token={}", shapes[0]);
    Engine::run(
        "telltale",
        &options,
        &image().unwrap(),
        &[
            "sh",
            "-c",
            &script,
            "vllm",
            "serve",
            "m",
            "--api-key",
            API_KEY,
            &key,
        ],
    )
}

#[test]
fn secrets_are_in_no_file_no_output_and_no_command_line() {
    needs!(Docker);
    let began = now();
    let telltale = telltale();
    telltale.wait_for_log("half of");
    common::e2e::wait_for("the server", || {
        docker(&[
            "exec",
            &telltale.name,
            "busybox",
            "wget",
            "-q",
            "-O",
            "-",
            "http://127.0.0.1:8000/health",
        ])
        .ok()
    });
    assert!(telltale.log().contains(PASSWORD), "it does print them");
    let home = Home::new();
    let results = home.path().join("results");
    let at = format!("--results-dir={}", results.display());
    let name = telltale.name.as_str();
    let look = ["--engine=vllm", "--bench=none"];
    let with = |more: &[&str]| -> Vec<String> {
        let mut all = vec!["profile", name];
        all.extend(look);
        all.extend(more);
        all.iter().map(|s| (*s).to_owned()).collect()
    };
    let mut said: Vec<(String, Ended)> = Vec::new();
    let mut run = |args: &[&str], code: i32| {
        let shown = args.join(" ");
        let ended = home.run(args, code);
        tells_nothing(&format!("the output of `{shown}`"), &ended.stdout);
        tells_nothing(&format!("stderr of `{shown}`"), &ended.stderr);
        said.push((shown, ended));
    };
    let run_words = |run: &mut dyn FnMut(&[&str], i32), words: Vec<String>| {
        run(&words.iter().map(String::as_str).collect::<Vec<_>>(), 0);
    };
    run_words(
        &mut run,
        with(&["--duration=1s", "--baseline=300ms", "-vv", &at]),
    );
    run_words(&mut run, with(&["--dry-run", "-vv", &at]));
    let second = home.path().join("named.json").display().to_string();
    run_words(
        &mut run,
        with(&[
            "--duration=1s",
            "--baseline=300ms",
            "--json",
            "--output",
            &second,
        ]),
    );
    let first = std::fs::read_dir(results.join("memory-profiles"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.extension().is_some_and(|e| e == "json"))
        .expect("a profile")
        .display()
        .to_string();
    let capture = Path::new(&first)
        .with_extension("capture")
        .display()
        .to_string();
    let reports = home.path().join("reports").display().to_string();
    for format in ["html", "md", "txt", "csv", "svg", "png"] {
        run(
            &[
                "report",
                &first,
                &second,
                "--format",
                format,
                "--output",
                &format!("{reports}/"),
            ],
            0,
        );
    }
    let table = home.path().join("table.csv").display().to_string();
    run(&["compare", &first, &second, "--csv", &table], 0);
    run(&["derive", &capture, "--json"], 0);
    run(&["clean", "--json", name], 0);
    run(&["clean", name], 0);
    run(&["doctor", "--json"], 0);
    run(&["replay", &capture], 0);
    // A log that somebody else wrote down, as it was.
    let log = home.path().join("engine.log");
    std::fs::write(&log, telltale.log()).unwrap();
    run(
        &[
            "parse",
            "--engine=vllm",
            "--json",
            &log.display().to_string(),
        ],
        0,
    );
    run(&["parse", "--engine=vllm", &log.display().to_string()], 0);
    std::fs::remove_file(&log).unwrap();

    tells_nothing("a file", &everything_in(home.path()));
    assert!(
        everything_in(home.path()).contains("MY_PASSWORD"),
        "that there is one may be known"
    );
    assert!(alone(home.path()) > 20);
    // The daemon's events carry every exec's command line.
    let events = docker(&[
        "events",
        "--since",
        &began,
        "--until",
        &now(),
        "--filter",
        &format!("container={name}"),
    ]);
    let ours: String = events
        .unwrap()
        .lines()
        .filter(|l| l.contains("exec_"))
        .collect();
    for secret in nowhere() {
        // A label is in every event of its container, and is the user's own.
        let attributes = ours.replace(&format!("uses {} and {PASSWORD}", shapes()[4]), "");
        let attributes = attributes.replace(IN_LABEL, "");
        assert!(!attributes.contains(&secret), "an event holds {secret}");
    }
}

/// Now, as `docker events` wants it; a second later, as `--until` is.
fn now() -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    format!("{}.{:09}", now.as_secs(), now.subsec_nanos())
}

#[test]
fn a_sweeps_files_hold_no_secret_and_are_its_owners_alone() {
    needs!(Docker, ReferenceEngine);
    let home = Home::new();
    let shapes = shapes();
    let file = home.path().join("sweep.yaml");
    let sweep = format!(
        r#"
name: hostile
defaults:
  image: plimsoll/reference-engine:dev
  engine: reference
  input_lengths: [8]
  output_lengths: [4]
  batch_sizes: [1]
  num_iters: 1
  engine_args: {{weights: 4MiB, kv-pool: 2MiB, activation: 1MiB}}
  env: {{HF_TOKEN: "{token}", MY_PASSWORD: "{PASSWORD}", DB: "postgres://me:{IN_URL}@db"}}
models:
  - model_id: "../../etc/{token}\u001b[31m"
    extra_engine_args: ["--fault", "secret@loading_weights"]
  - model_id: "=cmd|' /C calc'!A0 <script>alert(1)</script>"
    extra_engine_args: ["--fault", "crash@loading_weights"]
"#,
        token = shapes[0]
    );
    std::fs::write(&file, &sweep).unwrap();
    let away = home.path().join("away.yaml");
    std::fs::write(
        &away,
        sweep.replace("name: hostile", &format!("name: ../../{}", shapes[0])),
    )
    .unwrap();
    let away = away.display().to_string();
    let file = file.display().to_string();
    let results = home.path().join("results");
    let at = format!("--results-dir={}", results.display());
    let mut all = String::new();
    for (args, code) in [
        (vec!["config", "check", &file], Some(0)),
        (vec!["config", "check", &away], Some(2)),
        (vec!["sweep", &file, "--dry-run", &at], None),
        (vec!["sweep", &file, &at, "-vv"], None),
    ] {
        let mut command = open_handed(&args);
        command.env("HOME", home.path());
        for variable in ["XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"] {
            command.env(variable, home.path().join(variable));
        }
        let ended = Live::start(command).end();
        let code: Option<i32> = code;
        assert!(
            code.is_none_or(|code| code == ended.code()),
            "{}",
            ended.stderr
        );
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        tells_nothing(&args.join(" "), &ended.stdout);
        tells_nothing(&args.join(" "), &ended.stderr);
        all.push_str(&ended.stdout);
        all.push_str(&ended.stderr);
    }
    // Joined with another's rows, and shown.
    let run = std::fs::read_dir(results.join("hostile")).unwrap();
    let run = run.last().unwrap().unwrap().path().display().to_string();
    let joined = results.join("joined").display().to_string();
    let report = format!("--output={}/reports/", results.display());
    for args in [
        &["sweep", "merge", &run, "--output", &joined][..],
        &["report", &joined, &report],
    ] {
        let ended = home.run(args, 0);
        tells_nothing(&args.join(" "), &ended.stdout);
        tells_nothing(&args.join(" "), &ended.stderr);
    }
    assert!(!all.contains('\x1b'), "a terminal would obey it: {all:?}");
    std::fs::remove_file(&file).unwrap();
    std::fs::remove_file(&away).unwrap();
    tells_nothing("a file", &everything_in(home.path()));
    assert!(alone(home.path()) > 5, "{all}");
    assert!(results.is_dir(), "{all}");
    let outside: Vec<PathBuf> = std::fs::read_dir(home.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| !p.ends_with("results") && !p.to_string_lossy().contains("XDG_"))
        .collect();
    assert_eq!(
        outside,
        Vec::<PathBuf>::new(),
        "nothing lies outside of the results"
    );
}

#[test]
fn a_models_name_is_a_name_and_no_way() {
    needs!(Docker);
    let idle = Engine::run(
        "hostile",
        &[],
        &image().unwrap(),
        &["sh", "-c", "sleep 600"],
    );
    let long = "m".repeat(4096);
    for model in [
        "../../../etc/passwd",
        "/etc/passwd\n\x1b]0;title\x07",
        "-rf",
        "a\u{202e}b\u{9b}31m",
        "%2e%2e%2f`id`$(id)",
        &long,
    ] {
        let results = Results::new();
        let at = results.arg();
        let model = format!("--model={model}");
        let mut command = open_handed(&[
            "profile",
            &idle.name,
            "--engine=vllm",
            "--bench=none",
            "--duration=200ms",
            "--baseline=200ms",
            &at,
            &model,
        ]);
        command.env("HOME", results.0.path().join("home"));
        let ended = Live::start(command).end();
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        for text in [&ended.stdout, &ended.stderr] {
            let bad = text.chars().find(|c| {
                (c.is_control() && !"\n\t".contains(*c)) || "\u{202e}\u{2066}".contains(*c)
            });
            assert_eq!(bad, None, "{text:?}");
        }
        for path in results.profiles() {
            assert!(path.starts_with(results.0.path()));
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)),
                "{name}"
            );
            assert!(name.len() < 200 && !name.starts_with(['-', '.']), "{name}");
            let report = home_report(&path);
            assert!(!report.contains('\x1b') && !report.contains('\u{202e}'));
        }
    }
}

fn home_report(profile: &Path) -> String {
    let out = profile.with_extension("md");
    let shown = (profile.display().to_string(), out.display().to_string());
    let mut command = open_handed(&["report", &shown.0, "--format=md", "--output", &shown.1]);
    command.env("HOME", profile.parent().unwrap());
    Live::start(command).end().expect(0);
    std::fs::read_to_string(out).unwrap()
}

fn make_pipe(path: &Path) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
}

/// Whoever reads another's results waits for no pipe and reads no device to an end that it has not.
#[test]
fn pipes_and_devices_in_others_results_are_left() {
    let home = Home::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/example");
    let shown = |path: &Path| path.display().to_string();
    for stream in ["samples.jsonl", "log.txt"] {
        let capture = home.path().join(format!("{stream}.capture"));
        std::fs::create_dir(&capture).unwrap();
        for file in ["capture.json", "samples.jsonl", "log.txt"] {
            let from = example.join("tiny-profile.capture").join(file);
            std::fs::copy(from, capture.join(file)).unwrap();
        }
        std::fs::remove_file(capture.join(stream)).unwrap();
        make_pipe(&capture.join(stream));
        for verb in ["derive", "report", "replay"] {
            let said = home.run(&[verb, &shown(&capture)], 2).stderr;
            assert!(
                said.contains(stream) && said.contains("not a regular file but a pipe"),
                "{verb}: {said}"
            );
        }
    }
    let folder = home.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let profile = folder.join("good.json");
    std::fs::copy(example.join("tiny-profile.json"), &profile).unwrap();
    make_pipe(&folder.join("odd.json"));
    let page = format!("--output={}", shown(&home.path().join("report.html")));
    home.run(&["report", &shown(&folder), &page], 0);
    home.run(&["replay", &shown(&folder)], 0);
    home.run(&["replay", &shown(&folder.join("odd.json"))], 2);

    let run = home.path().join("run-of-a-sweep");
    std::fs::create_dir(&run).unwrap();
    std::fs::write(run.join("journal.jsonl"), "").unwrap();
    let into = format!("--output={}", shown(&home.path().join("joined")));
    let merge = ["sweep", "merge", &shown(&run), &into];
    make_pipe(&run.join("cells.json"));
    assert!(home.run(&merge, 2).stderr.contains("a pipe"));
    std::fs::remove_file(run.join("cells.json")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", run.join("cells.json")).unwrap();
    assert!(home.run(&merge, 2).stderr.contains("a device"));
    std::fs::remove_file(run.join("journal.jsonl")).unwrap();
    make_pipe(&run.join("journal.jsonl"));
    home.run(&merge, 2);
}

/// The most resident memory that a document of others may take, MiB.
const MOST_MIB: u64 = 512;
const MIB: usize = 1 << 20;

/// Runs it to its end: its exit code, the most memory that it had (MiB), and what it says.
fn weighed(args: &[&str]) -> (Option<i32>, u64, String) {
    let mut child = common::e2e::plimsoll(args)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let ended = loop {
        // A mark that only rises; it goes with the process.
        let read = std::fs::read_to_string(&status).unwrap_or_default();
        let mark = read.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let kib = mark.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
        peak = kib.unwrap_or(0).max(peak);
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    let mut words = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut words).unwrap();
    (ended.code(), peak >> 10, words)
}

/// Writes a unit so often between a beginning and an end.
fn write_many(path: &Path, begin: &str, unit: &str, size: usize, end: &str) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    let block = unit.repeat((MIB / unit.len()).clamp(1, size.div_ceil(unit.len())));
    file.write_all(begin.as_bytes()).unwrap();
    for _ in 0..(size / block.len()).max(1) {
        file.write_all(block.as_bytes()).unwrap();
    }
    file.write_all(end.as_bytes()).unwrap();
}

#[test]
fn a_document_of_any_shape_takes_less_than_half_a_gibibyte() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.json");
    let name = file.display().to_string();
    let profile = std::fs::read_to_string("results/example/tiny-profile.json").unwrap();
    let rest = &profile[1..];
    let verbs: [&[&str]; 8] = [
        &[
            "report", "--force", "--output", "-", "--format", "html", &name,
        ],
        &["compare", &name, &name],
        &["validate", &name],
        &["replay", &name],
        &["derive", "--json", &name],
        &["calibrate", "--correlations", &name],
        &["schema", "check", &name],
        &["estimate", "m", "--config", &name, "--gpu", "H100"],
    ];
    let sweep = "{\"document\": \"sweep\", \"schema_version\": \"1.0\", \"rows\": [";
    let mut wrong = Vec::new();
    let mut look = |what: &str, args: &[&str], refused: bool| {
        let (code, mib, words) = weighed(args);
        let verb = args[0];
        let sentence = code == Some(2) && !words.trim().is_empty();
        if mib >= MOST_MIB || code.is_none() || code == Some(1) || (refused && !sentence) {
            wrong.push(format!("{verb}, {what}: {mib} MiB, {code:?}, {words}"));
        }
    };
    // Larger than any: refused before it is read.
    for (what, begin, unit) in [
        ("numbers", "{\"x\":[", "0,"),
        ("one string", "{\"x\":[\"", "abcdefgh"),
    ] {
        write_many(&file, begin, unit, 255 * MIB, "0]}");
        let some = if what == "numbers" {
            &verbs[..]
        } else {
            &verbs[..1]
        };
        some.iter().for_each(|args| look(what, args, true));
    }
    // Not too long, and too much in memory.
    for (what, begin, unit) in [
        ("numbers", "{\"x\":[", "0,"),
        ("maps", "{\"x\":[", "{\"\":0},"),
        ("one key", "{\"x\":{\"k\":0", ",\"k\":[0]"),
        ("depth", "", "["),
        ("rows", sweep, "{},"),
        ("one number", "", "9"),
    ] {
        write_many(&file, begin, unit, 60 * MIB, "");
        look(what, verbs[0], true);
    }
    // As much as is read: whatever comes of it, it stays small.
    for (what, unit, count) in [
        ("numbers", "0,", 3_200_000),
        ("lists", "[0],", 430_000),
        ("maps", "{\"\":0},", 370_000),
        ("text", "a\\n", 18_000_000),
    ] {
        let size = unit.len() * count;
        let (begin, end) = match what {
            "text" => ("{\"x\":[\"", "\"],"),
            _ => ("{\"x\":[", "0],"),
        };
        write_many(&file, begin, unit, size, &format!("{end}{rest}"));
        let some = if what == "maps" {
            &verbs[..]
        } else {
            &verbs[..2]
        };
        some.iter().for_each(|args| look(what, args, false));
    }
    for (what, unit, count) in [
        ("rows", "{\"cell\":\"x\",\"status\":\"done\"},", 280_000),
        ("empty rows", "{},", 430_000),
    ] {
        write_many(&file, sweep, unit, unit.len() * count, "{}]}");
        look(what, verbs[0], false);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_capture_or_a_run_of_any_shape_takes_less_than_half_a_gibibyte() {
    let dir = tempfile::tempdir().unwrap();
    let capture = dir.path().join("x.capture");
    let run = dir.path().join("run");
    for folder in [&capture, &run] {
        std::fs::create_dir(folder).unwrap();
    }
    let at = |name: &str| dir.path().join(name).display().to_string();
    let own = Path::new("results/example/tiny-profile.capture");
    let whole = |name: &str| std::fs::copy(own.join(name), capture.join(name)).unwrap();
    let (named, run_named, page) = (at("x.capture"), at("run"), at("o.html"));
    let derive = ["derive", &named, "--json"];
    let report = ["report", &named, "--output", &page, "--force"];
    let replay = ["replay", &named];
    let merge = ["sweep", "merge", &run_named];
    let text = std::fs::read_to_string(own.join("capture.json")).unwrap();
    let mut wrong = Vec::new();
    let mut look = |what: &str, args: &[&str], refused: bool| {
        let (code, mib, words) = weighed(args);
        let sentence = code == Some(2) && !words.trim().is_empty();
        if mib >= MOST_MIB || code.is_none() || code == Some(1) || (refused && !sentence) {
            wrong.push(format!("{args:?}, {what}: {mib} MiB, {code:?}, {words}"));
        }
    };
    let of_capture = ["capture.json", "samples.jsonl", "log.txt"];
    for (name, begin, unit, size, end, refused) in [
        ("capture.json", "{\"x\":[", "0,", 255 * MIB, "0]}", true),
        (
            "capture.json",
            "{\"x\":[",
            "{\"\":0},",
            60 * MIB,
            "0]}",
            true,
        ),
        (
            "capture.json",
            "{\"x\":[",
            "{\"\":0},",
            3 * MIB,
            "0],",
            false,
        ),
        (
            "samples.jsonl",
            "",
            "{\"at_ns\":1,\"device\":0,\"used_bytes\":0}\n",
            255 * MIB,
            "",
            true,
        ),
        (
            "samples.jsonl",
            "",
            "{\"at_ns\":1,\"device\":0,\"used_bytes\":0}\n",
            75 * MIB,
            "",
            false,
        ),
        (
            "samples.jsonl",
            "",
            "{\"at_ns\":9,\"device\":0,\"used_bytes\":0}\n{\"at_ns\":1,\"device\":0,\"used_bytes\":0}\n",
            40 * MIB,
            "",
            false,
        ),
        ("samples.jsonl", "", "{\"at_ns\":1", 255 * MIB, "", true),
        ("log.txt", "1 c o ", "x", 255 * MIB, "", true),
        ("log.txt", "", "1 c o \n", 64 * MIB, "", false),
    ] {
        of_capture.iter().for_each(|name| {
            whole(name);
        });
        let end = match end.ends_with(',') {
            true => format!("{end}{}", &text[1..]),
            false => end.to_owned(),
        };
        write_many(&capture.join(name), begin, unit, size, &end);
        let what = format!("{name} of {unit:?}, {} MiB", size / MIB);
        look(&what, &derive, refused);
        look(&what, &replay, refused);
        if size == 255 * MIB {
            look(&what, &report, refused);
        }
    }
    for (name, begin, unit, size, refused) in [
        ("journal.jsonl", "", "{\"begin\":{}}\n", 255 * MIB, true),
        ("journal.jsonl", "", "x\n", 30 * MIB, false),
        ("journal.jsonl", "", "x", 255 * MIB, true),
        ("cells.json", "{\"cells\":[", "{},", 255 * MIB, true),
        ("cells.json", "{\"cells\":[", "{},", 9 * MIB, true),
    ] {
        std::fs::write(run.join("journal.jsonl"), "{\"sweep\":{\"journal_version\":1,\"plimsoll_version\":\"0.1.0\",\"name\":\"s\",\"started\":\"2026-11-20T10:00:00Z\",\"fresh\":false}}\n").unwrap();
        write_many(&run.join(name), begin, unit, size, "");
        let what = format!("{name} of {unit:?}, {} MiB", size / MIB);
        look(&what, &merge, refused);
    }
    write_many(&dir.path().join("cases"), "", "[0,", 255 * MIB, "");
    look("cases", &["estimate", "--batch", &at("cases")], false);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What the user names may be a pipe of a shell's.
#[test]
fn what_a_shell_hands_over_is_read() {
    let log =
        "INFO 11-22 08:00:00 [gpu_model_runner.py:1] Model loading took 1.5 GiB and 2.0 seconds";
    let program = env!("CARGO_BIN_EXE_plimsoll");
    for line in [
        "\"$0\" parse --engine vllm --json <(printf '%s\\n' \"$1\")",
        "printf '%s\\n' \"$1\" | \"$0\" parse --engine vllm --json -",
        "printf '%s\\n' \"$1\" | \"$0\" parse --engine vllm --json /dev/stdin",
    ] {
        let said = Command::new("bash")
            .args(["-c", line, program, log])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(
            said.status.success() && text.contains("Model loading took"),
            "{line}: {text}"
        );
    }
}

/// A pipe stands for `/dev/stdout` and `/dev/null`, which a mistake here would replace.
#[test]
fn devices_are_written_to_and_not_replaced() {
    let home = Home::new();
    let capture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("results/example/tiny-profile.capture");
    let capture = capture.display().to_string();
    let pipe = home.path().join("pipe");
    make_pipe(&pipe);
    let reader = Command::new("cat")
        .arg(&pipe)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    home.run(
        &["derive", &capture, "--output", &pipe.display().to_string()],
        0,
    );
    let read = reader.wait_with_output().unwrap().stdout;
    let document: serde_json::Value = serde_json::from_slice(&read).unwrap();
    assert!(document["schema_version"].is_string());
    let there = std::fs::symlink_metadata(&pipe).unwrap().file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&there));
}

/// Names in italics are tests.
#[test]
fn the_tests_that_the_security_page_names_exist() {
    fn sources(folder: &Path, all: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, all);
            } else if path.extension().is_some_and(|e| e == "rs") {
                all.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut code = String::new();
    sources(&root.join("src"), &mut code);
    sources(&root.join("tests"), &mut code);
    let page = std::fs::read_to_string(root.join("docs/dev/SECURITY.md")).unwrap();
    let named: Vec<&str> = page
        .split('*')
        .filter(|word| {
            word.contains('_')
                && word
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        })
        .collect();
    assert!(named.len() > 30, "{named:?}");
    for name in named {
        assert!(
            code.contains(&format!("fn {name}(")),
            "there is no test {name}"
        );
    }
}
