"""Code with one precondition taken away, for the length of a test. It exists in memory only."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import ClassVar

_FRESH = ("dispatch_gates", "dispatch_admission", "explorer", "faithful", "model", "unit")
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


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads from source that was compiled before, since all of this is imported once for each mutant."""

    compiled: ClassVar[dict[str, CodeType]] = {}

    def get_code(self, fullname: str) -> CodeType:
        if fullname not in self.compiled:
            self.compiled[fullname] = compile(self.get_data(self.path), self.path, "exec", dont_inherit=True)
        return self.compiled[fullname]


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads the mutant."""

    def __init__(self, module: str, path: str, source: str) -> None:
        super().__init__(module, path)
        self._code = compile(source, f"<mutant of {module}>", "exec", dont_inherit=True)

    def get_code(self, fullname: str) -> CodeType:
        assert fullname == self.name
        return self._code


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what is imported anew, and the mutant in it; `used` says that the mutant was imported."""

    def __init__(self, mutant: Mutant) -> None:
        self._module, self._source = mutant.module, mutant.source()
        self.used = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] not in _FRESH:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return spec
        if fullname == self._module:
            self.used = True
            spec.loader = _Changed(fullname, spec.loader.path, self._source)
        else:
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


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
