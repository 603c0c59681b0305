//! `why` on containers that really died: each cause from Docker's state, its events and the log.

use crate::common;
use crate::trouble::ParentCgroup;
use common::e2e::{Live, plimsoll, run, skip, wait_for};
use common::{TestContainer, docker};
use serde_json::Value;

/// The answer of `why` on a container.
#[track_caller]
fn why(container: &TestContainer, code: i32) -> Value {
    let ended = run(&["why", &container.name, "--json"]).expect(code);
    serde_json::from_str(&ended.stdout).expect("JSON")
}

#[track_caller]
fn answers(container: &TestContainer, cause: &str, setting: &str) {
    let answer = why(container, 0);
    assert_eq!(answer["cause"], cause, "{answer:#}");
    assert_eq!(answer["advice"][0]["setting"], setting, "{answer:#}");
    assert!(answer["evidence"][0]["quote"].is_string(), "{answer:#}");
}

fn state(container: &TestContainer, field: &str) -> String {
    docker(&[
        "inspect",
        "--format",
        &format!("{{{{{field}}}}}"),
        &container.name,
    ])
    .expect("state")
}

/// Waits until a container has ended.
fn ended(container: TestContainer) -> TestContainer {
    docker(&["wait", &container.name]).expect("its end");
    container
}

#[test]
fn each_death_has_its_cause() {
    needs!(Docker);
    let flag = "echo 'vllm: error: unrecognized arguments: --no-such-flag'; exit 2";
    let dead = |options: &[&str], script| ended(TestContainer::run("why", options, script));
    answers(&dead(&[], flag), "bad_flag", "command");
    let shm = "dd if=/dev/zero of=/dev/shm/nccl-x bs=64k count=100; exit 1";
    answers(&dead(&["--shm-size=1m"], shm), "shm_too_small", "shm_size");
    let disk = "dd if=/dev/zero of=/models/blob bs=64k count=100; exit 1";
    answers(
        &dead(&["--tmpfs=/models:size=1m"], disk),
        "disk_full",
        "volume",
    );
    let unexplained = why(&dead(&[], "echo bye; exit 3"), 9);
    assert_eq!(
        (&unexplained["cause"], &unexplained["abstained"]),
        (&Value::Null, &Value::Bool(true))
    );
}

#[test]
fn a_stop_and_a_kill_are_no_lack_of_memory() {
    needs!(Docker);
    for deed in ["stop", "kill"] {
        let container = TestContainer::idle("why");
        docker(&[deed, &container.name]).expect(deed);
        if common::podman() && deed == "stop" {
            // Podman has an event of it now and then: without one it is unknown who ended it.
            let ended = run(&["why", &container.name, "--json"]);
            let answer: Value = serde_json::from_str(&ended.stdout).expect("JSON");
            let cause = &answer["cause"];
            assert!(
                cause.is_null() || cause == "killed_by_user_or_orchestrator",
                "{answer:#}"
            );
            continue;
        }
        answers(
            &container,
            "killed_by_user_or_orchestrator",
            "stopped_from_outside",
        );
    }
}

#[test]
fn a_container_that_loops_is_judged_by_its_last_death() {
    needs!(Docker);
    let script = "echo 'OSError: [Errno 98] error while attempting to bind on address: address already in use'; exit 1";
    for policy in ["always", "unless-stopped", "on-failure:2"] {
        let looping = TestContainer::run("why", &[&format!("--restart={policy}")], script);
        wait_for("a restart", || {
            (state(&looping, ".RestartCount") != "0").then_some(())
        });
        answers(&looping, "port_in_use", "port");
    }
    if common::podman() {
        // It starts it again at once.
        return;
    }
    let looping = TestContainer::run("why", &["--restart=always"], script);
    // Docker waits longer each time: 6.4 s by now, in which a slow machine looks at it too.
    wait_for("a wait between restarts", || {
        let count: u32 = state(&looping, ".RestartCount").parse().ok()?;
        (count >= 6 && state(&looping, ".State.Status") == "restarting").then_some(())
    });
    let profile = run(&["profile", &looping.name]).expect(3);
    assert!(profile.stdout.contains("port_in_use"), "{}", profile.stdout);
    assert!(
        profile.stderr.contains("is restarting"),
        "{}",
        profile.stderr
    );
}

