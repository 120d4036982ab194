"""Makes the pictures of the pages: `python docs/pictures.py`; needs playwright and Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
COMMAND = [sys.executable, "-m", "nicegnn.cli.main"]
SMILES, OTHER = "CN(N=O)Cc1ccccc1", "CN(N)Cc1ccccc1"


def main() -> None:
    page = (DOCS / "tutorial-chemist.md").read_text(encoding="utf-8")
    found = re.search(r'```csv title="mols.csv"\n(.*?)```', page, re.DOTALL)
    assert found is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "mols.csv").write_text(found[1], encoding="utf-8")
        subprocess.run([*COMMAND, "explain", SMILES], cwd=folder, check=True)
        shutil.copy(folder / "explained.svg", IMAGES / "nitrosamine.svg")
        subprocess.run([*COMMAND, "explain", "mols.csv", "--out", "explained"], cwd=folder)
        shoot(
            (folder / "explained" / "gallery.html").as_uri(),
            ".card svg",
            "gallery.png",
            (1200, 760),
        )
    env = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*COMMAND, "serve"], stdout=subprocess.PIPE, text=True, env=env
    ) as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline())
            assert address is not None
            one = f"{address[0]}/?{urlencode({'smiles': SMILES})}"
            shoot(one, ".picture svg", "page.png")
            shoot(one, ".picture svg", "phone.png", (390, 844))
            both = urlencode({"smiles": SMILES, "smiles2": OTHER})
            shoot(f"{address[0]}/?{both}", "#difference:not([hidden])", "compared.png")
        finally:
            server.terminate()


def shoot(address: str, wanted: str, name: str, size: tuple[int, int] = (1440, 900)) -> None:
    """Writes what a browser shows at an address, once something is there."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        page.goto(address)
        page.wait_for_selector(wanted)
        page.wait_for_timeout(1500)  # the editor draws a little later
        page.screenshot(path=IMAGES / name)
        browser.close()


if __name__ == "__main__":
    main()
