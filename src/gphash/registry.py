"""Things of one kind by their names: kernels, metrics, methods and the like.

To add one, write it in a file of your own and register it, or name it as an entry point of your package:

    [project.entry-points."gphash.kernel"]
    periodic = "mine.kernels:Periodic"
"""

import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Things of one kind by name, imported when they are looked up.

    `noun` is what one of them is called: in errors, and in the entry points ``gphash.NOUN`` of other packages, which
    are read once, when a name is not known. `homes` says where the package's own are, as "module:attribute" by name.
    """

    def __init__(self, noun: str, homes: Mapping[str, str]) -> None:
        self.noun = noun
        self._things: dict[str, T | str] = dict(homes)  # or where they are, until they are looked up
        self._complete = False

    def register(self, name: str, thing: T) -> T:
        """Add one under a name that is free."""
        if self._things.setdefault(name, thing) is not thing:
            raise ValueError(f"the {self.noun} {name!r} is registered already; choose another name.")
        return thing

    def __getitem__(self, name: str) -> T:
        entry = self._things[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._things[name] = cast(T, attrgetter(attribute)(import_module(module)))
        return entry

    def find(self, name: Any, argument: str | None = None) -> T:
        """The one of that name, our own or another package's; an error names the argument and those there are."""
        if not isinstance(name, str) or name not in self:
            raise ValueError(f"{argument or self.noun}={name!r}; give one of {', '.join(map(repr, self))}.")
        return self[name]

    def name_of(self, thing: Any) -> str:
        """The name that a class or function has here, under which a file keeps it."""
        home = f"{thing.__module__}:{thing.__qualname__}"
        for is_complete in (False, True):
            if is_complete:
                self._complete_names()
            for name, entry in self._things.items():
                if entry is thing or entry == home:
                    return name
        raise ValueError(f"{home} is no registered {self.noun}; register it under a name of its own.")

    def everything(self) -> dict[str, T]:
        """All of them by name, other packages' too; one that cannot be imported is left out with a warning."""
        self._complete_names()
        found = {}
        for name in self:
            try:
                found[name] = self[name]
            except (ImportError, AttributeError) as error:
                warnings.warn(f"the {self.noun} {name!r} of another package cannot be used: {error}", stacklevel=2)
        return found

    def _complete_names(self) -> None:
        """Add the names that other packages' entry points have."""
        if not self._complete:
            from importlib.metadata import entry_points

            others = entry_points(group=f"gphash.{self.noun.replace(' ', '_')}")
            for point in others:
                self._things.setdefault(point.name, point.value)
            self._complete = True

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)

    def __contains__(self, name: object) -> bool:
        if name not in self._things:
            self._complete_names()
        return name in self._things
