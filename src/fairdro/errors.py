"""Errors a user can fix; the message says how."""

import numbers


class InputError(ValueError):
    """A mistake in what the caller passed, told in one sentence. The command line prints it and exits with 2.

    Examples
    --------
    >>> from fairdro import FairDROClassifier
    >>> from fairdro.errors import InputError
    >>> try:
    ...     FairDROClassifier(rho=-1.0).fit([[0.0], [1.0]], [0, 1], sensitive_features=["f", "m"])
    ... except InputError as error:
    ...     print(error)
    rho of fairdro must not be negative, infinite or missing, got -1.0.
    """


class MissingExtraError(ImportError, InputError):
    """A package is not installed that an extra of fairdro brings; the message names the extra.

    Examples
    --------
    >>> from fairdro.errors import InputError, MissingExtraError
    >>> issubclass(MissingExtraError, InputError) and issubclass(MissingExtraError, ImportError)
    True
    """


def unknown_name(kind: str, name: object, known: list[str]) -> InputError:
    """Build the sentence for a name that is not registered."""
    return InputError(f"There is no {kind} named {str(name)!r}; choose one of: {', '.join(known)}.")


def check_share(value: object, name: str) -> None:
    """Refuse what is no share between 0 and 1."""
    given = -1.0 if isinstance(value, bool) or not isinstance(value, numbers.Real) else float(value)
    if not 0 <= given <= 1:
        percent = f"; for {given:g} %, write {given / 100:g}" if 1 < given <= 100 else ""
        raise InputError(f"{name} must be a share between 0 and 1, got {value!r}{percent}.")
