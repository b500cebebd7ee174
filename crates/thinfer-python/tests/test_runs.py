"""Runs: the same bits as the program's, and everything that can be done with one."""

import json
import os
import pickle
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import thinfer

SMALL = {
    "data": {
        "kind": "example1",
        "columns": 8,
        "train_rows": 120,
        "validation_rows": 20,
        "test_rows": 40,
    },
    "model.hidden": [4],
    "train": {"epochs": 12, "samples_per_cycle": 3},
    "chains": 2,
    "seed": 3,
}

SHAPES = {
    "data": {"kind": "shapes", "train_rows": 80, "test_rows": 20},
    "train": {"epochs": 4, "batch": 40},
    "prune.target": None,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return thinfer.train(SMALL, out=tmp_path_factory.mktemp("runs") / "small")


def frame(columns):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(columns)


def of_table(quick, **more):
    return {"data.target": "price", "model.likelihood": "normal", "seed": 5, **quick, **more}


def snapshots(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in Path(folder).rglob("snapshot-*")}


def test_samples_are_arrays_by_name(run):
    samples = run.samples
    assert samples["fc1.weight"].shape == (len(run), 4, 8)
    assert samples["fc1.weight"].dtype == np.float32
    assert samples["fc1.weight"].base is not None, "a part of one array"
    assert len(run.chain) == len(run.epoch) == len(run)
    assert set(run.chain) <= {0, 1}
    assert run.variables == [f"x{i}" for i in range(1, 9)]
    assert run.config["model"]["hidden"] == [4]


def test_a_folder_is_loaded_to_the_same_bits(run):
    again = thinfer.load(run.folder)
    for name, values in run.samples.items():
        np.testing.assert_array_equal(values, again.samples[name])
    assert again.evaluate() == run.evaluate()


def program():
    """The program, where it was built."""
    given = os.environ.get("THINFER_PROGRAM")
    if not given:
        pytest.skip("skipped: THINFER_PROGRAM does not say where the program is")
    return given


def test_bits_are_those_of_the_program(run, tmp_path):
    path = tmp_path / "small.toml"
    path.write_text((run.folder / "config.toml").read_text())
    subprocess.run(
        [program(), "train", path, "--out", tmp_path / "run", "--device", "cpu", "-q"],
        check=True,
        capture_output=True,
    )
    ours, theirs = snapshots(run.folder), snapshots(tmp_path / "run")
    assert ours and ours == theirs


def test_a_table_in_memory_has_the_bits_of_its_file(columns, quick, tmp_path):
    table = frame(columns)
    table.to_csv(tmp_path / "t.csv", index=False)
    config = of_table(quick)
    in_memory = thinfer.train(config, data=table, out=tmp_path / "memory")
    in_file = thinfer.train(
        {**config, "data.kind": "table", "data.path": tmp_path / "t.csv"}, out=tmp_path / "file"
    )
    for name, values in in_memory.samples.items():
        np.testing.assert_array_equal(values, in_file.samples[name])
    alone = thinfer.train(config, data=table)
    np.testing.assert_array_equal(alone.samples["fc1.weight"], in_file.samples["fc1.weight"])
    assert alone.evaluate()["posterior"] == in_file.evaluate()["posterior"]


def test_a_run_on_a_table_in_memory_is_opened_again(columns, quick, tmp_path):
    table = frame(columns)
    run = thinfer.train(of_table(quick), data=table, out=tmp_path / "run")
    again = thinfer.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict(table)["mean"], run.predict(table)["mean"])
    with pytest.raises(ValueError, match="give the same table again"):
        again.evaluate()
    assert thinfer.load(tmp_path / "run", data=table).evaluate() == run.evaluate()
    with pytest.raises(ValueError, match="has changed"):
        thinfer.load(tmp_path / "run", data=table.iloc[::-1])


