//! Master and agents as programs of their own.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_steadfast-vdbench");
/// Nothing is measured by it: what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

struct Agent {
    child: Child,
    address: String,
    said: mpsc::Receiver<String>,
}

impl Agent {
    fn start(secret: &Path) -> Agent {
        let mut child = Command::new(PROGRAM)
            .args(["agent", "--listen", "127.0.0.1:0", "--secret"])
            .arg(secret)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, said) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(sender.send(line))));
        let mut agent = Agent { child, address: String::new(), said };
        let line = agent.hears("listens at");
        agent.address = line.rsplit(' ').next().unwrap().trim_end_matches('.').to_owned();
        agent
    }

    fn hears(&self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            let line = self.said.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())).unwrap();
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn secret(dir: &Path, name: &str) -> std::path::PathBuf {
    let path = dir.join(name);
    let made = Command::new(PROGRAM).arg("secret").arg(&path).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(!String::from_utf8_lossy(&made.stdout).contains(fs::read_to_string(&path).unwrap().trim()));
    path
}

fn master(dir: &Path, text: &str, options: &[&str]) -> Command {
    let file = dir.join("many.parm");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.arg("-f").arg(file).arg("-o").arg(dir.join("out")).args(options);
    command.env_remove("STEADFAST_BENCH_SECRET");
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_file_with_two_hosts_is_one_result_and_an_agent_that_is_killed_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let key = secret(dir.path(), "secret");
    let (one, mut two) = (Agent::start(&key), Agent::start(&key));
    let parameters = |elapsed: u32| {
        format!(
            "hd=one,system={}\nhd=two,system={}\nfsd=f,anchor={},files=40,size=16k,shared=yes\n\
             fwd=w,fsd=f,operation=read,xfersize=4k,fileselect=random,threads=4\n\
             rd=r,fwd=w,fwdrate=200,format=yes,elapsed={elapsed},interval=1\n",
            one.address,
            two.address,
            dir.path().join("tree").display()
        )
    };
    let key_word = key.to_str().unwrap();
    let output = master(dir.path(), &parameters(3), &["--secret", key_word]).output().unwrap();
    let console = text(&output);
    assert_eq!(output.status.code(), Some(0), "{console}");
    assert!(console.contains("Vdbench execution completed successfully"), "{console}");
    for host in ["host=one: ", "host=two: "] {
        assert!(console.contains(host) && console.contains("operations a second"), "{console}");
    }
    // Each host has a page, a part of report.json, and a row of report.html; together they are the
    // whole.
    let out = dir.path().join("out");
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(out.join("report.json")).unwrap()).unwrap();
    let run = &report["runs"][1];
    let count = |part: &serde_json::Value| part["requested"]["count"].as_u64().unwrap();
    let parts = run["hosts"].as_object().unwrap();
    assert_eq!(parts.keys().collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(parts.values().map(count).sum::<u64>(), count(&run["average"]), "{run:#}");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("Host by host"), "{page}");
    for host in ["one", "two"] {
        assert!(count(&parts[host]) > 0 && page.contains(&format!("<td>{host}</td>")), "{run:#}");
        let page = fs::read_to_string(out.join(format!("{host}.html"))).unwrap();
        assert!(page.contains(&format!("Host report for host={host}")) && page.contains("avg_2-3"), "{page}");
        let times = fs::read_to_string(out.join(format!("{host}.histogram.html"))).unwrap();
        assert!(times.contains("cum%%"), "{times}");
        for other in ["summary.html", "skew.html"] {
            assert!(fs::read_to_string(out.join(other)).unwrap().contains(host), "{other}");
        }
    }
    let word = fs::read_to_string(&key).unwrap();
    for entry in fs::read_dir(dir.path().join("out")).unwrap().map(Result::unwrap) {
        let page = fs::read(entry.path()).unwrap();
        assert!(!String::from_utf8_lossy(&page).contains(word.trim()), "the secret is in {:?}", entry.path());
    }
    // The same again without end, and one of them is killed.
    let mut child = master(dir.path(), &parameters(600), &["--secret", key_word])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut console: Vec<String> = Vec::new();
    // Two intervals of the run itself.
    let interval = |line: &String| line.split_whitespace().nth(1) == Some("2");
    let started = |lines: &[String]| lines.iter().any(|line| line.contains("Starting RD=r;"));
    for line in lines.by_ref() {
        console.push(line);
        if started(&console) && console.last().is_some_and(interval) {
            break;
        }
    }
    two.child.kill().unwrap();
    console.extend(lines);
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    let status = child.wait().unwrap();
    let said = console.join("\n");
    assert_eq!(status.code(), Some(157), "{said}\n{errors}");
    assert!(said.contains("Slave two-0 prematurely terminated."), "{said}");
    assert!(
        errors.contains("Slave two-0 prematurely terminated.") && errors.contains("in the reports"),
        "{errors}"
    );
    let report = fs::read_to_string(dir.path().join("out/report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2, "the format, and as much of the run as there was");
    assert!(said.lines().any(|line| line.contains("avg_2-")), "{said}");
    one.hears("ended: ");
}

#[test]
fn no_secret_another_secret_and_nobody_there_are_refused_with_what_to_type() {
    let dir = tempfile::tempdir().unwrap();
    let (key, other) = (secret(dir.path(), "secret"), secret(dir.path(), "other"));
    let one = Agent::start(&key);
    let parameters =
        format!("hd=one,system={}\nsd=s,lun=/tmp/x,size=1m\nrd=r,sd=s,iorate=max\n", one.address);
    let refused = |options: &[&str], text_of_file: &str| {
        let output = master(dir.path(), text_of_file, options).output().unwrap();
        assert_eq!(output.status.code(), Some(157), "{}", text(&output));
        text(&output)
    };
    let said = refused(&[], &parameters);
    assert!(said.contains("steadfast bench secret FILE") && said.contains("--secret FILE"), "{said}");
    let said = refused(&["--secret", other.to_str().unwrap()], &parameters);
    assert!(said.contains("host=one (127.0.0.1:") && said.contains("the secrets differ"), "{said}");
    one.hears("the secrets differ");
    let said = refused(&["--secret", "/no/such/file"], &parameters);
    assert!(said.contains("/no/such/file"), "{said}");
    let nobody = parameters.replace(&one.address, "127.0.0.1:1");
    let said = refused(&["--secret", key.to_str().unwrap()], &nobody);
    assert!(
        said.contains("no agent answers at 127.0.0.1:1") && said.contains("steadfast bench agent"),
        "{said}"
    );
    // In the environment it is as good as in a file.
    let mut command = master(dir.path(), &parameters, &[]);
    let word = fs::read_to_string(&other).unwrap();
    let output = command.env("STEADFAST_BENCH_SECRET", word.trim()).output().unwrap();
    assert!(text(&output).contains("the secrets differ"), "{}", text(&output));
    // A simulation needs no hosts.
    let output = master(dir.path(), &nobody, &["-s"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    for (words, why) in [
        (vec!["agent", "--listen", "here"], "--listen here"),
        (vec!["agent", "--listen", "127.0.0.1:5570", "--secret", "/no/such/file"], "/no/such/file"),
        (vec!["secret"], "usage: vdbench secret"),
        (vec!["secret", key.to_str().unwrap()], "exists"),
        (vec!["csim", "x"], "csim is not carried out"),
    ] {
        let output = Command::new(PROGRAM).args(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(157), "{words:?}");
        assert!(text(&output).contains(why), "{words:?}: {}", text(&output));
    }
}
