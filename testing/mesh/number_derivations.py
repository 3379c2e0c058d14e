"""A small database of numbers with derivations, for tests of the incremental core."""

from __future__ import annotations

from typing import Any

from pilot.derive import Database, Gather, Table, derived


class NumberDatabase(Database):
    """A table of numbers. `ran` are the derivations that ran since the last commit."""

    def __init__(self, count: int = 3) -> None:
        self.reports: list[str] = []
        """The function and the error of each failed derivation."""
        super().__init__(lambda node, error: self.reports.append(f"{node.fn}: {error}"))
        self.numbers: Table[str, Any] = Table(self, "number", parity=lambda _, row: [row % 2])
        self.ran: list[str] = []
        self.on_run = lambda node: self.ran.append(f"{node.fn}{node.args}")
        self.commit([(self.numbers, f"n{i:05}", i) for i in range(count)])

    def set(self, key: str, value: Any) -> list[Any]:
        self.ran.clear()
        return self.commit([(self.numbers, key, value)])


@derived
def number(db: NumberDatabase, key: str) -> int | None:
    value = db.numbers.get(key)
    if value == 13:
        raise ValueError("unlucky")
    return value


@derived
def sign(db: NumberDatabase, key: str) -> str:
    return "+" if (number(db, key) or 0) > 0 else "-"


@derived
def sentence(db: NumberDatabase, key: str) -> str:
    return f"{key} is {sign(db, key)}"


@derived
def keys(db: NumberDatabase) -> tuple[str, ...]:
    return db.numbers.all_keys()


numbers = Gather("numbers", keys, number)
