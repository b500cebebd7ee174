//! Long work in a thread of its own, while this one looks for Ctrl-C and tells Python what happens.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use thinfer::run::RunObserver;
use thinfer::train::{Observer, Record};

use crate::errors::{caught, json};

/// How long Ctrl-C waits at most before it is seen.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What Python is told.
enum Event {
    Notice(String),
    Warning(String),
    /// Chain, step, steps, and the record of an epoch as JSON.
    Record(u32, u64, u64, String),
}

/// Sends what an engine tells to the thread that called it.
struct Post {
    to: Mutex<Sender<Event>>,
    /// Step and steps of each chain.
    at: Mutex<Vec<(u64, u64)>>,
}

impl Post {
    fn send(&self, event: Event) {
        // Nobody listens once the call ends, and then nobody needs to.
        if let Ok(to) = self.to.lock() {
            let _ = to.send(event);
        }
    }
}

impl Observer for Post {
    fn progress(&self, chain: u32, step: u64, total: u64, record: Option<&Record>) {
        if let Ok(mut at) = self.at.lock() {
            let chain = chain as usize;
            let chains = at.len().max(chain + 1);
            at.resize(chains, (0, 0));
            at[chain] = (step, total);
        }
        if let Some(text) = record.and_then(|record| json(record).ok()) {
            self.send(Event::Record(chain, step, total, text));
        }
    }

    fn notice(&self, text: &str) {
        self.send(Event::Notice(text.to_owned()));
    }

    fn warning(&self, text: &str) {
        self.send(Event::Warning(text.to_owned()));
    }
}

impl RunObserver for Post {}

/// Who is told, in Python: an object with `notice`, `warning`, `record` and `progress`.
pub(crate) struct Listener<'py>(pub(crate) Bound<'py, PyAny>);

impl Listener<'_> {
    /// Tells something that the user should know.
    pub(crate) fn notice(&self, text: &str) -> PyResult<()> {
        self.hear(Event::Notice(text.to_owned()))
    }

    fn hear(&self, event: Event) -> PyResult<()> {
        match event {
            Event::Notice(text) => self.0.call_method1("notice", (text,)),
            Event::Warning(text) => self.0.call_method1("warning", (text,)),
            Event::Record(chain, step, steps, text) => {
                let told = PyDict::new(self.0.py());
                told.set_item("chain", chain)?;
                told.set_item("step", step)?;
                told.set_item("steps", steps)?;
                self.0.call_method1("record", (told, text))
            }
        }
        .map(drop)
    }

    /// The share of all steps that is done.
    fn progress(&self, post: &Post) -> PyResult<()> {
        let at = post.at.lock().map(|at| at.clone()).unwrap_or_default();
        let (done, all) =
            at.iter().fold((0, 0), |(done, all), (step, steps)| (done + step, all + steps));
        if all == 0 {
            return Ok(());
        }
        self.0.call_method1("progress", (done as f64 / all as f64,)).map(drop)
    }
}

/// Does `work` in a thread without the GIL, and tells `listener` what happens from this one.
///
/// Ctrl-C, or an exception of the listener, asks the work to stop, and is raised when it has: the
/// work has written its checkpoint by then. Work that ends by itself meanwhile is kept on disk, but
/// the exception is raised all the same.
pub(crate) fn listened<T: Send>(
    listener: &Listener<'_>,
    work: impl FnOnce(&AtomicBool, &dyn RunObserver) -> thinfer::Result<T> + Send,
) -> PyResult<T> {
    let py = listener.0.py();
    let stop = AtomicBool::new(false);
    let (to, from) = channel();
    let post = Post { to: Mutex::new(to), at: Mutex::new(Vec::new()) };
    std::thread::scope(|scope| {
        let (stop, post) = (&stop, &post);
        let (end, mut ended) = channel::<()>();
        let worker = scope.spawn(move || {
            // Dropped when the work ends, however it does.
            let _end = end;
            caught(|| work(stop, post))
        });
        let mut raised: Option<PyErr> = None;
        let look = |raised: &mut Option<PyErr>, told: PyResult<()>| {
            if let Err(error) = told
                && raised.is_none()
            {
                stop.store(true, Ordering::SeqCst);
                *raised = Some(error);
            }
        };
        loop {
            let waited;
            (waited, ended) = py.detach(move || (ended.recv_timeout(LOOK_EVERY), ended));
            while let Ok(event) = from.try_recv() {
                if raised.is_none() {
                    look(&mut raised, listener.hear(event));
                }
            }
            if raised.is_none() {
                look(&mut raised, py.check_signals());
            }
            if raised.is_none() {
                look(&mut raised, listener.progress(post));
            }
            if waited == Err(RecvTimeoutError::Disconnected) {
                break;
            }
        }
        let done = py.detach(|| worker.join());
        let done = done.unwrap_or_else(|_| {
            Err(PyRuntimeError::new_err("thinfer hit a bug: a thread died; please report it"))
        });
        let of_user = |error: &PyErr| error.is_instance_of::<PyKeyboardInterrupt>(py);
        match (raised, done) {
            // The work says how to go on.
            (Some(error), Err(stopped)) if of_user(&error) && of_user(&stopped) => Err(stopped),
            (Some(error), _) => Err(error),
            (None, done) => done,
        }
    })
}