#[test]
fn nothing_is_removed_of_a_container_that_is_asked_about() {
    needs!(Docker);
    let dead = ended(TestContainer::run("why", &[], "exit 1"));
    why(&dead, 9);
    assert_eq!(state(&dead, ".State.Status"), "exited");
}

/// Allocates more than the container may have, in a child of its shell.
const TOO_MUCH: &str = "dd if=/dev/zero of=/dev/null bs=200M count=1";

#[test]
fn a_kill_for_lack_of_memory_names_the_limit() {
    needs!(Docker);
    let killed = |options: &[&str]| {
        let script = format!("exec {TOO_MUCH}");
        ended(TestContainer::run("why", options, &script))
    };
    let own = why(&killed(&["--memory=32m"]), 0);
    assert_eq!(own["cause"], "host_ram_oom_cgroup", "{own:#}");
    let text = own["advice"][0]["text"].as_str().expect("advice");
    assert!(text.contains("32.00 MiB"), "{own:#}");
}

#[test]
fn a_container_that_runs_again_is_not_blamed_for_the_kill_before() {
    needs!(Docker, Root);
    let script = format!("[ -e /again ] && exec sleep 1000; echo > /again; exec {TOO_MUCH}");
    let dead = ended(TestContainer::run("why", &["--memory=32m"], &script));
    let more = ["update", "--memory=64m", "--memory-swap=128m", &dead.name];
    docker(&more).expect("more memory");
    let found = why(&dead, 0);
    assert_eq!(found["cause"], "host_ram_oom_cgroup", "{found:#}");
    let text = found["advice"][0]["text"].as_str().expect("advice");
    assert!(text.contains("32.00 MiB"), "the limit at the kill: {text}");
    docker(&["start", &dead.name]).expect("start");
    assert_eq!(why(&dead, 9)["cause"], "no_failure");
}

#[test]
fn a_limit_above_the_container_is_named_after_its_death() {
    needs!(Docker, Root);
    let parent = match ParentCgroup::new("32M") {
        Ok(parent) => parent,
        Err(why) => return skip(test_name!(), &why),
    };
    let script = format!("exec {TOO_MUCH}");
    let killed = TestContainer::run("why", &[&parent.flag()], &script);
    let found = why(&ended(killed), 0);
    assert_eq!(found["cause"], "host_ram_oom_cgroup", "{found:#}");
    let level = format!("{} is 32.00 MiB", parent.shown());
    let quotes = found["evidence"].to_string();
    assert!(quotes.contains(&level), "{found:#}");
    let text = found["advice"][0]["text"].as_str().expect("advice");
    assert!(text.contains("above the container's own"), "{found:#}");
}

#[test]
fn a_worker_that_was_killed_in_a_container_that_runs_is_found() {
    needs!(Docker, Root);
    let script = format!("{TOO_MUCH}; echo worker gone; sleep 1000");
    let container = TestContainer::run("why", &["--memory=32m"], &script);
    wait_for("the kill", || {
        let log = docker(&["logs", &container.name]).ok()?;
        log.contains("worker gone").then_some(())
    });
    answers(&container, "host_ram_oom_cgroup", "memory_limit");
}

#[test]
fn a_container_that_was_removed_is_remembered_by_its_events() {
    needs!(Docker);
    let container = TestContainer::run("why", &[], "sleep 1000");
    docker(&["rm", "--force", &container.name]).expect("removed");
    // Podman has no event of the kill.
    let (code, cause) = if common::podman() {
        (9, Value::Null)
    } else {
        (0, "killed_by_user_or_orchestrator".into())
    };
    let found = why(&container, code);
    assert_eq!(found["cause"], cause, "{found:#}");
    let unread = found["unread"].to_string();
    assert!(unread.contains("removed"), "{found:#}");
    run(&["why", "plimsoll-never-there"]).expect(3);
}

