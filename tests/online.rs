//! `estimate --online` against hubs on this host: what is asked, what is told, who sees the token, and what a hub that
//! means ill can do.

use crate::common;
use crate::common::hub;
use common::e2e::{Ended, Live, plimsoll};
use hub::{Asked, Hub, header, part, say};
use plimsoll::models::hub::{Hub as Client, Keep, Limits};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

const ID: &str = "acme/Tiny-1B";
const TOKEN: &str = "hf_onlytheownermayseethis";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const INDEX: &str = "model.safetensors.index.json";
const GIB: f64 = (1u64 << 30) as f64;

/// `estimate --online` of the model, asked of this hub.
struct Question {
    endpoint: String,
    home: tempfile::TempDir,
    token: bool,
}

impl Question {
    fn of(endpoint: &str) -> Question {
        Question {
            endpoint: endpoint.to_owned(),
            home: tempfile::tempdir().unwrap(),
            token: true,
        }
    }

    #[track_caller]
    fn ask(&self, words: &[&str]) -> Ended {
        let mut all = vec!["estimate", ID, "--no-calibration"];
        all.extend(words);
        let mut command = plimsoll(&all);
        command.env("HF_ENDPOINT", &self.endpoint);
        command.env("HOME", self.home.path());
        command.env_remove("XDG_CACHE_HOME");
        if self.token {
            command.env("HF_TOKEN", TOKEN);
        }
        Live::start(command).end()
    }

    /// All that was written to the disk.
    fn written(&self) -> String {
        fn walk(folder: &std::path::Path, all: &mut String) {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                match entry.path().is_dir() {
                    true => walk(&entry.path(), all),
                    false => all.push_str(&std::fs::read_to_string(entry.path()).unwrap()),
                }
            }
        }
        let mut all = String::new();
        walk(self.home.path(), &mut all);
        all
    }
}

fn config() -> Value {
    json!({
        "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2048, "num_attention_heads": 16,
        "num_hidden_layers": 2, "num_key_value_heads": 4, "vocab_size": 32000,
        "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "tie_word_embeddings": true,
    })
}

/// The tensors of its two files, as transformers saves them. Their MLPs are wider than the configuration says: what is
/// computed from that is told from what the files hold.
fn files() -> [Vec<(String, Vec<u64>)>; 2] {
    let layer = |n: u64| {
        let name = |end: &str| format!("model.layers.{n}.{end}.weight");
        vec![
            (name("input_layernorm"), vec![1024]),
            (name("post_attention_layernorm"), vec![1024]),
            (name("self_attn.q_proj"), vec![1024, 1024]),
            (name("self_attn.k_proj"), vec![256, 1024]),
            (name("self_attn.v_proj"), vec![256, 1024]),
            (name("self_attn.o_proj"), vec![1024, 1024]),
            (name("mlp.gate_proj"), vec![2816, 1024]),
            (name("mlp.up_proj"), vec![2816, 1024]),
            (name("mlp.down_proj"), vec![1024, 2816]),
        ]
    };
    let mut first = layer(0);
    first.push(("model.embed_tokens.weight".into(), vec![32000, 1024]));
    let mut second = layer(1);
    second.push(("model.norm.weight".into(), vec![1024]));
    [first, second]
}

