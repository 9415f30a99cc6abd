"""Archives: ordinary ones come out whole, hostile and damaged ones are refused by member."""

import gzip
import io
import shutil
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from s4d_torch.data.files.archive import ArchiveError, Limits, extract, is_archive

CONTENT = {"a.txt": b"first", "sub/b.bin": bytes(range(256)) * 9, "sub/deep/c": b""}


def tar_file(path: Path, *members: tarfile.TarInfo | tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return path


def zip_file(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in members:
            zipped.writestr(name, content, zipfile.ZIP_DEFLATED)
    return path


def tar_member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_member(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def found(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.tgz", "X.TGZ", "x.zip", "x.gz"])
def test_ordinary_archives_come_out_whole(tmp_path: Path, name: str) -> None:
    write: Callable[..., Path] = zip_file if name.endswith("zip") else tar_file
    path = write(tmp_path / name, *CONTENT.items())
    assert is_archive(path)
    extract(path, tmp_path / "out")
    assert found(tmp_path / "out") == CONTENT


def test_a_single_compressed_file_is_no_archive(tmp_path: Path) -> None:
    for name, content in {
        "x.gz": gzip.compress(b"\0" * 2000),
        "y.gz": b"\x1f\x8b",
        "z": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
        assert not is_archive(tmp_path / name)


def test_links_to_files_within_become_copies(tmp_path: Path) -> None:
    path = tar_file(
        tmp_path / "x.tar",
        tar_member("sub/again", tarfile.SYMTYPE, "link"),
        tar_member("sub/link", tarfile.SYMTYPE, "../a.txt"),
        ("a.txt", b"first"),
        tar_member("hard", tarfile.LNKTYPE, "a.txt"),
    )
    extract(path, tmp_path / "out")
    assert found(tmp_path / "out") == dict.fromkeys(
        ["a.txt", "hard", "sub/link", "sub/again"], b"first"
    )
    assert not any(file.is_symlink() for file in (tmp_path / "out").rglob("*"))
    link = zip_member("sub/link", stat.S_IFLNK | 0o777)
    extract(zip_file(tmp_path / "x.zip", ("a", b"1"), (link, b"../a")), tmp_path / "zip")
    assert found(tmp_path / "zip") == {"a": b"1", "sub/link": b"1"}


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize(
    "name",
    ["../out.txt", "a/../../out.txt", "/out.txt", "..", "C:/out.txt", "..\\out.txt", "\\out"],
)
def test_paths_that_leave_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    write: Callable[..., Path] = zip_file if kind == "zip" else tar_file
    path = write(tmp_path / f"x.{kind}", ("good", b""), (name, b"evil"))
    with pytest.raises(ArchiveError, match="has a path that leaves the folder") as refused:
        extract(path, tmp_path / "in" / "out")
    assert repr(name) in str(refused.value)
    assert str(path) in str(refused.value)
    assert set(found(tmp_path)) <= {path.name, "in/out/good"}


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (tar_member("l", tarfile.SYMTYPE, "/etc/passwd"), "is a link to '/etc/passwd', that leav"),
        (tar_member("d/l", tarfile.SYMTYPE, "../../x"), "is a link to 'd/../../x', that leaves"),
        (tar_member("l", tarfile.LNKTYPE, "../x"), "is a link to '../x', that leaves"),
        (tar_member("l", tarfile.SYMTYPE, "."), "something that is no file of the archive"),
        (tar_member("l", tarfile.SYMTYPE, "l"), "something that is no file of the archive"),
        (tar_member("l", tarfile.SYMTYPE, "nowhere"), "something that is no file of the arch"),
        (tar_member("l", tarfile.CHRTYPE), "is a device or another special file"),
        (tar_member("l", tarfile.FIFOTYPE), "is a device or another special file"),
        (tar_member("a.txt", tarfile.DIRTYPE), "is both a file and a folder"),
        (("a.txt/b", b""), "is both a file and a folder"),
        (("./", b"x"), "is a file without a name"),
    ],
)
def test_links_that_leave_and_devices_are_refused(
    tmp_path: Path, member: tarfile.TarInfo | tuple[str, bytes], reason: str
) -> None:
    path = tar_file(tmp_path / "x.tar", ("a.txt", b"1"), member)
    name = member.name if isinstance(member, tarfile.TarInfo) else member[0]
    with pytest.raises(ArchiveError) as refused:
        extract(path, tmp_path / "out")
    assert reason in str(refused.value)
    assert repr(name) in str(refused.value)


def test_links_and_devices_in_zip_files_are_refused(tmp_path: Path) -> None:
    link = zip_member("link", stat.S_IFLNK | 0o777)
    with pytest.raises(ArchiveError, match=r"'link' is a link to '../x', that leaves"):
        extract(zip_file(tmp_path / "x.zip", (link, b"../x")), tmp_path / "out")
    device = zip_member("dev", stat.S_IFCHR | 0o666)
    with pytest.raises(ArchiveError, match="'dev' is a device"):
        extract(zip_file(tmp_path / "y.zip", (device, b"")), tmp_path / "out")


def test_no_path_leads_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    path = tar_file(
        tmp_path / "x.tar",
        tar_member("d", tarfile.SYMTYPE, "e"),
        tar_member("e", tarfile.SYMTYPE, "d/.."),
        ("d/evil", b"evil"),
    )
    with pytest.raises(ArchiveError):
        extract(path, tmp_path / "in" / "out")
    assert set(found(tmp_path)) <= {"x.tar", "in/out/d/evil"}


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_bombs_are_refused(tmp_path: Path, kind: str) -> None:
    write: Callable[..., Path] = zip_file if kind == "zip" else tar_file
    path = write(tmp_path / f"x.{kind}", ("small", b"1"), ("bomb", bytes(3_000_000)))
    extract(path, tmp_path / "all")  # small enough not to matter
    limits = Limits(unquestioned=1_000_000)
    with pytest.raises(ArchiveError, match=r"'bomb' makes .* 1.0 MB, the limit for an archive of"):
        extract(path, tmp_path / "out", limits)
    assert sum(map(len, found(tmp_path / "out").values())) <= 1_000_001
    with pytest.raises(ArchiveError, match=r"'bomb' makes .* larger than the limit of 2.0 MB"):
        extract(path, tmp_path / "out", Limits(total=2_000_000))
    with pytest.raises(ArchiveError, match="'bomb' is one too many: at most 1"):
        extract(path, tmp_path / "out", Limits(files=1))


LONG = {"a long name": tarfile.GNUTYPE_LONGNAME, "properties": tarfile.XHDTYPE}


@pytest.mark.parametrize("name", ["x.tgz", "x.gz"])
@pytest.mark.parametrize("kind", [*LONG.values(), tarfile.XGLTYPE], ids=[*LONG, "for all"])
def test_a_header_that_would_fill_the_memory_is_refused(
    tmp_path: Path, kind: bytes, name: str
) -> None:
    """tarfile reads all of it, 2 GB that are 2 MB on the disk, before it gives the member."""
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 2 << 30
    with gzip.open(tmp_path / name, "wb", compresslevel=1) as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT))
        file.write(bytes(8 << 20))  # more does not come to be read
    tracemalloc.start()
    try:
        assert is_archive(tmp_path / name) == (name == "x.tgz")
        with pytest.raises(ArchiveError, match=r"the header of a member has more than 1\.0 MB"):
            extract(tmp_path / name, tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert found(tmp_path / "out") == {}


def test_holes_without_end_are_refused(tmp_path: Path) -> None:
    """A sparse file's list of holes is read whole, however long it is."""
    header = bytearray(tarfile.TarInfo("x").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[482] = 1  # the list goes on in the next block
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    more = (b"0" * 11 + b"\0") * 42  # 21 pairs, then: it goes on
    with gzip.open(tmp_path / "x.tgz", "wb", compresslevel=1) as file:
        file.write(bytes(header) + (more + b"\1".ljust(8, b"\0")) * 10_000)
    with pytest.raises(ArchiveError, match=r"the header of a member has more than 1\.0 MB"):
        extract(tmp_path / "x.tgz", tmp_path / "out")


def test_names_without_end_are_refused(tmp_path: Path) -> None:
    path = tar_file(tmp_path / "x.tar", ("a/" * 5000 + "b", b"1"))
    with pytest.raises(ArchiveError, match=r"'a/a.*' has a path of 10001 letters"):
        extract(path, tmp_path / "out")


def test_copies_of_links_count(tmp_path: Path) -> None:
    links = [tar_member(f"l{i}", tarfile.LNKTYPE, "a") for i in range(9)]
    path = tar_file(tmp_path / "x.tar", ("a", bytes(100)), *links)
    with pytest.raises(ArchiveError, match="'l4' makes the files larger than the limit of 500 b"):
        extract(path, tmp_path / "out", Limits(total=500))


def test_a_full_disk_is_said_before_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tar_file(tmp_path / "x.tar", ("a", bytes(5000)))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=4000))
    with pytest.raises(OSError, match=r"unpacks to more than the 4.0 kB free on the disk"):
        extract(path, tmp_path / "out")


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.zip"])
@pytest.mark.parametrize("keep", [0, 10, 700, 1100])
def test_damaged_archives_are_said_to_be_so(tmp_path: Path, name: str, keep: int) -> None:
    write: Callable[..., Path] = zip_file if name.endswith("zip") else tar_file
    noise = bytes((i * i * 31 + i // 7) % 256 for i in range(5000))
    path = write(tmp_path / name, ("noise", noise))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ArchiveError, match="is damaged, incomplete or not what its name says"):
        extract(path, tmp_path / "out")


def test_a_broken_header_in_the_middle_is_no_end(tmp_path: Path) -> None:
    path = tar_file(tmp_path / "x.tar", ("a", b"1"), ("b", b"2"))
    content = bytearray(path.read_bytes())
    content[1024:1034] = b"\xff" * 10
    path.write_bytes(content)
    with pytest.raises(ArchiveError, match="no member begins at byte 1024"):
        extract(path, tmp_path / "out")


def test_a_wrong_sum_within_a_zip_file_names_the_member(tmp_path: Path) -> None:
    path = zip_file(tmp_path / "x.zip", ("good", b"1"), ("bad", b"second"))
    content = bytearray(path.read_bytes())
    at = content.index(b"bad") + 3
    content[at : at + 2] = b"\xff\xff"
    path.write_bytes(content)
    with pytest.raises(ArchiveError, match=r"damaged, .* at 'bad'"):
        extract(path, tmp_path / "out")