def test_predictions_are_those_of_every_sample(columns, quick):
    table = frame(columns)
    run = thinfer.train(of_table(quick), data=table)
    found, members = run.predict(table), run.sample_posterior(table)
    assert members.shape == (len(run), len(table))
    np.testing.assert_allclose(members.mean(0), found["mean"], rtol=1e-12)
    assert (found["lower90"] < found["mean"]).all() and (found["mean"] < found["upper90"]).all()
    scores = run.score(table)
    assert scores["mse"] == pytest.approx(np.mean((found["mean"] - table["price"]) ** 2), rel=1e-6)
    with pytest.raises(ValueError, match="under its name"):
        run.score(table.drop(columns="price"))
    holes = table.copy()
    holes.loc[3, "area"] = np.nan
    found = run.predict(holes)
    assert np.isnan(found["mean"][3]) and not np.isnan(found["mean"][4])


def test_pickle_keeps_the_posterior(columns, quick):
    table = frame(columns)
    run = thinfer.train(of_table(quick), data=table)
    again = pickle.loads(pickle.dumps(run))
    np.testing.assert_array_equal(again.predict(table)["mean"], run.predict(table)["mean"])
    with pytest.raises(ValueError, match="no folder and kept no data"):
        again.evaluate()
    whole = run.to_bytes()
    for at in range(0, len(whole), len(whole) // 50):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        with pytest.raises(ValueError, match="are no run of thinfer"):
            thinfer.Run.from_bytes(bytes(damaged))
        with pytest.raises(ValueError, match="are no run of thinfer"):
            thinfer.Run.from_bytes(whole[:at])


def test_evaluation_and_diagnosis_are_dicts(run):
    assert run.evaluate()["rows"] == [120, 20, 40]
    assert run.diagnostics()["agreement"]["chains"] == 2


def test_reports_are_written_and_nothing_is_replaced(run, tmp_path):
    page = run.report()
    assert page == run.folder / "report.html" and "<html" in page.read_text()
    assert json.loads((run.folder / "evaluation.json").read_text())["rows"] == [120, 20, 40]
    other = run.report(tmp_path / "r.html")
    with pytest.raises(FileExistsError):
        run.report(other)
    assert run.report(other, force=True).read_text() == other.read_text()
    assert "<table>" in run._repr_html_() and "mse" in run._repr_html_()
    assert "example1" in repr(run)


def test_the_callback_hears_every_record():
    heard = []
    thinfer.train(SMALL, callback=heard.append)
    assert {told["chain"] for told in heard} == {0, 1}
    last = heard[-1]
    assert last["step"] == last["steps"] and np.isfinite(last["loss"])


def test_an_exception_of_the_callback_ends_the_run(tmp_path):
    def refuse(told):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        thinfer.train({**SMALL, "train.epochs": 100_000}, callback=refuse, out=tmp_path / "run")
    assert list((tmp_path / "run").rglob("checkpoint"))


def test_ctrl_c_ends_a_run_after_a_checkpoint_and_it_goes_on(tmp_path):
    long = {**SMALL, "train": {"epochs": 3000, "samples_per_cycle": 3}, "chains": 1}
    whole = thinfer.train(long)

    def ctrl_c():
        while not (tmp_path / "run" / "run.json").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=ctrl_c)
    thread.start()
    with pytest.raises(KeyboardInterrupt, match="resume=True"):
        thinfer.train(long, out=tmp_path / "run")
    thread.join()
    assert list((tmp_path / "run").rglob("checkpoint"))
    run = thinfer.train(long, out=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(run.samples["fc1.weight"], whole.samples["fc1.weight"])


def test_other_threads_go_on_while_a_run_trains():
    counted, ended = [0], threading.Event()

    def count():
        while not ended.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    run = thinfer.train({**SMALL, "train.epochs": 3000})
    ended.set()
    thread.join()
    assert counted[0] - before > 20 * min(run.seconds, 1)


def test_the_network_of_a_sample_in_torch_answers_as_the_run_does(run, columns, quick):
    torch = pytest.importorskip("torch")
    for table, config in (
        (frame(columns), of_table(quick)),
        (frame(columns), {**of_table(quick), "data.target": "kind", "model.likelihood": None}),
    ):
        of_table_run = thinfer.train(config, data=table)
        module = of_table_run.to_torch(sample=1)
        with torch.no_grad():
            found = module.decode(module(module.encode(table))).numpy()
        want = of_table_run.sample_posterior(table)[1]
        np.testing.assert_allclose(np.squeeze(found), want, rtol=1e-4, atol=1e-5)
    module = run.to_torch(sample=0)
    assert sum(p.numel() for p in module.parameters()) <= run.samples["fc1.weight"][0].size + 20
    with pytest.raises(ValueError, match="one sample"):
        run.to_torch(sample="all")


def test_onnx_is_written(run, tmp_path):
    path = run.to_onnx(tmp_path / "all.onnx")
    assert path.stat().st_size > 100
    with pytest.raises(ValueError, match="sample"):
        run.to_onnx(tmp_path / "x.onnx", sample=1000)
    with pytest.raises(FileExistsError, match="force=True"):
        run.to_onnx(path)


def test_arviz_reads_the_chains(run):
    pytest.importorskip("arviz")
    pytest.importorskip("zarr")
    data = run.to_arviz()
    assert data.posterior["fc1.weight"].shape[0] == 2


def test_images_are_predicted_as_bytes_and_as_numbers():
    run = thinfer.train(SHAPES)
    shape = run._info["shape"]
    size = (5, shape["height"], shape["width"], shape["channels"])
    images = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
    found = run.predict_images(images)
    assert sum(found[f"p_{name}"] for name in run.classes) == pytest.approx(np.ones(5))
    again = run.predict_images(images.transpose(0, 3, 1, 2) / 255)
    for name in run.classes:
        np.testing.assert_array_equal(found[f"p_{name}"], again[f"p_{name}"])
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    assert run.predict_images(tensor)["predicted"] == found["predicted"]
    with pytest.raises(ValueError, match="resize them"):
        run.predict_images(images[:, 1:])
    with pytest.raises(ValueError, match="from 0 to 1"):
        run.predict_images(images.transpose(0, 3, 1, 2) / 1.0)
    with pytest.raises(ValueError, match="trained on images"):
        run.predict({"x": [1.0]})


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        ({"data.kind": "example1", "train.epoch": 3}, ValueError, "did you mean `train.epochs`"),
        ({"data.kind": "example1", "train.epochs": -1}, ValueError, "train.epochs"),
        ({"train.epochs": 3}, ValueError, "data.kind"),
        ({"data.kind": "example1", "train.epochs": object()}, TypeError, "train.epochs"),
        ("missing.toml", FileNotFoundError, "missing.toml"),
        (3, TypeError, "dict of keys or the path"),
    ],
)
def test_bad_settings_are_refused_with_advice(config, error, says):
    with pytest.raises(error, match=says):
        thinfer.train(config)