/// Serves the model's files; what they would be, if they had any weights.
fn serve(asked: &Asked, stream: &mut TcpStream) {
    let about = [("X-Repo-Commit", COMMIT)];
    let [first, second] = files();
    match asked.file() {
        "config.json" => say(stream, "200 OK", &about, config().to_string().as_bytes()),
        INDEX => {
            let names = |file: &str, tensors: &[(String, Vec<u64>)]| {
                let each = tensors.iter().map(|(name, _)| (name.clone(), json!(file)));
                each.collect::<Vec<_>>()
            };
            let mut map = names("model-00001-of-00002.safetensors", &first);
            map.extend(names("model-00002-of-00002.safetensors", &second));
            let map: serde_json::Map<String, Value> = map.into_iter().collect();
            say(
                stream,
                "200 OK",
                &about,
                json!({"weight_map": map}).to_string().as_bytes(),
            );
        }
        "model-00001-of-00002.safetensors" => {
            let (bytes, size) = header(&first, 0);
            part(stream, asked, &bytes, size);
        }
        // A header that does not fit into the first question.
        "model-00002-of-00002.safetensors" => {
            let (bytes, size) = header(&second, 300_000);
            part(stream, asked, &bytes, size);
        }
        _ => say(
            stream,
            "404 Not Found",
            &[("X-Error-Code", "EntryNotFound")],
            b"",
        ),
    }
}

#[test]
fn a_model_that_is_nowhere_here_is_told_from_its_files_headers() {
    let hub = Hub::start(serve);
    let question = Question::of(&hub.endpoint);
    let told = question
        .ask(&["--online", "--json", "--gpu", "H100"])
        .expect(0);
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let source = told["source"].as_str().unwrap();
    assert!(source.contains("the hub (127.0.0.1"), "{source}");
    assert!(source.contains("revision 0123456789ab,"), "{source}");
    let bytes: u64 = files()
        .iter()
        .flatten()
        .map(|(_, s)| 2 * s.iter().product::<u64>())
        .sum();
    let weights = told["per_gpu"]["weights_gib"].as_f64().unwrap() * GIB;
    assert!(
        (weights / bytes as f64 - 1.0).abs() < 0.02,
        "{weights} of {bytes}"
    );

    // All of one commit; of the weights no more than a first question brings.
    let asked = hub.asked();
    for (at, request) in asked.iter().enumerate() {
        let revision = if at == 0 { "main" } else { COMMIT };
        assert!(
            request
                .path
                .starts_with(&format!("/{ID}/resolve/{revision}/")),
            "{}",
            request.path
        );
        assert_eq!(
            request.header("authorization"),
            Some(&*format!("Bearer {TOKEN}"))
        );
        if request.file().ends_with(".safetensors") {
            let range = request.header("range").unwrap();
            let last: u64 = range.strip_prefix("bytes=0-").unwrap().parse().unwrap();
            assert!(last < 400_000, "{range}");
        }
    }

    // The next question needs no network, nor the leave to use it.
    for words in [&["--online"][..], &[]] {
        let page = flat(&question.ask(words).expect(0).stdout);
        assert!(page.contains("revision 0123456789ab,"), "{page}");
    }
    assert_eq!(hub.asked().len(), asked.len());
    assert!(!question.written().contains(TOKEN));
}

#[test]
fn without_the_flag_nobody_is_asked() {
    let hub = Hub::start(serve);
    let question = Question::of(&hub.endpoint);
    let ended = question.ask(&["--gpu", "H100"]).expect(2);
    assert!(ended.stderr.contains("--online"), "{}", ended.stderr);
    question.ask(&["--draft-model", "acme/Draft"]).expect(2);
    assert!(hub.asked().is_empty(), "{:?}", hub.asked());
    // What ships is not asked for either.
    let mut command = plimsoll(&["estimate", "Qwen/Qwen3-8B", "--online"]);
    command.env("HF_ENDPOINT", &hub.endpoint);
    Live::start(command).end().expect(0);
    assert!(hub.asked().is_empty(), "{:?}", hub.asked());
}

#[test]
fn a_batch_asks_for_each_model_once() {
    let hub = Hub::start(serve);
    let question = Question::of(&hub.endpoint);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for id in ["a", "b"] {
        let case = json!({"id": id, "model": ID, "engine": "vllm", "gpu": "H100"});
        writeln!(file, "{case}").unwrap();
    }
    let path = file.path().to_str().unwrap();
    let mut command = plimsoll(&["estimate", "--batch", path, "--json", "--online"]);
    command
        .env("HF_ENDPOINT", &hub.endpoint)
        .env("HOME", question.home.path());
    command.env_remove("XDG_CACHE_HOME");
    let told = Live::start(command).end().expect(0);
    assert_eq!(
        told.stdout.matches("revision 0123456789ab").count(),
        2,
        "{}",
        told.stdout
    );
    let configs = hub
        .asked()
        .iter()
        .filter(|a| a.file() == "config.json")
        .count();
    assert_eq!(configs, 1);
}

