//! Files from the network: resumed where they were left, and checked before they get their name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use thinfer::Error;
use thinfer::data::images::{Download, md5_of};
use ureq::Agent;

use crate::context::Context;

/// Time to reach a server and to get its first answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A download that is over before this needs no bar.
const QUICK: Duration = Duration::from_secs(2);

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It was there already and is the right one.
    Present,
    /// It was downloaded from the start.
    Downloaded,
    /// The rest of it was downloaded.
    Resumed,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Present => "present",
            State::Downloaded => "downloaded",
            State::Resumed => "resumed",
        }
    }
}

/// Downloads from one place.
pub(crate) struct Client<'a> {
    agent: Agent,
    context: &'a Context,
}

impl<'a> Client<'a> {
    pub(crate) fn new(context: &'a Context) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .build()
            .into();
        Self { agent, context }
    }

    /// Gets `file` from `address` into `folder`. A file that is there and right is left alone, one
    /// that is wrong is not replaced.
    pub(crate) fn get(
        &self,
        address: &str,
        file: &Download,
        folder: &Path,
    ) -> anyhow::Result<State> {
        let path = folder.join(file.name);
        if path.exists() {
            return match md5_of(&path)? {
                found if found == file.md5 => Ok(State::Present),
                found => bail!(Error::Data(format!(
                    "{} is there, but has the MD5 {found} and not {}; move it away and run this again",
                    path.display(),
                    file.md5
                ))),
            };
        }
        let part = folder.join(format!("{}.part", file.name));
        let begun = length(&part) > 0;
        if begun {
            self.fetch(address, file, &part)?;
            if Self::settle(file, &part, &path)? {
                return Ok(State::Resumed);
            }
            // The beginning was of another file, so all of it is needed again.
        }
        self.fetch(address, file, &part)?;
        if Self::settle(file, &part, &path)? {
            return Ok(State::Downloaded);
        }
        bail!(Error::Data(format!(
            "{address}{} is not the official file: its MD5 is not {}; try again, or get it elsewhere",
            file.name, file.md5
        )))
    }

    /// Gives a file that is right its name; removes another.
    fn settle(file: &Download, part: &Path, path: &Path) -> anyhow::Result<bool> {
        if md5_of(part)? == file.md5 {
            fs::rename(part, path).map_err(|e| Error::file("write", path, e))?;
            return Ok(true);
        }
        fs::remove_file(part).map_err(|e| Error::file("remove", part, e))?;
        Ok(false)
    }

    /// Appends to `part` what is missing of the file. Whether it is whole then, its MD5 says.
    fn fetch(&self, address: &str, file: &Download, part: &Path) -> anyhow::Result<()> {
        let have = length(part);
        let url = format!("{address}{}", file.name);
        let mut request = self.agent.get(&url);
        if have > 0 {
            request = request.header("Range", format!("bytes={have}-"));
        }
        let response = request.call().with_context(|| format!("could not reach {url}"))?;
        let header = |name: &str| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let status = response.status().as_u16();
        // A server may send the whole file although a part was asked for.
        let resumes = status == 206
            && header("content-range")
                .is_some_and(|range| range.starts_with(&format!("bytes {have}-")));
        match status {
            200 => {}
            206 if resumes => {}
            // There is nothing after what is here.
            416 if have > 0 => return Ok(()),
            _ => bail!("{url} answered with status {status}"),
        }
        let start = if resumes { have } else { 0 };
        let coming = header("content-length").and_then(|text| text.parse::<u64>().ok());
        let write = |e: io::Error| Error::file("write", part, e);
        let mut out = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(part)
            .map_err(write)?;
        out.set_len(start).map_err(write)?;
        io::Seek::seek(&mut out, io::SeekFrom::End(0)).map_err(write)?;
        let bar = Bar::new(self.context, file.name, start, coming.map(|bytes| start + bytes));
        let got = copy(&mut response.into_body().into_reader(), &mut out, part, start, &bar)
            .with_context(|| {
                format!("the download of {url} stopped; run this again to go on with it")
            });
        bar.finish();
        let got = got?;
        if coming.is_some_and(|coming| got < coming) {
            bail!("the download of {url} stopped; run this again to go on with it");
        }
        Ok(())
    }
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

/// Copies and counts; what has come stays when the rest does not.
fn copy(
    from: &mut impl Read,
    into: &mut File,
    path: &Path,
    start: u64,
    bar: &Bar,
) -> anyhow::Result<u64> {
    let mut buffer = vec![0; 1 << 16];
    let mut got = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        into.write_all(&buffer[..count]).map_err(|e| Error::file("write", path, e))?;
        got += count as u64;
        bar.at(start + got);
    }
    into.sync_all().map_err(|e| Error::file("write", path, e))?;
    Ok(got)
}

