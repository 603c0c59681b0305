//! The load client against servers that play a script: good ones of each API, and hostile ones.
//! Every hostile one costs a row that says what happened, and neither time nor memory.

use crate::common::scripted;
use plimsoll::capture::{ErrorKind, LengthUnit, RequestRow, TokenSource};
use plimsoll::engine::Dialect;
use plimsoll::load::{
    Arrivals, LengthMix, LoadOutcome, LoadPlan, LoadProgress, LoadTarget, run_load,
};
use plimsoll::redact::Redactor;
use scripted::{Asked, Reply, Server};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

fn target(server: &Server) -> LoadTarget {
    LoadTarget {
        address: server.address.clone(),
        dialect: Dialect::Completions,
        model: "toy".into(),
        key: None,
        redactor: Redactor::new(["sk-very-secret-key".to_owned()]),
    }
}

fn plan(requests: u32) -> LoadPlan {
    LoadPlan {
        requests,
        warmups: 1,
        arrivals: Arrivals::Closed { concurrency: 2 },
        lengths: LengthMix::fixed_length(64, 4),
        prompt: None,
        seed: 0,
        first_prompt: 0,
        patience: Duration::from_secs(30),
        not_before: None,
    }
}

async fn load(target: &LoadTarget, plan: &LoadPlan) -> LoadOutcome {
    run_load(target, plan, &CancellationToken::new(), |_| ())
        .await
        .expect("the test request is answered")
}

const TOKEN: &str =
    "data: {\"choices\":[{\"index\":0,\"text\":\" sea\",\"finish_reason\":null}]}\n\n";
const LAST: &str =
    "data: {\"choices\":[{\"index\":0,\"text\":\" sea\",\"finish_reason\":\"length\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn usage(prompt: usize, output: usize) -> String {
    format!(
        "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{output}}}}}\n\n"
    )
}

/// Four tokens, a usage and the end, as vLLM streams them.
fn good(prompt: usize) -> Reply {
    Reply::events(&[TOKEN, TOKEN, TOKEN, LAST, &usage(prompt, 4), DONE])
}

/// Two tokens a word, and one at the beginning.
fn tokens(text: &str) -> usize {
    1 + text
        .split_inclusive(|c: char| !c.is_ascii_alphanumeric())
        .map(|piece| piece.len().div_ceil(4))
        .sum::<usize>()
}

fn text_of<'a>(asked: &'a Asked, key: &str) -> &'a str {
    asked.body[key].as_str().unwrap_or_default()
}

/// A server like vLLM: counts tokens, and reports them.
fn like_vllm(asked: &Asked) -> Reply {
    match asked.path.as_str() {
        "/tokenize" => Reply::json(&format!(
            "{{\"count\":{},\"tokens\":[]}}",
            tokens(text_of(asked, "prompt"))
        )),
        "/v1/completions" => good(tokens(text_of(asked, "prompt"))),
        _ => Reply::status(404, "no such path"),
    }
}

fn without_tokenizer(reply: impl Fn(&Asked) -> Reply) -> impl Fn(&Asked) -> Reply {
    move |asked| match asked.path.as_str() {
        "/tokenize" => Reply::status(404, "{\"detail\":\"Not Found\"}"),
        _ => reply(asked),
    }
}

