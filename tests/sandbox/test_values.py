"""What crosses between an evaluator and a separated candidate: exactly the value, or an error."""

import contextlib
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from sandbox.guest.values import Unsupported, decode, encode

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
KEYS = st.integers() | st.text() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.lists(inner).map(tuple) | st.frozensets(KEYS),
    max_leaves=20,
)


def same(one, other):
    return type(one) is type(other) and one == other and repr(one) == repr(other)


@given(VALUES)
def test_values_come_back_as_they_were(value):
    try:
        data = encode(value)
    except UnicodeEncodeError:  # a lone surrogate
        return
    back = decode(data)
    if isinstance(value, frozenset):
        assert back == value
    else:
        assert type(back) is type(value)
        assert back == value


@given(
    nps.arrays(st.sampled_from(["i4", "f8", "c16", "?", ">u2", "f4"]), nps.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
def test_arrays_come_back_to_the_bit(array):
    back = decode(encode(array))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    back.flags.writeable or back.size == 0 or pytest.fail("an array that can't be written to")


def test_numbers_that_json_lacks():
    assert math.isnan(decode(encode(float("nan"))))
    assert decode(encode([float("inf"), -math.inf])) == [math.inf, -math.inf]
    assert same(decode(encode(np.float64(0.1))), np.float64(0.1))


class Liar(float):
    def __repr__(self):
        return "1"


@pytest.mark.parametrize(
    "value", [len, object(), Liar(3), (i for i in [1]), np.array([object()]), np.array(["a"]), int, {1: [len]}]
)
def test_what_cannot_cross_says_so(value):
    with pytest.raises(Unsupported, match="can't cross"):
        encode(value)


def test_cycles_cannot_cross():
    cycle = []
    cycle.append(cycle)
    with pytest.raises(Unsupported, match="cycle"):
        encode(cycle)


@given(
    st.binary(max_size=200)
    | st.text().map(str.encode)
    | st.sampled_from([pickle.dumps(len), b"[" * 100_000, b'{"a": 1, "b": 2}'])
)
def test_any_bytes_are_a_value_or_a_value_error(data):
    with contextlib.suppress(ValueError):
        encode(decode(data))


@pytest.mark.parametrize(
    "text",
    ['{"array": ["|O", [1], "AAAAAAAAAAA="]}', '{"array": ["<f8", [9], "AAAA"]}', '{"float": "1"}',
     '{"dict": [[[], 1]]}', '{"exec": "x"}', "NaN", '{"array": ["<M8[s]", [1], "AAAAAAAAAAA="]}', '{"tuple": 3}'],
)  # fmt: skip
def test_forged_values_are_value_errors(text):
    with pytest.raises(ValueError, match="no value"):
        decode(text.encode())


def test_arrays_of_other_libraries_cross_as_numpys():
    import numpy as np

    kind = type("ArrayImpl", (), {"__module__": "jaxlib._jax", "__array__": lambda self, *_, **__: np.arange(3.0)})
    found = decode(encode({"x": [kind()]}))
    assert found["x"][0].tolist() == [0.0, 1.0, 2.0]

    def fails(self, *_, **__):
        raise TypeError("no bfloat16")

    broken = type("Tensor", (), {"__module__": "torch", "__array__": fails})
    own = type("Own", (), {"__module__": "program", "__array__": lambda self: np.arange(3)})
    for value in (broken(), own()):
        with pytest.raises(Unsupported):
            encode(value)
