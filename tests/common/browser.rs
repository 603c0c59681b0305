//! A Chromium of the tests' own, spoken to over its two pipes: no port, and so no other page that
//! could talk to it.
#![allow(dead_code, missing_docs, clippy::print_stderr)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A browser that says nothing for so long is taken for dead.
const PATIENCE: Duration = Duration::from_secs(120);

/// Chromium with one page.
pub struct Browser {
    child: Child,
    say: ChildStdin,
    hear: Receiver<Value>,
    session: String,
    last: u64,
    /// What happened, in order.
    events: VecDeque<Value>,
    folder: tempfile::TempDir,
    /// The last page that was opened.
    page: String,
    /// The left button is down.
    pressed: bool,
}

impl Browser {
    pub fn start() -> Browser {
        let folder = tempfile::tempdir().unwrap();
        // It reads what it is told from 3 and answers on 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec chromium \"$@\" 3<&0 4>&1 0</dev/null 1>&2",
                "sh",
            ])
            .args(["--headless=new", "--no-sandbox", "--remote-debugging-pipe"])
            .args(["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args([
                "--disable-background-networking",
                "--force-device-scale-factor=1",
            ])
            .args(["--hide-scrollbars", "--window-size=1280,900"])
            .arg(format!(
                "--user-data-dir={}",
                folder.path().join("profile").display()
            ))
            .env("HOME", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let say = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let (told, hear) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while answers.read_until(0, &mut bytes).is_ok_and(|n| n > 0) {
                bytes.pop();
                let Ok(message) = serde_json::from_slice(&bytes) else {
                    return;
                };
                bytes.clear();
                if told.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            child,
            say,
            hear,
            session: String::new(),
            last: 0,
            events: VecDeque::new(),
            folder,
            page: String::new(),
            pressed: false,
        };
        let target = browser.command("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.command("Target.attachToTarget", target);
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.command(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Where pages may lie.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Opens a file of the folder and waits until it has loaded.
    pub fn open(&mut self, file: &str) {
        self.page = format!("file://{}", self.folder.path().join(file).display());
        let url = json!({ "url": self.page });
        self.command("Page.navigate", url);
        while !self
            .events
            .iter()
            .any(|e| e["method"] == "Page.loadEventFired")
        {
            let message = self.next();
            self.events.push_back(message);
        }
    }

    pub fn command(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.say.write_all(&bytes).unwrap();
        loop {
            let answer = self.next();
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push_back(answer);
        }
    }

    fn next(&mut self) -> Value {
        self.hear.recv_timeout(PATIENCE).expect("the browser lives")
    }

    /// What an expression is in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.command("Runtime.evaluate", asked);
        let wrong = &answer["exceptionDetails"];
        assert!(wrong.is_null(), "{expression}: {wrong}");
        answer["result"]["value"].clone()
    }

    /// Waits until what was asked for is drawn.
    pub fn settle(&mut self) {
        self.value(
            "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(0))))",
        );
    }

    /// A place in an element: a share of its width, half its height, in whole pixels. It is
    /// brought into view first.
    pub fn place(&mut self, element: &str, share: f64) -> (f64, f64) {
        self.value(&format!(
            "{element}.scrollIntoView({{ block: 'center', behavior: 'instant' }})"
        ));
        self.settle();
        let place = self.value(&format!(
            "(b => [b.left, b.width, b.top, b.height])({element}.getBoundingClientRect())"
        ));
        let n = |i: usize| place[i].as_f64().unwrap();
        ((n(0) + n(1) * share).round(), (n(2) + n(3) / 2.0).round())
    }

    pub fn pointer(&mut self, kind: &str, x: f64, y: f64) {
        match kind {
            "mousePressed" => self.pressed = true,
            "mouseReleased" => self.pressed = false,
            _ => {}
        }
        let moved = kind == "mouseMoved";
        let button = if moved && !self.pressed {
            "none"
        } else {
            "left"
        };
        let held = u8::from(self.pressed);
        let clicks = u8::from(!moved);
        let event = json!({
            "type": kind, "x": x, "y": y, "button": button, "buttons": held, "clickCount": clicks,
        });
        self.command("Input.dispatchMouseEvent", event);
    }

    pub fn wheel(&mut self, x: f64, y: f64, by: f64) {
        let event = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": by });
        self.command("Input.dispatchMouseEvent", event);
    }

    pub fn key(&mut self, key: &str, code: &str, text: &str) {
        let number = match key {
            "Enter" => 13,
            "Escape" => 27,
            "ArrowRight" => 39,
            other => other.bytes().next().map_or(0, u32::from),
        };
        let event = json!({ "type": "keyDown", "key": key, "code": code, "text": text, "windowsVirtualKeyCode": number });
        self.command("Input.dispatchKeyEvent", event);
        let event =
            json!({ "type": "keyUp", "key": key, "code": code, "windowsVirtualKeyCode": number });
        self.command("Input.dispatchKeyEvent", event);
    }

    /// Nothing was complained about, asked for or opened but the page itself.
    pub fn quiet(&mut self) {
        self.command("Page.getFrameTree", json!({}));
        for event in &self.events {
            let params = &event["params"];
            match event["method"].as_str().unwrap_or("") {
                "Runtime.exceptionThrown" | "Page.javascriptDialogOpening" | "Log.entryAdded" => {
                    panic!("{event}")
                }
                "Runtime.consoleAPICalled" => panic!("{params}"),
                "Network.requestWillBeSent" => {
                    let url = params["request"]["url"].as_str().unwrap();
                    assert!(url == self.page || url == "data:,", "asked for {url}");
                }
                _ => {}
            }
        }
    }

    /// What is out of view is not laid out otherwise.
    pub fn lay_out_all(&mut self) {
        self.value(
            "(s => s.insertRule('section { content-visibility: visible !important }', \
             s.cssRules.length))(document.styleSheets[0])",
        );
    }

    /// A picture of the whole page where pictures are wanted.
    pub fn picture(&mut self, name: &str) {
        if std::env::var_os("PLIMSOLL_TEST_PICTURES").is_some() {
            let whole = name != "drawer" && name != "zoomed";
            let mut asked = json!({ "format": "png" });
            if whole {
                self.lay_out_all();
                let size =
                    self.command("Page.getLayoutMetrics", json!({}))["cssContentSize"].clone();
                asked["captureBeyondViewport"] = json!(true);
                asked["clip"] = json!({
                    "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1,
                });
            }
            let picture = self.command("Page.captureScreenshot", asked);
            let data = picture["data"].as_str().unwrap().to_owned();
            self.keep(&format!("{name}.png"), &data);
        }
    }

    /// A file where pictures are wanted.
    pub fn keep(&self, name: &str, base64: &str) {
        if let Some(folder) = std::env::var_os("PLIMSOLL_TEST_PICTURES") {
            let bytes = STANDARD.decode(base64).unwrap();
            std::fs::write(Path::new(&folder).join(name), bytes).unwrap();
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