#[test]
fn all_services_of_a_compose_project_are_judged() {
    needs!(Docker);
    let project = common::unique("project");
    let label = format!("--label=com.docker.compose.project={project}");
    let _healthy = TestContainer::run("why", &[&label], "sleep 1000");
    let script = "echo 'vllm: error: unrecognized arguments: --no-such-flag'; exit 2";
    let dead = ended(TestContainer::run("why", &[&label], script));
    let answer = run(&["why", &project, "--json"]).expect(0);
    let answer: Value = serde_json::from_str(&answer.stdout).expect("JSON");
    let all = answer["containers"].as_array().expect("containers");
    assert_eq!(all.len(), 2, "{answer:#}");
    let last = &all[1];
    assert_eq!(last["container"], dead.name, "{answer:#}");
    assert_eq!(last["diagnosis"]["cause"], "bad_flag", "{answer:#}");
}

#[test]
fn a_bundle_gives_the_same_answer_and_has_no_secret() {
    needs!(Docker);
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("why.tar");
    let name = file.to_str().expect("path");
    let script = "echo token $HF_TOKEN; echo \"API_KEY=sk-live-1234567890abcdef1234567890\" >&2; echo 'vllm: error: unrecognized arguments: --no-such-flag'; exit 2";
    let secret = "--env=HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWx";
    let dead = ended(TestContainer::run("why", &[secret], script));
    run(&["why", &dead.name, "--bundle", name]).expect(0);
    let bytes = std::fs::read(&file).expect("bundle");
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("token [redacted]"), "the log is in it");
    assert!(!text.contains("hf_AbCd"), "the secret is in it");
    assert!(
        !text.contains("sk-live-"),
        "a secret of the command is in it"
    );
    let again = run(&["why", name, "--json"]).expect(0);
    let again: Value = serde_json::from_str(&again.stdout).expect("JSON");
    assert_eq!(again["cause"], "bad_flag", "{again:#}");
    assert_eq!(again["advice"], why(&dead, 0)["advice"]);
}

#[test]
fn a_health_check_whose_program_is_missing_is_no_fault_of_the_engine() {
    needs!(Docker);
    let check = [
        "--health-cmd=no-such-check",
        "--health-interval=100ms",
        "--health-retries=1",
    ];
    let sick = TestContainer::run("why", &check, "sleep 1000");
    wait_for("its checks to fail", || {
        (state(&sick, ".State.Health.Status") == "unhealthy").then_some(())
    });
    answers(&sick, "program_not_found", "healthcheck");
}

/// What a person sends who has no plimsoll on the host: `docker logs` and `docker inspect`, as files.
#[test]
fn a_log_and_an_inspection_give_the_answer_of_the_container() {
    needs!(Docker);
    let folder = tempfile::tempdir().expect("folder");
    let script = format!("echo loading; exec {TOO_MUCH}");
    let dead = ended(TestContainer::run("why", &["--memory=32m"], &script));
    let kept = |name: &str, text: String| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).expect("file");
        file.to_str().expect("path").to_owned()
    };
    let log = kept("log", docker(&["logs", &dead.name]).expect("log"));
    let inspected = docker(&["inspect", &dead.name]).expect("inspection");
    let facts = kept("inspect.json", inspected.clone());
    let from_files = |facts: &str| run(&["why", &log, "--facts", facts, "--json"]);
    // A daemon on cgroup v2 can miss the kill: then the limit is named as where to look.
    let is_known = inspected.contains("\"OOMKilled\": true");
    let answer = from_files(&facts)
        .expect(if is_known { 0 } else { 9 })
        .stdout;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    if is_known {
        assert_eq!(answer["cause"], "host_ram_oom_cgroup", "{answer:#}");
        let text = answer["advice"][0]["text"].as_str().expect("advice");
        assert!(text.contains("32.00 MiB"), "{answer:#}");
    } else {
        let look = answer["look_at"].to_string();
        assert!(look.contains("memory limit"), "{answer:#}");
    }
    let one = inspected.trim_matches(['[', ']']);
    let two = from_files(&kept("two.json", format!("[{one},{one}]"))).expect(2);
    assert!(
        two.stderr.contains("not of one container"),
        "{}",
        two.stderr
    );
    let as_log = run(&["why", &facts]).expect(2);
    assert!(as_log.stderr.contains("--facts"), "{}", as_log.stderr);
}

