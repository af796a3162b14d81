//! The pages, looked at in a real browser: Chromium without a window, asked over its own protocol
//! through two pipes. Skipped with a word where no Chromium is installed.

use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;
use steadfast_lab_experiment::beside;
use steadfast_lab_experiment::{Context, comparison, html, report};

/// A browser that says nothing for so long is broken; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(120);
/// Width and height of a phone, and of a screen.
const SCREENS: [(u32, u32); 2] = [(390, 844), (1280, 900)];

/// Faults of the page that is shown, one sentence each.
const LOOK: &str = r#"(() => {
  const wrong = [], name = e => `<${e.tagName.toLowerCase()} class="${e.getAttribute('class') || ''}">`;
  const width = document.documentElement.clientWidth;
  if (width > WIDTH) wrong.push(`the page makes itself ${width} wide on a screen of WIDTH`);
  if (document.documentElement.scrollWidth > width) {
    wrong.push(`the page is ${document.documentElement.scrollWidth} wide on a screen of ${width}`);
    for (const e of document.querySelectorAll('body *')) {
      const clipped = e.closest('pre, .scroll, [tabindex]');
      if (!clipped && e.getBoundingClientRect().right > width + 1) { wrong.push(`${name(e)} is too wide`); break; }
    }
  }
  for (const e of document.querySelectorAll('.plot .ends span, .hbar em')) {
    if (e.scrollWidth > e.clientWidth + 1) wrong.push(`'${e.innerText.trim()}' in ${name(e)} runs over its end`);
  }
  for (const e of document.querySelectorAll('figure')) {
    const caption = e.querySelector('figcaption');
    if (!caption || !caption.innerText.trim()) wrong.push(`${name(e)} has no text beside it`);
    if (!e.querySelector('svg, table, .hbar b, [role=img]')) wrong.push(`${name(e)} shows nothing`);
  }
  for (const e of document.querySelectorAll('svg, img')) {
    const told = e.getAttribute('aria-label') || e.getAttribute('alt') || (e.querySelector('title') || {}).textContent;
    // The sample of a line in a legend stands before its name.
    const beside = e.parentElement && e.parentElement.innerText.trim();
    if (!(told || '').trim() && !beside) wrong.push(`${name(e)} is told in no words`);
    if (e.getAttribute('role') === 'img' && !e.closest('figure, td, li, p')) wrong.push(`${name(e)} stands alone`);
  }
  const numbers = text => (text.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
  const ground = e => {
    for (; e; e = e.parentElement) {
      const colour = numbers(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > .5) return colour;
    }
    return [255, 255, 255];
  };
  for (const e of document.querySelectorAll('main *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest('svg') || !e.getClientRects().length) continue;
    const [a, b] = [light(numbers(getComputedStyle(e).color)), light(ground(e))];
    const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (contrast < 3) { wrong.push(`'${e.textContent.trim().slice(0, 30)}' in ${name(e)} has a contrast of ${contrast.toFixed(2)}`); }
  }
  const rest = [...new Set(wrong)].slice(0, 12);
  return JSON.stringify({ wrong: rest, ground: light(ground(document.body)), figures: document.querySelectorAll('figure').length });
})()"#;

/// A browser and the two pipes to it.
struct Browser {
    child: Child,
    to: File,
    from: mpsc::Receiver<Value>,
    number: u64,
    session: String,
    /// Errors of the page.
    complaints: Vec<String>,
    _home: tempfile::TempDir,
}