#[test]
fn the_token_does_not_follow_a_redirect_to_another_host() {
    let cdn = Hub::start(serve);
    // Another port is another server; `localhost` besides is another name.
    let place = cdn.endpoint.replace("127.0.0.1", "localhost");
    let hub = Hub::start(move |asked, stream| match asked.file() {
        file if file.ends_with(".safetensors") => {
            let to = format!("{place}{}?signature=x", asked.path);
            say(
                stream,
                "302 Found",
                &[("Location", &to), ("X-Repo-Commit", COMMIT)],
                b"",
            );
        }
        // A renamed model, as the hub tells it: on the same host, where the token is needed again.
        "config.json" if asked.path.starts_with(&format!("/{ID}/")) => {
            let to = asked.path.replace(ID, "acme/Renamed");
            say(stream, "307 Temporary Redirect", &[("Location", &to)], b"");
        }
        _ => serve(asked, stream),
    });
    let question = Question::of(&hub.endpoint);
    let told = question.ask(&["--online", "-v"]).expect(0);
    assert!(
        flat(&told.stdout).contains("revision 0123456789ab"),
        "{}",
        told.stdout
    );
    for text in [&told.stdout, &told.stderr, &question.written()] {
        assert!(!text.contains(TOKEN), "{text}");
    }
    for request in hub.asked() {
        assert_eq!(
            request.header("authorization"),
            Some(&*format!("Bearer {TOKEN}"))
        );
    }
    let seen = cdn.asked();
    assert!(seen.len() >= 2, "{seen:?}");
    for request in seen {
        assert_eq!(request.header("authorization"), None);
        assert!(request.header("range").is_some());
    }
}

#[test]
fn a_hub_that_says_no_is_understood() {
    let no = |status: &'static str, code: &'static str, token: bool, exit: i32| {
        let hub =
            Hub::start(move |_, stream| say(stream, status, &[("X-Error-Code", code)], b"<html>"));
        let mut question = Question::of(&hub.endpoint);
        question.token = token;
        question.ask(&["--online"]).expect(exit).stderr
    };
    let gated = no("403 Forbidden", "GatedRepo", true, 3);
    assert!(
        gated.contains("is gated") && gated.contains("accept the licence at http://127"),
        "{gated}"
    );
    assert!(
        gated.contains("account of the token that was sent"),
        "{gated}"
    );
    let gated = no("401 Unauthorized", "GatedRepo", false, 3);
    assert!(
        gated.contains("is gated") && gated.contains("set HF_TOKEN"),
        "{gated}"
    );
    let hidden = no("401 Unauthorized", "RepoNotFound", false, 3);
    assert!(
        hidden.contains("private or gated, or does not exist"),
        "{hidden}"
    );
    let none = no("404 Not Found", "RepoNotFound", true, 2);
    assert!(none.contains(&format!("no model `{ID}`")), "{none}");
    let gguf = no("404 Not Found", "EntryNotFound", true, 2);
    assert!(gguf.contains("no config.json"), "{gguf}");
    let often = no("429 Too Many Requests", "", true, 3);
    assert!(often.contains("limits the number of requests"), "{often}");
    let broken = no("503 Service Unavailable", "", true, 3);
    assert!(broken.contains("HTTP status 503"), "{broken}");
}

