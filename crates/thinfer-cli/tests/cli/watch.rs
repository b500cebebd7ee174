//! The server of `thinfer watch`, started and ended as a user does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use crate::workspace::Workspace;

/// Starts a server; gives it with the address that it prints.
fn started(workspace: &Workspace, words: &[&str]) -> (Child, String) {
    let mut command = workspace.command();
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

fn got(url: &str, path: &str) -> String {
    let host = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let mut connection = TcpStream::connect(host).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn runs_are_served_until_the_user_ends_it() {
    let workspace = Workspace::trained();
    let (mut child, url) = started(&workspace, &["watch", "--port", "0"]);
    assert!(url.starts_with("http://127.0.0.1:") && url.ends_with('/'), "{url}");
    let list = got(&url, "/api/runs");
    assert!(list.contains("\"name\":\"runs/tiny\"") && list.contains("\"finished\""), "{list}");
    assert!(got(&url, "/").contains("<title>thinfer watch</title>"));
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap();
    let error = workspace.fails(2, &["watch", "--port", port]);
    assert!(error.contains(&format!("port {port} is in use")), "{error}");
    #[cfg(unix)]
    {
        let id = child.id().to_string();
        assert!(
            std::process::Command::new("kill")
                .args(["-s", "TERM", &id])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    let _ = child.kill();
}

#[test]
fn a_folder_that_is_not_there_is_refused() {
    let workspace = Workspace::new();
    let error = workspace.fails(1, &["watch", "--port", "0"]);
    assert!(error.contains("runs") && error.contains("is not there"), "{error}");
}
