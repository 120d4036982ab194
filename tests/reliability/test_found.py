"""Hard inputs for the readers, and seeded changes of them, as the second fuzzer tries them."""

from __future__ import annotations

import random

import pytest

from tests.benchmarks import conftest as _importable  # noqa: F401 - scripts of benchmarks/

pytest.importorskip("rdkit", reason="needs RDKit")

#: Of the kinds that earlier versions met with a raw error; runs of the second fuzzer found none.
HARD = {
    "smiles": [b"\x80\xed\xb3\xbf", b"\x81C\x00C", b"\x82CCO alcohol", b"\x80InChI=1S/x", b""],
    "files": [
        b'\x00id,smiles\n"a,CCO\nb,CC\n',  # a quote that is not closed
        b"\x00\xff\xfei\x00d\x00",  # UTF-16 that ends early
        b"\x00smiles\n\x00C\n",
        b"\x02CCO\x00x\n",
        b"\x04\n\n\nM  END\n$$$$\n",
        b"\x05",
        b"\x06PK\x03\x04",
        b"\x07PAR1\x00\x00PAR1",
        b"\xd0\x1f\x8b\x08",  # gzip without an end
        b"\x00smiles,smiles\nC,C\n",
        b"\x00\xef\xbb\xbf\n",
    ],
    "models": [b"", b"\xff\xff\xff\xff", b"\x01\x00\x00{", b"abc"],
}


@pytest.mark.parametrize("target", [*HARD])
def test_hard_inputs_and_their_changes_are_read_or_refused_by_name(target: str) -> None:
    from fuzz_readers import TRIES

    rng = random.Random(0)
    for data in HARD[target]:
        TRIES[target](data)  # raises for what is neither
        for _ in range(3 if target == "models" else 20):
            changed = bytearray(data or b"\0")
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            TRIES[target](bytes(changed))


def test_the_second_fuzzer_notices_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuzz_readers import WrongError, try_files

    from nicegnn.screening.reading import Reader

    monkeypatch.setattr(Reader, "count", lambda self: -1)
    with pytest.raises(WrongError, match="two readings differ"):
        try_files(b"\x00smiles\nCCO\n")
