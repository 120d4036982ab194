"""Where the published files come from, and the checksums of files we know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteFile:
    """A file to fetch.

    Attributes:
        path: where it goes, inside the data folder.
        urls: addresses of the same bytes, tried in order.
        sha256: expected content; none if we could not learn it, then the first download's is
            recorded and later ones must agree.
        note: what we could not check.
    """

    path: str
    urls: tuple[str, ...]
    sha256: str | None = None
    note: str = ""


# Commits whose files have the checksums below.
_GOOGLE = (
    "https://raw.githubusercontent.com/google-research/graph-attribution/"
    "03e7495379df26a21395b25c6a14d92dc27fc3b0/data"
)
_GRAPHXAI = (
    "https://raw.githubusercontent.com/mims-harvard/GraphXAI/"
    "a11e65ffbc4df737f35522a8accf2283a8aeaa37/graphxai/datasets/real_world"
)
_BXAIC = "https://huggingface.co/datasets/mproszewska/B-XAIC/resolve/main"
_BXAIC_NOTE = (
    "The file name is the one B-XAIC's own loader reads; the listing on Hugging Face could not be "
    "checked. If it comes as an archive there, unpack it into the folder B-XAIC."
)


def _molecules(folder: str, copy: str, start: str, sums: tuple[str, str, str]) -> list[RemoteFile]:
    """Files of one set: google-research's, or the same bytes in GraphXAI under ``copy``."""
    names = {
        f"{folder}_smiles.csv": f"{start}_smiles.csv",
        "y_true.npz": "y_true.npz",
        "true_raw_attribution_datadicts.npz": "true_raw_attribution_datadicts.npz",
    }
    return [
        RemoteFile(
            f"{folder}/{name}",
            (f"{_GOOGLE}/{folder}/{name}", f"{_GRAPHXAI}/{copy}/{other}"),
            sha256,
        )
        for (name, other), sha256 in zip(names.items(), sums, strict=True)
    ]


#: Published files of each family.
SOURCES: dict[str, list[RemoteFile]] = {
    "mutagenicity": [
        RemoteFile(
            "Mutagenicity.zip",
            ("https://www.chrsmrrs.com/graphkerneldatasets/Mutagenicity.zip",),
        )
    ],
    "benzene": _molecules(
        "benzene",
        "benzene/benzene_data",
        "benzene",
        (
            "aa52389639d0989dc5bb726c364fbc38ed520468d6606d67679d24b7e6720a28",
            "50d99b8c80ac19410029175787fd993d0634e7dc7b94fbc93739cd1110963d2e",
            "92db47ac62eecf9bcbb015ec1c5bfe6a7d32d5bdedd9a81ac4d42225acb68a9c",
        ),
    ),
    "alkane_carbonyl": _molecules(
        "logic7",
        "alkane_carbonyl/ac_data",
        "AC",
        (
            "7915107a397240cec3daf027d713db2bed107d19d9d941b6d36a4a334a5dfae8",
            "20577c22a6975f20c033a2cf213df9108c10756e7971e83cdd6009f05f2896d5",
            "842a6985ee45f8a85a5e7294199cfa7fc866365357ff1bae371a7a23467b00b2",
        ),
    ),
    "fluoride_carbonyl": _molecules(
        "logic8",
        "fluoride_carbonyl/fc_data",
        "FC",
        (
            "7c4d1863a2f6a026ef3dafc4c7f54519cdd75aa15ea1f298b08e64fa3b75d11d",
            "3e6a1b7e86dad945522fd9cf838d2366f785e16c73e8f37e608ef9d3d467d655",
            "749d6f00695f799aeb1a0e7194a5caa0a68d8c0e99b5f05ff9161ced03bf84b2",
        ),
    ),
    "bxaic": [
        RemoteFile(f"B-XAIC/{name}", (f"{_BXAIC}/{name}",), note=_BXAIC_NOTE)
        for name in ("data.csv", "explanations.sdf")
    ],
}

_TIDY = {
    "graphxai_benzene.csv.gz": "6a6dfdfd59e17202e52aea7f2f2b54f4ad151937e8752451b7de314cb00a209d",
    "graphxai_alkane_carbonyl.csv.gz": (
        "1d60536fc214aed34568c9d4560917a4aa2c54d96ef966af0ee4a7b904a65c22"
    ),
    "graphxai_fluoride_carbonyl.csv.gz": (
        "ad4283ff639522c2cefab961263a4c5b1bb2ab07985361a17b9e66837d17824c"
    ),
    "mutagenicity.csv.gz": "3d172f43f30a1650c0760db9e574efbc5451eb595bca6194cfe4daf97830d6fd",
    "Mutagenicity_raw.zip": "5482cba1c5fe2e9f0bc113f63355fff6a2f2eeaa59026fcee5a119eb3d44c440",
    "bxaic_like.csv.gz": "533996af2c6fc456ef3c4744dc4c7f408c1056cedcaa5fc2d4805b591e28003f",
    "bxaic_like_graphs.csv.gz": "0bddf808b57a3555cfbf4fbab2ac0f6a9f4bc9cbe6dc7464c22d80ec7b213ab2",
}


def known_checksums(file_name: str) -> set[str]:
    """Returns the checksums a file of this name may have; empty if we know none.

    >>> len(known_checksums("y_true.npz")), len(known_checksums("data.csv"))
    (3, 0)
    """
    remote = (file for files in SOURCES.values() for file in files)
    known = {file.sha256 for file in remote if _last(file_name) in map(_last, _names(file))}
    return {value for value in (*known, _TIDY.get(file_name)) if value is not None}


def checksum_note(file_name: str, sha256: str) -> str:
    """Returns a sentence if a file is not the one we know by this name, else an empty text."""
    known = known_checksums(file_name)
    if not known or sha256 in known:
        return ""
    return f"{file_name}: its content (sha256 {sha256[:12]}...) is not the one we know."


def _names(file: RemoteFile) -> tuple[str, ...]:
    return (file.path, *file.urls)


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]