def test_folders_are_kept(run):
    with pytest.raises(FileExistsError, match="resume=True"):
        thinfer.train(SMALL, out=run.folder)
    with pytest.raises(ValueError, match="resume=True|force=True|settings"):
        thinfer.train({**SMALL, "seed": 9}, out=run.folder, resume=True)
    with pytest.raises(ValueError, match="give it as `out`"):
        thinfer.train(SMALL, resume=True)
    with pytest.raises(ValueError, match="run.json"):
        thinfer.load(run.folder.parent)


def test_a_device_that_is_none_is_refused():
    with pytest.raises(ValueError, match='"cuda:N"'):
        thinfer.train(SMALL, device="gpu")


def test_a_bug_is_an_exception(capfd):
    from thinfer import _thinfer

    with pytest.raises(RuntimeError, match="hit a bug: asked for .*please report it"):
        _thinfer._hit_a_bug()
    assert capfd.readouterr().err == ""


def test_the_package_is_imported_without_what_it_does_not_need():
    code = (
        "import sys, thinfer; print([m for m in ('numpy', 'sklearn', 'torch') if m in sys.modules])"
    )
    done = subprocess.run(
        [os.sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    assert set(thinfer.__all__) <= set(dir(thinfer))
    with pytest.raises(AttributeError, match="nothing"):
        _ = thinfer.nothing