#[test]
fn the_next_death_is_waited_for_with_the_memory_before_it() {
    needs!(Docker);
    let container = TestContainer::run("why", &["--memory=64m"], "sleep 1000");
    let mut waiting = Live::start(plimsoll(&["why", &container.name, "--watch", "--json"]));
    waiting.until("waiting for the next death");
    docker(&["kill", &container.name]).expect("killed");
    let found = waiting.end().expect(0);
    let found: Value = serde_json::from_str(&found.stdout).expect("JSON");
    assert_eq!(
        found["cause"], "killed_by_user_or_orchestrator",
        "{found:#}"
    );
    let last = found["last_readings"].as_array().expect("readings").last();
    let bytes = last.and_then(|reading| reading["used_bytes"].as_u64());
    assert!(bytes.is_some_and(|bytes| bytes > 0), "{found:#}");
}

#[test]
fn what_never_started_says_so() {
    needs!(Docker);
    let created = TestContainer::create("why", &[], "true");
    let answer = why(&created, 9);
    assert!(
        answer["means"]
            .as_str()
            .is_some_and(|means| means.contains("never started")),
        "{answer:#}"
    );
}

#[test]
fn input_that_is_no_log_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let write = |name: &str, bytes: &[u8]| {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).expect("file");
        file.to_str().expect("path").to_owned()
    };
    let refused = |args: &[&str], code: i32, words: &str| {
        let ended = run(args).expect(code);
        assert!(ended.stderr.contains(words), "{args:?}: {}", ended.stderr);
    };
    let empty = write("empty", b"");
    let binary: Vec<u8> = (0..4000u32).map(|i| (i * 7 % 251) as u8).collect();
    let binary = write("binary", &binary);
    let packed = write("log.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\x03packed");
    let profile = write(
        "a.json",
        b"{\n  \"profiler_version\": \"0.2.0\",\n  \"schema_version\": \"4.0\"}",
    );
    let recording = write(
        "rec.jsonl",
        b"{\"plimsoll_recording\":1,\"backend\":{}}\n{}\n",
    );
    for verb in ["why", "parse"] {
        refused(&[verb, &empty], 3, "is empty: nothing was read");
        refused(&[verb, &binary], 2, "is binary, not a log");
        refused(&[verb, &packed], 2, "is compressed");
        refused(&[verb, &packed], 2, "`zcat ");
        refused(&[verb, &profile], 2, "`plimsoll report ");
        refused(&[verb, &recording], 2, "`plimsoll replay ");
    }
    refused(&["report", &recording], 2, "`plimsoll replay` shows it");
    let log = write(
        "log",
        b"vllm: error: unrecognized arguments: --no-such-flag\n",
    );
    let units = "\u{feff}vllm: error: unrecognized arguments: --no-such-flag\r\n".encode_utf16();
    let wide: Vec<u8> = units.flat_map(u16::to_be_bytes).collect();
    let found = run(&["why", &write("wide", &wide)]).expect(0).stdout;
    assert!(found.contains("--no-such-flag"), "{found}");
    // What logrotate's copytruncate leaves of a file that the engine still writes to.
    let text = std::fs::read(&log).expect("log");
    let rest = b"the rest of a line\n".to_vec();
    let cut = write("cut", &[vec![0; 100_000], rest, text].concat());
    let found = run(&["why", &cut]).expect(0).stdout;
    assert!(found.contains("--no-such-flag"), "{found}");
    refused(
        &["why", &log, "--watch"],
        2,
        "--watch waits for a container's death",
    );
    let place = folder.path().to_str().expect("path");
    refused(
        &["why", &log, "--bundle", place],
        2,
        "is a folder, and --bundle takes a file",
    );
    let whole = folder.path().join("why.tar");
    let whole = whole.to_str().expect("path");
    run(&["why", &log, "--bundle", whole]).expect(0);
    let bytes = std::fs::read(whole).expect("archive");
    refused(
        &["why", &write("cut.tar", &bytes[..1500])],
        3,
        "is cut off or damaged",
    );
}

#[test]
fn a_program_that_the_image_has_not_is_named() {
    needs!(Docker);
    let image = common::image().expect("image");
    let staged = common::e2e::Engine::create("why", &[], &image, &["no-such-program"]);
    docker(&["start", &staged.id]).expect_err("it starts");
    let page = run(&["why", &staged.name]).expect(0).stdout;
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        page.contains("program_not_found, in phase create"),
        "{page}"
    );
    assert!(page.contains("no program `no-such-program`"), "{page}");
}
