"""Plugins: files and installed packages that add explainers, datasets, targets and metrics.

A plugin calls `register_explainer` or `register_dataset` when it is imported, or puts something of
its own into a table of the laboratory. It is a file (``--plugin file.py``), or a module that an
installed package names in the entry-point group ``nicegnn.plugins``.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from functools import cache
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from nicegnn.errors import ConfigError

GROUP = "nicegnn.plugins"
_PREFIX = "nicegnn_plugin_"  # of the module names of files

log = logging.getLogger(__name__)


def load_plugins(*paths: str | Path) -> None:
    """Imports plugins: all of installed packages, then these files; each of them once.

    A file that cannot be imported is an error. A broken installed package is only a warning, so
    that all else still works.
    """
    _load_installed()
    for path in paths:
        _load_file(Path(path).expanduser().absolute())


def check_name(what: str, name: object, wanted_by: str, used_by: str | None) -> None:
    """Raises `ConfigError` unless a name is a plain word that nothing else uses.

    Whoever uses it may register again, as a cell of a notebook does that runs twice.

    >>> check_name("dataset", "mine", "mine.csv", None)
    >>> check_name("dataset", "mine", "mine.csv", "other.csv")
    Traceback (most recent call last):
    nicegnn.errors.ConfigError: The name of a dataset must be new (got 'mine', which other.csv \
uses). Choose another.
    """
    what = f"{'an' if what[0] in 'aeiou' else 'a'} {what}"
    is_word = isinstance(name, str) and re.fullmatch(r"\w[\w.-]*", name) is not None
    if not is_word or name in ("all", "none"):  # words of options
        raise ConfigError(
            f"The name of {what} must be a word of letters, digits, '-', '_' and '.', but not "
            f"'all' or 'none' (got {name!r}). Choose another."
        )
    if used_by not in (None, wanted_by):
        raise ConfigError(
            f"The name of {what} must be new (got {name!r}, which {used_by} uses). Choose another."
        )


def _load_file(path: Path) -> None:
    name = f"{_PREFIX}{path.stem}"
    if name in sys.modules:
        if (other := sys.modules[name].__file__) != str(path):
            raise ConfigError(
                f"`plugin` must have its own file name (got {path} beside {other}). Rename one."
            )
        return
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"`plugin` must be a Python file (got {path}). Name a file that exists.")
    sys.modules[name] = module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            lines = [error.lineno]
        where = f", line {lines[-1]}" if lines else ""
        raise ConfigError(
            f"Cannot load the plugin {path}{where}: {_words(error)} Correct the file."
        ) from error


@cache
def _load_installed() -> None:
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except (Exception, SystemExit) as error:
            dist = entry.dist
            package = entry.value if dist is None else f"{dist.name} {dist.version}"
            words = f"{entry.name} of {package} is left out: {_words(error)}"
            log.warning("The plugin %s Mend or uninstall it.", words)


def _words(error: BaseException) -> str:
    reason = error.msg if isinstance(error, SyntaxError) else str(error)
    text = reason if isinstance(error, ConfigError) else f"{type(error).__name__}: {reason}"
    return f"{text.rstrip('.')}."
