"""Arrays from untrusted files: right values, and nothing in a file ever runs."""

import os
import pickle
import zipfile

import numpy as np
import pytest

from nicegnn.datasets import DamagedFileError
from nicegnn.datasets.graphxai import published_masks
from nicegnn.datasets.npz import read_object_array, read_plain_array
from tests.datasets.small_files import BENZENE, published_benzene


def test_published_masks_come_back_as_written(tmp_path):
    folder = published_benzene(tmp_path)
    masks = published_masks(folder / "true_raw_attribution_datadicts.npz")
    assert masks == [[frozenset(atoms) for atoms in sets] for _, _, sets in BENZENE]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u1", "?", ">f4"])
def test_inner_arrays_equal_those_of_numpy(dtype, tmp_path):
    inner = (np.arange(6) % 2).astype(dtype).reshape(2, 3)
    entries = np.empty(2, dtype=object)
    entries[:] = [{"a": inner, "b": [np.float64(1.5), None, "text"]}, np.asfortranarray(inner)]
    np.savez(tmp_path / "x.npz", items=entries)
    first, second = read_object_array(tmp_path / "x.npz", "items")
    np.testing.assert_array_equal(first["a"], inner)
    assert first["b"] == [1.5, None, "text"]
    np.testing.assert_array_equal(second, inner)


class Attack:
    """Makes a folder when it is unpickled by an ordinary reader."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.target,)


def test_code_in_a_file_never_runs(tmp_path):
    entries = np.empty(1, dtype=object)
    entries[0] = Attack(str(tmp_path / "harm"))
    np.savez(tmp_path / "x.npz", items=entries)
    with pytest.raises(DamagedFileError, match=r"mkdir, which is not allowed"):
        read_object_array(tmp_path / "x.npz", "items")
    with pytest.raises(DamagedFileError):
        read_plain_array(tmp_path / "x.npz", "items")
    assert not (tmp_path / "harm").exists()
    np.load(tmp_path / "x.npz", allow_pickle=True)["items"]  # the attack itself works
    assert (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    "name", [("builtins", "eval"), ("numpy", "load"), ("numpy.core.multiarray", "fromfile")]
)
def test_only_four_names_are_known(name, tmp_path):
    content = b"c" + "\n".join(name).encode() + b"\n."
    header = np.array([None], dtype=object)
    np.save(tmp_path / "items.npy", header)
    plain = (tmp_path / "items.npy").read_bytes()
    start = plain[: plain.index(b"\n") + 1]
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("items.npy", start + content)
    with pytest.raises(DamagedFileError, match=name[1]):
        read_object_array(tmp_path / "x.npz", "items")


@pytest.mark.parametrize("damage", ["truncated", "no zip", "no array", "empty"])
def test_damaged_files_are_named(damage, tmp_path):
    path = tmp_path / "y.npz"
    np.savez(path, **{"z" if damage == "no array" else "y": np.arange(1000)})
    content = {"truncated": path.read_bytes()[:500], "no zip": b"hello", "empty": b""}
    if damage in content:
        path.write_bytes(content[damage])
    with pytest.raises(
        DamagedFileError, match=r"y\.npz: expected an \.npz file with the array 'y'"
    ):
        read_plain_array(path, "y")
    with pytest.raises(DamagedFileError, match=r"y\.npz"):
        read_object_array(path, "y")


def test_pickle_of_wrong_shape_is_damage_not_a_crash(tmp_path):
    entries = np.empty(1, dtype=object)
    entries[0] = pickle.dumps("nested")  # bytes where a dictionary belongs
    np.savez(tmp_path / "m.npz", datadict_list=entries)
    with pytest.raises(DamagedFileError, match="expected a mask"):
        published_masks(tmp_path / "m.npz")
