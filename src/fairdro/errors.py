"""Errors a user can fix; the message says how."""


class InputError(ValueError):
    """A mistake in what the caller passed, told in one sentence. The command line prints it and exits with 2."""


class MissingExtraError(ImportError, InputError):
    """A package is not installed that an extra of fairdro brings; the message names the extra."""


def unknown_name(kind: str, name: object, known: list[str]) -> InputError:
    """Build the sentence for a name that is not registered."""
    return InputError(f"There is no {kind} named {str(name)!r}; choose one of: {', '.join(known)}.")
