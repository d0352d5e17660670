from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from typing import Any, TypeVar

Paths = Sequence[str | PathLike[str]] | Callable[[Any], str | PathLike[str] | None]
Loader = TypeVar("Loader")

class HintedSampler:
    def __init__(
        self,
        sampler: Iterable[Any],
        paths: Paths,
        ahead: int = ...,
        control_socket: str | PathLike[str] | None = ...,
    ) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...

def hinted(
    loader: Loader,
    paths: Paths | None = ...,
    ahead: int | None = ...,
    control_socket: str | PathLike[str] | None = ...,
) -> Loader: ...
