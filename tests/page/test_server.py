"""The server: the same answers as JSON, downloads, files, limits, and a name for every error."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nicegnn.page.desk import ERRORS, Shelf
from nicegnn.pretrained import NAMES, load
from nicegnn.screening.settings import ModelConfig

pytest.importorskip("rdkit", reason="needs RDKit")
pytest.importorskip("fastapi", reason="needs FastAPI (extra 'page')")
testing = pytest.importorskip("starlette.testclient", reason="needs httpx")
SMILES, LOCAL = "CC(=O)Nc1ccc(O)cc1", "http://localhost"


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    return Shelf(ModelConfig(model="benzene"))


def client(shelf: Shelf, address: str = LOCAL) -> Any:
    from nicegnn.page.server import make_app

    return testing.TestClient(make_app(shelf), base_url=address, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def ask(shelf: Shelf) -> Iterator[Any]:
    with client(shelf) as one:
        yield one


def error(answer: Any) -> tuple[int, str]:
    told = answer.json()["error"]
    assert set(told) == {"name", "message"}
    assert answer.status_code == ERRORS[told["name"]] or told["name"] == "bad_request"
    return answer.status_code, told["name"]


def test_answer_is_what_the_explainer_says(ask: Any) -> None:
    found = ask.get("/api/explain", params={"smiles": f"{SMILES} paracetamol"}).json()
    subject = load("benzene")
    out = subject.explainer.explain(subject.featurizer(SMILES), seed=0)
    assert (found["name"], found["prediction"]) == ("paracetamol", "benzene ring")
    assert found["probability"] == pytest.approx(float(out.prediction.exp()[0, 1]), abs=1e-5)
    scores = {
        frozenset(pair): score
        for pair, score in zip(out.bond_index.t().tolist(), out.bond_score.tolist(), strict=True)
    }
    assert [bond["rank"] for bond in found["bonds"]] == sorted(b["rank"] for b in found["bonds"])
    for bond in found["bonds"]:
        expected = scores[frozenset((bond["atom_a"], bond["atom_b"]))]
        assert bond["score"] == pytest.approx(expected, abs=1e-5)
    assert out.atom_score is not None
    assert [a["score"] for a in found["atoms"]] == pytest.approx(out.atom_score.tolist(), abs=1e-5)
    assert out.trust is not None
    assert found["verdict"] == out.trust.verdicts[0]
    assert found["applicability"] == "ok"
    assert len(found["points"]) == len(found["atoms"]) == 11
    assert found["svg"].startswith("<svg")


def test_two_answers_are_compared_in_words(ask: Any) -> None:
    words = {"smiles": SMILES, "smiles2": "CC(C)C1CCC(C)CC1O"}
    found = ask.get("/api/compare", params=words).json()
    assert found["change"] < -0.9
    assert "“benzene ring” falls from > 99 % to < 1 %" in found["words"]
    words = {"smiles": SMILES, "smiles2": SMILES, "model2": "logp"}
    assert ask.get("/api/compare", params=words).json()["change"] is None


def test_changes_of_an_atom_have_their_own_predictions(ask: Any) -> None:
    found = ask.get("/api/changes", params={"smiles": "Cc1ccccc1", "atom": 0}).json()
    sizes = [abs(one["change"]) for one in found]
    assert sizes == sorted(sizes, reverse=True)
    assert "Fc1ccccc1" in {one["smiles"] for one in found}
    one = found[0]
    again = ask.get("/api/explain", params={"smiles": one["smiles"]}).json()
    assert again["probability"] == pytest.approx(one["probability"], abs=1e-5)


def test_downloads_are_files_with_all_numbers(ask: Any) -> None:
    from rdkit import Chem

    words = {"smiles": f"{SMILES} =1+1"}
    answer = ask.get("/api/file/picture.svg", params=words)
    assert answer.headers["content-disposition"] == 'attachment; filename="picture.svg"'
    assert answer.text.startswith("<svg")
    assert "=1+1: benzene ring" in answer.text
    assert ask.get("/api/file/picture.png", params=words).content[:4] == b"\x89PNG"
    supplier = Chem.SDMolSupplier()
    supplier.SetData(ask.get("/api/file/molecule.sdf", params=words).text)
    (mol,) = supplier
    told = ask.get("/api/explain", params=words).json()
    for parts, rows, key in (
        (mol.GetBonds(), told["bonds"], "bond"),
        (mol.GetAtoms(), told["atoms"], "atom"),
    ):
        found = {part.GetIdx(): part.GetDoubleProp("score") for part in parts}
        assert len(rows) == 11
        assert found == {row[key]: pytest.approx(row["score"], abs=1e-5) for row in rows}


@pytest.mark.parametrize(
    ("path", "words", "expected"),
    [
        ("explain", {"smiles": "c1ccccc"}, (422, "bad_molecule")),
        ("explain", {"smiles": ""}, (422, "bad_molecule")),
        ("explain", {"smiles": "C" * 300}, (413, "too_large")),
        ("explain", {"smiles": "C" * 3000}, (413, "too_large")),
        ("explain", {"smiles": "C", "model": "nosuch"}, (404, "unknown_model")),
        ("explain", {"smiles": "C", "limit": "-1"}, (422, "bad_request")),
        ("explain", {}, (422, "bad_request")),
        ("changes", {"smiles": "C", "atom": "7"}, (422, "bad_request")),
        ("nosuch", {}, (404, "unknown_page")),
    ],
)
def test_errors_have_names(ask: Any, path: str, words: dict[str, str], expected: Any) -> None:
    assert error(ask.get(f"/api/{path}", params=words)) == expected


def test_the_page_may_only_be_asked_by_its_name(shelf: Shelf) -> None:
    with client(shelf, "http://evil.example") as ask:
        assert error(ask.get("/api/models")) == (403, "wrong_host")


def test_errors_of_ours_are_not_shown(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a secret")

    monkeypatch.setattr("nicegnn.page.desk.typed_record", broken)
    with client(shelf) as ask:
        answer = ask.get("/api/explain", params={"smiles": "C"})
        assert error(answer) == (500, "internal")
        assert "secret" not in answer.text


def test_pages_need_nothing_from_elsewhere_and_describe_the_interface(ask: Any) -> None:
    for path in ("/", "/docs", "/page.js", "/page.css"):
        answer = ask.get(path)
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "https://" not in answer.text.replace("https://www.openmolecules.org", "")
    found = ask.get("/api/models").json()
    assert found[0]["name"] == "benzene"
    assert {one["name"] for one in found} == set(NAMES)
    found = ask.get("/api/explain", params={"smiles": "N[Pt](N)(Cl)Cl"}).json()
    assert found["notes"][0].startswith("The model may not fit this molecule: no training molecule")
    paths = ask.get("/openapi.json").json()["paths"]
    questions = ("explain", "compare", "changes", "models", "file/{name}")
    assert {f"/api/{one}" for one in questions} == set(paths)


def test_two_hundred_requests_at_once_get_their_own_answers(ask: Any) -> None:
    asked = ["C" * (1 + n % 20) + ("c1ccccc1" if n % 2 else "O") for n in range(200)]

    def one(smiles: str) -> Any:
        return ask.get("/api/explain", params={"smiles": smiles})

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(one, asked))
    assert {answer.status_code for answer in answers} == {200}
    assert [answer.json()["smiles"] for answer in answers] == asked
    said = [answer.json()["prediction"] == "benzene ring" for answer in answers]
    assert said == [n % 2 == 1 for n in range(200)]
