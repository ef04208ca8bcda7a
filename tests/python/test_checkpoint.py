"""tidepool.atomic_file: whole or not at all."""
import os

import pytest

import tidepool


def test_the_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "model.pt"
    with tidepool.atomic_file(path) as file:
        file.write(b"first")
        assert not path.exists()
    assert path.read_bytes() == b"first"
    with pytest.raises(KeyError):
        with tidepool.atomic_file(path) as file:
            file.write(b"half of the sec")
            raise KeyError
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["model.pt"]  # nothing is left over


def test_the_bytes_are_on_disk_before_the_name(tmp_path, monkeypatch):
    path, order = tmp_path / "model.pt", []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, name=name, real=real: (order.append(name),
                                                                        real(*a))[1])
    tidepool.write_atomic(path, b"data")
    assert order == ["fsync", "replace", "fsync"]  # the last one is the folder's


def test_permissions_are_those_of_the_file_before_or_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        tidepool.write_atomic(tmp_path / "new", b"")
        assert os.stat(tmp_path / "new").st_mode & 0o777 == 0o640
        os.chmod(tmp_path / "new", 0o600)
        tidepool.write_atomic(tmp_path / "new", b"")
        assert os.stat(tmp_path / "new").st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def test_text_and_relative_names_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with tidepool.atomic_file("state.json", "w") as file:
        file.write("{}")
    assert (tmp_path / "state.json").read_text() == "{}"
    with pytest.raises(ValueError, match="does not write"):
        with tidepool.atomic_file("state.json", "rb"):
            pass