/// How far a file has come.
struct Bar {
    bar: Option<ProgressBar>,
    started: Instant,
}

impl Bar {
    fn new(context: &Context, name: &str, start: u64, total: Option<u64>) -> Self {
        let bar = context.shows_progress().then(|| {
            let bar = ProgressBar::hidden();
            bar.set_length(total.unwrap_or(start));
            bar.set_position(start);
            // What came before says nothing of speed.
            bar.reset_eta();
            bar.set_prefix(name.to_owned());
            let template = "{prefix} [{bar:20}] {bytes} of {total_bytes}, {eta} left";
            let style = ProgressStyle::with_template(template);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("=> "));
            bar
        });
        Self { bar, started: Instant::now() }
    }

    fn at(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            if bar.is_hidden() && self.started.elapsed() >= QUICK {
                bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
            }
            bar.set_position(bytes);
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// What to do by hand: every file, where it is and where it goes.
pub(crate) fn by_hand(address: &str, files: &[Download], folder: &Path) -> String {
    let lines: Vec<String> =
        files.iter().map(|file| format!("  {address}{} (MD5 {})", file.name, file.md5)).collect();
    format!(
        "without a network here, download elsewhere and put into {}:\n{}",
        folder.display(),
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;
    use crate::context::Flags;

    /// How a server answers.
    #[derive(Clone, Copy)]
    enum Server {
        Ranges,
        WholeOnly,
        /// Sends this much of what it promises.
        Stops(usize),
        Status(u16),
    }

    fn body() -> Vec<u8> {
        (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    /// Serves `answers.len()` requests of the file, then ends; gives the address.
    fn serve(body: Vec<u8>, answers: Vec<Server>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let head: Vec<String> =
                    lines.by_ref().take_while(|line| !line.is_empty()).collect();
                assert_eq!(head[0], "GET /file.bin HTTP/1.1");
                let range = head.iter().find_map(|line| {
                    let line = line.to_lowercase();
                    line.strip_prefix("range: bytes=")?.strip_suffix('-')?.parse::<usize>().ok()
                });
                let (status, from) = match (answer, range) {
                    (Server::Status(status), _) => (status, 0),
                    (Server::Ranges, Some(from)) if from >= body.len() => (416, 0),
                    (Server::Ranges, Some(from)) => (206, from),
                    _ => (200, 0),
                };
                let content = if status < 300 { &body[from..] } else { &b"no"[..] };
                let sent = match answer {
                    Server::Stops(bytes) => &content[..bytes],
                    _ => content,
                };
                let mut out = format!(
                    "HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n",
                    content.len()
                );
                if status == 206 {
                    out += &format!(
                        "Content-Range: bytes {from}-{0}/{1}\r\n",
                        body.len() - 1,
                        body.len()
                    );
                }
                (&stream).write_all(format!("{out}\r\n").as_bytes()).unwrap();
                // A client that has gone does not matter.
                let _ = (&stream).write_all(sent);
            }
        });
        address
    }

    /// What a client makes of `answers`, starting with `part` of the file.
    fn get(part: &[u8], answers: &[Server]) -> (anyhow::Result<State>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let whole = folder.path().join("whole");
        fs::write(&whole, body()).unwrap();
        let file = Download { name: "file.bin", md5: md5_of(&whole).unwrap().leak() };
        if !part.is_empty() {
            fs::write(folder.path().join("file.bin.part"), part).unwrap();
        }
        let context = Context::new(Flags { quiet: true, json: false });
        let address = serve(body(), answers.to_vec());
        (Client::new(&context).get(&address, &file, folder.path()), folder)
    }

    /// The file is there, whole, and nothing is left of its beginning.
    fn assert_whole(folder: &Path) {
        assert!(fs::read(folder.join("file.bin")).unwrap() == body());
        assert!(!folder.join("file.bin.part").exists());
    }

    #[test]
    fn a_file_is_downloaded_once() {
        let (state, folder) = get(&[], &[Server::Ranges]);
        assert_eq!(state.unwrap(), State::Downloaded);
        assert_whole(folder.path());
        let file = Download {
            name: "file.bin",
            md5: md5_of(&folder.path().join("file.bin")).unwrap().leak(),
        };
        let context = Context::new(Flags { quiet: true, json: false });
        // Nobody serves there.
        let state = Client::new(&context).get("http://127.0.0.1:1/", &file, folder.path());
        assert_eq!(state.unwrap(), State::Present);
        let other = Download { md5: "0", ..file };
        let refused = Client::new(&context).get("http://127.0.0.1:1/", &other, folder.path());
        assert!(refused.unwrap_err().to_string().contains("is there, but has the MD5"));
        assert_whole(folder.path());
    }

    #[test]
    fn a_download_goes_on_where_it_stopped() {
        for answers in [[Server::Ranges], [Server::WholeOnly]] {
            let (state, folder) = get(&body()[..70_000], &answers);
            assert_eq!(state.unwrap(), State::Resumed);
            assert_whole(folder.path());
        }
        // All bytes are there, but it was not renamed.
        let (state, folder) = get(&body(), &[Server::Ranges]);
        assert_eq!(state.unwrap(), State::Resumed);
        assert_whole(folder.path());
    }

    #[test]
    fn the_beginning_of_another_file_is_thrown_away() {
        let (state, folder) = get(&vec![7; 70_000], &[Server::Ranges, Server::Ranges]);
        assert_eq!(state.unwrap(), State::Downloaded);
        assert_whole(folder.path());
        let (state, folder) = get(&vec![7; 300_000], &[Server::Ranges, Server::Ranges]);
        assert_eq!(state.unwrap(), State::Downloaded);
        assert_whole(folder.path());
    }

    #[test]
    fn what_has_come_stays_when_the_rest_does_not() {
        let (state, folder) = get(&[], &[Server::Stops(50_000)]);
        let text = format!("{:#}", state.unwrap_err());
        assert!(text.contains("stopped; run this again"), "{text}");
        let part = fs::read(folder.path().join("file.bin.part")).unwrap();
        assert!(part == body()[..50_000], "{} bytes", part.len());
        assert!(!folder.path().join("file.bin").exists());
    }

    #[test]
    fn other_answers_are_told_with_their_status() {
        for status in [404, 500] {
            let (state, folder) = get(&[], &[Server::Status(status)]);
            let text = state.unwrap_err().to_string();
            assert!(text.contains(&format!("answered with status {status}")), "{text}");
            assert!(!folder.path().join("file.bin.part").exists());
        }
    }

    #[test]
    fn a_file_with_another_checksum_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let context = Context::new(Flags { quiet: true, json: false });
        let address = serve(body(), vec![Server::Ranges]);
        let file = Download { name: "file.bin", md5: "0" };
        let refused = Client::new(&context).get(&address, &file, folder.path()).unwrap_err();
        assert!(refused.to_string().contains("is not the official file"), "{refused}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
