"""Files are written whole or not at all, and damaged or foreign ones are refused."""

from __future__ import annotations

import pytest
import torch

from nicegnn import store
from nicegnn.errors import StoreError
from nicegnn.store import (
    load_tensors,
    save_tensors,
    tensor_digest,
    write_whole,
)

TENSORS = {
    "a": torch.arange(6.0).view(2, 3),
    "b": torch.tensor([True, False]),
    "c": torch.zeros(0, 4, dtype=torch.long),
    "d": torch.tensor(2.5, dtype=torch.float64),
}


def test_tensors_and_description_come_back(tmp_path):
    path = tmp_path / "deep" / "er" / "file.safetensors"
    save_tensors(path, TENSORS, {"kind": "gates", "note": "ρ → 1", "sizes": [1, 2]})
    tensors, description = load_tensors(path, "gates")
    assert set(tensors) == set(TENSORS)
    for key, value in TENSORS.items():
        assert tensors[key].dtype == value.dtype
        assert torch.equal(tensors[key], value)
    assert description == {"kind": "gates", "note": "ρ → 1", "sizes": [1, 2]}


def _fails_half_way(error: type[BaseException]):
    def save(tensors, filename, metadata=None):
        with open(filename, "wb") as file:
            file.write(b"half")
        raise error("the disk is full")

    return save


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_crash_while_writing_leaves_the_old_file_and_nothing_else(error, tmp_path, monkeypatch):
    path = tmp_path / "f"
    save_tensors(path, TENSORS, {"kind": "k"})
    before = path.read_bytes()
    monkeypatch.setattr(store, "save_file", _fails_half_way(error))
    with pytest.raises(StoreError if error is OSError else error):
        save_tensors(path, {"a": torch.ones(1)}, {"kind": "k"})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_wrong_kind_is_refused(tmp_path):
    save_tensors(tmp_path / "f", TENSORS, {"kind": "model"})
    with pytest.raises(StoreError, match="holds a 'model', not a 'gates'"):
        load_tensors(tmp_path / "f", "gates")
    save_tensors(tmp_path / "f", TENSORS, {})
    with pytest.raises(StoreError, match="holds a None"):
        load_tensors(tmp_path / "f", "gates")


def test_any_flipped_bit_is_found_or_harmless(tmp_path):
    path = tmp_path / "f"
    save_tensors(path, TENSORS, {"kind": "k", "model": "abc"})
    whole = path.read_bytes()
    expected, description = load_tensors(path, "k")
    for position in range(8, len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        try:
            found, told = load_tensors(path, "k")
        except StoreError:
            continue
        assert position < len(whole) - sum(t.nbytes for t in TENSORS.values())  # in the header
        assert told == description
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("dtype", [torch.int32, torch.bfloat16, torch.bool, torch.float64])
def test_tensors_of_any_stride_and_type_have_a_digest(dtype):
    one = torch.ones(4, dtype=dtype)
    assert tensor_digest({"a": one}) == tensor_digest({"a": one[:1].expand(4)})
    assert tensor_digest({"a": one}) == tensor_digest({"a": torch.ones(8, dtype=dtype)[::2]})
    empty = torch.empty(0, dtype=dtype).as_strided((0,), (0,))
    assert tensor_digest({"a": empty}) == tensor_digest({"a": one[:0]}) != tensor_digest({"a": one})


def test_pickled_file_is_refused_and_never_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("the file was unpickled",))

    import pickle

    (tmp_path / "f").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(StoreError, match="damaged"):
        load_tensors(tmp_path / "f", "k")


# --- anything else -----------------------------------------------------------------------------


def test_anything_is_written_whole_into_folders_that_are_made(tmp_path):
    path = tmp_path / "deep" / "er" / "numbers.bin"
    seen = []

    def write(temporary):
        temporary.write_bytes(b"12")
        seen.append(temporary)
        assert not path.exists()

    write_whole(path, write)
    assert path.read_bytes() == b"12"
    assert [p.name for p in path.parent.iterdir()] == ["numbers.bin"]
    assert seen[0].parent == path.parent  # the same disk, so that it can take its place at once
    assert seen[0].name.startswith(".")
    assert seen[0].suffix == ".part"
