"""Names of endpoints, and the one name that is none. Pure."""

from __future__ import annotations

ALL_REQUESTS = "all requests"
"""Stands in the endpoint column for all endpoints together."""
_SUFFIX = " (endpoint)"


def told_apart(name: str) -> str:
    """The name of an endpoint as it is shown: "all requests (endpoint)" where it is itself called "all requests".

    So is one that is called "all requests (endpoint)", and so on: different names stay different.
    """
    bare = name
    while bare.endswith(_SUFFIX):
        bare = bare.removesuffix(_SUFFIX)
    return name + _SUFFIX if bare == ALL_REQUESTS else name
