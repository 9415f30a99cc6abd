"""Registries: names in, values out, and errors that help."""

from collections.abc import Callable

import pytest

from s4d_torch._registry import Registry, UnknownNameError, did_you_mean


@pytest.fixture
def shapes() -> Registry[int]:
    registry = Registry[int]("shape")
    for name, corners in {"square": 4, "triangle": 3, "circle": 0}.items():
        registry.register(name, corners)
    return registry


def test_is_a_mapping_in_the_order_of_registration(shapes: Registry[int]) -> None:
    assert dict(shapes) == {"square": 4, "triangle": 3, "circle": 0}
    assert list(shapes) == ["square", "triangle", "circle"]
    assert len(shapes) == 3
    assert repr(shapes) == "Registry('shape': square, triangle, circle)"


def test_register_decorates_and_leaves_the_function_as_it_was() -> None:
    registry = Registry[Callable[[int], int]]("function")

    @registry.register("double")
    def double(x: int) -> int:
        return 2 * x

    assert registry["double"] is double
    assert double(2) == 4


def test_register_with_a_value_returns_it() -> None:
    registry = Registry[list[int]]("list")
    value = [1]
    assert registry.register("one", value) is value
    assert registry["one"] is value


def test_none_is_a_value_and_not_a_missing_one() -> None:
    registry = Registry[None]("nothing")
    registry.register("none", None)
    assert registry["none"] is None


def test_a_second_registration_is_refused_and_changes_nothing(shapes: Registry[int]) -> None:
    with pytest.raises(ValueError, match=r"shape 'square' is already registered, as 4"):
        shapes.register("square", 5)
    with pytest.raises(ValueError, match="already registered"):
        shapes.register("square")(5)
    assert shapes["square"] == 4


@pytest.mark.parametrize("expected", [ValueError, KeyError, UnknownNameError])
def test_an_unknown_name_says_what_came_and_what_to_choose(
    shapes: Registry[int], expected: type[Exception]
) -> None:
    with pytest.raises(expected) as error:
        shapes["sqare"]
    assert str(error.value) == (
        "unknown shape 'sqare'; did you mean 'square'? choose one of: square, triangle, circle"
    )


def test_an_unknown_name_far_from_all_gets_no_guess(shapes: Registry[int]) -> None:
    with pytest.raises(UnknownNameError) as error:
        shapes["zzz"]
    assert str(error.value) == "unknown shape 'zzz'; choose one of: square, triangle, circle"


def test_in_and_get_do_not_raise(shapes: Registry[int]) -> None:
    assert "square" in shapes
    assert "sqare" not in shapes
    assert None not in shapes
    assert shapes.get("sqare") is None
    assert shapes.get("sqare", 7) == 7


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("lgs", "; did you mean 'legs'?"),
        ("LegS", "; did you mean 'legs'?"),
        ("cauchy", ""),
        ("", ""),
    ],
)
def test_did_you_mean(name: str, hint: str) -> None:
    assert did_you_mean(name, ["legs", "legt", "inv", "lin"]) == hint


def test_did_you_mean_keeps_the_spelling_of_the_option() -> None:
    assert did_you_mean("s4d_inv", ["S4D_Inv"]) == "; did you mean 'S4D_Inv'?"