#[test]
fn no_way_out_is_told_with_what_to_do() {
    // A port that nobody listens on any more.
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let said = Question::of(&gone).ask(&["--online"]).expect(3).stderr;
    assert!(
        said.contains("cannot reach the hub") && said.contains("--config FILE"),
        "{said}"
    );
    let wrong = Question::of("ftp://hub")
        .ask(&["--online"])
        .expect(2)
        .stderr;
    assert!(wrong.contains("HF_ENDPOINT"), "{wrong}");
    let mut command = plimsoll(&["estimate", ID, "--online"]);
    command.env("HF_ENDPOINT", &gone).env("HF_HUB_OFFLINE", "1");
    let said = Live::start(command).end().expect(3).stderr;
    assert!(said.contains("HF_HUB_OFFLINE"), "{said}");
}

/// A page without its line breaks.
fn flat(page: &str) -> String {
    page.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Keeps nothing.
struct Nothing;

impl Keep for Nothing {
    fn get(&self, _: &str) -> Option<String> {
        None
    }

    fn put(&self, _: &str, text: &str) {
        panic!("kept: {text}");
    }
}

/// What is said of a hub that does this, by someone of little patience.
#[track_caller]
fn suffers(answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static) -> String {
    let hub = Hub::start(answer);
    let limits = Limits {
        redirects: 5,
        files: 10,
        document: 1 << 20,
        all: 4 << 20,
        // A shared machine can stand still for a second.
        stall: Duration::from_secs(2),
        whole: Duration::from_secs(4),
    };
    let client = Client::new(&hub.endpoint, None, limits).unwrap();
    let failure = client.ask(ID, &Nothing).unwrap_err();
    assert_eq!(failure.code as i32, 3, "{failure}");
    let said = failure.to_string();
    assert!(!said.contains(['\n', '\x1b']) && said.len() < 700, "{said}");
    said
}

/// Writes for as long as somebody listens.
fn endless(stream: &mut TcpStream, piece: &[u8], pause: Duration) {
    while stream.write_all(piece).is_ok() {
        std::thread::sleep(pause);
    }
}

/// The model, but for one file.
fn but(
    file: &'static str,
    answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static,
) -> impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static {
    move |asked, stream| match asked.file() == file {
        true => answer(asked, stream),
        false => serve(asked, stream),
    }
}

#[test]
fn a_hostile_hub_is_left_with_a_sentence() {
    let now = Duration::ZERO;
    let said = suffers(|_, stream| endless(stream, b"HTTP/1.1 200 OK\r\nX: y\r\n", Duration::ZERO));
    assert!(said.contains("cannot reach"), "{said}");
    let said = suffers(move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        endless(stream, &[b' '; 4096], now);
    });
    assert!(said.contains("longer than 1 MiB"), "{said}");
    let said = suffers(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{");
        std::thread::park_timeout(Duration::from_secs(20));
    });
    assert!(said.contains("sent nothing for 2 s"), "{said}");
    let said = suffers(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        endless(stream, b" ", Duration::from_millis(50));
    });
    assert!(said.contains("did not finish within 4 s"), "{said}");
    let said = suffers(|asked, stream| {
        let to = format!("{}x", asked.path);
        say(stream, "302 Found", &[("Location", &to)], b"");
    });
    assert!(said.contains("again and again"), "{said}");
    let said = suffers(|_, stream| {
        say(
            stream,
            "302 Found",
            &[("Location", "file:///etc/passwd")],
            b"",
        )
    });
    assert!(said.contains("where plimsoll sends nothing"), "{said}");
    let said = suffers(|_, stream| say(stream, "200 OK", &[], b"\x1b[2J<html>log in</html>"));
    assert!(
        said.contains("`config.json`") && said.contains("not JSON"),
        "{said}"
    );
    let said = suffers(|_, stream| {
        let _ = stream.write_all(b"SSH-2.0-x\r\n");
    });
    assert!(said.contains("cannot reach"), "{said}");
}

