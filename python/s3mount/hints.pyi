from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from typing import Any, TypeVar

Read = str | PathLike[str] | tuple[str | PathLike[str], int, int]
Paths = Sequence[Read] | Callable[[Any], Read | None]
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
