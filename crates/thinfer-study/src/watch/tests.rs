//! The page over HTTP, as a browser and as somebody else would ask for it.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use tempfile::TempDir;
use thinfer_core::device::Device;
use thinfer_core::train::Silent;
use thinfer_data::files::claim;
use thinfer_run::config::Config;
use thinfer_run::run::{Control, Mode, train};

use super::*;

/// A run of six epochs.
fn trained(folder: &Path, more: &[&str]) {
    let small = ["data.columns=5", "data.train_rows=60", "data.validation_rows=10"];
    let rest = ["data.test_rows=10", "model.hidden=[3]", "train.epochs=6"];
    let all = small.iter().chain(&rest).chain(more).map(|set| (*set).to_owned());
    let config = Config::parse("", &all.collect::<Vec<_>>()).unwrap();
    let stop = AtomicBool::new(false);
    let control =
        Control { stop: &stop, observer: &Silent, device: Device::Cpu, device_name: "cpu" };
    train(&config, folder, Mode::New, &control).unwrap();
}

/// A server for the runs below a folder, until the end of `ask`.
fn served<T>(root: &Path, ask: impl FnOnce(SocketAddr) -> T) -> T {
    let server = Server::bind(Runs::below(&[root.to_owned()]).unwrap(), 0).unwrap();
    let (stopper, address) = (server.stopper(), server.address());
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve());
        // Also where a check fails, so that the failure is shown.
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ask(address)));
        stopper.stop();
        serving.join().unwrap();
        asked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Sends some bytes and gives all that comes back.
fn sent(address: SocketAddr, bytes: &[u8]) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(bytes).unwrap();
    connection.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

fn got(address: SocketAddr, path: &str) -> String {
    sent(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
}

fn got_json(address: SocketAddr, path: &str) -> Value {
    let answer = got(address, path);
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"),
        "{answer}"
    );
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn runs() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    trained(&root.path().join("one"), &["chains=2"]);
    root
}

#[test]
fn a_run_is_listed_and_has_curves() {
    let root = runs();
    let run = root.path().join("one");
    served(root.path(), |address| {
        let list = got_json(address, "/api/runs");
        let [one] = &list["runs"].as_array().unwrap()[..] else { panic!("{list}") };
        assert!(one["name"].as_str().unwrap().ends_with("one"));
        assert_eq!(
            (&one["state"], &one["epoch"], &one["epochs"]),
            (&json!("stopped"), &json!(6), &json!(6))
        );
        assert!(one["loss"].as_f64().is_some() && one["pruned"].as_f64().is_some(), "{one}");
        let curves = got_json(address, &format!("/api/runs/{}", one["id"].as_str().unwrap()));
        assert_eq!(curves["chains"].as_array().unwrap().len(), 2);
        assert_eq!(curves["chains"][1]["epoch"], json!([1, 2, 3, 4, 5, 6]));
        assert_eq!(curves["chains"][0]["loss"].as_array().unwrap().len(), 6);

        // Somebody is at work in it again, then it is scored, then something is wrong with it.
        let state = || got_json(address, "/api/runs")["runs"][0]["state"].clone();
        let held = claim(&run).unwrap();
        assert_eq!(state(), "evaluating");
        drop(held);
        fs::write(run.join("evaluation.json"), r#"{"posterior": {"mse": 0.25}}"#).unwrap();
        let one = &got_json(address, "/api/runs")["runs"][0];
        assert_eq!((&one["state"], &one["metric"]["value"]), (&json!("finished"), &json!(0.25)));
        fs::write(run.join("run.json"), "{").unwrap();
        let one = &got_json(address, "/api/runs")["runs"][0];
        assert_eq!(one["state"], "unreadable");
        assert!(one["message"].as_str().unwrap().contains("run.json"), "{one}");
    });
}

#[test]
fn a_run_that_grows_is_read_again() {
    let root = runs();
    let table = root.path().join("one/history.csv");
    let whole = fs::read_to_string(&table).unwrap();
    let first: Vec<&str> = whole.split_inclusive('\n').take(3).collect();
    fs::write(&table, first.concat()).unwrap();
    served(root.path(), |address| {
        let one = || got_json(address, "/api/runs")["runs"][0].clone();
        let before = one();
        assert_eq!(before["epoch"], 2);
        fs::write(&table, &whole).unwrap();
        let after = one();
        assert_eq!(after["epoch"], 6);
        assert_ne!(before["version"], after["version"]);
        // A run that is made later is found as well.
        trained(&root.path().join("below/two"), &["seed=2"]);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert_eq!(got_json(address, "/api/runs")["runs"].as_array().unwrap().len(), 2);
    });
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let root = tempfile::tempdir().unwrap();
    served(root.path(), |address| {
        for (path, kind) in [
            ("/", "text/html"),
            ("/watch.css", "text/css"),
            ("/watch.js", "text/javascript"),
            ("/icon.svg", "image/svg+xml"),
        ] {
            let answer = got(address, path);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer}");
            assert!(answer.contains(&format!("Content-Type: {kind}")), "{path}");
            assert!(answer.contains("Content-Security-Policy: default-src 'none';"), "{path}");
            assert!(answer.contains("X-Content-Type-Options: nosniff"), "{path}");
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            let local = body.replace("http://www.w3.org/2000/svg", "");
            for outside in ["http:", "https:", "@import", "url(", "innerHTML", "eval("] {
                assert!(!local.contains(outside), "{path} has {outside}");
            }
        }
        let list = got_json(address, "/api/runs");
        assert_eq!(list["runs"], json!([]), "a folder without runs is no mistake");
    });
}