impl Browser {
    /// `None` if none is installed.
    fn start() -> Option<Browser> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let program = std::env::split_paths(&path)
            .flat_map(|folder| names.map(|name| folder.join(name)))
            .find(|program| program.exists())?;
        let home = tempfile::tempdir().unwrap();
        let pipes = ["to", "from"].map(|name| home.path().join(name));
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        // The shell opens them as what Chromium reads from and writes to.
        let child = Command::new("sh")
            .arg("-c")
            .arg("to=$1 from=$2; shift 2; exec \"$@\" 3<\"$to\" 4>\"$from\"")
            .arg("sh")
            .args(&pipes)
            .arg(program)
            .args(["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--disable-extensions"])
            .arg(format!("--user-data-dir={}", home.path().join("profile").display()))
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = fs::OpenOptions::new().write(true).open(&pipes[0]).unwrap();
        let answers = File::open(&pipes[1]).unwrap();
        let (sender, from) = mpsc::channel();
        std::thread::spawn(move || {
            for message in BufReader::new(answers).split(0).map_while(Result::ok) {
                let Ok(value) = serde_json::from_slice(&message) else { break };
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let (number, session, complaints) = (0, String::new(), Vec::new());
        let mut browser = Browser { child, to, from, number, session, complaints, _home: home };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attached =
            browser.ask("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.ask(domain, json!({}));
        }
        Some(browser)
    }

    /// Sends a command and waits for its answer.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        loop {
            let answer = self.hear(method);
            if answer["id"].as_u64() == Some(self.number) {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// The next message; complaints are kept.
    fn hear(&mut self, why: &str) -> Value {
        let message = self.from.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("Chromium, {why}: {e}"));
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(params["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") if params["type"] != "log" => {
                self.complaints.push(params["args"].to_string());
            }
            Some("Log.entryAdded") => self.complaints.push(params["entry"]["text"].to_string()),
            _ => {}
        }
        message
    }

    /// Shows a page and says what is wrong with it; how light its ground is, and how many figures
    /// it has.
    fn look(&mut self, page: &Path, (width, height): (u32, u32), scheme: &str) -> (Vec<String>, f64, u64) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.ask("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": features}));
        self.complaints.clear();
        self.ask("Page.navigate", json!({"url": format!("file://{}", page.display())}));
        while self.hear("loading a page")["method"] != "Page.loadEventFired" {}
        let found = self.ask(
            "Runtime.evaluate",
            json!({"expression": LOOK.replace("WIDTH", &width.to_string()), "returnByValue": true}),
        );
        let text = found["result"]["value"].as_str().unwrap_or_else(|| panic!("{found}"));
        let found: Value = serde_json::from_str(text).unwrap();
        let mut wrong: Vec<String> =
            found["wrong"].as_array().unwrap().iter().map(|line| line.to_string()).collect();
        wrong.append(&mut self.complaints);
        (wrong, found["ground"].as_f64().unwrap(), found["figures"].as_u64().unwrap())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every kind of page: name, file, least number of figures.
fn pages(dir: &Path) -> Vec<(&'static str, PathBuf, u64)> {
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let pair = report::parse(include_str!("../testdata/report.v1.json")).unwrap();
    let cow = beside::report::parse(include_str!("../testdata/beside.v1.json")).unwrap().unwrap();
    let compared = include_str!("../testdata/compare.v1.json");
    let compared = comparison::parse(compared).unwrap().unwrap();
    let mut out = vec![
        ("an experiment on two arms", write("pair.html", html::render(&pair)), 4),
        ("one file on many file systems", write("beside.html", beside::render(&cow)), 4),
        ("any file on any file systems", write("compare.html", comparison::render(&compared)), 4),
    ];
    for (name, option) in [("raw", "-t"), ("files", "-tf")] {
        let place = dir.join(name);
        let args = [option, "-o", place.to_str().unwrap(), "-e", "4", "-i", "1"].map(Into::into);
        let (mut console, mut errors) = (Vec::new(), Vec::new());
        let stop = AtomicBool::new(false);
        let status = steadfast_lab_report::vdbench_main(&args, &stop, &mut console, &mut errors);
        assert_eq!(status, 0, "{}", String::from_utf8_lossy(&errors));
        out.push((name, place.join("report.html"), 2));
    }
    // The page that leads to all, here with an experiment that could not be run.
    let site = dir.join("site");
    let words = ["run", "all", "--only", "compression,engine", "--out", site.to_str().unwrap()];
    let context = Context { steadfast: PathBuf::from("/no/such/program"), version: "1".to_owned() };
    steadfast_lab_experiment::main(&words.map(str::to_owned), &context);
    out.push(("the site", site.join("index.html"), 0));
    out
}

#[test]
fn every_page_fits_a_phone_is_told_in_words_and_has_no_errors_in_light_and_dark() {
    let Some(mut browser) = Browser::start() else {
        println!("SKIPPED pages in a browser: no Chromium is installed: apt-get install chromium");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (name, page, least) in pages(dir.path()) {
        for screen in SCREENS {
            for (scheme, dark) in [("light", false), ("dark", true)] {
                let (found, ground, figures) = browser.look(&page, screen, scheme);
                let at = format!("{name}, {} wide, {scheme}", screen.0);
                wrong.extend(found.into_iter().map(|line| format!("{at}: {line}")));
                assert!(figures >= least, "{at}: {figures} figures");
                assert_eq!(ground < 0.2, dark, "{at}: the ground has a lightness of {ground}");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // And it sees what is wrong.
    let bad = dir.path().join("bad.html");
    let text = "<!DOCTYPE html><html><body><main><div style=\"width:900px\">wide</div><figure><svg></svg></figure>\
                <p style=\"color:#eee;background:#fff\">pale</p></main><script>nothing.there()</script></body></html>";
    fs::write(&bad, text).unwrap();
    let (found, ..) = browser.look(&bad, SCREENS[0], "light");
    for what in ["wide on a screen of 390", "no text beside it", "contrast of", "ReferenceError"] {
        assert!(found.iter().any(|line| line.contains(what)), "{what}: {found:?}");
    }
}