#[test]
fn files_that_lie_are_left_with_a_sentence() {
    const ONE: &str = "model-00001-of-00002.safetensors";
    let said = suffers(but(INDEX, |_, stream| {
        say(
            stream,
            "200 OK",
            &[],
            br#"{"weight_map": {"a": "../../../secret"}}"#,
        );
    }));
    assert!(said.contains("does not exist"), "{said}");
    let said = suffers(but(INDEX, |_, stream| {
        let map: serde_json::Map<String, Value> = (0..50)
            .map(|n| (n.to_string(), json!(format!("{n}.safetensors"))))
            .collect();
        say(
            stream,
            "200 OK",
            &[],
            json!({"weight_map": map}).to_string().as_bytes(),
        );
    }));
    assert!(said.contains("names 50 files"), "{said}");
    let said = suffers(but(ONE, |_, stream| {
        say(stream, "200 OK", &[], &u64::MAX.to_le_bytes());
    }));
    assert!(said.contains("not a safetensors file"), "{said}");
    let said = suffers(but(ONE, |_, stream| {
        say(
            stream,
            "206 Partial Content",
            &[("Content-Range", "bytes 500-599/5000")],
            &[0; 100],
        );
    }));
    assert!(said.contains("another part"), "{said}");
    // A header of 90 MB, sent for as long as somebody listens.
    let said = suffers(but(ONE, |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let _ = stream.write_all(&90_000_000u64.to_le_bytes());
        endless(stream, &[b' '; 4096], Duration::ZERO);
    }));
    assert!(said.contains("longer than 4 MiB"), "{said}");
    let said = suffers(but(ONE, |_, stream| {
        say(stream, "404 Not Found", &[], b"");
    }));
    assert!(said.contains("the model's index lists it"), "{said}");
    let said = suffers(but(ONE, |_, stream| {
        let (mut bytes, _) = header(&files()[0], 0);
        bytes.truncate(200);
        say(
            stream,
            "206 Partial Content",
            &[("Content-Range", "bytes 0-199/200")],
            &bytes,
        );
    }));
    assert!(said.contains("in a file of 200"), "{said}");
}

#[test]
fn a_server_that_knows_no_ranges_is_read_as_far_as_the_header_goes() {
    // All of a file of 70 GB, as far as anybody takes it.
    let hub = Hub::start(but("model-00001-of-00002.safetensors", |_, stream| {
        let (bytes, size) = header(&files()[0], 0);
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
        let _ = stream.write_all(&bytes);
        endless(stream, &[0; 65536], Duration::ZERO);
    }));
    let question = Question::of(&hub.endpoint);
    let told = flat(&question.ask(&["--online"]).expect(0).stdout);
    assert!(told.contains("revision 0123456789ab"), "{told}");
}

#[test]
fn a_model_without_safetensors_is_computed_and_that_is_said() {
    let hub = Hub::start(|asked, stream| match asked.file() {
        "config.json" => serve(asked, stream),
        _ => say(
            stream,
            "404 Not Found",
            &[("X-Error-Code", "EntryNotFound")],
            b"",
        ),
    });
    let told = Question::of(&hub.endpoint)
        .ask(&["--online"])
        .expect(0)
        .stdout;
    assert!(told.contains("computed from its configuration"), "{told}");
}

#[test]
fn no_token_goes_over_plain_http_to_another_host() {
    // An address of this host, which is not one of the names that say so.
    let hub = Hub::at("127.0.0.2", serve);
    let client = Client::new(&hub.endpoint, Some(TOKEN), Limits::default()).unwrap();
    client.ask(ID, &Forgetful).unwrap();
    let asked = hub.asked();
    assert!(asked.len() > 3, "{asked:?}");
    assert!(asked.iter().all(|a| a.header("authorization").is_none()));
}

/// Takes everything and keeps nothing.
struct Forgetful;

impl Keep for Forgetful {
    fn get(&self, _: &str) -> Option<String> {
        None
    }

    fn put(&self, _: &str, _: &str) {}
}
