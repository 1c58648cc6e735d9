"""What can go wrong with a dataset on a cloud, in the two kinds that the program's exit status tells apart."""

from __future__ import annotations


class DatasetError(Exception):
    """The command, a file or a credential is wrong, and nothing was changed: what, where, what to do."""


class CloudError(Exception):
    """The cloud refuses, fails or does not answer, so that the work is not complete: what, where, what to do."""
