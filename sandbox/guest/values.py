"""Values that cross between an evaluator and a candidate in another sandbox: plain data and numeric arrays, no pickle.

The text is JSON; what JSON lacks is an object with one key that names its kind: {"tuple": [...]}. Decoding never runs code
of the sender's choice, whatever the bytes are.
"""

from __future__ import annotations

import base64
import collections
import json
from typing import Any

MAX_DEPTH = 64
NUMERIC = "biufc"
ARRAYS = ("jax", "jaxlib", "torch", "cupy")
"""Libraries whose arrays cross as numpy's."""

DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
"""Taken as dicts: what programs return where a dict was asked for."""


class Unsupported(TypeError):
    """A value that cannot cross, such as a function, a class or a generator."""


def encode(value: Any) -> bytes:
    """Return a value as bytes.

    Raises:
        Unsupported: it holds something else than None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset,
            dict (and `DICTS`, as dicts), and arrays and scalars of numbers (numpy's, and those of `ARRAYS`); other
            subclasses don't count; or it is nested too deep.
    """
    return json.dumps(_plain(value, 0), allow_nan=False).encode()


def decode(data: bytes) -> Any:
    """Return the value of `encode`'s bytes.

    Raises:
        ValueError: the bytes are something else.
    """
    try:
        return _value(json.loads(data, parse_constant=_refuse), 0)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"these bytes are no value: {error!r}"[:300]) from None


def checked(value: Any) -> Any:
    """Return a value for code that doesn't look closely: small numbers of arrays widened, so that they don't wrap.

    Raises:
        ValueError: it holds NaN, which passes every comparison that should refuse it, or a number beyond 64 bits.
    """
    kind = type(value)
    if kind is float or kind is complex:
        if value != value:
            raise ValueError("the candidate returned NaN")
        return value
    if kind in (list, tuple, set, frozenset):
        return kind([checked(item) for item in value])
    if kind is dict:
        return {checked(key): checked(item) for key, item in value.items()}
    if kind.__module__ != "numpy":
        return value
    numbers = value.dtype.kind
    if numbers in "fc":
        if (value != value).any():
            raise ValueError("the candidate returned NaN in an array")
        return value.astype("f8" if numbers == "f" else "c16")
    if numbers == "u" and value.size and int(value.max()) > (1 << 63) - 1:
        raise ValueError("the candidate returned an unsigned number beyond 63 bits")
    return value if numbers == "b" else value.astype("i8")


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _plain(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise Unsupported(f"a value nested deeper than {MAX_DEPTH} levels, or a cycle")
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if abs(value) < float("inf") else {"float": str(value)}
    if kind is complex:
        return {"complex": [_plain(value.real, depth + 1), _plain(value.imag, depth + 1)]}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if kind is list:
        return [_plain(item, depth + 1) for item in value]
    if kind in (tuple, set, frozenset):
        return {kind.__name__: [_plain(item, depth + 1) for item in value]}
    if kind in DICTS:
        return {"dict": [[_plain(key, depth + 1), _plain(item, depth + 1)] for key, item in value.items()]}
    if kind.__module__ == "numpy" and getattr(getattr(value, "dtype", None), "kind", "") in tuple(NUMERIC):
        name = "array" if kind.__name__ == "ndarray" else "scalar"
        return {name: [value.dtype.str, list(value.shape), base64.b64encode(value.tobytes()).decode()]}
    if kind.__module__.partition(".")[0] in ARRAYS and hasattr(value, "__array__"):
        return _plain(_as_numpy(value), depth + 1)
    raise Unsupported(f"a {kind.__module__}.{kind.__qualname__} can't cross to or from a separated candidate")


def _as_numpy(value: Any) -> Any:
    import numpy

    try:
        return numpy.asarray(value)
    except Exception as error:  # of another library, such as for a type of numbers that numpy lacks
        raise Unsupported(f"a {type(value).__qualname__} can't become a numpy array: {error}"[:300]) from None


def _value(plain: Any, depth: int) -> Any:
    if depth > 2 * MAX_DEPTH:
        raise ValueError("nested too deep")
    if type(plain) is list:
        return [_value(item, depth + 1) for item in plain]
    if type(plain) is not dict:
        return plain
    ((name, content),) = plain.items()
    if name == "float":
        return {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}[content]
    if name == "complex":
        return complex(*(_value(part, depth + 1) for part in content))
    if name == "bytes":
        return base64.b64decode(content, validate=True)
    if name == "dict":
        return {_value(key, depth + 1): _value(item, depth + 1) for key, item in content}
    if name in ("array", "scalar"):
        dtype, shape, data = content
        return _array(dtype, shape, data, scalar=name == "scalar")
    return {"tuple": tuple, "set": set, "frozenset": frozenset}[name](_value(item, depth + 1) for item in content)


def _array(dtype: str, shape: list[int], data: str, scalar: bool) -> Any:
    import numpy

    kind = numpy.dtype(dtype)
    if kind.kind not in NUMERIC:
        raise ValueError(f"arrays of {dtype} do not cross")
    array = numpy.frombuffer(base64.b64decode(data, validate=True), dtype=kind).reshape(shape).copy()
    return array[()] if scalar else array