#[test]
fn only_this_machine_reads_and_nobody_writes() {
    let root = runs();
    served(root.path(), |address| {
        let status = |request: &str| {
            let answer = sent(address, request.as_bytes());
            answer.split_whitespace().nth(1).unwrap_or("none").to_owned()
        };
        let from = |host: &str| status(&format!("GET /api/runs HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let port = address.port();
        for host in [&format!("localhost:{port}"), "LOCALHOST", "127.0.0.1:8080"] {
            assert_eq!(from(host), "200", "{host}");
        }
        // A name that somebody else made to point here.
        for host in [
            "evil.example",
            &format!("evil.example:{port}"),
            "127.0.0.1.evil.example",
            "",
            "localhost:x",
            "user@localhost",
            "[::1]x",
        ] {
            assert_eq!(from(host), "403", "{host}");
        }
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "400", "no host");
        assert_eq!(
            status("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"),
            "400"
        );
        for method in ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"] {
            let request =
                format!("{method} / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
            let answer = sent(address, request.as_bytes());
            assert!(
                answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nAllow: GET\r\n"),
                "{answer}"
            );
        }
        for path in [
            "/../one/run.json",
            "/%2e%2e/one/run.json",
            "/one/run.json",
            "/api/runs/..",
            "/api/runs/",
            "/api/runs/../../one/history.csv",
            "//etc/passwd",
            "/watch.js/",
            "/api/runs/0000000000000000",
        ] {
            assert_eq!(
                status(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")),
                "404",
                "{path}"
            );
        }
        for broken in [
            "",
            "nonsense\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: localhost\r\n",
            "GET /\u{0} HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            assert_eq!(status(broken), "400", "{broken:?}");
        }
        let long =
            format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(40_000));
        assert_eq!(status(&long), "431");
        assert_eq!(status("GET /?later=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"), "200");
    });
}

#[test]
fn a_port_that_is_taken_and_a_folder_that_is_not_there_are_told() {
    let root = tempfile::tempdir().unwrap();
    let runs = || Runs::below(&[root.path().to_owned()]).unwrap();
    let first = Server::bind(runs(), 0).unwrap();
    let port = first.address().port();
    let error = Server::bind(runs(), port).map(drop).unwrap_err().to_string();
    assert!(
        error.contains(&format!("port {port} is in use")) && error.contains("--port"),
        "{error}"
    );
    let error = Runs::below(&[root.path().join("none")]).map(drop).unwrap_err().to_string();
    assert!(error.contains("is not there"), "{error}");
    fs::write(root.path().join("file"), "").unwrap();
    let error = Runs::below(&[root.path().join("file")]).map(drop).unwrap_err().to_string();
    assert!(error.contains("is no folder"), "{error}");
}

/// Names are data: they come as JSON and stay text. What the page makes of them is looked at in a
/// browser (`tests/browser`).
#[cfg(unix)]
#[test]
fn names_of_the_user_are_data() {
    let root = tempfile::tempdir().unwrap();
    let name = "<img src=x onerror=alert(1)>\"'&\u{1b}[31m\n";
    trained(&root.path().join(name), &[]);
    served(root.path(), |address| {
        let list = got_json(address, "/api/runs");
        assert!(list["runs"][0]["name"].as_str().unwrap().ends_with(name), "{list}");
    });
}
