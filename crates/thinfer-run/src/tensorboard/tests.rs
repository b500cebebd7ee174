//! Event files: their bytes, and what a run that goes on makes of them.

use super::events::What;
use super::*;

fn point(epochs: usize) -> Point {
    let values = vec![("train/loss", 0.5 / epochs as f64), ("network/pruned", 0.0)];
    Point { epochs, at: 1000.0 + epochs as f64, values }
}

fn points(count: usize) -> Vec<Point> {
    (1..=count).map(point).collect()
}

fn events(folder: &Path) -> Vec<Vec<Event>> {
    let read = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        assert_eq!(frames(&bytes).last().unwrap().0, bytes.len(), "all frames are whole");
        frames(&bytes).map(|(_, data)| Event::read(data).unwrap()).collect()
    };
    own_files(folder).iter().map(read).collect()
}

/// Epochs of the points in all files of a folder, file by file.
fn epochs(folder: &Path) -> Vec<Vec<i64>> {
    let of_file = |events: &Vec<Event>| {
        events.iter().filter(|event| event.is_scalars()).map(|event| event.step).collect()
    };
    events(folder).iter().map(of_file).collect()
}

/// Made with `tensorboard` 2.21:
///
/// ```python
/// from tensorboard.compat.proto.event_pb2 import Event
/// from tensorboard.compat.proto.summary_pb2 import Summary
/// from tensorboard.summary.writer.record_writer import RecordWriter
/// w = RecordWriter(open("golden", "wb"))
/// w.write(Event(wall_time=1002.0, file_version="brain.Event:2").SerializeToString())
/// v = [Summary.Value(tag="train/loss", simple_value=0.25), Summary.Value(tag="network/pruned", simple_value=0.0)]
/// w.write(Event(wall_time=1002.0, step=2, summary=Summary(value=v)).SerializeToString())
/// ```
const GOLDEN: &str = "1800000000000000a37f4b22090000000000508f401a0d627261696e2e4576656e743a3293190c993700000000000000e7e8ca59090000000000508f4010022a2a0a110a0a747261696e2f6c6f7373150000803e0a150a0e6e6574776f726b2f7072756e656415000000003ad391ea";

#[test]
fn a_file_has_the_bytes_that_tensorboard_writes() {
    let values = [("train/loss", 0.25), ("network/pruned", 0.0)];
    let file = [frame(&version(1002.0)), frame(&scalars(1002.0, 2, &values))].concat();
    let hex: Vec<String> = file.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex.concat(), GOLDEN);
}

#[test]
fn points_are_written_once_and_in_order() {
    let run = tempfile::tempdir().unwrap();
    let mut files = EventFiles::of_run(run.path());
    let chain = run.path().join("tensorboard/chain-0");
    for count in [1, 1, 3, 7] {
        files.write("chain-0", &points(count), 2000.5).unwrap();
        assert_eq!(epochs(&chain), [(1..=count as i64).collect::<Vec<_>>()]);
    }
    let all = events(&chain);
    assert_eq!(all[0][0].what, Some(What::FileVersion("brain.Event:2".into())));
    let Some(What::Summary(summary)) = &all[0][2].what else { panic!("{all:?}") };
    assert_eq!(
        (summary.value[0].simple_value, summary.value[1].simple_value),
        (Some(0.25), Some(0.0))
    );
    assert_eq!((all[0][2].wall_time, &summary.value[0].tag[..]), (1002.0, "train/loss"));
    assert!(chain.join("events.out.tfevents.0000002000.thinfer").is_file());
}

#[test]
fn a_run_that_goes_on_has_no_point_twice_and_none_missing() {
    let run = tempfile::tempdir().unwrap();
    let chain = run.path().join("tensorboard/chain-0");
    EventFiles::of_run(run.path()).write("chain-0", &points(9), 2000.0).unwrap();
    // Killed in the middle of a frame; the checkpoint is of epoch 6.
    let first = own_files(&chain).remove(0);
    let bytes = fs::read(&first).unwrap();
    fs::write(&first, &bytes[..bytes.len() - 5]).unwrap();
    let mut files = EventFiles::of_run(run.path());
    files.write("chain-0", &points(6), 2000.0).unwrap();
    files.write("chain-0", &points(8), 2001.0).unwrap();
    assert_eq!(epochs(&chain), [(1..=6).collect::<Vec<_>>(), vec![7, 8]]);
    // What a reader saw of epochs 7 and 8 before, it is told to forget.
    let restarted = &events(&chain)[1][1];
    assert!(matches!(restarted.what, Some(What::SessionLog(_))) && restarted.step == 7);
    // The files came to less than the checkpoint: what is missing is added.
    let mut files = EventFiles::of_run(run.path());
    files.write("chain-0", &points(12), 1500.0).unwrap();
    assert_eq!(epochs(&chain)[2], [9, 10, 11, 12]);
    let names: Vec<_> = own_files(&chain).iter().filter_map(|path| seconds_of(path)).collect();
    assert_eq!(names, [2000, 2001, 2002], "in the order of time, whatever the clock says");
}

#[test]
fn only_our_files_are_removed() {
    let run = tempfile::tempdir().unwrap();
    for part in ["chain-0", "chain-1"] {
        EventFiles::of_run(run.path()).write(part, &points(2), 2000.0).unwrap();
    }
    let mine = run.path().join("tensorboard/chain-1/events.out.tfevents.1.mine");
    fs::write(&mine, "mine").unwrap();
    remove(run.path()).unwrap();
    assert!(mine.is_file() && !run.path().join("tensorboard/chain-0").exists());
    fs::remove_file(&mine).unwrap();
    remove(run.path()).unwrap();
    assert!(!run.path().join(FOLDER).exists());
}
