"""PhysioNet records, and the vital signs made of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from s4d_torch.data.dataset import Dataset
from s4d_torch.data.files.wfdb import read_header, read_record
from s4d_torch.data.folder import DataFolder, MissingDataError
from s4d_torch.data.task import TASKS
from s4d_torch.data.tasks import bidmc
from s4d_torch.data.tasks.bidmc import BidmcOptions, load_bidmc

Array = npt.NDArray[Any]


def pack(samples: Array, form: int) -> bytes:
    """(samples, signals) as bytes of a format, written sample by sample."""
    flat = [int(sample) for sample in samples.reshape(-1)]
    if form == 16:
        return b"".join(sample.to_bytes(2, "little", signed=True) for sample in flat)
    if form == 80:
        return bytes(sample + 128 for sample in flat)
    packed = b""
    for first, second in zip(flat[::2], [*flat[1::2], 0], strict=False):
        low, high = first % 4096, second % 4096
        packed += bytes([low % 256, low // 256 + 16 * (high // 256), high % 256])
    return packed[:-1] if len(flat) % 2 else packed


def checksum(column: Array) -> int:
    """The sum as a signed number of 16 bits, as headers have it."""
    return (int(column.sum()) + 2**15) % 2**16 - 2**15


def write_record(
    folder: Path,
    name: str,
    samples: Array,
    *,
    form: int = 16,
    rate: float = 250,
    gains: tuple[str, ...] = ("200(0)/mV", "10(-5)/bpm"),
    names: tuple[str, ...] = ("ECG", "HR, "),
    comment: str = "",
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.dat").write_bytes(pack(samples, form))
    lines = [f"{name} {samples.shape[1]} {rate} {len(samples)}"]
    for column, gain, label in zip(samples.T, gains, names, strict=True):
        lines.append(f"{name}.dat {form} {gain} 0 0 {column[0]} {checksum(column)} 0 {label}")
    path = folder / f"{name}.hea"
    path.write_text("\n".join([*lines, f"#{comment}"]))  # no newline at the end, as in BIDMC
    return path


@pytest.mark.parametrize(
    ("form", "low", "high"), [(16, -32767, 32767), (212, -2047, 2047), (80, -127, 127)]
)
@pytest.mark.parametrize("count", [7, 8])
def test_each_format_gives_its_samples(
    tmp_path: Path, form: int, low: int, high: int, count: int
) -> None:
    generator = np.random.default_rng(form)
    samples = generator.integers(low, high + 1, (count, 2))
    samples[1] = low, high
    record = read_record(write_record(tmp_path, "r", samples, form=form))
    expected = np.stack([samples[:, 0] / 200, (samples[:, 1] + 5) / 10], axis=1)
    np.testing.assert_array_equal(record.values, expected)
    np.testing.assert_array_equal(record["HR"], expected[:, 1])
    assert record.header.sample_rate == 250
    assert [signal.units for signal in record.header.signals] == ["mV", "bpm"]


def test_212_packs_two_samples_into_three_bytes(tmp_path: Path) -> None:
    """The first pair of record 100 of the MIT-BIH database, 995 and 1011, then -1 and -2047."""
    (tmp_path / "100.dat").write_bytes(bytes.fromhex("e333f3 ff8f01"))
    header = tmp_path / "100.hea"
    header.write_text(
        "# a comment before\r\n100 2 360/360(0) 2 0:0:0 0/0/0\r\n"
        "100.dat 212 200 11 1024 995 994 0 MLII\r\n100.dat 212 200 11 1024 1011 -1036 0 V5 lead\r\n"
    )
    record = read_record(header)
    np.testing.assert_allclose(record["MLII"], [-0.145, -5.125])
    np.testing.assert_allclose(record["V5 lead"], [-0.065, -15.355])
    assert record.header.comments == ("a comment before",)


def test_an_odd_number_of_samples_of_format_212(tmp_path: Path) -> None:
    path = write_record(
        tmp_path, "r", np.array([[5], [-6], [7]]), form=212, gains=("1",), names=("x",)
    )
    assert (tmp_path / "r.dat").stat().st_size == 5
    assert read_record(path)["x"].tolist() == [5, -6, 7]


@pytest.mark.parametrize(("form", "missing"), [(16, -32768), (212, -2048), (80, -128)])
def test_the_lowest_number_is_no_sample(tmp_path: Path, form: int, missing: int) -> None:
    samples = np.array([[1, 2], [missing, 3], [4, missing]])
    record = read_record(write_record(tmp_path, "r", samples, form=form))
    assert np.isnan(record.values).tolist() == [[False] * 2, [True, False], [False, True]]


def test_signals_in_several_files_and_behind_an_offset(tmp_path: Path) -> None:
    (tmp_path / "a.dat").write_bytes(b"four" + pack(np.array([[1], [2]]), 16))
    (tmp_path / "b.dat").write_bytes(pack(np.array([[3, 5], [4, 6]]), 80))
    (tmp_path / "r.hea").write_text("r 3\na.dat 16+4 1\nb.dat 80 1\nb.dat 80 0\n")
    record = read_record(tmp_path / "r.hea")
    np.testing.assert_array_equal(record.values, [[1, 3, 5 / 200], [2, 4, 6 / 200]])
    assert record.header.sample_rate == 250
    assert record.header.samples is None


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("# nothing\n", r"r\.hea: no record line"),
        ("r\n", r"r\.hea, line 1: 'r' is not 'NAME signals rate samples'"),
        ("r two 1 1\n", r"line 1: 'r two 1 1' is not"),
        ("r/3 2 1 1\n", r"line 1: 'r/3' has several segments"),
        ("r 0 125 4\n", r"line 1: 0 signals of 4 samples at 125\.0 Hz"),
        ("r 2 125 4\nr.dat 16 1\n", r"line 1: declares 2 signals, and 1 signal lines follow"),
        ("r 1 125 4\n\nr.dat\n", r"line 3: 'r\.dat' is not 'file format gain"),
        ("r 1 125 4\nr.dat 311 1\n", r"line 2: signal format 311; the supported are 16, 80, 212"),
        ("r 1 125 4\nr.dat 16x2 1\n", r"line 2: '16x2' has frames or skew"),
        ("r 1 125 4\nr.dat 16 many\n", r"line 2: .* has a field that is no number"),
        ("r 1 125 4\nr.dat 16 1 0 0 one\n", r"line 2: .* has a field that is no number"),
        ("r 1 125 4\n../r.dat 16 1\n", r"'\.\./r\.dat' is not the name of a file beside it"),
        ("r 1 125 4\nq.dat 16 1\n", r"q\.dat is missing; r\.hea says"),
        ("r 1 125 5\nr.dat 16 1\n", r"r\.dat: 4 samples, expected 5 \(5 of 1 signals\)"),
        ("r 2 125 2\nr.dat 16 1\nr.dat 80 1\n", r"signals of r\.dat differ in format or offset"),
        ("r 1 125 4\nr.dat 16 1 0 0 2 0 0 x\n", r"'x' begins with 1, the header says 2"),
        ("r 1 125 4\nr.dat 16 1 0 0 1 9 0 x\n", r"'x' sum to 10 modulo 65536, the header says 9"),
        ("r 2 125\nr.dat 16 1\ns.dat 16 1\n", r"its signals differ in length"),
    ],
)
def test_broken_records_are_named_with_what_is_wrong(
    tmp_path: Path, header: str, message: str
) -> None:
    (tmp_path / "r.dat").write_bytes(pack(np.array([1, 2, 3, 4]), 16))
    (tmp_path / "s.dat").write_bytes(pack(np.array([1, 2, 3]), 16))
    (tmp_path / "r.hea").write_text(header)
    with pytest.raises(ValueError, match=message):
        read_record(tmp_path / "r.hea")


def test_an_unknown_signal_gets_a_suggestion(tmp_path: Path) -> None:
    record = read_record(write_record(tmp_path, "r", np.ones((2, 2), int)))
    with pytest.raises(ValueError, match=r"no signal 'EKG'; did you mean 'ECG'\? \(it has ECG, HR"):
        record["EKG"]


# ---- vital signs ------------------------------------------------------------------------------

SECONDS = 50  # 7 windows of 32 s, one every 3 s


def write_patients(folder: Path, count: int = 8, seconds: int = SECONDS) -> None:
    """Signals that count their samples; numerics that count the seconds."""
    for i in range(1, count + 1):
        patient = min(i, count - 1)  # the last two records are of one patient
        comment = f"<source>: mimic2wdb/matched/s{patient:05}/"
        time = np.arange(seconds * 125 + 1)
        signals = np.stack([0 * time, time + i, -time], axis=1)
        gains = ("1(0)/pm", "10(0)/mV", "10(0)/NU")
        names = ("RESP, ", "II, ", "PLETH, ")
        write_record(
            folder, f"bidmc{i:02}", signals, rate=125, gains=gains, names=names, comment=comment
        )
        second = np.arange(seconds + 1)
        numerics = np.stack([60 + second + i, 10 + 0 * second + i, 0 * second - 32768], axis=1)
        if i == 1:
            numerics[0, 1] = -32768
        gains = ("1(0)/bpm", "1(0)/pm", "NaN(-32767)/%")
        names = ("HR, ", "RESP, ", "SpO2, ")
        write_record(folder, f"bidmc{i:02}n", numerics, rate=1, gains=gains, names=names)


def load(root: Path, number: str = "HR", **options: Any) -> Dataset:
    return load_bidmc(number, BidmcOptions(**options), DataFolder(root, download=False))


@pytest.mark.parametrize("place", ["bidmc", "bidmc/bidmc-ppg-and-respiration-dataset-1.0.0"])
def test_windows_and_their_means(tmp_path: Path, place: str) -> None:
    write_patients(tmp_path / place)
    data = load(tmp_path)
    assert [len(split) for split in data.splits.values()] == [40, 8, 8]
    windows = data.train.inputs[0]
    assert windows.values.shape[1:] == (4000, 2)
    for i in np.concatenate([split.index for split in data.splits.values()]):
        record, number = 1 + i // 17, i % 17  # 6251 samples begin 17 strides of 375
        start = 375 * number
        np.testing.assert_allclose(
            windows[i][[0, -1], 0] * 10, np.array([0, 3999]) + start + record
        )
        np.testing.assert_allclose(windows[i][[0, -1], 1] * -10, np.array([0, 3999]) + start)
        assert data.train.targets[i] == 60 + record + 3 * number + 15.5


def test_inputs_and_targets_are_standardised_by_training(tmp_path: Path) -> None:
    write_patients(tmp_path / "bidmc")
    data = load(tmp_path)
    batch = data.batch(data.train, np.arange(len(data.train)))
    assert batch.inputs.shape == (40, 4000, 2)
    assert batch.inputs.mean(dim=(0, 1)).abs().max() < 1e-4
    assert batch.inputs.std(dim=(0, 1)).tolist() == pytest.approx([1, 1], abs=1e-4)
    assert float(batch.targets.mean()) == pytest.approx(0, abs=1e-5)
    assert float(batch.targets.std(correction=0)) == pytest.approx(1, abs=1e-5)
    signature = data.signature
    physical = batch.targets * signature.target_scale + signature.target_shift
    np.testing.assert_allclose(physical.numpy(), data.train.labels(), rtol=1e-5)
    assert signature.per_time  # beats per minute; a saturation is not


def test_the_signals_are_stored_once(tmp_path: Path) -> None:
    write_patients(tmp_path / "bidmc")
    values = load(tmp_path).train.inputs[0].values
    (place,) = (tmp_path / "prepared").iterdir()
    size = sum(path.stat().st_size for path in place.iterdir())
    assert values.nbytes > 8 * size
    assert not values.flags.owndata


def test_no_patient_is_in_two_splits(tmp_path: Path) -> None:
    write_patients(tmp_path / "bidmc")
    data = load(tmp_path, split="patient")
    patients = [{min(1 + int(i) // 17, 7) for i in split.index} for split in data.splits.values()]
    assert sorted(patient for part in patients for patient in part) == [1, 2, 3, 4, 5, 6, 7]
    assert [len(part) for part in patients] == [5, 1, 1]
    assert sum(len(split) for split in data.splits.values()) == 8 * 7
    again, other = load(tmp_path, split="patient"), load(tmp_path, split="patient", split_seed=1)
    assert again.test.index.tolist() == data.test.index.tolist()
    assert other.test.index.tolist() != data.test.index.tolist()


def test_fewer_samples_are_means_and_windows_may_be_shorter(tmp_path: Path) -> None:
    write_patients(tmp_path / "bidmc")
    data = load(tmp_path, sample_rate=25, seconds=16)
    windows, signature = data.train.inputs[0], data.signature
    assert windows.values.shape[1:] == (400, 2)
    assert (signature.sample_rate, signature.length) == (25, 400)
    for i in data.train.index:
        record, number = 1 + i // 17, i % 17
        wanted = np.array([2, 1997]) + 375 * number + record  # the middle of five
        np.testing.assert_allclose(windows[i][[0, -1], 0] * 10, wanted, rtol=1e-5)
        assert data.train.targets[i] == 60 + record + 3 * number + 7.5


@pytest.mark.parametrize(("rate", "slots"), [(125, 21), (25, 20)])
def test_copies_are_faster_and_so_are_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: int, slots: int
) -> None:
    """Half as fast again: 4.5 seconds of the record from window to window, and 48 in each."""
    write_patients(tmp_path / "bidmc", seconds=60)
    plain = load(tmp_path, split="patient", sample_rate=rate)
    played = [(1.0, np.ones(2, np.float32)), (1.5, np.full(2, 2, np.float32))]
    monkeypatch.setattr(bidmc, "_tempos", lambda *_: played)
    data = load(tmp_path, split="patient", sample_rate=rate, tempos=1)
    windows, targets, owners = data.train.inputs[0], data.train.targets, data.train.groups
    both = slots + 14  # windows that begin in a record, and in its copy
    for name, split in data.splits.items():
        before = plain.splits[name].index
        mine = split.index[split.index % both < slots]
        assert targets[mine].tolist() == plain.train.targets[before].tolist()
        assert len(mine) == len(split) or name == "train"
    copies = data.train.index[data.train.index % both >= slots]
    assert len(copies) == 4  # each fourth of three for each of five or six records
    assert owners is not None
    assert set(owners[copies]) <= set(owners[plain.train.index // slots * both])
    first, step = (125 // rate - 1) / 2, 1.5 * 125 / rate  # in samples of the record
    for i in copies:
        record, number = 1 + i // both, i % both - slots
        ends = np.array([0, 32 * rate - 1]) + 3 * rate * number
        np.testing.assert_allclose(
            windows[i][[0, -1], 0] * 10, 2 * (first + step * ends + record), rtol=1e-5
        )
        begin, end = int(4.5 * number), int(4.5 * number + 48)
        assert targets[i] == 1.5 * (60 + record + np.arange(begin, end).mean())


def test_copies_are_drawn_anew_for_each_record() -> None:
    options = BidmcOptions(split="patient", tempos=5)
    drawn = [[tempo for tempo, _ in bidmc._tempos(options, record)] for record in (0, 1, 0)]
    assert drawn[0] == drawn[2] != drawn[1]
    assert drawn[0][0] == 1
    assert all(0.6 <= tempo <= 1.7 for tempo in drawn[0])
    assert len(set(drawn[0])) == 6


def test_a_few_windows_are_of_all_patients(tmp_path: Path) -> None:
    write_patients(tmp_path / "bidmc")
    few = load(tmp_path).shortened(train=10)
    assert len({int(i) // 17 for i in few.train.index}) == 8  # the first ten would be of two


def test_windows_with_a_missing_value_are_left_out(tmp_path: Path) -> None:
    write_patients(tmp_path / "bidmc")
    data = load(tmp_path, "RESP")
    rows = np.concatenate([split.index for split in data.splits.values()])
    assert len(rows) == 8 * 7 - 1
    assert 0 not in rows
    with pytest.raises(ValueError, match="0 windows do not make three splits by window"):
        load(tmp_path, "SpO2")


def test_windows_with_a_missing_sample_are_left_out(tmp_path: Path) -> None:
    write_patients(tmp_path / "bidmc")
    time = np.arange(SECONDS * 125 + 1)
    signals = np.stack([time, time], axis=1)
    signals[4100, 1] = -32768
    write_record(tmp_path / "bidmc", "bidmc02", signals, rate=125, names=("II", "PLETH"))
    data = load(tmp_path)
    rows = np.concatenate([split.index for split in data.splits.values()])
    assert sorted(rows[rows // 17 == 1]) == [17]  # only the first window ends before it


def test_bidmc_options_and_files_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown split 'patients'; did you mean 'patient'"):
        BidmcOptions(split="patients")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sample_rate 50: choose 125 or 25"):
        BidmcOptions(sample_rate=50)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seconds 500: a record has 480"):
        BidmcOptions(seconds=500)
    with pytest.raises(ValueError, match="tempos 3 needs split 'patient', got 'window'"):
        BidmcOptions(tempos=3)
    with pytest.raises(ValueError, match="but no other SpO2; leave it out"):
        load(tmp_path, "SpO2", tempos=1, split="patient")
    (tmp_path / "bidmc").mkdir()
    with pytest.raises(MissingDataError, match=r"no records bidmcNN\.hea; unpack bidmc-ppg"):
        load(tmp_path)
    write_patients(tmp_path / "bidmc")
    (tmp_path / "bidmc/bidmc03n.dat").unlink()
    with pytest.raises(MissingDataError, match=r"bidmc03n\.dat is missing; is the download"):
        load(tmp_path)
    write_record(tmp_path / "bidmc", "bidmc03n", np.ones((51, 2), int), rate=2)
    with pytest.raises(ValueError, match=r"bidmc03n\.hea: 2\.0 samples per second, expected 1"):
        load(tmp_path)


def test_what_the_paper_reports_on_vital_signs() -> None:
    tasks = [TASKS[name] for name in ("bidmc-hr", "bidmc-rr", "bidmc-spo2")]
    assert [task.published["S4D-Lin"] for task in tasks] == [0.379, 0.226, 0.114]
    assert [task.published.get("LSTM") for task in tasks] == [10.7, 2.28, None]
    for task in tasks:
        assert task.paper is not None
        assert (task.paper.d_state, task.paper.norm, task.paper.epochs) == (256, "layer", 500)


def test_every_real_record_has_the_sums_its_header_says(real_data: Callable[..., Path]) -> None:
    root = real_data("bidmc") / "bidmc"
    headers = sorted(root.glob("*.hea"))
    assert len(headers) == 106
    for path in headers:
        record = read_record(path)  # verifies the sums
        assert all(signal.checksum is not None for signal in record.header.signals)
        assert len(record.values) == (481 if path.stem.endswith("n") else 60001)
    first = read_record(root / "bidmc01n.hea")
    np.testing.assert_allclose(first["HR"][:3], [94, 94, 94], atol=1e-3)
    assert np.isnan(read_record(root / "bidmc19n.hea")["SpO2"]).all()
    subjects = {str(read_header(path).comments).split("matched/")[1][:6] for path in headers}
    assert len(subjects) == 46


def test_real_vital_signs(real_data: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "bidmc").symlink_to(real_data("bidmc") / "bidmc")
    counts = {}
    for number in ("HR", "RESP", "SpO2"):
        data = load(tmp_path, number)
        counts[number] = [len(split) for split in data.splits.values()]
        rows = np.concatenate([split.index for split in data.splits.values()])
        assert len(set(rows.tolist())) == len(rows)
        assert np.isfinite(data.train.targets[rows]).all()
    assert counts == {
        "HR": [5556, 1191, 1191],  # 7950 less 12
        "RESP": [5457, 1170, 1170],  # less 153
        "SpO2": [5430, 1164, 1164],  # less 192
    }
    by_patient = load(tmp_path, "HR", split="patient")
    owners = [
        str(read_header(tmp_path / f"bidmc/bidmc{i:02}.hea").comments).split("matched/")[1][:6]
        for i in range(1, 54)
    ]
    # 60001 samples begin 161 strides of 375
    patients = [{owners[i // 161] for i in split.index} for split in by_patient.splits.values()]
    assert [len(part) for part in patients] == [32, 7, 7]
    assert len(set.union(*patients)) == 46


def test_real_heart_rates_are_in_the_ecg(real_data: Callable[..., Path], tmp_path: Path) -> None:
    """The period at which the steep parts of the ECG recur, against the monitor's number."""
    (tmp_path / "bidmc").symlink_to(real_data("bidmc") / "bidmc")
    data = load(tmp_path, "HR")
    rows = data.test.index[::10]
    errors = np.array([heart_rate(data.test.inputs[0][i][:, 0]) for i in rows])
    errors -= data.test.targets[rows]
    assert np.median(np.abs(errors)) < 1
    assert (np.abs(errors) < 5).mean() > 0.85


def heart_rate(ecg: Array) -> float:
    """Beats per minute, between 50 and 150, from the autocorrelation of the slopes."""
    slopes = np.convolve(np.abs(np.diff(ecg)), np.ones(15), "same")
    spectrum = np.fft.rfft(slopes - slopes.mean(), 8192)
    recurrence = np.fft.irfft(np.abs(spectrum) ** 2)[: 150 + 1]
    lags = np.arange(50, 150)
    peaks = lags[
        (recurrence[lags] > recurrence[lags - 1]) & (recurrence[lags] >= recurrence[lags + 1])
    ]
    if not len(peaks):
        return float("inf")
    return 60 * 125 / float(peaks[np.argmax(recurrence[peaks])])
