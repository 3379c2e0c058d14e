"""Explanations: the rows that a value was derived from, with their paths."""

from __future__ import annotations

from typing import NamedTuple

from pilot.derive import Database, Gather, Table, derived, hub
from pilot.derive.explanation import explain, find_origin


class Shop(Database):
    def __init__(self) -> None:
        super().__init__()
        self.goods: Table[str, int] = Table(self, "Good", price=lambda _, price: [price])
        self.rates: Table[str, int] = Table(self, "Rate")


@hub
def every_good(db: Shop) -> tuple[str, ...]:
    return db.goods.all_keys()


@derived
def rate(db: Shop, name: str) -> int:
    return db.rates.get(name) or db.rates.get("default") or 0


@derived
def price(db: Shop, name: str) -> tuple[str, int] | None:
    every_good(db)
    amount = db.goods.get(name)
    return None if amount is None else (name, amount * rate(db, name))


prices: Gather[str, [], tuple[str, int]] = Gather("prices", keys=every_good, item=price)


@derived
def price_list(db: Shop) -> tuple[tuple[str, int], ...]:
    return tuple(prices(db).values())


def shop() -> Shop:
    db = Shop()
    db.commit([(db.goods, "tea", 2), (db.goods, "ham", 9), (db.rates, "default", 3), (db.rates, "ham", 5)])
    return db


def rows(db: Shop, fn: object, *args: str) -> list[tuple[str, object]]:
    explanation = explain(db, db.watch(fn, *args))  # type: ignore[arg-type]
    return [(reason.table, reason.key) for reason in explanation.rows]


def test_rows_with_their_paths() -> None:
    db = shop()
    explanation = explain(db, db.watch(price, "tea"))
    assert [(r.table, r.key, r.row) for r in explanation.rows] == [("Good", "tea", 2), ("Rate", "default", 3)]
    assert [[str(node.fn) for node in r.path] for r in explanation.rows] == [["price"], ["price", "rate"]]


def test_explanation_stops_at_hubs() -> None:
    db = shop()
    assert [str(node.fn) for node in explain(db, db.watch(price, "tea")).lists] == ["every_good"]


def test_key_list_that_is_read_directly() -> None:
    db = shop()

    @derived
    def first_of_a_price(db: Shop) -> str | None:
        return next(iter(db.goods.keys("price", 9)), None)

    assert [str(node.fn) for node in explain(db, db.watch(first_of_a_price)).lists] == ["Good by"]


def test_missing_rows_are_omitted() -> None:
    db = shop()
    assert ("Rate", "tea") not in rows(db, price, "tea")
    assert ("Rate", "ham") in rows(db, price, "ham")


def test_gather_is_explained_by_all_items() -> None:
    assert {key for _, key in rows(shop(), price_list)} == {"tea", "ham", "default"}


def test_part_is_explained_by_its_item() -> None:
    db = shop()
    node = db.watch(price_list)
    ham = next(value for value in node.value if value[0] == "ham")
    assert [(r.table, r.key) for r in explain(db, node, ham).rows] == [("Good", "ham"), ("Rate", "ham")]


class Label(NamedTuple):
    name: str


class Labels(Database):
    def __init__(self) -> None:
        super().__init__()
        self.labels: Table[Label, bool] = Table(self, "Label")
        self.commit([(self.labels, Label(name), True) for name in ("tea", "ham")])


@hub
def is_visible(db: Labels, label: Label) -> bool:
    return db.labels.get(label) is True


@hub
def visible_labels(db: Labels) -> tuple[Label, ...]:
    return tuple(label for label in db.labels.all_keys() if db.labels.get(label) and is_visible(db, label))


@derived
def label_text(db: Labels, label: Label) -> list[str]:
    return [label.name]


texts: Gather[Label, [], list[str]] = Gather("texts", keys=visible_labels, item=label_text)


def test_part_is_explained_by_the_row_of_its_key() -> None:
    db = Labels()
    node = db.watch(texts)
    explanation = explain(db, node, node.value[Label("ham")])
    assert [(r.table, r.key) for r in explanation.rows] == [("Label", Label("ham"))]
    assert explanation.lists == ()


def test_origin_of_a_value() -> None:
    db = shop()
    node = db.watch(price_list)
    ham = next(value for value in node.value if value[0] == "ham")
    assert find_origin(node, ham) is db.find_node(price, "ham")
    assert find_origin(node, node.value) is node
    assert find_origin(node, object()) is None
