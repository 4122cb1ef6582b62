"""Code with one precondition taken away, for the length of a test. It exists in memory only."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

_FRESH = ("dispatch_gates", "dispatch_admission", "model", "unit")
"""What is imported anew around a mutant, so that everything sees it: the product, and the tests' own code."""


@dataclass(frozen=True)
class Mutant:
    """`snippet` of the module's source, there exactly once, replaced; and the check that must then fail."""

    module: str
    snippet: str
    replacement: str
    caught_by: str

    def source(self) -> str:
        """Return the changed source; raise where the snippet is not there exactly once."""
        found = importlib.util.find_spec(self.module)
        assert found is not None, f"there is no module {self.module}"
        assert found.origin is not None, f"{self.module} has no source"
        text = Path(found.origin).read_text()
        times = text.count(self.snippet)
        assert times == 1, f"{self.module}: the snippet is there {times} times: {self.snippet!r}"
        return text.replace(self.snippet, self.replacement)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from changed source; `used` says that it was imported."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = mutant.module
        self._source = mutant.source()
        self.used = False

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        self.used = True
        exec(compile(self._source, f"<mutant of {self._name}>", "exec"), module.__dict__)


@contextmanager
def installed(mutant: Mutant) -> Iterator[None]:
    """Import everything anew with the mutant in it, and put all back in the end."""
    finder = _Finder(mutant)
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] in _FRESH}
    for name in before:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield
        assert finder.used, f"no check imports {mutant.module}"
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] in _FRESH]:
            del sys.modules[name]
        sys.modules.update(before)
