"""Things of one kind by their names: kernels, metrics, methods and the like.

To add one, write it in a file of your own and register it, or name it as an entry point of your package:

    [project.entry-points."gphash.kernel"]
    periodic = "mine.kernels:Periodic"
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Things of one kind by name, imported when they are looked up.

    `noun` is what one of them is called: in errors, and in the entry points ``gphash.NOUN`` of other packages. `homes`
    says where the package's own are, as "module:attribute" by name.
    """

    def __init__(self, noun: str, homes: Mapping[str, str]) -> None:
        self.noun = noun
        self._things: dict[str, T | str] = dict(homes)  # or where they are, until they are looked up

    def register(self, name: str, thing: T) -> T:
        """Add one under a name that is free."""
        if self._things.setdefault(name, thing) is not thing:
            raise ValueError(f"the {self.noun} {name!r} is registered already; choose another name.")
        return thing

    def __getitem__(self, name: str) -> T:
        entry = self._things[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._things[name] = cast(T, getattr(import_module(module), attribute))
        return entry

    def find(self, name: Any, argument: str | None = None) -> T:
        """The one of that name, our own or another package's; an error names the argument and those there are."""
        if isinstance(name, str) and name not in self:
            self._look_around()
        if not isinstance(name, str) or name not in self:
            raise ValueError(f"{argument or self.noun}={name!r}; give one of {', '.join(map(repr, self))}.")
        return self[name]

    def name_of(self, thing: Any) -> str:
        """The name that a class or function has here, under which a file keeps it."""
        home = f"{thing.__module__}:{thing.__qualname__}"
        for name, entry in self._things.items():
            if entry is thing or entry == home:
                return name
        raise ValueError(f"{home} is no registered {self.noun}; register it under a name of its own.")

    def everything(self) -> dict[str, T]:
        """All of them by name, other packages' too."""
        self._look_around()
        return dict(self)

    def _look_around(self) -> None:
        from importlib.metadata import entry_points

        others = entry_points(group=f"gphash.{self.noun.replace(' ', '_')}")
        self._things |= {point.name: point.value for point in others if point.name not in self}

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)

    def __contains__(self, name: object) -> bool:
        return name in self._things