/// A text of one's own is sent as it is, and its tokens are counted.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_is_given_is_sent() {
    const TEXT: &str = "Karomi ten sol";
    let counts = |asked: &Asked| {
        assert_eq!(text_of(asked, "prompt"), TEXT, "{}", asked.path);
        like_vllm(asked)
    };
    let counting = Server::start(move |asked| match text_of(asked, "prompt") {
        "The sea is deep." => like_vllm(asked),
        words if asked.path == "/tokenize" && words != TEXT => like_vllm(asked),
        _ => counts(asked),
    })
    .await;
    let plan = LoadPlan {
        prompt: Some(TEXT.into()),
        lengths: LengthMix::fixed_length(0, 4),
        ..plan(3)
    };
    let outcome = load(&target(&counting), &plan).await;
    let own = tokens(TEXT) as u64;
    for row in &outcome.requests {
        assert_eq!(
            (row.input_counted, row.input_unit),
            (Some(own), LengthUnit::Tokens)
        );
        assert_eq!(u64::from(row.input_asked), own);
    }
    let told = outcome.notes.iter().any(|n| n.contains("same prompt"));
    assert!(told, "{:?}", outcome.notes);
    let silent = Server::start(without_tokenizer(counts)).await;
    let outcome = load(&target(&silent), &plan).await;
    let row = &outcome.requests[0];
    assert_eq!((row.input_asked, row.input_unit), (3, LengthUnit::Words));
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_have_exactly_the_tokens_that_the_server_counts() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let prompts = Arc::clone(&seen);
    let server = Server::start(move |asked| {
        if asked.path == "/v1/completions" {
            assert_eq!(asked.body["stream"], true);
            assert_eq!(asked.body["ignore_eos"], true);
            assert_eq!(
                (
                    asked.body["max_tokens"].as_u64(),
                    asked.body["min_tokens"].as_u64()
                ),
                (Some(4), Some(4))
            );
            prompts
                .lock()
                .unwrap()
                .push(text_of(asked, "prompt").to_owned());
        }
        like_vllm(asked)
    })
    .await;
    let outcome = load(&target(&server), &plan(20)).await;
    let busy = |note: &&String| note.contains("this host is busy");
    assert_eq!(outcome.notes.iter().find(|n| !busy(n)), None);
    assert_eq!(outcome.requests.len(), 20);
    for (number, row) in outcome.requests.iter().enumerate() {
        assert!(row.is_ok(), "{row:?}");
        assert_eq!(row.number, number as u64);
        assert_eq!((row.input_asked, row.input_unit), (64, LengthUnit::Tokens));
        assert_eq!((row.input_counted, row.input_tokens), (Some(64), Some(64)));
        assert_eq!(
            (row.output_tokens, row.output_source),
            (Some(4), Some(TokenSource::Usage))
        );
        assert_eq!((row.events, row.gaps_us.len()), (4, 3));
        assert!(row.ttft_ms().unwrap() > 0.0 && row.e2e_ms() >= row.ttft_ms().unwrap());
    }
    let document = outcome.to_document();
    assert_eq!(
        (
            document["completed"].as_u64(),
            document["total_output_tokens"].as_u64()
        ),
        (Some(20), Some(80))
    );
    assert_eq!(document["total_input_tokens"].as_u64(), Some(20 * 64));

    // No two begin alike, the warm-up included; the same seed asks the same again.
    let first: Vec<String> = std::mem::take(&mut *seen.lock().unwrap());
    let begins: BTreeSet<&str> = first.iter().filter_map(|p| p.split(' ').next()).collect();
    assert_eq!((first.len(), begins.len()), (21, 21));
    load(&target(&server), &plan(20)).await;
    let again: BTreeSet<String> = std::mem::take(&mut *seen.lock().unwrap())
        .into_iter()
        .collect();
    assert_eq!(again, first.into_iter().collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_are_made_before_the_first_request_may_be_sent() {
    let seen: Arc<Mutex<Vec<(bool, Instant)>>> = Arc::default();
    let asked_at = Arc::clone(&seen);
    let server = Server::start(move |asked| {
        let request = asked.path == "/v1/completions";
        asked_at.lock().unwrap().push((request, Instant::now()));
        like_vllm(asked)
    })
    .await;
    let not_before = tokio::time::Instant::now() + Duration::from_secs(2);
    let plan = LoadPlan {
        not_before: Some(not_before),
        ..plan(4)
    };
    let mut told = Vec::new();
    let news = |news: LoadProgress<'_>| match news {
        LoadProgress::WarmingUp => told.push(("warming up", Instant::now())),
        LoadProgress::Measuring => told.push(("measuring", Instant::now())),
        LoadProgress::Row { .. } => {}
    };
    let cancel = CancellationToken::new();
    run_load(&target(&server), &plan, &cancel, news)
        .await
        .unwrap();
    let not_before = not_before.into_std();
    let seen = seen.lock().unwrap();
    let counted_early = seen
        .iter()
        .filter(|(request, at)| !request && *at < not_before);
    assert!(counted_early.count() >= 4, "{seen:?}");
    assert!(
        seen.iter()
            .all(|(request, at)| !request || *at >= not_before)
    );
    let words: Vec<&str> = told.iter().map(|(what, _)| *what).collect();
    assert_eq!(words, ["warming up", "measuring"]);
    assert!(told[0].1 >= not_before, "the phase before lasts until then");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_tokenizes_lengths_are_words_and_that_is_told() {
    let server = Server::start(without_tokenizer(|asked| {
        assert_eq!(text_of(asked, "prompt").split(' ').count(), 64);
        // No usage either, as of an old server.
        Reply::events(&[TOKEN, TOKEN, TOKEN, LAST, DONE])
    }))
    .await;
    let outcome = load(&target(&server), &plan(4)).await;
    let row = &outcome.requests[0];
    assert_eq!(
        (row.input_unit, row.input_tokens),
        (LengthUnit::Words, None)
    );
    assert_eq!(
        (row.output_tokens, row.output_source),
        (Some(4), Some(TokenSource::Events))
    );
    let notes = outcome.notes.join("\n");
    assert!(
        notes.contains("prompt lengths are in words, not tokens"),
        "{notes}"
    );
    assert!(notes.contains("counted by events"), "{notes}");
    assert!(outcome.to_document()["total_input_tokens"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_a_server_refuses_are_left_out() {
    let server = Server::start(without_tokenizer(|asked| {
        if asked.body.get("min_tokens").is_some() {
            return Reply::status(422, "{\"detail\":\"extra fields not permitted\"}");
        }
        if asked.body.get("ignore_eos").is_some() {
            return Reply::status(
                400,
                "{\"error\":{\"message\":\"Unrecognized argument: ignore_eos\"}}",
            );
        }
        good(64)
    }))
    .await;
    let outcome = load(&target(&server), &plan(3)).await;
    assert!(outcome.requests.iter().all(RequestRow::is_ok));
    assert!(
        outcome.notes.iter().any(|n| n.contains("ignore_eos")),
        "{:?}",
        outcome.notes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_and_tgi() {
    let server = Server::start(|asked| match asked.path.as_str() {
        "/tokenize" => match (asked.body.get("messages"), asked.body.get("inputs")) {
            (Some(messages), _) => {
                let text = messages[0]["content"].as_str().unwrap_or_default();
                Reply::json(&format!("{{\"count\":{}}}", tokens(text) + 5))
            }
            (None, Some(inputs)) => {
                let ids: Vec<String> = (0..tokens(inputs.as_str().unwrap_or_default()))
                    .map(|id| format!("{{\"id\":{id}}}"))
                    .collect();
                Reply::json(&format!("[{}]", ids.join(",")))
            }
            _ => Reply::status(422, "no"),
        },
        "/v1/chat/completions" => Reply::events(&[
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n",
            &usage(64, 4),
            DONE,
        ]),
        // No space after the colon, and no `[DONE]`.
        "/generate_stream" => Reply::events(&[
            "data:{\"token\":{\"id\":1,\"text\":\"a\",\"special\":false},\"details\":null}\n\n",
            "data:{\"token\":{\"id\":2,\"text\":\"b\",\"special\":false},\"generated_text\":\"ab\",\"details\":{\"finish_reason\":\"length\",\"generated_tokens\":2,\"input_length\":64}}\n\n",
        ]),
        _ => Reply::status(404, ""),
    })
    .await;
    for (dialect, events) in [(Dialect::Chat, 2), (Dialect::Tgi, 2)] {
        let target = LoadTarget {
            dialect,
            ..target(&server)
        };
        let outcome = load(&target, &plan(3)).await;
        for row in &outcome.requests {
            assert!(row.is_ok(), "{dialect:?}: {row:?}");
            assert_eq!(
                (row.events, row.input_tokens, row.input_counted),
                (events, Some(64), Some(64))
            );
        }
        // The role of a chat is not its first token.
        assert!(outcome.requests.iter().all(|r| r.gaps_us.len() == 1));
    }
}

/// The row of a request to a server that answers the first well, and the others so.
async fn row_of(reply: impl Fn() -> Reply + Send + Sync + 'static) -> RequestRow {
    row_within(reply, Duration::from_secs(60)).await
}

async fn row_within(
    reply: impl Fn() -> Reply + Send + Sync + 'static,
    patience: Duration,
) -> RequestRow {
    let first = Mutex::new(true);
    let server = Server::start(without_tokenizer(move |_| {
        match std::mem::take(&mut *first.lock().unwrap()) {
            true => good(64),
            false => reply(),
        }
    }))
    .await;
    let plan = LoadPlan {
        patience,
        ..plan(1)
    };
    let outcome = load(&target(&server), &plan).await;
    let [row] = &outcome.requests[..] else {
        panic!("one row: {outcome:?}");
    };
    row.clone()
}

#[track_caller]
fn failed(row: &RequestRow, kind: ErrorKind, words: &str) {
    let error = row.error.as_ref().expect("an error");
    assert_eq!(error.kind, kind, "{error:?}");
    assert!(error.message.contains(words), "{error:?}");
    assert!(error.message.chars().count() <= 300, "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_hostile_servers_do_is_a_row_with_its_kind() {
    // Cut off in the middle: of the body, of an event, without the last chunk.
    failed(
        &row_of(|| Reply::events(&[TOKEN, TOKEN]).cut()).await,
        ErrorKind::Cut,
        "",
    );
    failed(
        &row_of(|| Reply::events(&[TOKEN, "data: {\"cho"])).await,
        ErrorKind::Garbage,
        "no event",
    );
    failed(
        &row_of(|| Reply::events(&[TOKEN, TOKEN])).await,
        ErrorKind::Cut,
        "before the answer was complete",
    );
    // No HTTP, no events, other events.
    failed(
        &row_of(|| Reply::raw(b"SSH-2.0-OpenSSH_9.2\r\n")).await,
        ErrorKind::Connect,
        "",
    );
    failed(&row_of(|| Reply::raw(b"")).await, ErrorKind::Connect, "");
    failed(
        &row_of(|| Reply::json("{\"choices\":[]}")).await,
        ErrorKind::Garbage,
        "choices",
    );
    failed(
        &row_of(|| Reply::events(&["data: <html>\n\n"])).await,
        ErrorKind::Garbage,
        "<html>",
    );
    // A key that stands where a quotation ends is not told by half.
    let key = "sk-very-secret-key";
    let body = format!("{:x<290}{key}", format!("{key} ").repeat(8));
    let row = row_of(move || Reply::json(&body)).await;
    failed(&row, ErrorKind::Garbage, "xxx[redacted]");
    let event = format!("data: {:x<70}{key}\n\n", "");
    let row = row_of(move || Reply::events(&[&event])).await;
    failed(&row, ErrorKind::Garbage, "xxx[redacted]");
    // An error in the stream.
    let oom = "data: {\"error\":{\"message\":\"CUDA out of memory\"}}\n\n";
    failed(
        &row_of(move || Reply::events(&[TOKEN, oom])).await,
        ErrorKind::Server,
        "out of memory",
    );
    // A redirect is followed nowhere; an error is quoted, short and without its secrets.
    failed(
        &row_of(|| Reply::status(302, "")).await,
        ErrorKind::Status,
        "HTTP 302",
    );
    let long = format!(
        "wrong key sk-very-secret-key\u{1b}[31m {}",
        "x".repeat(100_000)
    );
    let row = row_of(move || Reply::status(500, &long)).await;
    failed(&row, ErrorKind::Status, "HTTP 500: wrong key");
    let message = row.error.unwrap().message;
    assert!(
        !message.contains("very-secret") && !message.contains('\u{1b}'),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_server_is_done_with_costs_no_request() {
    let asked_so_far = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&asked_so_far);
    let server = Server::start(without_tokenizer(move |_| {
        let mut asked = counter.lock().unwrap();
        *asked += 1;
        // As a server does that takes so many requests over one connection.
        match *asked % 4 {
            0 => Reply::raw(b""),
            _ => good(64),
        }
    }))
    .await;
    let outcome = load(
        &target(&server),
        &LoadPlan {
            arrivals: Arrivals::Closed { concurrency: 1 },
            ..plan(20)
        },
    )
    .await;
    let failed: Vec<_> = outcome
        .requests
        .iter()
        .filter(|r| r.error.is_some())
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(outcome.requests.len(), 20);
    assert!(
        *asked_so_far.lock().unwrap() > 24,
        "nothing was asked twice"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_no_end_are_given_up() {
    let row = row_of(|| Reply::endless(TOKEN)).await;
    failed(&row, ErrorKind::TooLong, "no end");
    assert!(row.gaps_us.len() < 2000);
    failed(
        &row_of(|| Reply::endless("x")).await,
        ErrorKind::TooLong,
        "without an end",
    );
    failed(
        &row_of(|| Reply::endless("data: x\n")).await,
        ErrorKind::TooLong,
        "without an end",
    );
    // Comments are no events: only the size of the stream ends this.
    let comment = format!(": {}\n", "-".repeat(60_000));
    failed(
        &row_of(move || Reply::endless(&comment)).await,
        ErrorKind::TooLong,
        "without an end",
    );
    // A head of no end.
    failed(&row_of(Reply::endless_head).await, ErrorKind::Connect, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_ends_at_the_time_for_one_request() {
    let patience = Duration::from_millis(300);
    let row = row_within(|| Reply::events(&[TOKEN]).then_silence(), patience).await;
    failed(&row, ErrorKind::Timeout, "300ms");
    // What came until then is kept.
    assert_eq!(
        (row.events, row.status, row.first_at_ns.is_some()),
        (1, Some(200), true)
    );
    failed(
        &row_within(|| Reply::raw(b"").then_silence(), patience).await,
        ErrorKind::Timeout,
        "",
    );
    // All was said, and only the end of the body is missing, or chatter follows: an answer.
    let row = row_of(|| good(64).then_silence()).await;
    assert!(row.is_ok() && row.events == 4, "{row:?}");
    let row = row_of(|| Reply::endless(&[TOKEN, LAST, DONE].concat())).await;
    assert!(row.is_ok() && row.events == 2, "{row:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_nothing_is_a_failure_before_the_load() {
    let refused = |status: u16| async move {
        let server =
            Server::start(without_tokenizer(move |_| Reply::status(status, "go away"))).await;
        let stop = CancellationToken::new();
        run_load(&target(&server), &plan(3), &stop, |_| ())
            .await
            .unwrap_err()
    };
    let failure = refused(401).await;
    assert!(
        failure
            .message
            .contains("a test, to /v1/completions: HTTP 401: go away"),
        "{failure}"
    );
    assert!(failure.hints[0].contains("key"));
    assert!(refused(404).await.hints[0].contains("--model"));
    assert!(refused(400).await.hints[0].contains("--input-len"));
    // Nobody listens.
    let nobody = LoadTarget {
        address: "127.0.0.1:1".into(),
        ..target(&Server::start(like_vllm).await)
    };
    let stop = CancellationToken::new();
    let failure = run_load(&nobody, &plan(3), &stop, |_| ())
        .await
        .unwrap_err();
    assert!(failure.message.contains("no connection"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_ends_at_once_with_what_it_has() {
    let count = Mutex::new(0);
    let server = Server::start(without_tokenizer(move |_| {
        let mut count = count.lock().unwrap();
        *count += 1;
        // The warm-up and three more; then a server that hangs in the middle of an answer.
        match *count <= 4 {
            true => good(64),
            false => Reply::events(&[TOKEN]).then_silence(),
        }
    }))
    .await;
    let stop = CancellationToken::new();
    let (target, plan) = (target(&server), plan(100));
    let outcome = run_load(&target, &plan, &stop, |news| {
        if let LoadProgress::Row { done: 3, .. } = news {
            stop.cancel();
        }
    })
    .await
    .unwrap();
    assert!(outcome.cancelled);
    let document = outcome.to_document();
    assert_eq!(
        (document["completed"].as_u64(), document["failed"].as_u64()),
        (Some(3), Some(0))
    );
    assert!(document["cancelled"].as_u64() <= Some(2), "{document:#}");

    // Also before anything is measured.
    let silent = Server::start(|_| Reply::raw(b"").then_silence()).await;
    let target = LoadTarget {
        address: silent.address.clone(),
        ..target
    };
    let stop = CancellationToken::new();
    stop.cancel();
    let outcome = run_load(&target, &plan, &stop, |_| ()).await.unwrap();
    assert!(outcome.cancelled && outcome.requests.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_goes_as_a_header_and_nowhere_else() {
    let server = Server::start(without_tokenizer(|asked| {
        match asked
            .head
            .to_ascii_lowercase()
            .contains("authorization: bearer sk-very-secret-key")
        {
            true => good(64),
            false => Reply::status(401, "no key"),
        }
    }))
    .await;
    let target = LoadTarget {
        key: Some("sk-very-secret-key".into()),
        ..target(&server)
    };
    let outcome = load(&target, &plan(2)).await;
    assert!(outcome.requests.iter().all(RequestRow::is_ok));
    assert!(!format!("{outcome:?} {target:?}").contains("very-secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_loop_waits_for_nobody() {
    // Every answer hangs until every request has come: a client that waits never gets there.
    let all = Arc::new(tokio::sync::Barrier::new(1 + 12));
    let first = Mutex::new(true);
    let gate = Arc::clone(&all);
    let server = Server::start(without_tokenizer(move |_| {
        match std::mem::take(&mut *first.lock().unwrap()) {
            true => good(64),
            false => good(64).after(Arc::clone(&gate)),
        }
    }))
    .await;
    let plan = LoadPlan {
        arrivals: Arrivals::Poisson {
            per_second: 200.0,
            max_in_flight: None,
        },
        ..plan(12)
    };
    let target = target(&server);
    let (outcome, _) = tokio::join!(load(&target, &plan), all.wait());
    assert_eq!(outcome.to_document()["completed"].as_u64(), Some(12));
    let rows = &outcome.requests;
    let schedule = plan.arrivals.schedule_requests(12, plan.seed).unwrap();
    for (row, at) in rows.iter().zip(schedule) {
        assert_eq!(row.intended_at_ns, at.as_nanos() as i64);
        assert!(row.sent_at_ns.unwrap() >= row.intended_at_ns);
    }
    // The first was answered no sooner than the last was sent, and that is its latency.
    let last = rows[11].intended_at_ns as f64 / 1e6;
    assert!(rows[0].ttft_ms().unwrap() >= last);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_counts_for_all_who_were_due_in_it() {
    const STALL_MS: u64 = 500;
    let plan = LoadPlan {
        arrivals: Arrivals::Poisson {
            per_second: 1000.0,
            max_in_flight: Some(1),
        },
        ..plan(40)
    };
    let count = Mutex::new(0);
    let server = Server::start(without_tokenizer(move |_| {
        let mut count = count.lock().unwrap();
        *count += 1;
        // The first after the warm-up stalls.
        match *count == 2 {
            true => good(64).after_ms(STALL_MS),
            false => good(64),
        }
    }))
    .await;
    let outcome = load(&target(&server), &plan).await;
    let stalled = &outcome.requests[0];
    assert!(stalled.e2e_ms() >= STALL_MS as f64);
    for row in &outcome.requests[1..] {
        // All were due in it, were kept back by the client, and count from when they were due.
        let due = row.intended_at_ns as f64 / 1e6;
        assert!(due < STALL_MS as f64, "the schedule follows from the seed");
        assert!(row.sent_at_ns >= Some(stalled.ended_at_ns - 1_000_000));
        assert!(
            row.ttft_ms().unwrap() >= STALL_MS as f64 - due - 1.0,
            "{row:?}"
        );
    }
}
