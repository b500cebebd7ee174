//! A small server for one page, for browsers of this machine alone.
//!
//! It listens on 127.0.0.1, answers `GET` and nothing else, and knows a fixed list of addresses:
//! none of them is the name of a file. A page of somebody else that was made to point here by a
//! changed name (DNS rebinding) brings the name along in `Host`, and is refused.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use thinfer_data::{Error, Result};

use super::runs::Runs;

const PAGE: &str = include_str!("../../assets/watch/index.html");
const STYLE: &str = include_str!("../../assets/watch/watch.css");
const SCRIPT: &str = include_str!("../../assets/watch/watch.js");
const ICON: &str = include_str!("../../assets/watch/icon.svg");

/// Bytes of the head of a request, at most.
const MOST_HEAD: usize = 16 << 10;
/// A request has to be here by then, and an answer taken.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests that are answered at a time, at most.
const MOST_AT_A_TIME: usize = 64;

/// What every answer says to the browser: take nothing from elsewhere, be in no other page, keep
/// nothing.
const RULES: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; \
    style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'\r\n\
    X-Content-Type-Options: nosniff\r\n\
    Referrer-Policy: no-referrer\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Cross-Origin-Opener-Policy: same-origin\r\n\
    Cache-Control: no-store\r\n\
    Connection: close\r\n";

/// Answers browsers of this machine.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    runs: Arc<Runs>,
    stopped: Arc<AtomicBool>,
}

/// Ends a [`Server`] from another thread.
#[derive(Clone)]
pub struct Stopper {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl Server {
    /// Takes a port of this machine; 0 is any that is free.
    pub fn bind(runs: Runs, port: u16) -> Result<Self> {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = taken.map_err(|error| refused(port, &error))?;
        let address = listener.local_addr().map_err(|error| refused(port, &error))?;
        let stopped = Arc::new(AtomicBool::new(false));
        Ok(Self { listener, address, runs: Arc::new(runs), stopped })
    }

    /// The port of this machine that it has.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where a browser finds the page.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        Stopper { address: self.address, stopped: Arc::clone(&self.stopped) }
    }

    /// Answers until it is stopped.
    pub fn serve(&self) {
        let at_work = Arc::new(AtomicUsize::new(0));
        for connection in self.listener.incoming() {
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            // A browser that went away before it was answered is no trouble, and out of files or
            // threads it asks again.
            let Ok(connection) = connection else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            if at_work.fetch_add(1, Ordering::SeqCst) >= MOST_AT_A_TIME {
                at_work.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            let (runs, others) = (Arc::clone(&self.runs), Arc::clone(&at_work));
            let work = move || {
                let _ = answer(connection, &runs);
                others.fetch_sub(1, Ordering::SeqCst);
            };
            if Builder::new().name("watch".into()).spawn(work).is_err() {
                at_work.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

impl Stopper {
    /// Ends the server: what it is answering is finished by threads of their own.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        // It waits for a connection, and looks then.
        let _ = TcpStream::connect(self.address);
    }
}

fn refused(port: u16, error: &io::Error) -> Error {
    let problem = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {port} is in use, perhaps by another `thinfer watch`; give another one, or 0 for any that is free"
        ),
        io::ErrorKind::PermissionDenied => {
            format!("port {port} is not for ordinary users; give one from 1024 on")
        }
        _ => format!("port {port} cannot be taken ({error}); give another one"),
    };
    Error::config("--port", problem)
}

/// What is sent back.
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Answer {
    fn of(kind: &'static str, body: impl Into<String>) -> Self {
        Self { status: "200 OK", kind, body: body.into() }
    }

    fn refusal(status: &'static str, body: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{body}\n") }
    }

    fn send(&self, to: &mut TcpStream) -> io::Result<()> {
        let (status, kind, length) = (self.status, self.kind, self.body.len());
        let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}{RULES}\r\n"
        );
        to.write_all(head.as_bytes())?;
        to.write_all(self.body.as_bytes())?;
        to.flush()
    }
}

fn answer(mut connection: TcpStream, runs: &Runs) -> io::Result<()> {
    connection.set_write_timeout(Some(PATIENCE))?;
    let head = read_head(&mut connection)?;
    answer_to(&head, runs).send(&mut connection)?;
    // Whatever else was sent is read and dropped: closing with it unread would take the answer
    // away.
    connection.shutdown(std::net::Shutdown::Write)?;
    let mut rest = [0; 4096];
    connection.set_read_timeout(Some(Duration::from_millis(200)))?;
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until && connection.read(&mut rest)? > 0 {}
    Ok(())
}

/// The bytes up to the empty line that ends a head, or as many as are taken.
fn read_head(connection: &mut TcpStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut part = [0; 2048];
    while head.len() < MOST_HEAD && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        connection.set_read_timeout(Some(left))?;
        match connection.read(&mut part)? {
            0 => break,
            read => head.extend_from_slice(&part[..read]),
        }
    }
    Ok(head)
}

fn answer_to(head: &[u8], runs: &Runs) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(head);
    let (Ok(httparse::Status::Complete(_)), Some(method), Some(path)) =
        (parsed, request.method, request.path)
    else {
        let status = if head.len() >= MOST_HEAD {
            "431 Request Header Fields Too Large"
        } else {
            "400 Bad Request"
        };
        return Answer::refusal(status, "this is no request that a browser makes");
    };
    let hosts: Vec<&[u8]> = request
        .headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("host"))
        .map(|header| header.value)
        .collect();
    let [host] = hosts[..] else {
        return Answer::refusal("400 Bad Request", "a request names one host");
    };
    if !is_this_machine(host) {
        let text = "this page is for browsers of this machine; ask for 127.0.0.1 or localhost";
        return Answer::refusal("403 Forbidden", text);
    }
    if method != "GET" {
        return Answer::refusal("405 Method Not Allowed", "this page is only read");
    }
    // What a link adds behind the address changes nothing.
    let path = path.split(['?', '#']).next().unwrap_or(path);
    match path {
        "/" => Answer::of("text/html; charset=utf-8", PAGE),
        "/watch.css" => Answer::of("text/css; charset=utf-8", STYLE),
        "/watch.js" => Answer::of("text/javascript; charset=utf-8", SCRIPT),
        "/icon.svg" => Answer::of("image/svg+xml", ICON),
        "/api/runs" => Answer::of("application/json", runs.list()),
        _ => match path.strip_prefix("/api/runs/").and_then(|id| runs.curves(id)) {
            Some(curves) => Answer::of("application/json", curves),
            None => Answer::refusal("404 Not Found", "there is nothing here; the page is at /"),
        },
    }
}

/// Whether a `Host` names this machine; the port may be that of a tunnel.
fn is_this_machine(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else { return false };
    let (name, port) =
        host.rsplit_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    is_port && (name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost"))
}
