//! `--metrics ADDRESS`: how the runs go, for Prometheus, over HTTP while they go on.
//!
//! Counters are those of the whole execution, gauges those of the last interval. One thread answers
//! one request after the other; nobody who asks can hold a run up.

use crate::prometheus::{Text, quoted};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steadfast_lab_params::{Operation, Run};
use steadfast_lab_workload::histogram::VDBENCH_EDGES_NS;
use steadfast_lab_workload::{Interval, RunResult};

/// How often the end of everything is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// Longest that one request may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request that is read.
const REQUEST_MAX: u64 = 8 << 10;

/// The endpoint. It ends when dropped.
pub(crate) struct Metrics {
    text: Arc<Mutex<String>>,
    end: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Operations, bytes, seconds of response time, and counts of each bucket, since the start.
    totals: BTreeMap<&'static str, (u64, u64, f64, Vec<u64>)>,
    errors: u64,
    finished: u64,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Metrics {
    /// Listens.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub(crate) fn listen(address: &str) -> io::Result<Metrics> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (text, end) = (Arc::new(Mutex::new(String::new())), Arc::new(AtomicBool::new(false)));
        let (shown, ended) = (text.clone(), end.clone());
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(move || {
            while !ended.load(Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let body = shown.lock().map(|text| text.clone()).unwrap_or_default();
                        // A client that does not read misses the answer.
                        let _ = answer(stream, &body);
                    }
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        })?;
        let mut metrics = Metrics {
            text,
            end,
            thread: Some(thread),
            totals: BTreeMap::new(),
            errors: 0,
            finished: 0,
            address,
        };
        metrics.show(None);
        Ok(metrics)
    }

    /// An interval is over.
    pub(crate) fn interval(&mut self, run: &Run, interval: &Interval) {
        for operation in Operation::ALL {
            let times = interval.groups.operation(operation);
            if times.count > 0 {
                let total = self.totals.entry(operation.name()).or_default();
                total.0 += times.count;
                total.1 += times.bytes;
                total.2 += times.sum_ns as f64 / 1e9;
                let counts = times.vdbench_buckets();
                total.3.resize(counts.len(), 0);
                total.3.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
        self.show(Some((run, interval)));
    }

    /// A run is over.
    pub(crate) fn finished(&mut self, result: &RunResult) {
        self.errors += result.errors;
        self.finished += 1;
        self.show(None);
    }

    fn show(&mut self, now: Option<(&Run, &Interval)>) {
        let mut out = Text::default();
        out.family("vdbench_runs_finished_total", "counter", "Runs that are over.");
        out.value("vdbench_runs_finished_total", "", self.finished as f64);
        out.family("vdbench_errors_total", "counter", "Operations that failed, of runs that are over.");
        out.value("vdbench_errors_total", "", self.errors as f64);
        for (name, about) in [
            ("vdbench_operations_total", "Operations since the start."),
            ("vdbench_bytes_total", "Bytes they moved."),
            ("vdbench_response_seconds_total", "Sum of their response times."),
        ] {
            out.family(name, "counter", about);
            for (operation, (count, bytes, seconds, _)) in &self.totals {
                let value = match name {
                    "vdbench_operations_total" => *count as f64,
                    "vdbench_bytes_total" => *bytes as f64,
                    _ => *seconds,
                };
                out.value(name, &format!("operation=\"{operation}\""), value);
            }
        }
        let name = "vdbench_latency_seconds";
        out.family(name, "histogram", "Response times since the start.");
        for (operation, (count, _, seconds, buckets)) in &self.totals {
            let label = format!("operation=\"{operation}\"");
            let edges = VDBENCH_EDGES_NS.iter().map(|edge| *edge as f64 / 1e9);
            let buckets: Vec<(f64, u64)> = edges.zip(buckets.iter().copied()).collect();
            out.histogram(name, &label, &buckets, *count, *seconds);
        }
        if let Some((run, interval)) = now {
            let label = format!("run=\"{}\",loops=\"{}\"", quoted(&run.label), quoted(&run.loops));
            let line = &interval.line;
            let rate = line.requested.count as f64 / run.interval as f64;
            for (name, about, value) in [
                ("vdbench_interval", "Number of the last interval of the run.", f64::from(line.number)),
                (
                    "vdbench_warmup",
                    "1 while it belongs to the warm-up.",
                    f64::from(u8::from(interval.warmup)),
                ),
                ("vdbench_rate", "Operations a second that were asked for, in the last interval.", rate),
                (
                    "vdbench_cpu_ratio",
                    "Processors of the machine in use in the last interval, 0 to 1.",
                    line.cpu.used / 100.0,
                ),
            ] {
                out.family(name, "gauge", about);
                out.value(name, &label, value);
            }
            let name = "vdbench_response_seconds";
            out.family(name, "gauge", "Response times of the last interval, by operation and quantile.");
            for (operation, f) in &line.operations {
                let [p50, p90, p99, p999] = f.percentiles();
                let all = [("0.5", p50), ("0.9", p90), ("0.99", p99), ("0.999", p999), ("1", Some(f.max_ms))];
                for (quantile, ms) in all.into_iter().filter_map(|(quantile, ms)| Some((quantile, ms?))) {
                    let label = format!("{label},operation=\"{}\",quantile=\"{quantile}\"", operation.name());
                    out.value(name, &label, ms / 1e3);
                }
            }
        }
        if let Ok(mut text) = self.text.lock() {
            *text = out.into_text();
        }
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.end.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn answer(stream: TcpStream, body: &str) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.take(REQUEST_MAX));
    let mut first = String::new();
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match (first.starts_with("GET "), path) {
        (true, "/metrics" | "/") => ("200 OK", body),
        (true, _) => ("404 Not Found", "there is /metrics\n"),
        _ => ("405 Method Not Allowed", "only GET\n"),
    };
    let mut stream = reader.into_inner().into_inner();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_all_up_to_each_edge() {
        let mut metrics = Metrics::listen("127.0.0.1:0").unwrap();
        // Two below 20 us, one between 20 and 40 us, one above 2 s.
        let mut buckets = vec![0; VDBENCH_EDGES_NS.len() + 1];
        (buckets[0], buckets[1], buckets[VDBENCH_EDGES_NS.len()]) = (2, 1, 1);
        metrics.totals.insert("read", (4, 16384, 3.5, buckets));
        metrics.show(None);
        let text = metrics.text.lock().unwrap().clone();
        assert!(text.contains("# TYPE vdbench_latency_seconds histogram\n"), "{text}");
        for (edge, count) in [("0.00002", 2), ("0.00004", 3), ("2", 3), ("+Inf", 4)] {
            let line =
                format!("vdbench_latency_seconds_bucket{{operation=\"read\",le=\"{edge}\"}} {count}\n");
            assert!(text.contains(&line), "no {line} in {text}");
        }
        assert!(text.contains("vdbench_latency_seconds_sum{operation=\"read\"} 3.5\n"), "{text}");
        assert!(text.contains("vdbench_latency_seconds_count{operation=\"read\"} 4\n"), "{text}");
    }
}
