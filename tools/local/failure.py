"""The errors that a person is told, each as one sentence."""


class Failure(Exception):
    """Exit code 1."""


class Usage(Exception):
    """Exit code 2."""
