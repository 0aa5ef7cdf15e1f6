"""Fixes files on disk, or shows what would change."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from torchvet.checking.checker import Checker
from torchvet.checking.discovery import Target
from torchvet.checking.engine import FileResult
from torchvet.errors import BadInput
from torchvet.fixing.documents import Document, open_document
from torchvet.fixing.rounds import FixResult, fix
from torchvet.patches import made


def is_fixable(result: FileResult, unsafe: bool) -> bool:
    """Whether a file has a finding with an edit that may be made."""
    return any(f.remedy.edits and (f.remedy.safe or unsafe) for f in result.findings)


def fix_bytes(shown: str, data: bytes, checker: Checker, unsafe: bool) -> tuple[Document, FixResult, bytes]:
    """Fix a file's content: the document before, the outcome, and the new content."""
    document = open_document(shown, data, *checker.for_file(shown))
    fixed = fix(document, unsafe)
    if not fixed.counts:
        return document, fixed, data
    try:
        return document, fixed, fixed.document.encode()
    except UnicodeEncodeError as error:
        reason = f"{shown}: an edit has a character that {error.encoding} lacks; nothing was changed"
        return document, FixResult(document, document.check(), refused=[reason]), data


def fix_file(target: Target, checker: Checker, unsafe: bool, write: bool) -> tuple[FixResult, str]:
    """Fix a file in place, or only compute the fix if not `write`. Gives the outcome and a unified diff."""
    data = Path(target.path).read_bytes()
    document, fixed, content = fix_bytes(target.shown, data, checker, unsafe)
    if write and content != data:
        replace_file(target.path, content)
    return fixed, difference(document, fixed.document)


def replace_file(path: str, content: bytes) -> None:
    """Replace a file's content atomically and keep its permissions. Raises `BadInput`."""
    path = os.path.realpath(path)  # a link stays a link
    beside = ""
    try:
        # In the same folder, since a file can be put in place at once only within one file system.
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), prefix=".torchvet-", delete=False) as stream:
            beside = stream.name
            stream.write(content)
        # A temporary file is made for its owner alone.
        os.chmod(beside, os.stat(path).st_mode & 0o7777)
        os.replace(beside, path)
    except OSError as error:
        if beside and os.path.exists(beside):
            os.unlink(beside)
        raise BadInput(f"{path}: the fixed file could not be written: {error.strerror}") from error


ORIGINAL = ".orig"


def keep_originals(contents: Mapping[str, bytes]) -> None:
    """Write each content beside its file, as FILE.orig. Raises `BadInput`, and leaves nothing, if one exists."""
    made: list[str] = []
    try:
        for path, content in contents.items():
            name = os.path.realpath(path) + ORIGINAL
            with open(name, "xb") as stream:
                made.append(name)
                stream.write(content)
            os.chmod(name, os.stat(path).st_mode & 0o7777)
    except OSError as error:
        for one in made:
            os.unlink(one)
        if isinstance(error, FileExistsError):
            raise BadInput(f"{path}{ORIGINAL}: already exists; move it, or omit --keep-original") from error
        raise BadInput(f"{path}{ORIGINAL}: could not be written: {error.strerror}; nothing was changed") from error


def difference(before: Document, after: Document) -> str:
    """A unified diff, a part for each text that differs. `patch -p0` takes that of a module."""
    return "".join(made(text, after.texts[path], path) for path, text in before.texts.items())
