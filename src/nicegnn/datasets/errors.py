"""What can be wrong with data files; each message says what was expected, what came, what to do."""

from __future__ import annotations

from nicegnn.errors import NicegnnError


class DataError(NicegnnError, RuntimeError):
    """Base of all errors about data files."""


class MissingDataError(DataError):
    """The files of a dataset are not in the data folder."""


class DamagedFileError(DataError):
    """A file is truncated, not of its format, or lacks columns."""


class ChecksumError(DataError):
    """A file is complete, but its content is not the expected one."""


class DownloadError(DataError):
    """A file cannot be fetched from any of its addresses."""
